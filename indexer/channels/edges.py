"""Group ``edges``: how luminance changes, at 512 pixels and from cell to cell."""

from __future__ import annotations

from torch import Tensor

from .pixels import Pixels


class Edges:
    """Sobel gradients of luminance, averaged over cells; each plane float32 [B, 32, 32].

    The kernel is ``[1, 2, 1] x [-1, 0, 1] / 4`` with border pixels repeated. x is to the right and y
    down: getting lighter to the right makes ``edge_x`` positive, getting lighter downwards ``edge_y``.
    """

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels

    @property
    def edge_x(self) -> Tensor:
        """Mean over the cell of the signed horizontal gradient, in [-1, 1]."""
        return self._pixels.sums.edges[:, 0]

    @property
    def edge_y(self) -> Tensor:
        """Mean over the cell of the signed vertical gradient, in [-1, 1]."""
        return self._pixels.sums.edges[:, 1]

    @property
    def edge_magnitude(self) -> Tensor:
        """Mean over the cell of ``sqrt((gx^2 + gy^2) / 2)`` of each pixel, in [0, 1].

        Averaged after the root: an outline through the cell counts, whichever way it turns.
        """
        return self._pixels.sums.edges[:, 2]
