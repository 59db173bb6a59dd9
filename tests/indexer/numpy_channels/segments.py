"""Groups ``clusters`` and ``objects``: segments of one colour, and those merged into things."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from skimage.segmentation import slic
from texcat.catalogue.grid import Plane, resize_matrix
from texcat.catalogue.types import GRID

from .pixels import CELL, REDUCED, WHITE, Pixels, block_sum

Labels = NDArray[np.intp]
Matrix = NDArray[np.float64]

SEGMENTS = 100
"""How many superpixels SLIC aims at."""

COMPACTNESS = 20.0
"""Weight of distance against CIELAB colour in SLIC (its authors' m, for which they advise 1 to 40)."""

SMOOTHING = 0.7
"""Standard deviation, in pixels of the reduced image, of a Gaussian before SLIC. Without it, noise breaks
superpixels into crumbs, which enforcing connectivity joins into one; with 1 or more, superpixels
straddle sharp borders."""

ITERATIONS = 10
"""Rounds of k-means in SLIC (its authors found 10 enough)."""

FEATURE_DISTANCE = 0.6
"""Segments whose features differ by less are one object: 1 - cosine, about the image's mean.

Chosen by eye on 16 photos, between 0.3 (zebras and cups fall apart) and 0.75 (things join what is
behind them): these photos come out as 5 to 13 objects."""

MEAN_KEPT = 1e-3
"""Part of the image's mean feature that stays in, so that segments without a feature of their own,
which would point wherever rounding sends them, all point one way."""

COLOR_DISTANCE = 12.0
"""Segments whose mean colours differ by less are one object: CIE76 difference in CIELAB.

Chosen by eye on the same photos, between 8 and 16: 13 to 54 objects, as colour alone says less."""


class Clusters:
    """SLIC superpixels; each plane float32 [32, 32].

    R. Achanta and others, "SLIC superpixels compared to state-of-the-art superpixel methods", PAMI
    34(11), 2012, on the image averaged to 128x128 and smoothed, connectivity enforced. A cell takes the
    label that most of its 4x4 pixels have, the smaller of two as frequent.
    """

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels

    @cached_property
    def labels(self) -> Labels:
        """[32, 32]: labels 0, 1, 2, ... in order of first appearance, row by row."""
        fine = slic(
            self._pixels.reduced,
            n_segments=SEGMENTS,
            compactness=COMPACTNESS,
            max_num_iter=ITERATIONS,
            sigma=SMOOTHING,
            start_label=0,
            channel_axis=-1,
        )
        return compact(_majority(fine, REDUCED // GRID))

    @property
    def cluster_id(self) -> Plane:
        """`labels` as numbers, 0 to 255 (SLIC's least segment size allows no more than 200)."""
        return self.labels.astype(np.float32)

    @property
    def color_variance(self) -> Plane:
        """Variance of R', G', B' among the cell's 16x16 pixels, mean of the three, times 4: in [0, 1].

        Values in [0, 1] have a variance of at most 1/4: half the pixels black, half white.
        """
        # Sums of 256 squares of bytes stay below 2^24: both sums are exact, so nothing cancels.
        n = CELL**2
        total = block_sum(self._pixels.rgb, CELL).astype(np.float64)
        squares = block_sum(self._pixels.rgb**2, CELL).astype(np.float64)
        variance = (squares / n - (total / n) ** 2) / WHITE**2
        scaled: Plane = (4 * variance.mean(axis=-1)).astype(np.float32)
        return scaled

    @property
    def distance_to_boundary(self) -> Plane:
        """Euclidean distance, in cells, to the nearest cell of another cluster, / 32, at most 1.

        Between 1/32, beside a boundary, and 1: where no other cluster is within 32 cells.
        """
        labels = self.labels.ravel()
        same = labels[:, None] == labels
        nearest = np.where(same, GRID**2, _squared_distances()).min(axis=1)
        distance: Plane = np.sqrt(np.minimum(nearest, GRID**2)).reshape(GRID, GRID) / GRID
        return distance.astype(np.float32)


class Objects:
    """Clusters merged with their neighbours while they look alike; each plane float32 [32, 32].

    The closest pair of adjacent segments (sharing a side of a cell) is merged, and takes the mean of
    both, until no pair is closer than a threshold. The distance is ``1 - cosine`` of mean patch features,
    the image's mean feature subtracted (all but a thousandth of it); without features, it is the CIE76
    difference of mean colours.
    """

    def __init__(self, pixels: Pixels, clusters: Clusters, features: NDArray[np.float32] | None) -> None:
        self._pixels = pixels
        self._clusters = clusters
        self._features = features

    @cached_property
    def labels(self) -> Labels:
        """[32, 32]: labels 0, 1, 2, ... in order of first appearance, row by row."""
        clusters = self._clusters.labels
        member = (clusters == np.arange(clusters.max() + 1)[:, None, None]).astype(np.float32)
        sizes = member.sum(axis=(1, 2), dtype=np.float64)
        adjacent = _adjacency(clusters)
        if self._features is None:
            means = _means(member, np.moveaxis(self._pixels.cells_lab, -1, 0))
            merged = merge(means, sizes, adjacent, _euclidean, COLOR_DISTANCE)
        else:
            means = _means(member, self._features)
            means -= (1 - MEAN_KEPT) * (sizes @ means / sizes.sum())
            merged = merge(means, sizes, adjacent, _one_minus_cosine, FEATURE_DISTANCE)
        return compact(merged[clusters])

    @property
    def object_id(self) -> Plane:
        """`labels` as numbers, 0 to 255."""
        return self.labels.astype(np.float32)


def compact(labels: Labels) -> Labels:
    """Rename labels to 0, 1, 2, ... in order of first appearance, row by row."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse].reshape(labels.shape)


def merge(
    means: Matrix,
    sizes: Matrix,
    adjacent: NDArray[np.bool_],
    distance: Callable[[Matrix], Matrix],
    limit: float,
) -> Labels:
    """Merge adjacent segments, the closest pair first, while a pair is closer than `limit`.

    Works on inner products of means alone, as merging two segments mixes their rows and columns:
    O(K^3) at worst, K segments, whatever the length of a mean.

    Args:
        means: float64 [K, d], the mean vector of each segment.
        sizes: float64 [K], the number of cells of each.
        adjacent: [K, K], symmetric, False on the diagonal.
        distance: from inner products [K, K] to distances [K, K].
        limit: in units of `distance`.

    Returns:
        [K]: for each segment, the smallest segment among those it was merged with.
    """
    inner, sizes, adjacent = means @ means.T, sizes.copy(), adjacent.copy()
    root = np.arange(len(sizes))
    while True:
        apart = np.where(adjacent, distance(inner), np.inf)
        kept, gone = sorted(divmod(int(apart.argmin()), len(sizes)))
        if apart[kept, gone] >= limit:
            return root
        share = sizes[kept] / (sizes[kept] + sizes[gone])
        inner[kept] = share * inner[kept] + (1 - share) * inner[gone]
        inner[:, kept] = share * inner[:, kept] + (1 - share) * inner[:, gone]
        sizes[kept] += sizes[gone]
        adjacent[kept] |= adjacent[gone]
        adjacent[kept, [kept, gone]] = False
        adjacent[:, kept] = adjacent[kept]
        adjacent[gone] = adjacent[:, gone] = False
        root[root == gone] = kept


def _euclidean(inner: Matrix) -> Matrix:
    squares = inner.diagonal()
    # Rounding may bring the distance of two equal means below zero.
    distance: Matrix = np.sqrt(np.maximum(squares[:, None] + squares - 2 * inner, 0))
    return distance


def _one_minus_cosine(inner: Matrix) -> Matrix:
    """Of a zero vector, which has no direction, to any other: 0."""
    norms = np.sqrt(np.outer(inner.diagonal(), inner.diagonal()))
    cosine: Matrix = np.divide(inner, norms, out=np.ones_like(inner), where=norms > 0)
    return 1 - cosine


def _means(member: NDArray[np.float32], planes: NDArray[np.float32]) -> Matrix:
    """Mean of planes [d, h, w] over each segment, `member` [K, 32, 32] being 1 in it and 0 elsewhere.

    Equals the mean of the planes resized to the grid, as resizing is linear: instead of d planes, the
    K indicators are brought to the planes' own grid.
    """
    depth, height, width = planes.shape
    weights = resize_matrix(height, GRID).T @ member @ resize_matrix(width, GRID)
    sums = weights.reshape(len(member), -1) @ planes.reshape(depth, -1).T
    means: Matrix = sums.astype(np.float64) / member.sum(axis=(1, 2))[:, None]
    return means


def _majority(labels: Labels, block: int) -> Labels:
    """Most frequent label in each block, the smallest of several: [H, W] -> [H / block, W / block]."""
    height, width = labels.shape[0] // block, labels.shape[1] // block
    kinds = int(labels.max()) + 1
    cell = np.arange(height * width).reshape(height, width).repeat(block, axis=0).repeat(block, axis=1)
    votes = np.bincount((cell * kinds + labels).ravel(), minlength=height * width * kinds)
    winners: Labels = votes.reshape(height, width, kinds).argmax(axis=-1)
    return winners


def _adjacency(labels: Labels) -> NDArray[np.bool_]:
    """[K, K]: True where cells of two different segments share a side."""
    kinds = int(labels.max()) + 1
    adjacent = np.zeros((kinds, kinds), bool)
    adjacent[labels[:, 1:], labels[:, :-1]] = True
    adjacent[labels[1:], labels[:-1]] = True
    adjacent |= adjacent.T
    np.fill_diagonal(adjacent, False)
    return adjacent


@lru_cache(maxsize=1)
def _squared_distances() -> NDArray[np.int16]:
    """[1024, 1024]: squared distance, in cells, between any two cells of the grid."""
    row, column = np.divmod(np.arange(GRID**2, dtype=np.int16), np.int16(GRID))
    squared: NDArray[np.int16] = (row[:, None] - row) ** 2 + (column[:, None] - column) ** 2
    squared.setflags(write=False)
    return squared
