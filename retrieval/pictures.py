"""Pictures for people: where a map is high, and where the tokens went.

All pictures are Pillow images of mode RGB. Planes and grids have rows top to bottom and cover the whole
photo, whatever its shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw
from PIL.Image import Image, Resampling, fromarray, new

from ..catalogue.derived import presence
from ..catalogue.errors import UsageError
from .allocation import Allocation
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
from .naming import shares
from .types import Lookup

PANEL_HEIGHT = 360
PANEL_WIDTHS = (200, 640)
"""A panel is as high as `PANEL_HEIGHT` and as wide as the photo asks, within these bounds."""

INFERNO = (
    (0x00, 0x00, 0x04), (0x1B, 0x0C, 0x41), (0x4A, 0x0C, 0x6B), (0x78, 0x1C, 0x6D), (0xA5, 0x2C, 0x60),
    (0xCF, 0x44, 0x46), (0xED, 0x69, 0x25), (0xFB, 0x9B, 0x06), (0xF7, 0xD1, 0x3D), (0xFC, 0xFF, 0xA4),
)  # fmt: skip
"""Ten evenly spaced colours of "inferno", whose lightness grows evenly from black to pale yellow
(van der Walt & Smith 2015, matplotlib, public domain)."""

HEAT_OPACITY = (0.35, 0.85)
"""Of the heat over a photo, where the plane is lowest and highest."""

DROPPED_BRIGHTNESS = 0.3

_Weights = NDArray[np.float64]


def heat(plane: NDArray[np.float32], size: tuple[int, int], span: tuple[float, float] | None = None) -> Image:
    """`plane` [rows, columns] in colour, enlarged to `size` (width, height) without steps.

    Colours run over `span`, the same in every image. When it is None, they run from the plane's minimum to
    its maximum, so they order the places of one image and do not compare images; a constant plane is dark.

    Raises:
        UsageError: `plane` has not two dimensions, or values that are not finite.
    """
    return fromarray(_colours(_unit(plane, size, span)))


def overlay(photo: Image, plane: NDArray[np.float32], span: tuple[float, float] | None = None) -> Image:
    """`photo` in grey under the heat of `plane` over `span`, more opaque where it is higher.

    Raises:
        UsageError: as `heat`.
    """
    unit = _unit(plane, photo.size, span)
    grey = np.asarray(photo.convert("L"), np.float64)[..., None]
    low, high = HEAT_OPACITY
    opacity = (low + (high - low) * unit)[..., None]
    mixed = (1 - opacity) * grey + opacity * _colours(unit)
    return fromarray(np.rint(mixed).astype(np.uint8))


def kept_tokens(photo: Image, allocation: Allocation) -> Image:
    """`photo` as it is where positions are kept, grey and dark where they are dropped.

    A pixel belongs to the cell that its centre lies in.
    """
    rows, columns = allocation.grid
    kept = np.zeros((rows, columns), bool)
    kept[allocation.positions[:, 0], allocation.positions[:, 1]] = True
    width, height = photo.size
    mask = kept[_cells(height, rows)][:, _cells(width, columns)]
    colour = np.asarray(photo.convert("RGB"))
    grey = np.asarray(photo.convert("L"), np.float64)[..., None] * DROPPED_BRIGHTNESS
    return fromarray(np.where(mask[..., None], colour, np.rint(grey).astype(np.uint8)))


def panels(photo: Image, hit: Lookup, allocation: Allocation) -> tuple[Image, Image, Image]:
    """Photo, relevance over the photo, and kept tokens, each reduced or enlarged to the size of a panel."""
    small = fit(photo.convert("RGB"), PANEL_WIDTHS[1], PANEL_HEIGHT)
    return small, overlay(small, hit.relevance), kept_tokens(small, allocation)


def captioned_overlay(photo: Image, hit: Lookup, caption: str) -> Image:
    """Photo | similarity, under `caption` and what was matched; what the colours stand for is told.

    A calibrated similarity is shown by its presence, on one scale for all images.
    """
    similarity = hit.channel("similarity")
    small = fit(photo.convert("RGB"), PANEL_WIDTHS[1], PANEL_HEIGHT)
    if hit.matches.calibrated:
        present = presence(similarity, calibrated=True).astype(np.float32)
        heated = overlay(small, present, span=(0.0, 1.0))
        name = f"presence, from 0 (dark) to 1 (bright): here at most {present.max():.2f}"
    else:
        heated = overlay(small, similarity)
        name = f"similarity, from {similarity.min():.3g} (dark) to {similarity.max():.3g} (bright)"
    return _row(caption, summary(hit), [(small, "photo"), (heated, name)])


def overview(columns: Sequence[tuple[str, Sequence[Image]]], width: int) -> Image:
    """Columns of panels under their captions, on one picture of this `width` in pixels."""
    column = (width - 2 * MARGIN - GUTTER * (len(columns) - 1)) // len(columns)
    font = load_font(CAPTION_SIZE)
    titles = [wrap(caption, font, column) for caption, _ in columns]
    title_height = max(map(len, titles)) * line_height(CAPTION_SIZE) + GUTTER
    fitted = [[fit(panel, column, column * 3 // 4) for panel in panels] for _, panels in columns]
    heights = [max(panel.height for panel in row) for row in zip(*fitted, strict=True)]
    page = new("RGB", (width, 2 * MARGIN + title_height + sum(heights) + GUTTER * (len(heights) - 1)), PAGE)
    draw = ImageDraw.Draw(page)
    for number, (title, panels) in enumerate(zip(titles, fitted, strict=True)):
        left, top = MARGIN + number * (column + GUTTER), MARGIN
        for line, text in enumerate(title):
            draw.text((left, top + line * line_height(CAPTION_SIZE)), text, INK, font)
        top += title_height
        for panel, height in zip(panels, heights, strict=True):
            paste(page, panel, (left + (column - panel.width) // 2, top + (height - panel.height) // 2))
            top += height + GUTTER
    return page


def _row(caption: str, summary: str, parts: Sequence[tuple[Image, str]]) -> Image:
    """Panels of one height beside each other, each over its name."""
    title, small = load_font(TITLE_SIZE), load_font(CAPTION_SIZE)
    widths = [max(panel.width, PANEL_WIDTHS[0], int(small.getlength(name)) + 1) for panel, name in parts]
    inner = sum(widths) + GUTTER * (len(widths) - 1)
    heading = [(line, title, INK, line_height(TITLE_SIZE)) for line in wrap(caption, title, inner)]
    heading += [(line, small, FAINT, line_height(CAPTION_SIZE)) for line in wrap(summary, small, inner)]
    top = MARGIN + sum(height for *_, height in heading) + GUTTER
    page = new(
        "RGB",
        (inner + 2 * MARGIN, top + PANEL_HEIGHT + GUTTER // 2 + line_height(CAPTION_SIZE) + MARGIN),
        PAGE,
    )
    draw = ImageDraw.Draw(page)
    line_top = MARGIN
    for text, font, ink, height in heading:
        draw.text((MARGIN, line_top), text, ink, font)
        line_top += height
    left = MARGIN
    for (panel, name), width in zip(parts, widths, strict=True):
        beside = new("RGB", (width, PANEL_HEIGHT), BESIDE)
        beside.paste(panel, ((width - panel.width) // 2, (PANEL_HEIGHT - panel.height) // 2))
        paste(page, beside, (left, top))
        draw.text((left, top + PANEL_HEIGHT + GUTTER // 2), name, FAINT, small)
        left += width + GUTTER
    return page


def summary(hit: Lookup) -> str:
    """What was matched, how sure that is, and how the maps were obtained, in one line."""
    parts = [f"{name} {share:.0%}" for name, share in shares(hit)]
    return "  ·  ".join([*parts, f"confidence {hit.confidence:.2f}", hit.tier])


def _unit(plane: NDArray[np.float32], size: tuple[int, int], span: tuple[float, float] | None) -> _Weights:
    """`plane` from 0 to 1 over `span`, or its own range, bilinearly at `size`: [height, width]."""
    if plane.ndim != 2 or not np.isfinite(plane).all():
        raise UsageError(f"a plane is [rows, columns] and finite, got shape {plane.shape}")
    low, high = span or (float(plane.min()), float(plane.max()))
    spread = high - low
    scaled = (plane - low) / spread if spread > 0 else np.zeros_like(plane)
    large = fromarray(scaled.astype(np.float32)).resize(size, Resampling.BILINEAR)
    return np.clip(np.asarray(large, np.float64), 0.0, 1.0)


def _colours(unit: _Weights) -> NDArray[np.uint8]:
    """Colour of each value of `unit` in [0, 1]: uint8 [height, width, 3]."""
    anchors = np.asarray(INFERNO, np.float64)
    places = np.linspace(0, 1, len(anchors))
    bands = [np.interp(unit, places, anchors[:, band]) for band in range(3)]
    return np.rint(np.stack(bands, axis=-1)).astype(np.uint8)


def _cells(pixels: int, cells: int) -> NDArray[np.int64]:
    """Cell of each pixel along one axis."""
    return ((np.arange(pixels) + 0.5) * cells / pixels).astype(np.int64)
