"""What an allocation says to a model that takes images and words, but no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from .allocation import Allocation

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of an image, in its pixels.

    Attributes:
        box: left, top, right, bottom; right and bottom are the first pixels beyond it.
        score: mean relevance of the kept positions in it.
        share: their share of all that is kept.
    """

    box: Box
    score: float
    share: float


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model behind an API is given in place of tokens.

    Attributes:
        regions: the most relevant first.
        crops: the image within each box.
        text: says in words where in the image the crops are from.
    """

    regions: tuple[Region, ...]
    crops: tuple[Image.Image, ...]
    text: str


def regions(allocation: Allocation, size: tuple[int, int], most: int = 4) -> list[Region]:
    """Rectangles around the groups of kept positions that touch, the most relevant first.

    Groups are ranked by the sum of their scores. Positions touch by a side or a corner.

    Args:
        allocation: over a grid that covers the image.
        size: (width, height) of the image, in pixels.
        most: how many to give.
    """
    kept = np.zeros(allocation.grid, bool)
    kept.ravel()[allocation.indices] = True
    scores = np.zeros(allocation.grid, np.float64)
    scores.ravel()[allocation.indices] = allocation.scores
    from scipy import ndimage  # here: it takes a fifth of the time of importing all of retrieval

    labels, count = ndimage.label(kept, np.ones((3, 3), int))
    found = []
    for label, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
        inside = labels == label
        box = (
            columns.start * size[0] // allocation.grid[1],
            rows.start * size[1] // allocation.grid[0],
            -(-columns.stop * size[0] // allocation.grid[1]),
            -(-rows.stop * size[1] // allocation.grid[0]),
        )
        region = Region(box, float(scores[inside].mean()), float(inside.sum() / kept.sum()))
        found.append((float(scores[inside].sum()), region))
    assert len(found) == count
    found.sort(key=lambda each: (-each[0], each[1].box))
    return [region for _, region in found[:most]]


def prompt(allocation: Allocation, image: Image.Image, most: int = 4) -> Prompt:
    """Boxes, crops and words: see `regions`."""
    found = regions(allocation, image.size, most)
    crops = tuple(image.crop(region.box) for region in found)
    return Prompt(tuple(found), crops, _in_words(found, image.size))


def _in_words(found: Sequence[Region], size: tuple[int, int]) -> str:
    lines = [
        f"The first image is the whole photo, {size[0]} x {size[1]} pixels. Those after it show parts of it "
        "at full resolution, the most relevant first, as left, top, right, bottom in pixels:"
    ]
    for number, region in enumerate(found, 1):
        lines.append(f"{number}. {', '.join(map(str, region.box))} (relevance {region.score:.2f})")
    return "\n".join(lines)
