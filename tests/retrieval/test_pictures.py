from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from texcat.catalogue import ImageKey, Interest, UsageError
from texcat.catalogue.distribution import Distribution
from texcat.retrieval import Allocation, Lookup, Match, Matches, Tier, Timings, TopKAllocator
from texcat.retrieval.pictures import (
    INFERNO,
    PANEL_HEIGHT,
    captioned_overlay,
    heat,
    kept_tokens,
    overlay,
    overview,
    panels,
)

RAMP = np.tile(np.linspace(0, 1, 32, dtype=np.float32), (32, 1))
"""Grows from left to right."""

PEAK = np.zeros((32, 32), np.float32)
PEAK[4:8, 24:28] = 1
"""High in one place: right of the middle, near the top."""


def lightness(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("L"), np.float64)


def photo(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(60, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def hit(plane: np.ndarray = PEAK, distribution: Distribution | None = None) -> Lookup:
    return Lookup(
        key=ImageKey(bytes(16)),
        textures=plane[None],
        channels=("similarity",),
        matches=Matches([Match(Interest(1, "a red bike"), 0.8, 1.0, distribution)]),
        tier=Tier.STORED,
        confidence=0.9,
        own_share=0.0,
        saved=False,
        relevance=plane,
        timings=Timings(0.0, 0.0, 0.0),
    )


def allocation(plane: np.ndarray = PEAK, budget: int = 16) -> Allocation:
    return TopKAllocator().allocate(plane, budget)


def test_the_colours_of_heat_grow_lighter_with_the_value() -> None:
    column = lightness(heat(RAMP, (640, 4)))[0]
    assert all(later > earlier for earlier, later in pairwise(column[10::20]))
    assert (column[0], column[-1]) == (0, 244)


def test_heat_starts_and_ends_with_the_ends_of_the_map() -> None:
    picture = heat(RAMP, (64, 32))
    assert picture.getpixel((0, 0)) == INFERNO[0]
    assert picture.getpixel((63, 0)) == INFERNO[-1]


def test_heat_keeps_rows_and_columns() -> None:
    light = lightness(heat(PEAK, (320, 160)))
    row, column = np.unravel_index(light.argmax(), light.shape)
    assert 20 <= row < 40
    assert 240 <= column < 280


@pytest.mark.parametrize("value", [0.0, -3.0, 1e30])
def test_a_constant_plane_is_dark(value: float) -> None:
    picture = heat(np.full((32, 32), value, np.float32), (8, 8))
    assert picture.getcolors() == [(64, INFERNO[0])]


@pytest.mark.parametrize("plane", [np.zeros(4, np.float32), np.full((2, 2), np.nan, np.float32)])
def test_what_is_no_plane_is_refused(plane: np.ndarray) -> None:
    with pytest.raises(UsageError, match="a plane is"):
        heat(plane, (8, 8))


def test_an_overlay_shows_the_photo_where_the_plane_is_low_and_heat_where_it_is_high() -> None:
    grey = Image.new("RGB", (320, 320), (128, 128, 128))
    pixels = np.asarray(overlay(grey, PEAK), np.float64)
    low, high = pixels[300, 20], pixels[60, 260]
    assert np.ptp(low) < 10  # still grey
    assert high[0] > high[2] + 60  # yellow


@given(
    width=st.integers(1, 80), height=st.integers(1, 80), budget=st.integers(1, 1024), seed=st.integers(0, 99)
)
def test_a_pixel_is_kept_as_it_is_exactly_where_its_cell_is_kept(
    width: int, height: int, budget: int, seed: int
) -> None:
    original = photo(width, height)
    chosen = allocation(np.random.default_rng(seed).random((32, 32), np.float32), budget)
    drawn = np.asarray(kept_tokens(original, chosen))
    kept = {(int(row), int(column)) for row, column in chosen.positions}
    for y in range(height):
        for x in range(width):
            cell = ((2 * y + 1) * 32 // (2 * height), (2 * x + 1) * 32 // (2 * width))
            before, after = original.getpixel((x, y)), tuple(drawn[y, x])
            if cell in kept:
                assert after == before
            else:
                assert len(set(after)) == 1
                assert max(after) <= 0.31 * 255


def test_all_kept_is_the_photo() -> None:
    original = photo(50, 30)
    assert kept_tokens(original, allocation(RAMP, 1024)).tobytes() == original.tobytes()


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (640, 427), (300, 900)])
def test_pictures_have_one_height_whatever_the_photo(size: tuple[int, int]) -> None:
    original = photo(*size)
    three = panels(original, hit(), allocation())
    assert len({panel.size for panel in three}) == 1
    assert three[0].height <= PANEL_HEIGHT
    wide = captioned_overlay(original, hit(), "Where is the bike?")
    usual = captioned_overlay(photo(640, 427), hit(), "Where is the bike?")
    assert wide.height == usual.height
    assert wide.width <= 2000


def test_photos_of_other_modes_can_be_drawn() -> None:
    grey = Image.new("L", (64, 64), 100)
    assert captioned_overlay(grey, hit(), "?").mode == "RGB"


@pytest.mark.parametrize("caption", ["", "日本の猫 🐈", "a\nb\x00\udce9", "long " * 20_000, "x" * 100_000])
def test_any_caption_can_be_drawn(caption: str) -> None:
    drawn = captioned_overlay(photo(64, 64), hit(), caption)
    short = captioned_overlay(photo(64, 64), hit(), "short")
    assert drawn.width == short.width
    assert drawn.height <= short.height + 4 * 30  # of five lines at most


def test_an_overview_holds_every_panel() -> None:
    colours = [[(250, 0, 0), (0, 250, 0)], [(0, 0, 250), (250, 250, 0)]]
    columns = [("one", [Image.new("RGB", (60, 40), c) for c in colours[0]])]
    columns += [("two", [Image.new("RGB", (40, 60), c) for c in colours[1]])]
    sheet = overview(columns, 500)
    assert sheet.width == 500
    pixels = np.asarray(sheet).reshape(-1, 3)
    for colour in (colour for column in colours for colour in column):
        assert (pixels == colour).all(axis=1).sum() > 1000


def test_a_calibrated_similarity_is_drawn_on_one_scale_for_all_images() -> None:
    """A photo without the interest stays dark, where its own range would give it a bright peak."""
    known = Distribution.of(RAMP[None], 1)
    drawn = [
        captioned_overlay(Image.new("RGB", (320, 160), "grey"), hit(scale * PEAK, known), "bike")
        for scale in (0.6, np.float32(50))
    ]
    # Bright colours of the scale are yellow; the photo, the paper and the dark end are not.
    faint, strong = (np.asarray(each, np.float64)[..., [0, 2]] @ (1, -1) for each in drawn)
    assert faint.max() < 60
    assert strong.max() > 120
