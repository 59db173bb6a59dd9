from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageFile
from texcat.catalogue.errors import ImageReadError
from texcat.catalogue.types import ImageKey
from texcat.indexer import images
from texcat.indexer.images import decode_image, from_picture, load_image
from texcat.indexer.reading import MAX_FILE_BYTES, read_content
from texcat.indexer.squares import square_of, to_square

from .hostile import (
    GREEN,
    ORIENTED,
    QUARTERS,
    RED,
    SIZE,
    WHITE,
    YELLOW,
    Colour,
    Expectation,
    encoded,
    make_hostile,
    oriented,
    png_claiming,
    quartered,
    seen_quarters,
    upright,
)

TRANSPARENT_ON_WHITE = (WHITE, GREEN, WHITE, YELLOW)


def assert_seen(content: bytes, expected: Expectation) -> None:
    loaded = decode_image(content, "picture")
    assert loaded.size == expected.size
    assert loaded.image.size == expected.size
    assert loaded.image.mode == "RGB"
    difference = np.subtract(seen_quarters(loaded.image), expected.quarters)
    assert np.abs(difference).max() <= expected.tolerance, seen_quarters(loaded.image)


def reason(content: bytes) -> str:
    with pytest.raises(ImageReadError) as caught:
        decode_image(content, "picture")
    assert caught.value.path == "picture"
    assert "\n" not in caught.value.reason
    return caught.value.reason


def heic(image: Image.Image, **options: object) -> bytes:
    buffer = BytesIO()
    pillow_heif.from_pillow(image).save(buffer, quality=95, chroma=444, **options)
    return buffer.getvalue()


# --- the hostile folder -------------------------------------------------------------------------------------


def test_each_hostile_file_is_read_rightly_or_refused_with_its_reason(tmp_path: Path) -> None:
    for name, expected in make_hostile(tmp_path).items():
        path = tmp_path / name
        if not path.exists():  # a link to nothing, which the scan reports
            with pytest.raises(ImageReadError, match="cannot be opened"):
                load_image(path)
        elif expected.refused is None:
            assert_seen(read_content(path), expected)
        else:
            with pytest.raises(ImageReadError) as caught:
                load_image(path)
            assert expected.refused in caught.value.reason
            assert caught.value.path == os.fspath(path)


# --- reading ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spell", [str, os.fsencode, Path])
def test_the_key_is_the_digest_of_the_file_however_the_path_is_spelt(spell: type, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    content = encoded(quartered(), "PNG")
    path.write_bytes(content)
    assert read_content(spell(path)) == content
    assert load_image(spell(path)).key == ImageKey.of(content)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    with pytest.raises(ImageReadError, match="a named pipe"):
        read_content(tmp_path / "pipe.jpg")
    with pytest.raises(ImageReadError, match="a folder"):
        read_content(tmp_path / "folder.jpg")
    with pytest.raises(ImageReadError, match="a device"):
        read_content("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.jpg"))
        with pytest.raises(ImageReadError, match="cannot be opened"):
            read_content(tmp_path / "s.jpg")
    with pytest.raises(ImageReadError, match="No such file"):
        read_content(tmp_path / "absent.jpg")
    with pytest.raises(ImageReadError, match="null"):
        read_content("a\0b.jpg")


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.tif"
    path.touch()
    os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(ImageReadError, match="1,073,741,825 bytes, more than the limit of 1,073,741,824"):
        read_content(path)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "growing.jpg"
    path.touch()
    os.truncate(path, 64 << 20)
    done, growing = threading.Event(), threading.Event()

    def grow() -> None:
        with path.open("ab", buffering=0) as file:
            while not done.is_set():
                file.write(b"more")
                growing.set()
                time.sleep(0)

    writer = threading.Thread(target=grow)
    writer.start()
    growing.wait()
    try:
        with pytest.raises(ImageReadError, match="changed while it was read"):
            read_content(path)
    finally:
        done.set()
        writer.join()
    assert len(read_content(path)) > 64 << 20


def test_a_file_whose_content_is_not_as_long_as_its_size_is_refused() -> None:
    with pytest.raises(ImageReadError, match="changed while it was read"):
        read_content("/proc/self/status")  # of size 0, and not empty


