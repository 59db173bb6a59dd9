"""Group ``edges``: how luminance changes, at 512 pixels and from cell to cell."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from texcat.catalogue.grid import Plane

from .pixels import CELL, Image, Pixels, block_sum

_SOBEL_GAIN = 4.0
"""Sum of the Sobel kernel's positive weights: divided by it, a step from 0 to 1 measures 1."""


class Edges:
    """Sobel gradients of luminance, averaged over cells; each plane float32 [32, 32].

    The kernel is ``[1, 2, 1] x [-1, 0, 1] / 4`` with border pixels repeated. x is to the right and y
    down: getting lighter to the right makes ``edge_x`` positive, getting lighter downwards ``edge_y``.
    """

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels

    @property
    def edge_x(self) -> Plane:
        """Mean over the cell of the signed horizontal gradient, in [-1, 1]."""
        return _cell_mean(self._gradient_x)

    @property
    def edge_y(self) -> Plane:
        """Mean over the cell of the signed vertical gradient, in [-1, 1]."""
        return _cell_mean(self._gradient_y)

    @property
    def edge_magnitude(self) -> Plane:
        """Mean over the cell of ``sqrt((gx^2 + gy^2) / 2)`` of each pixel, in [0, 1].

        Averaged after the root: an outline through the cell counts, whichever way it turns.
        """
        # Not np.hypot, which guards against overflow and takes several times as long.
        return _cell_mean(np.sqrt((self._gradient_x**2 + self._gradient_y**2) / 2))

    @cached_property
    def _bordered(self) -> Image:
        return np.pad(self._pixels.luminance, 1, mode="edge")

    @cached_property
    def _gradient_x(self) -> Image:
        above, here, below = self._bordered[:-2], self._bordered[1:-1], self._bordered[2:]
        smooth: Image = above + 2 * here + below
        gradient: Image = (smooth[:, 2:] - smooth[:, :-2]) / np.float32(_SOBEL_GAIN)
        return gradient

    @cached_property
    def _gradient_y(self) -> Image:
        left, here, right = self._bordered[:, :-2], self._bordered[:, 1:-1], self._bordered[:, 2:]
        smooth: Image = left + 2 * here + right
        gradient: Image = (smooth[2:] - smooth[:-2]) / np.float32(_SOBEL_GAIN)
        return gradient


def _cell_mean(values: Image) -> Plane:
    return block_sum(values, CELL) / np.float32(CELL**2)
