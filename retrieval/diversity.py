"""Published ways of pruning visual tokens by their diversity, to compare with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from .allocation import Allocation, Plane, check, keep

Floats = NDArray[np.float64]


class DivPrune:
    """Max-min diversity: the positions whose least distance to one another is greatest, greedily.

    The first is the one that is farthest from its nearest other; each further one is the farthest from its
    nearest kept one, by ``1 - cosine`` of features. Relevance is not looked at (Alvar et al. 2025,
    "DivPrune").
    """

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """See `Allocator`; needs features."""
        check(relevance, budget)
        distances = 1 - _cosines(relevance, features)
        alone = distances.copy()
        np.fill_diagonal(alone, np.inf)
        nearest = alone.min(axis=1) if len(alone) > 1 else np.zeros(1)
        kept = [int(nearest.argmax())]
        nearest = distances[kept[0]].copy()
        nearest[kept[0]] = -np.inf
        while len(kept) < budget:
            kept.append(int(nearest.argmax()))
            np.minimum(nearest, distances[kept[-1]], out=nearest)
            nearest[kept] = -np.inf
        return keep(relevance, np.array(kept, np.int64))


class CDPruner:
    """A determinantal point process, conditioned on relevance: positions that are relevant, and differ.

    The kernel is ``L = diag(r) S diag(r)`` with S the cosines of features and r the relevance brought to
    [0, 1]; its most likely set is chosen greedily, by the fast Cholesky update of Chen, Zhang & Zhou (2018)
    (Zhang et al. 2025, "CDPruner"). Once the kernel's rank is used up, the most relevant follow.
    """

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """See `Allocator`; needs features."""
        check(relevance, budget)
        values = relevance.ravel().astype(np.float64)
        span = float(np.ptp(values))
        weights = (values - values.min()) / span if span > 0 else np.ones_like(values)
        kernel = weights[:, None] * _cosines(relevance, features) * weights
        gains = np.diag(kernel).copy()
        rows = np.zeros((budget, len(kernel)))
        kept: list[int] = []
        while len(kept) < budget:
            best = int(gains.argmax())
            if gains[best] <= 1e-10:
                break
            number = len(kept)
            row = (kernel[best] - rows[:number, best] @ rows[:number]) / np.sqrt(gains[best])
            rows[number] = row
            gains -= row * row
            kept.append(best)
            gains[kept] = -np.inf
        ranked = np.argsort(-relevance, axis=None, kind="stable")
        kept += ranked[~np.isin(ranked, kept)][: budget - len(kept)].tolist()
        return keep(relevance, np.array(kept, np.int64))


def _cosines(relevance: Plane, features: Plane | None) -> Floats:
    """[N, N] in [-1, 1]."""
    if features is None or features.shape[1:] != relevance.shape or not np.isfinite(features).all():
        got = None if features is None else features.shape
        raise UsageError(
            f"diversity needs finite features [D, rows, columns] of the relevance's positions, got {got}"
        )
    flat = features.reshape(len(features), -1).astype(np.float64)
    flat = flat / np.maximum(np.linalg.norm(flat, axis=0), np.finfo(np.float64).tiny)
    return np.asarray(flat.T @ flat)
