"""Files that an indexer meets sooner or later, each with what must come of it."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pillow_heif
from PIL import Image

Colour = tuple[int, int, int]
Quarters = tuple[Colour, Colour, Colour, Colour]

SIZE = (64, 48)
RED, GREEN, BLUE, YELLOW = (200, 40, 40), (40, 160, 40), (40, 40, 200), (220, 200, 60)
QUARTERS: Quarters = (RED, GREEN, BLUE, YELLOW)
WHITE = (255, 255, 255)

ORIENTED: dict[int, tuple[int, int, int, int]] = {
    1: (0, 1, 2, 3),
    2: (1, 0, 3, 2),
    3: (3, 2, 1, 0),
    4: (2, 3, 0, 1),
    5: (0, 2, 1, 3),
    6: (2, 0, 3, 1),
    7: (3, 1, 2, 0),
    8: (1, 3, 0, 2),
}
"""For each EXIF orientation, which quarter of the stored picture each quarter of the upright one is.

EXIF 2.3 says where row 0 and column 0 of the stored picture lie: 1 top left, 2 top right, 3 bottom right,
4 bottom left, 5 left top, 6 right top, 7 right bottom, 8 left bottom.
"""


@dataclass(frozen=True)
class Expectation:
    """What must come of a file: a picture, or a reason that holds `refused`.

    `quarters`: colours of the top left, top right, bottom left and bottom right of the upright picture.
    """

    size: tuple[int, int] = SIZE
    quarters: Quarters = QUARTERS
    tolerance: int = 0
    refused: str | None = None


def quartered(size: tuple[int, int] = SIZE, quarters: Quarters = QUARTERS) -> Image.Image:
    """A picture with one colour in each quarter."""
    width, height = size
    image = Image.new("RGB", size, quarters[0])
    image.paste(quarters[1], (width // 2, 0, width, height))
    image.paste(quarters[2], (0, height // 2, width // 2, height))
    image.paste(quarters[3], (width // 2, height // 2, width, height))
    return image


def seen_quarters(image: Image.Image) -> Quarters:
    """Colour in the middle of each quarter."""
    width, height = image.size
    rows, columns = (height // 4, 3 * height // 4), (width // 4, 3 * width // 4)
    middles = np.asarray(image)[np.ix_(rows, columns)].reshape(4, 3).tolist()
    first, second, third, fourth = ((red, green, blue) for red, green, blue in middles)
    return first, second, third, fourth


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """The file that Pillow writes."""
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def oriented(kind: str, orientation: int, **options: object) -> bytes:
    """A file of the quartered picture whose EXIF data gives `orientation`."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(quartered(), kind, exif=exif, **options)


def upright(orientation: int, tolerance: int = 0) -> Expectation:
    """What must come of `oriented`."""
    first, second, third, fourth = (QUARTERS[quarter] for quarter in ORIENTED[orientation])
    size = SIZE[::-1] if orientation >= 5 else SIZE
    return Expectation(size, (first, second, third, fourth), tolerance)


def ycck_jpeg(colour: Colour) -> bytes:
    """An Adobe YCCK JPEG of one colour.

    Adobe stores inverted inks, 255 - C, as luma and chroma of the colour whose red is C. Pillow writes the
    four planes as they are (inverted, marked as CMYK), and byte 11 of the Adobe segment says what they mean.
    """
    inks = tuple(255 - value for value in colour)
    luma = Image.new("RGB", SIZE, inks).convert("YCbCr").getpixel((0, 0))
    assert isinstance(luma, tuple)
    planes = Image.new("CMYK", SIZE, (*(255 - value for value in luma), 0))
    content = bytearray(encoded(planes, "JPEG", quality=100))
    content[content.index(b"Adobe") + 11] = 2
    return bytes(content)


