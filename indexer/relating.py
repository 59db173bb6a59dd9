"""Relating phrases: by what they mean, with the encoder, and by what is seen, from the stored maps.

Ties of sight follow from maps, and are made again where distributions are (`measure_maps`): at the end of a
pass or an expansion. Ties of meaning need the encoder for each phrase that is new, so they wait until the
graph is asked for (`interest_graph`); when no phrase is new, nothing is loaded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import ReadOnlyError, RegistryError
from ..catalogue.memory import Memory
from ..catalogue.phrases import normalise_phrase
from ..catalogue.relations import Relations
from .encoders import DenseEncoder, load_encoder
from .encoders.cache import cached_array
from .statistics import interest_scores, refresh_distributions

if TYPE_CHECKING:
    from ..catalogue.graph import InterestGraph

LEAST_IMAGES = 30
"""With fewer images in common, a correlation says nothing."""

SIGHT_IMAGES = 1_000
"""Images that interests are compared over: a correlation is right to about 0.03."""

CANDIDATES = 20
"""So many of the built-in vocabulary come along with each phrase that is an interest, or was asked about."""

_BATCH = 256

_log = logging.getLogger(__name__)


def interest_graph(
    catalogue: Catalogue,
    *,
    candidates: Iterable[str] = (),
    device: str = "auto",
    encoder: DenseEncoder | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> InterestGraph:
    """The graph of everything that the catalogue knows, its ties brought up to date.

    Phrases that are new are embedded, for which the encoder is loaded, and tied to the nearest. With each of
    them that is an interest, or was asked about, come the `CANDIDATES` nearest of a built-in vocabulary: the
    names of the classes of ImageNet-21k, things that there are photos of. It is embedded once for each user
    and encoder, which takes minutes, and kept in the user's cache folder. A catalogue that was given other
    candidates keeps to those.

    Where the registry cannot be written, a warning tells so, and phrases that are new stay without ties of
    meaning. Before the first image is indexed, there are none.

    Args:
        catalogue: open to read, or to write.
        candidates: phrases to suggest from, in place of the built-in vocabulary; kept in the catalogue.
        device: where the encoder runs, if it is needed.
        encoder: an encoder that is loaded already.
        on_progress: called while the vocabulary is embedded, with how many phrases are done, of how many.

    Raises:
        InvalidPhraseError: a candidate is none. None is added.
        ReadOnlyError, RegistryError: there are `candidates`, and the registry cannot be written.
        EncoderError, FingerprintMismatchError, StoreFullError: as their names say.
    """
    from ..catalogue.graph import InterestGraph  # which imports networkx: no pass or look-up needs it

    given = [normalise_phrase(phrase) for phrase in candidates]
    if given:
        with Memory.of(catalogue) as memory:
            memory.add_candidates(given)
    now, settings = time.time(), catalogue.settings
    with Memory.of(catalogue, read_only=True) as memory:
        new = settings.fingerprint and Relations(memory.database, settings.fingerprint).without_text()
        if not new:
            return InterestGraph.load(memory, settings, now=now, half_life=settings.half_life)
    try:
        with Memory.of(catalogue) as memory:
            encoder = encoder or load_encoder(settings.encoder, device)
            take_candidates(catalogue, memory, encoder, on_progress)
            relate_by_meaning(catalogue, memory, encoder)
    except (ReadOnlyError, RegistryError) as error:
        _log.warning("%d phrases are not tied by their meaning yet: %s", len(new), error)
    with Memory.of(catalogue, read_only=True) as memory:
        return InterestGraph.load(memory, settings, now=now, half_life=settings.half_life)


def measure_maps(catalogue: Catalogue) -> None:
    """Bring up to date what follows from stored maps: distributions, and with them ties of sight.

    Raises:
        ReadOnlyError: the catalogue is open to read.
        StoreFullError: the disk has no room.
    """
    revision = catalogue.revision
    refresh_distributions(catalogue)
    if catalogue.revision != revision:
        with Memory.of(catalogue) as memory:
            relate_by_sight(catalogue, memory)


def take_candidates(
    catalogue: Catalogue,
    memory: Memory,
    encoder: DenseEncoder,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Make candidates of the words of the built-in vocabulary nearest to new phrases; how many.

    New are interests and phrases that were asked about which have no text embedding yet. Words that are part
    of one are left out: who looks for a mountain bike has not asked for mountains. Nothing is taken where the
    catalogue has candidates that are not in the built-in vocabulary.

    Raises:
        FingerprintMismatchError: the catalogue's records are another encoder's.
        ReadOnlyError, StoreFullError: the memory is open to read, or the disk is full.
    """
    from .encoders.nouns import class_names

    catalogue.check_encoder(encoder.fingerprint)
    words = class_names()
    nodes = memory.nodes()
    if not {node.phrase for node in nodes if node.candidate} <= set(words):
        return 0
    lacking = set(Relations(memory.database, encoder.fingerprint).without_text())
    new = [n.phrase for n in nodes if n.phrase in lacking and (n.weight is not None or not n.candidate)]
    if not new:
        return 0
    vectors = _vocabulary(words, encoder, on_progress)
    parts = {part for n in nodes if n.weight is not None or not n.candidate for part in _parts(n.phrase)}
    apart = np.array([word in parts for word in words])
    taken: set[int] = set()
    for start in range(0, len(new), _BATCH):
        cosines = np.where(apart, -1.0, _embedded(encoder, new[start : start + _BATCH]) @ vectors.T)
        taken.update(np.argpartition(-cosines, CANDIDATES, axis=1)[:, :CANDIDATES].ravel().tolist())
    memory.add_candidates(words[place] for place in sorted(taken))
    return len(taken)


