"""Contact sheets: a place for each photo, a line around the region, and a reason where there is no photo."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from texcat.catalogue import ImageKey
from texcat.catalogue.errors import ImageReadError, RecordMissingError, UsageError
from texcat.catalogue.types import Box
from texcat.retrieval import Tier
from texcat.retrieval.contact_sheet import MAX_PHOTOS, OUTLINE, PANEL, draw_sheet, outlined
from texcat.retrieval.query import Term
from texcat.retrieval.search import Found, Result

GREY = (90, 90, 90)
MIDDLE = Box(0.25, 0.25, 0.75, 0.75)


def found(count: int, region: Box | None = MIDDLE, path: str = "/photos/a.jpg") -> Found:
    results = tuple(
        Result(ImageKey.of(bytes([number % 256, number // 256])), (path,), 1.5, (1.5,), region)
        for number in range(count)
    )
    return Found((Term("dog"),), results, Tier.CODED, 1000, 0)


def grey(key: ImageKey) -> Image.Image:
    return Image.new("RGB", (300, 200), GREY)


def pixels_of(picture: Image.Image, colour: tuple[int, int, int]) -> int:
    return int((np.asarray(picture) == colour).all(-1).sum())


def test_every_photo_has_a_place_with_its_region() -> None:
    one = pixels_of(draw_sheet(found(1), "dog", grey), OUTLINE)
    assert one > 2 * (PANEL[0] / 2 + PANEL[1] / 2)
    for count in (2, 5, 9):
        sheet = draw_sheet(found(count), "dog", grey)
        assert pixels_of(sheet, OUTLINE) == count * one
        assert pixels_of(sheet, GREY) > 0.5 * count * PANEL[0] * PANEL[1]


def test_a_photo_without_a_region_is_shown_as_it_is() -> None:
    assert pixels_of(draw_sheet(found(3, region=None), "dog", grey), OUTLINE) == 0


def test_sheets_grow_row_by_row() -> None:
    sizes = [draw_sheet(found(count), "dog", grey).size for count in (1, 4, 5, 8, 9)]
    assert [later[1] > earlier[1] for earlier, later in pairwise(sizes)] == [False, True, False, True]
    assert sizes[1][0] == sizes[-1][0]


@pytest.mark.parametrize(
    "error", [RecordMissingError("00"), ImageReadError("/photos/a.jpg", "it is not an image")]
)
def test_a_photo_that_is_gone_leaves_its_place(error: Exception) -> None:
    def load(key: ImageKey) -> Image.Image:
        if key == answer.results[0].key:
            raise error
        return grey(key)

    answer = found(2)
    sheet, whole = draw_sheet(answer, "dog", load), draw_sheet(answer, "dog", grey)
    assert sheet.size == whole.size
    assert pixels_of(sheet, OUTLINE) == pixels_of(whole, OUTLINE) // 2


def test_a_photo_of_no_known_file_is_named_by_its_key() -> None:
    known = found(1)
    unknown = replace(known, results=(replace(known.results[0], paths=()),))
    drawn = draw_sheet(unknown, "dog", grey)
    named = replace(known, results=(replace(known.results[0], paths=(str(known.results[0].key),)),))
    assert drawn.tobytes() == draw_sheet(named, "dog", grey).tobytes()


edges = st.lists(st.integers(0, 16), min_size=2, max_size=2, unique=True).map(sorted)


@given(width=st.integers(1, 90), height=st.integers(1, 90), across=edges, down=edges)
def test_a_line_is_drawn_inside_its_box_alone(
    width: int, height: int, across: list[int], down: list[int]
) -> None:
    box = Box(across[0] / 16, down[0] / 16, across[1] / 16, down[1] / 16)
    photo = Image.new("RGB", (width, height), GREY)
    changed = (np.asarray(outlined(photo, box)) != GREY).any(-1)
    inside = np.zeros((height, width), bool)
    inside[
        round(box.top * height) : round(box.bottom * height),
        round(box.left * width) : round(box.right * width),
    ] = 1
    assert not (changed & ~inside).any()
    edge = inside & ~np.pad(inside, 1)[2:, 1:-1]  # the lowest row of the box
    assert (changed >= edge).all()


@pytest.mark.parametrize("path", ["/" + "long/" * 2000 + "a.jpg", "/日本の猫\udce9\n.jpg", "x" * 10_000])
def test_any_path_and_title_can_be_drawn(path: str) -> None:
    assert draw_sheet(found(1, path=path), path, grey).width == draw_sheet(found(1), "dog", grey).width


def test_the_end_of_a_long_path_is_shown() -> None:
    long = "/" + "deep/" * 100
    one, other = (draw_sheet(found(1, path=f"{long}{name}"), "dog", grey) for name in ("a.jpg", "b.jpg"))
    assert one.tobytes() != other.tobytes()


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1)])
def test_photos_of_any_shape(size: tuple[int, int]) -> None:
    drawn = draw_sheet(found(1), "dog", lambda key: Image.new("L", size, 90))
    assert drawn.size == draw_sheet(found(1), "dog", grey).size


def test_a_sheet_has_an_end() -> None:
    with pytest.raises(UsageError, match=f"at most {MAX_PHOTOS} photos, got {MAX_PHOTOS + 1}"):
        draw_sheet(found(MAX_PHOTOS + 1), "dog", grey)
