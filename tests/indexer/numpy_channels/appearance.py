"""Group ``appearance``: the colour of each cell."""

from __future__ import annotations

from texcat.catalogue.grid import Plane

from .pixels import Pixels


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
    def lightness(self) -> Plane:
        """CIELAB L* (D65) of the averaged colour, in [0, 100]."""
        return self._pixels.cells_lab[..., 0]

    @property
    def green_red(self) -> Plane:
        """CIELAB a* (D65) of the averaged colour: negative is green, positive is red."""
        return self._pixels.cells_lab[..., 1]
