"""What a computation on a device asks its host: how large something is, and to do what a device is bad at.

All else is a sequence of kernels that can be recorded (`indexer/graphs.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..matrices import fetch

HostFunction = Callable[..., NDArray[Any]]
"""Of arrays with an image in each place of their first axis, to another; it does without Python's lock."""

_IMAGES_A_THREAD = 32


class Control:
    """Does at once what is asked."""

    def below(self, labels: Tensor, usual: int) -> int:
        """A number that all `labels`, whole numbers from 0 on, are below; `usual` is one for most images."""
        return int(labels.max()) + 1

    def on_host(self, function: HostFunction, out: Tensor, *inputs: Tensor) -> Tensor:
        """`out`, filled with what `function` makes of arrays with the values of `inputs`."""
        return computed(function, out, inputs)


def computed(function: HostFunction, out: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
    """What `Control.on_host` does: by several threads, where there are many images."""
    arrays = fetch(*inputs)
    count = len(arrays[0])
    if count <= _IMAGES_A_THREAD:
        return out.copy_(torch.from_numpy(function(*arrays)))
    parts = [slice(start, start + _IMAGES_A_THREAD) for start in range(0, count, _IMAGES_A_THREAD)]
    made = _pool().map(lambda part: function(*(array[part] for array in arrays)), parts)
    return out.copy_(torch.from_numpy(np.concatenate(list(made))))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "texcat-host")
