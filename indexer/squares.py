"""The square that encoders and channels take, of a picture of any shape."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image, fromarray, merge
from torch.nn import functional as F

from .images import LoadedImage, to_srgb


def to_square(image: Image, side: int) -> NDArray[np.uint8]:
    """The whole of `image` (mode RGB) squashed to a square: uint8 [side, side, 3], rows top to bottom.

    Bicubic and antialiased, by the formulas of Pillow, in torch, which takes a fourth of Pillow's time. All
    values of a colour lie together in memory, as those of an image in a batch do.
    """
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    made = F.interpolate(pixels[None], size=(side, side), mode="bicubic", antialias=True)
    square: NDArray[np.uint8] = made[0].permute(1, 2, 0).numpy()
    return square


def square_of(loaded: LoadedImage, side: int) -> NDArray[np.uint8]:
    """`to_square` of an image, in sRGB.

    Its colours are converted last, as of images that a GPU decodes: a photo has ten times as many pixels.
    """
    square = to_square(loaded.stored, side)
    if not loaded.profile:
        return square
    # Plane by plane, as values of a colour lie together.
    stored = merge("RGB", [fromarray(plane) for plane in square.transpose(2, 0, 1)])
    return np.stack([np.asarray(plane) for plane in to_srgb(stored, loaded.profile).split()]).transpose(
        1, 2, 0
    )
