"""Matching: nearest interests, weights that sum to 1, confidence between the encoder's two cosines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue import Interest
from texcat.catalogue.distribution import Distribution
from texcat.catalogue.errors import UsageError
from texcat.retrieval import Match, Matcher, Matches

AXES = np.eye(4, dtype=np.float32)
INTERESTS = [
    Interest(1, "dog"),
    Interest(2, "cat", weight=3.0),
    Interest(5, "sea"),
    Interest(7, "off", weight=0.0),
]
EMBEDDINGS = {1: AXES[0], 2: AXES[1], 5: AXES[2], 7: AXES[0]}


def question(*parts: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    vector = np.array([*parts, *([0.0] * (4 - len(parts)))], np.float32)
    return vector / np.linalg.norm(vector)


def test_the_nearest_interests_by_hand() -> None:
    matcher = Matcher(INTERESTS, EMBEDDINGS, 0.0, 1.0)
    matches = matcher.match(question(0.8, 0.6), top=2)
    assert [match.interest.phrase for match in matches] == ["dog", "cat"]
    assert [match.similarity for match in matches] == pytest.approx([0.8, 0.6])
    heavy, light = math.exp(0.8 / 0.1), 3 * math.exp(0.6 / 0.1)
    assert matches[0].weight == pytest.approx(heavy / (heavy + light), rel=1e-5)


def test_factors_multiply_the_weights_of_interests() -> None:
    matcher = Matcher(INTERESTS, EMBEDDINGS, 0.0, 1.0)
    matcher.weigh({"cat": 0.5, "off": 2.0, "unknown": 2.0})
    matches = matcher.match(question(0.6, 0.8), top=3)
    heavy, light = 1.5 * math.exp(0.8 / 0.1), math.exp(0.6 / 0.1)
    assert matches[0].weight == pytest.approx(heavy / (heavy + light), rel=1e-3)
    assert matches[0].interest.weight == 3.0
    assert "off" not in {match.interest.phrase for match in matches}
    matcher.weigh({})
    assert matcher.match(question(0.6, 0.8), top=3)[0].weight > matches[0].weight


@given(
    st.lists(st.floats(-1, 1), min_size=4, max_size=4).filter(lambda v: sum(x * x for x in v) > 1e-3),
    st.integers(1, 9),
)
def test_weights_sum_to_one_and_fall(parts: list[float], top: int) -> None:
    matches = Matcher(INTERESTS, EMBEDDINGS, 0.0, 1.0).match(question(*parts), top)
    assert len(matches) == min(top, 3), "an interest of weight 0 has no part in a blend"
    weights = [match.weight for match in matches]
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights, reverse=True)


@pytest.mark.parametrize(
    ("cosine", "confidence"), [(0.1, 0.0), (0.2, 0.0), (0.5, 0.5), (0.8, 1.0), (1.0, 1.0)]
)
def test_confidence_is_linear_between_low_and_high(cosine: float, confidence: float) -> None:
    matcher = Matcher(INTERESTS[:1], EMBEDDINGS, 0.2, 0.8)
    matches = matcher.match(question(cosine, 0, 0, math.sqrt(1 - cosine * cosine)), 1)
    assert matcher.confidence(matches) == pytest.approx(confidence, abs=1e-6)


def test_nothing_to_match() -> None:
    matcher = Matcher([], {}, 0.2, 0.8)
    assert matcher.match(question(1.0), 3) == ()
    assert matcher.confidence(Matches()) == 0.0
    with pytest.raises(UsageError, match="top must be at least 1"):
        matcher.match(question(1.0), 0)


def test_matches_are_the_same_whatever_is_known_of_their_distributions() -> None:
    """One that is read anew, as by another retriever, is another object."""
    made = [
        Match(
            Interest(1, "dog"), 0.9, 1.0, Distribution.of(np.arange(6, dtype=np.float32).reshape(1, 2, 3), 1)
        )
        for _ in range(2)
    ]
    assert Matches(made[:1]) == Matches(made[1:])
    assert len(set(made)) == 1
    assert "table" not in repr(made[0])
