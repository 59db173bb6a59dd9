from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from texcat.catalogue import ImageKey
from texcat.retrieval.balancing import SHIPPED

from .conftest import QUESTION, Texcat, held_open

COMMON = {
    "image", "key", "question", "matches", "tier", "confidence", "own_share", "saved", "not_saved",
    "times_us", "out",
}  # fmt: skip


@pytest.fixture
def read_only(indexed: Path, tmp_path: Path) -> Iterator[Path]:
    """The catalogue `indexed` on a file system that cannot be written. Mounting it needs root."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    subprocess.run(["mount", "--bind", indexed, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_query_tells_matches_tier_times_and_tokens(texcat: Texcat, indexed: Path, photos: Path) -> None:
    result = texcat("query", photos / "chelsea.jpg", QUESTION, "--budget", 100, "-c", indexed, "--json")
    assert result.code == 0
    told = result.json
    assert set(told) == COMMON | {
        "times_again_us",
        "budget",
        "strategy",
        "balancer",
        "grid",
        "kept",
        "positions",
        "budgets",
    }
    assert told["key"] == str(ImageKey.of((photos / "chelsea.jpg").read_bytes()))
    assert told["matches"][0]["phrase"] == "cat"
    assert sum(match["weight"] for match in told["matches"]) == pytest.approx(1)
    assert (told["tier"], told["saved"], told["not_saved"], told["own_share"]) == ("stored", False, None, 0)
    assert set(told["times_us"]) == set(told["times_again_us"]) == {"match", "lookup", "blend", "allocate"}
    assert all(0 < time < 1e7 for time in told["times_us"].values())
    assert (told["kept"], len(told["positions"]), sum(told["budgets"])) == (100, 100, 100)
    assert all(0 <= row < 32 and 0 <= column < 32 for row, column in told["positions"])


def test_query_for_people(texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path) -> None:
    picture = tmp_path / "answer.png"
    result = texcat("query", photos / "chelsea.jpg", QUESTION, "--out", picture, "-c", indexed)
    assert result.code == 0
    assert all(
        part in result.out for part in ("cat", "stored", "confidence", "µs", "200 tokens kept of 1,024")
    )
    assert f"Wrote {picture}" in result.out
    with Image.open(picture) as drawn:
        assert (drawn.format, drawn.width > 3 * 200) == ("PNG", True)


def test_query_by_a_balancer(texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path) -> None:
    arguments = ("query", photos / "chelsea.jpg", QUESTION, "-c", indexed, "--json")
    plain, tension, adaptive = (
        texcat(*arguments, "--balancer", name).json for name in ("none", "tension", "adaptive")
    )
    by_file = texcat(*arguments, "--balancer", SHIPPED["tension"], "--out", tmp_path / "x.png").json
    assert [told["balancer"] for told in (plain, tension, adaptive)] == ["none", "tension", "adaptive"]
    assert len(plain["positions"]) == len(tension["positions"]) == len(adaptive["positions"]) == 200
    assert plain["positions"] != tension["positions"] != adaptive["positions"]
    assert by_file["positions"] == tension["positions"]
    unknown = texcat(*arguments, "--balancer", "best")
    assert unknown.code == 2
    assert "balancer 'best' is not known; expected one of: tension, adaptive, or a file" in unknown.err
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    damaged = texcat(*arguments, "--balancer", tmp_path / "no.safetensors")
    assert (damaged.code, "does not hold a balancer" in damaged.err) == (1, True)


def test_a_key_names_the_image_too(texcat: Texcat, indexed: Path, photos: Path) -> None:
    key = ImageKey.of((photos / "chelsea.jpg").read_bytes())
    by_path = texcat("query", photos / "chelsea.jpg", QUESTION, "-c", indexed, "--json").json
    by_key = texcat("query", key, QUESTION, "-c", indexed, "--json").json
    assert by_key["positions"] == by_path["positions"]


def test_lookup_tells_each_channel(texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path) -> None:
    picture, textures = tmp_path / "heat.png", tmp_path / "textures.npz"
    image = photos / "coffee.jpg"
    arguments = ("--channels", "interest,red", "--out", picture, "--save", textures, "-c", indexed)
    result = texcat("lookup", image, "--interest", "Cup of COFFEE", "--interest", "cat", *arguments, "--json")
    assert result.code == 0
    told = result.json
    assert set(told) == COMMON | {"channels", "save"}
    assert [(match["phrase"], match["weight"]) for match in told["matches"]] == [
        ("cat", 0.5),
        ("cup of coffee", 0.5),
    ]
    assert list(told["channels"]) == ["similarity", "interest_edges", "interest_saliency", "red"]
    with np.load(textures) as saved:
        assert saved["textures"].shape == (4, 32, 32)
        assert saved["channels"].tolist() == list(told["channels"])
        assert saved["relevance"].shape == (32, 32)
        assert told["channels"]["red"]["mean"] == pytest.approx(float(saved["textures"][3].mean()))
    with Image.open(picture) as drawn:
        drawn.load()
    shown = texcat("lookup", image, "--interest", "cat", *arguments).out
    assert "interest_saliency" in shown
    assert f"Wrote {textures}" in shown


def test_lookup_wants_a_question_or_interests(texcat: Texcat, indexed: Path, photos: Path) -> None:
    image = photos / "coffee.jpg"
    for arguments in ((), (QUESTION, "--interest", "cat")):
        result = texcat("lookup", image, *arguments, "-c", indexed)
        assert result.code == 2
        assert "either a question" in result.err
    unknown = texcat("lookup", image, "--interest", "zebra", "-c", indexed)
    assert unknown.code == 2
    assert "no interest 'zebra'" in unknown.err


def test_a_picture_of_a_channel_that_was_left_out(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    result = texcat(
        "lookup",
        photos / "coffee.jpg",
        QUESTION,
        "--channels",
        "red",
        "--out",
        tmp_path / "x.png",
        "-c",
        indexed,
    )
    assert result.code == 2
    assert "--out draws the similarity" in result.err


def test_what_cannot_be_used(texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path) -> None:
    image = photos / "coffee.jpg"
    gone = texcat("query", photos / "gone.jpg", QUESTION, "-c", indexed)
    assert gone.code == 1
    assert "gone.jpg" in gone.err
    strategy = texcat("query", image, QUESTION, "--strategy", "best", "-c", indexed)
    assert strategy.code == 2
    assert "expected one of: topk" in strategy.err
    nowhere = texcat("query", image, QUESTION, "--out", tmp_path / "none" / "x.png", "-c", indexed)
    assert nowhere.code == 2
    assert "cannot write" in nowhere.err
    assert texcat("query", image, QUESTION, "--budget", "1025", "-c", indexed).code == 2


@pytest.mark.parametrize("question", ["", " \n", "\0", os.fsdecode(b"where? \xff")])
def test_a_question_that_cannot_be_asked(texcat: Texcat, indexed: Path, photos: Path, question: str) -> None:
    for command in ("query", "lookup"):
        result = texcat(command, photos / "chelsea.jpg", question, "-c", indexed)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("texcat: error: phrase ")
        assert result.err.count("\n") == 1


def test_a_question_may_be_long(texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path) -> None:
    question = "Where is the cat, and what does it do?\n" * 2_500
    arguments = ("--out", tmp_path / "long.png", "-c", indexed, "--json")
    told = texcat("query", photos / "chelsea.jpg", question, *arguments).json
    assert told["question"] == question
    assert told["matches"][0]["phrase"] == "cat"


def test_a_new_image_is_computed_and_saved_unless_another_writes(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    image = tmp_path / os.fsdecode(b"n\xe9w.png")
    with Image.open(photos / "chelsea.jpg") as photo:
        photo.rotate(180).save(image)
    with held_open(indexed):
        told = texcat("query", image, QUESTION, "-c", indexed, "--json").json
        assert (told["tier"], told["saved"]) == ("computed", False)
        assert "is being written by" in told["not_saved"]
    shown = texcat("query", image, QUESTION, "-c", indexed)
    assert shown.code == 0
    assert "what was computed is in the catalogue now" in shown.out
    assert texcat("query", image, QUESTION, "-c", indexed, "--json").json["tier"] == "stored"


def test_a_catalogue_that_cannot_be_written_answers(texcat: Texcat, read_only: Path, photos: Path) -> None:
    result = texcat("query", photos / "chelsea.jpg", QUESTION, "-c", read_only)
    assert result.code == 0
    assert "not saved" in result.out
    assert "open to read" in result.out
