"""From stored planes and matched interests to one texture: the rules, in numpy.

A look-up takes the fast way through `kernels`, which tests hold equal to this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..catalogue.channels import ChannelSchema
from ..catalogue.derived import derived_planes, interest_edges, interest_saliency
from ..catalogue.grid import grid_channels, resize_plane
from ..catalogue.quantise import dequantise
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
    """Weighted sum of interest maps, on the grid and the scale that they are stored on: float32 [n, n].

    `maps` holds a plane [1, n, n] for each match. The reference for `kernels.add_map`.
    """
    total = sum(match.weight * dequantise(maps[match.interest.id])[0] for match in matches)
    return np.asarray(total, np.float32)


def texture_planes(
    held: ChannelSchema, base: Planes, blend: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Every channel of a catalogue for one image: name -> float32 [32, 32].

    The reference for `kernels.Assembler`.

    Args:
        held: channels of the catalogue.
        base: base texture of the image: the stored channels of `held`, in order.
        blend: similarity on the maps' own grid, [n, n].
    """
    stored = dict(zip(held.stored.names, dequantise(base), strict=True))
    similarity = resize_plane(blend, GRID)
    return {
        **stored,
        **derived_planes(stored),
        **grid_channels(),
        "similarity": similarity,
        "interest_edges": interest_edges(similarity, stored["edge_magnitude"]),
        "interest_saliency": interest_saliency(blend),
    }
