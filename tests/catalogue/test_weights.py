"""The formula of use: worked by hand, and its properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue.errors import UsageError
from texcat.catalogue.weights import LIMIT, Use, decayed, factor

SCORES = st.floats(-1e6, 1e6)


def test_half_is_left_after_each_half_life_and_the_future_counts_as_now() -> None:
    times = np.array([100.0, 90.0, 80.0, 110.0])
    assert decayed(times, now=100.0, half_life=10.0).tolist() == [1.0, 0.5, 0.25, 1.0]


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.inf, math.nan])
def test_a_half_life_is_a_length_of_time(half_life: float) -> None:
    with pytest.raises(UsageError, match="finite number of seconds above 0"):
        decayed(np.zeros(1), 0.0, half_life)


def test_the_factor_by_hand() -> None:
    assert factor(0, 0) == 1.0
    assert factor(10, 0) == pytest.approx(math.sqrt(2))  # half the way to 2
    assert factor(0, -2) == pytest.approx(1 / math.sqrt(2))  # two useless answers: minus ten questions
    assert Use(amount=5.0, feedback=1.0).factor == factor(5, 1) == pytest.approx(math.sqrt(2))


@given(SCORES, SCORES)
def test_the_factor_rises_within_its_limits(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 1 / LIMIT < factor(low, 0) <= factor(high, 0) < LIMIT
