"""Channels that follow from others, made at look-up: the reference that the fast code is held to.

Those of the interest group read the *shape* of a similarity map: its scale is the encoder's own, so it is
first brought to u in [0, 1] by its own minimum and maximum. How confident a map is must be read from
``similarity``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .grid import Plane, gaussian_matrix, resize_plane
from .types import GRID

LUMA = (0.299, 0.587, 0.114)
"""Weights of R', G', B' in luminance (Rec. ITU-R BT.601 luma, on gamma-encoded values)."""

LOWPASS_SIGMA = 2.0
"""Standard deviation, in cells of the grid, of the Gaussian that parts low from high frequencies."""

LOWPASS_REACH = 6
"""Cells to each side that it takes in: three standard deviations. What lies farther would change no cell of
the photos of coco128 by more than 0.0013."""

CENTRE_SIGMA = 1.0
"""Standard deviation of the centre, in cells of the grid."""

SURROUND_SIGMA = 6.0
"""Standard deviation of the surround, in cells of the grid: wide enough that a blob of the size at which
encoders smooth (sigma = 2 cells) keeps 0.70 of its height, narrow enough to be local on 32 cells."""

HALF_PRESENT = 5.0
"""Strength at which an interest counts as half present: between the highest of photos that do not show what
is looked for, 2.4 in the mean, and of those that do, 9.4 (design/0005)."""

_ROUNDING = 1e-6
"""A map whose span is below this part of its largest value is constant but for float32 rounding."""


def derived_planes(stored: Mapping[str, Plane]) -> dict[str, Plane]:
    """Base channels that follow from `stored` ones, as far as they are there: name -> float32 [32, 32].

    - ``luminance = 0.299 red + 0.587 green + 0.114 blue``
    - ``lowpass``: luminance smoothed by a Gaussian with sigma = 2 cells, cut off at 3 sigma
      (`gaussian_matrix`); ``highpass = luminance - lowpass``
    - ``edge_inverted = 1 - edge_magnitude``: where the image is plain
    - ``saliency``: mean of the three conspicuity maps
    - ``object_boundary``: 1 where one of the four neighbours is of another object, else 0
    """
    planes: dict[str, Plane] = {}
    if {"red", "green", "blue"} <= stored.keys():
        red, green, blue = (
            np.float32(w) * stored[n] for w, n in zip(LUMA, ("red", "green", "blue"), strict=True)
        )
        smooth = gaussian_matrix(GRID, LOWPASS_SIGMA, LOWPASS_REACH)
        planes["luminance"] = np.minimum(red + green + blue, np.float32(1))
        planes["lowpass"] = np.minimum(smooth @ planes["luminance"] @ smooth.T, np.float32(1))
        planes["highpass"] = planes["luminance"] - planes["lowpass"]
    if "edge_magnitude" in stored:
        planes["edge_inverted"] = 1 - stored["edge_magnitude"]
    conspicuity = [stored[n] for n in stored if n.startswith("saliency_")]
    if len(conspicuity) == 3:
        planes["saliency"] = sum(conspicuity, start=np.zeros((GRID, GRID), np.float32)) / np.float32(3)
    if "object_id" in stored:
        planes["object_boundary"] = _boundary(stored["object_id"])
    return planes


def interest_edges(presence: NDArray[np.float64], edge_magnitude: Plane) -> Plane:
    """Edge energy where an interest is present, or where its presence changes: float32 [32, 32] in [0, 1].

    ``edge_magnitude * (u + g - u * g)`` with u the presence and g the magnitude of its gradient: central
    differences over two cells (borders repeated), divided by sqrt(2), in [0, 1].

    Args:
        presence: [32, 32] in [0, 1], of the similarity (`presence`).
        edge_magnitude: float32 [32, 32] in [0, 1].
    """
    change = np.sqrt(_squared_gradient(presence) / 2)
    return (edge_magnitude * (presence + change - presence * change)).astype(np.float32)


def interest_saliency(presence: NDArray[np.float64]) -> Plane:
    """Where an interest stands out from what surrounds it: float32 [32, 32] in [0, 1].

    ``max(0, G1(u) - G6(u))`` with u the presence and G1, G6 Gaussians with standard deviations of 1 and 6
    cells (`gaussian_matrix`): the on-centre difference of Itti, Koch and Niebur (1998) at one scale. A
    constant presence gives zeros.

    Args:
        presence: [n, n] in [0, 1], of the blend on the maps' own grid (`presence`). The deviations are
            measured in its cells, and the result is enlarged.
    """
    centre, surround = centre_surround(len(presence))
    contrast = centre @ presence @ centre.T - surround @ presence @ surround.T
    return np.maximum(resize_plane(contrast.astype(np.float32), GRID), 0)


def centre_surround(n: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Gaussians of centre and surround on a grid of n cells a side: float32 [n, n] each."""
    scale = n / GRID
    return gaussian_matrix(n, CENTRE_SIGMA * scale), gaussian_matrix(n, SURROUND_SIGMA * scale)


def _boundary(labels: Plane) -> Plane:
    boundary = np.zeros(labels.shape, bool)
    down, right = labels[1:] != labels[:-1], labels[:, 1:] != labels[:, :-1]
    boundary[1:] |= down
    boundary[:-1] |= down
    boundary[:, 1:] |= right
    boundary[:, :-1] |= right
    return boundary.astype(np.float32)


def presence(similarity: Plane, calibrated: bool) -> NDArray[np.float64]:
    """How present an interest is, in [0, 1], by its similarity [n, n].

    A calibrated similarity is a strength s >= 0 (`Distribution.strength`), and its presence ``s / (s + 5)``:
    the same in every image. Of one that is not calibrated no more is known than its order, and it is brought
    to [0, 1] within the image, by `to_unit`.
    """
    if not calibrated:
        return to_unit(similarity)
    strength = similarity.astype(np.float64)
    return strength / (strength + HALF_PRESENT)


def to_unit(plane: Plane) -> NDArray[np.float64]:
    """``(plane - min) / (max - min)``; zeros when the plane is constant.

    In float64, where neither the span of the largest float32 values nor that of denormals is lost.
    """
    values = plane.astype(np.float64)
    low, high = values.min(), values.max()
    if high - low <= _ROUNDING * max(abs(low), abs(high)):
        return np.zeros_like(values)
    unit: NDArray[np.float64] = (values - low) / (high - low)
    return unit


def _squared_gradient(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the squares of ``u[i + 1] - u[i - 1]`` along both axes, border cells repeated: in [0, 2]."""
    down, right = np.empty_like(u), np.empty_like(u)
    np.subtract(u[2:], u[:-2], out=down[1:-1])
    np.subtract(u[1], u[0], out=down[0])
    np.subtract(u[-1], u[-2], out=down[-1])
    np.subtract(u[:, 2:], u[:, :-2], out=right[:, 1:-1])
    np.subtract(u[:, 1], u[:, 0], out=right[:, 0])
    np.subtract(u[:, -1], u[:, -2], out=right[:, -1])
    return down * down + right * right
