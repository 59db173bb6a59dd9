"""Masks of what photos show, on the grid of the maps, and how well a map that is cut by a rule fits them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from texcat.catalogue.grid import resize_plane
from texcat.catalogue.types import GRID

CUT = 0.5
"""Cells in the upper half of a map's range are taken: the best of `CUTS` over the segments of coco313."""

CUTS = tuple(round(0.05 * step, 2) for step in range(1, 20))

LAST_THING = 90
"""Categories of COCO up to this number are things, those beyond are stuff: sky, grass, wall."""

_UNLABELLED = 0
_HEAD_FIRST = ("wall", "floor")
_NO_WORDS = {"merged", "other", "stuff"}

Map = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Mask:
    """Where one category is in one photo: float32 [32, 32] each, parts of a cell's area.

    Attributes:
        phrase: words for the category.
        thing: whether it has instances; if not it is stuff.
        inside: what belongs to it.
        labelled: what is known to belong to this category or another; the rest counts for nothing.
    """

    phrase: str
    thing: bool
    inside: Map
    labelled: Map

    def iou(self, cells: NDArray[np.bool_]) -> float:
        """Intersection over union of the mask and the area of `cells`, bool [32, 32]."""
        both = float(self.inside[cells].sum())
        return both / float(self.labelled[cells].sum() + self.inside.sum() - both)

    def at_cuts(self, plane: Map) -> NDArray[np.float64]:
        """IoU of a map cut by each of `CUTS`."""
        return np.array([self.iou(cut(plane, part)) for part in CUTS])


def cut(plane: Map, part: float) -> NDArray[np.bool_]:
    """Cells of at least ``min + part (max - min)`` of a map; see Zhou et al. 2016, who cut CAMs at 0.2."""
    low, high = float(plane.min()), float(plane.max())
    return plane >= low + part * (high - low)


def read_masks(folder: Path) -> dict[Path, list[Mask]]:
    """Masks of each photo in `folder` that has any: from ``instances.json`` (COCO), else ``masks/*.png``."""
    labels = folder / "instances.json"
    masks = _polygons(labels) if labels.exists() else _planes(folder / "masks", folder / "names.json")
    paths = {path.stem: path for path in sorted((folder / "images").iterdir())}
    return {path: masks[stem] for stem, path in paths.items() if masks.get(stem)}


def spoken(name: str) -> str:
    """A phrase for a category of COCO: ``tree-merged`` is tree, ``wall-brick`` brick wall."""
    words = [word for word in name.split("-") if word not in _NO_WORDS]
    return " ".join(words[::-1] if words[0] in _HEAD_FIRST else words)


def _planes(folder: Path, names: Path) -> Mapping[str, list[Mask]]:
    """Of images whose pixels are the numbers of categories: things and stuff."""
    categories = {int(number): name for number, name in json.loads(names.read_text())["masks"].items()}
    masks: dict[str, list[Mask]] = defaultdict(list)
    for path in sorted(folder.glob("*.png")):
        pixels = np.array(Image.open(path))
        labelled = _cells(pixels != _UNLABELLED)
        for number in np.unique(pixels[pixels != _UNLABELLED]).tolist():
            phrase, inside = spoken(categories[number]), _cells(pixels == number)
            masks[path.stem].append(Mask(phrase, number <= LAST_THING, inside, labelled))
    return masks


def _polygons(labels: Path) -> Mapping[str, list[Mask]]:
    """Of COCO's segments: things alone. Crowds are left out, as their boxes are."""
    content = json.loads(labels.read_text())
    names = {category["id"]: category["name"] for category in content["categories"]}
    outlines: dict[int, dict[str, list[Sequence[float]]]] = defaultdict(lambda: defaultdict(list))
    for label in content["annotations"]:
        if not label.get("iscrowd"):
            outlines[label["image_id"]][names[label["category_id"]]] += label["segmentation"]
    masks: dict[str, list[Mask]] = defaultdict(list)
    everywhere = np.ones((GRID, GRID), np.float32)
    for photo in content["images"]:
        for phrase, polygons in outlines[photo["id"]].items():
            canvas = Image.new("1", (photo["width"], photo["height"]))
            for polygon in polygons:
                ImageDraw.Draw(canvas).polygon(list(polygon), fill=1)
            inside = _cells(np.array(canvas))
            masks[Path(photo["file_name"]).stem].append(Mask(phrase, True, inside, everywhere))
    return masks


def _cells(pixels: NDArray[np.bool_]) -> Map:
    return resize_plane(pixels.astype(np.float32), GRID)
