"""Geometry of the grid: its coordinates, and the matrices that resize and smooth planes on it.

Every operation is a product with a small matrix, ``R @ plane @ R.T``: quick on one thread, and the
same in any array library.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError
from .types import GRID

Plane = NDArray[np.float32]

_PLANE, _STACK = 2, 3
_NEGLIGIBLE = 1e-8
_ANY_LEVEL = 1e4
_MAP_NOISE = 1e-3


@lru_cache(maxsize=1)
def grid_channels() -> Mapping[str, Plane]:
    """The channels that are the same for every image: ``y``, ``x``, ``eccentricity``.

    Each is float32 [32, 32], read-only, in [0, 1]. With row i (down) and column j (to the right):
    ``y = (i + 0.5) / 32``, ``x = (j + 0.5) / 32``, and eccentricity is the Euclidean distance of the
    cell's centre from the image's centre, divided by that of a corner cell (so the four corner cells
    are 1, and the four cells in the middle are 1/31).
    """
    centres = (np.arange(GRID) + 0.5) / GRID
    y, x = np.meshgrid(centres, centres, indexing="ij")
    distance = np.sqrt((y - 0.5) ** 2 + (x - 0.5) ** 2)
    planes = {"y": y, "x": x, "eccentricity": distance / distance.max()}
    return MappingProxyType({name: _read_only(plane) for name, plane in planes.items()})


@lru_cache(maxsize=128)
def resize_matrix(n_in: int, n_out: int) -> NDArray[np.float32]:
    """Matrix R, float32 [n_out, n_in], read-only, with which ``R @ v`` resizes a vector of cells.

    Cells are intervals of one common extent, as in ``align_corners=False``. Enlarging interpolates
    linearly between centres and holds the outermost value beyond them; shrinking takes the average
    over the interval of an output cell, input cells counted by the part of them that lies in it.
    Each row is >= 0 and sums to 1, so values stay within the range of the input.

    Raises:
        UsageError: a size is below 1.
    """
    if min(n_in, n_out) < 1:
        raise UsageError(f"a grid has at least one cell a side, got {n_in} to resize to {n_out}")
    scale = n_in / n_out
    if n_out > n_in:
        at = np.clip((np.arange(n_out) + 0.5) * scale - 0.5, 0, n_in - 1)
        weights = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(n_in)))
    else:
        start = np.arange(n_out)[:, None] * scale
        cell = np.arange(n_in)
        weights = np.maximum(0, np.minimum(start + scale, cell + 1) - np.maximum(start, cell))
    return _read_only(weights / weights.sum(axis=1, keepdims=True))


def resize_plane(plane: Plane, side: int) -> Plane:
    """Resize float32 [h, w] or [C, h, w] to [side, side] or [C, side, side], as `resize_matrix`.

    Raises:
        UsageError: `plane` has another number of dimensions, or an empty side.
    """
    if plane.ndim not in (_PLANE, _STACK):
        raise UsageError(f"expected planes [h, w] or [C, h, w], got shape {plane.shape}")
    height, width = plane.shape[-2:]
    rows: Plane = resize_matrix(height, side) @ plane
    resized: Plane = rows @ resize_matrix(width, side).T
    return resized


@lru_cache(maxsize=32)
def map_matrix(side: int) -> NDArray[np.float32]:
    """Matrix M, float32 [32, side], read-only, with which ``M @ map @ M.T`` enlarges an interest map.

    Maps are smooth, and were averaged when they were brought to `side` cells. To interpolate linearly is to
    average once more, and moves peaks (design/0013). M undoes the average: it is the best linear estimate of
    what was averaged (ordinary kriging; Matheron 1963), taken to be noise of any level, smoothed with a
    Gaussian of one cell of `side`: ``M = C R^T (R C R^T + N)^-1``, with R the averages (`resize_matrix`), G
    the Gaussian, ``C = G G^T``, and N a thousandth of the averages' variance: maps are kept in eight bits,
    and strengths are cut off at 0.

    Its rows sum to 1, but hold negative weights, too: beside an edge that is steeper than that, the result
    leaves the range of the map by an eighth of the step, and next to the border by a third. A map with 32
    cells a side, or more, is averaged.

    Raises:
        UsageError: `side` is below 1.
    """
    if side >= GRID:
        return resize_matrix(side, GRID)
    average = resize_matrix(GRID, side).astype(np.float64)
    smooth = gaussian_matrix(GRID, GRID / side).astype(np.float64)
    shared = smooth @ smooth.T
    noise = _MAP_NOISE * np.trace(average @ shared @ average.T) / side
    known = (shared + _ANY_LEVEL) @ average.T
    weights = np.linalg.solve(average @ known + noise * np.eye(side), known.T).T
    return _read_only(weights / weights.sum(axis=1, keepdims=True))


def enlarge_map(plane: Plane) -> Plane:
    """Enlarge interest maps [n, n] or [C, n, n], as `map_matrix`: float32 [32, 32] or [C, 32, 32]."""
    matrix = map_matrix(plane.shape[-1])
    rows: Plane = matrix @ plane
    enlarged: Plane = rows @ matrix.T
    return enlarged


@lru_cache(maxsize=32)
def gaussian_matrix(n: int, sigma: float, reach: int | None = None) -> NDArray[np.float32]:
    """Matrix G, float32 [n, n], read-only, with which ``G @ plane @ G.T`` smooths a plane [n, n].

    ``G[i, j]`` is ``exp(-(i - j)^2 / (2 sigma^2))``, `sigma` in cells, each row divided by its sum:
    near the border the weights that would fall outside are shared among the cells inside. Weights
    below 1e-8 of the largest are 0, and so are those of cells more than `reach` away.
    """
    offset = np.arange(n)[:, None] - np.arange(n)
    weights = np.exp(-0.5 * (offset / sigma) ** 2)
    # They would change no float32 sum, and the denormal ones slow a product down tenfold.
    weights[weights < _NEGLIGIBLE] = 0
    if reach is not None:
        weights[np.abs(offset) > reach] = 0
    return _read_only(weights / weights.sum(axis=1, keepdims=True))


def _read_only(values: NDArray[np.float64]) -> NDArray[np.float32]:
    frozen = values.astype(np.float32)
    frozen.setflags(write=False)
    return frozen
