"""What a search has found, on one picture: each photo with the region that matched outlined."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from PIL import ImageDraw
from PIL.Image import Image, fromarray, new
from PIL.ImageFont import FreeTypeFont

from ..catalogue.errors import ImageReadError, RecordMissingError, UsageError
from ..catalogue.types import Box, ImageKey
from .drawing import (
    BESIDE,
    CAPTION_SIZE,
    FAINT,
    GUTTER,
    INK,
    MARGIN,
    PAGE,
    TITLE_SIZE,
    fit,
    line_height,
    load_font,
    paste,
    wrap,
)
from .search import Found, Result

COLUMNS = 4
PANEL = (340, 255)
"""Width and height of the place of a photo, in pixels."""

OUTLINE = (255, 214, 10)
OUTLINE_WIDTH = 3
_DARK = (20, 20, 20)

MAX_PHOTOS = 400
"""A page of so many is 33,000 pixels high, and takes 140 MB while it is drawn."""


def draw_sheet(found: Found, title: str, load: Callable[[ImageKey], Image]) -> Image:
    """Contact sheet of the photos that were found, row by row, the best first: an RGB picture.

    Under each photo are its place, its score, and the end of its path: the last path of several.

    Args:
        found: answer to a query.
        title: goes over the photos, such as the query.
        load: gives the photo of a key. Where it raises ImageReadError or RecordMissingError, the place of
            the photo says so.

    Raises:
        UsageError: there are more than 400 photos.
    """
    results = found.results
    if len(results) > MAX_PHOTOS:
        raise UsageError(f"a contact sheet holds at most {MAX_PHOTOS} photos, got {len(results):,}")
    columns = min(COLUMNS, len(results))
    inner = max(columns, 2) * (PANEL[0] + GUTTER) - GUTTER
    large, small = load_font(TITLE_SIZE), load_font(CAPTION_SIZE)
    heading = wrap(title, large, inner)
    top = MARGIN + len(heading) * line_height(TITLE_SIZE) + line_height(CAPTION_SIZE) + GUTTER
    step = PANEL[1] + 2 * line_height(CAPTION_SIZE) + 2 * GUTTER
    rows = -(-len(results) // columns)
    page = new("RGB", (inner + 2 * MARGIN, top + rows * step - GUTTER + MARGIN), PAGE)
    draw = ImageDraw.Draw(page)
    for number, line in enumerate(heading):
        draw.text((MARGIN, MARGIN + number * line_height(TITLE_SIZE)), line, INK, large)
    summary = f"{len(results):,} of {found.ranked:,} photos, by {found.tier} maps"
    draw.text((MARGIN, top - GUTTER - line_height(CAPTION_SIZE)), summary, FAINT, small)
    for number, result in enumerate(results):
        row, column = divmod(number, columns)
        left, upper = MARGIN + column * (PANEL[0] + GUTTER), top + row * step
        paste(page, _panel(result, load, small), (left, upper))
        lower = upper + PANEL[1] + GUTTER // 2
        draw.text((left, lower), f"{number + 1}.  score {result.score:.2f}", INK, small)
        name = result.paths[-1] if result.paths else str(result.key)
        draw.text((left, lower + line_height(CAPTION_SIZE)), _end(name, small, PANEL[0]), FAINT, small)
    return page


def outlined(photo: Image, box: Box) -> Image:
    """`photo` with a line around `box`, between two thin dark lines, so that it shows on any photo."""
    pixels = np.array(photo.convert("RGB"))
    drawn = pixels.copy()
    left, right = (round(edge * photo.width) for edge in (box.left, box.right))
    top, bottom = (round(edge * photo.height) for edge in (box.top, box.bottom))
    for inset, colour in ((0, _DARK), (1, OUTLINE), (1 + OUTLINE_WIDTH, _DARK), (2 + OUTLINE_WIDTH, None)):
        rows = slice(top + inset, max(0, bottom - inset))
        columns = slice(left + inset, max(0, right - inset))
        drawn[rows, columns] = pixels[rows, columns] if colour is None else colour
    return fromarray(drawn)


def _panel(result: Result, load: Callable[[ImageKey], Image], font: FreeTypeFont) -> Image:
    """The photo of a result in its place; where there is none, the reason."""
    panel = new("RGB", PANEL, BESIDE)
    try:
        photo = fit(load(result.key).convert("RGB"), *PANEL)
    except (ImageReadError, RecordMissingError) as error:
        reason = (
            "no file of it is left" if isinstance(error, RecordMissingError) else "its file cannot be read"
        )
        middle = ((PANEL[0] - font.getlength(reason)) / 2, (PANEL[1] - line_height(CAPTION_SIZE)) / 2)
        ImageDraw.Draw(panel).text(middle, reason, FAINT, font)
        return panel
    if result.region is not None:
        photo = outlined(photo, result.region)
    panel.paste(photo, ((PANEL[0] - photo.width) // 2, (PANEL[1] - photo.height) // 2))
    return panel


def _end(text: str, font: FreeTypeFont, width: int) -> str:
    """As much of the end of `text` as `width` pixels hold, on one line."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if font.getlength(line) <= width:
        return line
    start = bisect_left(range(len(line)), True, key=lambda start: font.getlength(f"…{line[start:]}") <= width)
    return f"…{line[start:]}"
