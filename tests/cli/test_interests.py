from __future__ import annotations

from pathlib import Path

import pytest
from texcat.catalogue import Catalogue, ImageKey

from .conftest import INTERESTS, Texcat


def phrases(path: Path) -> list[str]:
    with Catalogue.open(path) as catalogue:
        return [interest.phrase for interest in catalogue.interests()]


def test_add_list_and_remove(texcat: Texcat, empty: Path) -> None:
    added = texcat("interest", "add", "My  Dog", "mountain biking", "--weight", "2.5", "-c", empty, "--json")
    assert added.code == 0
    plain = {"exemplars": [], "with_words": False, "pinned": False, "archived": None}
    assert added.json == {
        "added": [
            {"id": 1, "phrase": "my dog", "weight": 2.5, **plain},
            {"id": 2, "phrase": "mountain biking", "weight": 2.5, **plain},
        ]
    }
    listed = texcat("interest", "list", "-c", empty, "--json").json
    unused = {"maps": 0, "effective_weight": 2.5, "use": 0.0, "feedback": 0.0, "last_used": None}
    assert listed == {"images": 0, "interests": [{**entry, **unused} for entry in added.json["added"]]}
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


def test_images_show_an_interest(texcat: Texcat, indexed: Path, photos: Path) -> None:
    cat, cup = photos / "chelsea.jpg", photos / "coffee.jpg"
    added = texcat(
        *("interest", "add", "My things", "--image", cat, "--box", "0.2,0.1,0.9,0.8"),
        *("--image", cup, "--box", "0,0,1,1", "--weight", "2", "--with-words", "-c", indexed, "--json"),
    ).json["added"]
    assert added == [
        {
            "id": 4,
            "phrase": "my things",
            "weight": 2.0,
            "exemplars": [
                {"path": str(cat), "box": [0.2, 0.1, 0.9, 0.8], "key": str(ImageKey.of(cat.read_bytes()))},
                {"path": str(cup), "box": [0, 0, 1, 1], "key": str(ImageKey.of(cup.read_bytes()))},
            ],
            "with_words": True,
            "pinned": False,
            "archived": None,
        }
    ]
    listed = texcat("interest", "list", "-c", indexed, "--json").json["interests"][-1]
    assert {**listed, **added[0]} == listed
    assert (listed["maps"], listed["effective_weight"]) == (0, 2.0)
    table = texcat("interest", "list", "-c", indexed).out
    assert "chelsea.jpg (0.2,0.1,0.9,0.8), coffee.jpg (0,0,1,1), words" in table
    with Catalogue.open(indexed) as catalogue:
        assert 4 in catalogue.registry.vectors(catalogue.settings.fingerprint)


def test_people_are_told_what_is_still_to_be_looked_at(texcat: Texcat, empty: Path, photos: Path) -> None:
    said = texcat("interest", "add", "my cat", "--image", photos / "chelsea.jpg", "-c", empty).out
    assert "1 interest added: my cat" in said
    assert "are looked at by the next texcat index: keep them until then" in said
    assert "keep them" not in texcat("interest", "add", "dog", "-c", empty).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my cat", "--box", "0,0,1,1"], "go with --image"),
        (["my cat", "--with-words"], "go with --image"),
        (["my cat", "your cat", "--image", "chelsea.jpg"], "--image shows one interest, not 2"),
        (["my cat", *["--image", "chelsea.jpg"] * 2, "--box", "0,0,1,1"], "1 --box for 2 --image: give each"),
        (["my cat", "--image", "chelsea.jpg", "--box", "0,0,1"], "'0,0,1' is not L,T,R,B: four fractions"),
        (
            ["my cat", "--image", "chelsea.jpg", "--box", "a,0,1,1"],
            "'a,0,1,1' is not L,T,R,B: four fractions",
        ),
        (["my cat", "--image", "chelsea.jpg", "--box", "10,10,90,90"], "box 10,10,90,90 is no rectangle in"),
        (["b\x00d", "--image", "chelsea.jpg"], "holds the control character"),
    ],
)
def test_exemplars_that_make_no_sense_are_refused(
    texcat: Texcat,
    empty: Path,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(photos)
    result = texcat("interest", "add", *arguments, "-c", empty)
    assert result.code == 2
    assert message in result.err
    assert phrases(empty) == []


@pytest.mark.parametrize("bad", ["broken.jpg", "missing.jpg"])
def test_an_image_that_cannot_be_read_is_named(texcat: Texcat, empty: Path, photos: Path, bad: str) -> None:
    result = texcat(
        *(
            "interest",
            "add",
            "my cat",
            "--image",
            photos / "chelsea.jpg",
            "--image",
            photos / bad,
            "-c",
            empty,
        )
    )
    assert result.code == 1
    assert str(photos / bad) in result.err
    assert phrases(empty) == []
