"""Adding an interest that images show, with a look at them before anything is kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import EncoderError, UsageError
from ..catalogue.phrases import normalise_phrase
from ..catalogue.types import Exemplar, Interest, InterestVectors
from .encoders import DenseEncoder, load_encoder
from .exemplars import corpus_mean, exemplar_vectors
from .images import load_image
from .indexing import adopt_encoder
from .places import absolute

_log = logging.getLogger(__name__)


def learn_interest(
    catalogue: Catalogue,
    phrase: str,
    exemplars: Iterable[Exemplar | str | os.PathLike[str]],
    weight: float = 1.0,
    *,
    with_words: bool = False,
    device: str = "auto",
    encoder: DenseEncoder | None = None,
) -> Interest:
    """Add an interest that images show, and make its vectors now, where `Catalogue.add_interest` waits.

    Their files are not needed any more then. Where nothing is indexed yet, so that there is nothing to tell
    them from, or the encoder cannot be loaded, of which a warning tells, the next pass makes the vectors.

    Args:
        catalogue: open to write.
        phrase, exemplars, weight, with_words: as for `Catalogue.add_interest`; one exemplar at least.
        device: where the encoder runs: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        encoder: an encoder that is loaded already; otherwise the catalogue's own is.

    Raises:
        ImageReadError: an exemplar cannot be read as an image. Nothing is added.
        UsageError: there are no exemplars, or they do not differ from what images show in general. Nothing
            is added.
        InvalidPhraseError, ReadOnlyError, FingerprintMismatchError: as their names say.
    """
    catalogue.require_writable("add an interest")
    name = normalise_phrase(phrase)
    shown = tuple(_seen(exemplar) for exemplar in exemplars)
    if not shown:
        raise UsageError(f"interest {name!r} has no exemplars; give at least one image that shows it")
    encoder = _encoder(catalogue, name, device, encoder)
    if encoder is None:
        return catalogue.add_interest(name, shown, weight, with_words=with_words)
    interest = Interest(0, name, weight, shown, with_words)
    vectors = exemplar_vectors(catalogue, encoder, interest, corpus_mean(catalogue, encoder))
    added = catalogue.add_interest(name, shown, weight, with_words=with_words)
    _put_once(catalogue, encoder.fingerprint, added, vectors)
    return added


def _seen(exemplar: Exemplar | str | os.PathLike[str]) -> Exemplar:
    """`exemplar` with an absolute path and the key of its image, which was decoded to see that it can be."""
    given = exemplar if isinstance(exemplar, Exemplar) else Exemplar(os.fspath(exemplar))
    path = os.fsdecode(absolute(given.path))
    return Exemplar(path, given.box, load_image(path).key)


def _encoder(catalogue: Catalogue, name: str, device: str, given: DenseEncoder | None) -> DenseEncoder | None:
    """The catalogue's encoder; None when the vectors have to wait for the next pass."""
    if not catalogue.registry.counts().images:
        return None
    try:
        encoder = given or load_encoder(catalogue.settings.encoder, device)
    except EncoderError as error:
        _log.warning("the next pass has to look at the exemplars of interest %r: %s", name, error)
        return None
    adopt_encoder(catalogue, encoder)
    return encoder


def _put_once(catalogue: Catalogue, fingerprint: str, added: Interest, vectors: InterestVectors) -> None:
    """Keep the vectors, unless these exemplars were there before: their maps were made with those vectors."""
    if added.id not in catalogue.registry.vectors(fingerprint):
        catalogue.registry.put_vectors(fingerprint, {added.id: vectors})
