"""Work spread over threads, so much at a time that memory stays bounded."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Self, TypeVar

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


class Stages:
    """The stages of a pipeline, each with threads of its own, and the time that each was busy.

    A stage has one more item than it works on: it never runs dry while those before it keep up, and memory
    stays bounded. Use it as a context; left by an error, it drops what is not begun.
    """

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._workers: dict[str, int] = {}
        self._busy: dict[str, float] = {}
        self._lock = Lock()
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def run(
        self,
        name: str,
        workers: int,
        function: Callable[[_In], _Out],
        items: Iterable[_In],
        prepare: Callable[[], None] = lambda: None,
    ) -> Iterator[_Out]:
        """`function` of each item, in order, by the stage `name`, whose threads each call `prepare` first."""
        pool = ThreadPoolExecutor(workers, f"texcat-{name}", prepare)
        self._exits.callback(pool.shutdown, cancel_futures=True)
        self._workers[name] = workers

        def timed(item: _In) -> _Out:
            begun = time.monotonic()
            try:
                return function(item)
            finally:
                self.add(name, time.monotonic() - begun)

        return bounded_map(pool, timed, items, workers + 1)

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` as spent in the stage `name`."""
        with self._lock:
            self._busy[name] = self._busy.get(name, 0.0) + seconds

    def times(self) -> tuple[StageTime, ...]:
        """What each stage took until now, in their order."""
        elapsed = time.monotonic() - self._started
        busy = {name: self._busy.get(name, 0.0) for name in self._workers}
        return tuple(
            StageTime(name, workers, busy[name], busy[name] / (workers * elapsed))
            for name, workers in self._workers.items()
        )
