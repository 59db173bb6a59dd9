"""The graph of a fingerprint as a picture: what a person shows to a friend."""

from __future__ import annotations

import math
import time

from PIL import ImageDraw, ImageFilter
from PIL.Image import Image, Resampling, alpha_composite, new
from PIL.ImageFont import FreeTypeFont

from ..catalogue.graph import Kind, Standing
from .drawing import FAINT, INK, line_height
from .fingerprint import Fingerprint
from .fonts import font_for, own_font
from .graph_drawing import PALETTE, Disc, GraphDrawing, Line, draw_graph

WIDTH, HEIGHT = 1600, 1120
"""Of the picture, in pixels."""

_PAGE = (0xFC, 0xFC, 0xFD)
_TITLE, _LEAD, _LEGEND = 40, 20, 17
_MARGIN = 48
_HEAD = 130
_FOOT = 96
_SMOOTHING = 2
_GLOW = 46
_DASH = (9.0, 7.0)

MARKS = (
    "discs: interests, larger with weight and use  ·  rings: you might also like  ·  "
    "lines: alike in meaning; double: asked about together; dashed: seen together"
)

Colour = tuple[int, int, int]


def draw_picture(fingerprint: Fingerprint, title: str = "What I look for") -> Image:
    """The fingerprint's graph, its communities in colours: an RGB picture of 1600x1120 pixels.

    Discs are interests, their areas by weight; rings are suggestions. Lines are ties of meaning, dashed ones
    of sight, and double ones of use. Labels whose script no installed font has are drawn as boxes, and the
    picture says so.
    """
    drawing = draw_graph(fingerprint, WIDTH - 2 * _MARGIN, HEIGHT - _HEAD - _FOOT, label_width)
    page = new("RGBA", (WIDTH, HEIGHT), (*_PAGE, 255))
    page = alpha_composite(page, _glow(drawing))
    page = alpha_composite(page, _shapes(drawing))
    draw = ImageDraw.Draw(page)
    for disc in drawing.discs:
        _label(draw, disc, drawing.label_size)
    draw.text((_MARGIN, 34), title, INK, own_font(_TITLE))
    draw.text((_MARGIN, 34 + line_height(_TITLE)), summary(fingerprint), FAINT, own_font(_LEAD))
    if not drawing.discs:
        draw.text((_MARGIN, HEIGHT / 2), "No interests yet.", FAINT, own_font(_LEAD))
    _legend(page, drawing)
    return page.convert("RGB")


def label_width(text: str, size: int) -> float:
    """Width of a label, in pixels."""
    return _font(text, size).getlength(text)


def summary(fingerprint: Fingerprint) -> str:
    """What there is, on one line."""
    parts = [
        _count(len(fingerprint.interests), "interest"),
        _count(fingerprint.images, "photo"),
        _count(fingerprint.questions, "question"),
    ]
    if fingerprint.times:
        parts.append(f"since {time.strftime('%B %Y', time.localtime(fingerprint.times[0]))}")
    return "  ·  ".join(parts)


