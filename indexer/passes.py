"""One pass over a list of files: each image gets what it lacks of its texture record.

The stages of a pass run at the same time, each in threads of its own, a batch of files at a time: files are
read, decoded, encoded, drafted (base channels and maps, quantised), coded and written. On a GPU, all but
reading and writing happens there, and only whole numbers come back. Records are committed in the order of the
files: first to the store, then to the registry. A pass that was interrupted anywhere goes on from what the
store holds, so no finished image is made twice.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING
from weakref import WeakSet

from threadpoolctl import threadpool_limits

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import ImageReadError
from ..catalogue.registry import KnownFile
from ..catalogue.types import ImageKey, InterestVectors, Skipped, StageTime, TextureRecord
from .encoders import DenseEncoder
from .images import decode_image
from .lacking import Lacking
from .memory import kept_blocks
from .reading import read_content
from .scan import FoundFile
from .threads import Stages

if TYPE_CHECKING:
    from .cluster import Cluster
    from .crew import Crew
    from .textures import Drafts, TextureMaker
    from .waiting import Waiting

BATCH_SIZE = 8
"""Images that go through the stages together on a processor; more of them gain nothing."""

READERS = 4
"""Threads that read files. Reading waits for the disk, and hashing does without Python's lock."""

COMMIT_SECONDS = 5.0
COMMIT_IMAGES = {"cpu": 64, "cuda": 512}
"""A commit waits for the disk, once for each shard: after so many images, or `COMMIT_SECONDS`."""

UNWRITTEN = 8
"""Batches that wait for a commit, at most. A disk may be slow for a second, and these have no pixels and no
features any more; what waited before them would be on the GPU."""

_makers: WeakSet[TextureMaker] = WeakSet()
"""Of this process. One of a pass that has ended is garbage, if it is there: errors that libraries keep hold
frames, and these what the pass had, which may be gigabytes on a GPU. Garbage is collected then, which takes
0.3 s."""

SWITCH_SECONDS = 50e-6
"""How long a thread may keep Python's lock while others wait, where a GPU is to be kept busy."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass is, in files: `done` of `total` are committed, `skipped` of them with a reason."""

    done: int
    total: int
    skipped: int


@dataclass(slots=True)
class _Job:
    """One file on its way, the `first` with its content or not. The stages fill it in."""

    file: FoundFile
    content: bytes = b""
    key: ImageKey | None = None
    size: tuple[int, int] | None = None
    first: bool = False
    lacking: Lacking = field(default_factory=Lacking)
    reason: str | None = None


@dataclass(slots=True)
class _Batch:
    """Files on their way together, and those of them, `made`, whose images get something, in order."""

    jobs: list[_Job]
    made: list[_Job] = field(default_factory=list)
    working: Waiting | None = None
    squares: Waiting | None = None
    features: Waiting | None = None
    pooled: Waiting | None = None
    drafts: Drafts | None = None
    codes: Mapping[int, bytes] = field(default_factory=dict)
    gathered: Sequence[TextureRecord] = ()
    """Records that were made elsewhere."""

    @property
    def lacking(self) -> list[Lacking]:
        return [job.lacking for job in self.made]

    def records(self) -> Iterator[TextureRecord]:
        yield from self.gathered
        if self.drafts is None:
            return
        for place, job in enumerate(self.made):
            assert job.key is not None
            drafts = self.drafts
            yield TextureRecord(
                job.key, drafts.bases.get(place), drafts.maps.get(place) or {}, self.codes.get(place)
            )


