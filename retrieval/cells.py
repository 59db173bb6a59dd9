"""From an allocation to the tokens of a model: relevance on their grid, and which of them go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from ..catalogue.grid import resize_matrix
from .allocation import Allocation

POOLING = (1, 2, 4, 8)
"""Rows and columns of merged tokens that one pooled token stands for: levels 1, 1/2, 1/4 and 1/8."""

Ints = NDArray[np.int64]
Plane = NDArray[np.float32]


def resample(relevance: Plane, grid: tuple[int, int]) -> Plane:
    """Relevance [rows, columns] on another grid, float32: each cell is the mean of what it covers.

    Both cover the whole image. Where the new one is finer, it is interpolated: see `grid.resize_matrix`.

    Raises:
        UsageError: a side of either is below 1, or a value is not finite.
    """
    if relevance.ndim != 2 or not relevance.size or min(grid) < 1 or not np.isfinite(relevance).all():
        raise UsageError(f"cannot bring relevance of shape {relevance.shape} to a grid of {grid}")
    rows, columns = resize_matrix(relevance.shape[0], grid[0]), resize_matrix(relevance.shape[1], grid[1])
    return np.asarray(rows @ relevance.astype(np.float64) @ columns.T, np.float32)


@dataclass(frozen=True, slots=True)
class Cells:
    """Blocks of a model's grid of merged tokens, each of which goes on as one token.

    Attributes:
        grid: rows and columns of the grid.
        blocks: int64 [K, 4]: top row, left column, rows and columns of each block.
        centres: int64 [K], ``row * columns + column`` of the token whose position the block keeps: that at
            its centre, the upper left one of the middle four where it has no middle. Ascending.
    """

    grid: tuple[int, int]
    blocks: Ints
    centres: Ints

    @classmethod
    def of(cls, allocation: Allocation, grid: tuple[int, int]) -> Self:
        """What an allocation keeps of `grid`.

        Each kept position of the allocation's own grid covers a part of `grid`, which is pooled to the finest
        of the levels 1, 1/2, 1/4 and 1/8 whose tokens are no more than the position's budget; to 1/8 where
        that is too many, too. On one and the same grid, a position is a token.

        Raises:
            UsageError: the allocation's grid is finer than `grid`.
        """
        if any(own > given for own, given in zip(allocation.grid, grid, strict=True)):
            raise UsageError(
                f"an allocation over {allocation.grid} positions cannot be spent on {grid} tokens; bring the "
                "relevance to the grid of the tokens first (regions.resample)"
            )
        tops, lefts = (_bounds(own, given) for own, given in zip(allocation.grid, grid, strict=True))
        blocks = []
        for (row, column), budget in zip(
            allocation.positions.tolist(), allocation.budgets.tolist(), strict=True
        ):
            blocks += _pooled(tops[row], tops[row + 1], lefts[column], lefts[column + 1], budget)
        found = np.array(blocks, np.int64).reshape(-1, 4)
        centres = (found[:, 0] + (found[:, 2] - 1) // 2) * grid[1] + found[:, 1] + (found[:, 3] - 1) // 2
        order = np.argsort(centres, kind="stable")
        return cls(grid, found[order], centres[order])

    def members(self) -> tuple[Ints, Ints]:
        """``(places, owners)``: each token of the grid that is in a block, and the number of its block."""
        places, owners = [], []
        for number, (top, left, rows, columns) in enumerate(self.blocks.tolist()):
            block = np.arange(top, top + rows)[:, None] * self.grid[1] + np.arange(left, left + columns)
            places.append(block.ravel())
            owners.append(np.full(block.size, number, np.int64))
        empty = [np.zeros(0, np.int64)]
        return np.concatenate(places or empty), np.concatenate(owners or empty)


def _bounds(parts: int, size: int) -> list[int]:
    """Where each of `parts` begins that share `size` evenly, and the end."""
    return [part * size // parts for part in range(parts + 1)]


def _pooled(top: int, bottom: int, left: int, right: int, budget: int) -> list[tuple[int, int, int, int]]:
    """Blocks of a rectangle at the finest level that the budget pays for; the last may be smaller."""
    rows, columns = bottom - top, right - left
    side = next((n for n in POOLING if -(-rows // n) * -(-columns // n) <= budget), POOLING[-1])
    return [
        (row, column, min(side, bottom - row), min(side, right - column))
        for row in range(top, bottom, side)
        for column in range(left, right, side)
    ]
