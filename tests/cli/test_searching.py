"""``texcat search``: photos of real things, found by words."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from texcat.catalogue import Catalogue
from texcat.retrieval.contact_sheet import OUTLINE

from .conftest import Texcat


def names(document: object) -> list[str]:
    assert isinstance(document, dict)
    return [Path(result["paths"][0]).stem for result in document["results"]]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("cat", "chelsea"),
        ("cup of coffee", "coffee"),
        ("Rocket", "rocket"),
        ("kitten", "chelsea"),
        ("espresso^2 -cat", "coffee"),
    ],
)
def test_photos_are_found(texcat: Texcat, indexed: Path, query: str, best: str) -> None:
    done = texcat("search", query, "-c", indexed, "--json")
    assert (done.code, done.err) == (0, "")
    assert sorted(names(done.json)) == ["chelsea", "coffee", "rocket"]
    assert names(done.json)[0] == best


def test_a_query_may_begin_with_a_minus_sign(texcat: Texcat, indexed: Path) -> None:
    done = texcat("search", "-c", indexed, "--json", "--", "-rocket")
    assert (done.code, names(done.json)[-1]) == (0, "rocket")


def test_the_document(texcat: Texcat, indexed: Path) -> None:
    done = texcat("search", 'cat -"rocket"^0.5', "-c", indexed, "-n", 1, "--json")
    (result,) = done.json.pop("results")
    assert done.json | {"results": None} == {
        "query": 'cat -"rocket"^0.5',
        "terms": [{"phrase": "cat", "weight": 1.0}, {"phrase": "rocket", "weight": -0.5}],
        "tier": "coded",
        "ranked": 3,
        "unranked": 0,
        "results": None,
        "out": None,
    }
    assert sorted(result) == ["contributions", "key", "paths", "region", "score"]
    assert result["score"] == pytest.approx(sum(result["contributions"]))
    assert sorted(result["region"]) == ["bottom", "left", "right", "top"]


def test_the_table(texcat: Texcat, indexed: Path, photos: Path) -> None:
    done = texcat("search", "cat -rocket", "-c", indexed)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[1].split() == ["score", '"cat"', '-"rocket"', "photo"]
    assert lines[3].split()[0] == "1"
    assert lines[3].split()[-1] == str(photos / "chelsea.jpg")
    assert "3 photos ranked, by coded maps" in done.out


def test_the_sheet(texcat: Texcat, indexed: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet"
    done = texcat("search", "cat", "-c", indexed, "--out", sheet)
    assert f"Wrote {sheet}" in done.out
    with Image.open(sheet) as picture:
        assert picture.format == "PNG"
        assert OUTLINE in {colour for _, colour in picture.getcolors(picture.width * picture.height)}


def test_a_sheet_without_the_files(texcat: Texcat, indexed: Path, tmp_path: Path, photos: Path) -> None:
    with Catalogue.open(indexed, "w") as catalogue:
        catalogue.registry.forget_files(bytes(path) for path in photos.iterdir())
    done = texcat("search", "cat", "-c", indexed, "--out", tmp_path / "sheet.png", "--json")
    assert [result["paths"] for result in done.json["results"]] == [[], [], []]
    assert done.json["out"] == str(tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as picture:
        assert OUTLINE not in {colour for _, colour in picture.getcolors(picture.width * picture.height)}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("cat - rocket", "texcat: error: cannot read the query from character 5 on, '- rocket'"),
        ("cat^x", "texcat: error: cannot read the query from character 1 on, 'cat^x'"),
        ("", "texcat: error: the query is empty"),
        ('""', "texcat: error: phrase '' is empty"),
    ],
)
def test_what_cannot_be_read(texcat: Texcat, indexed: Path, query: str, reason: str) -> None:
    done = texcat("search", query, "-c", indexed)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(reason)
    assert len(done.err.splitlines()) == 1


def test_nothing_to_search(texcat: Texcat, empty: Path) -> None:
    done = texcat("search", "cat", "-c", empty)
    assert (done.code, done.out) == (1, "")
    assert "holds no photos to search; `texcat index FOLDER` adds some" in done.err


def test_a_sheet_that_cannot_be_written(texcat: Texcat, indexed: Path) -> None:
    done = texcat("search", "cat", "-c", indexed, "--out", "/nowhere/sheet.png")
    assert done.code == 2
    assert "cannot write '/nowhere/sheet.png'" in done.err
