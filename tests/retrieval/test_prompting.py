from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from texcat.retrieval.allocation import TopKAllocator
from texcat.retrieval.prompting import regions


def test_regions_are_groups_that_touch_the_most_relevant_first() -> None:
    relevance = np.zeros((4, 8), np.float32)
    relevance[0, 0] = 0.9
    relevance[2:4, 5:7] = 0.5
    relevance[1, 4] = 0.4  # touches the group by a corner
    found = regions(TopKAllocator().allocate(relevance, 6), (80, 40))
    assert [region.box for region in found] == [(40, 10, 70, 40), (0, 0, 10, 10)]
    np.testing.assert_allclose([region.score for region in found], [2.4 / 5, 0.9], rtol=1e-6)
    np.testing.assert_allclose([region.share for region in found], [5 / 6, 1 / 6])


def test_a_prompt_has_a_crop_and_a_line_for_each_region() -> None:
    relevance = np.zeros((4, 8), np.float32)
    relevance[0, 0], relevance[3, 7], relevance[0, 7] = 0.9, 0.8, 0.7
    photo = Image.effect_noise((81, 43), 50).convert("RGB")
    made = TopKAllocator().allocate(relevance, 3).to_prompt(photo, most=2)
    assert [region.box for region in made.regions] == [(0, 0, 11, 11), (70, 32, 81, 43)]
    assert [crop.size for crop in made.crops] == [(11, 11), (11, 11)]
    assert np.array_equal(np.asarray(made.crops[1]), np.asarray(photo)[32:43, 70:81])
    first, *lines = made.text.splitlines()
    assert "81 x 43 pixels" in first
    assert lines == ["1. 0, 0, 11, 11 (relevance 0.90)", "2. 70, 32, 81, 43 (relevance 0.80)"]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 200), st.integers(1, 200), st.data())
def test_boxes_hold_every_kept_position_and_stay_in_the_image(
    rows: int, columns: int, width: int, height: int, data: st.DataObject
) -> None:
    relevance = np.random.default_rng(data.draw(st.integers(0, 99))).random((rows, columns), np.float32)
    kept = TopKAllocator().allocate(relevance, data.draw(st.integers(1, rows * columns)))
    found = regions(kept, (width, height), most=100)
    assert abs(sum(region.share for region in found) - 1) < 1e-9
    for left, top, right, bottom in (region.box for region in found):
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    for row, column in kept.positions.tolist():
        x, y = (column + 0.5) * width / columns, (row + 0.5) * height / rows
        assert any(b[0] <= x <= b[2] and b[1] <= y <= b[3] for b in (region.box for region in found))
