"""The kernels for GPUs, run by Triton's interpreter on a processor, give what machine code gives there.

`test_kernels` runs this file in a process of its own: the interpreter is chosen before Triton is imported.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import skimage
import torch
from PIL import Image
from texcat.indexer.channels import kernels, segments
from texcat.indexer.channels.pixels import CELL, Pixels
from texcat.indexer.matrices import on_device
from torch import Tensor


def photo(side: int) -> Tensor:
    with Image.open(Path(skimage.__file__).parent / "data" / "coffee.png") as image:
        resized = np.array(image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC))
    return torch.from_numpy(resized).permute(2, 0, 1)[None]


def noise(side: int) -> Tensor:
    return torch.randint(0, 256, (2, 3, side, side), generator=torch.Generator().manual_seed(0)).byte()


@pytest.mark.parametrize("images", [photo(128), noise(128), torch.full((1, 3, 128, 128), 255).byte()])
def test_sums_over_pixels(images: Tensor) -> None:
    blocks, squares, edges = kernels.pixel_means(images, CELL, 4)
    expected = Pixels(images).sums
    torch.testing.assert_close(blocks, expected.blocks, rtol=0, atol=0)
    torch.testing.assert_close(squares, expected.squares, rtol=0, atol=0)
    torch.testing.assert_close(edges, expected.edges, rtol=0, atol=2e-7)


@pytest.mark.parametrize(
    ("images", "alike"), [(photo(128) / 255, 0.999), (torch.full((1, 3, 128, 128), 0.5), 0.98)]
)
def test_superpixels(images: Tensor, alike: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an image of one colour, rows of pixels lie as near to one centre as to another, but for rounding."""
    monkeypatch.setattr(segments, "ITERATIONS", 3)
    made = kernels.superpixels(
        segments.colours(images),
        on_device(segments._start, images.device),
        on_device(segments._position, images.device),
        segments.STEP,
        2,
    )
    expected = segments.superpixels(images)
    assert (made == expected).float().mean() > alike
    assert made.dtype == expected.dtype
    assert len(made.unique()) > 80, "or there was nothing to be told apart"
