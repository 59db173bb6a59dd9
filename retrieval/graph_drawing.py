"""The graph of a fingerprint, laid out: what picture and page draw, each in its own way."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..catalogue.graph import Kind, Standing
from .fingerprint import Fingerprint
from .graph_layout import lay_out

PALETTE = (
    (0x3B, 0x82, 0xC4), (0xE8, 0x7D, 0x2F), (0x3F, 0xA3, 0x6B), (0xD2, 0x4D, 0x57), (0x8F, 0x6B, 0xC8),
    (0xC9, 0x9A, 0x1E), (0x2A, 0xA5, 0xA8), (0xC9, 0x5F, 0xA5), (0x8A, 0x6A, 0x4F), (0x6C, 0x8A, 0x2F),
)  # fmt: skip
"""Colours of communities, light and dark enough for white and for black pages."""

ALONE = (0x8C, 0x8C, 0x96)
"""Colour of what belongs to no community, or to one after the tenth."""

RADII = (7.0, 26.0)
"""Of the least and the greatest node, in pixels."""

LABEL_SIZES = (18, 16, 14, 12)
"""Heights of letters, in pixels: the first with which nothing overlaps is taken."""

_CROWDED = 0.45
"""Boxes that take more of the frame than this are not tried to be laid out."""
_GAP = 4.0
_BESIDE = 10.0


@dataclass(frozen=True, slots=True)
class Disc:
    """A phrase on the picture: a disc over its label, in pixels.

    Attributes:
        phrase: whole.
        label: as much of it as is written.
        standing: what it is. Suggestions are drawn hollow.
        x, y: middle of the disc.
        radius: of the disc.
        baseline: top of the label's line.
        community: place of its community among those that are drawn, the one of which most is drawn first;
            None if it belongs to none.
    """

    phrase: str
    label: str
    standing: Standing
    x: float
    y: float
    radius: float
    baseline: float
    community: int | None

    @property
    def colour(self) -> tuple[int, int, int]:
        """Of its community."""
        return ALONE if self.community is None or self.community >= len(PALETTE) else PALETTE[self.community]


@dataclass(frozen=True, slots=True)
class Line:
    """A tie on the picture, between two discs."""

    start: Disc
    end: Disc
    kind: Kind
    strength: float


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """A graph on a frame of `width` and `height` pixels, with labels `label_size` pixels high."""

    width: int
    height: int
    label_size: int
    discs: tuple[Disc, ...]
    lines: tuple[Line, ...]
    fits: bool


Measure = Callable[[str, int], float]
"""Width of a text at a size, in pixels."""


def draw_graph(fingerprint: Fingerprint, width: int, height: int, measure: Measure) -> GraphDrawing:
    """Lay out the phrases of a fingerprint on a frame.

    The radius of an interest's disc goes by its effective weight; that of a suggestion by its expected use,
    on a scale of its own.
    A phrase that is in no community, such as a suggestion, takes the colour of the one that it is tied to
    most.

    Args:
        fingerprint: what to draw.
        width, height: of the frame, in pixels.
        measure: width of a label.
    """
    phrases = list(fingerprint.drawn)
    place = {phrase: i for i, phrase in enumerate(phrases)}
    edges = [(place[e.start], place[e.end], e.strength) for e in fingerprint.edges]
    communities = _communities(fingerprint, phrases, edges)
    radii = _radii(fingerprint, phrases)
    groups = [-1 - n if community is None else community for n, community in enumerate(communities)]
    for size in LABEL_SIZES:
        labels = [_shortened(phrase, size, measure, 11.0 * size) for phrase in phrases]
        line = round(size * 1.3)
        boxes = np.array(
            [
                (max(2 * r, measure(label, size)) + _BESIDE, 2 * r + line + 2 * _GAP)
                for r, label in zip(radii, labels, strict=True)
            ]
        ).reshape(-1, 2)
        if size != LABEL_SIZES[-1] and boxes.prod(1).sum() > _CROWDED * width * height:
            continue
        layout = lay_out(boxes, edges, groups, (width, height))
        if layout.fits:
            break
    discs = []
    for n, phrase in enumerate(phrases):
        x, middle = layout.centres[n].tolist()
        top = middle - boxes[n, 1] / 2 + _GAP / 2
        y = float(top + radii[n])
        discs.append(
            Disc(
                phrase,
                labels[n],
                fingerprint.drawn[phrase],
                x,
                y,
                radii[n],
                y + radii[n] + _GAP,
                communities[n],
            )
        )
    lines = [Line(discs[place[e.start]], discs[place[e.end]], e.kind, e.strength) for e in fingerprint.edges]
    return GraphDrawing(width, height, size, tuple(discs), tuple(lines), layout.fits)


def _communities(
    fingerprint: Fingerprint, phrases: list[str], edges: list[tuple[int, int, float]]
) -> list[int | None]:
    drawn = [
        [phrase for phrase in members if phrase in fingerprint.drawn] for members in fingerprint.communities
    ]
    ranked = sorted(filter(None, drawn), key=len, reverse=True)
    known = {phrase: n for n, members in enumerate(ranked) for phrase in members}
    found = [known.get(phrase) for phrase in phrases]
    for n, phrase in enumerate(phrases):
        if phrase not in known:
            tied: dict[int, float] = {}
            for a, b, strength in edges:
                other = known.get(phrases[b if a == n else a]) if n in (a, b) else None
                if other is not None:
                    tied[other] = tied.get(other, 0.0) + strength
            found[n] = max(tied, key=lambda c: (tied[c], -c)) if tied else None
    return found


def _radii(fingerprint: Fingerprint, phrases: list[str]) -> list[float]:
    weights = {each.phrase: each.effective for each in fingerprint.interests}
    expected = {each.phrase: each.expected for each in fingerprint.suggestions}
    heaviest, likeliest = max(weights.values(), default=0.0), max(expected.values(), default=0.0)
    radii = []
    for phrase in phrases:
        if phrase in weights:
            share = weights[phrase] / heaviest if heaviest > 0 else 0.0
            radii.append(RADII[0] + (RADII[1] - RADII[0]) * share)
        else:
            share = expected[phrase] / likeliest if likeliest > 0 else 0.0
            radii.append(RADII[0] + (RADII[1] - RADII[0]) * 0.4 * math.sqrt(share))
    scale = min(1.0, math.sqrt(30 / max(1, len(phrases))))  # many nodes share the same frame
    return [radius * scale for radius in radii]


def _shortened(phrase: str, size: int, measure: Measure, most: float) -> str:
    """As much of a phrase as `most` pixels hold."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in phrase)
    if measure(text, size) <= most:
        return text
    # The least end with which it is too long.
    end = bisect_left(range(len(text)), True, key=lambda end: measure(f"{text[:end].rstrip()}…", size) > most)
    return f"{text[: max(0, end - 1)].rstrip()}…"
