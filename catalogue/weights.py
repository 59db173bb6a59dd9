"""How use and feedback move the weight of an interest.

A question counts for each interest that it is about. What a question counts halves with every half-life that
has passed since it was asked, so that at the moment t

    use(t) = sum over questions of amount * 2 ** (-max(0, t - time) / half_life)

and `feedback` likewise, of its signed amounts. Both are sums over what is recorded, taken at the moment they
are needed: no job has to run, the order of recording does not matter, another half-life takes effect at
once, and a time that a wrong clock put into the future counts as now. The effective weight of an interest is
the user's own, times `factor`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError

CONFIDENT = 0.5
"""From this confidence on, the interests alone answer a question; below it, its own words have a part."""

HALF_LIFE = 30 * 86_400.0
"""Default, in seconds: what was asked a month ago counts half."""

LIMIT = 2.0
"""Use and feedback change a weight by less than this factor, up or down."""

_HALF_WAY = 10.0
"""So many recent questions go half the way to the limit, on a logarithmic scale."""

_FEEDBACK = 5.0
"""Saying once that an answer was useful, or was not, counts as much as so many questions."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a phrase was used for, at one moment.

    Attributes:
        amount: questions about it, decayed; >= 0.
        feedback: useful answers less useless ones, decayed.
        last: when it was last asked about, in seconds since 1970; None if it never was.
    """

    amount: float = 0.0
    feedback: float = 0.0
    last: float | None = None

    @property
    def factor(self) -> float:
        """What the user's own weight is multiplied by: `factor` of this use."""
        return factor(self.amount, self.feedback)


def factor(amount: float, feedback: float) -> float:
    """``2 ** (s / (10 + |s|))``, s = amount + 5 * feedback: in (1/2, 2), rising, and 1 where s = 0."""
    score = amount + _FEEDBACK * feedback
    return float(LIMIT ** (score / (_HALF_WAY + abs(score))))


def decayed(times: NDArray[np.float64], now: float, half_life: float) -> NDArray[np.float64]:
    """What is left, of 1, at `now` of what happened at `times`: in [0, 1], of the same shape.

    Raises:
        UsageError: as `check_half_life`.
    """
    return np.exp2(-np.maximum(0.0, now - times) / check_half_life(half_life))


def check_half_life(half_life: float) -> float:
    """`half_life`, in seconds.

    Raises:
        UsageError: it is not finite and above 0.
    """
    if not (math.isfinite(half_life) and half_life > 0):
        raise UsageError(f"a half-life is a finite number of seconds above 0, got {half_life}")
    return half_life
