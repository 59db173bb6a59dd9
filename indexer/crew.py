"""A pass on several devices of this machine: a process for each, which has Python's lock for itself.

They load their encoder, and what else they need at first, while the process that started them makes what it
is to give them. Each takes files, so many at a time, whenever it has room for more. It reads them, makes
records, and writes these to the store, where LMDB lets one process at a time write to a shard. Then the
process that started it writes what became of the files to the registry. So neither images nor records move
between processes. What a process that is lost had taken is given to another; files that go on taking theirs
along are found by halves, and have failed.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import EngineError
from ..catalogue.registry import KnownFile
from ..catalogue.types import ImageKey, InterestVectors, StageTime, TextureRecord
from .encoders import DenseEncoder, load_encoder
from .passes import Pass, chunk_size
from .scan import FoundFile
from .warming import warm_up

MOST_LOST = 10
"""So many processes lost while files remain to be given out end a pass."""

_SHARES = 8
"""A process that asks for files is given such a part of what falls to it, at most: it has up to so many
batches under way."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """What the processes of a crew are told to do.

    Attributes:
        path: of the catalogue, which they read.
        vectors: of interests.
        codes: whether images get codes.
        again: maps that are made though they are held, by image.
        batch_size: as for `index_corpus`.
        fresh: as for `Pass`.
    """

    path: Path
    vectors: Mapping[int, InterestVectors]
    codes: bool
    again: Mapping[ImageKey, frozenset[int]]
    batch_size: int | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """Files whose records are stored: their rows, and the sizes of images."""

    rows: Sequence[KnownFile]
    sizes: Mapping[ImageKey, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Times:
    """The last that a process says: what its stages took, and images decoded by the processor."""

    stages: tuple[StageTime, ...]
    on_cpu: int


@dataclass(slots=True, eq=False)
class _Member:
    """A process of the crew, the chunks it has taken, and files of these that are not finished, by path."""

    device: str
    process: BaseProcess
    asking: Connection
    results: Connection
    asks: bool = True
    chunks: int = 0
    taken: dict[bytes, FoundFile] = field(default_factory=dict)


class Crew:
    """Processes on `devices`, a device for each; one that is named twice has two. Use it as a context.

    Attributes:
        stages: what the stages of all took, once they are done.
        on_cpu: images that were decoded by the processor, though the encoder runs on a GPU.

    Args:
        encoder: its specification, or one that is loaded already, which is copied to them.
        devices: of the processes.
    """

    def __init__(self, encoder: str | DenseEncoder, devices: Sequence[str]) -> None:
        self.stages: list[StageTime] = []
        self.on_cpu = 0
        self._encoder = encoder
        self._devices = devices
        self._context = multiprocessing.get_context("spawn")  # CUDA and LMDB do not survive a fork
        self._members: list[_Member] = []
        self._ending: list[BaseProcess] = []
        self._lost = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for member in self._members:
            member.process.kill()
        for process in (*self._ending, *(member.process for member in self._members)):
            process.join()

    def start(self) -> None:
        """Have the processes load what they need, before there is a task for them; once."""
        if not self._members:
            self._start_on(self._devices)

    def run(self, task: Task, files: Sequence[FoundFile], begin: Callable[[], None]) -> Iterator[Finished]:
        """What becomes of `files`, in any order, as it is finished.

        `begin` is called whenever files are given out: first once a process has loaded its encoder.

        Raises:
            EngineError: a process failed, or `MOST_LOST` were lost.
        """
        self._task, self._begin = task, begin
        self.start()
        suspects: deque[list[FoundFile]] = deque()
        yield from self._share(deque(files), suspects.append)
        while suspects:
            group = suspects.popleft()
            left: list[list[FoundFile]] = []
            self._start_on(self._devices[:1])
            yield from self._share(deque(group), left.append)
            for again in left:
                if len(again) == 1:
                    yield Finished([_failed(again[0])], {})
                else:
                    middle = len(again) // 2
                    suspects += again[:middle], again[middle:]

    def _share(self, files: deque[FoundFile], lose: Callable[[list[FoundFile]], None]) -> Iterator[Finished]:
        """Let the processes share `files`; those that one takes along are given to `lose`."""
        while self._members:
            asking: dict[Any, _Member] = {each.asking: each for each in self._members if each.asks}
            results: dict[Any, _Member] = {each.results: each for each in self._members}
            for ready in wait([*asking, *results]):
                if ready in asking:
                    self._give(asking[ready], files)
                    continue
                member = results[ready]
                try:
                    yield from self._take(member)
                except (EOFError, ConnectionResetError):
                    self._bury(member, lose)
                    if files:
                        self._start(member.device)

    def _start_on(self, devices: Sequence[str]) -> None:
        # At once: one that starts reads its encoder, which may be large, only once it has loaded libraries.
        with ThreadPoolExecutor(len(devices)) as pool:
            list(pool.map(self._start, devices))

    def _start(self, device: str) -> None:
        asking, asked = self._context.Pipe()
        results, sent = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(self._encoder, device, asked, sent), daemon=True)
        # Who interrupts this process interrupts all of its group; it ends the others itself, which then say
        # nothing. They inherit what their parent's thread blocks, and starting the tracker would unblock it.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        asked.close()
        sent.close()
        self._members.append(_Member(device, process, asking, results))

    def _give(self, member: _Member, files: deque[FoundFile]) -> None:
        """Give a process that asks its task first, and then files: none when there are no more."""
        try:
            most = member.asking.recv()
            if most is None:
                member.asking.send(self._task)
                return
            self._begin()
            size = chunk_size(most, member.chunks, len(files), _SHARES * len(self._members))
            chunk = [files.popleft() for _ in range(min(size, len(files)))]
            member.chunks += 1
            member.taken.update((file.path, file) for file in chunk)
            member.asking.send(chunk)
        except (EOFError, BrokenPipeError, ConnectionResetError):  # its results end, too
            member.asks = False

    def _take(self, member: _Member) -> Iterator[Finished]:
        message = member.results.recv()
        if isinstance(message, Finished):
            for row in message.rows:
                member.taken.pop(row.path, None)
            yield message
        elif isinstance(message, _Times):
            names = [replace(stage, name=f"{member.device} {stage.name}") for stage in message.stages]
            self.stages += names
            self.on_cpu += message.on_cpu
            self._members.remove(member)
            self._ending.append(member.process)  # which on a GPU takes a second, and nobody waits for it
        else:
            raise EngineError(f"the process on {member.device} failed: {message}")

    def _bury(self, member: _Member, lose: Callable[[list[FoundFile]], None]) -> None:
        self._members.remove(member)
        member.process.kill()
        member.process.join()
        self._lost += 1
        if self._lost >= MOST_LOST:
            raise EngineError(f"{MOST_LOST} processes were lost; most often, memory ran out")
        _log.warning(
            "the process on %s was lost (exit code %s); its %d files are given to another",
            *(member.device, member.process.exitcode, len(member.taken)),
        )
        if member.taken:
            lose(list(member.taken.values()))


def _failed(file: FoundFile) -> KnownFile:
    reason = "the process that read it was lost, again and again"
    return KnownFile(file.path, file.size, file.mtime_ns, file.device, None, reason, None)


class _Part(Pass):
    """The part of a pass that a process of a crew does: it stores what it makes, and tells of the files."""

    def __init__(self, task: Task, catalogue: Catalogue, asked: Connection, sent: Connection) -> None:
        super().__init__(catalogue, lambda progress: None, (), task.codes, task.again)
        self.fresh = task.fresh
        self._asked = asked
        self._sent = sent

    def work(self, encoder: DenseEncoder, task: Task) -> None:
        """Do it, until there are no files any more."""
        self._prepare(encoder, task.vectors, task.batch_size)
        self._make(self._chunks())
        self._sent.send(_Times(self.stages, self.on_cpu))

    def _chunks(self) -> Iterable[list[FoundFile]]:
        while True:
            self._asked.send(self._most())
            chunk: list[FoundFile] = self._asked.recv()
            if not chunk:
                return
            yield chunk

    def _store(
        self,
        records: Iterable[TextureRecord],
        rows: Sequence[KnownFile],
        sizes: Mapping[ImageKey, tuple[int, int]],
    ) -> None:
        self._catalogue.store.write(records)
        self._sent.send(Finished(rows, sizes))


def _work(given: str | DenseEncoder, device: str, asked: Connection, sent: Connection) -> None:
    """What a process of a crew does."""
    try:
        encoder = load_encoder(given, device) if isinstance(given, str) else given
        warm_up(encoder)
        asked.send(None)
        task: Task = asked.recv()
        with Catalogue.open(task.path) as catalogue:
            catalogue.check_encoder(encoder.fingerprint)
            catalogue.write_along()
            _Part(task, catalogue, asked, sent).work(encoder, task)
    except (BrokenPipeError, EOFError, ConnectionResetError):
        return  # who started this process is gone
    except Exception as error:
        sent.send(f"{type(error).__name__}: {error}")


def measured(name: str, started: float, seconds: float) -> StageTime:
    """Time of a stage of one thread, of a pass that was `started` then."""
    return StageTime(name, 1, seconds, seconds / max(time.monotonic() - started, seconds))