def _glow(drawing: GraphDrawing) -> Image:
    """A soft patch of its community's colour around each disc."""
    small = 4
    layer = new("RGBA", (WIDTH // small, HEIGHT // small), (*_PAGE, 0))
    for disc in drawing.discs:
        if disc.community is not None:
            patch = new("RGBA", layer.size, (*disc.colour, 0))
            reach = (disc.radius + 62) / small
            x, y = (_MARGIN + disc.x) / small, (_HEAD + disc.y) / small
            ImageDraw.Draw(patch).ellipse((x - reach, y - reach, x + reach, y + reach), (*disc.colour, 34))
            layer = alpha_composite(layer, patch)
    return layer.filter(ImageFilter.GaussianBlur(_GLOW / small)).resize((WIDTH, HEIGHT), Resampling.BICUBIC)


def _shapes(drawing: GraphDrawing) -> Image:
    """Lines and discs, drawn larger and reduced."""
    layer = new("RGBA", (WIDTH * _SMOOTHING, HEIGHT * _SMOOTHING), (*_PAGE, 0))
    draw = ImageDraw.Draw(layer)
    for line in sorted(drawing.lines, key=lambda line: line.strength):
        _line(draw, line)
    for disc in drawing.discs:
        x, y, r = ((_MARGIN + disc.x) * _SMOOTHING, (_HEAD + disc.y) * _SMOOTHING, disc.radius * _SMOOTHING)
        draw.ellipse((x - r - 4, y - r - 4, x + r + 4, y + r + 4), _PAGE)
        if disc.standing is Standing.INTEREST:
            draw.ellipse((x - r, y - r, x + r, y + r), disc.colour)
        else:
            draw.ellipse((x - r, y - r, x + r, y + r), _PAGE, disc.colour, 3 * _SMOOTHING)
    return layer.resize((WIDTH, HEIGHT), Resampling.LANCZOS)


def _line(draw: ImageDraw.ImageDraw, line: Line) -> None:
    """From the middle of one disc to that of the other; the stronger, the wider and the darker."""
    one, other = line.start, line.end
    colour = one.colour if one.community == other.community else (0xA0, 0xA0, 0xAA)
    mixed = _mixed(colour, 0.25 + 0.55 * line.strength)
    width = round((1.0 + 3.0 * line.strength) * _SMOOTHING)
    points = [((_MARGIN + disc.x) * _SMOOTHING, (_HEAD + disc.y) * _SMOOTHING) for disc in (one, other)]
    if line.kind is not Kind.SIGHT:
        draw.line(points, mixed, width if line.kind is Kind.MEANING else width + 2 * _SMOOTHING)
        if line.kind is Kind.USE:
            draw.line(points, _PAGE, max(1, width // 2))
        return
    (x0, y0), (x1, y1) = points
    length = math.hypot(x1 - x0, y1 - y0)
    on, off = (part * _SMOOTHING for part in _DASH)
    start = 0.0
    while start < length:
        ends = (start / length, min(1.0, (start + on) / length))
        draw.line([(x0 + (x1 - x0) * t, y0 + (y1 - y0) * t) for t in ends], mixed, width)
        start += on + off


def _label(draw: ImageDraw.ImageDraw, disc: Disc, size: int) -> None:
    font = _font(disc.label, size)
    left = _MARGIN + disc.x - font.getlength(disc.label) / 2
    ink = INK if disc.standing is Standing.INTEREST else FAINT
    draw.text((left, _HEAD + disc.baseline), disc.label, ink, font, stroke_width=3, stroke_fill=_PAGE)


def _legend(page: Image, drawing: GraphDrawing) -> None:
    """The communities by what is largest of them, and what the marks stand for."""
    draw, font = ImageDraw.Draw(page), own_font(_LEGEND)
    left, top = float(_MARGIN), HEIGHT - _FOOT + 18
    for community in range(len(PALETTE)):
        members = [disc for disc in drawing.discs if disc.community == community]
        if not members:
            break
        largest = max(members, key=lambda disc: (disc.standing is Standing.INTEREST, disc.radius))
        named = _font(largest.label, _LEGEND)
        width = 20 + named.getlength(largest.label) + 28
        if left + width > WIDTH - _MARGIN:
            break
        _dot(page, (round(left), top + 4), largest.colour)
        draw.text((left + 20, top), largest.label, INK, named)
        left += width
    top += line_height(_LEGEND) + 6
    draw.text((_MARGIN, top), MARKS, FAINT, font)
    unreadable = sum(font_for(disc.label, _LEGEND) is None for disc in drawing.discs)
    if unreadable:
        note = f"{_count(unreadable, 'name')} in a script that no installed font has"
        draw.text((WIDTH - _MARGIN - font.getlength(note), top), note, FAINT, font)


def _dot(page: Image, place: tuple[int, int], colour: Colour) -> None:
    """Put a smooth dot, 12 pixels wide, on a page."""
    mask = new("L", (96, 96), 0)
    ImageDraw.Draw(mask).ellipse((0, 0, 95, 95), 255)
    page.paste((*colour, 255), (*place, place[0] + 12, place[1] + 12), mask.resize((12, 12), Resampling.BOX))


def _font(text: str, size: int) -> FreeTypeFont:
    return font_for(text, size) or own_font(size)


def _mixed(colour: Colour, part: float) -> Colour:
    """`colour` over the page, as opaque as `part`."""
    red, green, blue = (round(part * c + (1 - part) * p) for c, p in zip(colour, _PAGE, strict=True))
    return red, green, blue


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
