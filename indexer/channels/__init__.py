"""Base channels: the planes that the pixels of images give, without any interest.

It takes a batch of images, on whatever device they lie. It is torch but for sums over pixels and superpixels,
which are kernels for GPUs (`kernels`) and machine code for processors (`sums`, `slic`), as saliency is there
(`conspicuity`); and for what depends on the step before, which the host does for both (`merging`). The
straightforward version that it is tested against works on NumPy, an image at a time:
`tests/indexer/numpy_channels`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...catalogue.channels import ChannelSchema, Group
from ...catalogue.errors import UsageError
from ...catalogue.types import GRID
from ..images import WORKING_SIZE
from .appearance import Appearance
from .control import Control
from .edges import Edges
from .pixels import Pixels
from .saliency import Saliency
from .segments import Clusters, Objects

_BATCH = 4


@torch.inference_mode()
def base_channels(
    images: Tensor, features: Tensor | None, schema: ChannelSchema, control: Control | None = None
) -> Tensor:
    """The channels of `schema` that are stored once per image, in its order: float32 [B, C, 32, 32].

    Each value lies in its channel's range. Only what the schema asks for is computed, and what several
    channels share is computed once.

    Args:
        images: uint8 [B, 3, 512, 512], sRGB, upright, the whole image squashed to a square.
        features: float32 [B, dim, gh, gw] on the same device, finite: the encoder's patch features, by which
            clusters are merged into objects; None to merge them by colour.
        schema: its channels.
        control: does what cannot be a plain sequence of kernels; at once, by default.

    Raises:
        UsageError: a tensor has another shape or type.
    """
    _check(images, features)
    pixels = Pixels(images)
    control = control or Control()
    clusters = Clusters(pixels, control)
    makers: Mapping[Group, object] = {
        Group.APPEARANCE: Appearance(pixels),
        Group.EDGES: Edges(pixels),
        Group.SALIENCY: Saliency(pixels),
        Group.CLUSTERS: clusters,
        Group.OBJECTS: Objects(pixels, clusters, features, control),
    }
    stored = schema.stored.channels
    planes = torch.empty((len(images), len(stored), GRID, GRID), device=images.device)
    for place, channel in enumerate(stored):
        # Each maker has a property by the name of each of its group's channels. Rounding may leave
        # a value a hair outside its range: white has a lightness of 100.00001.
        plane: Tensor = getattr(makers[channel.group], channel.name)
        torch.clamp(plane, channel.low, channel.high, out=planes[:, place])
    return planes


def _check(images: Tensor, features: Tensor | None) -> None:
    if images.dtype != torch.uint8 or images.shape[1:] != (3, WORKING_SIZE, WORKING_SIZE):
        raise UsageError(
            f"images must be uint8 [B, 3, {WORKING_SIZE}, {WORKING_SIZE}], "
            f"got {images.dtype} {list(images.shape)}; resize them first"
        )
    if features is None:
        return
    if features.ndim != _BATCH or features.dtype != torch.float32 or len(features) != len(images):
        raise UsageError(
            f"features must be float32 [{len(images)}, dim, gh, gw], "
            f"got {features.dtype} {list(features.shape)}"
        )
