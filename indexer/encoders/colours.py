"""How much of each patch has which colour: the eleven basic colour terms (Berlin & Kay 1969).

A pixel belongs to each term in proportion to ``exp(-d^2 / (2 * 15^2))``, with d its distance in CIELAB (D65)
to the nearest of the term's prototypes; over the terms the parts sum to 1. A soft naming like that of van de
Weijer et al. 2009 ("Learning color names for real-world applications"), but with prototypes that are written
down instead of a learned table.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

PROTOTYPES = {
    "black": ((15, 15, 15),),
    "blue": ((35, 80, 180), (25, 40, 100), (110, 165, 220)),
    "brown": ((110, 65, 35), (160, 110, 70)),
    "green": ((40, 140, 50), (30, 75, 30), (140, 185, 90)),
    "grey": ((128, 128, 128),),
    "orange": ((245, 130, 30),),
    "pink": ((240, 150, 180), (225, 70, 140)),
    "purple": ((120, 50, 140),),
    "red": ((200, 25, 30), (130, 20, 25)),
    "white": ((245, 245, 245),),
    "yellow": ((245, 215, 50),),
}
"""sRGB of typical shades of each term, 0 to 255."""

TERMS = tuple(PROTOTYPES)
SPREAD = 15.0
"""Distance in CIELAB at which a pixel belongs to a term 0.6 times as much as its prototype does."""

_PIXELS = 2
"""Pixels a side of a patch that are named; each is the mean of those of the image that it covers."""

_TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
_WHITE = (0.95047, 1.0, 1.08883)


def colour_coverage(images: Tensor, cells: int) -> Tensor:
    """Part of each cell that has each colour of `TERMS`.

    Args:
        images: RGB, 0 to 255, of any type, [B, 3, side, side]; `side` a multiple of ``2 * cells``.
        cells: rows and columns of the grid.

    Returns:
        float32 [B, 11, cells, cells]; over the terms they sum to 1.
    """
    pixels = F.avg_pool2d(images.float(), images.shape[-1] // (_PIXELS * cells))
    lab = to_lab(pixels.movedim(1, -1) / 255)
    prototypes = [torch.tensor(PROTOTYPES[term], device=lab.device) / 255 for term in TERMS]
    near = [torch.cdist(lab.flatten(0, -2), to_lab(each)).amin(-1) for each in prototypes]
    named = torch.softmax(-(torch.stack(near, -1) ** 2) / (2 * SPREAD**2), -1)
    return F.avg_pool2d(named.reshape(*lab.shape[:-1], len(TERMS)).movedim(-1, 1), _PIXELS)


def to_lab(rgb: Tensor) -> Tensor:
    """sRGB [..., 3], 0 to 1 -> CIELAB [..., 3] (D65; CIE 15:2004, IEC 61966-2-1)."""
    linear = torch.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    xyz = linear @ linear.new_tensor(_TO_XYZ).T / linear.new_tensor(_WHITE)
    f = torch.where(xyz > (6 / 29) ** 3, xyz.clamp_min(1e-9) ** (1 / 3), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = f.unbind(-1)
    return torch.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), -1)