def test_a_file_that_vanishes_while_it_is_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gone.png"
    path.write_bytes(encoded(quartered(), "PNG"))
    with path.open("rb") as file:
        path.unlink()
        with pytest.raises(ImageReadError, match="vanished"):
            read_content(f"/proc/self/fd/{file.fileno()}")


# --- what is no image ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty (0 bytes)"),
        (b"\xef\xbb\xbf \n<HTML><body>no", "an HTML page"),
        (b"<?xml version='1.0'?><svg/>", "SVG or XML"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "a PostScript document"),
        (b"PK\x03\x04\x14\0", "a ZIP archive"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "a video"),
        (b"version https://git-lfs.github.com/spec/v1\n", "text"),
        ("Übung ".encode() * 100, "text"),
        (b"\x01\x02\x03\x04\xfe", "starts with the bytes 01 02 03 04 fe"),
    ],
)
def test_the_reason_says_what_content_looks_like(content: bytes, expected: str) -> None:
    assert expected in reason(content)


def test_heic_without_its_reader_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic(quartered())
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # what makes Python's import fail
    assert reason(content) == 'is a HEIC image: `pip install "texcat[heif]"` to read it'


def test_a_large_claim_is_refused_by_pixels_before_decoding() -> None:
    assert "60,000 x 60,000 pixels, more than the limit of 250,000,000" in reason(
        png_claiming(60_000, 60_000)
    )
    assert "10,000 x 10,000 pixels, more than the limit of 89,478,485" in reason(png_claiming(10_000, 10_000))


