"""Records made on a cluster, by Ray: workers read the files and make the records, the caller gathers them.

Only the caller writes. LMDB wants one process to write a file, on a disk of that process's own machine, not
on a network file system; and a record is some tens of kilobytes, which are sent in no time beside what it
takes to make them.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from types import TracebackType
from typing import Any, Self, TypeVar

from ..catalogue.errors import EngineError, FingerprintMismatchError, TexcatError, UsageError
from ..catalogue.types import ImageKey, TextureRecord
from .lacking import Lacking
from .reading import one_line
from .scan import FoundFile
from .workers import Identified, Made, Recipe, Worker

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

AHEAD = 3
"""Batches for each worker that are begun and not given out: one is read while another is made."""

TRIES = 3
"""How often the making of a file may take its worker along."""

LOST_IN_A_ROW = 10
"""So many workers lost, and nothing made meanwhile, end a pass."""

BATCH_SIZE = {False: 8, True: 64}
"""Images of a batch, without and with a GPU."""

CORES = 2
"""Cores of a worker without a GPU."""

STORE_BYTES = 256 << 20
"""Shared memory of a cluster on this machine, for what goes between processes; by default Ray takes 30%."""

Claim = Callable[[Sequence[ImageKey | None]], Sequence[Lacking | None]]
"""What is to be made of each image of a batch, None for nothing at all. Called in the order of files."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file: the key of its image, unless it could not be read, then what a `Made` tells."""

    file: FoundFile
    key: ImageKey | None
    size: tuple[int, int] | None = None
    record: TextureRecord | None = None
    reason: str | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    """Files that go together, unless their worker is lost."""

    files: list[FoundFile]
    found: list[Identified | None] = field(init=False)
    made: list[Made | None] = field(init=False)
    losses: list[int] = field(init=False)
    lacking: Sequence[Lacking | None] | None = None
    """None until the images are claimed."""
    read: list[_Unit] = field(default_factory=list)
    open: int = 0
    """Units of it that are waiting or under way."""

    def __post_init__(self) -> None:
        self.found = [None] * len(self.files)
        self.made = [None] * len(self.files)
        self.losses = [0] * len(self.files)

    def keys(self) -> list[ImageKey | None]:
        return [None if found is None else found.key for found in self.found]

    def outcomes(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for file, found, made in zip(self.files, self.found, self.made, strict=True):
            assert found is not None
            if made is None:
                outcomes.append(Outcome(file, found.key, reason=found.reason))
            else:
                outcomes.append(Outcome(file, found.key, made.size, made.record, made.reason))
        return outcomes


@dataclass(slots=True, eq=False)
class _Unit:
    """Files of a batch, by their places, that one worker reads and makes.

    If the worker is lost meanwhile, its files become units of their own, `suspect`: each has a worker for
    itself, so that no other file suffers with it.
    """

    number: int
    batch: _Batch
    places: Sequence[int]
    suspect: bool = False
    reader: Any = None
    """The worker that has it in memory."""

    def of(self, items: Sequence[_T]) -> list[_T]:
        """Those of `items`, one for each file of the batch, that are of this unit."""
        return [items[place] for place in self.places]


@dataclass(slots=True, eq=False)
class _Slot:
    """Place of a worker: one that is lost is followed by another."""

    actor: Any
    ready: bool = False
    load: int = 0
    alone: bool = False
    """Whether a suspect unit is under way."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A call that is under way. Without a unit, it starts the worker."""

    slot: _Slot
    actor: Any
    unit: _Unit | None = None


class Cluster:
    """Workers on the machines of a Ray cluster. Use it as a context.

    Args:
        recipe: of the records.
        device: ``cpu``, or ``auto`` and ``cuda`` for a worker on each GPU, if there are any.
        address: of the head of a cluster; without one, the workers run on this machine, and talk to no other.
        workers: how many; by default one on each GPU, or on each `CORES` cores.

    Raises:
        UsageError: Ray is not installed, or there is no room for so many workers.
        EngineError: the cluster cannot be reached.
    """

    def __init__(
        self, recipe: Recipe, *, device: str, address: str | None = None, workers: int | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"at least one worker is needed, got workers = {workers}")
        ray = self._ray = _import_ray(local=address is None)
        self._own = not ray.is_initialized()
        if self._own:
            _connect(ray, address, workers)
        self._slots: list[_Slot] = []
        self._calls: dict[Any, _Call] = {}
        self._waiting: deque[_Unit] = deque()
        self._numbers = count()
        self._lost_in_a_row = 0
        self._fingerprint = recipe.fingerprint
        try:
            on_gpu, room = _room(ray, device)
            if workers is not None and workers > room:
                raise UsageError(f"the cluster has room for {room} workers, got workers = {workers}")
            self._size = BATCH_SIZE[on_gpu]
            self._class = ray.remote(Worker).options(
                num_cpus=1 if on_gpu else CORES, num_gpus=int(on_gpu), max_concurrency=2
            )
            self._arguments = (ray.put(recipe), "cuda" if on_gpu else "cpu")
            for _ in range(workers or room):
                slot = _Slot(None)
                self._start(slot)
                self._slots.append(slot)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, and the cluster if it was made for them."""
        for slot in self._slots:
            self._ray.kill(slot.actor)
        if self._own:
            self._ray.shutdown()

    def run(self, files: Sequence[FoundFile], size: int | None, claim: Claim) -> Iterator[list[Outcome]]:
        """What becomes of `files`, in order, in batches of `size`, by default of `BATCH_SIZE`.

        Files whose worker is lost are given to others, one at a time; after `TRIES` losses they have failed.

        Raises:
            EngineError: `LOST_IN_A_ROW` workers were lost and nothing was made, or one failed.
            TexcatError: a worker raised it.
        """
        remaining, size = iter(files), size or self._size
        batches: deque[_Batch] = deque()
        while True:
            while len(batches) < AHEAD * len(self._slots) and (chunk := list(islice(remaining, size))):
                batches.append(_Batch(chunk))
                self._enqueue(batches[-1], range(len(chunk)))
            if not batches:
                return
            _claim(batches, claim, self._waiting)
            if batches[0].lacking is not None and not batches[0].open:
                yield batches.popleft().outcomes()
                continue
            self._submit()
            ready, _ = self._ray.wait(list(self._calls))
            for reference in ready:
                self._take(reference)

    def _enqueue(self, batch: _Batch, places: Sequence[int], suspect: bool = False) -> None:
        batch.open += 1
        self._waiting.append(_Unit(next(self._numbers), batch, places, suspect))

    def _start(self, slot: _Slot) -> None:
        """Put a new worker into `slot`."""
        slot.actor = self._class.remote(*self._arguments)
        slot.ready = slot.alone = False
        slot.load = 0
        self._calls[slot.actor.start.remote()] = _Call(slot, slot.actor)

    def _submit(self) -> None:
        """Give the units that wait to workers that are free for them."""
        waiting, self._waiting = self._waiting, deque()
        for unit in waiting:
            slot = self._slot_for(unit)
            if slot is None:
                self._waiting.append(unit)
                continue
            slot.load += 1
            slot.alone = unit.suspect
            batch = unit.batch
            if batch.lacking is None:
                reference = slot.actor.read.remote(unit.number, unit.of(batch.files))
            else:
                reference = slot.actor.make.remote(
                    unit.number, unit.of(batch.files), unit.of(batch.keys()), unit.of(batch.lacking)
                )
            self._calls[reference] = _Call(slot, slot.actor, unit)

    def _slot_for(self, unit: _Unit) -> _Slot | None:
        free = [slot for slot in self._slots if slot.ready and not slot.alone]
        if unit.suspect:
            return next((slot for slot in free if slot.load == 0), None)
        for slot in self._slots:
            if slot.actor is unit.reader:
                return slot if slot in free else None
        return min((slot for slot in free if slot.load < AHEAD), key=lambda slot: slot.load, default=None)

    def _take(self, reference: Any) -> None:
        """Take what a call has returned."""
        call = self._calls.pop(reference)
        current = call.slot.actor is call.actor
        if current:
            call.slot.load -= call.unit is not None
            call.slot.alone = False
        try:
            result = self._ray.get(reference)
        except _lost(self._ray):
            if current:
                self._replace(call.slot)
            if call.unit is not None:
                self._blame(call.unit)
            return
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TexcatError):
                raise error.cause from None
            raise EngineError(f"a worker failed: {one_line(error.cause)}") from error
        unit = call.unit
        if unit is None:
            if result != self._fingerprint:
                raise FingerprintMismatchError("the pass", self._fingerprint, result)
            call.slot.ready = True
            return
        self._lost_in_a_row = 0
        batch = unit.batch
        batch.open -= 1
        if batch.lacking is None:
            unit.reader = call.actor
            batch.read.append(unit)
            for place, found in zip(unit.places, result, strict=True):
                batch.found[place] = found
        else:
            for place, made in zip(unit.places, result, strict=True):
                batch.made[place] = made

    def _replace(self, slot: _Slot) -> None:
        self._lost_in_a_row += 1
        if self._lost_in_a_row >= LOST_IN_A_ROW:
            raise EngineError(
                f"{LOST_IN_A_ROW} workers in a row were lost, and nothing was made meanwhile; `ray logs` on "
                "their machines may say why (most often, memory ran out)"
            )
        _log.warning("a worker was lost; its files are given to others")
        self._ray.kill(slot.actor)  # it may only be out of reach
        self._start(slot)

    def _blame(self, unit: _Unit) -> None:
        """Try the files of a unit whose worker was lost again, one by one, or give up on them."""
        batch = unit.batch
        batch.open -= 1
        for place in unit.places:
            batch.losses[place] += 1
            if batch.losses[place] < TRIES:
                self._enqueue(batch, [place], suspect=True)
            elif batch.lacking is None:
                batch.found[place] = Identified(None, f"its worker was lost {TRIES} times when it was read")
            else:
                reason = f"its worker was lost {TRIES} times when it was made"
                batch.made[place] = Made(None, reason=reason)


def _claim(batches: Iterable[_Batch], claim: Claim, waiting: deque[_Unit]) -> None:
    """Claim the images of batches that were read, in order, and let them be made."""
    for batch in batches:
        if batch.lacking is None:
            if batch.open:
                return
            batch.lacking = claim(batch.keys())
            # Though nothing is lacking: the worker lets go of what it has read.
            batch.open = len(batch.read)
            waiting.extend(batch.read)


def _import_ray(local: bool) -> Any:
    """Ray, which reports on its use to nobody, and, on this machine alone, listens to nobody else.

    Raises:
        UsageError: it is not installed; or it was made to listen to nobody, and is asked for a cluster.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if local:
        os.environ.setdefault(_CLUSTERS, "0")
    elif os.environ.get(_CLUSTERS) == "0":
        raise UsageError("this process has had a cluster of its own; connect to another from a new process")
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"engine 'ray' needs Ray ({error}): pip install 'texcat[ray]'") from error
    return ray


