"""What pictures are put together from: a page, panels with round corners, lines of text."""

from __future__ import annotations

from bisect import bisect_left

from PIL import ImageDraw, ImageFont
from PIL.Image import Image, Resampling, new

PAGE = (255, 255, 255)
BESIDE = (238, 238, 240)
"""Beside a panel that does not fill its place."""
INK = (28, 28, 32)
FAINT = (110, 110, 118)

GUTTER = 12
MARGIN = 20
CORNER = 10
TITLE_SIZE, CAPTION_SIZE = 22, 16
"""Heights of letters, as all lengths here, in pixels."""

_LINE = 1.35
_MAX_LINES = 5
_SMOOTHING = 4
"""Corners are drawn this many times larger, and reduced."""


def fit(image: Image, width: int, height: int) -> Image:
    """`image` at the largest size of its own shape that fits, each side at least one pixel."""
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Resampling.LANCZOS)


def paste(page: Image, panel: Image, place: tuple[int, int]) -> None:
    """Put a panel on a page, its corners rounded."""
    width, height = panel.size
    mask = new("L", (width * _SMOOTHING, height * _SMOOTHING), 0)
    box = (0, 0, width * _SMOOTHING - 1, height * _SMOOTHING - 1)
    ImageDraw.Draw(mask).rounded_rectangle(box, CORNER * _SMOOTHING, 255)
    page.paste(panel, place, mask.resize(panel.size, Resampling.BOX))


def load_font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font, `size` pixels high."""
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)  # Pillow's wheels have FreeType
    return font


def line_height(size: int) -> int:
    """From one line of a font to the next, in pixels."""
    return round(size * _LINE)


def wrap(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """`text` in up to 5 lines of at most `width` pixels, broken between words; what is longer is cut."""
    lines = [""]
    for word in "".join(c if c.isprintable() else " " for c in text).split():
        longer = f"{lines[-1]} {word}".lstrip()
        if font.getlength(longer) <= width:
            lines[-1] = longer
        elif len(lines) == _MAX_LINES:
            lines[-1] = longer  # too long, so that the cut shows that there is more
            break
        else:
            lines.append(word)
    return [_cut(line, font, width) for line in lines if line]


def _cut(line: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    if font.getlength(line) <= width:
        return line
    too_long = bisect_left(range(len(line)), True, key=lambda end: font.getlength(f"{line[:end]}…") > width)
    return f"{line[: max(0, too_long - 1)]}…"
