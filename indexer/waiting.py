"""Batches that wait on a GPU between two stages, and leave it while its memory is short.

What waits for a stage holds memory that the stage may need to begin: waiting for that memory would not end.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakSet

from torch import Tensor


class Waiting:
    """A tensor of a batch of images, [B, ...], complete, of which one stage at a time takes parts."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __len__(self) -> int:
        return len(self._tensor)

    def __getitem__(self, images: slice) -> Tensor:
        """Part of it, where it lies now. All of it stays there until no part is held any more."""
        return self._tensor[images]

    def leave(self) -> bool:
        """Go to the host's memory, and tell whether it was not there. What parts were taken of stays."""
        before, self._tensor = self._tensor, self._tensor.cpu()
        return self._tensor is not before


class WaitingRoom:
    """All that waits on one GPU. Threads can share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: WeakSet[Waiting] = WeakSet()

    def enter(self, tensor: Tensor) -> Waiting:
        """Let a tensor wait, which nobody writes to any more and no stream still computes."""
        waiting = Waiting(tensor)
        with self._lock:
            self._waiting.add(waiting)
        return waiting

    def clear(self) -> bool:
        """Have all that waits leave, and tell whether there was something."""
        with self._lock:
            left = [waiting.leave() for waiting in list(self._waiting)]
        return any(left)
