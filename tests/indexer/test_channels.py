from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import skimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import distance_transform_edt, label, sobel
from skimage.color import rgb2lab
from skimage.segmentation import slic as skimage_slic
from texcat.catalogue.channels import CHANNELS, ChannelSchema, Group, Kind, Source
from texcat.catalogue.derived import derived_planes
from texcat.catalogue.errors import UsageError
from texcat.catalogue.grid import resize_plane
from texcat.catalogue.types import GRID
from texcat.indexer.channels import base_channels, segments, slic
from texcat.indexer.channels.control import Control
from texcat.indexer.channels.edges import Edges
from texcat.indexer.channels.merging import merge
from texcat.indexer.channels.pixels import CELL, REDUCED, WORKING_SIZE, Pixels
from texcat.indexer.channels.saliency import Saliency, by_planes, normalise
from texcat.indexer.channels.segments import LEAST_CELLS, connect, superpixels

from . import numpy_channels

STORED = ChannelSchema(tuple(channel for channel in CHANNELS if channel.source is Source.STORED))
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")
BLACK = np.zeros((WORKING_SIZE, WORKING_SIZE, 3), np.uint8)


def photo(name: str) -> np.ndarray:
    with Image.open(Path(skimage.__file__).parent / "data" / name) as image:
        return np.array(image.convert("RGB").resize((WORKING_SIZE, WORKING_SIZE), Image.Resampling.BICUBIC))


def channels_of(rgb: np.ndarray, features: np.ndarray | None, schema: ChannelSchema) -> np.ndarray:
    """Base channels of one image: float32 [C, 32, 32]."""
    given = None if features is None else torch.from_numpy(features)[None]
    return base_channels(torch.from_numpy(rgb).permute(2, 0, 1)[None], given, schema)[0].numpy()


def planes_of(rgb: np.ndarray, features: np.ndarray | None = None) -> dict[str, np.ndarray]:
    stored = dict(zip(STORED.names, channels_of(rgb, features, STORED), strict=True))
    return {**stored, **derived_planes(stored)}


