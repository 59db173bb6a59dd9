"""A step of many small kernels as CUDA graphs: a kernel begun by itself costs 10 us."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from .channels.control import Control, HostFunction, computed

Function = Callable[..., tuple[Tensor, ...]]
"""Of a `Control` and tensors."""


class Graph:
    """`function` of tensors of one shape, recorded once and played from then on, by one thread at a time.

    The function must not look at what it computes, but through its `Control`. What lies between the steps of
    the host is a graph. All share their memory, which is safe as they are played in the order in which they
    were recorded. Other threads may use the device meanwhile.

    Args:
        function: of a `Control` and tensors to tensors.
        beside: a stream in which it is recorded, and nothing else is ever begun: what another thread began
            there meanwhile would be recorded instead of done.
        inputs: examples; those that it is played with have their shapes, types and device.

    Raises:
        torch.OutOfMemoryError: the device has no room for what the graphs keep.
    """

    def __init__(self, function: Function, beside: torch.cuda.Stream, *inputs: Tensor) -> None:
        self._inputs = [each.clone() for each in inputs]
        beside.wait_stream(torch.cuda.current_stream(inputs[0].device))
        with torch.cuda.stream(beside):
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
        with suppress(RuntimeError):  # which tells once more that there was one
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
