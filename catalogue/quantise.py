"""Float planes to bytes a cell, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError
from .types import Planes

LEVELS = 255


def quantise(planes: NDArray[np.float32], labels: NDArray[np.bool_] | None = None) -> Planes:
    """Quantise float planes [C, H, W] to uint8, with the range of each plane kept.

    The error of a value is at most (high - low) / 510. A plane that `labels` [C] marks holds whole numbers
    from 0 to 255 and is kept exactly.

    Raises:
        UsageError: a value is not finite, or the shape is not [C, H, W] with at least one cell.
    """
    if planes.ndim != 3 or planes.size == 0:
        raise UsageError(f"planes must be [C, H, W] with at least one cell, got shape {planes.shape}")
    low = planes.min(axis=(1, 2)).astype(np.float32)
    high = planes.max(axis=(1, 2)).astype(np.float32)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UsageError("planes must be finite; a plane holds NaN or infinity")
    if labels is not None:
        low[labels] = 0
        high[labels] = LEVELS
    span = high.astype(np.float64) - low
    scale = np.divide(LEVELS, span, out=np.zeros_like(span), where=span > 0)
    values = np.rint((planes - low[:, None, None].astype(np.float64)) * scale[:, None, None])
    return Planes(np.clip(values, 0, LEVELS).astype(np.uint8), low, high)


def dequantise(planes: Planes) -> NDArray[np.float32]:
    """Float planes [C, H, W] of quantised ones."""
    span = planes.high.astype(np.float64) - planes.low
    step = (span / LEVELS).astype(np.float32)
    return planes.values * step[:, None, None] + planes.low[:, None, None]
