"""Group ``saliency``: what stands out from its surround, whatever one looks for.

L. Itti, C. Koch, E. Niebur, "A model of saliency-based visual attention for rapid scene analysis",
PAMI 20(11), 1998, with the colour opponencies of D. Walther, C. Koch, "Modeling attention to salient
proto-objects", Neural Networks 19(9), 2006. Where this differs from the papers:

- The pyramid starts at level 2, as no finer one is read: the image averaged over 4x4 pixels. Further
  levels halve it with the binomial kernel [1, 3, 3, 1] / 8, which keeps the centres of cells in place.
- Orientation is the magnitude of the second derivative of a Gaussian, steered to 0, 45, 90 and 135
  degrees (W. Freeman, E. Adelson, "The design and use of steerable filters", PAMI 13(9), 1991), in
  place of Gabor filters: separable, so products with matrices.
- Contrasts are brought to the 32x32 grid (the paper's level 4) before they are normalised.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d, gaussian_filter1d
from texcat.catalogue.grid import Plane, resize_plane
from texcat.catalogue.types import GRID

from .pixels import WHITE, Image, Pixels

CENTRES = (2, 3, 4)
"""Levels of the pyramid that serve as centres; level k has a side of 512 / 2^k."""

SURROUNDS = (3, 4)
"""How many levels above its centre a surround is taken."""

ORIENTATION_SIGMA = 1.5
"""Standard deviation of the oriented filters, in pixels of their level (preferred period 6.7 pixels)."""

DARK = 0.1
"""Colours whose largest component is below this have no hue worth comparing (Walther and Koch)."""

PEAK_FLOOR = 1 / WHITE
"""The least maximum that is stretched to 1: one grey level, so that a flat image stays flat."""

LOCAL_MAXIMUM = 0.1
"""Local maxima below this part of the largest value do not count (Walther and Koch's toolbox)."""

_ROUNDING = 1e-5
"""Contrasts below this are rounding in a flat area."""

_TIE = 1e-4
"""Parts of the maximum that are nearer to each other are equal but for rounding."""

_LEVELS = range(CENTRES[0], CENTRES[-1] + SURROUNDS[-1] + 1)


class Saliency:
    """Conspicuity by feature, each float32 [32, 32] in [0, 1].

    A conspicuity map is the mean of N(|centre - surround|) over centres at levels 2, 3, 4 and surrounds
    3 and 4 levels above, normalised by N once more (`normalise`). Higher is more conspicuous.
    """

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels

    @property
    def saliency_intensity(self) -> Plane:
        """Conspicuity of intensity, ``(R' + G' + B') / 3``."""
        return normalise(_conspicuity(self._intensity)[0])

    @property
    def saliency_color(self) -> Plane:
        """Conspicuity of hue: the mean of that of red-green and of blue-yellow.

        Red-green is ``(r - g) / max(r, g, b)``, blue-yellow ``(b - min(r, g)) / max(r, g, b)``; both
        are 0 where the maximum is below 0.1.
        """
        red, green, blue = np.moveaxis(self._pixels.reduced, -1, 0)
        largest = self._pixels.reduced.max(axis=-1)
        scale = np.where(largest < DARK, 0, 1 / np.maximum(largest, DARK))
        opponents = np.stack(((red - green) * scale, (blue - np.minimum(red, green)) * scale))
        return normalise(_conspicuity(_pyramid(opponents)).mean(axis=0))

    @property
    def saliency_orientation(self) -> Plane:
        """Conspicuity of orientation: the mean over four orientations of N(their conspicuity)."""
        oriented = [_oriented_energy(level[0]) for level in self._intensity]
        return normalise(normalise(_conspicuity(oriented)).mean(axis=0))

    @cached_property
    def _intensity(self) -> list[Image]:
        return _pyramid(self._pixels.reduced.mean(axis=-1)[None])


def normalise(maps: Plane) -> Plane:
    """N(.) of Itti and others: promotes maps with few strong peaks. [..., 32, 32], >= 0, to [0, 1].

    Each map is divided by its maximum (or by one grey level, if that is more) and multiplied by
    (1 - m)^2, where m is the mean of its local maxima other than the largest: cells not below any of
    their eight neighbours, but for rounding, which differs with the processor, and at least a tenth of the
    maximum. With no other maximum, m is 0.
    """
    peak = maps.max(axis=(-2, -1), keepdims=True)
    unit = maps / np.maximum(peak, np.float32(PEAK_FLOOR))
    top = unit.max(axis=(-2, -1), keepdims=True)
    is_local = unit >= _largest_nearby(unit) - np.float32(_TIE)
    is_maximum = is_local & (unit >= LOCAL_MAXIMUM * top) & (unit > 0)
    count = is_maximum.sum(axis=(-2, -1), keepdims=True)
    total = np.where(is_maximum, unit, 0).sum(axis=(-2, -1), keepdims=True)
    others = np.clip((total - top) / np.maximum(count - 1, 1), 0, 1)
    promoted: Plane = (unit * (1 - others) ** 2).astype(np.float32)
    return promoted


def _largest_nearby(maps: Plane) -> Plane:
    """Largest value in the 3x3 cells around each cell, those within the map. [..., h, w]."""
    margins = ((0, 0),) * (maps.ndim - 2) + ((1, 1), (1, 1))
    padded = np.pad(maps, margins, constant_values=-np.inf)
    rows = np.maximum(np.maximum(padded[..., :-2, :], padded[..., 1:-1, :]), padded[..., 2:, :])
    return np.maximum(np.maximum(rows[..., :-2], rows[..., 1:-1]), rows[..., 2:])


def _conspicuity(pyramid: list[Image]) -> Plane:
    """Mean of N over all pairs of centre and surround. Levels [K, n, n] -> [K, 32, 32]."""
    level = dict(zip(_LEVELS, pyramid, strict=True))
    contrasts = []
    for centre in CENTRES:
        for delta in SURROUNDS:
            fine = level[centre]
            contrast = np.abs(fine - resize_plane(level[centre + delta], fine.shape[-1]))
            contrast[contrast < _ROUNDING] = 0
            contrasts.append(resize_plane(contrast, GRID))
    mean: Plane = normalise(np.stack(contrasts)).mean(axis=0)
    return mean


def _pyramid(base: Image) -> list[Image]:
    """Levels 2 to 8 of [K, 128, 128]: each [K, n, n] with half the side of the one before."""
    levels = [base]
    while len(levels) < len(_LEVELS):
        halve = _halving_matrix(levels[-1].shape[-1])
        rows: Image = halve @ levels[-1]
        levels.append(rows @ halve.T)
    return levels


def _oriented_energy(intensity: Image) -> Image:
    """Magnitude of the oriented second derivative of [n, n], at 0, 45, 90, 135 degrees: [4, n, n].

    ``|cos^2 Gxx + 2 cos sin Gxy + sin^2 Gyy|`` for derivatives along (cos, sin), x right and y down.
    """
    smooth, first, second = _derivative_matrices(intensity.shape[-1])
    xx = smooth @ intensity @ second.T
    xy = first @ intensity @ first.T
    yy = second @ intensity @ smooth.T
    mixed = (xx + yy) / 2
    return np.abs(np.stack((xx, mixed + xy, yy, mixed - xy)))


@lru_cache(maxsize=16)
def _halving_matrix(n: int) -> NDArray[np.float32]:
    """[n / 2, n]: the kernel [1, 3, 3, 1] / 8 centred between each pair of cells, reflected at borders."""
    smoothed = correlate1d(np.eye(n), np.array([1, 3, 3, 1]) / 8, axis=0, mode="reflect")
    # correlate1d puts four taps on cells i - 2 to i + 1: those with an odd i are centred on a pair.
    halve: NDArray[np.float32] = smoothed[1::2].astype(np.float32)
    return halve


@lru_cache(maxsize=16)
def _derivative_matrices(n: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """[n, n] each: a Gaussian, sigma times its first and sigma^2 times its second derivative.

    Reflected at borders. The scale makes responses comparable with intensity, whatever the sigma.
    """
    sigma = ORIENTATION_SIGMA
    smooth, first, second = (
        gaussian_filter1d(np.eye(n), sigma, axis=0, order=order, mode="reflect") for order in range(3)
    )
    # A sampled second derivative does not quite sum to zero; flat areas must give no response.
    second -= second.sum(axis=1, keepdims=True) * smooth
    first, second = sigma * first, sigma**2 * second
    return smooth.astype(np.float32), first.astype(np.float32), second.astype(np.float32)
