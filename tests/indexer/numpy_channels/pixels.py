"""What several channel groups need of one image, each made once, when first asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from skimage.color import rgb2lab
from texcat.catalogue.derived import LUMA
from texcat.catalogue.types import GRID
from texcat.indexer.images import WORKING_SIZE

CELL = WORKING_SIZE // GRID
"""Side of a cell, in pixels."""

REDUCED = 128
"""Side, in pixels, of the reduced image on which saliency and segments work."""

WHITE = 255.0

Image = NDArray[np.float32]


class Pixels:
    """One image, uint8 sRGB [512, 512, 3], and what follows from its pixels."""

    def __init__(self, rgb: NDArray[np.uint8]) -> None:
        self._bytes = rgb

    @cached_property
    def rgb(self) -> Image:
        """[512, 512, 3], whole numbers 0 to 255, in float32."""
        return self._bytes.astype(np.float32)

    @cached_property
    def luminance(self) -> Image:
        """[512, 512] in [0, 1]: Rec. 601 luma."""
        weights = np.array(LUMA, np.float32) / np.float32(WHITE)
        # Rounding may put white a hair above 1.
        luma: Image = np.minimum(self.rgb @ weights, 1)
        return luma

    @cached_property
    def cells(self) -> Image:
        """[32, 32, 3] in [0, 1]: sRGB values averaged over each cell of 16x16 pixels."""
        return block_sum(self.rgb, CELL) / np.float32(CELL**2 * WHITE)

    @cached_property
    def cells_lab(self) -> Image:
        """[32, 32, 3]: CIELAB (D65, 2 degrees) of `cells`."""
        lab: Image = rgb2lab(self.cells)
        return lab

    @cached_property
    def reduced(self) -> Image:
        """[128, 128, 3] in [0, 1]: sRGB values averaged over blocks of 4x4 pixels."""
        block = WORKING_SIZE // REDUCED
        return block_sum(self.rgb, block) / np.float32(block**2 * WHITE)


def block_sum(values: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """Sum [H, W, ...] over blocks of `block` x `block`: [H / block, W / block, ...].

    Exact, in whatever order it is done, for whole numbers whose sums stay below 2^24.
    """
    height, width, *rest = values.shape
    rows = values.reshape(height // block, block, width, *rest).sum(axis=1)
    sums: NDArray[np.float32] = rows.reshape(height // block, width // block, block, *rest).sum(axis=2)
    return sums
