"""Streams of a GPU: what is begun in one is done in order, and beside what is begun in others."""

from __future__ import annotations

from functools import cache
from threading import current_thread
from typing import Any

import torch


@cache
def stream(device: torch.device, name: str, priority: int = 0) -> torch.cuda.Stream:
    """The stream of that name, the same one in all of a process; a low `priority` goes first.

    Torch has 32 of each priority and hands them out in turns. Were they new for each pass, they would be
    those of others before long: of a graph that is recorded, or of nvJPEG, for which torchvision keeps one.
    """
    make: Any = torch.cuda.Stream  # whose constructor has no types
    made: torch.cuda.Stream = make(device, priority=priority)
    return made


def own_stream(device: torch.device, priority: int = 0) -> None:
    """Let what this thread does on a GPU run beside what those of other names do there."""
    torch.cuda.set_stream(stream(device, current_thread().name, priority))


def shared_stream(device: torch.device, name: str) -> None:
    """Let this thread do its work on a GPU in the stream of that name, in turns with others."""
    torch.cuda.set_stream(stream(device, name))
