"""SLIC as machine code, for processors: in torch its rounds go over all distances again and again."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .conspicuity import reflected
from .pixels import D65, RGB_TO_XYZ

Floats = NDArray[np.float32]

_AXES = 5
"""Row, column, and three of colour."""

(_XR, _XG, _XB), (_YR, _YG, _YB), (_ZR, _ZG, _ZB) = (
    [np.float32(weight / white) for weight in weights] for weights, white in zip(RGB_TO_XYZ, D65, strict=True)
)


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
    around, first = np.empty(9, np.int64), _first_bits()
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
                _compare(pixels, cell, height * width, centres, around, there, lowest, nearest)
                if turn < rounds:
                    _count(pixels, cell, height * width, nearest, around, first, sums)
                    continue
                top, left = cell // a_side * step, cell % a_side * step
                for y in range(height):
                    for x in range(width):
                        labels[image, top + y, left + x] = around[first[nearest[y * width + x]]]
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _compare(
    pixels: NDArray[np.float32],
    cell: int,
    area: int,
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
    for place in range(len(nearest)):
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
def _first_bits() -> NDArray[np.int64]:
    """Number of the lowest of nine bits; 0 where there is none, as for a pixel that is no number."""
    first = np.zeros(1 << 9, np.int64)
    for bits in range(1, 1 << 9):
        while not bits >> first[bits] & 1:
            first[bits] += 1
    return first


@njit(cache=True, nogil=True, error_model="numpy")
def _count(
    pixels: Floats,
    cell: int,
    area: int,
    nearest: NDArray[np.int32],
    around: NDArray[np.int64],
    first: NDArray[np.int64],
    sums: Floats,
) -> None:
    """Add the pixels of a cell to the sums of all centres `around` that are as near as any.

    Neighbours are mostly of one centre: they are added up first, as long as they are.
    """
    start = 0
    while start < area:
        bits, end = nearest[start], start
        row = column = red = green = blue = np.float32(0)
        while end < area and nearest[end] == bits:
            row += pixels[cell, 0, end]
            column += pixels[cell, 1, end]
            red += pixels[cell, 2, end]
            green += pixels[cell, 3, end]
            blue += pixels[cell, 4, end]
            end += 1
        while bits:
            centre = around[first[bits]]
            sums[centre, 0] += row
            sums[centre, 1] += column
            sums[centre, 2] += red
            sums[centre, 3] += green
            sums[centre, 4] += blue
            sums[centre, _AXES] += np.float32(end - start)
            bits &= bits - 1
        start = end


@njit(cache=True, nogil=True, error_model="numpy")
def colours(images: Floats, smoothing: Floats, compactness: float) -> Floats:
    """Colours that SLIC compares, as `segments.colours`: float32 [B, 3, n, n].

    Args:
        images: float32 [B, 3, n, n], sRGB.
        smoothing: float32 [2 r + 1], weights of the values around a pixel, along either side.
        compactness: what they are divided by.
    """
    count, _, side, _ = images.shape
    made = np.empty(images.shape, np.float32)
    plane = np.empty((3, side, side), np.float32)
    padded = np.empty(side + len(smoothing), np.float32)
    scale = np.float32(1 / compactness)
    for image in range(count):
        _lab(images, image, plane)
        for axis in range(3):
            _smooth_rows(plane[axis], smoothing, padded)
            _smooth_columns(plane[axis], smoothing, scale, made[image, axis])
    return made


@njit(cache=True, nogil=True, error_model="numpy")
def _lab(images: Floats, image: int, made: Floats) -> None:
    """Write CIELAB of an image, stretched to [0, 1], as `pixels.rgb_to_lab`."""
    side = images.shape[2]
    lows, highs = np.empty(side, np.float32), np.empty(side, np.float32)
    for column in range(side):
        lows[column], highs[column] = np.inf, -np.inf
    for axis in range(3):
        for row in range(side):
            for column in range(side):
                value = images[image, axis, row, column]
                lows[column], highs[column] = min(lows[column], value), max(highs[column], value)
    low, high = lows[0], highs[0]
    for column in range(side):
        low, high = min(low, lows[column]), max(high, highs[column])
    span = high - low if high > low else np.float32(1)
    for row in range(side):
        for column in range(side):
            red = _linear((images[image, 0, row, column] - low) / span)
            green = _linear((images[image, 1, row, column] - low) / span)
            blue = _linear((images[image, 2, row, column] - low) / span)
            x = _lightness(_XR * red + _XG * green + _XB * blue)
            y = _lightness(_YR * red + _YG * green + _YB * blue)
            z = _lightness(_ZR * red + _ZG * green + _ZB * blue)
            made[0, row, column] = np.float32(116) * y - np.float32(16)
            made[1, row, column] = np.float32(500) * (x - y)
            made[2, row, column] = np.float32(200) * (y - z)


@njit(cache=True, nogil=True, error_model="numpy")
def _linear(value: np.float32) -> np.float32:
    """Linear light of an sRGB value, float32: x^2.4 is x^2 times the square of a fifth root."""
    base = (value + np.float32(0.055)) * np.float32(1 / 1.055)
    bits = np.float32(base).view(np.int32)  # a fifth of them and four of those of 1: nearly the root
    root = np.int32(bits // 5 + 852_309_606).view(np.float32)
    for _ in range(3):
        fourth = root * root * root * root
        root = np.float32(0.8) * root + np.float32(0.2) * base / fourth
    high = base * base * root * root
    return high if value > np.float32(0.04045) else value * np.float32(1 / 12.92)


@njit(cache=True, nogil=True, error_model="numpy")
def _lightness(part: np.float32) -> np.float32:
    """CIE's f, float32, of X, Y or Z as a part of white's."""
    bits = np.float32(part).view(np.int32)  # a third of them and two of those of 1: nearly the root
    root = np.int32(bits // 3 + 709_921_077).view(np.float32)
    for _ in range(3):
        root = (root + root + part / (root * root)) * np.float32(1 / 3)
    return root if part > np.float32(0.008856) else np.float32(7.787) * part + np.float32(16 / 116)


@njit(cache=True, nogil=True, error_model="numpy")
def _smooth_rows(plane: Floats, smoothing: Floats, padded: Floats) -> None:
    side, taps = len(plane), len(smoothing)
    for row in range(side):
        for place in range(side + taps - 1):
            padded[place] = plane[row, reflected(place - taps // 2, side)]
        for column in range(side):
            plane[row, column] = 0
        for tap in range(taps):
            weight = smoothing[tap]
            for column in range(side):
                plane[row, column] += weight * padded[column + tap]


@njit(cache=True, nogil=True, error_model="numpy")
def _smooth_columns(plane: Floats, smoothing: Floats, scale: np.float32, made: Floats) -> None:
    side, taps = len(plane), len(smoothing)
    for row in range(side):
        for column in range(side):
            made[row, column] = 0
        for tap in range(taps):
            beside, weight = reflected(row + tap - taps // 2, side), smoothing[tap] * scale
            for column in range(side):
                made[row, column] += weight * plane[beside, column]


@njit(cache=True, nogil=True, error_model="numpy")
def majority(labels: NDArray[np.int64], block: int, kinds: int) -> NDArray[np.int64]:
    """Most frequent label in each block, the smallest of several: [B, n, n] -> [B, n / block, n / block]."""
    count, side, _ = labels.shape
    cells = side // block
    made = np.empty((count, cells, cells), np.int64)
    votes = np.zeros(kinds, np.int64)
    for image in range(count):
        for row in range(cells):
            for column in range(cells):
                best = labels[image, row * block, column * block]
                for y in range(row * block, (row + 1) * block):
                    for x in range(column * block, (column + 1) * block):
                        label = labels[image, y, x]
                        votes[label] += 1
                        if votes[label] > votes[best] or (votes[label] == votes[best] and label < best):
                            best = label
                for y in range(row * block, (row + 1) * block):
                    for x in range(column * block, (column + 1) * block):
                        votes[labels[image, y, x]] = 0
                made[image, row, column] = best
    return made
