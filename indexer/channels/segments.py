"""Groups ``clusters`` and ``objects``: segments of one colour, and those merged into things."""

from __future__ import annotations

from functools import cached_property, lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from ...catalogue.grid import resize_matrix
from ...catalogue.types import GRID
from ..matrices import both_sides, on_device
from . import slic
from .control import Control
from .merging import connected, merge
from .pixels import REDUCED, WHITE, Pixels, rgb_to_lab

SIDE = 10
"""Superpixels a side: SLIC starts from 10 x 10 centres."""

STEP = 13
"""Pixels of the reduced image from one centre to the next; the first lies at pixel 6."""

COMPACTNESS = 20.0
"""Weight of distance against CIELAB colour in SLIC (its authors' m, for which they advise 1 to 40)."""

SMOOTHING = 0.7
"""Standard deviation, in pixels of the reduced image, of a Gaussian before SLIC. Without it, noise breaks
superpixels into crumbs; with 1 or more, superpixels straddle sharp borders."""

ITERATIONS = 10
"""Rounds of k-means in SLIC (its authors found 10 enough)."""

LEAST_CELLS = 5
"""A superpixel of fewer cells, half of what it would have if all were equal, joins a neighbour."""

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

_CELLS = GRID * GRID
_KINDS = SIDE**2
USUAL_CLUSTERS = 128
"""An image has fewer clusters: 60 to 110 on photos."""


class Clusters:
    """SLIC superpixels; each plane float32 [B, 32, 32].

    R. Achanta and others, "SLIC superpixels compared to state-of-the-art superpixel methods", PAMI
    34(11), 2012, on the images averaged to 128x128 and smoothed. A cell takes the label that most of its 4x4
    pixels have, the smaller of two as frequent; then cells of one label that do not hang together become
    superpixels of their own, and small ones join a neighbour.
    """

    def __init__(self, pixels: Pixels, control: Control) -> None:
        self._pixels = pixels
        self._control = control

    @cached_property
    def labels(self) -> Tensor:
        """int64 [B, 32, 32]: labels 0, 1, 2, ... in order of first appearance, row by row."""
        fine = superpixels(self._pixels.reduced)
        block = REDUCED // GRID
        if fine.is_cuda:
            return connect(majority(fine, block), self._control)
        return connect(torch.from_numpy(slic.majority(fine.numpy(), block, _KINDS)), self._control)

    @property
    def cluster_id(self) -> Tensor:
        """`labels` as numbers, 0 to 255 (with `LEAST_CELLS` there are at most 205)."""
        return self.labels.float()

    @property
    def color_variance(self) -> Tensor:
        """Variance of R', G', B' among the cell's 16x16 pixels, mean of the three, times 4: in [0, 1].

        Values in [0, 1] have a variance of at most 1/4: half the pixels black, half white.
        """
        # Sums of 256 squares of bytes stay below 2^24: both means are exact, so nothing cancels.
        squares = self._pixels.sums.squares.double()
        variance = (squares - self._pixels.cell_means.double().square()) / WHITE**2
        return (4 * variance.mean(1)).float()

    @property
    def distance_to_boundary(self) -> Tensor:
        """Euclidean distance, in cells, to the nearest cell of another cluster, / 32, at most 1.

        Between 1/32, beside a boundary, and 1: where no other cluster is within 32 cells.
        """
        labels = self.labels.to(torch.int16)
        apart = on_device(_squared_distances, labels.device)
        # Along its own row first. In another row, a cell of the same column is of another cluster itself, or
        # the nearest such cell of that row is as far from it as from the cell that looks for it.
        other = labels[..., None] != labels[..., None, :]
        within_row = torch.where(other, apart, _CELLS).amin(3)
        same = labels[:, :, None] == labels[:, None]
        nearest = (torch.where(same, within_row[:, None], 0) + apart[:, :, None]).amin(2)
        return nearest.clamp(max=_CELLS).float().sqrt().div_(GRID)


