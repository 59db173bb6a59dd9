"""Indexing a corpus: telling what is new, changed, lacking or gone from what is known; a `Pass` for it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import CatalogueError, ImageReadError, UnknownInterestError, UsageError
from ..catalogue.registry import KnownFile
from ..catalogue.types import ImageKey, IndexReport, Interest, InterestVectors, Skipped
from .codebooks import make_codebook
from .crew import Crew
from .encoders import DenseEncoder, devices_of, load_encoder
from .exemplars import corpus_mean, exemplar_vectors
from .inputs import plan_inputs, plan_known
from .matching import match_range
from .passes import Pass, Progress, lacks
from .relating import measure_maps
from .scan import FoundFile, ScanPlan

ENGINES = ("local", "ray")
GRACE_DAYS = 30.0
_SECONDS_A_DAY = 86_400.0

_log = logging.getLogger(__name__)


def index_corpus(
    catalogue: Catalogue,
    inputs: Sequence[str | os.PathLike[str] | bytes],
    *,
    column: str | None = None,
    device: str = "auto",
    engine: str = "local",
    ray_address: str | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    retry_failed: bool = False,
    grace_days: float = GRACE_DAYS,
    codes: bool = True,
    encoder: DenseEncoder | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> IndexReport:
    """Bring `catalogue` up to date with the images at and below `inputs`.

    An input is a folder, a file, a tar archive, a list of images, or a URL of any of these; `plan_inputs`
    tells how each is looked at.

    A file whose size and time of change are as known is not opened, unless an interest was added since, or
    its image has no code and shall have one. A file that cannot be read is skipped with its reason. A file
    that is gone is forgotten `grace_days` after the pass that missed it first; one whose disk is not mounted
    is not gone. Interrupt it at any time.

    Args:
        catalogue: open to write.
        inputs: folders, searched to the bottom, files, and the others named above.
        column: of the lists that holds paths or URLs; the first of path, url and image when None.
        device: where the encoder runs: ``cpu``, ``cuda``, ``cuda:1`` …; several with commas between, and each
            has a process of its own, twice one that is named twice; ``auto``: all GPUs, else the processor.
        engine: ``local``: threads of this process; ``ray``: workers of a Ray cluster, which read the files
            themselves, so that they need them at the same paths; this process alone writes.
        ray_address: of a cluster; without one, the workers run on this machine.
        workers: how many, with ``ray``; by default one on each GPU, or on each two cores.
        batch_size: images that go through the stages together. By default 8 on a processor; on a GPU, as
            many as its free memory holds, 256 at most.
        retry_failed: read again files that could not be read, though they have not changed.
        grace_days: how long the records of a removed file are kept.
        codes: whether images get codes, from which the map of any phrase can be made later without the
            encoder. Those that have one keep it.
        encoder: an encoder that is loaded already; otherwise the catalogue's own is, if there is work for it.
        on_progress: called after each commit.

    Returns:
        Counts of files; `IndexReport.skipped` names each file that has no texture, with the reason.

    Raises:
        ReadOnlyError, FingerprintMismatchError, EncoderError, StoreFullError: as their names say.
        EngineError: the cluster cannot be reached, or its workers are lost again and again.
    """
    started = time.monotonic()
    catalogue.require_writable("index")
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r} is not known; expected {' or '.join(map(repr, ENGINES))}")
    if engine == "local" and (ray_address is not None or workers is not None):
        raise UsageError("ray_address and workers are for engine 'ray'")
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, got {batch_size}")
    plan = plan_inputs(catalogue.registry, inputs, column)
    catalogue.registry.record_archives(plan.archives)
    removed = _note_absent(catalogue, plan, grace_days)
    devices = devices_of(device) if engine == "local" else [device]
    given = encoder
    several = Crew(given or catalogue.settings.encoder, devices) if len(devices) > 1 else nullcontext()
    with several as crew:
        if crew is not None and plan.new:
            crew.start()  # and this process makes a codebook meanwhile, and vectors
        if codes and not has_codebook(catalogue) and (plan.new or plan.unchanged or plan.failed):
            # Before it is told which images lack a code: if it comes out otherwise than it was, all do.
            encoder = encoder or load_encoder(catalogue.settings.encoder, devices[0])
            adopt_encoder(catalogue, encoder)
            catalogue.adopt_codebook(make_codebook(encoder))
        incomplete = incomplete_files(catalogue, plan.unchanged, codes)
        again = [found_again(known) for known in (*incomplete, *(plan.failed if retry_failed else ()))]
        work = Pass(catalogue, on_progress, [*plan.new, *again], codes)
        if work.files:
            if crew is not None:
                crew.start()
            before = catalogue.registry.files_at(file.path for file in plan.new)
            encoder = encoder or load_encoder(catalogue.settings.encoder, devices[0])
            if engine == "ray":
                _gather(
                    work,
                    catalogue,
                    encoder,
                    given=given,
                    device=device,
                    address=ray_address,
                    workers=workers,
                    batch_size=batch_size,
                )
            else:
                run_pass(work, catalogue, encoder, batch_size, crew)
            replaced = [known.key for known in before.values() if known.key is not None]
            catalogue.store.delete(catalogue.registry.forget_images(replaced))
    measure_maps(catalogue)
    still_failed = () if retry_failed else plan.failed
    unseen = {skipped.path for skipped in plan.skipped}
    return IndexReport(
        indexed=work.indexed,
        unchanged=len(plan.unchanged) - len(incomplete),
        removed=removed,
        unavailable=sum(os.fsdecode(known.path) not in unseen for known in plan.unavailable),
        skipped=(
            *plan.skipped,
            *(Skipped(os.fsdecode(known.path), known.reason or "") for known in still_failed),
            *work.skipped,
        ),
        seconds=time.monotonic() - started,
        stages=work.stages,
        on_cpu=work.on_cpu,
    )


def encode_again(
    catalogue: Catalogue,
    again: Mapping[ImageKey, frozenset[int]],
    *,
    encoder: DenseEncoder | None,
    device: str,
    on_progress: Callable[[Progress], None],
) -> tuple[list[ImageKey], tuple[Skipped, ...]]:
    """Make maps of images anew with the encoder, though they may be held, from files that have not changed.

    What these images lack beside, they get as by `index_corpus`.

    Args:
        catalogue: open to write.
        again: the interests whose maps are made, by image.
        encoder, device, on_progress: as for `index_corpus`.

    Returns:
        The images that were encoded, and the files that could not be read. An image that is in neither has
        no file that is as it was when it was indexed.
    """
    plan = plan_known(catalogue.registry, catalogue.registry.files_of(again))
    chosen = {file.key: file for file in plan.unchanged if file.key is not None}
    files = [found_again(file) for file in chosen.values()]
    work = Pass(catalogue, on_progress, files, has_codebook(catalogue), again)
    if work.files:
        run_pass(work, catalogue, encoder or load_encoder(catalogue.settings.encoder, device), None)
    unread = {skipped.path for skipped in work.skipped}
    made = [key for key, file in chosen.items() if os.fsdecode(file.path) not in unread]
    return made, tuple(work.skipped)


def adopt_encoder(catalogue: Catalogue, encoder: DenseEncoder) -> None:
    """Check that `encoder` is the catalogue's own; the first that a writable catalogue meets becomes that.

    Raises:
        FingerprintMismatchError: its records are another encoder's.
    """
    catalogue.check_encoder(encoder.fingerprint)
    if catalogue.writable and not catalogue.settings.fingerprint:
        catalogue.adopt_encoder(encoder.fingerprint, *match_range(encoder))


def ensure_vectors(
    catalogue: Catalogue,
    encoder: DenseEncoder,
    needed: Collection[int] = (),
    files: Sequence[bytes] = (),
) -> dict[int, InterestVectors]:
    """Vectors of every interest; those that the registry lacks are made, and kept if it can be written.

    An interest whose exemplars cannot be used, as when their files are gone, is left out with a warning.

    Args:
        catalogue: holds the interests.
        encoder: makes the vectors.
        needed: ids of interests that must not be left out.
        files: paths that are about to be indexed; as for `corpus_mean`.

    Raises:
        ImageReadError, UsageError: the exemplars of an interest that is `needed` cannot be used.
        UnknownInterestError: another process has removed one.
    """
    known = catalogue.registry.vectors(encoder.fingerprint)
    lacking = [interest for interest in catalogue.interests() if interest.id not in known]
    made = _make_vectors(catalogue, encoder, lacking, needed, files) if lacking else {}
    if gone := set(needed) - known.keys() - made.keys():
        raise UnknownInterestError(f"number {min(gone)}")
    if catalogue.writable:
        catalogue.registry.put_vectors(encoder.fingerprint, made)
    return {**known, **made}


def _make_vectors(
    catalogue: Catalogue,
    encoder: DenseEncoder,
    interests: Sequence[Interest],
    needed: Collection[int],
    files: Sequence[bytes],
) -> dict[int, InterestVectors]:
    from .encoders.tensors import phrase_vectors

    made = phrase_vectors(encoder, {i.id: i.phrase for i in interests if not i.exemplars})
    corpus: NDArray[np.float32] | None = None
    for interest in (i for i in interests if i.exemplars):
        try:
            if corpus is None:
                corpus = corpus_mean(catalogue, encoder, files)
            made[interest.id] = exemplar_vectors(catalogue, encoder, interest, corpus)
        except (ImageReadError, UsageError) as error:
            if interest.id in needed:
                raise
            _log.warning("interest %r gets no maps: %s", interest.phrase, error)
    return made


def run_pass(
    work: Pass,
    catalogue: Catalogue,
    encoder: DenseEncoder,
    batch_size: int | None,
    crew: Crew | None = None,
) -> None:
    """Do the work of a pass, with the vectors of all interests that there are maps to be made of.

    With a `crew`, its processes do.
    """
    adopt_encoder(catalogue, encoder)
    vectors = ensure_vectors(catalogue, encoder, work.needed, [file.path for file in work.files])
    if crew is None:
        work.run(encoder, vectors, batch_size)
    else:
        work.share(crew, vectors, batch_size)


def _gather(
    work: Pass,
    catalogue: Catalogue,
    encoder: DenseEncoder,
    *,
    given: DenseEncoder | None,
    device: str,
    address: str | None,
    workers: int | None,
    batch_size: int | None,
) -> None:
    """Do the work of a pass on a cluster. Its workers load the encoder themselves, unless it was `given`."""
    from .cluster import Cluster
    from .workers import Recipe

    adopt_encoder(catalogue, encoder)
    vectors = ensure_vectors(catalogue, encoder, work.needed, [file.path for file in work.files])
    recipe = Recipe(
        given or catalogue.settings.encoder,
        encoder.fingerprint,
        catalogue.schema,
        vectors,
        catalogue.codebook() if work.codes else None,
    )
    with Cluster(recipe, device=device, address=address, workers=workers) as cluster:
        work.gather(cluster, vectors, batch_size)


def _note_absent(catalogue: Catalogue, plan: ScanPlan, grace_days: float) -> int:
    """Mark files that are gone, forget those gone for long, renew the rows of those that are back."""
    now = time.time()
    gone = [known.path for known in plan.missing if known.missing_since is None]
    overdue = [
        known.path
        for known in plan.missing
        if known.missing_since is not None and now - known.missing_since > grace_days * _SECONDS_A_DAY
    ]
    if plan.renewed:
        catalogue.registry.record_files(plan.renewed)
    if gone:
        catalogue.registry.mark_missing(gone, now)
    if overdue:
        catalogue.store.delete(catalogue.registry.forget_files(overdue))
    return len(gone)


def has_codebook(catalogue: Catalogue) -> bool:
    """Whether codes can be made and read; a codebook that is lost or damaged is told in a warning."""
    try:
        catalogue.codebook()
    except CatalogueError as error:
        if catalogue.settings.codebook:
            _log.warning("%s", error)
        return False
    return True


def incomplete_files(catalogue: Catalogue, files: Sequence[KnownFile], codes: bool) -> list[KnownFile]:
    """Those of `files` whose record is gone, or lacks the map of an interest or a code it shall have."""
    wanted = frozenset(interest.id for interest in catalogue.mapped_interests())
    keys = {known.key for known in files if known.key is not None}
    lacking = lacks(catalogue, keys, wanted, codes)
    return [known for known in files if known.key is not None and lacking[known.key]]


def found_again(known: KnownFile) -> FoundFile:
    """A file that is as it was when it was recorded."""
    return FoundFile(known.path, known.size, known.mtime_ns, known.device)
