"""Making a catalogue anew with another encoder, or with one that a new version has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..catalogue.catalogue import Catalogue
from ..catalogue.types import IndexReport
from .codebooks import make_codebook
from .encoders import DenseEncoder
from .indexing import found_again, has_codebook, incomplete_files, run_pass
from .inputs import plan_known
from .matching import match_range
from .passes import Pass, Progress
from .relating import measure_maps


@dataclass(frozen=True, slots=True)
class Reindexing:
    """What making a catalogue anew comes to.

    Attributes:
        before, after: fingerprints of the encoders. If they are the same, only what is lacking is made.
        images: images of the catalogue.
        unavailable: those of them of which no file is there as it was. They get no textures until one is.
    """

    before: str
    after: str
    images: int
    unavailable: int


def plan_reindexing(catalogue: Catalogue, encoder: DenseEncoder) -> Reindexing:
    """What `reindex` would come to. Nothing is changed."""
    plan = plan_known(catalogue.registry, catalogue.registry.all_files())
    there = {known.key for known in plan.unchanged}
    images = list(catalogue.registry.images())
    lost = sum(key not in there for key in images)
    return Reindexing(catalogue.settings.fingerprint, encoder.fingerprint, len(images), lost)


def reindex(
    catalogue: Catalogue,
    encoder: DenseEncoder,
    *,
    codes: bool = True,
    batch_size: int | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> IndexReport:
    """Make all textures of `catalogue` with `encoder`, which becomes its own.

    Interests, their weights and history, what was asked, the graph, and what is known of files stay. The
    textures and codes of the encoder before go at the beginning, all at once, because records of two encoders
    never mix; until an image has its new ones, look-ups compute them. When it is interrupted, this goes on
    from there, and so does `index_corpus`, once the new encoder is the catalogue's.

    Args:
        catalogue: open to write.
        encoder: loaded.
        codes, batch_size, on_progress: as for `index_corpus`.

    Returns:
        As `index_corpus`. `IndexReport.unavailable` counts images here, of which no file is as it was.

    Raises:
        ReadOnlyError, EncoderError, StoreFullError: as their names say.
    """
    started = time.monotonic()
    catalogue.require_writable("reindex")
    plan = plan_known(catalogue.registry, catalogue.registry.all_files())
    codebook = make_codebook(encoder) if codes else None  # what may fail comes before anything is lost
    if catalogue.settings.fingerprint != encoder.fingerprint:
        catalogue.replace_encoder(encoder.spec, encoder.fingerprint, *match_range(encoder))
    if codebook is not None and not has_codebook(catalogue):
        catalogue.adopt_codebook(codebook)
    incomplete = incomplete_files(catalogue, plan.unchanged, codes)
    chosen = {known.key: known for known in reversed(incomplete)}  # of each image, the first file
    work = Pass(catalogue, on_progress, [found_again(known) for known in chosen.values()], codes)
    if work.files:
        run_pass(work, catalogue, encoder, batch_size)
    measure_maps(catalogue)
    there = {known.key for known in plan.unchanged}
    return IndexReport(
        indexed=work.indexed,
        unchanged=len(there) - len(chosen),
        removed=0,
        unavailable=sum(key not in there for key in catalogue.registry.images()),
        skipped=tuple(work.skipped),
        seconds=time.monotonic() - started,
        stages=work.stages,
        on_cpu=work.on_cpu,
    )
