"""Allocation as facility location: every relevant position has a kept one that stands for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from .allocation import Allocation, Plane, check, keep

REACH = 1.5
"""Standard deviation, in positions, of how far a position stands for others."""

BATCH = 24
"""Bounds that are made exact together: one product costs hardly more than one row of it."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Covering:
    """Positions in the order in which they are best kept: the first k are the choice of budget k.

    Attributes:
        order: int64 [N].
        coverage: float64 [N], part of the relevance that the first k + 1 cover, in [0, 1], never falling.
    """

    order: NDArray[np.int64]
    coverage: NDArray[np.float64]

    def budget(self, share: float) -> int:
        """Fewest positions that cover `share` of the relevance."""
        return 1 + int(np.searchsorted(self.coverage, min(share, float(self.coverage[-1]))))


class CoverageAllocator:
    """Weighted facility location, greedily: ``argmax_u sum_j w_j max(0, S_uj - cur_j)``, again and again.

    w is the relevance, cur_j how well the best kept position stands for j so far, and
    ``S_uj = exp(-d^2 / 2 sigma^2)``, times the cosine of the positions' features (not below 0) if those are
    given. What is covered is submodular: the greedy choice covers at least 1 - 1/e of what the best could
    (Nemhauser, Wolsey & Fisher 1978), and gains only fall, so that most need not be worked out again (Minoux
    1978).

    Args:
        reach: sigma, in positions.

    Raises:
        UsageError: `reach` is not above 0.
    """

    def __init__(self, reach: float = REACH) -> None:
        if not reach > 0:
            raise UsageError(f"the reach of a position must be above 0, got {reach}")
        self._reach = reach

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """See `Allocator`; `budget` is at most the number of positions."""
        check(relevance, budget)
        return keep(relevance, self.cover(relevance, budget, features).order)

    def cover(self, relevance: Plane, budget: int, features: Plane | None = None) -> Covering:
        """The first `budget` positions; of equal gains, the first in raster order.

        Once all is covered, and where there is no relevance at all, the most relevant follow.

        Raises:
            UsageError: as `Allocator.allocate`.
        """
        check(relevance, budget)
        stands = self._stands(relevance.shape, features)
        weights = _weights(relevance)
        covered = np.zeros(relevance.size, np.float32)
        bounds = stands @ weights
        total = float(stands.max(axis=0) @ weights)
        order: list[int] = []
        while len(order) < budget and total > 0:
            best = _best(stands, weights, covered, bounds)
            if bounds[best] <= 0:
                break
            order.append(best)
            np.maximum(covered, stands[best], out=covered)
            bounds[best] = -1
        if len(order) < budget:
            ranked = np.argsort(-relevance, axis=None, kind="stable")
            order += ranked[~np.isin(ranked, order)][: budget - len(order)].tolist()
        chosen = np.array(order, np.int64)
        return Covering(chosen, _attained(stands, weights, chosen, total))

    def _stands(self, shape: tuple[int, ...], features: Plane | None) -> Floats:
        """S: float32 [N, N] in [0, 1]."""
        rows, columns = (
            np.exp(-0.5 * ((np.arange(n)[:, None] - np.arange(n)) / self._reach) ** 2).astype(np.float32)
            for n in shape
        )
        stands = np.einsum("ik,jl->ijkl", rows, columns).reshape(rows.shape[0] * columns.shape[0], -1)
        if features is not None:
            if features.shape[1:] != shape or not np.isfinite(features).all():
                raise UsageError(
                    f"features must be finite and [D, {shape[0]}, {shape[1]}], got {features.shape}"
                )
            flat = features.reshape(len(features), -1).astype(np.float32)
            flat = flat / np.maximum(np.linalg.norm(flat, axis=0), np.finfo(np.float32).tiny)
            stands = stands * np.maximum(flat.T @ flat, 0)
        made: Floats = np.ascontiguousarray(stands, np.float32)
        return made


def _weights(relevance: Plane) -> Floats:
    """Relevance, its sum 1; all the same where there is none, and from 0 up where some is below 0."""
    values = relevance.ravel().astype(np.float64)
    values = values - min(0.0, float(values.min()))
    most = float(values.max())
    values = values / most if most > 0 else np.ones_like(values)
    weights: Floats = (values / values.sum()).astype(np.float32)
    return weights


def _best(stands: Floats, weights: Floats, covered: Floats, bounds: Floats) -> int:
    """The position of the largest gain. `bounds` are gains of before, those looked at are made exact."""
    best, gain = -1, np.float32(-1)
    fresh = np.zeros(len(bounds), bool)
    while True:
        open_ = np.where(fresh, np.float32(-2), bounds)
        size = min(BATCH, len(bounds))
        batch = np.sort(np.argpartition(-open_, size - 1)[:size])
        batch = batch[open_[batch] >= max(gain, np.float32(0))]
        if not len(batch):
            return best if best >= 0 else int(bounds.argmax())
        gains = np.maximum(stands[batch] - covered, 0) @ weights
        bounds[batch], fresh[batch] = gains, True
        at = int(gains.argmax())
        if gains[at] > gain or (gains[at] == gain and batch[at] < best):
            best, gain = int(batch[at]), gains[at]


def _attained(stands: Floats, weights: Floats, order: NDArray[np.int64], total: float) -> NDArray[np.float64]:
    """Part of `total` that the first positions cover."""
    best = np.maximum.accumulate(stands[order], axis=0)
    return np.clip(np.maximum.accumulate(best.astype(np.float64) @ weights) / (total or 1.0), 0, 1)
