"""Products with small matrices that are kept on the device where they are used, and the way back from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from ..catalogue.grid import resize_matrix


@lru_cache(maxsize=256)
def on_device(make: Callable[..., NDArray[Any]], device: torch.device, *arguments: int) -> Tensor:
    """The matrix `make(*arguments)` on a device, where it is kept."""
    return torch.from_numpy(make(*arguments).copy()).to(device)


def both_sides(rows: Tensor, planes: Tensor, columns: Tensor) -> Tensor:
    """``rows @ plane @ columns^T`` of each plane: [B, C, h, w] -> [B, C, a, b].

    Each plane is a product of its own, so that it comes out the same whatever others there are.
    """
    each = planes.flatten(0, 1)
    count = len(each)
    made = rows.expand(count, -1, -1) @ (each @ columns.mT.expand(count, -1, -1))
    return made.reshape(*planes.shape[:2], *made.shape[1:])


def resize(planes: Tensor, side: int) -> Tensor:
    """Resize [B, C, h, w] to [B, C, side, side], as `catalogue.grid.resize_matrix`."""
    if planes.shape[2:] == (side, side):
        return planes
    rows, columns = (on_device(resize_matrix, planes.device, n, side) for n in planes.shape[-2:])
    return both_sides(rows, planes, columns)


def largest(numbers: Tensor) -> Tensor:
    """The largest absolute value, []; NaN if one of the numbers is."""
    as_it_lies = numbers.permute(numbers.dim_order())  # or it is copied first
    low, high = torch.aminmax(as_it_lies)  # goes over them once, where others need several times as long
    return torch.maximum(-low, high)


def fetch(*tensors: Tensor) -> list[NDArray[Any]]:
    """Tensors as arrays; from a GPU through pinned memory, all on their way before one is waited for."""
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
    if tensors[0].is_cuda:
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [copy.numpy() for copy in copies]