class Objects:
    """Clusters merged with their neighbours while they look alike; each plane float32 [B, 32, 32].

    In rounds, each two adjacent segments (sharing a side of a cell) that are each other's closest are merged,
    and take the mean of both, until no pair is closer than a threshold. The distance is ``1 - cosine`` of
    mean patch features, the image's mean feature subtracted (all but a thousandth of it); without features,
    it is the CIE76 difference of mean colours.
    """

    def __init__(self, pixels: Pixels, clusters: Clusters, features: Tensor | None, control: Control) -> None:
        self._pixels = pixels
        self._clusters = clusters
        self._features = features
        self._control = control

    @cached_property
    def labels(self) -> Tensor:
        """int64 [B, 32, 32]: labels 0, 1, 2, ... in order of first appearance, row by row."""
        clusters = self._clusters.labels
        kinds = self._control.below(clusters, USUAL_CLUSTERS)
        ones = torch.ones(1, 1, device=clusters.device).expand(len(clusters), _CELLS)
        sizes = ones.new_zeros(len(clusters), kinds).scatter_add_(1, clusters.flatten(1), ones)
        adjacent = _adjacency(clusters, kinds)
        by_angle = self._features is not None
        planes = self._pixels.cells_lab if self._features is None else self._features
        means = _sums(clusters, kinds, planes) / sizes.clamp(min=1)[:, :, None]
        if by_angle:
            means -= (1 - MEAN_KEPT) * (sizes[:, None] @ means) / _CELLS
        limit = FEATURE_DISTANCE if by_angle else COLOR_DISTANCE
        root = self._control.on_host(
            partial(merge, limit=limit, by_angle=by_angle),
            torch.empty(sizes.shape, dtype=torch.int64, device=sizes.device),
            means @ means.mT,
            sizes,
            adjacent,
        )
        renamed = _renamed(root)
        return renamed.gather(1, clusters.flatten(1)).reshape(clusters.shape)

    @property
    def object_id(self) -> Tensor:
        """`labels` as numbers, 0 to 255."""
        return self.labels.float()


def superpixels(images: Tensor) -> Tensor:
    """SLIC of images [B, 3, 128, 128]: of which centre, 0 to 99, each pixel is: int64 [B, 128, 128].

    A pixel is compared with the centres that start one step away, a side, from the one nearest to it. With
    two steps, some 2% of the pixels of photos get another centre, and it takes three times as long.
    """
    if images.is_cuda:
        from . import kernels

        start, along = on_device(_start, images.device), on_device(_position, images.device)
        return kernels.superpixels(colours(images), start, along, STEP, ITERATIONS - 1)
    colour = slic.colours(images.numpy(), _smoothing_weights(), COMPACTNESS)
    return torch.from_numpy(slic.superpixels(colour, _start(), _position(), STEP, ITERATIONS - 1))


def colours(images: Tensor) -> Tensor:
    """Colours that SLIC compares, smoothed, in units of the compactness: [B, 3, 128, 128]."""
    low, high = (bound(images, (1, 2, 3), keepdim=True) for bound in (torch.amin, torch.amax))
    span = torch.where(high > low, high - low, 1)
    smooth = on_device(_smoothing, images.device)
    return both_sides(smooth, rgb_to_lab((images - low) / span), smooth) / COMPACTNESS


def connect(labels: Tensor, control: Control) -> Tensor:
    """Parts of labels [B, 32, 32] that hang together by sides of cells: 0, 1, ... in order of appearance.

    A part of fewer than `LEAST_CELLS` cells joins the one to the left of its first cell, row by row, or, at
    the left border, the one above it.
    """
    return control.on_host(partial(connected, least=LEAST_CELLS), torch.empty_like(labels), labels)


