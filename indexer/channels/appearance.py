"""Group ``appearance``: the colour of each cell."""

from __future__ import annotations

import numpy as np

from ...catalogue.grid import Plane
from .pixels import LUMA, Pixels


class Appearance:
    """Colour of the area-averaged image; each plane float32 [32, 32].

    The average is taken over sRGB values as they are stored (gamma-encoded), as resizing does.
    """

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels

    @property
    def red(self) -> Plane:
        """Mean R' of the cell's pixels, in [0, 1]."""
        return self._pixels.cells[..., 0]

    @property
    def green(self) -> Plane:
        """Mean G' of the cell's pixels, in [0, 1]."""
        return self._pixels.cells[..., 1]

    @property
    def blue(self) -> Plane:
        """Mean B' of the cell's pixels, in [0, 1]."""
        return self._pixels.cells[..., 2]

    @property
    def luminance(self) -> Plane:
        """``0.299 red + 0.587 green + 0.114 blue`` (Rec. 601), in [0, 1]."""
        luma: Plane = self._pixels.cells @ np.array(LUMA, np.float32)
        return luma

    @property
    def lightness(self) -> Plane:
        """CIELAB L* (D65) of the averaged colour, in [0, 100]."""
        return self._pixels.cells_lab[..., 0]

    @property
    def green_red(self) -> Plane:
        """CIELAB a* (D65) of the averaged colour: negative is green, positive is red."""
        return self._pixels.cells_lab[..., 1]
