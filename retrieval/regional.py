"""Budgets of tokens for the regions of a large image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from .allocation import Allocation, Plane, keep
from .cells import resample


class BudgetsAllocator:
    """From 64 to 400 tokens for each region of a coarse grid, as many in all as the budget says.

    A region's share grows with a power of its mean relevance: ``b_i = clip(c * r_i ^ power, least, most)``,
    with c so that they sum to the budget; what rounding leaves goes to the largest remainders, of equals to
    the first in raster order. A budget that is not good for `least` in every region goes to the most relevant
    ones. What a region's budget buys in a model, `Cells.of` says.

    Args:
        regions: rows and columns of the coarse grid; as many as the relevance has, if that has fewer.
        least, most: tokens of a region that gets any.
        power: of the relevance; 0 gives all the same, above 1 favours the best.

    Raises:
        UsageError: the bounds are not 1 <= least <= most, or a number is not as it must be.
    """

    def __init__(
        self,
        regions: tuple[int, int] = (4, 4),
        least: int = 64,
        most: int = 400,
        power: float = 1.0,
    ) -> None:
        if not 1 <= least <= most or min(regions) < 1 or not 0 <= power < np.inf:
            raise UsageError(
                "expected 1 <= least <= most, regions of at least 1 and a power of 0 or more, got "
                f"least={least}, most={most}, regions={regions}, power={power}"
            )
        self._regions, self._least, self._most, self._power = regions, least, most, power

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """See `Allocator`: `budget` is from `least` to `most` times the number of regions.

        The allocation is over the coarse grid.

        Raises:
            UsageError: the budget cannot be spent, or a value is not finite.
        """
        grid = tuple(min(pair) for pair in zip(self._regions, relevance.shape, strict=True))
        coarse = resample(relevance, (grid[0], grid[1]))
        if not self._least <= budget <= self._most * coarse.size:
            raise UsageError(
                f"budget must be from {self._least} to {self._most * coarse.size} tokens for "
                f"{grid[0]} x {grid[1]} regions of {self._least} to {self._most}, got {budget}"
            )
        ranked = np.argsort(-coarse, axis=None, kind="stable")[: budget // self._least]
        kept = np.sort(ranked)
        values = coarse.ravel()[kept].astype(np.float64)
        values = values - min(0.0, float(coarse.min()))
        most = float(values.max())
        shares = (values / most) ** self._power if most > 0 else np.ones_like(values)
        return keep(coarse, kept, spend(shares, budget, self._least, self._most))


def spend(shares: NDArray[np.float64], budget: int, least: int, most: int) -> NDArray[np.int64]:
    """Whole budgets from `least` to `most` that sum to `budget` and follow `shares` [N] in [0, 1].

    ``clip(c * share, least, most)`` grows with c from N * least to N * most (shares of 0 last, all alike), so
    that c is found by halving.
    """
    shares = np.maximum(shares, 1e-9)
    low, high = 0.0, most / float(shares.min())
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):  # no number lies between
            break
        if np.clip(middle * shares, least, most).sum() < budget:
            low = middle
        else:
            high = middle
    exact = np.clip(high * shares, least, most)
    budgets = np.floor(exact + 1e-9).astype(np.int64)
    budgets = np.clip(budgets, least, most)
    for step, limit in ((1, most), (-1, least)):
        while (missing := step * (budget - int(budgets.sum()))) > 0:
            remainders = np.where(budgets == limit, -np.inf, step * (exact - budgets))
            nearest = np.argsort(-remainders, kind="stable")[: min(missing, int((budgets != limit).sum()))]
            budgets[nearest] += step
    return budgets
