"""Work spread over threads, so much at a time that memory stays bounded."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

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
