"""Values of one interest as percentile and as strength."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from texcat.catalogue.distribution import ENTRIES, Distribution
from texcat.catalogue.errors import UsageError

VALUES = st.floats(-1e6, 1e6, width=32)
MAPS = npst.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(4), st.just(4)), elements=VALUES)


def skewed(images: int, seed: int = 0) -> NDArray[np.float32]:
    """Maps with a long upper tail: [images, 16, 16]."""
    return np.random.default_rng(seed).gamma(2, 1, (images, 16, 16)).astype(np.float32) - 3


def entry(made: Distribution) -> float:
    """Distance of two entries of the table, and the rounding of float32 beside it."""
    return 1 / made.scale + 1e-6 * max(abs(made.low), abs(made.high))


@pytest.mark.parametrize("percentile", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_percentiles_are_those_of_the_maps(percentile: float) -> None:
    maps = skewed(500)
    made = Distribution.of(maps, 500)
    exact = np.quantile(maps, percentile)
    assert made.percentile(np.array([exact], np.float32))[0] == pytest.approx(percentile, abs=3e-4)
    assert made.quantile(percentile) == pytest.approx(exact, abs=2 / made.scale)


@given(MAPS, npst.arrays(np.float32, 20, elements=VALUES))
def test_a_percentile_is_a_rank_between_the_entries_around_it(
    maps: NDArray[np.float32], values: NDArray[np.float32]
) -> None:
    made = Distribution.of(maps, 9)
    values = np.sort(values)
    found = made.percentile(values)
    assert found.dtype == np.float32
    assert (np.diff(found) >= 0).all()
    if made.scale:
        for value, rank in zip(np.clip(values.astype(np.float64), made.low, made.high), found, strict=True):
            below, above = (maps < value - entry(made)).mean(), (maps <= value + entry(made)).mean()
            assert below - 1e-6 <= rank <= above + 1e-6


@given(MAPS, st.floats(0, 1))
def test_a_quantile_is_the_inverse(maps: NDArray[np.float32], percentile: float) -> None:
    made = Distribution.of(maps, 9)
    value = made.quantile(percentile)
    assert made.low <= value <= made.high
    if made.table[0] < percentile < made.table[-1]:
        around = np.array([value - entry(made), value + entry(made)], np.float32)
        below, above = made.percentile(around)
        assert below - 1e-6 <= percentile <= above + 1e-6


def test_the_strength_counts_spreads_above_the_median() -> None:
    maps = skewed(500)
    made = Distribution.of(maps, 500)
    tenth, median = np.quantile(maps, [0.1, 0.5])
    values = np.array([[made.low, median], [2 * median - tenth, made.high]], np.float32)
    expected = [[0, 0], [1, (made.high - median) / (median - tenth)]]
    np.testing.assert_allclose(made.strength(values), expected, rtol=0.02, atol=0.01)
    assert made.strength(values).dtype == np.float32


def test_photos_that_show_an_interest_hardly_move_its_unit() -> None:
    without, shown = skewed(200), skewed(200)
    shown[:20, 4:12, 4:12] += 50  # a tenth of the photos, a quarter of each
    before, after = Distribution.of(without, 200), Distribution.of(shown, 200)
    assert after.spread == pytest.approx(before.spread, rel=0.05)
    assert after.median == pytest.approx(before.median, abs=0.05 * before.spread)
    assert np.std(shown) > 3 * np.std(without)


def test_a_shift_and_a_factor_of_the_scale_change_no_reading() -> None:
    maps = skewed(50)
    made, other = Distribution.of(maps, 50), Distribution.of(4 * maps + 8, 50)
    np.testing.assert_allclose(other.percentile(4 * maps[0] + 8), made.percentile(maps[0]), atol=1e-4)
    np.testing.assert_allclose(other.strength(4 * maps[0] + 8), made.strength(maps[0]), atol=1e-3)


def test_values_beyond_the_sample_get_the_ranks_of_its_ends() -> None:
    made = Distribution.of(np.arange(16, dtype=np.float32).reshape(1, 4, 4), 1)
    np.testing.assert_allclose(
        made.percentile(np.array([-9, 0, 15, 99], np.float32)), [1 / 32, 1 / 32] + [31 / 32] * 2
    )


def test_an_interest_that_is_everywhere_the_same_says_nothing() -> None:
    made = Distribution.of(np.full((3, 4, 4), 0.25, np.float32), 3)
    values = np.array([-1, 0.25, 7], np.float32)
    np.testing.assert_array_equal(made.percentile(values), [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(made.strength(values), [0, 0, 0])


def test_one_object_in_an_empty_corpus_has_a_bounded_strength() -> None:
    maps = np.zeros((100, 4, 4), np.float32)
    maps[0, 0, 0] = 5
    made = Distribution.of(maps, 100)
    assert made.strength(maps).max() == pytest.approx(100, rel=0.01)
    assert made.strength(maps).min() == pytest.approx(0, abs=0.01)


def test_what_is_no_distribution_is_refused() -> None:
    table = np.linspace(0, 1, ENTRIES, dtype=np.float32)
    for low, high in [(1.0, 0.0), (0.0, float("inf")), (float("nan"), 1.0)]:
        with pytest.raises(UsageError, match="has a finite range"):
            Distribution(low, high, table, 1, 1)
    for bad in (table[:-1], table[::-1], table - 0.5, table * 2, table * np.nan):
        with pytest.raises(UsageError, match=r"1024 ascending values in \[0, 1\]"):
            Distribution(0.0, 1.0, bad, 1, 1)


@pytest.mark.parametrize(
    "maps", [np.zeros((0, 4, 4)), np.full((1, 4, 4), np.nan), np.full((1, 4, 4), -np.inf)]
)
def test_maps_without_finite_cells_are_refused(maps: NDArray[np.float64]) -> None:
    with pytest.raises(UsageError, match="made of finite cells"):
        Distribution.of(maps.astype(np.float32), 1)


@pytest.mark.parametrize("percentile", [-0.1, 1.1, float("nan")])
def test_a_percentile_outside_its_range_is_refused(percentile: float) -> None:
    with pytest.raises(UsageError, match=r"a percentile is in \[0, 1\]"):
        Distribution.of(skewed(1), 1).quantile(percentile)
