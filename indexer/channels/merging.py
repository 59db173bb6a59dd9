"""Segments that hang together, and objects of them, as machine code: steps that depend on those before.

On a GPU a round was some forty kernels over all cells or pairs of all images, for what changes a few.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_FAR = np.float32(np.inf)
"""How far segments are apart that do not touch."""


@njit(cache=True, nogil=True, error_model="numpy")
def connected(labels: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """Parts of labels [B, h, w] that hang together by sides of cells: 0, 1, ... in order of appearance.

    A part of fewer than `least` cells joins the one to the left of its first cell, row by row, or, at the
    left border, the one above it.
    """
    images, height, width = labels.shape
    made = np.empty((images, height, width), np.int64)
    first = np.empty(height * width, np.int64)
    sizes = np.empty(height * width, np.int64)
    for image in range(images):
        for place in range(height * width):
            row, column = place // width, place % width
            first[place], sizes[place] = place, 0
            if column and labels[image, row, column] == labels[image, row, column - 1]:
                _unite(first, place, place - 1)
            if row and labels[image, row, column] == labels[image, row - 1, column]:
                _unite(first, place, place - width)
        for place in range(height * width):
            first[place] = first[first[place]]  # which is done, as it comes before
            sizes[first[place]] += 1
        number = 0
        for place in range(height * width):
            row, column = place // width, place % width
            if first[place] != place:
                made[image, row, column] = made[image, first[place] // width, first[place] % width]
            elif place and sizes[place] < least:
                before = (row, column - 1) if column else (row - 1, column)
                made[image, row, column] = made[image, before[0], before[1]]
            else:
                made[image, row, column] = number
                number += 1
    return made


@njit(cache=True, nogil=True, error_model="numpy")
def _unite(first: NDArray[np.int64], place: int, other: int) -> None:
    """Let the parts of two cells be one, which is known by the first of its cells."""
    a, b = place, other
    while first[a] != a:
        a = first[a]
    while first[b] != b:
        b = first[b]
    first[max(a, b)] = min(a, b)


@njit(cache=True, nogil=True, error_model="numpy")
def merge(
    inner: NDArray[np.float32],
    sizes: NDArray[np.float32],
    adjacent: NDArray[np.bool_],
    limit: float,
    by_angle: bool,
) -> NDArray[np.int64]:
    """Merge adjacent segments that are each other's closest, in rounds, while a pair is closer than `limit`.

    Works on inner products of means alone, as merging two segments mixes their rows and columns. Of several
    that are as close, the first counts.

    Args:
        inner: float32 [B, K, K], inner products of the mean vectors of segments.
        sizes: float32 [B, K], the number of cells of each.
        adjacent: bool [B, K, K], symmetric, False on the diagonal.
        limit: of the distance.
        by_angle: the distance is 1 - cosine, to a zero vector, which has no direction, 0; else it is
            Euclidean.

    Returns:
        int64 [B, K]: for each segment, the smallest segment among those it was merged with.
    """
    images, count = sizes.shape
    roots = np.empty((images, count), np.int64)
    products = np.empty((count, count), np.float32)
    apart = np.empty((count, count), np.float32)
    bits = apart.view(np.int32)
    size = np.empty(count, np.float32)
    closest = np.empty(count, np.int64)
    stale = np.empty(count, np.bool_)
    alive = np.empty(count, np.int64)
    pairs = np.empty((count, 2), np.int64)
    for image in range(images):
        root = roots[image]
        for a in range(count):
            root[a] = alive[a] = a
            stale[a] = True
            size[a] = sizes[image, a]
            for b in range(count):
                products[a, b] = inner[image, a, b]
        for a in range(count):
            for b in range(count):
                apart[a, b] = _distance(products, a, b, by_angle) if adjacent[image, a, b] else _FAR
        left = count
        while True:
            found = 0
            for a in alive[:left]:
                if stale[a]:
                    stale[a] = False
                    closest[a] = _lowest(bits[a])
            for b in alive[:left]:
                a = closest[b]
                if a < b and closest[a] == b and apart[a, b] < limit:
                    pairs[found, 0], pairs[found, 1] = a, b
                    found += 1
            if not found:
                break
            for pair in pairs[:found]:
                _join(pair[0], pair[1], products, apart, size, stale, alive[:left], by_angle)
                root[pair[1]] = pair[0]
            left = _drop_gone(root, alive[:left])
        for segment in range(count):
            root[segment] = root[root[segment]]
    return roots


@njit(cache=True, nogil=True, error_model="numpy")
def _distance(products: NDArray[np.float32], a: int, b: int, by_angle: bool) -> np.float32:
    # Rounding may bring the distance of two equal means below zero.
    first, second, both = products[a, a], products[b, b], products[a, b]
    distance: np.float32
    if by_angle:
        # Two roots: the product of the squares may be beyond float32.
        norms = np.sqrt(max(first, np.float32(0))) * np.sqrt(max(second, np.float32(0)))
        distance = max(np.float32(1) - both / norms, np.float32(0)) if norms > 0 else np.float32(0)
    else:
        distance = np.sqrt(max(first + second - both - both, np.float32(0)))
    return distance


@njit(cache=True, nogil=True, error_model="numpy")
def _lowest(row: NDArray[np.int32]) -> int:
    """Where the first of the lowest distances of a row is, in bits, which order as they do."""
    lowest = row[0]
    for bits in row:  # by itself, as it is done in vectors
        lowest = min(lowest, bits)
    for place in range(len(row)):
        if row[place] == lowest:
            return place
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def _join(
    a: int,
    b: int,
    products: NDArray[np.float32],
    apart: NDArray[np.float32],
    size: NDArray[np.float32],
    stale: NDArray[np.bool_],
    alive: NDArray[np.int64],
    by_angle: bool,
) -> None:
    """Make segment `a` the mean of itself and `b`, which is gone then, and touches none."""
    whole = size[a] + size[b]
    share, other = size[a] / whole, size[b] / whole
    square = share * share * products[a, a] + other * other * products[b, b]
    products[a, a] = square + (share * other + share * other) * products[a, b]
    size[a] = whole
    apart[a, b] = apart[b, a] = _FAR
    for c in alive:
        if c in (a, b):
            stale[c] = True
            continue
        products[a, c] = products[c, a] = share * products[a, c] + other * products[b, c]
        if apart[a, c] < _FAR or apart[b, c] < _FAR:
            apart[a, c] = apart[c, a] = _distance(products, a, c, by_angle)
            apart[b, c] = apart[c, b] = _FAR
            stale[c] = True


@njit(cache=True, nogil=True, error_model="numpy")
def _drop_gone(root: NDArray[np.int64], alive: NDArray[np.int64]) -> int:
    """Move segments that are their own root to the front of `alive`; how many they are."""
    kept = 0
    for segment in alive:
        if root[segment] == segment:
            alive[kept] = segment
            kept += 1
    return kept
