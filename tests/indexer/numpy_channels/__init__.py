"""Base channels: the planes that an image's pixels give, without any interest.

This is the reference implementation, on NumPy, SciPy and scikit-image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from texcat.catalogue.channels import ChannelSchema, Group
from texcat.catalogue.errors import UsageError
from texcat.catalogue.types import GRID
from texcat.indexer.images import WORKING_SIZE

from .appearance import Appearance
from .edges import Edges
from .pixels import Pixels
from .saliency import Saliency
from .segments import Clusters, Objects

__all__ = ["ChannelInputs", "base_channels"]

_STACK = 3


@dataclass(frozen=True, slots=True, eq=False)
class ChannelInputs:
    """What base channels are made from.

    Attributes:
        rgb: uint8 [512, 512, 3], sRGB, upright, the whole image squashed to a square.
        features: float32 [dim, gh, gw], finite: the encoder's patch features, by which clusters are
            merged into objects; None to merge them by colour.

    Raises:
        UsageError: an array has another shape or type, or features are not finite.
    """

    rgb: NDArray[np.uint8]
    features: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.rgb.shape != (WORKING_SIZE, WORKING_SIZE, 3) or self.rgb.dtype != np.uint8:
            raise UsageError(
                f"rgb must be uint8 [{WORKING_SIZE}, {WORKING_SIZE}, 3], "
                f"got {self.rgb.dtype} {list(self.rgb.shape)}; resize the image first"
            )
        features = self.features
        if features is None:
            return
        if features.ndim != _STACK or features.dtype != np.float32 or features.size == 0:
            raise UsageError(
                f"features must be float32 [dim, gh, gw], got {features.dtype} {list(features.shape)}"
            )
        if not np.isfinite(features).all():
            raise UsageError("features hold NaN or infinity; the encoder's output cannot be used")


def base_channels(inputs: ChannelInputs, schema: ChannelSchema) -> NDArray[np.float32]:
    """The channels of `schema` that are stored once per image, in its order: float32 [C, 32, 32].

    Each value lies in its channel's range. The same input gives the same bytes. Only what the schema
    asks for is computed, and what several channels share is computed once.
    """
    pixels = Pixels(inputs.rgb)
    clusters = Clusters(pixels)
    makers: dict[Group, object] = {
        Group.APPEARANCE: Appearance(pixels),
        Group.EDGES: Edges(pixels),
        Group.SALIENCY: Saliency(pixels),
        Group.CLUSTERS: clusters,
        Group.OBJECTS: Objects(pixels, clusters, inputs.features),
    }
    stored = schema.stored.channels
    planes = np.empty((len(stored), GRID, GRID), np.float32)
    for plane, channel in zip(planes, stored, strict=True):
        # Each maker has a property by the name of each of its group's channels. Rounding may leave
        # a value a hair outside its range: white has a lightness of 100.00001.
        np.clip(getattr(makers[channel.group], channel.name), channel.low, channel.high, out=plane)
    return planes