def png_claiming(width: int, height: int) -> bytes:
    """A PNG file of a few bytes whose header claims `width` x `height` pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + chunk(b"IEND", b"")
    )


def deep_grey_png() -> tuple[bytes, Quarters]:
    """A PNG of 16-bit grey, and the 8-bit colours of its quarters."""
    levels = (0, 12850, 39835, 65535)
    values = np.empty(SIZE[::-1], np.uint16)
    middle_row, middle_column = SIZE[1] // 2, SIZE[0] // 2
    values[:middle_row, :middle_column], values[:middle_row, middle_column:] = levels[:2]
    values[middle_row:, :middle_column], values[middle_row:, middle_column:] = levels[2:]
    first, second, third, fourth = ((level // 257,) * 3 for level in levels)
    return encoded(Image.fromarray(values), "PNG"), (first, second, third, fourth)


def transparent_left(mode: str) -> Image.Image:
    """The quartered picture whose left half is transparent, and black below; `mode` RGBA, LA or P."""
    if mode == "P":
        picture = quartered(quarters=((0, 0, 0), GREEN, (0, 0, 0), YELLOW)).quantize(4)
        black = picture.getpixel((0, 0))
        picture.info["transparency"] = black
        return picture
    picture = quartered(quarters=((0, 0, 0), GREEN, (0, 0, 0), YELLOW)).convert("RGBA")
    picture.putalpha(quartered(quarters=((0,) * 3, WHITE, (0,) * 3, WHITE)).convert("L"))
    return picture.convert(mode)


def make_hostile(folder: Path) -> dict[str, Expectation]:
    """Fill `folder`; what must come of each file, by its path below `folder`.

    A link to a folder above is there too: it is followed once, and is no file. What rights forbid, and what
    happens while a file is read, cannot lie in a folder: tests make it themselves.
    """
    expected: dict[str, Expectation] = {}

    def put(name: str, content: bytes, expectation: Expectation) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)
        expected[name] = expectation

    picture = quartered()
    photo = encoded(Image.effect_noise((300, 200), 60), "JPEG", quality=95)
    grey, grey_quarters = deep_grey_png()
    on_white = Expectation(quarters=(WHITE, GREEN, WHITE, YELLOW))

    put("truncated.jpg", photo[: len(photo) // 2], Expectation(refused="truncated"))
    put("empty.jpg", b"", Expectation(refused="empty"))
    put("page.jpg", b"<!DOCTYPE html>\n<html><body>404</body></html>", Expectation(refused="HTML"))
    put("notes.png", "Kein Bild, nur Wörter.\n".encode(), Expectation(refused="text"))
    put("bomb.png", png_claiming(60_000, 60_000), Expectation(refused="60,000 x 60,000 pixels"))
    put("cmyk.jpg", encoded(picture.convert("CMYK"), "JPEG", quality=95), Expectation(tolerance=4))
    put("ycck.jpg", ycck_jpeg(RED), Expectation(quarters=(RED,) * 4, tolerance=3))
    put("deep-grey.png", grey, Expectation(quarters=grey_quarters))
    put("palette.png", encoded(transparent_left("P"), "PNG"), on_white)
    put("rgba.png", encoded(transparent_left("RGBA"), "PNG"), on_white)
    _, dark, _, light = seen_quarters(picture.convert("L").convert("RGB"))
    grey_on_white = Expectation(quarters=(WHITE, dark, WHITE, light))
    put("grey-alpha.png", encoded(transparent_left("LA"), "PNG"), grey_on_white)
    for orientation in ORIENTED:
        name = f"orientation-{orientation}.jpg"
        put(name, oriented("JPEG", orientation, quality=95), upright(orientation, tolerance=4))
    others = [Image.new("RGB", SIZE, (0, 0, 0)), Image.new("RGB", SIZE, WHITE)]
    animation = {"save_all": True, "append_images": others}
    put("animated.gif", encoded(picture, "GIF", **animation), Expectation())
    put("animated.webp", encoded(picture, "WEBP", lossless=True, **animation), Expectation())
    put("picture.avif", encoded(picture, "AVIF", quality=95, subsampling="4:4:4"), Expectation(tolerance=6))
    heic = BytesIO()
    pillow_heif.from_pillow(picture).save(heic, quality=95, chroma=444)
    put("picture.heic", heic.getvalue(), Expectation(tolerance=6))
    put("one.png", encoded(Image.new("RGB", (1, 1), RED), "PNG"), Expectation((1, 1), (RED,) * 4))
    tall = Image.new("RGB", (1, 4000), BLUE)
    put("tall.png", encoded(tall, "PNG"), Expectation((1, 4000), (BLUE,) * 4))

    png = encoded(picture, "PNG")
    put("with a space.png", png, Expectation())
    put("new\nline.png", png, Expectation())
    put("emoji \N{BICYCLE}.png", png, Expectation())
    put(os.fsdecode(b"latin-\xe9.png"), png, Expectation())
    for number in range(10):
        put(f"copies/{number}.png", png, Expectation())

    put("loop/inside.png", png, Expectation())
    (folder / "loop" / "again").symlink_to("..")
    return expected | _make_what_is_no_file(folder)


def _make_what_is_no_file(folder: Path) -> dict[str, Expectation]:
    """Names of images that lead to no regular file: only a scan tells why."""
    (folder / "broken.jpg").symlink_to("nowhere.jpg")
    (folder / "itself.jpg").symlink_to("itself.jpg")
    os.mkfifo(folder / "pipe.jpg")
    return {
        "broken.jpg": Expectation(refused="link to nothing"),
        "itself.jpg": Expectation(refused="link to nothing"),
        "pipe.jpg": Expectation(refused="a named pipe"),
    }
