"""SLIC's rounds as machine code, for processors: in torch they go over all distances again and again."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_AXES = 5
"""Row, column, and three of colour."""


@njit(cache=True, nogil=True, error_model="numpy")
def superpixels(
    colour: NDArray[np.float32],
    start: NDArray[np.float32],
    along: NDArray[np.float32],
    step: int,
    rounds: int,
) -> NDArray[np.int64]:
    """SLIC, as `kernels.superpixels`: int64 [B, n, n], of which centre each pixel is.

    A pixel is compared with the centres that start beside the one that it starts with, the first of several
    that are as near. Where centres move, it counts for all of these.

    Args:
        colour: float32 [B, 3, n, n], in units of the compactness.
        start: float32 [2, k, k], rows and columns of the centres at the start.
        along: float32 [n], place of each pixel along a side, in steps.
        step: pixels of a side from one centre to the next.
        rounds: how often the centres move.
    """
    images, _, side, _ = colour.shape
    a_side = start.shape[1]
    kinds = a_side * a_side
    labels = np.empty((images, side, side), np.int64)
    # The pixels of a cell lie together, so that distances are computed in vectors.
    pixels = np.zeros((kinds, _AXES, step * step), np.float32)
    heights, widths = np.empty(kinds, np.int64), np.empty(kinds, np.int64)
    centres = np.empty((kinds, _AXES), np.float32)
    sums = np.empty((kinds, _AXES + 1), np.float32)
    lowest = np.empty(step * step, np.float32)
    nearest = np.empty(step * step, np.int32)
    around = np.empty(9, np.int64)
    for image in range(images):
        for cell in range(kinds):
            down, across = cell // a_side, cell % a_side
            centres[cell, 0], centres[cell, 1] = start[0, down, across], start[1, down, across]
            for axis in range(2, _AXES):
                centres[cell, axis] = 0
            height, width = min(step, side - down * step), min(step, side - across * step)
            heights[cell], widths[cell] = height, width
            for y in range(height):
                row = down * step + y
                for x in range(width):
                    column, place = across * step + x, y * width + x
                    pixels[cell, 0, place], pixels[cell, 1, place] = along[row], along[column]
                    for axis in range(3):
                        pixels[cell, 2 + axis, place] = colour[image, axis, row, column]
        for turn in range(rounds + 1):
            for cell in range(kinds):  # written out, as array expressions take seconds to compile
                for axis in range(_AXES + 1):
                    sums[cell, axis] = 0
            for cell in range(kinds):
                height, width = heights[cell], widths[cell]
                there = _around(cell, a_side, around)
                _compare(pixels, cell, centres, around, there, lowest, nearest)
                if turn < rounds:
                    _count(pixels, cell, height * width, nearest, around, sums)
                    continue
                top, left = cell // a_side * step, cell % a_side * step
                for y in range(height):
                    for x in range(width):
                        near = _first(nearest[y * width + x])
                        labels[image, top + y, left + x] = around[near]
            if turn < rounds:
                for cell in range(kinds):
                    size = sums[cell, _AXES]
                    if size > 0:
                        for axis in range(_AXES):
                            centres[cell, axis] = sums[cell, axis] / size
    return labels


@njit(cache=True, nogil=True, error_model="numpy")
def _around(cell: int, a_side: int, around: NDArray[np.int64]) -> int:
    """Write the cells around one, row by row, itself among them, to `around`; how many they are."""
    down, across = cell // a_side, cell % a_side
    there = 0
    for y in range(max(down - 1, 0), min(down + 2, a_side)):
        for x in range(max(across - 1, 0), min(across + 2, a_side)):
            around[there] = y * a_side + x
            there += 1
    return there


@njit(cache=True, nogil=True, error_model="numpy")
def _compare(
    pixels: NDArray[np.float32],
    cell: int,
    centres: NDArray[np.float32],
    around: NDArray[np.int64],
    there: int,
    lowest: NDArray[np.float32],
    nearest: NDArray[np.int32],
) -> None:
    """Which of the centres `around` are nearest to the pixels [5, n] of a cell: a bit for each of them.

    Of squared distances what is the same for all centres is left out: ``|p|^2`` of ``|p - c|^2``. In loops
    that compilers make vectors of, and without parts of arrays, each of which is counted while it is used.
    """
    area = len(lowest)
    for place in range(area):
        lowest[place] = np.inf
        nearest[place] = 0
    double = np.float32(-2)
    for near in range(there):
        centre = around[near]
        squared = np.float32(0)
        for axis in range(_AXES):
            squared += centres[centre, axis] * centres[centre, axis]
        a, b = double * centres[centre, 0], double * centres[centre, 1]
        c, d, e = double * centres[centre, 2], double * centres[centre, 3], double * centres[centre, 4]
        bit = np.int32(1 << near)
        for place in range(area):
            distance = squared + a * pixels[cell, 0, place] + b * pixels[cell, 1, place]
            distance += c * pixels[cell, 2, place] + d * pixels[cell, 3, place] + e * pixels[cell, 4, place]
            before = lowest[place]
            others = nearest[place] if distance == before else np.int32(0)
            nearest[place] = others | bit if distance <= before else nearest[place]
            lowest[place] = min(distance, before)


@njit(cache=True, nogil=True, error_model="numpy")
def _first(bits: int) -> int:
    """Number of the lowest bit; 0 where there is none, as for a pixel that is no number."""
    for number in range(9):
        if bits >> number & 1:
            return number
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def _count(
    pixels: NDArray[np.float32],
    cell: int,
    area: int,
    nearest: NDArray[np.int32],
    around: NDArray[np.int64],
    sums: NDArray[np.float32],
) -> None:
    """Add each pixel of a cell to the sums of all centres `around` that are as near as any."""
    for place in range(area):
        bits, near = nearest[place], 0
        while bits:
            if bits & 1:
                centre = around[near]
                for axis in range(_AXES):
                    sums[centre, axis] += pixels[cell, axis, place]
                sums[centre, _AXES] += np.float32(1)
            bits >>= 1
            near += 1
