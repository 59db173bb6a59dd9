"""The homunculus of an answer: a photo as the model is given it, and why.

Penfield's homunculus shows a body as large as the cortex that attends to it. This one shows a photo by what
is spent on it: which positions are kept, how many tokens they get, what is known of each, which way the
balancer leaned, and for each region that is kept what speaks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw
from PIL.Image import Image, new

from .allocation import Allocation
from .balancing import Balanced
from .cells import resample
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
from .pictures import kept_tokens, overlay, summary
from .prompting import Box, Region, regions
from .types import Lookup

INNER = 1240
"""Width of a page without its margins; all lengths here are pixels."""

LARGE, SMALL = (614, 440), (405, 260)
"""Most width and height of the panels of the first and of the second row."""

MOST_REGIONS = 4

EVEN = 1e-6
"""A score whose standard deviation is not above this is the same everywhere, and lifts nothing."""

NAMES = {
    "participatory": "participatory: what was asked for",
    "perspectival": "perspectival: what draws the eye",
    "propositional": "propositional: how much there is to know",
}

SPEAKS = {
    "participatory": "it is what was asked for",
    "perspectival": "it draws the eye",
    "propositional": "there is much to know",
}
"""Why a region is kept, by the score that lifts it most."""

NOTHING_SPEAKS = "the budget had room"

MARK = (255, 196, 0)
TRACK, WEAK, STRONG = (226, 226, 230), (178, 178, 186), (0xA5, 0x2C, 0x60)
BADGE = 12
LINE = 32
BARS = 90
"""Where the bars of the scores begin."""
BAR = 150
SLIDERS, POLE = 400, 110
"""Width of the tensions, and of the name of a pole."""

Plane = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a region is kept.

    Attributes:
        region: where it is, and its part of the tokens.
        means: mean of each score over the kept positions in it, by name.
        lifts: how far that is above the score's mean over the photo, in standard deviations of the photo.
    """

    region: Region
    means: dict[str, float]
    lifts: dict[str, float]

    @property
    def best(self) -> str | None:
        """Name of the score that speaks most for it; None where none is above the photo's mean."""
        name = max(self.lifts, key=lambda name: self.lifts[name])
        return name if self.lifts[name] > 0 else None


