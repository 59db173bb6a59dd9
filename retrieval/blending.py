"""From stored planes and matched interests to one texture: the rules, in numpy.

A look-up takes the fast way through `kernels`, which tests hold equal to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..catalogue.channels import ChannelSchema
from ..catalogue.derived import derived_planes, interest_edges, interest_saliency, presence
from ..catalogue.grid import enlarge_map, grid_channels
from ..catalogue.quantise import dequantise
from ..catalogue.types import Planes
from ..catalogue.weights import CONFIDENT
from .types import Match

Plane = NDArray[np.float32]


def own_share(confidence: float) -> float:
    """Part of the question's own map in the similarity: ``max(0, 1 - confidence / 0.5)``.

    A question that an interest answers well costs no encoder; one that no interest answers is seen through
    its own words; between, the two are mixed in proportion.
    """
    return max(0.0, 1.0 - confidence / CONFIDENT)


def blend(planes: Iterable[Plane], matches: Sequence[Match], calibrated: bool) -> Plane:
    """Sum of the maps of `matches`, each times its weight: float32 [n, n]. The reference for `kernels`.

    Args:
        planes: a map for each match, float32 [n, n], on the scale of the encoder.
        matches: each with a distribution, if `calibrated`.
        calibrated: whether it is the strengths of the maps that are summed (`Distribution.strength`): they
            are on one scale for all interests, and values are not.
    """
    total: Plane = np.zeros((), np.float32)
    for plane, match in zip(planes, matches, strict=True):
        part = plane
        if calibrated:
            assert match.distribution is not None
            part = match.distribution.strength(plane)
        total = np.asarray(total + np.float32(match.weight) * part, np.float32)
    return total


def texture_planes(held: ChannelSchema, base: Planes, blended: Plane, calibrated: bool) -> dict[str, Plane]:
    """Every channel of a catalogue for one image: name -> float32 [32, 32].

    The reference for `kernels.Assembler`.

    Args:
        held: channels of the catalogue.
        base: base texture of the image: the stored channels of `held`, in order.
        blended: similarity on the maps' own grid, [n, n].
        calibrated: whether it is made of strengths.
    """
    stored = dict(zip(held.stored.names, dequantise(base), strict=True))
    similarity = enlarge_map(blended)
    if calibrated:
        similarity = np.maximum(similarity, 0)
    return {
        **stored,
        **derived_planes(stored),
        **grid_channels(),
        "similarity": similarity,
        "interest_edges": interest_edges(presence(similarity, calibrated), stored["edge_magnitude"]),
        "interest_saliency": interest_saliency(presence(blended, calibrated)),
    }
