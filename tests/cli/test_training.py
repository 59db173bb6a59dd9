"""``texcat train-balancer``, with the builtin encoder on two photos."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from texcat.retrieval.balancing import Balancer

from .conftest import QUESTION, Texcat


@pytest.fixture
def labelled(tmp_path: Path, photos: Path) -> Path:
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    (data / "boxes").mkdir()
    for name in ("chelsea", "coffee", "rocket"):
        shutil.copy(photos / f"{name}.jpg", data / "images")
    (data / "names.json").write_text(json.dumps({"boxes": {"0": "cat", "1": "cup of coffee"}}))
    (data / "boxes" / "chelsea.txt").write_text("0 0.5 0.5 0.6 0.8\n")
    (data / "boxes" / "coffee.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    return data


def test_a_balancer_is_trained_and_used(
    texcat: Texcat, indexed: Path, labelled: Path, photos: Path, tmp_path: Path
) -> None:
    made = tmp_path / "mine.safetensors"
    options = ("--out", made, "-c", indexed, "--epochs", 2, "--device", "cpu")
    told = texcat("train-balancer", labelled, *options, "--json").json
    assert (told["kind"], told["photos"], told["held_photos"]) == ("tension", 1, 1)
    assert told["about"]["options"]["epochs"] == len(told["epochs"]) == 2
    assert set(told["recalls"]["200"]) == {"balancer", "participatory", "best"}
    assert json.loads(made.with_suffix(".json").read_text()) == told
    assert "recall on photos held out" in made.with_suffix(".md").read_text()
    first = made.read_bytes()

    shown = texcat("train-balancer", labelled, *options)
    assert shown.code == 0
    assert "1 photos trained on, 1 held out" in shown.out
    assert made.read_bytes() == first, "the same photos, options and seed"
    assert Balancer.load(made).encoder == told["encoder"]

    query = ("query", photos / "chelsea.jpg", QUESTION, "-c", indexed, "--json")
    assert len(texcat(*query, "--balancer", made).json["positions"]) == 200


def test_what_cannot_be_trained_on_is_told(
    texcat: Texcat, tmp_path: Path, labelled: Path, indexed: Path
) -> None:
    nothing = texcat("train-balancer", tmp_path / "none", "-c", indexed)
    assert (nothing.code, "holds no photos with boxes" in nothing.err) == (2, True)
    unknown = texcat("train-balancer", labelled, "--kind", "best", "-c", indexed)
    assert (unknown.code, "expected one of the kinds tension, adaptive" in unknown.err) == (2, True)
    (labelled / "boxes" / "coffee.txt").unlink()
    alone = texcat("train-balancer", labelled, "-c", indexed, "--device", "cpu")
    assert (alone.code, "two photos with boxes are needed at least" in alone.err) == (2, True)
