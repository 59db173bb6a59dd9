"""From a texture to relevance: one number a position, which an allocator reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..catalogue.derived import to_unit

PRESENCE_WEIGHT = 0.8
EDGE_WEIGHT = 0.1
SALIENCY_WEIGHT = 0.1

Plane = NDArray[np.float32]


def relevance(presence: NDArray[np.float64], edge_magnitude: Plane | None, saliency: Plane | None) -> Plane:
    """Relevance float32 [32, 32] in [0, 1]: a weighted mean of what an allocator goes by.

    ``0.8 presence + 0.1 edges + 0.1 saliency``, over what is held, divided by the sum of the weights. Edges
    and saliency are brought to [0, 1] within the image: where the interests are not, they decide.

    Args:
        presence: [32, 32] in [0, 1], of the similarity (`derived.presence`).
        edge_magnitude, saliency: float32 [32, 32] on any scale; None when not held.
    """
    parts = [(EDGE_WEIGHT, edge_magnitude), (SALIENCY_WEIGHT, saliency)]
    held = [(PRESENCE_WEIGHT, presence)]
    held += [(weight, to_unit(plane)) for weight, plane in parts if plane is not None]
    total = sum(weight * plane for weight, plane in held)
    return np.asarray(total / sum(weight for weight, _ in held), np.float32)
