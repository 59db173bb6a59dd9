"""Decoding one image: from bytes to an upright RGB picture.

Files come from anywhere, so nothing in them is trusted: the format is told from the first bytes and
never from the name, the size is checked before a pixel is decoded, and whatever a decoder raises
becomes an `ImageReadError` with a reason of one line.
"""

from __future__ import annotations

import os
import struct
from codecs import getincrementaldecoder
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import ImageCms
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.Image import Image, Transpose, fromarray, new
from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from ..catalogue.errors import ImageReadError
from ..catalogue.types import ImageKey
from .reading import one_line, read_content

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 250_000_000
"""Largest width x height that a header may claim: above the 200 megapixels of the largest phone cameras."""

MAX_DECODED_PIXELS = 89_478_485
"""Most pixels that are decoded at once: where Pillow begins to suspect a decompression bomb, 358 MB at the
4 bytes that it takes for a pixel. Large JPEGs stay far below it, because they are decoded reduced."""

WORKING_SIZE = 512
"""Side, in pixels, of the square that channels are made from; a JPEG is decoded to twice that or more."""

BACKGROUND = (255, 255, 255)
"""Colour, RGB, that transparent pixels are laid upon: white, the page that such pictures are drawn for."""

_ORIENTATION_TAG = 0x0112
_TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
"""EXIF 2.3, tag Orientation: what turns the stored picture upright. From 5 on, width and height swap."""
_FIRST_SIDEWAYS = 5

