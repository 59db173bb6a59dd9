from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from texcat.catalogue.derived import interest_edges, interest_saliency, presence
from texcat.catalogue.types import GRID

SHAPE = (GRID, GRID)
ONES = np.ones(SHAPE, np.float32)

finite_maps = arrays(np.float32, SHAPE, elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
unit_maps = arrays(np.float32, SHAPE, elements=st.floats(0, 1, width=32))


def blob(row: int, column: int, sigma: float = 2.0) -> np.ndarray:
    i = np.arange(GRID)
    squares = (i[:, None] - row) ** 2 + (i - column) ** 2
    return np.exp(-squares / (2 * sigma**2)).astype(np.float32)


@given(similarity=finite_maps, edges=unit_maps)
def test_every_finite_map_gives_values_from_zero_to_one(similarity: np.ndarray, edges: np.ndarray) -> None:
    present = presence(similarity, calibrated=False)
    for plane in (interest_edges(present, edges), interest_saliency(present)):
        assert plane.dtype == np.float32
        assert plane.shape == SHAPE
        assert (plane >= 0).all()
        assert (plane <= 1).all()


@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_constant_maps_give_zeros(value: float) -> None:
    assert not presence(np.full(SHAPE, value, np.float32), calibrated=False).any()


def test_rounding_of_a_constant_map_is_not_blown_up() -> None:
    nearly = np.full(SHAPE, 0.3, np.float32)
    nearly[::3, ::2] = np.nextafter(np.float32(0.3), np.float32(1))
    assert not presence(nearly, calibrated=False).any()


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1.0, 1e30])
def test_a_single_high_cell_stands_out_at_any_scale(scale: float) -> None:
    similarity = np.zeros(SHAPE, np.float32)
    similarity[9, 21] = scale
    present = presence(similarity, calibrated=False)
    assert np.unravel_index(interest_saliency(present).argmax(), SHAPE) == (9, 21)
    assert interest_edges(present, ONES)[9, 21] == 1


@given(gain=st.floats(0.01, 1000), offset=st.floats(-10, 10))
def test_scale_and_offset_of_the_encoder_do_not_matter(gain: float, offset: float) -> None:
    similarity = blob(9, 21) + blob(20, 5, 4)
    # float32 keeps about 1e-7 of the offset, which the gain makes larger or smaller.
    rounding = 1e-5 + 2e-6 * abs(offset) / gain
    moved = (gain * similarity.astype(np.float64) + offset).astype(np.float32)
    np.testing.assert_allclose(presence(moved, False), presence(similarity, False), atol=rounding)


def test_a_strength_is_half_present_at_five_whatever_else_is_in_the_image() -> None:
    strength = np.array([[0, 1, 5, 15, np.float32(1e30)]], np.float32)
    np.testing.assert_allclose(presence(strength, calibrated=True), [[0, 1 / 6, 1 / 2, 3 / 4, 1]])
    np.testing.assert_allclose(presence(strength[:, :2], calibrated=True), [[0, 1 / 6]])


def test_saliency_is_the_difference_of_two_gaussians() -> None:
    plane = interest_saliency(blob(16, 16))
    assert np.unravel_index(plane.argmax(), SHAPE) == (16, 16)
    # A Gaussian of sigma s smoothed by one of sigma t peaks at s^2 / (s^2 + t^2): 4/5 - 4/40 in the open.
    assert plane.max() == pytest.approx(4 / 5 - 4 / 40, abs=0.01)
    assert plane[16, 26] == 0


def test_edges_are_kept_where_the_similarity_is_high_and_where_it_changes() -> None:
    step = np.zeros(SHAPE, np.float32)
    step[:, 16:] = 1.0
    half = np.full(SHAPE, 0.5, np.float32)
    plane = interest_edges(step, half)
    np.testing.assert_allclose(plane[:, :15], 0)
    # Beside the step, the gradient is 1 along one axis: a magnitude of 1 / sqrt(2).
    np.testing.assert_allclose(plane[:, 15], 0.5 / np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(plane[:, 16:], 0.5)
    np.testing.assert_allclose(interest_edges(step.T, half), plane.T)


def test_no_edges_no_interest_edges() -> None:
    assert not interest_edges(blob(9, 21), np.zeros(SHAPE, np.float32)).any()


def test_gradient_is_that_of_numpy() -> None:
    similarity = blob(3, 28, 5)
    rows, columns = np.gradient(np.pad(similarity.astype(np.float64), 1, mode="edge"))
    change = np.hypot(2 * rows, 2 * columns)[1:-1, 1:-1] / np.sqrt(2)
    expected = similarity + change - similarity * change
    np.testing.assert_allclose(interest_edges(similarity, ONES), expected, atol=1e-6)
