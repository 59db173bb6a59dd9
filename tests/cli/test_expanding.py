from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from .conftest import Texcat, held_open


def test_expand_fills_the_maps_of_a_new_interest(texcat: Texcat, indexed: Path) -> None:
    told = texcat("expand", "red scarf", "  CAT ", "-c", indexed, "--json")
    assert (told.code, told.err) == (0, "")
    assert {name: told.json[name] for name in ("filled", "present", "uncoded", "unavailable", "exact")} == {
        "filled": 3,
        "present": 3,
        "uncoded": 0,
        "unavailable": 0,
        "exact": False,
    }
    assert told.json["skipped"] == []
    assert [interest["phrase"] for interest in told.json["interests"]] == ["red scarf", "cat"]
    counts = texcat("interest", "list", "-c", indexed, "--json").json["interests"]
    assert {interest["phrase"]: interest["maps"] for interest in counts}["red scarf"] == 3
    again = texcat("expand", "red scarf", "-c", indexed)
    assert "0 maps made, 3 there already" in again.out
    assert "Next:" not in again.out
    assert texcat("verify", "-c", indexed).code == 0


def test_what_is_next_is_told(texcat: Texcat, indexed: Path) -> None:
    shown = texcat("expand", "red scarf", "-c", indexed).out
    assert "3 maps made, 0 there already" in shown
    assert 'Next: texcat query IMAGE "red scarf" --out picture.png' in shown


def test_exact_encodes_the_photos_that_are_there(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    texcat("expand", "red scarf", "-c", indexed)
    copy = Path(shutil.copytree(photos, tmp_path / "copy"))
    assert texcat("index", copy, "-c", indexed).code == 0  # each photo has a second file
    moved = photos.rename(photos.with_name("away"))
    (copy / "rocket.jpg").unlink()
    try:
        shown = texcat("expand", "red scarf", "--exact", "-c", indexed)
    finally:
        moved.rename(photos)
    assert "2 maps made, 0 there already" in shown.out
    assert "1 image not encoded again: no file is there as it was indexed" in shown.out


def test_images_without_codes_are_told(texcat: Texcat, indexed: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    Image.new("RGB", (64, 64), (90, 90, 90)).save(new / "grey.png")
    assert texcat("index", new, "--no-codes", "-c", indexed).code == 0
    stats = texcat("stats", "-c", indexed, "--json").json
    assert (stats["images"], stats["codes"]) == (4, 3)
    shown = texcat("expand", "red scarf", "-c", indexed).out
    assert "1 image without a code: texcat index FOLDER makes code and maps" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "give either phrases, or --suggested N"),
        ((" ",), 2, "is empty"),
        (("red scarf", "--rank", "3"), 2, "No such option"),
    ],
)
def test_what_cannot_be_asked(
    texcat: Texcat, indexed: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = texcat("expand", *arguments, "-c", indexed)
    assert result.code == code
    assert message in result.err


def test_a_catalogue_that_is_written_by_another(texcat: Texcat, indexed: Path) -> None:
    with held_open(indexed):
        result = texcat("expand", "red scarf", "-c", indexed)
    assert result.code == 1
    assert "is being written by" in result.err
