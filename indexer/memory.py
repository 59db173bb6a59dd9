"""How a process keeps its memory, so that large blocks are not taken from the system again and again.

On a processor, each step of an encoder makes tensors of megabytes and drops others. glibc gives such blocks
back at once, and each of their pages is a fault of its own when they are taken again: a quarter of a pass's
time was the kernel's. Kept blocks, and huge pages (`texcat.indexer` asks torch for them), save most of it.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 1 << 30, _TOP_PAD: 64 << 20}
"""Bytes: blocks below the first are kept, which may not be larger (mallopt(3)); up to the second in all; the
heap grows by the third."""


def keep_blocks() -> None:
    """Have glibc keep large blocks that are dropped; another C library is left as it is."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, size in _KEPT.items():
            mallopt(parameter, size)
