"""What a GPU decodes is squashed, turned and put in order as the processor does it.

The kernel is run by Triton's interpreter on a processor: `test_kernels` runs this file in a process of its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import skimage
import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Transpose
from texcat.catalogue.channels import ChannelSchema
from texcat.catalogue.errors import ImageReadError
from texcat.indexer import decoding, resampling, textures
from texcat.indexer.decoding import Decoder
from texcat.indexer.jpeg import PlainJpeg
from texcat.indexer.resampling import squares
from texcat.indexer.squares import to_square
from texcat.indexer.textures import TextureMaker
from torch import Tensor
from torch.nn import functional as F

from ..fakes import TinyEncoder
from .test_images import adobe_rgb
from .test_jpeg import exif

SIDE = 64
WORKING_SIZE = 40
"""Smaller than it is, for speed."""

SHAPES = [(96, 72), (200, 41), (23, 180), (64, 64), (30, 20), (1, 16), (16, 1), (2, 3), (65, 1)]
REFUSED = b"refused"
NAMES = ("astronaut.png", "coffee.png", "rocket.jpg")


@pytest.fixture(autouse=True)
def many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer programs, as the interpreter is slow."""
    monkeypatch.setattr(resampling, "_ROWS", 32)


def photo(name: str, *size: int) -> Image.Image:
    with Image.open(Path(skimage.__file__).parent / "data" / name) as image:
        return image.convert("RGB").resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)


def tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def array(square: Tensor) -> NDArray[np.uint8]:
    made: NDArray[np.uint8] = square.permute(1, 2, 0).numpy()
    return made


def weights(n: int, side: int) -> Tensor:
    """[side, n], by the formula."""
    step = n / side
    centre = (torch.arange(side, dtype=torch.float64) + 0.5) * step
    x = ((torch.arange(n) + 0.5 - centre[:, None]) / max(step, 1)).abs()
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    made = torch.where(x < 1, near, torch.where(x < 2, far, 0))
    return made / made.sum(1, keepdim=True)


def assert_right(made: Tensor, image: Tensor, orientation: int, scale: int = 1) -> None:
    """A square is what the formula gives, to the nearest whole number."""
    pixels = F.avg_pool2d(image.double()[None], scale, ceil_mode=True)[0]
    rows, columns = (weights(n, made.shape[1]) for n in pixels.shape[1:])
    exact = PlainJpeg((1, 1), orientation).turn(rows @ pixels @ columns.T).clamp(0, 255)
    assert (made - exact).abs().max() <= 0.5 + 1e-3


def test_images_of_all_shapes_and_orientations_become_squares_at_one_go() -> None:
    images = [tensor(photo(NAMES[place % 3], *shape)) for place, shape in enumerate(SHAPES)]
    orientations = [1 + place % 8 for place in range(len(images))]
    made = squares(images, orientations, SIDE)
    assert made.dtype == torch.uint8
    assert made.is_contiguous()
    assert made.shape == (len(images), 3, SIDE, SIDE)
    for square, image, orientation in zip(made, images, orientations, strict=True):
        assert_right(square, image, orientation)


@pytest.mark.parametrize(("size", "side"), [((160, 120), 100), ((150, 100), 256), ((40, 160), 48)])
def test_squares_are_those_of_pillow(size: tuple[int, int], side: int) -> None:
    image = photo("coffee.png", *size)
    made = squares([tensor(image)], [1], side)[0]
    difference = np.abs(array(made) - to_square(image, side).astype(float))
    assert difference.mean() < 0.3  # levels of 255
    assert difference.max() < 16  # where Pillow rounds and clamps, or takes means, before it is done


def test_all_orientations_are_turned_as_pillow_does() -> None:
    image = photo("astronaut.png", 20, 16)
    made = squares([tensor(image)] * 8, range(1, 9), 12)
    upright = Image.fromarray(array(made[0]))
    for place, turn in enumerate((0, 3, 1, 5, 4, 6, 2), start=1):
        np.testing.assert_array_equal(array(made[place]), np.array(upright.transpose(Transpose(turn))))


