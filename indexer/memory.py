"""How a pass keeps its memory, so that large blocks are not taken from the system again and again.

On a processor, each step of an encoder makes tensors of megabytes and drops others. glibc gives such blocks
back at once, and each of their pages is a fault of its own when they are taken again: a quarter of a pass's
time was the kernel's. Kept blocks, and huge pages (`texcat.indexer` asks torch for them), save most of it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 1 << 30, _TOP_PAD: 64 << 20}
"""Bytes: blocks below the first are kept, which may not be larger (mallopt(3)); up to the second in all; the
heap grows by the third."""


@contextmanager
def kept_blocks() -> Iterator[None]:
    """Have glibc keep large blocks that are dropped, and give all of them back in the end.

    Else each pass of a process would add to what others left: its threads have heaps of their own, and get
    those of threads before them in another order. Another C library is left as it is.
    """
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    mallopt, trim = getattr(libc, "mallopt", None), getattr(libc, "malloc_trim", None)
    if mallopt is None or trim is None:
        yield
        return
    for parameter, size in _KEPT.items():
        mallopt(parameter, size)
    try:
        yield
    finally:
        trim(0)