def test_no_bomb_warning_for_an_image_that_is_only_large() -> None:
    content = encoded(Image.new("L", (11_000, 9_000)), "JPEG", quality=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = decode_image(content, "large.jpg")
    assert loaded.size == (11_000, 9_000)
    assert loaded.image.size == (1375, 1125)


# --- damage -------------------------------------------------------------------------------------------------


def noisy() -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    return Image.fromarray(values).resize((160, 120), Image.Resampling.BICUBIC)


FILES = {
    "JPEG": encoded(noisy(), "JPEG"),
    "progressive JPEG": encoded(noisy(), "JPEG", progressive=True),
    "PNG": encoded(noisy(), "PNG"),
    "GIF": encoded(noisy(), "GIF"),
    "WebP": encoded(noisy(), "WEBP"),
    "lossless WebP": encoded(noisy(), "WEBP", lossless=True),
    "TIFF": encoded(noisy(), "TIFF"),
    "BMP": encoded(noisy(), "BMP"),
    "PPM": encoded(noisy(), "PPM"),
    "AVIF": encoded(noisy(), "AVIF"),
    "JPEG 2000": encoded(noisy(), "JPEG2000"),
    "HEIC": heic(noisy()),
}
WHOLE = {kind: np.asarray(decode_image(content, kind).image) for kind, content in FILES.items()}


def pixels_or_none(content: bytes, kind: str) -> np.ndarray | None:
    """Pixels of `content`, or None where reading refuses it; any other error is a failure."""
    try:
        return np.asarray(decode_image(content, kind).image)
    except ImageReadError:
        return None


def test_every_format_is_read() -> None:
    for kind, pixels in WHOLE.items():
        error = np.abs(pixels.astype(int) - np.asarray(noisy())).mean()
        assert error < 45, kind  # coarse: JPEG halves the chroma of noise; a wrong picture gives 60


@given(
    kind=st.sampled_from(sorted(FILES)), kept=st.floats(0, 1), lost=st.integers(1, 40), short=st.booleans()
)
def test_a_file_cut_short_is_refused_or_loses_nothing(kind: str, kept: float, lost: int, short: bool) -> None:
    content = FILES[kind]
    end = len(content) - lost if short else int(kept * len(content))
    pixels = pixels_or_none(content[:end], kind)
    assert pixels is None or np.array_equal(pixels, WHOLE[kind])


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@given(
    kind=st.sampled_from(sorted(FILES)),
    changes=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_a_damaged_file_gives_a_picture_or_a_read_error(kind: str, changes: list[tuple[int, int]]) -> None:
    content = bytearray(FILES[kind])
    for position, value in changes:
        content[position] = value
    pixels = pixels_or_none(bytes(content), kind)
    assert pixels is None or pixels.shape[2] == 3


def test_truncated_images_stay_an_error_for_everyone() -> None:
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


# --- orientation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", ORIENTED)
def test_exif_orientation_in_every_format_that_carries_it(orientation: int) -> None:
    exact, close = upright(orientation), upright(orientation, tolerance=6)
    assert_seen(oriented("JPEG", orientation, quality=95), close)
    assert_seen(oriented("PNG", orientation), exact)
    assert_seen(oriented("WEBP", orientation, lossless=True), exact)
    assert_seen(oriented("TIFF", orientation), exact)
    assert_seen(oriented("TIFF", orientation, compression="tiff_lzw"), exact)
    assert_seen(oriented("AVIF", orientation, quality=95, subsampling="4:4:4"), close)


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\x08\0\0", b"Exif\0\0"])
def test_exif_data_that_cannot_be_parsed_counts_as_none(exif: bytes) -> None:
    assert_seen(encoded(quartered(), "PNG", exif=exif), Expectation())


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_counts_as_none(orientation: int) -> None:
    assert_seen(oriented("PNG", orientation), Expectation())


def test_a_large_jpeg_is_decoded_reduced_and_keeps_its_size() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(quartered((5000, 2600)), "JPEG", quality=90, exif=exif)
    loaded = decode_image(content, "large.jpg")
    assert loaded.size == (2600, 5000)
    assert loaded.image.size == (1300, 2500)
    difference = np.subtract(seen_quarters(loaded.image), upright(6).quarters)
    assert np.abs(difference).max() <= 4


@given(width=st.integers(1, 3000), height=st.integers(1, 3000))
def test_reduced_sides_stay_above_twice_the_working_size(width: int, height: int) -> None:
    loaded = decode_image(encoded(Image.new("L", (width, height)), "JPEG", quality=10), "a.jpg")
    assert loaded.size == (width, height)
    for side, original in zip(loaded.image.size, (width, height), strict=True):
        assert side >= min(original, 2 * images.WORKING_SIZE)


# --- colour -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.full((8, 8), 32768, np.uint16), 128),  # PNG and TIFF of 16 bits
        (np.full((8, 8), 65535, np.uint16), 255),
        (np.full((8, 8), 300, np.uint16), 1),
        (np.full((8, 8), 32768, np.int32), 128),
        (np.full((8, 8), 0.5, np.float32), 128),
        (np.full((8, 8), 1.0, np.float32), 255),
        (np.full((8, 8), np.nan, np.float32), 0),
        (np.linspace(-5, 5, 65, dtype=np.float32).reshape(5, 13), 128),  # middle of a stretch
        (np.linspace(-500, 500, 65).astype(np.int32).reshape(5, 13), 128),
    ],
)
def test_more_than_eight_bits_of_grey(values: np.ndarray, expected: int) -> None:
    pixels = np.asarray(decode_image(encoded(Image.fromarray(values), "TIFF"), "deep.tif").image)
    middle = pixels[pixels.shape[0] // 2, pixels.shape[1] // 2]
    assert middle.tolist() == [expected] * 3


def test_sixteen_bit_pgm_and_png() -> None:
    for kind in ("PNG", "PPM"):
        content = encoded(Image.fromarray(np.full((4, 4), 32768, np.uint16)), kind)
        assert decode_image(content, kind).image.getpixel((0, 0)) == (128, 128, 128)


def test_one_bit_and_palette_and_lab() -> None:
    halves = quartered(quarters=((0, 0, 0), WHITE, (0, 0, 0), WHITE))
    black_white = ((0, 0, 0), WHITE, (0, 0, 0), WHITE)
    assert_seen(encoded(halves.convert("1"), "PNG"), Expectation(quarters=black_white))
    assert_seen(encoded(quartered().quantize(4), "PNG"), Expectation())
    grey = Image.new("LAB", SIZE, (128, 128, 128))  # L* = 50, a* = b* = 0
    assert_seen(encoded(grey, "TIFF"), Expectation(quarters=((119, 119, 119),) * 4, tolerance=2))


@pytest.mark.parametrize("transparent", [(10, 20, 30), 17])
def test_the_transparent_colour_of_a_png_shows_the_background(transparent: Colour | int) -> None:
    mode = "L" if isinstance(transparent, int) else "RGB"
    picture = Image.new(mode, SIZE, transparent)
    content = encoded(picture, "PNG", transparency=transparent)
    assert_seen(content, Expectation(quarters=(images.BACKGROUND,) * 4))


def test_half_transparent_pixels_are_mixed_with_the_background() -> None:
    content = encoded(Image.new("RGBA", SIZE, (0, 0, 0, 51)), "PNG")
    assert_seen(content, Expectation(quarters=((204, 204, 204),) * 4, tolerance=1))


def test_a_transparent_gif_shows_the_background() -> None:
    picture = quartered(quarters=((0, 0, 0), GREEN, (0, 0, 0), YELLOW)).quantize(4)
    content = encoded(picture, "GIF", transparency=picture.getpixel((0, 0)))
    assert_seen(content, Expectation(quarters=TRANSPARENT_ON_WHITE))


def adobe_rgb() -> bytes:
    """An ICC v2 profile with the primaries (adapted to D50) and the gamma, 563/256, of Adobe RGB (1998)."""

    def number(value: float) -> bytes:
        return struct.pack(">i", round(value * 65536))

    def xyz(*values: float) -> bytes:
        return b"XYZ \0\0\0\0" + b"".join(map(number, values))

    name = b"Wide gamut"
    gamma = b"curv\0\0\0\0" + struct.pack(">IH", 1, 563) + b"\0\0"
    description = b"desc\0\0\0\0" + struct.pack(">I", len(name) + 1) + name + b"\0" * 79
    tags = {
        b"desc": description + b"\0" * (-len(description) % 4),
        b"wtpt": xyz(0.9642, 1.0, 0.8249),
        b"rXYZ": xyz(0.60974, 0.31111, 0.01947),
        b"gXYZ": xyz(0.20528, 0.62567, 0.06087),
        b"bXYZ": xyz(0.14919, 0.06322, 0.74457),
        b"rTRC": gamma,
        b"gTRC": gamma,
        b"bTRC": gamma,
    }
    table, data, start = struct.pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for tag, value in tags.items():
        table += tag + struct.pack(">II", start + len(data), len(value))
        data += value
    header = struct.pack(">I4xI", start + len(data), 0x02100000) + b"mntrRGB XYZ " + bytes(12) + b"acsp"
    header += bytes(28) + number(0.9642) + number(1.0) + number(0.8249)
    return header.ljust(128, b"\0") + table + data


def test_a_wide_gamut_profile_is_turned_to_srgb() -> None:
    # sRGB's pure red is 219 0 0 in Adobe RGB (1998); grey keeps its place.
    picture = quartered(quarters=((219, 0, 0), (128, 128, 128), (0, 0, 0), WHITE))
    expected = ((255, 0, 0), (128, 128, 128), (0, 0, 0), WHITE)
    content = encoded(picture, "PNG", icc_profile=adobe_rgb())
    assert_seen(content, Expectation(quarters=expected, tolerance=2))
    assert decode_image(content, "a.png").image.info == {}


def test_a_profile_applies_below_transparency() -> None:
    picture = Image.new("RGBA", SIZE, (219, 0, 0, 255))
    picture.paste((0, 0, 0, 0), (0, 0, SIZE[0], SIZE[1] // 2))
    content = encoded(picture, "PNG", icc_profile=adobe_rgb())
    assert_seen(content, Expectation(quarters=(WHITE, WHITE, (255, 0, 0), (255, 0, 0)), tolerance=2))


@pytest.mark.parametrize("profile", [b"garbage", adobe_rgb()[:200], b"\0" * 600])
def test_a_profile_that_cannot_be_read_counts_as_srgb(profile: bytes) -> None:
    assert_seen(encoded(quartered(), "PNG", icc_profile=profile), Expectation())


def test_a_profile_of_another_kind_of_picture_counts_as_srgb() -> None:
    content = encoded(Image.new("L", SIZE, 77), "PNG", icc_profile=adobe_rgb())
    assert_seen(content, Expectation(quarters=((77, 77, 77),) * 4))


# --- squares ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (512, 512), (700, 300), (33, 2000)])
@pytest.mark.parametrize("side", [1, 32, 512])
def test_a_square_of_one_colour_keeps_it(size: tuple[int, int], side: int) -> None:
    square = to_square(Image.new("RGB", size, RED), side)
    assert square.dtype == np.uint8
    assert square.flags.writeable
    assert square.shape == (side, side, 3)
    assert (square == RED).all()


def test_a_square_holds_the_whole_picture() -> None:
    assert seen_quarters(Image.fromarray(to_square(quartered((700, 300)), 64))) == QUARTERS


def test_a_square_is_antialiased() -> None:
    stripes = np.zeros((64, 2048, 3), np.uint8)
    stripes[:, ::2] = 255
    square = to_square(Image.fromarray(stripes), 32)
    assert np.abs(square.astype(int) - 127).max() <= 2


def test_squares_of_real_photos_are_close_to_the_exact_ones(shared_data: Path) -> None:
    for path in sorted((shared_data / "coco128" / "images").iterdir())[:8]:
        image = load_image(path).image
        for side in (64, 224, 512):
            exact = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC), int)
            assert np.abs(to_square(image, side) - exact).mean() < 1.5, path  # levels of 255


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WebP"])
@pytest.mark.parametrize("size", [(40, 30), (1700, 1300)])
def test_a_square_is_in_srgb(kind: str, size: tuple[int, int]) -> None:
    picture = quartered(size, ((219, 0, 0), (128, 128, 128), (0, 0, 0), WHITE))
    lossless = {"lossless": True} if kind == "WebP" else {"quality": 100} if kind == "JPEG" else {}
    loaded = decode_image(encoded(picture, kind, icc_profile=adobe_rgb(), **lossless), "a")
    square = square_of(loaded, 64)
    assert (square.shape, square.dtype) == ((64, 64, 3), np.uint8)
    expected = ((255, 0, 0), (128, 128, 128), (0, 0, 0), WHITE)
    assert np.abs(np.subtract(seen_quarters(Image.fromarray(square)), expected)).max() <= 3
    inside = np.r_[8:24, 40:56]  # between colours, it matters whether they are mixed first
    both = [each[np.ix_(inside, inside)].astype(int) for each in (square, to_square(loaded.image, 64))]
    assert np.abs(both[0] - both[1]).max() <= 3


def test_a_square_of_a_picture_without_a_profile_is_that_of_its_pixels() -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for profile in (b"", b"garbage", adobe_rgb()[:200], srgb):
        loaded = decode_image(encoded(quartered(), "PNG", icc_profile=profile), "a.png")
        assert loaded.profile == b""
        assert loaded.image is loaded.stored
        np.testing.assert_array_equal(square_of(loaded, 64), to_square(loaded.image, 64))


def test_the_squares_of_photos_are_nearly_those_of_pictures_in_srgb(shared_data: Path) -> None:
    photos = map(load_image, sorted((shared_data / "coco128" / "images").iterdir()))
    coloured = [loaded for loaded in photos if loaded.profile][:8]
    assert len(coloured) == 8
    for loaded in coloured:
        difference = np.subtract(square_of(loaded, 512), to_square(loaded.image, 512), dtype=int)
        assert np.abs(difference).mean() < 1  # levels of 255


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_picture_of_the_callers_stays_as_it_is(mode: str) -> None:
    picture = Image.new(mode, SIZE, 100)
    picture.info = {"icc_profile": adobe_rgb()}
    loaded = from_picture(picture)
    picture.paste(0, (0, 0, *SIZE))
    assert picture.info == {"icc_profile": adobe_rgb()}
    assert loaded.stored.getextrema()[0] != (0, 0)
    assert loaded.image.info == {}
