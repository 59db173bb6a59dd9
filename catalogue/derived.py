"""Channels that follow from the similarity of an interest, made at look-up.

Both read the *shape* of a similarity map: its scale is the encoder's own, so it is first brought to
u in [0, 1] by its own minimum and maximum. How confident a map is must be read from ``similarity``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .grid import Plane, gaussian_matrix
from .types import GRID

CENTRE_SIGMA = 1.0
"""Standard deviation of the centre, in cells."""

SURROUND_SIGMA = 6.0
"""Standard deviation of the surround, in cells: wide enough that a blob of the size at which encoders
smooth (sigma = 2 cells) keeps 0.70 of its height, narrow enough to be local on 32 cells."""

_ROUNDING = 1e-6
"""A map whose span is below this part of its largest value is constant but for float32 rounding."""

_CENTRE = gaussian_matrix(GRID, CENTRE_SIGMA).astype(np.float64)
_SURROUND = gaussian_matrix(GRID, SURROUND_SIGMA).astype(np.float64)


def interest_edges(similarity: Plane, edge_magnitude: Plane) -> Plane:
    """Edge energy where the similarity is high or changes: float32 [32, 32] in [0, 1].

    ``edge_magnitude * (u + g - u * g)`` with u the similarity brought to [0, 1] and g the magnitude of
    its gradient: central differences over two cells (borders repeated), divided by sqrt(2), in [0, 1].
    A constant similarity gives zeros.

    Args:
        similarity: float32 [32, 32], finite, any scale.
        edge_magnitude: float32 [32, 32] in [0, 1].
    """
    u = _to_unit(similarity)
    change = np.sqrt(_squared_gradient(u) / 2)
    return (edge_magnitude * (u + change - u * change)).astype(np.float32)


def interest_saliency(similarity: Plane) -> Plane:
    """Where the similarity stands out from what surrounds it: float32 [32, 32] in [0, 1].

    ``max(0, G1(u) - G6(u))`` with u the similarity brought to [0, 1] and G1, G6 Gaussians with standard
    deviations of 1 and 6 cells (`gaussian_matrix`): the on-centre difference of Itti, Koch and Niebur
    (1998) at one scale. A constant similarity gives zeros.

    Args:
        similarity: float32 [32, 32], finite, any scale.
    """
    u = _to_unit(similarity)
    contrast = _CENTRE @ u @ _CENTRE.T - _SURROUND @ u @ _SURROUND.T
    return np.maximum(contrast, 0).astype(np.float32)


def _to_unit(similarity: Plane) -> NDArray[np.float64]:
    """``(similarity - min) / (max - min)``; zeros when the similarity is constant.

    In float64, where neither the span of the largest float32 values nor that of denormals is lost.
    """
    values = similarity.astype(np.float64)
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