class Pass:
    """One run over a list of files: it makes what their images lack, and `again` the maps named there.

    Attributes:
        files: all of them.
        codes: whether images get codes.
        again: maps that are made though they are held.
        needed: interests whose maps must be made.
        indexed: files whose image has a texture now.
        skipped: those that could not be read.
        stages: what each stage took.
        on_cpu: images that were decoded by the processor, though the encoder runs on a GPU.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        on_progress: Callable[[Progress], None],
        files: Sequence[FoundFile],
        codes: bool,
        again: Mapping[ImageKey, frozenset[int]] = MappingProxyType({}),
    ) -> None:
        self.files = files
        self.again = again
        self.needed = frozenset[int]().union(*again.values())
        self.indexed = 0
        self.skipped: list[Skipped] = []
        self.stages: tuple[StageTime, ...] = ()
        self.on_cpu = 0
        self._catalogue = catalogue
        self._on_progress = on_progress
        self._wanted = frozenset(interest.id for interest in catalogue.mapped_interests())
        self.codes = codes
        self._claimed: set[ImageKey] = set()
        self._undecodable: dict[ImageKey, str] = {}
        self._pending: list[_Batch] = []
        self._reported: Progress | None = None

    @cached_property
    def fresh(self) -> bool:
        """Whether the store held nothing when this was first asked for, so that nothing need be looked up."""
        return next(self._catalogue.store.keys(), None) is None

    def run(
        self, encoder: DenseEncoder, vectors: Mapping[int, InterestVectors], batch_size: int | None
    ) -> None:
        """Do it all.

        Args:
            encoder: of the catalogue.
            vectors: of interests. One that is not among them gets no maps.
            batch_size: as for `index_corpus`.
        """
        self._prepare(encoder, vectors, batch_size)
        self._report()
        try:
            self._make(_chunks(self.files, self._most))
        except KeyboardInterrupt:
            self._commit()
            raise
        finally:
            self._report()

    def share(self, crew: Crew, vectors: Mapping[int, InterestVectors], batch_size: int | None) -> None:
        """Do it all with a crew, whose processes read the files and make the records.

        Args:
            crew: of the catalogue's encoder.
            vectors, batch_size: as for `run`.
        """
        from .crew import Task, measured

        self._wanted &= vectors.keys()
        task = Task(self._catalogue.path, vectors, self.codes, dict(self.again), batch_size, self.fresh)
        started = self._last_commit = time.monotonic()
        writing = 0.0
        for finished in crew.run(task, self.files, self._report):
            begun = time.monotonic()
            self._catalogue.registry.record_files(finished.rows, finished.sizes)
            self._count(finished.rows)
            writing += time.monotonic() - begun
            self._report()
        self.stages = (*crew.stages, measured("register", started, writing))
        self.on_cpu = crew.on_cpu

    def _prepare(
        self, encoder: DenseEncoder, vectors: Mapping[int, InterestVectors], batch_size: int | None
    ) -> None:
        from .textures import ENCODED_AT_ONCE, MOST_AT_ONCE, TextureMaker, room_for
        from .warming import warm_up

        self._wanted &= vectors.keys()
        codebook = self._catalogue.codebook() if self.codes else None
        if _makers:
            gc.collect()
        warm_up(encoder)
        maker = self._maker = TextureMaker(encoder, self._catalogue.schema, vectors, codebook)
        _makers.add(maker)
        if maker.device.type != "cuda":
            room = BATCH_SIZE
        elif 0 < len(self.files) <= ENCODED_AT_ONCE:
            room = MOST_AT_ONCE  # to ask takes longer than to encode them
        else:
            room = room_for(maker)  # records the encoder, too
        self._size = batch_size or room
        self._commit_images = COMMIT_IMAGES[maker.device.type]
        self._last_commit = time.monotonic()

    def _most(self) -> int:
        """Images of the next batch, at most."""
        return min(self._size, self._maker.most)

    def _make(self, chunks: Iterable[Sequence[FoundFile]]) -> None:
        """Take files through all stages."""
        from .decoding import Decoder
        from .streams import own_stream, shared_stream
        from .textures import ENCODING, few_threads

        maker = self._maker
        half = max(1, (os.cpu_count() or 1) // 2)
        # Two batches are encoded at once, each by half of the cores: threads of one wait for each other, and
        # those of other stages, which have a core each, make some of them late.
        encoders = min(2, os.cpu_count() or 1)
        decoders = drafters = coders = half
        prepare: Callable[[], None] = partial(few_threads, half)
        prepare_beside = partial(few_threads, 1)
        if maker.device.type == "cuda":
            # The encoder's two threads take turns in one stream: it does not wait while one hands a batch
            # on, and nvJPEG, whose streams have no priority, has but one to wait for.
            prepare = partial(shared_stream, maker.device, ENCODING)
            # What is small goes first: a batch comes out sooner, and the encoder fills what it leaves.
            prepare_beside = partial(own_stream, maker.device, priority=-1)
            # Two batches at once where it takes longest.
            encoders, decoders, drafters, coders = 2, 2, 1, 2
        with (
            nullcontext() if maker.device.type == "cuda" else kept_blocks(),
            Stages() as stages,
            Decoder(maker) as self._decoder,
            threadpool_limits(1, user_api="blas"),
            _little_waiting(maker.device.type == "cuda"),
        ):
            stages.add("read", READERS, self._read)
            stages.add("claim", 1, self._claim)
            stages.add("decode", decoders, self._decode, prepare_beside)
            stages.add("encode", encoders, self._encode, prepare)
            stages.add("draft", drafters, self._draft, prepare_beside)
            stages.add("code", coders, self._code, prepare_beside)
            stages.add("write", 1, self._write, waiting=UNWRITTEN)
            for _ in stages.run(chunks):
                self._report()
            self._commit()
            self.stages, self.on_cpu = stages.times(), self._decoder.on_cpu

    def gather(self, cluster: Cluster, interests: Collection[int], batch_size: int | None) -> None:
        """Do it all on a cluster, whose workers read the files and make the records.

        Args:
            cluster: whose recipe is the catalogue's.
            interests: of which it has vectors.
            batch_size: as for `index_corpus`.
        """
        self._wanted &= frozenset(interests)
        self._commit_images = COMMIT_IMAGES["cpu"]
        self._last_commit = time.monotonic()
        self._report()
        try:
            for outcomes in cluster.run(self.files, batch_size, self._claim_keys):
                jobs = [
                    _Job(each.file, key=each.key, size=each.size, reason=each.reason) for each in outcomes
                ]
                for job in jobs:
                    if job.key is not None and job.reason is not None:
                        self._undecodable[job.key] = job.reason
                records = [each.record for each in outcomes if each.record is not None]
                self._write(_Batch(jobs, gathered=records))
                self._report()
        finally:
            self._commit()
            self._report()

    def _claim_keys(self, keys: Sequence[ImageKey | None]) -> list[Lacking | None]:
        """What is to be made of images; None of one that is a file's before, or of which all is known."""
        claimed = self._claim_all(keys)
        known = self._catalogue.registry.image_size
        return [
            None if lacking is None or (key is not None and not lacking and known(key)) else lacking
            for key, lacking in zip(keys, claimed, strict=True)
        ]

    def _report(self) -> None:
        """Tell how far the pass is, if it is further than it was when that was last told."""
        progress = Progress(self.indexed + len(self.skipped), len(self.files), len(self.skipped))
        if progress != self._reported:
            self._reported = progress
            self._on_progress(progress)

    def _read(self, files: Sequence[FoundFile]) -> _Batch:
        return _Batch([_read(file) for file in files])

    def _claim(self, batch: _Batch) -> _Batch:
        """Find out, in the order of files, what is to be made of each image: by the first that holds it."""
        claimed = self._claim_all([job.key for job in batch.jobs])
        for job, lacking in zip(batch.jobs, claimed, strict=True):
            if lacking is not None:
                job.lacking, job.first = lacking, True
        return batch

    def _claim_all(self, keys: Sequence[ImageKey | None]) -> list[Lacking | None]:
        """What is to be made of images; None where there is none, or a file before sees to that."""
        unclaimed = dict.fromkeys(key for key in keys if key is not None and key not in self._claimed)
        self._claimed.update(unclaimed)
        if self.fresh:  # looking up waits for the thread that writes, and for Python's lock
            lacking = {key: Lacking(True, self._wanted, self.codes) for key in unclaimed}
        else:
            lacking = lacks(self._catalogue, unclaimed, self._wanted, self.codes)
        for key in self.again.keys() & lacking.keys():
            lacking[key] = replace(lacking[key], interests=lacking[key].interests | self.again[key])
        return [None if key is None else lacking.pop(key, None) for key in keys]

    def _decode(self, batch: _Batch) -> _Batch:
        """Decode the images that something is to be made of."""
        for job in batch.jobs:
            if job.first and not job.lacking and job.key is not None:
                self._measure(job, job.key)
        chosen = [job for job in batch.jobs if job.lacking]
        decoded = self._decoder.decode([(job.content, job.file.path) for job in chosen])
        for job, outcome in zip(chosen, decoded.outcomes, strict=True):
            if isinstance(outcome, ImageReadError):
                self._fail(job, outcome)
            else:
                job.size = outcome
                batch.made.append(job)
        for job in batch.jobs:
            job.content = b""
        self._maker.wait()
        if decoded.working is not None and decoded.squares is not None:
            enter = self._maker.waiting.enter
            batch.working = enter(decoded.working)
            same = decoded.squares is decoded.working
            batch.squares = batch.working if same else enter(decoded.squares)
        return batch

    def _measure(self, job: _Job, key: ImageKey) -> None:
        """The size of an image whose record is there, but which the registry may not know."""
        try:
            job.size = (
                self._catalogue.registry.image_size(key) or decode_image(job.content, job.file.path).size
            )
        except ImageReadError as error:
            self._fail(job, error)

    def _fail(self, job: _Job, error: ImageReadError) -> None:
        assert job.key is not None
        self._undecodable[job.key] = job.reason = error.reason

    def _encode(self, batch: _Batch) -> _Batch:
        if batch.squares is not None:
            features = self._maker.encode(batch.squares)
            pooled = self._maker.pooled(features)
            self._maker.wait()
            enter = self._maker.waiting.enter
            batch.features = enter(features)
            batch.pooled = batch.features if pooled is features else enter(pooled)
            batch.squares = None
        return batch

    def _draft(self, batch: _Batch) -> _Batch:
        if batch.features is not None and batch.pooled is not None:
            batch.drafts = self._maker.draft(batch.working, batch.features, batch.pooled, batch.lacking)
            batch.working = batch.features = None
        return batch

    def _code(self, batch: _Batch) -> _Batch:
        if batch.pooled is not None:
            batch.codes = self._maker.codes(batch.pooled, batch.lacking, self._decoder.map)
            batch.pooled = None
        return batch

    def _write(self, batch: _Batch) -> None:
        self._pending.append(batch)
        waiting = sum(len(each.jobs) for each in self._pending)
        if waiting >= self._commit_images or time.monotonic() - self._last_commit > COMMIT_SECONDS:
            self._commit()

    def _commit(self) -> None:
        batches, self._pending = self._pending, []
        jobs = [job for batch in batches for job in batch.jobs]
        if not jobs:
            return
        rows = [self._row(job) for job in jobs]
        sizes = {job.key: job.size for job in jobs if job.key is not None and job.size is not None}
        self._store((record for batch in batches for record in batch.records()), rows, sizes)
        self._count(rows)
        self._last_commit = time.monotonic()

    def _store(
        self,
        records: Iterable[TextureRecord],
        rows: Sequence[KnownFile],
        sizes: Mapping[ImageKey, tuple[int, int]],
    ) -> None:
        self._catalogue.store.write(records)
        self._catalogue.registry.record_files(rows, sizes)

    def _count(self, rows: Iterable[KnownFile]) -> None:
        for row in rows:
            if row.reason is None:
                self.indexed += 1
            else:
                self.skipped.append(Skipped(os.fsdecode(row.path), row.reason))

    def _row(self, job: _Job) -> KnownFile:
        # A file with the content of one that could not be decoded shares its fate.
        reason = job.reason if job.key is None else self._undecodable.get(job.key)
        key = job.key if reason is None else None
        file = job.file
        return KnownFile(file.path, file.size, file.mtime_ns, file.device, key, reason, None)


