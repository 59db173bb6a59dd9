"""The square that encoders and channels take, of a picture of any shape."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch.nn import functional as F


def to_square(image: Image, side: int) -> NDArray[np.uint8]:
    """The whole of `image` (mode RGB) squashed to a square: uint8 [side, side, 3], rows top to bottom.

    Bicubic and antialiased, by the formulas of Pillow, in torch, which takes a fourth of Pillow's time. All
    values of a colour lie together in memory, as those of an image in a batch do.
    """
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    made = F.interpolate(pixels[None], size=(side, side), mode="bicubic", antialias=True)
    square: NDArray[np.uint8] = made[0].permute(1, 2, 0).numpy()
    return square