_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""When it is 0, on any system, Ray uses the address 127.0.0.1."""


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    local: dict[str, object] = {
        "num_cpus": max(os.cpu_count() or 1, CORES * (workers or 1)),
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
    }
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if address else local),
        )
    except Exception as error:  # of many kinds
        where = f"the Ray cluster at {address}" if address else "Ray on this machine"
        raise EngineError(
            f"cannot reach {where} ({one_line(error)}); see that it runs, and whether it wants a token "
            "(RAY_AUTH_MODE, RAY_AUTH_TOKEN)"
        ) from error


def _room(ray: Any, device: str) -> tuple[bool, int]:
    """Whether workers have a GPU each, and how many there is room for.

    Raises:
        UsageError: there is no such device, or no room.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"with engine 'ray', device is auto, cpu or cuda, got {device!r}")
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = sum(int(each.get("GPU", 0)) for each in resources)
    if device != "cpu" and gpus:
        return True, gpus
    room = sum(int(each.get("CPU", 0)) // CORES for each in resources)
    if device == "cuda" or not room:
        raise UsageError(f"the Ray cluster has {'no GPU' if device == 'cuda' else f'no {CORES} free cores'}")
    return False, room


def _lost(ray: Any) -> tuple[type[Exception], ...]:
    """What is raised when a worker, or what it returned, is no more."""
    of = ray.exceptions
    return (
        *(of.RayActorError, of.WorkerCrashedError, of.NodeDiedError),
        *(of.OutOfMemoryError, of.ObjectLostError),
    )
