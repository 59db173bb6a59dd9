"""The indexing pass: every image of a corpus becomes a texture record, once.

Three stages run at the same time, each bounded: threads read and decode files, batches go through the encoder
here, and threads make the channels and maps of each image. Records are committed in the order of the files:
first to the store, then to the registry. A pass that was interrupted anywhere goes on from what the store
holds, so no finished image is made twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import ImageReadError, UsageError
from ..catalogue.registry import KnownFile
from ..catalogue.types import ImageKey, IndexReport, InterestVectors, Skipped, TextureRecord
from .encoders import DenseEncoder, load_encoder
from .images import decode_image, read_content
from .matching import match_range
from .scan import FoundFile, ScanPlan, absolute, plan_scan
from .textures import Features, TextureMaker

BATCH_SIZE = 8
COMMIT_IMAGES = 64
COMMIT_SECONDS = 5.0
GRACE_DAYS = 30.0
_SECONDS_A_DAY = 86_400.0

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass is, in files: `done` of `total` are committed, `skipped` of them with a reason."""

    done: int
    total: int
    skipped: int


def index_corpus(
    catalogue: Catalogue,
    folders: Sequence[str | os.PathLike[str] | bytes],
    *,
    device: str = "auto",
    engine: str = "local",
    batch_size: int = BATCH_SIZE,
    retry_failed: bool = False,
    grace_days: float = GRACE_DAYS,
    encoder: DenseEncoder | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> IndexReport:
    """Bring `catalogue` up to date with the images at and below `folders`.

    A file whose size and time of change are as known is not opened, unless an interest was added since. A
    file that cannot be read is skipped with its reason. A file that is gone is forgotten `grace_days` after
    the pass that missed it first; one whose disk is not mounted is not gone. Interrupt it at any time.

    Args:
        catalogue: open to write.
        folders: folders, searched to the bottom, or files.
        device: where the encoder runs: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        engine: ``local``: threads of this process.
        batch_size: images that go through the encoder together.
        retry_failed: read again files that could not be read, though they have not changed.
        grace_days: how long the records of a removed file are kept.
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
    roots = [absolute(folder) for folder in folders]
    known_files = catalogue.registry.files(roots)
    plan = plan_scan(roots, known_files)
    removed = _note_absent(catalogue, plan, grace_days)
    incomplete = _lacking(catalogue, plan.unchanged)
    again = [_found(known) for known in (*incomplete, *(plan.failed if retry_failed else ()))]
    work = _Pass(catalogue, on_progress, [*plan.new, *again])
    if work.files:
        work.run(encoder or load_encoder(catalogue.settings.encoder, device), batch_size)
        changed = [known_files[file.path].key for file in plan.new if file.path in known_files]
        catalogue.store.delete(catalogue.registry.forget_images(key for key in changed if key is not None))
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


def adopt_encoder(catalogue: Catalogue, encoder: DenseEncoder) -> None:
    """Check that `encoder` is the catalogue's own; the first that a writable catalogue meets becomes that.

    Raises:
        FingerprintMismatchError: its records are another encoder's.
    """
    catalogue.check_encoder(encoder.fingerprint)
    if catalogue.writable and not catalogue.settings.fingerprint:
        catalogue.adopt_encoder(encoder.fingerprint, *match_range(encoder))


def ensure_vectors(catalogue: Catalogue, encoder: DenseEncoder) -> dict[int, InterestVectors]:
    """Vectors of every interest; those that the registry lacks are made, and kept if it can be written."""
    known = catalogue.registry.vectors(encoder.fingerprint)
    lacking = {i.id: i.phrase for i in catalogue.interests() if i.id not in known}
    if not lacking:
        return known
    from .encoders.tensors import phrase_vectors

    made = phrase_vectors(encoder, lacking)
    if catalogue.writable:
        catalogue.registry.put_vectors(encoder.fingerprint, made)
    return {**known, **made}


@dataclass(frozen=True, slots=True)
class _Job:
    """One file on its way. Fields are filled by the stages, and emptied when no later stage needs them."""

    file: FoundFile
    key: ImageKey | None = None
    size: tuple[int, int] | None = None
    base: bool = False
    interests: frozenset[int] = frozenset()
    working: NDArray[np.uint8] | None = None
    square: NDArray[np.uint8] | None = None
    features: Features | None = None
    record: TextureRecord | None = None
    reason: str | None = None


class _Pass:
    """One run over a list of files."""

    def __init__(
        self, catalogue: Catalogue, on_progress: Callable[[Progress], None], files: Sequence[FoundFile]
    ) -> None:
        self.files = files
        self.indexed = 0
        self.skipped: list[Skipped] = []
        self._catalogue = catalogue
        self._on_progress = on_progress
        self._wanted = frozenset(interest.id for interest in catalogue.interests())
        self._claims = threading.Lock()
        self._claimed: set[ImageKey] = set()
        self._undecodable: dict[ImageKey, str] = {}

    def run(self, encoder: DenseEncoder, batch_size: int) -> None:
        adopt_encoder(self._catalogue, encoder)
        vectors = ensure_vectors(self._catalogue, encoder)
        self._maker = TextureMaker(encoder, self._catalogue.schema, vectors)
        pending: list[_Job] = []
        last = time.monotonic()
        self._on_progress(Progress(0, len(self.files), 0))
        # The channels' many small products run side by side; a BLAS that spreads each over all cores
        # makes them several times slower.
        with _thread_pool() as pool, threadpool_limits(1, user_api="blas"):
            window = 2 * batch_size
            loaded = _bounded_map(pool, self._load, self.files, window)
            encoded = self._encode(loaded, batch_size)
            try:
                for job in _bounded_map(pool, self._finish, encoded, window):
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
            content = read_content(file.path)
            key = ImageKey.of(content)
            claim = self._claim(key)
            if claim is None:
                return _Job(file, key)
            base, interests = claim
            if not base and not interests:
                size = self._catalogue.registry.image_size(key) or decode_image(content, file.path).size
                return _Job(file, key, size)
            try:
                loaded = decode_image(content, file.path)
            except ImageReadError as error:
                self._undecodable[key] = error.reason
                raise
            working, square = self._maker.squares(loaded.image)
            return _Job(file, key, loaded.size, base, interests, working if base else None, square)
        except ImageReadError as error:
            return _Job(file, reason=error.reason)

    def _claim(self, key: ImageKey) -> tuple[bool, frozenset[int]] | None:
        """What is to be made of an image: (base?, interests); None when a file before this one sees to it."""
        with self._claims:
            if key in self._claimed:
                return None
            self._claimed.add(key)
        held = self._catalogue.store.held(key)
        return held is None, self._wanted - (held or frozenset())

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
        record = self._maker.record(job.key, job.working, job.features, job.interests)
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


def _lacking(catalogue: Catalogue, files: Iterable[KnownFile]) -> list[KnownFile]:
    """Those of `files` whose record is gone, or lacks the map of an interest."""
    wanted = frozenset(interest.id for interest in catalogue.interests())
    complete: dict[ImageKey, bool] = {}
    for known in files:
        if known.key is not None and known.key not in complete:
            held = catalogue.store.held(known.key)
            complete[known.key] = held is not None and wanted <= held
    return [known for known in files if known.key is not None and not complete[known.key]]


def _found(known: KnownFile) -> FoundFile:
    return FoundFile(known.path, known.size, known.mtime_ns, known.device)


@contextmanager
def _thread_pool() -> Iterator[ThreadPoolExecutor]:
    """A pool that, when left by an error, drops what it has not begun."""
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="texcat-index")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _bounded_map(
    pool: ThreadPoolExecutor, function: Callable[[_In], _Out], items: Iterable[_In], window: int
) -> Iterator[_Out]:
    """`function` of each item, in order, at most `window` of them begun ahead of the consumer."""
    pending: deque[Future[_Out]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) >= window:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
