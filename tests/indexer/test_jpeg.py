"""Headers of JPEG files: what is plain, how it is turned, and which colours it means."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms
from PIL.Image import Transpose
from texcat.indexer.images import colour_table, decode_image
from texcat.indexer.jpeg import PlainJpeg, plain_jpeg

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)


def jpeg(image: Image.Image | None = None, **options: object) -> bytes:
    """Content of a JPEG file, of 60 x 40 pixels unless an image is given."""
    made = BytesIO()
    (image or Image.fromarray(PIXELS)).save(made, "JPEG", **options)
    return made.getvalue()


def exif(orientation: int) -> Image.Exif:
    data = Image.Exif()
    data[0x010F] = "a camera"
    data[0x0112] = orientation
    return data


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"comment": b"x"}, {"restart_marker_rows": 1}]
)
def test_a_plain_file_tells_its_size(options: dict[str, object]) -> None:
    assert plain_jpeg(jpeg(**options)) == PlainJpeg((60, 40))
    assert plain_jpeg(jpeg(Image.fromarray(PIXELS).convert("L"), **options)) == PlainJpeg((60, 40))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_turn_squares_as_pillow_does(orientation: int) -> None:
    found = plain_jpeg(jpeg(exif=exif(orientation)))
    assert found is not None
    assert found.orientation == orientation
    loaded = decode_image(jpeg(exif=exif(orientation)), b"x")
    assert found.upright_size == loaded.size
    square = Image.fromarray(PIXELS[:40, :40])
    turns = (None, *(Transpose(each) for each in (0, 3, 1, 5, 4, 6, 2)))
    turn = turns[orientation - 1]
    expected = np.array(square if turn is None else square.transpose(turn))
    turned = found.turn(torch.from_numpy(PIXELS[:40, :40].copy()).permute(2, 0, 1)[None])[0]
    np.testing.assert_array_equal(turned.permute(1, 2, 0).numpy(), expected)


def test_a_profile_is_named_and_its_table_converts_as_pillow_does() -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert colour_table(srgb, 5) is None
    assert colour_table(b"no profile", 5) is None
    found = plain_jpeg(jpeg(icc_profile=srgb))
    assert found == PlainJpeg((60, 40), profile=srgb)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xd8",
        jpeg()[:-40],
        jpeg()[:100],
        jpeg(Image.fromarray(PIXELS).convert("CMYK")),
        jpeg(Image.new("RGB", (640, 16))),
        b"\xff\xd8" + bytes(200) + b"\xff\xd9",
    ],
)
def test_what_is_left_to_pillow(content: bytes) -> None:
    assert plain_jpeg(content) is None


def test_any_bytes_are_taken() -> None:
    rng = np.random.default_rng(1)
    whole = jpeg(exif=exif(6))
    for _ in range(300):
        damaged = bytearray(whole)
        for place in rng.integers(2, 300, 4):
            damaged[place] = rng.integers(0, 256)
        plain_jpeg(bytes(damaged))
