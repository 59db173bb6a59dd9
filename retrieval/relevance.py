"""From a texture to relevance: one number a position, which an allocator reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..catalogue.derived import to_unit

SIMILARITY_WEIGHT = 0.8
EDGE_WEIGHT = 0.1
SALIENCY_WEIGHT = 0.1

Plane = NDArray[np.float32]


def relevance(similarity: Plane, edges: Plane | None, saliency: Plane | None) -> Plane:
    """Relevance float32 [32, 32] in [0, 1]: a weighted mean of planes, each brought to its own [0, 1].

    ``(0.8 similarity + 0.1 edges + 0.1 saliency)``, over the planes that are held, divided by their weights'
    sum. It orders the positions of one image for one question; it does not compare images.
    """
    parts = [(SIMILARITY_WEIGHT, similarity), (EDGE_WEIGHT, edges), (SALIENCY_WEIGHT, saliency)]
    held = [(weight, plane) for weight, plane in parts if plane is not None]
    total = sum(weight * to_unit(plane) for weight, plane in held)
    return np.asarray(total / sum(weight for weight, _ in held), np.float32)
