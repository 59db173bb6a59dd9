"""Which positions a vision-language model is given, and how many tokens each gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..catalogue.errors import UsageError
from .prompting import Prompt, prompt

Plane = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The kept positions of a grid, in raster order (row by row, as a model reads them).

    Attributes:
        indices: int64 [K], ``row * columns + column``, ascending.
        positions: int64 [K, 2], (row, column).
        budgets: int64 [K], tokens of each position.
        scores: float32 [K], relevance of each position.
        grid: (rows, columns) of the grid that was allocated over.
    """

    indices: NDArray[np.int64]
    positions: NDArray[np.int64]
    budgets: NDArray[np.int64]
    scores: NDArray[np.float32]
    grid: tuple[int, int]

    def to_prompt(self, image: Image.Image, most: int = 4) -> Prompt:
        """Boxes, crops and words for a model behind an API, which is given no tokens.

        Args:
            image: that the grid was laid over.
            most: how many regions to give.
        """
        return prompt(self, image, most)


class Allocator(Protocol):
    """A strategy of spending a budget of tokens over the positions of a grid."""

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """Spend exactly `budget` tokens.

        Args:
            relevance: float32 [rows, columns], finite.
            budget: tokens.
            features: float32 [D, rows, columns] of the same positions, for allocators that look at what
                positions have in common; others take no notice.

        Raises:
            UsageError: relevance or features are not as they must be, or the budget cannot be spent.
        """
        ...


class TopKAllocator:
    """One token for each of the most relevant positions; of equals, the first in raster order."""

    def allocate(self, relevance: Plane, budget: int, features: Plane | None = None) -> Allocation:
        """See `Allocator`; `budget` is at most the number of positions."""
        check(relevance, budget)
        return keep(relevance, np.argsort(-relevance, axis=None, kind="stable")[:budget])


def check(relevance: Plane, budget: int) -> None:
    """That a budget can be spent, one token a position.

    Raises:
        UsageError: the budget is not from 1 to the number of positions, or a value is not finite.
    """
    if relevance.ndim != 2 or not np.isfinite(relevance).all():
        raise UsageError(f"relevance must be finite and [rows, columns], got shape {relevance.shape}")
    if not 1 <= budget <= relevance.size:
        raise UsageError(f"budget must be from 1 to {relevance.size} tokens, got {budget}")


def keep(
    relevance: Plane, indices: NDArray[np.int64], budgets: NDArray[np.int64] | None = None
) -> Allocation:
    """The allocation that keeps `indices`, in any order, with a token each or their `budgets`."""
    order = np.argsort(indices, kind="stable")
    kept = np.asarray(indices, np.int64)[order]
    spent = np.ones(len(kept), np.int64) if budgets is None else np.asarray(budgets, np.int64)[order]
    positions = np.stack(np.divmod(kept, relevance.shape[1]), axis=1)
    scores = relevance.ravel()[kept].astype(np.float32)
    return Allocation(kept, positions, spent, scores, (relevance.shape[0], relevance.shape[1]))
