"""Knowing: three scores of a texture, by which its positions may be ranked.

After Vervaeke's kinds of knowing. *Propositional*: how much there is to know at a position, whatever is
asked. *Perspectival*: how much it draws an eye. *Participatory*: how much the question has to do with it.
Each is a pure function, float32 [32, 32] in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..catalogue.channels import CHANNELS
from ..catalogue.derived import presence, to_unit
from ..catalogue.errors import UsageError
from .types import Lookup

BINS = 8
"""Levels that a channel's range is cut into, to count values by."""

APPEARANCE = ("lightness", "green_red", "edge_magnitude", "edge_x", "edge_y", "luminance", "color_variance")
"""Channels whose values are counted, as far as a look-up has them."""

Plane = NDArray[np.float32]

_RANGES = {channel.name: (channel.low, channel.high) for channel in CHANNELS}


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What is known of each position: float32 [rows, columns] in [0, 1] each."""

    propositional: Plane
    perspectival: Plane
    participatory: Plane


def know(hit: Lookup) -> Scores:
    """The three scores of a look-up.

    Raises:
        UsageError: the look-up was made with too few channels.
    """
    counted = [name for name in APPEARANCE if name in hit.channels]
    lacking = {"similarity", "saliency", "edge_magnitude", "eccentricity"} - set(hit.channels)
    if lacking:
        raise UsageError(
            f"the scores need the channels {', '.join(sorted(lacking))}, which this look-up does not hold: "
            "enable their groups, and leave `channels` of the Retriever out"
        )
    units = [
        (hit.channel(name) - _RANGES[name][0]) / (_RANGES[name][1] - _RANGES[name][0]) for name in counted
    ]
    return Scores(
        propositional(np.stack(units)),
        perspectival(hit.channel("saliency"), hit.channel("edge_magnitude"), hit.channel("eccentricity")),
        participatory(hit.channel("similarity"), hit.matches.calibrated),
    )


def propositional(planes: Plane) -> Plane:
    """Information: the entropy of what lies around a position.

    Each channel is cut into 8 levels; of the (up to) 9 positions of the 3 x 3 around one, those inside the
    grid, p_k is the part at level k. The score is ``-sum_k p_k log p_k / log 8``, the mean over channels
    (Shannon 1948; local, as in Bruce & Tsotsos 2009).

    Args:
        planes: float32 [C, rows, columns] in [0, 1]; values beyond are taken as the bound.
    """
    levels = np.minimum((np.clip(planes, 0, 1) * BINS).astype(np.int64), BINS - 1)
    counts = _around((levels[:, None] == np.arange(BINS)[:, None, None]).astype(np.float64))
    parts = counts / counts.sum(axis=1, keepdims=True)
    entropy = -(parts * np.log(np.where(parts > 0, parts, 1))).sum(axis=1) / np.log(BINS)
    return np.asarray(entropy.mean(axis=0), np.float32)


def perspectival(saliency: Plane, edge_magnitude: Plane, eccentricity: Plane) -> Plane:
    """What draws an eye: ``(S + E + (1 - R)) / 3``.

    S and E are saliency and edges brought to [0, 1] within the image, R the eccentricity: people look at what
    stands out, and at the middle (Tatler 2007).
    """
    parts = to_unit(saliency) + to_unit(edge_magnitude) + (1 - np.clip(eccentricity, 0, 1))
    return np.asarray(parts / 3, np.float32)


def participatory(similarity: Plane, calibrated: bool) -> Plane:
    """How present is what was asked for: `derived.presence` of the similarity.

    The similarity of a look-up holds the interests' maps and, as far as no interest says it well, the
    question's own (`Lookup.own_share`).
    """
    return np.asarray(presence(similarity, calibrated), np.float32)


def _around(planes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over the 3 x 3 around each position, as far as it is inside: [..., rows, columns]."""
    padded = np.pad(planes, [(0, 0)] * (planes.ndim - 2) + [(1, 1), (1, 1)])
    rows = padded[..., :-2, :] + padded[..., 1:-1, :] + padded[..., 2:, :]
    summed: NDArray[np.float64] = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    return summed
