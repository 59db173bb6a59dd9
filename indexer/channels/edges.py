"""Group ``edges``: how luminance changes, at 512 pixels and from cell to cell."""

from __future__ import annotations

from functools import cached_property
from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from .pixels import CELL, Pixels, block_mean

_SOBEL_GAIN = 4.0
"""Sum of the Sobel kernel's positive weights: divided by it, a step from 0 to 1 measures 1."""


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
        pixels = self._pixels
        return pixels.sums.edges[:, 0] if pixels.on_gpu else block_mean(self._gradient_x, CELL)

    @property
    def edge_y(self) -> Tensor:
        """Mean over the cell of the signed vertical gradient, in [-1, 1]."""
        pixels = self._pixels
        return pixels.sums.edges[:, 1] if pixels.on_gpu else block_mean(self._gradient_y, CELL)

    @property
    def edge_magnitude(self) -> Tensor:
        """Mean over the cell of ``sqrt((gx^2 + gy^2) / 2)`` of each pixel, in [0, 1].

        Averaged after the root: an outline through the cell counts, whichever way it turns.
        """
        if self._pixels.on_gpu:
            return self._pixels.sums.edges[:, 2]
        return block_mean(torch.hypot(self._gradient_x, self._gradient_y), CELL).div_(sqrt(2))

    @cached_property
    def _bordered(self) -> Tensor:
        return F.pad(self._pixels.luminance[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]

    @cached_property
    def _gradient_x(self) -> Tensor:
        above, here, below = self._bordered[:, :-2], self._bordered[:, 1:-1], self._bordered[:, 2:]
        smooth = (above + below).add_(here, alpha=2)
        return (smooth[:, :, 2:] - smooth[:, :, :-2]).div_(_SOBEL_GAIN)

    @cached_property
    def _gradient_y(self) -> Tensor:
        left, here, right = self._bordered[..., :-2], self._bordered[..., 1:-1], self._bordered[..., 2:]
        smooth = (left + right).add_(here, alpha=2)
        return (smooth[:, 2:] - smooth[:, :-2]).div_(_SOBEL_GAIN)
