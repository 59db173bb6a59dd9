from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from texcat.catalogue.channels import CHANNELS, Source
from texcat.catalogue.errors import UsageError
from texcat.catalogue.grid import (
    enlarge_map,
    gaussian_matrix,
    grid_channels,
    map_matrix,
    resize_matrix,
    resize_plane,
)
from texcat.catalogue.types import GRID
from torch.nn.functional import adaptive_avg_pool2d, interpolate

sizes = st.integers(1, 70)


def random_planes(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_grid_channels_are_those_of_the_schema_and_cannot_be_changed() -> None:
    planes = grid_channels()
    assert list(planes) == [channel.name for channel in CHANNELS if channel.source is Source.GRID]
    for plane in planes.values():
        assert plane.dtype == np.float32
        assert plane.shape == (GRID, GRID)
        with pytest.raises(ValueError, match="read-only"):
            plane[0, 0] = 0


def test_y_points_down_and_x_to_the_right() -> None:
    planes = grid_channels()
    assert planes["y"][0, 5] == 0.5 / 32
    assert planes["y"][31, 5] == 31.5 / 32
    assert planes["x"][5, 0] == 0.5 / 32
    assert planes["x"][5, 31] == 31.5 / 32


def test_eccentricity_is_one_in_the_corners_and_smallest_in_the_middle() -> None:
    eccentricity = grid_channels()["eccentricity"]
    np.testing.assert_allclose(eccentricity[[0, 0, 31, 31], [0, 31, 0, 31]], 1)
    np.testing.assert_allclose(eccentricity[15:17, 15:17], 1 / 31, rtol=1e-6)
    assert eccentricity.min() == eccentricity[15, 15]


@pytest.mark.parametrize(
    ("size", "side"), [((16, 16), 32), ((14, 20), 32), ((8, 8), 33), ((1, 1), 5), ((3, 2), 7)]
)
def test_enlarging_is_bilinear_interpolation(size: tuple[int, int], side: int) -> None:
    planes = random_planes(3, *size)
    expected = interpolate(torch.from_numpy(planes)[None], (side, side), mode="bilinear", align_corners=False)
    np.testing.assert_allclose(resize_plane(planes, side), expected[0].numpy(), atol=2e-6)
    np.testing.assert_allclose(resize_plane(planes[0], side), expected[0, 0].numpy(), atol=2e-6)


@pytest.mark.parametrize(("size", "side"), [((512, 512), 32), ((64, 32), 16), ((32, 32), 32), ((6, 9), 3)])
def test_shrinking_by_whole_numbers_is_average_pooling(size: tuple[int, int], side: int) -> None:
    planes = random_planes(2, *size)
    expected = adaptive_avg_pool2d(torch.from_numpy(planes), (side, side)).numpy()
    np.testing.assert_allclose(resize_plane(planes, side), expected, atol=2e-6)


@given(n_in=sizes, n_out=sizes)
def test_shrinking_is_the_average_over_the_area_of_a_cell(n_in: int, n_out: int) -> None:
    n_in, n_out = max(n_in, n_out), min(n_in, n_out)
    vector = random_planes(n_in)
    # Cut each input cell into n_out parts: an output cell is then n_in whole parts.
    expected = np.repeat(vector, n_out).reshape(n_out, n_in).mean(axis=1)
    np.testing.assert_allclose(resize_matrix(n_in, n_out) @ vector, expected, atol=1e-5)


@given(n_in=sizes, n_out=sizes)
def test_rows_are_averages(n_in: int, n_out: int) -> None:
    matrix = resize_matrix(n_in, n_out)
    assert matrix.dtype == np.float32
    assert matrix.shape == (n_out, n_in)
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(matrix[::-1, ::-1], matrix, atol=1e-6)


@pytest.mark.parametrize("side", [1, 2, 5, 7, 14, 16, 24, 31])
def test_maps_are_enlarged_alike_from_all_sides_and_keep_their_level(side: int) -> None:
    matrix = map_matrix(side)
    assert matrix.dtype == np.float32
    assert matrix.shape == (GRID, side)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(matrix[::-1, ::-1], matrix, atol=1e-5)
    np.testing.assert_allclose(enlarge_map(np.full((2, side, side), 3, np.float32)), 3, atol=1e-5)


@pytest.mark.parametrize("side", [32, 37, 64])
def test_maps_on_a_finer_grid_are_averaged(side: int) -> None:
    assert map_matrix(side) is resize_matrix(side, GRID)


def test_a_smooth_map_is_enlarged_to_what_it_was() -> None:
    smooth = gaussian_matrix(GRID, 2.0)
    exact = smooth @ random_planes(200, GRID, GRID) @ smooth.T
    stored = resize_plane(exact, 16)
    made, linear = enlarge_map(stored), resize_plane(stored, GRID)
    errors = [np.sqrt(np.square(each - exact).mean()) / exact.std() for each in (made, linear)]
    assert errors[0] < 0.02
    assert errors[1] > 5 * errors[0]


def test_beside_a_step_an_enlarged_map_leaves_its_range_by_a_third_at_most() -> None:
    for place in range(1, 16):
        made = map_matrix(16) @ (np.arange(16) >= place).astype(np.float32)
        assert made.min() > -0.35
        assert made.max() < 1.35


def test_matrices_are_cached_and_cannot_be_changed() -> None:
    for make in (lambda: resize_matrix(16, 32), lambda: gaussian_matrix(32, 2.0), lambda: map_matrix(16)):
        assert make() is make()
        with pytest.raises(ValueError, match="read-only"):
            make()[0, 0] = 1


def test_planes_of_other_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[h, w\] or \[C, h, w\], got shape \(4,\)"):
        resize_plane(np.zeros(4, np.float32), 32)
    with pytest.raises(UsageError, match="at least one cell a side, got 0 to resize to 32"):
        resize_plane(np.zeros((4, 0), np.float32), 32)


@given(n=st.integers(1, 64), sigma=st.floats(0.1, 20))
def test_gaussian_rows_sum_to_one(n: int, sigma: float) -> None:
    np.testing.assert_allclose(gaussian_matrix(n, sigma).sum(axis=1), 1, atol=1e-6)


def test_gaussian_equals_scipy_away_from_the_border() -> None:
    plane = random_planes(32, 32)
    smooth = gaussian_matrix(32, 2.0)
    expected = gaussian_filter(plane.astype(np.float64), 2.0, truncate=7)
    inside = slice(14, 18)
    np.testing.assert_allclose(
        (smooth @ plane @ smooth.T)[inside, inside], expected[inside, inside], atol=1e-6
    )


def test_gaussian_holds_no_denormal_numbers() -> None:
    matrix = gaussian_matrix(32, 1.0)
    assert matrix[matrix > 0].min() > np.finfo(np.float32).tiny
