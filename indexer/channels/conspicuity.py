"""Conspicuity as machine code, for processors: planes are too small for torch, a call of which is 10 us.

What it computes, and by which papers, `saliency` tells.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...catalogue.types import GRID
from .pixels import WHITE

Floats = NDArray[np.float32]

CENTRES = (2, 3, 4)
"""Levels of the pyramid that serve as centres; level k has a side of 512 / 2^k."""

SURROUNDS = (3, 4)
"""How many levels above its centre a surround is taken."""

DARK = 0.1
"""Colours whose largest component is below this have no hue worth comparing (Walther and Koch)."""

PEAK_FLOOR = 1 / WHITE
"""The least maximum that is stretched to 1: one grey level, so that a flat image stays flat."""

LOCAL_MAXIMUM = 0.1
"""Local maxima below this part of the largest value do not count (Walther and Koch's toolbox)."""

ROUNDING = 1e-5
"""Contrasts up to this are rounding in a flat area."""

TIE = 1e-4
"""Parts of the maximum that are nearer to each other are equal but for rounding."""

_OPPONENTS = 3
"""Planes before those of orientations: intensity, red-green, blue-yellow."""


@njit(cache=True, nogil=True, error_model="numpy")
def conspicuity(images: Floats, halving: Floats, derivatives: Floats) -> Floats:
    """Conspicuity of intensity, hue and orientation: float32 [B, 3, 32, 32], in [0, 1].

    Args:
        images: float32 [B, 3, 128, 128], the finest level.
        halving: float32 [4], what a level is smoothed with to the next.
        derivatives: float32 [3, 2 r + 1], a Gaussian and its first two derivatives: weights of the values
            around a cell, from left to right, or from top to bottom.
    """
    count, _, side, _ = images.shape
    finest = CENTRES[0]
    above = CENTRES[-1] + SURROUNDS[-1] - finest
    planes = _OPPONENTS + 4
    made = np.zeros((count, 3, GRID, GRID), np.float32)
    found = np.empty((planes, GRID, GRID), np.float32)
    levels = np.empty((above + 1, planes, side, side), np.float32)
    filtered = np.empty((3, side, side), np.float32)
    padded = np.empty(side + derivatives.shape[1], np.float32)
    contrast = np.empty((GRID, GRID), np.float32)
    part = np.float32(1 / (len(CENTRES) * len(SURROUNDS)))
    for image in range(count):
        _opponents(images, image, levels[0])
        size = side
        for level in range(above + 1):
            if level:
                size //= 2
                for plane in range(_OPPONENTS):
                    _halve(levels[level - 1, plane], 2 * size, halving, filtered[0], levels[level, plane])
            _orientations(levels[level], size, derivatives, filtered, padded)
        for plane in range(planes):
            for row in range(GRID):
                for column in range(GRID):
                    found[plane, row, column] = 0
            for centre in CENTRES:
                for surround in SURROUNDS:
                    level = centre - finest
                    fine, coarse = levels[level, plane], levels[level + surround, plane]
                    _contrast(fine, side >> level, coarse, surround, filtered[0], contrast)
                    normalise(contrast)
                    _add(contrast, part, found[plane])
        _add(found[0], np.float32(1), made[image, 0])
        for plane in range(1, _OPPONENTS):
            _add(found[plane], np.float32(1 / 2), made[image, 1])
        for plane in range(_OPPONENTS, planes):
            normalise(found[plane])
            _add(found[plane], np.float32(1 / 4), made[image, 2])
        for kind in range(3):
            normalise(made[image, kind])
    return made


@njit(cache=True, nogil=True, error_model="numpy")
def _add(values: Floats, weight: np.float32, total: Floats) -> None:
    for row in range(GRID):
        for column in range(GRID):
            total[row, column] += weight * values[row, column]


@njit(cache=True, nogil=True, error_model="numpy")
def normalise(values: Floats) -> None:
    """N(.) of one map, float32 [32, 32], in place: what `saliency.normalise` says."""
    along = np.zeros(GRID, np.float32)
    for row in range(GRID):
        for column in range(GRID):
            along[column] = max(along[column], values[row, column])
    peak = np.float32(0)
    for column in range(GRID):
        peak = max(peak, along[column])
    scale = np.float32(1) / max(peak, np.float32(PEAK_FLOOR))
    top = peak * scale
    least, near = np.float32(LOCAL_MAXIMUM) * top, np.float32(TIE)
    # Nothing is below 0, so that 0 stands for what is beyond the border.
    nearby = np.zeros(GRID + 2, np.float32)
    total, number = np.float32(0), 0
    for row in range(GRID):
        above, below = max(row - 1, 0), min(row + 1, GRID - 1)
        for column in range(GRID):
            higher = max(values[above, column], values[below, column])
            nearby[1 + column] = max(higher, values[row, column]) * scale
        for column in range(GRID):
            unit = values[row, column] * scale
            highest = max(nearby[column], nearby[column + 1], nearby[column + 2])
            if unit > 0 and unit >= highest - near and unit >= least:
                total += unit
                number += 1
    others = min(max((total - top) / np.float32(max(number - 1, 1)), np.float32(0)), np.float32(1))
    kept = scale * (1 - others) * (1 - others)
    for row in range(GRID):
        for column in range(GRID):
            values[row, column] *= kept


@njit(cache=True, nogil=True, error_model="numpy")
def _opponents(images: Floats, image: int, planes: Floats) -> None:
    """Write intensity, red-green and blue-yellow of an image to the first three planes."""
    side = images.shape[2]
    third, one, least = np.float32(1 / 3), np.float32(1), np.float32(DARK)
    for row in range(side):
        for column in range(side):
            red, green = images[image, 0, row, column], images[image, 1, row, column]
            blue = images[image, 2, row, column]
            largest = max(red, green, blue)
            scale = np.float32(0) if largest < least else one / max(largest, least)
            planes[0, row, column] = (red + green + blue) * third
            planes[1, row, column] = (red - green) * scale
            planes[2, row, column] = (blue - min(red, green)) * scale


@njit(cache=True, nogil=True, error_model="numpy")
def reflected(place: int, size: int) -> int:
    """The cell that stands for one, which may lie beyond a border, where cells are mirrored."""
    place %= 2 * size
    return place if place < size else 2 * size - 1 - place


@njit(cache=True, nogil=True, error_model="numpy")
def _halve(fine: Floats, size: int, halving: Floats, rows: Floats, coarse: Floats) -> None:
    """Write the level above `fine`, which has `size` cells a side."""
    half = size // 2
    a, b, c, d = halving[0], halving[1], halving[2], halving[3]
    for row in range(half):
        first, last = reflected(2 * row - 1, size), reflected(2 * row + 2, size)
        for column in range(size):
            outer = a * fine[first, column] + d * fine[last, column]
            rows[row, column] = outer + b * fine[2 * row, column] + c * fine[2 * row + 1, column]
    for row in range(half):
        for column in range(half):
            first, last = max(2 * column - 1, 0), min(2 * column + 2, size - 1)
            outer = a * rows[row, first] + d * rows[row, last]
            coarse[row, column] = outer + b * rows[row, 2 * column] + c * rows[row, 2 * column + 1]


@njit(cache=True, nogil=True, error_model="numpy")
def _orientations(planes: Floats, size: int, derivatives: Floats, filtered: Floats, padded: Floats) -> None:
    """Write the oriented energy of the first of the planes, [size, size], to the last four."""
    taps = derivatives.shape[1]
    radius = taps // 2
    for row in range(size):
        for place in range(size + taps - 1):
            padded[place] = planes[0, row, reflected(place - radius, size)]
        for order in range(3):
            for column in range(size):
                filtered[order, row, column] = 0
            for tap in range(taps):
                weight = derivatives[order, tap]
                for column in range(size):
                    filtered[order, row, column] += weight * padded[column + tap]
    for row in range(size):
        for column in range(size):
            for plane in range(_OPPONENTS, _OPPONENTS + 3):
                planes[plane, row, column] = 0
        for tap in range(taps):
            beside = reflected(row + tap - radius, size)
            smooth, first, second = derivatives[0, tap], derivatives[1, tap], derivatives[2, tap]
            for column in range(size):
                planes[_OPPONENTS, row, column] += smooth * filtered[2, beside, column]
                planes[_OPPONENTS + 1, row, column] += first * filtered[1, beside, column]
                planes[_OPPONENTS + 2, row, column] += second * filtered[0, beside, column]
        for column in range(size):
            across, mixed, down = (
                planes[_OPPONENTS, row, column],
                planes[_OPPONENTS + 1, row, column],
                planes[_OPPONENTS + 2, row, column],
            )
            half = (across + down) * np.float32(0.5)
            planes[_OPPONENTS, row, column] = abs(across)
            planes[_OPPONENTS + 1, row, column] = abs(half + mixed)
            planes[_OPPONENTS + 2, row, column] = abs(down)
            planes[_OPPONENTS + 3, row, column] = abs(half - mixed)


@njit(cache=True, nogil=True, error_model="numpy")
def _contrast(fine: Floats, size: int, coarse: Floats, above: int, wide: Floats, contrast: Floats) -> None:
    """Write how far cells of `fine`, [size, size], are from the level so many `above`: means on the grid."""
    few = size >> above
    block, step = size // GRID, np.float32(1 / (1 << above))
    last = np.float32(few - 1)
    for column in range(size):  # as `resize_matrix` enlarges
        at = min(max((np.float32(column) + np.float32(0.5)) * step - np.float32(0.5), np.float32(0)), last)
        left = int(at)
        right, weight = min(left + 1, few - 1), at - np.float32(left)
        for row in range(few):
            wide[row, column] = coarse[row, left] * (1 - weight) + coarse[row, right] * weight
    sums = np.zeros(size, np.float32)
    least, part = np.float32(ROUNDING), np.float32(1 / (block * block))
    for row in range(size):
        at = min(max((np.float32(row) + np.float32(0.5)) * step - np.float32(0.5), np.float32(0)), last)
        upper = int(at)
        lower, weight = min(upper + 1, few - 1), at - np.float32(upper)
        rest = 1 - weight
        for column in range(size):
            surround = wide[upper, column] * rest + wide[lower, column] * weight
            distance = abs(fine[row, column] - surround)
            sums[column] += distance if distance > least else np.float32(0)
        if (row + 1) % block == 0:
            for column in range(GRID):
                total = np.float32(0)
                for place in range(column * block, (column + 1) * block):
                    total += sums[place]
                    sums[place] = 0
                contrast[row // block, column] = total * part
