"""Photos with boxes, in both layouts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from texcat.catalogue import UsageError
from texcat.retrieval.labelled import Target, read_targets, union_area


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (200, 100)).save(tmp_path / "images" / name)
    return tmp_path


def yolo(folder: Path, lines: str) -> None:
    (folder / "boxes").mkdir(exist_ok=True)
    (folder / "names.json").write_text(json.dumps({"boxes": {"7": "dog", "8": "cat"}}))
    (folder / "boxes" / "a.txt").write_text(lines)


def test_coco(folder: Path) -> None:
    annotations = [
        {"image_id": 1, "category_id": 7, "bbox": [20, 10, 100, 50]},
        {"image_id": 1, "category_id": 7, "bbox": [0, 0, 200, 100], "iscrowd": 1},
    ]
    content = {
        "categories": [{"id": 7, "name": "dog"}],
        "images": [{"id": 1, "file_name": "a.png", "width": 200, "height": 100}],
        "annotations": annotations,
    }
    (folder / "instances.json").write_text(json.dumps(content))
    found = read_targets(folder)
    assert [path.name for path in found] == ["a.png", "b.png"]
    (target,) = found[folder / "images" / "a.png"]
    assert target.category == "dog"
    np.testing.assert_allclose(target.boxes, [[0.1, 0.1, 0.6, 0.6]])
    assert found[folder / "images" / "b.png"] == []


def test_yolo(folder: Path) -> None:
    yolo(folder, "7 0.5 0.5 0.5 0.25\n8 0.25 0.25 0.5 0.5\n7 0.5 0.5 1 1\n")
    dog, cat = read_targets(folder)[folder / "images" / "a.png"]
    assert (dog.category, cat.category) == ("dog", "cat")
    np.testing.assert_allclose(dog.boxes, [[0.25, 0.375, 0.75, 0.625], [0, 0, 1, 1]])
    np.testing.assert_allclose(cat.boxes, [[0, 0, 0.5, 0.5]])


@pytest.mark.parametrize("lines", ["7 0.5 0.5 0.5", "9 0.5 0.5 0.5 0.5", "7 a b c d"])
def test_boxes_that_cannot_be_read_are_named(folder: Path, lines: str) -> None:
    yolo(folder, lines)
    with pytest.raises(UsageError, match=r"cannot read the boxes of .*names.json"):
        read_targets(folder)


def test_a_folder_without_boxes_is_told(folder: Path) -> None:
    with pytest.raises(UsageError, match="holds no photos with boxes: expected images/"):
        read_targets(folder)
    with pytest.raises(UsageError, match="holds no photos with boxes"):
        read_targets(folder / "nowhere")


def test_area_is_that_of_the_union() -> None:
    quarter = np.array([[0, 0, 0.5, 0.5]])
    area = union_area(quarter)
    assert (area.shape, area.sum()) == ((32, 32), pytest.approx(0.25))
    assert area[:16, :16].sum() == pytest.approx(0.25)
    twice = Target("dog", np.array([[0, 0, 0.5, 0.5], [0.25, 0.25, 0.75, 0.75]])).area()
    assert twice.sum() == pytest.approx(0.25 + 0.25 - 0.0625)
    half = union_area(np.array([[0.0, 0.0, 1 / 64, 1 / 32]]))
    assert half[0, 0] == pytest.approx(0.5 / 1024)
    assert half.sum() == pytest.approx(half[0, 0])
