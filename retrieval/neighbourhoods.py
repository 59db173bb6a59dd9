"""Allocators that keep positions together, or apart, by where they lie."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from .allocation import Allocation, Plane, check, keep


class WindowAllocator:
    """Coherent neighbourhoods: whole windows of `side` x `side` positions, the most relevant first.

    The next window is the one in which the relevance that is not kept yet, less the least of all, sums to the
    most; of equals, the first in raster order. Of the last window, as many positions are kept as the budget
    is good for, the most relevant first.

    Args:
        side: rows and columns of a window; on a smaller grid, as many as that has.

    Raises:
        UsageError: `side` is below 1.
    """

    def __init__(self, side: int = 3) -> None:
        if side < 1:
            raise UsageError(f"a window has a side of at least 1 position, got {side}")
        self._side = side

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """See `Allocator`; `budget` is at most the number of positions."""
        check(relevance, budget)
        rows, columns = relevance.shape
        high, wide = min(self._side, rows), min(self._side, columns)
        least, most = float(relevance.min()), float(relevance.max())
        # Whole numbers: sums are exact, and equal windows stay equal whatever was taken from them before.
        scale = (most - least) or 1.0
        left = 1 + np.rint((relevance.astype(np.float64) - least) / scale * 2**30).astype(np.int64)
        sums = sliding_window_view(left, (high, wide)).sum(axis=(2, 3))
        ranks = np.argsort(np.argsort(-relevance, axis=None, kind="stable"), kind="stable")
        kept = np.zeros((rows, columns), bool)
        spent = 0
        while spent < budget:
            row, column = divmod(int(sums.argmax()), sums.shape[1])
            window = np.s_[row : row + high, column : column + wide]
            new = np.flatnonzero(~kept[window].ravel())
            places = (row + new // wide) * columns + column + new % wide
            if len(places) > budget - spent:
                places = places[np.argsort(ranks[places])][: budget - spent]
            kept.ravel()[places] = True
            spent += len(places)
            left[window] = 0
            top, start = max(0, row - high + 1), max(0, column - wide + 1)
            near = left[top : row + 2 * high - 1, start : column + 2 * wide - 1]
            changed = sliding_window_view(near, (high, wide)).sum(axis=(2, 3))
            sums[top : top + changed.shape[0], start : start + changed.shape[1]] = changed
        return keep(relevance, np.flatnonzero(kept))


class QuadtreeAllocator:
    """Regions split by variance: many small ones where relevance changes, one large where it is even.

    Beginning with the whole grid, the region with the largest sum of squared deviations from its mean is cut
    in four (in two, where it is one row or column, or where only one more token is left), until there are as
    many regions as tokens. Of equals the larger is cut, then the first in raster order. Each keeps its most
    relevant position (Finkel & Bentley 1974; Samet 1984).
    """

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """See `Allocator`; `budget` is at most the number of positions."""
        check(relevance, budget)
        low, span = float(relevance.min()), float(np.ptp(relevance.astype(np.float64)))
        values = (relevance.astype(np.float64) - low) / (span or 1.0)
        sums, squares = (_integral(plane).tolist() for plane in (values, values * values))

        def region(top: int, left: int, bottom: int, right: int) -> tuple[float, int, int, int, int, int]:
            size = (bottom - top) * (right - left)
            total, square = (
                table[bottom][right] - table[top][right] - table[bottom][left] + table[top][left]
                for table in (sums, squares)
            )
            deviation = max(0.0, square - total * total / size) if size > 1 else -1.0
            # Rounded: the sums of a constant plane differ by their rounding, and must not decide.
            return -round(deviation, 9), -size, top, left, bottom, right

        regions = [region(0, 0, *relevance.shape)]
        while len(regions) < budget:
            _, _, top, left, bottom, right = heapq.heappop(regions)
            for part in _cut(top, left, bottom, right, budget - len(regions)):
                heapq.heappush(regions, region(*part))
        kept = []
        for _, _, top, left, bottom, right in regions:
            row, column = divmod(int(relevance[top:bottom, left:right].argmax()), right - left)
            kept.append((top + row) * relevance.shape[1] + left + column)
        return keep(relevance, np.array(kept, np.int64))


def _integral(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of all that lies above and to the left: [rows + 1, columns + 1]."""
    table = np.zeros((plane.shape[0] + 1, plane.shape[1] + 1))
    table[1:, 1:] = plane.cumsum(axis=0).cumsum(axis=1)
    return table


def _cut(top: int, left: int, bottom: int, right: int, room: int) -> list[tuple[int, int, int, int]]:
    """Halves or quarters of a region, at most `room` of them, at least two."""
    row, column = (top + bottom) // 2, (left + right) // 2
    if bottom - top == 1 or (room < 4 and right - left > bottom - top):
        return [(top, left, bottom, column), (top, column, bottom, right)]
    if right - left == 1 or room < 4:
        return [(top, left, row, right), (row, left, bottom, right)]
    return [
        (top, left, row, column),
        (top, column, row, right),
        (row, left, bottom, column),
        (row, column, bottom, right),
    ]
