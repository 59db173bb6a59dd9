"""Which positions a vision-language model is given, and how many tokens each gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..catalogue.errors import UsageError
from .prompting import Prompt, prompt


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

    def allocate(self, relevance: NDArray[np.float32], budget: int) -> Allocation:
        """Spend exactly `budget` tokens over `relevance` [rows, columns]."""
        ...


class TopKAllocator:
    """One token for each of the most relevant positions; of equals, the first in raster order."""

    def allocate(self, relevance: NDArray[np.float32], budget: int) -> Allocation:
        """Keep the `budget` most relevant positions of `relevance`, float32 [rows, columns].

        Raises:
            UsageError: the budget is not from 1 to the number of positions, or a value is not finite.
        """
        if relevance.ndim != 2 or not np.isfinite(relevance).all():
            raise UsageError(f"relevance must be finite and [rows, columns], got shape {relevance.shape}")
        if not 1 <= budget <= relevance.size:
            raise UsageError(f"budget must be from 1 to {relevance.size} tokens, got {budget}")
        rows, columns = relevance.shape
        ranked = np.argsort(-relevance, axis=None, kind="stable")
        indices = np.sort(ranked[:budget])
        positions = np.stack(np.divmod(indices, columns), axis=1)
        scores = relevance.ravel()[indices].astype(np.float32)
        return Allocation(indices, positions, np.ones(budget, np.int64), scores, (rows, columns))


ALLOCATORS: dict[str, Allocator] = {"topk": TopKAllocator()}
"""Allocators by the name of their strategy."""


def allocator(strategy: str) -> Allocator:
    """The allocator of this name.

    Raises:
        UsageError: there is none.
    """
    if strategy not in ALLOCATORS:
        raise UsageError(f"strategy {strategy!r} is not known; expected one of: {', '.join(ALLOCATORS)}")
    return ALLOCATORS[strategy]
