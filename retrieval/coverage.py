"""Allocation as facility location: every relevant position has a kept one that stands for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from .allocation import Allocation, Plane, check, keep
from .kernels import cover

REACH = 1.5
"""Standard deviation, in positions, of how far a position stands for others."""

LEAST = 0.02
"""Below it, a position counts as not standing for another: a choice changes only the gains around it."""

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
    (Nemhauser, Wolsey & Fisher 1978). S is 0 where it would be below 0.02, so that a choice changes only the
    gains around it.

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
        weights = _weights(relevance)
        order, added = cover(weights, self._stands(relevance.shape, features), budget)
        if len(order) < budget:
            ranked = np.argsort(-relevance, axis=None, kind="stable")
            further = ranked[~np.isin(ranked, order)][: budget - len(order)]
            order, added = np.append(order, further), np.append(added, np.zeros(len(further)))
        return Covering(order, np.minimum(np.cumsum(added), 1))

    def _stands(self, shape: tuple[int, ...], features: Plane | None) -> Floats:
        """S of each position and those around it: float32 [rows, columns, 2 R + 1, 2 R + 1] in [0, 1]."""
        radius = int(self._reach * np.sqrt(-2 * np.log(LEAST)))
        offsets = np.arange(-radius, radius + 1)
        near = np.exp(-0.5 * (offsets / self._reach) ** 2)
        spatial = np.outer(near, near)
        spatial[spatial < LEAST] = 0
        stands = np.broadcast_to(spatial.astype(np.float32), (*shape, *spatial.shape))
        if features is None:
            return stands
        if features.shape[1:] != shape or not np.isfinite(features).all():
            raise UsageError(f"features must be finite and [D, {shape[0]}, {shape[1]}], got {features.shape}")
        norms = np.maximum(np.linalg.norm(features, axis=0), np.finfo(np.float32).tiny)
        padded = np.pad((features / norms).astype(np.float32), ((0, 0), (radius, radius), (radius, radius)))
        around = sliding_window_view(padded, spatial.shape, axis=(1, 2))
        centre = padded[:, radius : radius + shape[0], radius : radius + shape[1]]
        cosines = np.einsum("drc,drcij->rcij", centre, around)
        made: Floats = stands * np.maximum(cosines, 0)
        made[:, :, radius, radius] = 1  # also where the features are all 0
        return made


def _weights(relevance: Plane) -> NDArray[np.float64]:
    """Relevance, its sum 1; all the same where there is none, and from 0 up where some is below 0."""
    values = relevance.astype(np.float64)
    values = values - min(0.0, float(values.min()))
    most = float(values.max())
    values = values / most if most > 0 else np.ones_like(values)
    weights: NDArray[np.float64] = values / values.sum()
    return weights
