"""The indexing pass: every image of a corpus becomes a texture record, once.

Three stages run at the same time, each bounded: threads read and decode files, batches go through the encoder
here, and threads make the channels and maps of each image. Records are committed in the order of the files:
first to the store, then to the registry. A pass that was interrupted anywhere goes on from what the store
holds, so no finished image is made twice.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import CatalogueError, ImageReadError, UnknownInterestError, UsageError
from ..catalogue.registry import KnownFile
from ..catalogue.types import ImageKey, IndexReport, Interest, InterestVectors, Skipped, TextureRecord
from .codes import make_codebook
from .encoders import DenseEncoder, load_encoder
from .exemplars import corpus_mean, exemplar_vectors
from .images import decode_image
from .inputs import plan_inputs, plan_known
from .matching import match_range
from .reading import read_content
from .relating import measure_maps
from .scan import FoundFile, ScanPlan
from .textures import Features, TextureMaker
from .threads import bounded_map, thread_pool

BATCH_SIZE = 8
COMMIT_IMAGES = 64
COMMIT_SECONDS = 5.0
GRACE_DAYS = 30.0
_SECONDS_A_DAY = 86_400.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass is, in files: `done` of `total` are committed, `skipped` of them with a reason."""

    done: int
    total: int
    skipped: int