def _renamed(first: Tensor) -> Tensor:
    """0, 1, 2, ... in order of first appearance; int64 [B, N] holds at each place the first of its kind."""
    occurs = first == torch.arange(first.shape[1], device=first.device)
    return (occurs.cumsum(1) - 1).gather(1, first)


def _sums(labels: Tensor, kinds: int, planes: Tensor) -> Tensor:
    """Sum [B, K, d] of planes [B, d, h, w] over the cells of each of K segments, by labels [B, 32, 32].

    The sums are those of planes resized to the grid.
    """
    count, dims, *grid = planes.shape
    if not planes.is_cuda and grid == [GRID, GRID]:  # a GPU would add in another order each time
        number = labels.flatten(1) + kinds * torch.arange(count)[:, None]
        sums = planes.new_zeros(count * kinds, dims)
        sums.index_add_(0, number.flatten(), planes.permute(0, 2, 3, 1).reshape(-1, dims))
        return sums.reshape(count, kinds, dims)
    member = (labels[:, None] == torch.arange(kinds, device=labels.device)[:, None, None]).float()
    if grid != [GRID, GRID]:  # as resizing is linear, the K indicators are resized instead of d planes
        rows, columns = (on_device(resize_matrix, planes.device, n, GRID) for n in grid)
        member = both_sides(rows.T, member, columns.T)
    return member.flatten(2) @ planes.flatten(2).mT


def majority(labels: Tensor, block: int) -> Tensor:
    """Most frequent label in each block, the smallest of several: [B, H, W] -> [B, H / block, W / block]."""
    count, height, width = labels.shape
    rows, columns = height // block, width // block
    short = labels.to(torch.int16).reshape(count, rows, block, columns, block)
    members = short.permute(2, 4, 0, 1, 3).reshape(block * block, count, rows, columns)
    votes = torch.zeros_like(members)
    for member in members:
        votes += members == member
    best = (votes * _KINDS - members).amax(0)  # the most votes, and of those the smallest label
    return (-best % _KINDS).long()


def _adjacency(labels: Tensor, kinds: int) -> Tensor:
    """bool [B, K, K]: True where cells of two different of K segments, labels [B, 32, 32], share a side."""
    across = labels[:, :, 1:] * kinds + labels[:, :, :-1], labels[:, 1:] * kinds + labels[:, :-1]
    pairs = torch.cat([each.flatten(1) for each in across], 1)
    touching = torch.zeros(len(labels), kinds * kinds, dtype=torch.bool, device=labels.device)
    touching = touching.scatter_(1, pairs, True).reshape(-1, kinds, kinds)
    number = torch.arange(kinds, device=labels.device)
    return (touching | touching.mT) & (number[:, None] != number)


def _start() -> NDArray[np.float32]:
    """[2, 10, 10]: rows and columns of the centres at the start, in steps."""
    at = (np.arange(SIDE) * STEP + STEP // 2) / STEP
    return np.stack(np.meshgrid(at, at, indexing="ij")).astype(np.float32)


def _position() -> NDArray[np.float32]:
    """[128]: rows, or columns, of the pixels, in steps."""
    return (np.arange(REDUCED) / STEP).astype(np.float32)


def _smoothing() -> NDArray[np.float32]:
    """[128, 128]: a Gaussian of `SMOOTHING`, reflected at borders."""
    smooth: NDArray[np.float32] = gaussian_filter1d(np.eye(REDUCED), SMOOTHING, axis=0).astype(np.float32)
    return smooth


@lru_cache(maxsize=1)
def _smoothing_weights() -> NDArray[np.float32]:
    """[2 r + 1]: what the matrix holds in a row."""
    row = _smoothing()[REDUCED // 2]
    weights: NDArray[np.float32] = row[row != 0]
    return weights


def _squared_distances() -> NDArray[np.int16]:
    """[32, 32]: squared distance, in cells, between any two cells of a row or a column."""
    place = np.arange(GRID, dtype=np.int16)
    squared: NDArray[np.int16] = (place[:, None] - place) ** 2
    return squared