@pytest.mark.parametrize("side", [2, 27, 33])
def test_sides_are_of_any_size(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    image = tensor(photo("rocket.jpg", 30, 40))
    assert_right(squares([image], [6], side)[0], image, 6)


def test_values_beyond_0_and_255_are_clamped() -> None:
    image = torch.zeros(3, 30, 30, dtype=torch.uint8)
    image[:, 8:22, 15:] = 255
    made = squares([image], [1], SIDE)[0]
    assert_right(made, image, 1)
    assert set(made[0, SIDE // 2, [*range(12), *range(-12, 0)]].tolist()) == {0, 255}


@pytest.mark.parametrize(("size", "scale"), [((15, 50), 1), ((17, 16), 2), ((33, 43), 4), ((65, 69), 8)])
def test_means_are_taken_of_large_images(
    size: tuple[int, int], scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "WORKING_SIZE", 4)
    large, small = tensor(photo("coffee.png", *size)), tensor(photo("rocket.jpg", 9, 12))
    made = squares([small, large], [3, 8], 7)
    assert_right(made[0], small, 3)
    assert_right(made[1], large, 8, scale)


@pytest.mark.parametrize(
    ("n", "scale"), [(1, 1), (480, 1), (511, 1), (30_000, 1), (2100, 2), (4303, 4), (8195, 8)]
)
def test_lines_are_the_formula(n: int, scale: int) -> None:
    line = resampling._line(n, scale, 512)
    pixels = line[0] + np.arange(len(line) - 1)[:, None]
    assert pixels.min() >= 0
    assert (np.diff(line[0]) >= 0).all()
    made = np.zeros((512, n))
    np.put_along_axis(made, pixels.T, line[1:].view(np.float32).T, axis=1)
    expected = weights(-(-n // scale), 512).numpy()
    mean = np.arange(n) // scale
    expected = expected[:, mean] / np.bincount(mean)[mean]
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-7)


def as_nvjpeg(_: Decoder, contents: Sequence[bytes]) -> list[Tensor | None]:
    """What `Decoder._by_gpu` gives: pixels neither turned nor converted; None for a file that it refuses."""
    made: list[Tensor | None] = []
    for content in contents:
        with Image.open(BytesIO(content)) as image:
            made.append(None if REFUSED in content else tensor(image.convert("RGB")))
    return made


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    content = BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def mixed() -> list[bytes]:
    """Five files that a GPU decodes, one that it refuses, two that are no plain JPEG, one that is damaged."""
    whole = encoded(photo("coffee.png", 64, 48), quality=95)
    return [
        whole[:900],
        encoded(photo("rocket.jpg", 60, 50), quality=95),
        encoded(photo("astronaut.png", 80, 60), "PNG"),
        encoded(photo("astronaut.png", 60, 44), quality=95, icc_profile=adobe_rgb()),
        encoded(photo("astronaut.png", 50, 40), quality=95, icc_profile=b"no profile"),
        whole,
        encoded(photo("coffee.png", 70, 60), quality=95, comment=REFUSED),
        encoded(photo("rocket.jpg", 80, 90).convert("CMYK"), quality=95),
        encoded(photo("rocket.jpg", 40, 60), quality=95, exif=exif(6)),
    ]


@pytest.mark.parametrize(
    ("chosen", "side", "damaged", "on_cpu"),
    [
        (slice(None), 32, [0], 4),
        (slice(None), WORKING_SIZE, [0], 4),
        (slice(3, 6), WORKING_SIZE, [], 0),
        (slice(0, 3, 2), WORKING_SIZE, [0], 2),
    ],
)
def test_a_batch_decoded_by_a_gpu_is_what_the_processor_makes(
    chosen: slice, side: int, damaged: list[int], on_cpu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (decoding, textures):
        monkeypatch.setattr(module, "WORKING_SIZE", WORKING_SIZE)
    monkeypatch.setattr(TinyEncoder, "input_size", side)
    monkeypatch.setattr(Decoder, "_by_gpu", as_nvjpeg)
    maker = TextureMaker(TinyEncoder(), ChannelSchema.parse("core13"), {})
    files = [(content, b"x") for content in mixed()[chosen]]
    with Decoder(maker) as decoder:
        expected = decoder.decode(files)
    with Decoder(maker) as decoder:
        decoder._pool = ThreadPoolExecutor(2)
        made = decoder.decode(files)
    assert decoder.on_cpu == on_cpu
    assert [str(each) for each in made.outcomes] == [str(each) for each in expected.outcomes]
    unread = [place for place, each in enumerate(made.outcomes) if isinstance(each, ImageReadError)]
    assert unread == damaged
    assert (made.squares is made.working) == (side == WORKING_SIZE)
    for each, other in ((made.working, expected.working), (made.squares, expected.squares)):
        assert each is not None
        assert other is not None
        assert (each.dtype, each.shape) == (other.dtype, other.shape)
        difference = (each.float() - other.float()).abs()
        assert difference.mean((1, 2, 3)).max() < 1  # most where colours were converted