def index_corpus(
    catalogue: Catalogue,
    inputs: Sequence[str | os.PathLike[str] | bytes],
    *,
    column: str | None = None,
    device: str = "auto",
    engine: str = "local",
    batch_size: int = BATCH_SIZE,
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
        device: where the encoder runs: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        engine: ``local``: threads of this process.
        batch_size: images that go through the encoder together.
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
    """
    started = time.monotonic()
    catalogue.require_writable("index")
    if engine != "local":
        raise UsageError(f"engine {engine!r} is not known; expected 'local'")
    if batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, got {batch_size}")
    plan = plan_inputs(catalogue.registry, inputs, column)
    catalogue.registry.record_archives(plan.archives)
    removed = _note_absent(catalogue, plan, grace_days)
    if codes and not _has_codebook(catalogue) and (plan.new or plan.unchanged or plan.failed):
        # Before it is told which images lack a code: if it comes out otherwise than it was, all of them do.
        encoder = encoder or load_encoder(catalogue.settings.encoder, device)
        adopt_encoder(catalogue, encoder)
        catalogue.adopt_codebook(make_codebook(encoder))
    incomplete = _lacking(catalogue, plan.unchanged, codes)
    again = [_found(known) for known in (*incomplete, *(plan.failed if retry_failed else ()))]
    work = _Pass(catalogue, on_progress, [*plan.new, *again], codes)
    if work.files:
        before = catalogue.registry.files_at(file.path for file in plan.new)
        work.run(encoder or load_encoder(catalogue.settings.encoder, device), batch_size)
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
    files = [_found(file) for file in chosen.values()]
    work = _Pass(catalogue, on_progress, files, _has_codebook(catalogue), again)
    if work.files:
        work.run(encoder or load_encoder(catalogue.settings.encoder, device), BATCH_SIZE)
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


@dataclass(frozen=True, slots=True)
class _Lacking:
    """What is to be made of an image."""

    base: bool = False
    interests: frozenset[int] = frozenset()
    code: bool = False

    def __bool__(self) -> bool:
        return self.base or bool(self.interests) or self.code


@dataclass(frozen=True, slots=True)
class _Job:
    """One file on its way. Fields are filled by the stages, and emptied when no later stage needs them."""

    file: FoundFile
    key: ImageKey | None = None
    size: tuple[int, int] | None = None
    lacking: _Lacking = _Lacking()
    working: NDArray[np.uint8] | None = None
    square: NDArray[np.uint8] | None = None
    features: Features | None = None
    record: TextureRecord | None = None
    reason: str | None = None


class _Pass:
    """One run over a list of files: it makes what their images lack, and `again` the maps named there."""

    def __init__(
        self,
        catalogue: Catalogue,
        on_progress: Callable[[Progress], None],
        files: Sequence[FoundFile],
        codes: bool,
        again: Mapping[ImageKey, frozenset[int]] = MappingProxyType({}),
    ) -> None:
        self.files = files
        self.indexed = 0
        self.skipped: list[Skipped] = []
        self._catalogue = catalogue
        self._on_progress = on_progress
        self._wanted = frozenset(interest.id for interest in catalogue.mapped_interests())
        self._codes = codes
        self._again = again
        self._claims = threading.Lock()
        self._claimed: set[ImageKey] = set()
        self._undecodable: dict[ImageKey, str] = {}

    def run(self, encoder: DenseEncoder, batch_size: int) -> None:
        adopt_encoder(self._catalogue, encoder)
        needed = frozenset[int]().union(*self._again.values())
        vectors = ensure_vectors(self._catalogue, encoder, needed, [file.path for file in self.files])
        self._wanted &= vectors.keys()
        codebook = self._catalogue.codebook() if self._codes else None
        self._maker = TextureMaker(encoder, self._catalogue.schema, vectors, codebook)
        pending: list[_Job] = []
        last = time.monotonic()
        self._on_progress(Progress(0, len(self.files), 0))
        # The channels' many small products run side by side; a BLAS that spreads each over all cores
        # makes them several times slower.
        with thread_pool() as pool, threadpool_limits(1, user_api="blas"):
            window = 2 * batch_size
            loaded = bounded_map(pool, self._load, self.files, window)
            encoded = self._encode(loaded, batch_size)
            try:
                for job in bounded_map(pool, self._finish, encoded, window):
                    pending.append(job)
                    if len(pending) >= COMMIT_IMAGES or time.monotonic() - last > COMMIT_SECONDS:
                        self._commit(pending)
                        pending, last = [], time.monotonic()
            except KeyboardInterrupt:
                self._commit(pending)
                raise
            self._commit(pending)

    def _load(self, file: FoundFile) -> _Job:
        """Read a file; decode it if its image has something to be made."""
        try:
            content = read_content(file.path, file.span)
            key = ImageKey.of(content)
            lacking = self._claim(key)
            if lacking is None:
                return _Job(file, key)
            if not lacking:
                size = self._catalogue.registry.image_size(key) or decode_image(content, file.path).size
                return _Job(file, key, size)
            try:
                loaded = decode_image(content, file.path)
            except ImageReadError as error:
                self._undecodable[key] = error.reason
                raise
            working, square = self._maker.squares(loaded.image)
            return _Job(file, key, loaded.size, lacking, working if lacking.base else None, square)
        except ImageReadError as error:
            return _Job(file, reason=error.reason)

    def _claim(self, key: ImageKey) -> _Lacking | None:
        """What is to be made of an image; None when a file before this one sees to it."""
        with self._claims:
            if key in self._claimed:
                return None
            self._claimed.add(key)
        lacking = _lacks(self._catalogue, key, self._wanted, self._codes)
        return replace(lacking, interests=lacking.interests | self._again.get(key, frozenset()))

    def _encode(self, jobs: Iterable[_Job], batch_size: int) -> Iterator[_Job]:
        """Give jobs their features, a batch at a time; jobs that need none keep their place between."""
        batch: list[_Job] = []
        filled = 0
        for job in jobs:
            batch.append(job)
            filled += job.square is not None
            if filled == batch_size or len(batch) == COMMIT_IMAGES:
                yield from self._encode_batch(batch)
                batch, filled = [], 0
        yield from self._encode_batch(batch)

    def _encode_batch(self, batch: Sequence[_Job]) -> Iterator[_Job]:
        features = iter(self._maker.encode([job.square for job in batch if job.square is not None]))
        for job in batch:
            yield job if job.square is None else replace(job, square=None, features=next(features))

    def _finish(self, job: _Job) -> _Job:
        if job.key is None or job.features is None:
            return job
        lacking = job.lacking
        record = self._maker.record(job.key, job.working, job.features, lacking.interests, lacking.code)
        return replace(job, working=None, features=None, record=record)

    def _commit(self, jobs: Sequence[_Job]) -> None:
        if not jobs:
            return
        self._catalogue.store.write(job.record for job in jobs if job.record is not None)
        rows = [self._row(job) for job in jobs]
        sizes = {job.key: job.size for job in jobs if job.key is not None and job.size is not None}
        self._catalogue.registry.record_files(rows, sizes)
        with self._claims:
            self._claimed.difference_update(job.key for job in jobs if job.key is not None)
        for row in rows:
            if row.reason is None:
                self.indexed += 1
            else:
                self.skipped.append(Skipped(os.fsdecode(row.path), row.reason))
        done = self.indexed + len(self.skipped)
        self._on_progress(Progress(done, len(self.files), len(self.skipped)))

    def _row(self, job: _Job) -> KnownFile:
        # A file with the content of one that could not be decoded shares its fate.
        reason = job.reason if job.key is None else self._undecodable.get(job.key)
        key = job.key if reason is None else None
        file = job.file
        return KnownFile(file.path, file.size, file.mtime_ns, file.device, key, reason, None)


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


def _has_codebook(catalogue: Catalogue) -> bool:
    try:
        catalogue.codebook()
    except CatalogueError as error:
        if catalogue.settings.codebook:
            _log.warning("%s", error)
        return False
    return True


def _lacks(catalogue: Catalogue, key: ImageKey, wanted: frozenset[int], codes: bool) -> _Lacking:
    """What an image lacks of its base, the maps of `wanted`, and its code if it shall have one."""
    held = catalogue.store.held(key)
    code = codes and not catalogue.store.has_code(key)
    return _Lacking(held is None, wanted - (held or frozenset()), code)


def _lacking(catalogue: Catalogue, files: Iterable[KnownFile], codes: bool) -> list[KnownFile]:
    """Those of `files` whose record is gone, or lacks the map of an interest or a code it shall have."""
    wanted = frozenset(interest.id for interest in catalogue.mapped_interests())
    complete: dict[ImageKey, bool] = {}
    for known in files:
        if known.key is not None and known.key not in complete:
            complete[known.key] = not _lacks(catalogue, known.key, wanted, codes)
    return [known for known in files if known.key is not None and not complete[known.key]]


def _found(known: KnownFile) -> FoundFile:
    return FoundFile(known.path, known.size, known.mtime_ns, known.device)
