from __future__ import annotations

from pathlib import Path

from texcat.catalogue import Catalogue

from .conftest import INTERESTS, Texcat


def phrases(path: Path) -> list[str]:
    with Catalogue.open(path) as catalogue:
        return [interest.phrase for interest in catalogue.interests()]


def test_add_list_and_remove(texcat: Texcat, empty: Path) -> None:
    added = texcat("interest", "add", "My  Dog", "mountain biking", "--weight", "2.5", "-c", empty, "--json")
    assert added.code == 0
    assert added.json == {
        "added": [
            {"id": 1, "phrase": "my dog", "weight": 2.5},
            {"id": 2, "phrase": "mountain biking", "weight": 2.5},
        ]
    }
    listed = texcat("interest", "list", "-c", empty, "--json").json
    assert listed == {"images": 0, "interests": [{**entry, "maps": 0} for entry in added.json["added"]]}
    removed = texcat("interest", "remove", "MY DOG", "my dog", "-c", empty, "--json").json
    assert removed == {"removed": [added.json["added"][0]]}
    assert phrases(empty) == ["mountain biking"]


def test_list_counts_the_maps(texcat: Texcat, indexed: Path) -> None:
    listed = texcat("interest", "list", "-c", indexed, "--json").json
    assert listed["images"] == 3
    assert [(entry["phrase"], entry["maps"]) for entry in listed["interests"]] == [(i, 3) for i in INTERESTS]


def test_people_see_a_table(texcat: Texcat, empty: Path) -> None:
    assert "No interests yet" in texcat("interest", "list", "-c", empty).out
    assert (
        "2 interests added: [b]red[/b], 日本の猫 🐈"
        in texcat("interest", "add", "[b]red[/b]", "日本の猫 🐈", "-c", empty).out
    )
    table = texcat("interest", "list", "-c", empty).out
    assert "[b]red[/b]" in table
    assert "日本の猫 🐈" in table
    assert "1 interest removed: 日本の猫 🐈" in texcat("interest", "remove", "日本の猫 🐈", "-c", empty).out


def test_one_phrase_that_cannot_be_used_leaves_all_out(texcat: Texcat, empty: Path) -> None:
    assert texcat("interest", "add", "cat", "b\x00d", "-c", empty).code == 2
    assert phrases(empty) == []


def test_a_phrase_that_is_not_utf8_is_refused(texcat: Texcat, empty: Path) -> None:
    result = texcat("interest", "add", b"caf\xe9".decode("utf-8", "surrogateescape"), "-c", empty)
    assert result.code == 2
    assert "U+DCE9" in result.err


def test_one_unknown_interest_leaves_all_in(texcat: Texcat, empty: Path) -> None:
    texcat("interest", "add", "cat", "-c", empty)
    result = texcat("interest", "remove", "cat", "dog", "-c", empty)
    assert result.code == 2
    assert "no interest 'dog'" in result.err
    assert phrases(empty) == ["cat"]
