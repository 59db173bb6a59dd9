"""A step of many small kernels as CUDA graphs: a kernel begun by itself costs 10 us."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from .channels.control import Control, HostFunction, computed
from .streams import stream

Function = Callable[..., tuple[Tensor, ...]]
"""Of a `Control` and tensors."""

_recording = Lock()
"""Held while a graph is recorded: then torch refuses to give memory back."""


class Graph:
    """`function` of tensors of one shape, recorded once and played from then on, by one thread at a time.

    The function must not look at what it computes, but through its `Control`. What lies between the steps of
    the host is a graph. All share their memory, which is safe as they are played in the order in which they
    were recorded. Other threads may use the device meanwhile.

    It is recorded in a stream in which nothing else is ever begun, as that would be recorded instead of done.
    The stream has the priority of the caller's, which kernels of a graph keep, wherever it is played.

    Args:
        function: of a `Control` and tensors to tensors.
        inputs: examples; those that it is played with have their shapes, types and device.

    Raises:
        torch.OutOfMemoryError: the device has no room for what the graphs keep.
    """

    def __init__(self, function: Function, *inputs: Tensor) -> None:
        self._inputs = [each.clone() for each in inputs]
        callers = torch.cuda.current_stream(inputs[0].device)
        beside = stream(inputs[0].device, "record", callers.priority)
        with _recording, torch.cuda.stream(beside):
            beside.wait_stream(callers)
            try:
                function(Control(), *self._inputs)  # what is made at first use is made now
            finally:
                beside.synchronize()  # after an error, the inputs are dropped
            recorder = _Recorder()
            recorder.begin()
            try:
                self._outputs = function(recorder, *self._inputs)
            except BaseException:
                recorder.abandon()
                raise
            recorder.end()
        self._parts = recorder.parts

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...] | None:
        """What `function` gives, in tensors of the caller's own; None where labels are beyond the usual."""
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given)
        for part in self._parts:
            if not part():
                return None
        return tuple(each.clone() for each in self._outputs)


def give_back() -> None:
    """Give memory that is not used back to GPUs."""
    with _recording:
        torch.cuda.empty_cache()


class _Recorder(Control):
    """Records what is done between `begin` and `end`.

    Attributes:
        parts: what plays it; each tells whether it could.
    """

    def __init__(self) -> None:
        self.parts: list[Callable[[], bool]] = []
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._graph = torch.cuda.CUDAGraph()

    def begin(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(self._pool, capture_error_mode="thread_local")

    def end(self) -> None:
        graph = self._graph
        graph.capture_end()
        self.parts.append(lambda: _played(graph))

    def abandon(self) -> None:
        """End recording after an error."""
        # Which tells once more that there was one, or warns that nothing was recorded.
        with suppress(RuntimeError), warnings.catch_warnings(action="ignore"):
            self._graph.capture_end()

    def below(self, labels: Tensor, usual: int) -> int:
        largest = labels.max()
        self.end()
        self.parts.append(lambda: int(largest) < usual)
        self.begin()
        return usual

    def on_host(self, function: HostFunction, out: Tensor, *inputs: Tensor) -> Tensor:
        self.end()
        self.parts.append(lambda: _computed(function, out, inputs))
        self.begin()
        return out


def _played(graph: torch.cuda.CUDAGraph) -> bool:
    graph.replay()
    return True


def _computed(function: HostFunction, out: Tensor, inputs: tuple[Tensor, ...]) -> bool:
    computed(function, out, inputs)
    return True