def cells(values: np.ndarray) -> np.ndarray:
    """Mean of [512, 512, ...] over each cell, one cell after the other."""
    out = np.empty((GRID, GRID, *values.shape[2:]))
    for row, column in np.ndindex(GRID, GRID):
        block = values[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
        out[row, column] = block.mean(axis=(0, 1))
    return out


def assert_within_ranges(planes: np.ndarray) -> None:
    assert planes.dtype == np.float32
    for plane, channel in zip(planes, STORED, strict=True):
        assert plane.min() >= channel.low, channel.name
        assert plane.max() <= channel.high, channel.name
        if channel.kind is Kind.LABEL:
            assert set(np.unique(plane)) == set(range(int(plane.max()) + 1)), channel.name


@st.composite
def images(draw: st.DrawFn) -> np.ndarray:
    """Noise, flat colours, stripes and few-coloured blocks of any size, extreme values among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    block = draw(st.sampled_from([1, 2, 4, 16, 64, 512]))
    colors = rng.integers(0, 256, (draw(st.integers(1, 4)), 3), np.uint8)
    colors[rng.random(colors.shape) < draw(st.sampled_from([0.0, 0.5]))] = draw(st.sampled_from([0, 255]))
    which = rng.integers(
        0, len(colors), (WORKING_SIZE // block, draw(st.sampled_from([1, WORKING_SIZE // block])))
    )
    coarse = np.broadcast_to(colors[which], (WORKING_SIZE // block, WORKING_SIZE // block, 3))
    return coarse.repeat(block, axis=0).repeat(block, axis=1)


# --- the whole --------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(rgb=images())
def test_values_are_in_the_range_of_their_channel(rgb: np.ndarray) -> None:
    assert_within_ranges(channels_of(rgb, None, STORED))


@pytest.mark.parametrize("value", [0, 1, 128, 255])
def test_flat_images_have_no_edges_and_no_saliency(value: int) -> None:
    rgb = np.full_like(BLACK, value)
    assert_within_ranges(channels_of(rgb, None, STORED))
    planes = planes_of(rgb)
    for name in ("edge_x", "edge_y", "edge_magnitude", "color_variance", "object_id", "object_boundary"):
        assert not planes[name].any(), name
    for name in ("saliency_color", "saliency_intensity", "saliency_orientation", "saliency"):
        assert not planes[name].any(), name
    np.testing.assert_allclose(planes["highpass"], 0, atol=1e-6)
    np.testing.assert_allclose(planes["luminance"], value / 255, atol=1e-6)


@pytest.mark.parametrize("name", PHOTOS)
def test_photos_give_the_same_bytes_again_and_values_in_range(name: str) -> None:
    rgb = photo(name)
    features = np.random.default_rng(0).normal(size=(64, 20, 24)).astype(np.float32)
    first = channels_of(rgb, features, STORED)
    assert_within_ranges(first)
    assert first.tobytes() == channels_of(rgb.copy(), features.copy(), STORED).tobytes()


def test_each_channel_alone_equals_itself_among_all_whatever_the_order_asked_for() -> None:
    rgb = photo("coffee.png")
    planes = planes_of(rgb)
    for channel in STORED:
        alone = channels_of(rgb, None, ChannelSchema((channel,)))
        np.testing.assert_array_equal(alone[0], planes[channel.name], err_msg=channel.name)
    backwards = channels_of(rgb, None, ChannelSchema(STORED.channels[::-1]))
    np.testing.assert_array_equal(backwards, np.stack([planes[name] for name in STORED.names]))


def test_only_stored_channels_are_made() -> None:
    rgb = photo("coffee.png")
    assert channels_of(rgb, None, ChannelSchema(CHANNELS)).shape == (len(STORED), GRID, GRID)
    position = tuple(channel for channel in CHANNELS if channel.group is Group.POSITION)
    assert channels_of(rgb, None, ChannelSchema(position)).shape == (0, GRID, GRID)


def test_what_is_not_asked_for_is_not_computed() -> None:
    pixels = Pixels(torch.from_numpy(photo("coffee.png")).permute(2, 0, 1)[None])
    edges, saliency = Edges(pixels), Saliency(pixels)
    assert set(vars(pixels)) == {"_bytes"}
    assert edges.edge_x.any()
    assert set(vars(pixels)) == {"_bytes", "sums"}
    assert saliency.saliency_color.any()
    assert set(vars(pixels)) == {"_bytes", "sums", "reduced"}


@pytest.mark.parametrize(
    ("images", "features", "message"),
    [
        (
            torch.zeros(1, 3, 256, 512),
            None,
            r"images must be uint8 \[B, 3, 512, 512\], got torch.float32 \[1, 3, 2",
        ),
        (torch.zeros(1, 3, 256, 512).byte(), None, r"got torch.uint8 \[1, 3, 256, 512\]"),
        (
            torch.zeros(1, 3, 512, 512).byte(),
            torch.zeros(4, 4, 4),
            r"features must be float32 \[1, dim, gh, gw\]",
        ),
        (
            torch.zeros(1, 3, 512, 512).byte(),
            torch.zeros(1, 4, 4, 4).double(),
            r"got torch.float64 \[1, 4, 4, 4\]",
        ),
        (torch.zeros(1, 3, 512, 512).byte(), torch.zeros(2, 4, 4, 4), r"got torch.float32 \[2, 4, 4, 4\]"),
    ],
)
def test_unusable_inputs_are_refused(
    images: torch.Tensor, features: torch.Tensor | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        base_channels(images, features, STORED)


# --- against the version on NumPy -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def batch() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Photos, and smooth features of them."""
    rng = np.random.default_rng(0)
    coarse = [rng.normal(size=(24, 6, 6)).astype(np.float32) for _ in PHOTOS]
    return [photo(name) for name in PHOTOS], [resize_plane(each, GRID) for each in coarse]


@pytest.fixture(scope="module")
def both(batch: tuple[list[np.ndarray], list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Channels [B, C, 32, 32], made in one batch, and an image at a time on NumPy."""
    photos, features = batch
    images = torch.from_numpy(np.stack(photos)).permute(0, 3, 1, 2)
    made = base_channels(images, torch.from_numpy(np.stack(features)), STORED).numpy()
    inputs = [numpy_channels.ChannelInputs(*each) for each in zip(photos, features, strict=True)]
    return made, np.stack([numpy_channels.base_channels(each, STORED) for each in inputs])


def test_channels_equal_those_of_the_version_on_numpy(both: tuple[np.ndarray, np.ndarray]) -> None:
    segmented = ("cluster_id", "distance_to_boundary", "object_id")
    for channel, made, expected in zip(STORED, *(planes.swapaxes(0, 1) for planes in both), strict=True):
        if channel.name not in segmented:
            tolerance = 1e-6 * (channel.high - channel.low)
            np.testing.assert_allclose(made, expected, rtol=0, atol=tolerance, err_msg=channel.name)


@pytest.mark.parametrize(("name", "least"), [("cluster_id", 0.85), ("object_id", 0.85)])
def test_segments_are_nearly_those_of_the_version_on_numpy(
    both: tuple[np.ndarray, np.ndarray], name: str, least: float
) -> None:
    """So many of the pairs of neighbouring cells are in one segment, or in two, with both."""
    place = STORED.names.index(name)
    for made, expected in zip(*(planes[:, place] for planes in both), strict=True):
        pairs = [(np.diff(made, axis=axis) == 0, np.diff(expected, axis=axis) == 0) for axis in (0, 1)]
        assert np.mean([(one == other).mean() for one, other in pairs]) > least


def test_pixels_that_are_no_numbers_are_of_some_superpixel() -> None:
    assert superpixels(torch.full((1, 3, REDUCED, REDUCED), torch.nan)).max() < 100


def test_colours_by_machine_code_are_those_by_torch(batch: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    """GPUs have torch's, processors the other: here both are made by a processor."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (2, 512, 512, 3), np.uint8)
    faint = 128 + rng.integers(0, 2, (512, 512, 3), np.uint8)
    images = np.stack([*batch[0], *noise, faint, BLACK, np.full_like(BLACK, 200)])
    reduced = Pixels(torch.from_numpy(images).permute(0, 3, 1, 2)).reduced
    made = slic.colours(reduced.numpy(), segments._smoothing_weights(), segments.COMPACTNESS)
    torch.testing.assert_close(torch.from_numpy(made), segments.colours(reduced), rtol=0, atol=2e-5)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1), kinds=st.sampled_from([1, 2, 5, 100]), block=st.sampled_from([1, 2, 4])
)
def test_the_majority_by_machine_code_is_that_by_torch(seed: int, kinds: int, block: int) -> None:
    labels = np.random.default_rng(seed).integers(0, kinds, (2, 8 * block, 8 * block))
    made = slic.majority(labels, block, 100)
    np.testing.assert_array_equal(made, segments.majority(torch.from_numpy(labels), block))
    for image, row, column in np.ndindex(2, 8, 8):
        cell = labels[image, row * block : (row + 1) * block, column * block : (column + 1) * block]
        assert made[image, row, column] == np.bincount(cell.ravel()).argmax()


def test_superpixels_are_nearly_those_of_scikit_image(
    batch: tuple[list[np.ndarray], list[np.ndarray]],
) -> None:
    images = Pixels(torch.from_numpy(np.stack(batch[0])).permute(0, 3, 1, 2)).reduced
    for image, made in zip(images, superpixels(images), strict=True):
        expected = skimage_slic(
            image.permute(1, 2, 0).numpy(),
            n_segments=100,
            compactness=20,
            max_num_iter=10,
            sigma=0.7,
            start_label=0,
            enforce_connectivity=False,
            channel_axis=-1,
        )
        assert (made.numpy() == expected).mean() > 0.9


def test_an_image_gets_the_same_planes_whatever_it_is_batched_with(
    both: tuple[np.ndarray, np.ndarray], batch: tuple[list[np.ndarray], list[np.ndarray]]
) -> None:
    for made, rgb, features in zip(both[0], *batch, strict=True):
        np.testing.assert_array_equal(channels_of(rgb, features, STORED), made)


# --- appearance and edges ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", PHOTOS)
def test_appearance_equals_a_straightforward_computation(name: str) -> None:
    rgb = photo(name)
    planes = planes_of(rgb)
    mean = cells(rgb / 255)
    lab = rgb2lab(mean)
    np.testing.assert_allclose(planes["red"], mean[..., 0], atol=1e-6)
    np.testing.assert_allclose(planes["green"], mean[..., 1], atol=1e-6)
    np.testing.assert_allclose(planes["blue"], mean[..., 2], atol=1e-6)
    np.testing.assert_allclose(planes["luminance"], mean @ (0.299, 0.587, 0.114), atol=1e-6)
    np.testing.assert_allclose(planes["lightness"], lab[..., 0], atol=1e-3)
    np.testing.assert_allclose(planes["green_red"], lab[..., 1], atol=1e-3)


@pytest.mark.parametrize("name", PHOTOS)
def test_edges_equal_the_sobel_filter_of_scipy(name: str) -> None:
    rgb = photo(name)
    planes = planes_of(rgb)
    luminance = rgb / 255 @ (0.299, 0.587, 0.114)
    x = sobel(luminance, axis=1, mode="nearest") / 4
    y = sobel(luminance, axis=0, mode="nearest") / 4
    magnitude = cells(np.hypot(x, y) / np.sqrt(2))
    np.testing.assert_allclose(planes["edge_x"], cells(x), atol=1e-6)
    np.testing.assert_allclose(planes["edge_y"], cells(y), atol=1e-6)
    np.testing.assert_allclose(planes["edge_magnitude"], magnitude, atol=1e-6)
    np.testing.assert_allclose(planes["edge_inverted"], 1 - magnitude, atol=1e-6)
    np.testing.assert_allclose(planes["lowpass"] + planes["highpass"], planes["luminance"], atol=1e-6)


def test_a_step_to_light_is_positive_to_the_right_and_downwards() -> None:
    rgb = BLACK.copy()
    rgb[:, 264:] = 255
    planes = planes_of(rgb)
    column = 264 // CELL
    # The two pixels beside the step measure 1, the other fourteen of the cell's row nothing.
    np.testing.assert_allclose(planes["edge_x"][:, column], 2 / CELL, atol=1e-6)
    np.testing.assert_allclose(planes["edge_magnitude"][:, column], 2 / CELL / np.sqrt(2), atol=1e-6)
    assert not np.delete(planes["edge_x"], column, axis=1).any()
    assert not planes["edge_y"].any()
    down = planes_of(np.ascontiguousarray(rgb.swapaxes(0, 1)))
    np.testing.assert_allclose(down["edge_y"], planes["edge_x"].T, atol=1e-7)
    darker = planes_of(255 - rgb)
    np.testing.assert_allclose(darker["edge_x"], -planes["edge_x"], atol=1e-6)


def test_lowpass_keeps_what_is_wide_and_highpass_what_is_narrow() -> None:
    rgb = BLACK.copy()
    rgb[:, ::32] = rgb[:, 1::32] = 255
    planes = planes_of(rgb.reshape(WORKING_SIZE, WORKING_SIZE, 3))
    # Stripes of every second cell vanish in the lowpass.
    inside = (slice(8, 24), slice(8, 24))
    assert np.ptp(planes["lowpass"][inside]) < 0.001
    np.testing.assert_allclose(np.abs(planes["highpass"][inside]), 1 / 16, atol=0.001)


# --- saliency ---------------------------------------------------------------------------------------


def upright_bars(color: tuple[int, int, int]) -> np.ndarray:
    """An 8 x 8 array of upright bars, 40 x 12 pixels, on grey."""
    rgb = np.full_like(BLACK, 110)
    for row, column in np.ndindex(8, 8):
        rgb[bar(row, column, height=20, width=6)] = color
    return rgb


def bar(row: int, column: int, height: int, width: int) -> tuple[slice, slice]:
    y, x = 32 + 64 * row, 32 + 64 * column
    return slice(y - height, y + height), slice(x - width, x + width)


def distance_to(y: float, x: float, plane: np.ndarray) -> float:
    """Cells from the peak of a plane to the point (y, x), in pixels."""
    row, column = np.unravel_index(plane.argmax(), plane.shape)
    return float(np.hypot(row + 0.5 - y / CELL, column + 0.5 - x / CELL))


@pytest.mark.parametrize(("row", "column"), [(2, 2), (3, 5), (5, 4)])
def test_the_odd_color_pops_out(row: int, column: int) -> None:
    # Green, red and grey of one intensity: only hue tells them apart.
    rgb = upright_bars((40, 200, 90))
    rgb[bar(row, column, height=20, width=6)] = (200, 40, 90)
    planes = planes_of(rgb)
    assert distance_to(32 + 64 * row, 32 + 64 * column, planes["saliency_color"]) < 2
    assert distance_to(32 + 64 * row, 32 + 64 * column, planes["saliency"]) < 2
    assert not planes["saliency_intensity"].any()


@pytest.mark.parametrize(("row", "column"), [(2, 2), (3, 5), (5, 4)])
def test_the_odd_orientation_pops_out(row: int, column: int) -> None:
    rgb = upright_bars((230, 230, 230))
    rgb[bar(row, column, height=20, width=6)] = 110
    rgb[bar(row, column, height=6, width=20)] = 230
    planes = planes_of(rgb)
    assert distance_to(32 + 64 * row, 32 + 64 * column, planes["saliency_orientation"]) < 2
    assert distance_to(32 + 64 * row, 32 + 64 * column, planes["saliency"]) < 2


def test_a_bright_spot_pops_out_in_intensity_and_not_in_color() -> None:
    rgb = np.full_like(BLACK, 60)
    rgb[144:176, 336:368] = 250
    planes = planes_of(rgb)
    assert distance_to(160, 352, planes["saliency_intensity"]) < 2
    assert not planes["saliency_color"].any()


def test_saliency_is_the_mean_of_the_three() -> None:
    planes = planes_of(photo("astronaut.png"))
    three = planes["saliency_color"] + planes["saliency_intensity"] + planes["saliency_orientation"]
    np.testing.assert_allclose(planes["saliency"], three / 3, atol=1e-6)


def test_saliency_does_not_prefer_a_side() -> None:
    rgb = photo("chelsea.png")
    planes = planes_of(rgb)
    mirrored = planes_of(np.ascontiguousarray(rgb[:, ::-1]))
    turned = planes_of(np.ascontiguousarray(rgb.swapaxes(0, 1)))
    for name in ("saliency_color", "saliency_intensity", "saliency_orientation"):
        np.testing.assert_allclose(mirrored[name][:, ::-1], planes[name], atol=1e-4)
        np.testing.assert_allclose(turned[name].T, planes[name], atol=1e-4)


def test_saliency_by_machine_code_is_that_by_torch(
    both: tuple[np.ndarray, np.ndarray], batch: tuple[list[np.ndarray], list[np.ndarray]]
) -> None:
    """GPUs have torch's, processors the other: here both are made by a processor."""
    noise = np.random.default_rng(0).integers(0, 256, (2, 512, 512, 3), np.uint8)
    images = np.stack([*batch[0], *noise, BLACK, np.full_like(BLACK, 200)])
    pixels = Pixels(torch.from_numpy(images).permute(0, 3, 1, 2))
    made, saliency = by_planes(pixels.reduced), Saliency(pixels)
    names = ("saliency_intensity", "saliency_color", "saliency_orientation")
    for place, name in enumerate(names):
        torch.testing.assert_close(getattr(saliency, name), made[:, place], rtol=0, atol=1e-5)
        expected = both[1][:, STORED.names.index(name)]
        np.testing.assert_allclose(made[: len(PHOTOS), place], expected, rtol=0, atol=1e-6, err_msg=name)


def test_normalise_promotes_one_peak_and_demotes_many() -> None:
    one = torch.zeros(GRID, GRID)
    one[7, 9] = 0.4
    assert normalise(one)[7, 9] == 1
    two = one.clone()
    two[20, 20] = 0.1
    # The other maximum is a quarter of the first: (1 - 1/4)^2.
    assert float(normalise(two)[7, 9]) == pytest.approx(0.75**2)
    equal = one.clone()
    equal[20, 20] = 0.4
    assert float(normalise(equal).max()) == pytest.approx(0, abs=1e-6)
    assert torch.equal(normalise(torch.stack((one, two))), torch.stack((normalise(one), normalise(two))))


def test_normalise_does_not_blow_up_less_than_a_grey_level() -> None:
    faint = torch.zeros(GRID, GRID)
    faint[7, 9] = 0.1 / 255
    assert float(normalise(faint).max()) == pytest.approx(0.1)


# --- clusters and objects ---------------------------------------------------------------------------


def test_halves_of_different_colors_are_never_one_cluster() -> None:
    rgb = BLACK.copy()
    rgb[:, :256], rgb[:, 256:] = (200, 30, 30), (30, 30, 200)
    labels = planes_of(rgb)["cluster_id"]
    assert not set(labels[:, :16].ravel()) & set(labels[:, 16:].ravel())


@pytest.mark.parametrize("strength", [1, 255])
def test_noise_does_not_join_all_clusters_into_one(strength: int) -> None:
    rgb = np.random.default_rng(0).integers(0, strength + 1, BLACK.shape).astype(np.uint8)
    assert 50 < planes_of(rgb)["cluster_id"].max() <= 255


@pytest.mark.parametrize("name", PHOTOS)
def test_distance_to_boundary_equals_a_transform_of_each_cluster(name: str) -> None:
    planes = planes_of(photo(name))
    expected = np.zeros((GRID, GRID))
    for cluster in np.unique(planes["cluster_id"]):
        inside = planes["cluster_id"] == cluster
        expected[inside] = distance_transform_edt(inside)[inside] / GRID
    np.testing.assert_allclose(planes["distance_to_boundary"], expected, atol=1e-6)


def test_color_variance_is_one_for_black_and_white_and_matches_numpy() -> None:
    checks = BLACK.copy()
    checks[::2, ::2] = checks[1::2, 1::2] = 255
    np.testing.assert_allclose(planes_of(checks)["color_variance"], 1, atol=1e-6)
    rgb = photo("coffee.png")
    unit = rgb / 255
    expected = 4 * (cells(unit**2) - cells(unit) ** 2).mean(axis=-1)
    np.testing.assert_allclose(planes_of(rgb)["color_variance"], expected, atol=1e-6)


@pytest.mark.parametrize("features", [None, "blocks"])
@pytest.mark.parametrize("name", PHOTOS)
def test_objects_are_connected_unions_of_clusters(name: str, features: str | None) -> None:
    blocks = np.random.default_rng(1).normal(size=(16, 4, 4)).astype(np.float32)
    planes = planes_of(photo(name), None if features is None else blocks)
    clusters, objects = planes["cluster_id"].astype(int), planes["object_id"].astype(int)
    assert len(set(zip(clusters.ravel(), objects.ravel(), strict=True))) == clusters.max() + 1
    assert objects.max() < clusters.max()
    borders = np.zeros((GRID, GRID), bool)
    padded = np.pad(objects, 1, mode="edge")
    for shift in ((0, 1), (2, 1), (1, 0), (1, 2)):
        borders |= padded[shift[0] : shift[0] + GRID, shift[1] : shift[1] + GRID] != objects
    np.testing.assert_array_equal(planes["object_boundary"], borders)


def test_objects_follow_features_and_without_them_colors() -> None:
    rgb = BLACK.copy()
    rgb[:256], rgb[256:] = (200, 30, 30), (30, 30, 200)
    by_color = planes_of(rgb)["object_id"]
    np.testing.assert_array_equal(by_color, np.arange(GRID)[:, None].repeat(GRID, axis=1) // 16)
    # Features that tell left from right, on a grid of their own; top and bottom do not differ.
    features = np.zeros((3, 20, 20), np.float32)
    features[0], features[1, :, :10], features[2, :, 10:] = 5, 1, 1
    by_features = planes_of(rgb, features)["object_id"]
    assert set(by_features[:, :8].ravel()) == {0}
    assert set(by_features[:, 24:].ravel()) == {1}


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_features_that_are_the_same_everywhere_make_one_object(value: float) -> None:
    features = np.full((96, 32, 32), value, np.float32)
    assert not planes_of(photo("coffee.png"), features)["object_id"].any()


@pytest.mark.parametrize("scale", [1e-14, 1e14])
def test_objects_do_not_hang_on_the_scale_of_features(scale: float) -> None:
    features = np.random.default_rng(0).normal(size=(8, 32, 32)).astype(np.float32)
    features[:, :, :16] += 3
    made = planes_of(photo("coffee.png"), features)["object_id"]
    scaled = planes_of(photo("coffee.png"), features * np.float32(scale))["object_id"]
    assert made.any()
    np.testing.assert_array_equal(scaled, made)


def test_features_on_a_finer_grid_are_averaged() -> None:
    rgb = photo("coffee.png")
    features = np.random.default_rng(0).normal(size=(8, 64, 64)).astype(np.float32)
    mean = features.reshape(8, 32, 2, 32, 2).mean(axis=(2, 4))
    np.testing.assert_array_equal(planes_of(rgb, features)["object_id"], planes_of(rgb, mean)["object_id"])


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), kinds=st.integers(1, 40), block=st.sampled_from([1, 2, 8]))
def test_what_is_connected_hangs_together_and_is_numbered_in_order(seed: int, kinds: int, block: int) -> None:
    coarse = np.random.default_rng(seed).integers(0, kinds, (GRID // block, GRID // block))
    labels = coarse.repeat(block, axis=0).repeat(block, axis=1)
    (made,) = connect(torch.from_numpy(labels)[None], Control()).numpy()
    first_seen = list(dict.fromkeys(made.ravel().tolist()))
    assert first_seen == list(range(len(first_seen)))
    for number in first_seen:
        assert label(made == number)[1] == 1
    for number in first_seen[1:]:
        assert (made == number).sum() >= LEAST_CELLS
    for kind in range(kinds):  # a part that is large enough stays whole
        parts, count = label(labels == kind)
        for part in range(1, count + 1):
            if (parts == part).sum() >= LEAST_CELLS:
                assert len(set(made[parts == part].tolist())) == 1


def merge_by_means(
    means: np.ndarray, sizes: np.ndarray, adjacent: np.ndarray, limit: float
) -> set[frozenset[int]]:
    """What `merge` does, with sets of segments and their means in full."""
    groups = [frozenset({index}) for index in range(len(means))]

    def gap(a: frozenset[int], b: frozenset[int]) -> float:
        if a == b or not any(adjacent[i, j] for i in a for j in b):
            return np.inf
        mean_a, mean_b = (np.average(means[list(g)], axis=0, weights=sizes[list(g)]) for g in (a, b))
        return float(np.linalg.norm(mean_a - mean_b))

    while True:
        closest = {a: min(groups, key=lambda b, a=a: gap(a, b)) for a in groups}
        pairs = {frozenset({a, b}) for a, b in closest.items() if closest[b] == a and gap(a, b) < limit}
        if not pairs:
            return set(groups)
        merged = {a for pair in pairs for a in pair}
        groups = [group for group in groups if group not in merged]
        groups += [frozenset().union(*pair) for pair in pairs]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 9), limit=st.floats(0.1, 3))
def test_merging_by_inner_products_equals_merging_by_means(seed: int, count: int, limit: float) -> None:
    rng = np.random.default_rng(seed)
    means, sizes = rng.normal(size=(count, 3)).astype(np.float32), rng.integers(1, 20, count).astype(float)
    adjacent = np.triu(rng.random((count, count)) < 0.4, 1)
    adjacent |= adjacent.T

    inner = (means @ means.T)[None]
    root = merge(inner, sizes.astype(np.float32)[None], adjacent[None], limit, by_angle=False)[0]
    groups = {frozenset(np.flatnonzero(root == index).tolist()) for index in set(root.tolist())}
    assert groups == merge_by_means(means, sizes, adjacent, limit)
    assert all(min(group) == root[min(group)] for group in groups)
