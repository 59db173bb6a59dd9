"""Work spread over threads, so much at a time that memory stays bounded."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from threading import Lock
from typing import Any, Self, TypeVar

from ..catalogue.types import StageTime

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@contextmanager
def thread_pool() -> Iterator[ThreadPoolExecutor]:
    """A pool of a thread a core that, when left by an error, drops what it has not begun."""
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="texcat-index")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def bounded_map(
    pool: Executor, function: Callable[[_In], _Out], items: Iterable[_In], window: int
) -> Iterator[_Out]:
    """`function` of each item, in order, at most `window` of them begun ahead of the consumer."""
    pending: deque[Future[_Out]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) >= window:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


@dataclass(slots=True)
class _Stage:
    """What `submit` has begun, in order: so many items more than the stage works on wait, at most."""

    workers: int
    waiting: int
    submit: Callable[[Any], Future[Any]]
    busy: float = 0.0
    begun: deque[Future[Any]] = field(default_factory=deque)

    @property
    def room(self) -> int:
        return self.workers + self.waiting - len(self.begun)

    @property
    def is_ready(self) -> bool:
        """Whether the first is done."""
        return bool(self.begun) and self.begun[0].done()

    def begin(self, item: Any) -> None:
        self.begun.append(self.submit(item))

    def take(self) -> Any:
        return self.begun.popleft().result()


class Stages:
    """A pipeline: each item goes through all stages, which have threads of their own, and stays in order.

    A stage has more items than it works on, one by default: it never runs dry while those before it keep up,
    and memory stays bounded. None waits for a later one that is slow for once, while that has room. The time
    that each was busy is measured. Use it as a context; left by an error, it drops what is not begun.
    """

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._stages: dict[str, _Stage] = {}
        self._lock = Lock()
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def add(
        self,
        name: str,
        workers: int,
        function: Callable[[Any], Any],
        prepare: Callable[[], None] = lambda: None,
        waiting: int = 1,
    ) -> None:
        """Have the last stage be this: `function` of each item, in threads that each call `prepare` first.

        So many items that it does not work on yet are `waiting` for it, at most.
        """
        pool = ThreadPoolExecutor(workers, f"texcat-{name}", prepare)
        self._exits.callback(pool.shutdown, cancel_futures=True)

        def timed(item: Any) -> Any:
            begun = time.monotonic()
            try:
                return function(item)
            finally:
                self._count(stage, time.monotonic() - begun)

        stage = self._stages[name] = _Stage(workers, waiting, lambda item: pool.submit(timed, item))

    def run(self, items: Iterable[Any]) -> Iterator[Any]:
        """What the last stage makes of each item. The next is taken as soon as the first stage has room."""
        stages, items = list(self._stages.values()), iter(items)
        first, last = stages[0], stages[-1]
        while True:
            for before, stage in reversed(list(pairwise(stages))):  # what a later one takes makes room
                while stage.room and before.is_ready:
                    stage.begin(before.take())
            for item in islice(items, first.room):
                first.begin(item)
            if last.is_ready:
                yield last.take()
            elif awaited := [stage.begun[0] for stage in stages if stage.begun]:
                wait([each for each in awaited if not each.done()], return_when=FIRST_COMPLETED)
            else:
                return

    def _count(self, stage: _Stage, seconds: float) -> None:
        with self._lock:
            stage.busy += seconds

    def times(self) -> tuple[StageTime, ...]:
        """What each stage took until now, in their order."""
        elapsed = time.monotonic() - self._started
        return tuple(
            StageTime(name, stage.workers, stage.busy, stage.busy / (stage.workers * elapsed))
            for name, stage in self._stages.items()
        )