@dataclass(frozen=True, slots=True, eq=False)
class Homunculus:
    """An answer's allocation as a picture; a notebook shows it as it is.

    Attributes:
        photo: the whole image.
        hit: the look-up.
        balanced: what the allocator read, and the scores that it was made of.
        allocation: what was kept.
        caption: the question.
    """

    photo: Image
    hit: Lookup
    balanced: Balanced
    allocation: Allocation
    caption: str

    def reasons(self) -> list[Reason]:
        """Why each of the largest regions is kept, the most relevant first.

        A region is a group of kept positions that touch; where positions have budgets, each is one by itself.
        """
        rows, columns = self.allocation.grid
        parts = self._apart() if self._regional() else [self.allocation]
        found = []
        for part in parts:
            kept = np.zeros((rows, columns), bool)
            kept.ravel()[part.indices] = True
            in_cells = regions(part, (columns, rows), MOST_REGIONS)
            in_pixels = regions(part, self.photo.size, MOST_REGIONS)
            for region, cells in zip(in_pixels, in_cells, strict=True):
                spent = int(part.budgets.sum()) / int(self.allocation.budgets.sum())
                found.append(self._reason(replace(region, share=region.share * spent), cells.box, kept))
        return found

    def _regional(self) -> bool:
        return bool((self.allocation.budgets != 1).any())

    def _apart(self) -> list[Allocation]:
        """The positions with the largest budgets, each as an allocation of its own."""
        kept = self.allocation
        order = np.argsort(-kept.budgets, kind="stable")[:MOST_REGIONS]
        return [
            Allocation(kept.indices[i], kept.positions[i], kept.budgets[i], kept.scores[i], kept.grid)
            for i in order[:, None]
        ]

    def _reason(self, region: Region, box: Box, kept: NDArray[np.bool_]) -> Reason:
        left, top, right, bottom = box
        inside = np.zeros_like(kept)
        inside[top:bottom, left:right] = kept[top:bottom, left:right]
        means, lifts = {}, {}
        for name, plane in self._scores().items():
            spread = float(plane.std())
            means[name] = float(resample(plane, self.allocation.grid)[inside].mean())
            lifts[name] = (means[name] - float(plane.mean())) / spread if spread > EVEN else 0.0
        return Reason(region, means, lifts)

    def picture(self) -> Image:
        """All of it on one page: RGB, 1,280 pixels wide."""
        reasons = self.reasons()
        large = [(self._kept(reasons), self._spent()), (self._relevance(), self._named())]
        photo = fit(self.photo.convert("RGB"), *SMALL)
        small = [(overlay(photo, plane, (0.0, 1.0)), NAMES[name]) for name, plane in self._scores().items()]
        blocks = [self._heading(), _row(large, LARGE), _row(small, SMALL), self._why(reasons)]
        height = sum(block.height for block in blocks) + GUTTER * (len(blocks) - 1) + 2 * MARGIN
        page = new("RGB", (INNER + 2 * MARGIN, height), PAGE)
        top = MARGIN
        for block in blocks:
            page.paste(block, (MARGIN, top))
            top += block.height + GUTTER
        return page

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.picture().save(file, format="PNG")
        return file.getvalue()

    def _scores(self) -> dict[str, Plane]:
        scores = self.balanced.scores
        return {
            "participatory": scores.participatory,
            "perspectival": scores.perspectival,
            "propositional": scores.propositional,
        }

    def _spent(self) -> str:
        positions = self.allocation.grid[0] * self.allocation.grid[1]
        tokens, kept = int(self.allocation.budgets.sum()), len(self.allocation.indices)
        if tokens == kept:
            return f"{kept:,} of {positions:,} tokens kept ({kept / positions:.0%})"
        return f"{tokens:,} tokens over {kept} of {positions} regions"

    def _named(self) -> str:
        return "relevance, which the tokens follow" + (
            "" if self.balanced.by is None else f": {self.balanced.by}"
        )

    def _heading(self) -> Image:
        title, small = load_font(TITLE_SIZE), load_font(CAPTION_SIZE)
        lines = [(line, title, INK, line_height(TITLE_SIZE)) for line in wrap(self.caption, title, INNER)]
        about = summary(self.hit)
        lines += [(line, small, FAINT, line_height(CAPTION_SIZE)) for line in wrap(about, small, INNER)]
        block = new("RGB", (INNER, sum(height for *_, height in lines)), PAGE)
        draw, top = ImageDraw.Draw(block), 0
        for text, font, ink, height in lines:
            draw.text((0, top), text, ink, font)
            top += height
        return block

    def _relevance(self) -> Image:
        return overlay(fit(self.photo.convert("RGB"), *LARGE), self.balanced.relevance, (0.0, 1.0))

    def _kept(self, reasons: Sequence[Reason]) -> Image:
        """The photo where tokens are kept, with the regions' numbers, and budgets where they are not 1."""
        panel = kept_tokens(fit(self.photo.convert("RGB"), *LARGE), self.allocation)
        draw = ImageDraw.Draw(panel)
        rows, columns = self.allocation.grid
        if self._regional():
            font = load_font(CAPTION_SIZE)
            for (row, column), budget in zip(self.allocation.positions, self.allocation.budgets, strict=True):
                x0, x1 = (panel.width * edge / columns for edge in (column, column + 1))
                y0, y1 = (panel.height * edge / rows for edge in (row, row + 1))
                draw.rectangle((x0, y0, x1, y1), outline=PAGE)
                middle = ((x0 + x1) / 2, (y0 + y1) / 2)
                draw.text(middle, f"{budget}", PAGE, font, anchor="mm", stroke_width=2, stroke_fill=INK)
        scale = panel.width / self.photo.width, panel.height / self.photo.height
        for reason in reasons:
            left, top, right, bottom = reason.region.box
            box = (left * scale[0], top * scale[1], right * scale[0] - 1, bottom * scale[1] - 1)
            draw.rounded_rectangle(box, 6, outline=MARK, width=2)
        for number, reason in reversed(list(enumerate(reasons, 1))):
            x, y = reason.region.box[0] * scale[0], reason.region.box[1] * scale[1]
            middle = (max(BADGE, min(x, panel.width - BADGE)), max(BADGE, min(y, panel.height - BADGE)))
            _badge(draw, middle, number)
        return panel

    def _why(self, reasons: Sequence[Reason]) -> Image:
        """For each region: number, part of the tokens, its scores beside the photo's, and what lifts it."""
        tensions = self.balanced.tensions
        height = LINE * (1 + max(len(reasons), 3 if tensions else 0)) + GUTTER
        block = new("RGB", (INNER, height), PAGE)
        draw, small = ImageDraw.Draw(block), load_font(CAPTION_SIZE - 1)
        scores = self._scores()
        draw.text((0, 0), "why kept", INK, load_font(CAPTION_SIZE))
        for column, name in enumerate(scores):
            draw.text((BARS + column * (BAR + GUTTER), 2), name, FAINT, small)
        left = BARS + len(scores) * (BAR + GUTTER)
        draw.text((left, 2), "beside the photo's mean  |", FAINT, small)
        for number, reason in enumerate(reasons, 1):
            middle = LINE * number + LINE // 2
            _badge(draw, (BADGE, middle), number)
            draw.text((2 * BADGE + 8, middle), f"{reason.region.share:.0%}", INK, small, anchor="lm")
            for column, (name, plane) in enumerate(scores.items()):
                start = BARS + column * (BAR + GUTTER)
                _bar(draw, (start, middle), reason.means[name], float(plane.mean()), name == reason.best)
            draw.text(
                (left, middle),
                SPEAKS[reason.best] if reason.best else NOTHING_SPEAKS,
                INK,
                small,
                anchor="lm",
            )
        if tensions is not None:
            left = INNER - SLIDERS
            draw.text((left, 0), "the balancer's tensions", INK, load_font(CAPTION_SIZE))
            for row, (one, other, value) in enumerate(tensions.poles(), 1):
                _slider(draw, (left, LINE * row + LINE // 2), one, other, value)
        return block


def _row(panels: Sequence[tuple[Image, str]], most: tuple[int, int]) -> Image:
    """Panels of one height beside each other, each over its name."""
    font = load_font(CAPTION_SIZE)
    height = max(panel.height for panel, _ in panels)
    block = new("RGB", (INNER, height + GUTTER // 2 + line_height(CAPTION_SIZE)), PAGE)
    draw = ImageDraw.Draw(block)
    for number, (panel, name) in enumerate(panels):
        left = number * (most[0] + GUTTER)
        beside = new("RGB", (most[0], height), BESIDE)
        beside.paste(panel, ((most[0] - panel.width) // 2, (height - panel.height) // 2))
        paste(block, beside, (left, 0))
        draw.text((left, height + GUTTER // 2), name, FAINT, font)
    return block


def _badge(draw: ImageDraw.ImageDraw, middle: tuple[float, float], number: int) -> None:
    x, y = middle
    draw.ellipse((x - BADGE, y - BADGE, x + BADGE, y + BADGE), fill=MARK)
    draw.text((x, y), str(number), INK, load_font(CAPTION_SIZE), anchor="mm")


def _bar(draw: ImageDraw.ImageDraw, place: tuple[int, int], value: float, usual: float, speaks: bool) -> None:
    """A score from 0 to 1, with a tick where the photo's mean is."""
    left, middle = place
    draw.rounded_rectangle((left, middle - 6, left + BAR, middle + 6), 6, fill=TRACK)
    if value > 0:
        end = left + max(12, round(BAR * min(value, 1.0)))
        draw.rounded_rectangle((left, middle - 6, end, middle + 6), 6, fill=STRONG if speaks else WEAK)
    tick = left + BAR * usual
    draw.line((tick, middle - 9, tick, middle + 9), fill=INK, width=2)


def _slider(draw: ImageDraw.ImageDraw, place: tuple[int, int], one: str, other: str, value: float) -> None:
    """Where between its two poles a tension stands: 0 is at the first."""
    left, middle = place
    small = load_font(CAPTION_SIZE - 1)
    start, end = left + POLE, left + SLIDERS - POLE
    draw.text((start - 8, middle), one, FAINT, small, anchor="rm")
    draw.text((end + 8, middle), other, FAINT, small, anchor="lm")
    draw.rounded_rectangle((start, middle - 3, end, middle + 3), 3, fill=TRACK)
    x = start + (end - start) * value
    draw.ellipse((x - 7, middle - 7, x + 7, middle + 7), fill=STRONG)