_OPENERS: dict[str, type[ImageFile]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "GIF": GifImageFile,
    "WebP": WebPImageFile,
    "TIFF": TiffImageFile,
    "BMP": BmpImageFile,
    "PPM": PpmImageFile,
    "AVIF": AvifImageFile,
    "JPEG 2000": Jpeg2KImageFile,
}
"""The only decoders that are used. Pillow's `open` is not: it would run Ghostscript on a file that looks
like EPS, and it warns of bombs through the process-wide warning filters, which threads cannot scope."""

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
)
_OTHER_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"8BPS", "a Photoshop document"),
    (b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
)
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_PROBE = 512


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image as the indexer sees it.

    Attributes:
        key: digest of the file's content.
        stored: mode RGB, upright, opaque, in the colours of `profile`; smaller than `size` where a large JPEG
            was decoded reduced.
        size: (width, height) in pixels of the upright original.
        profile: ICC profile; empty where `stored` is sRGB.
    """

    key: ImageKey
    stored: Image
    size: tuple[int, int]
    profile: bytes

    @property
    def image(self) -> Image:
        """`stored` in sRGB. Of a photo of megapixels it takes long: where a square is wanted, `square_of`."""
        return to_srgb(self.stored, self.profile) if self.profile else self.stored


class _UnreadableError(Exception):
    """Why content cannot be read, before the name of the file is added."""


def load_image(path: str | bytes | os.PathLike[str]) -> LoadedImage:
    """Read and decode the image file at `path`.

    Raises:
        ImageReadError: as `read_content` and `decode_image`.
    """
    name = os.fspath(path)
    return decode_image(read_content(name), name)


def decode_image(content: bytes, name: str | bytes) -> LoadedImage:
    """Decode `content`, the whole of the file called `name`, to an upright, opaque sRGB picture.

    JPEG, PNG, GIF, WebP, TIFF, BMP, PPM, AVIF and JPEG 2000 are read, and HEIC with the extra ``heif``; of
    an animation or a multi-picture file, the first picture.

    - Large JPEGs are decoded at 1/2, 1/4 or 1/8, with both sides at least 2 * `WORKING_SIZE`.
    - EXIF orientation is applied; EXIF data that cannot be parsed counts as none.
    - An ICC profile is applied (perceptual intent), now or when it is wanted; one that cannot be used counts
      as sRGB.
    - Grey values of 16 bits are divided by 65,535. Float values are taken as they are within 0 to 1; all
      other values, and integers outside 16 bits, are stretched from their minimum to their maximum.
    - Transparent pixels are laid upon `BACKGROUND`.

    Raises:
        ImageReadError: the content is no image, is damaged or cut short, or has too many pixels.
    """
    try:
        kind = _identify(content)
        opener = _heic_opener() if kind == "HEIC" else _OPENERS[kind]
    except _UnreadableError as error:
        raise ImageReadError(name, str(error)) from error
    try:
        image, size, profile = _decode(opener, content)
    except _UnreadableError as error:
        raise ImageReadError(name, str(error)) from error
    except Exception as error:  # decoders raise nearly everything on damaged data
        raise ImageReadError(name, f"is a damaged {kind} file: {one_line(error)}") from error
    return LoadedImage(ImageKey.of(content), image, size, profile)


def from_picture(image: Image) -> LoadedImage:
    """`image`, a Pillow image of any mode, as it would be if it had been read from a file.

    It has no file whose content could be its identity: its key is the BLAKE3 digest of mode, size and pixels.

    Raises:
        ImageReadError: it has too many pixels.
    """
    try:
        _check_pixels(*image.size, MAX_DECODED_PIXELS)
    except _UnreadableError as error:
        raise ImageReadError(f"<{image.mode} image>", str(error)) from error
    head = f"texcat picture {image.mode} {image.width}x{image.height}\n".encode()
    return LoadedImage(ImageKey.of(head + image.tobytes()), *_upright(image.copy(), image.size))


def colour_table(profile: bytes, side: int) -> NDArray[np.uint8] | None:
    """What the colours of an ICC profile are in sRGB: uint8 [side, side, side, 3], by red, green and blue.

    None where they are the same: for a profile that is sRGB, or cannot be used.
    """
    steps = np.rint(np.linspace(0, 255, side)).astype(np.uint8)
    cube = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1)
    image = fromarray(cube.reshape(side, side * side, 3))
    converted = to_srgb(image, profile)
    return None if converted is image else np.asarray(converted).reshape(side, side, side, 3)


def _identify(content: bytes) -> str:
    """Name of the format, from the first bytes; a key of `_OPENERS`, or ``HEIC``."""
    head = content[:_PROBE]
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "WebP"
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":  # two reserved fields, always zero
        return "BMP"
    if head[:1] == b"P" and head[1:2] in (b"1", b"2", b"3", b"4", b"5", b"6", b"f") and head[2:3].isspace():
        return "PPM"
    if head[4:8] == b"ftyp":
        return _identify_box(head)
    raise _UnreadableError(_looks_like(head))


def _identify_box(head: bytes) -> str:
    """Format of an ISO base media file (ISO 14496-12): its `ftyp` box lists the brands it may be read as."""
    box = head[8 : int.from_bytes(head[:4], "big")]
    brands = {box[at : at + 4] for at in range(0, len(box), 4)}
    if brands & {b"avif", b"avis"}:
        return "AVIF"
    if brands & _HEIC_BRANDS:
        return "HEIC"
    raise _UnreadableError("is not an image: it looks like a video")


def _looks_like(head: bytes) -> str:
    """Reason that says what content is, when it is no image."""
    if not head:
        return "is empty (0 bytes)"
    for signature, kind in _OTHER_SIGNATURES:
        if head.startswith(signature):
            return f"is not an image: it looks like {kind}"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "is not an image: it looks like an HTML page"
    if text.startswith((b"<svg", b"<?xml", b"<!doctype svg")):
        return "is not an image of pixels: it looks like SVG or XML"
    if _is_text(head):
        return "is not an image: it looks like text"
    return f"is not an image that can be read: it starts with the bytes {head[:8].hex(' ')}"


def _is_text(head: bytes) -> bool:
    decoder = getincrementaldecoder("utf-8")()  # lets the head end within a character
    try:
        text = decoder.decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def _heic_opener() -> type[ImageFile]:
    try:
        from pillow_heif import HeifImageFile
    except ImportError as error:
        raise _UnreadableError('is a HEIC image: `pip install "texcat[heif]"` to read it') from error
    return HeifImageFile


def _decode(opener: type[ImageFile], content: bytes) -> tuple[Image, tuple[int, int], bytes]:
    """Upright RGB picture, the (width, height) of the upright original, and the profile of its colours."""
    file = opener(BytesIO(content))
    width, height = file.size
    _check_pixels(width, height, MAX_PIXELS)
    if isinstance(file, JpegImageFile):
        file.draft(None, (2 * WORKING_SIZE, 2 * WORKING_SIZE))
    _check_pixels(*file.size, MAX_DECODED_PIXELS)
    file.load()
    return _upright(file, (width, height))


def _upright(image: Image, size: tuple[int, int]) -> tuple[Image, tuple[int, int], bytes]:
    """`image` turned as its EXIF data say, in RGB; the `size` of its original, turned alike; its profile."""
    orientation = _orientation(image)
    turn = _TURNS.get(orientation)
    rgb, profile = _to_rgb(image if turn is None else image.transpose(turn))
    return rgb, (size[1], size[0]) if orientation >= _FIRST_SIDEWAYS else size, profile


def _check_pixels(width: int, height: int, limit: int) -> None:
    if width * height > limit:
        raise _UnreadableError(
            f"has {width:,} x {height:,} pixels, more than the limit of {limit:,}; make it smaller"
        )


def _orientation(file: Image) -> int:
    """EXIF orientation, 1 to 8, of a decoded file. TIFF files are turned by their decoder, and give 1."""
    try:
        value = file.getexif().get(_ORIENTATION_TAG, 1)
    except (LookupError, OSError, SyntaxError, TypeError, ValueError, Warning, struct.error):
        return 1  # not EXIF at all; a Warning is raised only where warnings are errors
    return value if value in _TURNS else 1


def _to_rgb(image: Image) -> tuple[Image, bytes]:
    """`image` in RGB, and the ICC profile of its colours; none if it is in sRGB, as from any other mode."""
    profile = image.info.get("icc_profile") or b""
    if image.mode == "F" or image.mode.startswith("I"):
        image = _deep_grey(image)
    elif image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode not in ("L", "RGB", "CMYK"):
        image = image.convert("RGB")
    if profile and (image.mode != "RGB" or _transform(profile, "RGB") is None):
        image, profile = to_srgb(image, profile), b""
    if image.mode == "RGBA":
        page = new("RGBA", image.size, (*BACKGROUND, 255))
        page.alpha_composite(image)
        image = page
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    rgb.info = {}
    return rgb, profile


def _deep_grey(image: Image) -> Image:
    """Mode L of a picture with more than 8 bits of grey."""
    values = np.asarray(image if image.mode == "F" else image.convert("I"), np.float64)
    top = 1.0 if image.mode == "F" else 65535.0
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    if low < 0.0 or high > top:
        values, top = values - low, max(high - low, np.finfo(np.float64).tiny)
    scaled = np.where(finite, values, 0.0) * (255.0 / top)
    return fromarray(np.rint(scaled).astype(np.uint8))


def to_srgb(image: Image, profile: bytes) -> Image:
    """`image` (mode L, RGB, RGBA or CMYK) with the colours that `profile` means, in sRGB."""
    transform = _transform(profile, image.mode)
    if transform is None:
        return image
    converted = transform.apply(image)
    converted.info = {}
    return converted


@lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Transform to sRGB; None where the profile is sRGB, damaged, or of another kind of picture.

    Kept: it takes as long as applying it.
    """
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        if "sRGB" in ImageCms.getProfileDescription(source):
            return None
        target = ImageCms.createProfile("sRGB")
        return ImageCms.buildTransform(source, target, mode, "RGBA" if mode == "RGBA" else "RGB")
    except (ImageCms.PyCMSError, OSError):
        return None
