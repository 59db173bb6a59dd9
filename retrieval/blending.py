"""From stored planes and matched interests to one texture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..catalogue.channels import ChannelSchema
from ..catalogue.codec import dequantise
from ..catalogue.derived import interest_edges, interest_saliency
from ..catalogue.grid import grid_channels, resize_plane
from ..catalogue.types import GRID, Planes
from .types import Match

CONFIDENT = 0.5
"""From this confidence on, the interests alone make the similarity."""


def own_share(confidence: float) -> float:
    """Part of the question's own map in the similarity: ``max(0, 1 - confidence / 0.5)``.

    A question that an interest answers well costs no encoder; one that no interest answers is seen through
    its own words; between, the two are mixed in proportion.
    """
    return max(0.0, 1.0 - confidence / CONFIDENT)


def blend_maps(maps: Mapping[int, Planes], matches: Sequence[Match]) -> NDArray[np.float32]:
    """Weighted sum of interest maps: float32 [32, 32], on the encoder's scale.

    Maps are summed on the grid they are stored on, and enlarged once. `maps` holds a plane [1, h, w] for
    each match; all have one size.
    """
    total = sum(match.weight * dequantise(maps[match.interest.id])[0] for match in matches)
    return resize_plane(np.asarray(total, np.float32), GRID)


def texture_planes(
    held: ChannelSchema, base: Planes, similarity: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Every channel of a catalogue for one image: name -> float32 [32, 32].

    Args:
        held: channels of the catalogue, the edges and interest groups among them.
        base: base texture of the image: the stored channels of `held`, in order.
        similarity: blended map [32, 32].
    """
    planes = dict(zip(held.stored.names, dequantise(base), strict=True))
    return {
        **planes,
        **grid_channels(),
        "similarity": similarity,
        "interest_edges": interest_edges(similarity, planes["edge_magnitude"]),
        "interest_saliency": interest_saliency(similarity),
    }
