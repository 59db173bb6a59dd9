"""Fonts for the names on a picture: phrases are in any script, and no font has them all."""

from __future__ import annotations

import os
from functools import cache, lru_cache
from pathlib import Path

from PIL import ImageFont

from .drawing import load_font

FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts")
"""Where fonts are installed."""

_NOWHERE = "\U0010fffe"  # no character: what a font draws for it, it draws for all that it lacks
_PROBE_SIZE = 16
_PLAIN = ("regular", "book", "dejavusans", "notosans")
_OTHER = ("bold", "italic", "oblique", "light", "thin", "mono", "serif", "condensed", "black", "medium")


@cache
def own_font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font, as `load_font` gives it; kept."""
    return load_font(size)


@lru_cache(4096)
def font_for(text: str, size: int) -> ImageFont.FreeTypeFont | None:
    """A font that has every character of `text`: Pillow's own, or else an installed one; None if none has.

    Args:
        text: on one line.
        size: height, in pixels.
    """
    wanted = set(text) - {" "}
    if all(_has("", character) for character in wanted):
        return own_font(size)
    for file in _installed():
        if all(_has(file, character) for character in wanted):
            return ImageFont.truetype(file, size)
    return None


@lru_cache(65_536)
def _has(file: str, character: str) -> bool:
    """Whether the font of a file, Pillow's own if it is empty, has a character."""
    font = _probe(file)
    return font is not None and _drawn(font, character) != _drawn(font, _NOWHERE)


@cache
def _probe(file: str) -> ImageFont.FreeTypeFont | None:
    if not file:
        return own_font(_PROBE_SIZE)
    try:
        return ImageFont.truetype(file, _PROBE_SIZE)
    except OSError:  # not in every size, or no font that FreeType reads
        return None


def _drawn(font: ImageFont.FreeTypeFont, character: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(character)
    return mask.size, bytes(mask)


@cache
def _installed() -> tuple[str, ...]:
    """Files of installed fonts, plain ones first."""
    found = {
        str(file)
        for folder in FOLDERS
        for kind in ("*.ttf", "*.otf", "*.ttc")
        for file in Path(os.path.expanduser(folder)).rglob(kind)
    }
    return tuple(sorted(found, key=_plainness))


def _plainness(file: str) -> tuple[int, str]:
    name = Path(file).stem.casefold()
    return sum(word in name for word in _OTHER) * 2 - any(word in name for word in _PLAIN), file
