"""How the values of one interest's maps are spread over the corpus: what makes interests comparable.

Each interest has a scale of its own. Its distribution gives a value two readings. The *percentile* says how
rare the value is. The *strength* says how far above what is usual it lies, in a unit that the photos without
the interest set: the distance from the median down to the 10th percentile, which those few photos that show
the interest hardly move. Strengths of several interests are what a blend adds up (design/0005).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError

ENTRIES = 1024
"""Entries of the table; with that many, it adds less than 0.001 to the error of the sample (design/0005)."""

_LOWER = 0.1
_LEAST_SPREAD = 0.01


@dataclass(frozen=True)  # without slots, so that its quantiles are worked out once
class Distribution:
    """Distribution of the values of one interest's maps, cell by cell, over a sample of the corpus.

    Attributes:
        low, high: least and greatest value in the sample, on the encoder's scale.
        table: float32 [1024], ascending, in [0, 1]: part of the sample's cells that lie below each of 1,024
            values, equally spaced from `low` to `high`; cells that equal it count half.
        images: how many images the sample is made of.
        corpus: how many images were held when it was made.

    Raises:
        UsageError: `low` and `high` are no range, or `table` is no such table.
    """

    low: float
    high: float
    table: NDArray[np.float32]
    images: int
    corpus: int

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low <= self.high):
            raise UsageError(f"a distribution has a finite range, got {self.low} to {self.high}")
        sound = self.table.shape == (ENTRIES,) and (np.diff(self.table) >= 0).all()
        if not (sound and self.table[0] >= 0 and self.table[-1] <= 1):
            raise UsageError(
                f"the table of a distribution has {ENTRIES} ascending values in [0, 1], "
                f"got shape {self.table.shape}: {self.table}"
            )

    @classmethod
    def of(cls, maps: NDArray[np.float32], corpus: int) -> Self:
        """Distribution of the cells of `maps`, float32 [N, rows, columns], N >= 1, of a corpus that large.

        Raises:
            UsageError: there is no cell, or one that is not finite.
        """
        cells = np.sort(maps, axis=None)  # NaN goes to the end
        if not (cells.size and np.isfinite(cells[[0, -1]]).all()):
            raise UsageError(f"a distribution is made of finite cells, got maps of shape {maps.shape}")
        low, high = float(cells[0]), float(cells[-1])
        values = np.linspace(low, high, ENTRIES).astype(np.float32)
        ranks = np.searchsorted(cells, values, "left") + np.searchsorted(cells, values, "right")
        return cls(low, high, (ranks / (2 * cells.size)).astype(np.float32), len(maps), corpus)

    @property
    def scale(self) -> float:
        """What turns the distance of a value from `low` into a place in `table`; 0 if all cells are equal."""
        span = self.high - self.low
        return (ENTRIES - 1) / span if span > 0 else 0.0

    @cached_property
    def median(self) -> float:
        """The value that half of the sample's cells lie below."""
        return self.quantile(0.5)

    @cached_property
    def spread(self) -> float:
        """Unit of the strength: from the 10th percentile to the median, and at least 1% of the range.

        0 if all cells are equal.
        """
        return max(self.median - self.quantile(_LOWER), _LEAST_SPREAD * (self.high - self.low))

    def percentile(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Part of the corpus' cells that lie below each of `values`: float32 in [0, 1], of the same shape.

        It never falls where values rise. It is a rank, and no probability that the interest is there: how
        many of the cells above the 99th percentile show it depends on how common it is, and on the encoder.
        If all cells of the corpus are equal, the percentile is 0.5 everywhere.

        Args:
            values: finite, on the encoder's scale.
        """
        place = np.clip((values.astype(np.float64) - self.low) * self.scale, 0, ENTRIES - 1)
        ranks: NDArray[np.float64] = np.interp(place, np.arange(ENTRIES), self.table)
        return ranks.astype(np.float32)

    def quantile(self, percentile: float) -> float:
        """The value of this percentile, in [0, 1]: the inverse of `percentile`.

        Raises:
            UsageError: `percentile` is not in [0, 1].
        """
        if not 0 <= percentile <= 1:
            raise UsageError(f"a percentile is in [0, 1], got {percentile}")
        return float(np.interp(percentile, self.table, np.linspace(self.low, self.high, ENTRIES)))

    def strength(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """``max(0, value - median) / spread``: float32 >= 0, of the shape of `values`.

        0 if all cells of the corpus are equal: such an interest tells images apart in nothing.

        Args:
            values: finite, on the encoder's scale.
        """
        spread = self.spread
        if spread == 0:
            return np.zeros(values.shape, np.float32)
        above = np.maximum(values.astype(np.float64) - self.median, 0)
        return (above / spread).astype(np.float32)
