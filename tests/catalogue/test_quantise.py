"""Quantisation: a byte a cell, on the plane's own range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from texcat.catalogue.errors import UsageError
from texcat.catalogue.quantise import dequantise, quantise

FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


@given(npst.arrays(np.float32, npst.array_shapes(min_dims=3, max_dims=3, max_side=8), elements=FLOATS))
def test_quantisation_error_is_half_a_step(values: NDArray[np.float32]) -> None:
    quantised = quantise(values)
    error = np.abs(dequantise(quantised).astype(np.float64) - values)
    span = quantised.high.astype(np.float64) - quantised.low
    # half a step, and the rounding of float32 at the size of the values themselves
    bound = span / 510 * 1.001 + np.abs(values).max(axis=(1, 2)) * 2e-6 + 1e-37
    assert (error <= bound[:, None, None]).all()


def test_labels_are_kept_exactly() -> None:
    values = np.stack([np.arange(64, dtype=np.float32).reshape(8, 8), np.full((8, 8), 200, np.float32)])
    quantised = quantise(values, labels=np.array([True, True]))
    assert np.array_equal(dequantise(quantised), values)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantise_refuses_what_is_not_finite(bad: float) -> None:
    values = np.zeros((2, 4, 4), np.float32)
    values[1, 2, 3] = bad
    with pytest.raises(UsageError, match="NaN or infinity"):
        quantise(values)


@pytest.mark.parametrize("shape", [(4, 4), (0, 4, 4), (1, 0, 4)])
def test_quantise_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least one cell"):
        quantise(np.zeros(shape, np.float32))
