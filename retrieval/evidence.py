"""Evidence: what a balancer looks at, cell by cell.

The three scores of `knowing` say something of one position each. Whether it is worth a token depends on what
lies around it, too: on the segment that it belongs to, on whether what was asked for lies to both sides of
it, on how large that is. So each score is also read over a neighbourhood, over segments, and beside the
position's own place. All planes are pure functions of a look-up.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from ..catalogue.grid import gaussian_matrix, grid_channels
from ..catalogue.types import GRID
from .knowing import Scores
from .types import Lookup

NEAR, WIDE = 2.0, 5.0
"""Standard deviations of the neighbourhoods, in positions: the size of things, and of their settings."""

PLANES = (
    "participatory",
    "participatory near",
    "participatory wide",
    "participatory rank",
    "participatory of its object",
    "participatory of its cluster",
    "participatory enclosed",
    "participatory across",
    "perspectival",
    "perspectival of its object",
    "propositional",
    "propositional near",
    "interest saliency",
    "object's part",
    "object reaches the border",
    "distance to boundary",
    "lightness",
    "middle",
    "down",
    "sideways",
    "nearness to the peak",
    "nearness to the mean place",
    "highest",
    "mean",
    "spread",
)
"""Names of the planes, in order."""

CHANNELS = (
    "similarity",
    "saliency",
    "edge_magnitude",
    "eccentricity",
    "interest_saliency",
    "lightness",
    "object_id",
    "cluster_id",
    "distance_to_boundary",
)
"""Channels that they are made of."""

Plane = NDArray[np.float32]


def evidence(hit: Lookup, scores: Scores) -> Plane:
    """All `PLANES` of a look-up: float32 [F, 32, 32], each about [0, 1].

    Args:
        hit: the look-up.
        scores: its scores, as `knowing.know` gives them.

    Raises:
        UsageError: the look-up was made with too few channels.
    """
    lacking = set(CHANNELS) - set(hit.channels)
    if lacking:
        raise UsageError(
            f"a balancer needs the channels {', '.join(sorted(lacking))}, which this look-up does not hold: "
            "enable their groups, and leave `channels` of the Retriever out; or balance with none"
        )
    objects, clusters = (hit.channel(name).astype(np.int64).ravel() for name in ("object_id", "cluster_id"))
    return np.stack(
        [
            *_participatory(scores.participatory, objects, clusters),
            *_others(scores, objects),
            hit.channel("interest_saliency"),
            *_segments(objects),
            hit.channel("distance_to_boundary"),
            hit.channel("lightness") / np.float32(100),
            *_place(),
            *_shape(scores.participatory),
        ]
    ).astype(np.float32)


def _participatory(score: Plane, objects: NDArray[np.int64], clusters: NDArray[np.int64]) -> list[Plane]:
    return [
        score,
        _smooth(score, NEAR),
        _smooth(score, WIDE),
        _rank(score),
        _mean_of(score, objects),
        _mean_of(score, clusters),
        _enclosed(score),
        np.sqrt(score.max(axis=0, keepdims=True) * score.max(axis=1, keepdims=True)),
    ]


def _others(scores: Scores, objects: NDArray[np.int64]) -> list[Plane]:
    return [
        scores.perspectival,
        _mean_of(scores.perspectival, objects),
        scores.propositional,
        _smooth(scores.propositional, NEAR),
    ]


def _segments(objects: NDArray[np.int64]) -> list[Plane]:
    """How much of the grid a position's object takes, and how much of the border it holds."""
    size = np.bincount(objects, minlength=1)
    border = np.ones((GRID, GRID), bool)
    border[1:-1, 1:-1] = False
    edge = np.bincount(objects, weights=border.ravel(), minlength=1)
    parts = (size / objects.size, edge / border.sum())
    return [np.sqrt(part)[objects].reshape(GRID, GRID).astype(np.float32) for part in parts]


@cache
def _place() -> tuple[Plane, ...]:
    grid = grid_channels()
    return 1 - grid["eccentricity"], grid["y"], np.abs(2 * grid["x"] - 1)


def _shape(score: Plane) -> list[Plane]:
    """How near a position is to the highest score, and to where it is in the mean; and its figures."""
    rows, columns = np.indices(score.shape).astype(np.float32) / np.float32(GRID)
    row, column = divmod(int(score.argmax()), score.shape[1])
    weights = score.astype(np.float64) ** 2 + 1e-9
    weights /= weights.sum()
    middle = float((weights * rows).sum()), float((weights * columns).sum())
    peak = np.exp(-4 * np.hypot(rows - row / GRID, columns - column / GRID))
    mean = np.exp(-4 * np.hypot(rows - middle[0], columns - middle[1]))
    figures = (score.max(), score.mean(), score.std())
    return [peak, mean, *(np.full_like(score, figure) for figure in figures)]


def _enclosed(score: Plane) -> Plane:
    """The least of the four greatest scores above, below, left and right of a position, itself included.

    High wherever what was asked for lies on all four sides: a box around its parts is filled.
    """
    sides = (
        np.maximum.accumulate(score, axis=0),
        np.maximum.accumulate(score[::-1], axis=0)[::-1],
        np.maximum.accumulate(score, axis=1),
        np.maximum.accumulate(score[:, ::-1], axis=1)[:, ::-1],
    )
    return np.asarray(np.minimum.reduce(sides), np.float32)


def _rank(score: Plane) -> Plane:
    """Part of the other positions that rank lower; of equals, those before it in raster order do."""
    ranks = np.empty(score.size, np.float32)
    ranks[np.argsort(score, axis=None, kind="stable")] = np.arange(score.size) / (score.size - 1)
    return ranks.reshape(score.shape)


def _mean_of(score: Plane, labels: NDArray[np.int64]) -> Plane:
    """Mean of the score over all positions with the label of a position."""
    sums, sizes = np.bincount(labels, score.ravel()), np.bincount(labels)
    return (sums / np.maximum(sizes, 1))[labels].reshape(score.shape).astype(np.float32)


@cache
def _gaussian(sigma: float) -> Plane:
    return gaussian_matrix(GRID, sigma).astype(np.float32)


def _smooth(plane: Plane, sigma: float) -> Plane:
    blur = _gaussian(sigma)
    return np.asarray(blur @ plane @ blur.T, np.float32)