def relate_by_meaning(catalogue: Catalogue, memory: Memory, encoder: DenseEncoder) -> int:
    """Embed every phrase that has no text embedding yet, and tie it to the nearest; how many there were.

    What was done is kept when it is interrupted.

    Raises:
        FingerprintMismatchError: the catalogue's records are another encoder's.
        ReadOnlyError, StoreFullError: the memory is open to read, or the disk is full.
    """
    catalogue.check_encoder(encoder.fingerprint)
    relations = Relations(memory.database, encoder.fingerprint)
    phrases = relations.without_text()
    remaining = iter(phrases)
    while batch := list(islice(remaining, _BATCH)):
        relations.add_texts(dict(zip(batch, _embedded(encoder, batch), strict=True)))
    return len(phrases)


def relate_by_sight(catalogue: Catalogue, memory: Memory) -> int:
    """Tie interests whose scores rise and fall together over the corpus, in place of all such ties.

    Compared are images that all these interests have a map of, among the first `SIGHT_IMAGES` that the store
    names, which it names by their digests, so that they are a random choice; how many they are. An interest
    with maps of fewer than half as many of them as the one with most is left out. With fewer than
    `LEAST_IMAGES` images nothing is tied.

    Raises:
        ReadOnlyError, StoreFullError: the memory is open to read, or the disk is full.
    """
    phrases = {interest.id: interest.phrase for interest in catalogue.mapped_interests()}
    sample = list(islice(catalogue.store.keys(), SIGHT_IMAGES))
    found = interest_scores(catalogue.store, sample, list(phrases))  # NaN where there is no map
    counts = np.isfinite(found).sum(1)
    compared = 2 * counts >= max(1, counts.max(initial=0))
    shared = np.isfinite(found[compared]).all(0) if compared.any() else np.zeros(len(sample), bool)
    scores = {}
    if shared.sum() >= LEAST_IMAGES:
        rows = zip(phrases.values(), compared, found[:, shared], strict=True)
        scores = {phrase: row for phrase, among, row in rows if among}
    Relations(memory.database, catalogue.settings.fingerprint).put_scores(scores)
    return int(shared.sum())


def _parts(phrase: str) -> Iterator[str]:
    """Runs of words of a phrase, itself among them."""
    words = phrase.split()
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield " ".join(words[start:end])


def _vocabulary(
    words: Sequence[str], encoder: DenseEncoder, on_progress: Callable[[int, int], None]
) -> NDArray[np.float32]:
    """Text embeddings of `words`: float32 [N, d_text]."""

    def make() -> NDArray[np.float32]:
        _log.info("embedding a vocabulary of %d words, once", len(words))
        parts = []
        for start in range(0, len(words), _BATCH):
            on_progress(start, len(words))
            parts.append(_embedded(encoder, words[start : start + _BATCH]))
        on_progress(len(words), len(words))
        return np.concatenate(parts)

    digest = blake3("\n".join((encoder.fingerprint, *words)).encode()).hexdigest(length=16)
    return cached_array(f"vocabulary-{digest}", (len(words), encoder.text_dim), make)


def _embedded(encoder: DenseEncoder, phrases: Sequence[str]) -> NDArray[np.float32]:
    texts: NDArray[np.float32] = encoder.text(phrases).float().cpu().numpy()
    return texts
