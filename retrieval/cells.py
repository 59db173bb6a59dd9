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
        top, bottom = _shares(allocation.positions[:, 0], allocation.grid[0], grid[0])
        left, right = _shares(allocation.positions[:, 1], allocation.grid[1], grid[1])
        side = np.full(len(top), POOLING[-1])
        for level in reversed(POOLING):
            tokens = _parts(bottom - top, level) * _parts(right - left, level)
            side[tokens <= allocation.budgets] = level
        owner, row, column = _unroll(_parts(bottom - top, side), _parts(right - left, side))
        rows, columns = top[owner] + row * side[owner], left[owner] + column * side[owner]
        found = np.stack(
            [
                rows,
                columns,
                np.minimum(side[owner], bottom[owner] - rows),
                np.minimum(side[owner], right[owner] - columns),
            ],
            axis=1,
        )
        centres = (found[:, 0] + (found[:, 2] - 1) // 2) * grid[1] + found[:, 1] + (found[:, 3] - 1) // 2
        order = np.argsort(centres, kind="stable")
        return cls(grid, found[order], centres[order])

    def members(self) -> tuple[Ints, Ints]:
        """``(places, owners)``: each token of the grid that is in a block, and the number of its block."""
        top, left, rows, columns = self.blocks.T
        owner, row, column = _unroll(rows, columns)
        return (top[owner] + row) * self.grid[1] + left[owner] + column, owner


def _shares(places: Ints, parts: int, size: int) -> tuple[Ints, Ints]:
    """Where each place begins and ends, when `parts` places share `size` evenly."""
    return places * size // parts, (places + 1) * size // parts


def _parts(length: Ints, side: Ints | int) -> Ints:
    """How many blocks of `side` cover a length; the last may be shorter."""
    return -(-length // side)


def _unroll(rows: Ints, columns: Ints) -> tuple[Ints, Ints, Ints]:
    """Every place of several grids [rows, columns], in raster order: number of its grid, row, column."""
    counts = rows * columns
    owner = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, place // columns[owner], place % columns[owner]
