"""What several channel groups need of a batch of images, each made once, when first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ...catalogue.types import GRID
from ..images import WORKING_SIZE
from .sums import pixel_means

CELL = WORKING_SIZE // GRID
"""Side of a cell, in pixels."""

REDUCED = 128
"""Side, in pixels, of the reduced image on which saliency and segments work."""

_BLOCK = WORKING_SIZE // REDUCED

WHITE = 255.0

RGB_TO_XYZ = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
"""Linear sRGB to CIE XYZ (ITU-R BT.709 primaries, D65)."""

D65 = (0.95047, 1.0, 1.08883)
"""XYZ of the white point D65 for an observer of 2 degrees."""


class PixelMeans(NamedTuple):
    """Of images [B, 3, H, H], all float32.

    Attributes:
        blocks: means of values over blocks, 0 to 255, exact: [B, 3, H / block, H / block].
        squares: means of squared values over cells, 0 to 255^2, exact: [B, 3, H / cell, H / cell].
        edges: means over cells of the gradient to the right, downwards, and of its magnitude, as the channels
            of `Edges` have them: [B, 3, H / cell, H / cell].
    """

    blocks: Tensor
    squares: Tensor
    edges: Tensor


class Pixels:
    """A batch of images, uint8 sRGB [B, 3, 512, 512], and what follows from their pixels."""

    def __init__(self, images: Tensor) -> None:
        self._bytes = images

    @cached_property
    def sums(self) -> PixelMeans:
        """All that needs every pixel, at one go."""
        if self._bytes.is_cuda:
            from . import kernels

            return kernels.pixel_means(self._bytes, CELL, _BLOCK)
        made = pixel_means(self._bytes.contiguous().numpy(), CELL, _BLOCK)
        return PixelMeans(*map(torch.from_numpy, made))

    @cached_property
    def cells(self) -> Tensor:
        """[B, 3, 32, 32] in [0, 1]: sRGB values averaged over each cell of 16x16 pixels."""
        return self.cell_means / WHITE

    @cached_property
    def cell_means(self) -> Tensor:
        """`cells`, 0 to 255: exact."""
        return block_mean(self.sums.blocks, CELL // _BLOCK)

    @cached_property
    def cells_lab(self) -> Tensor:
        """[B, 3, 32, 32]: CIELAB (D65, 2 degrees) of `cells`."""
        return rgb_to_lab(self.cells)

    @cached_property
    def reduced(self) -> Tensor:
        """[B, 3, 128, 128] in [0, 1]: sRGB values averaged over blocks of 4x4 pixels."""
        return self.sums.blocks / WHITE


def block_mean(values: Tensor, block: int) -> Tensor:
    """Mean [..., H, W] over blocks of `block` x `block`, a power of 2: [..., H / block, W / block].

    Exact, in whatever order it is done, for whole numbers whose sums stay below 2^24.
    """
    *others, height, width = values.shape
    rows = values.reshape(*others, height // block, block, width).mean(-2)
    return rows.reshape(*others, height // block, width // block, block).mean(-1)


def rgb_to_lab(rgb: Tensor) -> Tensor:
    """CIELAB (D65, 2 degrees) of sRGB values in [0, 1]: [B, 3, H, W] of either."""
    linear = torch.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    red, green, blue = linear.unbind(1)
    x, y, z = (
        _lightness((a * red + b * green + c * blue) / white)
        for (a, b, c), white in zip(RGB_TO_XYZ, D65, strict=True)
    )
    return torch.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), dim=1)


def _lightness(part: Tensor) -> Tensor:
    """CIE's f of X, Y or Z as a part of white's."""
    return torch.where(part > 0.008856, part.clamp(min=0.008856) ** (1 / 3), 7.787 * part + 16 / 116)
