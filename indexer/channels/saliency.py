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
import torch
from numpy.typing import NDArray
from scipy.ndimage import correlate1d, gaussian_filter1d
from torch import Tensor
from torch.nn import functional as F

from ...catalogue.types import GRID
from ..matrices import both_sides, on_device, resize
from .conspicuity import CENTRES, DARK, LOCAL_MAXIMUM, PEAK_FLOOR, ROUNDING, SURROUNDS, TIE, conspicuity
from .pixels import Pixels

ORIENTATION_SIGMA = 1.5
"""Standard deviation of the oriented filters, in pixels of their level (preferred period 6.7 pixels)."""

_LEVELS = range(CENTRES[0], CENTRES[-1] + SURROUNDS[-1] + 1)


class Saliency:
    """Conspicuity by feature, each float32 [B, 32, 32] in [0, 1].

    A conspicuity map is the mean of N(|centre - surround|) over centres at levels 2, 3, 4 and surrounds
    3 and 4 levels above, normalised by N once more (`normalise`). Higher is more conspicuous.
    """

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels

    @property
    def saliency_intensity(self) -> Tensor:
        """Conspicuity of intensity, ``(R' + G' + B') / 3``."""
        return self._maps[:, 0]

    @property
    def saliency_color(self) -> Tensor:
        """Conspicuity of hue: the mean of that of red-green and of blue-yellow.

        Red-green is ``(r - g) / max(r, g, b)``, blue-yellow ``(b - min(r, g)) / max(r, g, b)``; both
        are 0 where the maximum is below 0.1.
        """
        return self._maps[:, 1]

    @property
    def saliency_orientation(self) -> Tensor:
        """Conspicuity of orientation: the mean over four orientations of N(their conspicuity)."""
        return self._maps[:, 2]

    @cached_property
    def _maps(self) -> Tensor:
        reduced = self._pixels.reduced
        return by_planes(reduced) if reduced.is_cuda else _by_cells(reduced)


def by_planes(images: Tensor) -> Tensor:
    """Conspicuity of intensity, hue and orientation of images [B, 3, 128, 128]: [B, 3, 32, 32]."""
    red, green, blue = images.unbind(1)
    largest = images.amax(1)
    scale = torch.where(largest < DARK, 0, 1 / largest.clamp(min=DARK))
    opponents = (red - green) * scale, (blue - torch.minimum(red, green)) * scale
    levels = _pyramid(torch.stack((images.mean(1), *opponents), dim=1))
    found = _conspicuity([torch.cat((level, _oriented_energy(level[:, :1])), 1) for level in levels])
    together = found[:, 0], found[:, 1:3].mean(1), normalise(found[:, 3:]).mean(1)
    return normalise(torch.stack(together, dim=1))


def _by_cells(images: Tensor) -> Tensor:
    """The same by machine code, for processors."""
    return torch.from_numpy(conspicuity(images.numpy(), *_filters()))


def normalise(maps: Tensor) -> Tensor:
    """N(.) of Itti and others: promotes maps with few strong peaks. [..., 32, 32], >= 0, to [0, 1].

    Each map is divided by its maximum (or by one grey level, if that is more) and multiplied by
    (1 - m)^2, where m is the mean of its local maxima other than the largest: cells not below any of
    their eight neighbours, but for rounding, which differs with the processor, and at least a tenth of the
    maximum. With no other maximum, m is 0.
    """
    peak = maps.amax((-2, -1), keepdim=True)
    unit = maps / peak.clamp(min=PEAK_FLOOR)
    top = unit.amax((-2, -1), keepdim=True)
    is_local = unit >= _largest_nearby(unit) - TIE
    is_maximum = is_local & (unit >= LOCAL_MAXIMUM * top) & (unit > 0)
    count = is_maximum.sum((-2, -1), keepdim=True)
    total = (unit * is_maximum).sum((-2, -1), keepdim=True)
    others = ((total - top) / (count - 1).clamp(min=1)).clamp(0, 1)
    return unit * (1 - others) ** 2


