"""The homunculus: what is kept, and why."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from texcat.retrieval.balancing import Balanced, Tensions
from texcat.retrieval.homunculus import MARK, Homunculus
from texcat.retrieval.knowing import Scores
from texcat.retrieval.regional import BudgetsAllocator

from .test_pictures import PEAK, allocation, hit, photo

LOW = np.full((32, 32), 0.2, np.float32)
EYE = LOW.copy()
EYE[20:24, 4:8] = 0.9
"""Draws the eye elsewhere than `PEAK`."""

BALANCED = Balanced(
    np.maximum(PEAK, 0.9 * (EYE > 0.5)), Scores(LOW, EYE, PEAK), Tensions(0.9, 0.1, 0.5), "tension"
)


def homunculus(size: tuple[int, int] = (640, 480), caption: str = "Where is the bike?") -> Homunculus:
    kept = allocation(BALANCED.relevance, 32)
    return Homunculus(photo(*size), hit(), BALANCED, kept, caption)


def test_each_region_is_kept_for_the_score_that_lifts_it() -> None:
    asked, seen = homunculus().reasons()
    assert (asked.region.box, seen.region.box) == ((480, 60, 560, 120), (80, 300, 160, 360))
    assert (asked.best, seen.best) == ("participatory", "perspectival")
    assert asked.means["participatory"] == pytest.approx(1)
    assert seen.means == pytest.approx({"participatory": 0, "perspectival": 0.9, "propositional": 0.2})
    assert asked.lifts["participatory"] == pytest.approx((1 - PEAK.mean()) / PEAK.std(), rel=1e-4)
    assert asked.lifts["propositional"] == 0, "it is the same everywhere"
    assert asked.region.share == seen.region.share == 0.5


def test_what_nothing_speaks_for_is_told() -> None:
    everything = replace(homunculus(), allocation=allocation(-PEAK, 1024 - 16))
    assert [reason.best for reason in everything.reasons()] == ["perspectival"]
    nothing = replace(everything, balanced=replace(BALANCED, scores=Scores(LOW, LOW, PEAK)))
    assert [reason.best for reason in nothing.reasons()] == [None]
    assert nothing.picture().width == 1280


def test_the_picture_marks_the_regions() -> None:
    page = np.asarray(homunculus().picture())
    marked = (page == MARK).all(axis=2)
    assert page.shape[1] == 1280
    assert marked[:, :640].sum() > 500
    assert not marked[:500, 650:].any(), "the relevance stands beside it, unmarked"


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (300, 900)])
def test_any_photo_can_be_drawn(size: tuple[int, int]) -> None:
    page = homunculus(size).picture()
    assert (page.mode, page.width) == ("RGB", 1280)
    assert page.height < 1400


@pytest.mark.parametrize("caption", ["", "日本の猫 🐈", "a\nb\x00\udce9", "long " * 20_000])
def test_any_caption_can_be_drawn(caption: str) -> None:
    assert homunculus(caption=caption).picture().width == 1280


def test_budgets_are_written_on_their_regions_and_no_balancer_has_no_tensions() -> None:
    drawn = homunculus()
    plain = replace(drawn, balanced=replace(BALANCED, tensions=None, by=None))
    regional = replace(plain, allocation=BudgetsAllocator().allocate(BALANCED.relevance, 800))
    assert len(regional.reasons()) == 4
    assert sum(reason.region.share for reason in regional.reasons()) < 1
    assert [reason.region.share for reason in regional.reasons()] == sorted(
        (reason.region.share for reason in regional.reasons()), reverse=True
    )
    assert regional.picture().width == 1280
    whole, bare = np.asarray(drawn.picture()), np.asarray(plain.picture())
    bottom, right = whole.shape[0] - 120, 900
    assert (whole[bottom:, right:] != 255).any()
    assert (bare[bottom:, right:] == 255).all()


def test_a_notebook_shows_it() -> None:
    with Image.open(BytesIO(homunculus()._repr_png_())) as shown:
        assert (shown.format, shown.width) == ("PNG", 1280)
