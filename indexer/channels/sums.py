"""Sums over the pixels of images as machine code, for processors: torch would make large tensors for them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...catalogue.derived import LUMA

_RED, _GREEN, _BLUE = (np.float32(weight / 255) for weight in LUMA)
_HALF_DIAGONAL = np.float32(math.sqrt(0.5))

Floats = NDArray[np.float32]


@njit(cache=True, nogil=True, error_model="numpy")
def pixel_means(images: NDArray[np.uint8], cell: int, block: int) -> tuple[Floats, Floats, Floats]:
    """What `pixels.PixelMeans` says of images.

    Args:
        images: uint8 [B, 3, H, H].
        cell, block: sides of a cell and of a block, in pixels; H is a multiple of both.
    """
    count, _, side, _ = images.shape
    blocks = np.empty((count, 3, side // block, side // block), np.float32)
    squares = np.empty((count, 3, side // cell, side // cell), np.float32)
    edges = np.empty(squares.shape, np.float32)
    luma = np.empty((side, side), np.float32)
    values, squared = np.zeros((3, side), np.float32), np.zeros((3, side), np.float32)
    gradients = np.zeros((3, side), np.float32)
    for image in range(count):
        for row in range(side):
            _add_values(images, image, row, luma, values, squared)
            _take(values, row, block, blocks, image)
            _take(squared, row, cell, squares, image)
        for row in range(side):
            _add_gradients(luma, row, gradients)
            _take(gradients, row, cell, edges, image)
    return blocks, squares, edges


@njit(cache=True, nogil=True, error_model="numpy")
def _add_values(
    images: NDArray[np.uint8], image: int, row: int, luma: Floats, values: Floats, squared: Floats
) -> None:
    """Add a row of pixels to sums of their columns, and write its luminance. All sums are exact."""
    for column in range(len(luma)):
        red = np.float32(images[image, 0, row, column])
        green = np.float32(images[image, 1, row, column])
        blue = np.float32(images[image, 2, row, column])
        luma[row, column] = min(_RED * red + _GREEN * green + _BLUE * blue, np.float32(1))
        values[0, column] += red
        values[1, column] += green
        values[2, column] += blue
        squared[0, column] += red * red
        squared[1, column] += green * green
        squared[2, column] += blue * blue


@njit(cache=True, nogil=True, error_model="numpy")
def _add_gradients(luma: Floats, row: int, gradients: Floats) -> None:
    """Add the gradients of a row to sums of their columns; beyond a border, pixels are those at it."""
    last = len(luma) - 1
    above, below = max(row - 1, 0), min(row + 1, last)
    _add_gradient(luma, above, row, below, 0, 0, min(1, last), gradients)
    for column in range(1, last):  # by itself, as it is done in vectors
        _add_gradient(luma, above, row, below, column - 1, column, column + 1, gradients)
    if last:
        _add_gradient(luma, above, row, below, last - 1, last, last, gradients)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _add_gradient(
    luma: Floats, above: int, row: int, below: int, left: int, column: int, right: int, gradients: Floats
) -> None:
    across = np.float32(2) * (luma[row, right] - luma[row, left])
    down = np.float32(2) * (luma[below, column] - luma[above, column])
    falling = luma[below, right] - luma[above, left]
    rising = luma[above, right] - luma[below, left]
    to_right = (across + (falling + rising)) * np.float32(0.25)
    downwards = (down + (falling - rising)) * np.float32(0.25)
    gradients[0, column] += to_right
    gradients[1, column] += downwards
    gradients[2, column] += np.sqrt(to_right * to_right + downwards * downwards) * _HALF_DIAGONAL


@njit(cache=True, nogil=True, error_model="numpy")
def _take(sums: Floats, row: int, square: int, means: Floats, image: int) -> None:
    """After the last row of a row of squares, turn sums of columns to their means, and begin anew."""
    if (row + 1) % square:
        return
    for kind in range(3):
        for place in range(means.shape[3]):
            total = np.float32(0)
            for column in range(place * square, (place + 1) * square):
                total += sums[kind, column]
                sums[kind, column] = 0
            means[image, kind, row // square, place] = total / np.float32(square * square)