def _largest_nearby(maps: Tensor) -> Tensor:
    """Largest value in the 3x3 cells around each cell, those within the map: [..., 32, 32]."""
    for axis in (-2, -1):
        before, after = maps.narrow(axis, 0, GRID - 1), maps.narrow(axis, 1, GRID - 1)
        higher = torch.maximum(before, after)
        maps = maps.clone()
        for half in (maps.narrow(axis, 0, GRID - 1), maps.narrow(axis, 1, GRID - 1)):
            torch.maximum(half, higher, out=half)
    return maps


def _conspicuity(pyramid: list[Tensor]) -> Tensor:
    """Mean of N over all pairs of centre and surround. Levels [B, K, n, n] -> [B, K, 32, 32]."""
    level = dict(zip(_LEVELS, pyramid, strict=True))
    contrasts = []
    for centre in CENTRES:
        for delta in SURROUNDS:
            fine = level[centre]
            contrast = (fine - resize(level[centre + delta], fine.shape[-1])).abs_()
            contrasts.append(resize(F.threshold(contrast, ROUNDING, 0), GRID))
    return normalise(torch.stack(contrasts)).mean(0)


def _pyramid(base: Tensor) -> list[Tensor]:
    """Levels 2 to 8 of [B, K, 128, 128]: each [B, K, n, n] with half the side of the one before."""
    levels = [base]
    while len(levels) < len(_LEVELS):
        halve = on_device(_halving_matrix, base.device, levels[-1].shape[-1])
        levels.append(both_sides(halve, levels[-1], halve))
    return levels


def _oriented_energy(intensity: Tensor) -> Tensor:
    """Magnitude of the oriented second derivative of [B, 1, n, n], at 0, 45, 90, 135 degrees: [B, 4, n, n].

    ``|cos^2 Gxx + 2 cos sin Gxy + sin^2 Gyy|`` for derivatives along (cos, sin), x right and y down.
    """
    matrices = on_device(_derivative_matrices, intensity.device, intensity.shape[-1])
    smooth, first, second = matrices.unbind()
    xx = both_sides(smooth, intensity, second)
    xy = both_sides(first, intensity, first)
    yy = both_sides(second, intensity, smooth)
    mixed = (xx + yy) / 2
    return torch.cat((xx, mixed + xy, yy, mixed - xy), dim=1).abs_()


@lru_cache(maxsize=1)
def _filters() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What a level is halved with, [4], and derivatives, [3, 2 r + 1]: what the matrices hold in a row."""
    n = 4 * round(4 * ORIENTATION_SIGMA)  # so that their middle is far from borders
    halving = _halving_matrix(n)[n // 4]
    derivatives = _derivative_matrices(n)[:, n // 2]
    return halving[halving != 0], derivatives[:, derivatives.any(0)]


def _halving_matrix(n: int) -> NDArray[np.float32]:
    """[n / 2, n]: the kernel [1, 3, 3, 1] / 8 centred between each pair of cells, reflected at borders."""
    smoothed = correlate1d(np.eye(n), np.array([1, 3, 3, 1]) / 8, axis=0, mode="reflect")
    # correlate1d puts four taps on cells i - 2 to i + 1: those with an odd i are centred on a pair.
    halve: NDArray[np.float32] = smoothed[1::2].astype(np.float32)
    return halve


def _derivative_matrices(n: int) -> NDArray[np.float32]:
    """[3, n, n]: a Gaussian, sigma times its first and sigma^2 times its second derivative.

    Reflected at borders. The scale makes responses comparable with intensity, whatever the sigma.
    """
    sigma = ORIENTATION_SIGMA
    smooth, first, second = (
        gaussian_filter1d(np.eye(n), sigma, axis=0, order=order, mode="reflect") for order in range(3)
    )
    # A sampled second derivative does not quite sum to zero; flat areas must give no response.
    second -= second.sum(axis=1, keepdims=True) * smooth
    return np.stack((smooth, sigma * first, sigma**2 * second)).astype(np.float32)
