"""Photos with boxes around what they show, to train and to measure on.

A folder holds ``images/`` and, beside it, labels in one of two layouts: ``instances.json`` as COCO has it
(boxes in pixels; crowds, whose boxes are loose, are left out); or ``boxes/*.txt`` of YOLO lines, ``category
x y width height`` as fractions with x and y the middle, and ``names.json`` with the categories under
``boxes``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..catalogue.errors import UsageError
from ..catalogue.types import GRID

Boxes = NDArray[np.float64]
"""[n, 4]: left, top, right, bottom; fractions of the image."""

_Row = tuple[str, str, tuple[float, ...]]
"""Stem of the photo, category, box."""


@dataclass(frozen=True, slots=True)
class Target:
    """One category in one photo."""

    category: str
    boxes: Boxes

    def area(self) -> NDArray[np.float64]:
        """Area of the boxes' union in each cell of the grid: `union_area`."""
        return union_area(self.boxes)


def read_targets(folder: Path) -> dict[Path, list[Target]]:
    """Targets of each photo of `folder`, by its path in ``images/``; photos without any have an empty list.

    Raises:
        UsageError: the folder, or a file of it, is not as the module says.
    """
    images = folder / "images"
    coco, yolo = folder / "instances.json", folder / "names.json"
    if not images.is_dir() or not (coco.is_file() or yolo.is_file()):
        raise UsageError(
            f"{str(folder)!r} holds no photos with boxes: expected images/, and instances.json (COCO) or "
            "names.json with boxes/*.txt (YOLO)"
        )
    labels = coco if coco.is_file() else yolo
    boxes: dict[str, dict[str, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
    try:
        for photo, category, box in (
            _read_coco(coco) if labels is coco else _read_yolo(folder / "boxes", yolo)
        ):
            boxes[photo][category].append(box)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"cannot read the boxes of {str(folder)!r}, {labels.name}: {type(error).__name__}: {error}"
        ) from error
    return {
        path: [Target(category, np.array(each)) for category, each in boxes[path.stem].items()]
        for path in sorted(images.iterdir())
    }


def _read_coco(labels: Path) -> Iterator[_Row]:
    content = json.loads(labels.read_text())
    names = {category["id"]: category["name"] for category in content["categories"]}
    photos = {photo["id"]: photo for photo in content["images"]}
    for label in content["annotations"]:
        if not label.get("iscrowd"):
            photo = photos[label["image_id"]]
            x, y, width, height = label["bbox"]
            box = (x, y, x + width, y + height)
            sides = (photo["width"], photo["height"]) * 2
            yield (
                Path(photo["file_name"]).stem,
                names[label["category_id"]],
                tuple(edge / side for edge, side in zip(box, sides, strict=True)),
            )


def _read_yolo(folder: Path, names: Path) -> Iterator[_Row]:
    categories = json.loads(names.read_text())["boxes"]
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text().splitlines():
            category, *numbers = line.split()
            x, y, width, height = map(float, numbers)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            yield file.stem, categories[category], box


def covered(boxes: Boxes, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each point (y[i], x[j]) lies in one of the boxes: [len(y), len(x)]."""
    left, top, right, bottom = boxes.T[:, :, None]
    in_x, in_y = (left <= x) & (x < right), (top <= y) & (y < bottom)
    within: NDArray[np.bool_] = np.any(in_y[:, :, None] & in_x[:, None, :], axis=0)
    return within


def union_area(boxes: Boxes) -> NDArray[np.float64]:
    """Area of the boxes' union in each cell, exact: [32, 32], in parts of the image.

    The edges of boxes and cells cut the image into rectangles, each of which is in the union or is not.
    """
    edges = np.arange(GRID + 1) / GRID
    x, y = (np.unique(np.clip(np.concatenate([edges, *boxes.T[i::2]]), 0, 1)) for i in (0, 1))
    middle_x, middle_y = (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2
    pieces = covered(boxes, middle_x, middle_y) * np.diff(y)[:, None] * np.diff(x)
    area = np.zeros((GRID, GRID))
    np.add.at(area, np.ix_((middle_y * GRID).astype(int), (middle_x * GRID).astype(int)), pieces)
    return area