def lacks(
    catalogue: Catalogue, keys: Collection[ImageKey], wanted: frozenset[int], codes: bool
) -> dict[ImageKey, Lacking]:
    """What each image lacks of its base, the maps of `wanted`, and its code if it shall have one.

    One whose base is not there, or damaged, lacks all of it: nothing else is looked up.
    """
    missing = dict(catalogue.store.lacking(keys, wanted))
    coded = {key for key, _ in catalogue.store.codes(missing)} if codes else set(keys)
    return {key: Lacking(key not in missing, missing.get(key, wanted), key not in coded) for key in keys}


@contextmanager
def _little_waiting(wanted: bool) -> Iterator[None]:
    """Have threads wait for each other as little as Python allows, if that is wanted.

    Its lock is handed on every 50 us instead of 5 ms: a thread that begins kernels lets go of the lock for
    each of them, and would wait for 5 ms to get it back from one that computes. And what is in memory already
    is not searched for garbage again and again, which stops all threads.
    """
    before = sys.getswitchinterval()
    if wanted:
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.freeze()
    try:
        yield
    finally:
        if wanted:
            gc.unfreeze()
        sys.setswitchinterval(before)


def _read(file: FoundFile) -> _Job:
    try:
        content = read_content(file.path, file.span)
    except ImageReadError as error:
        return _Job(file, reason=error.reason)
    return _Job(file, content, ImageKey.of(content))


def _chunks(files: Sequence[FoundFile], most: Callable[[], int]) -> Iterator[Sequence[FoundFile]]:
    """`files`, at most so many at a time."""
    start = before = 0
    while start < len(files):
        chunk = files[start : start + chunk_size(most(), before, len(files) - start)]
        yield chunk
        start, before = start + len(chunk), before + 1


def chunk_size(most: int, before: int, left: int, shares: int = 2) -> int:
    """How many files are taken together: `most`, or a half, a quarter or an eighth of it at both ends.

    A pipeline fills and drains in the time that a batch takes: the sooner, the fewer images that has.

    Args:
        most: files of a chunk.
        before: chunks that were taken.
        left: files that remain.
        shares: chunks take such a part of these at most; of several processes that take chunks, each has
            many under way, and they end together only if their last are small.
    """
    least = max(1, most // 8)
    size, bound = most, max(least, min(least << min(before, 4), left // shares))
    while size > bound:
        size //= 2
    return size
