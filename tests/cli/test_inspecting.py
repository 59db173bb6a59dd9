from __future__ import annotations

from pathlib import Path

from texcat.catalogue import Catalogue

from .conftest import INTERESTS, Texcat


def test_stats(texcat: Texcat, indexed: Path) -> None:
    told = texcat("stats", "-c", indexed, "--json").json
    assert set(told) == {
        "catalogue", "encoder", "fingerprint", "groups", "images", "files", "failed", "missing", "questions",
        "bytes", "interests",
    }  # fmt: skip
    assert (told["images"], told["files"], told["failed"], told["missing"], told["questions"]) == (
        3,
        4,
        1,
        0,
        1,
    )
    sizes = told["bytes"]
    assert set(sizes) == {"base", "maps", "shards", "free", "registry", "total", "per_image"}
    assert sizes["maps"] == sum(interest["bytes"] for interest in told["interests"])
    assert 0 < sizes["base"] + sizes["maps"] < sizes["shards"]
    assert sizes["total"] == sizes["shards"] + sizes["registry"]
    assert sizes["per_image"] == sizes["total"] / 3
    assert [(interest["phrase"], interest["maps"]) for interest in told["interests"]] == [
        (i, 3) for i in INTERESTS
    ]
    shown = texcat("stats", "-c", indexed).out
    assert "4 (1 failed, 0 missing)" in shown
    assert told["fingerprint"] in shown


def test_stats_of_an_empty_catalogue(texcat: Texcat, empty: Path) -> None:
    told = texcat("stats", "-c", empty, "--json").json
    assert (told["images"], told["interests"], told["bytes"]["per_image"]) == (0, [], None)
    assert "none until the first image is indexed" in texcat("stats", "-c", empty).out


def test_verify_a_sound_catalogue(texcat: Texcat, indexed: Path) -> None:
    result = texcat("verify", "-c", indexed, "--json")
    assert result.code == 0
    assert result.json == {"images": 3, "problems": []}
    assert "3 images: every record is sound" in texcat("verify", "-c", indexed).out


def test_verify_lists_each_problem_and_fails(texcat: Texcat, indexed: Path) -> None:
    with Catalogue.open(indexed, "w") as catalogue:
        key = next(iter(catalogue.store.keys()))
        catalogue.store.delete([key])
    result = texcat("verify", "-c", indexed, "--json")
    assert result.code == 1
    assert [problem["key"] for problem in result.json["problems"]] == [str(key)]
    assert set(result.json["problems"][0]) == {"where", "reason", "key"}
    shown = texcat("verify", "-c", indexed)
    assert shown.code == 1
    assert "1 problem found" in shown.out
    assert str(key) in shown.out.replace("\n", "")
