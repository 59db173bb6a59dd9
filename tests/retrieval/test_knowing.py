"""The three scores, by hand and over all inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from texcat.catalogue import Catalogue
from texcat.catalogue.errors import UsageError
from texcat.indexer import index_corpus
from texcat.retrieval import Retriever
from texcat.retrieval.knowing import know, participatory, perspectival, propositional

from ..fakes import TinyEncoder
from .conftest import peak

Plane = NDArray[np.float32]


def test_information_by_hand() -> None:
    """The middle of 3 x 3 sees 9 values, a corner 4: p = 1 / 4 and 3 / 4 there, one of 9 in the middle."""
    plane = np.zeros((1, 3, 3), np.float32)
    plane[0, 0, 0] = 1
    made = propositional(plane)

    def entropy(*parts: float) -> float:
        return -sum(p * np.log(p) for p in parts) / np.log(8)

    assert made[0, 0] == pytest.approx(entropy(1 / 4, 3 / 4))
    assert made[1, 1] == pytest.approx(entropy(1 / 9, 8 / 9))
    assert made[0, 1] == pytest.approx(entropy(1 / 6, 5 / 6))
    assert made[2, 2] == 0


def test_information_is_the_mean_over_channels_and_bounded() -> None:
    even = np.zeros((8, 8), np.float32)
    busy = np.random.default_rng(0).random((8, 8), np.float32)
    both = propositional(np.stack([even, busy]))
    np.testing.assert_allclose(both, propositional(busy[None]) / 2, rtol=1e-6)
    assert 0 < both.max() <= 1


@given(npst.arrays(np.float32, (2, 5, 4), elements=st.floats(-3, 3, width=32)))
def test_information_is_in_range(planes: Plane) -> None:
    made = propositional(planes)
    assert (made.shape, made.dtype) == ((5, 4), np.float32)
    assert 0 <= made.min() <= made.max() <= 1


def test_perspective_by_hand() -> None:
    saliency = np.array([[0, 2], [1, 0]], np.float32)
    edges = np.array([[0, 0], [0, 5]], np.float32)
    eccentricity = np.array([[1, 0.5], [0, 1]], np.float32)
    np.testing.assert_allclose(
        perspectival(saliency, edges, eccentricity), [[0, 1.5 / 3], [1.5 / 3, 1 / 3]], rtol=1e-6
    )


def test_participation_is_presence() -> None:
    strength = np.array([[0, 5], [15, 45]], np.float32)
    np.testing.assert_allclose(participatory(strength, True), [[0, 0.5], [0.75, 0.9]], rtol=1e-6)
    np.testing.assert_allclose(participatory(strength, False), strength / 45, rtol=1e-6)


def test_scores_of_a_look_up(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "cat") as catalogue:
        catalogue.add_interest("red kite")
        index_corpus(catalogue, [photos], encoder=TinyEncoder())
        hit = Retriever(catalogue, encoder=TinyEncoder()).lookup(photos / "a.png", "red kite")
        few = Retriever(catalogue, channels="red,similarity", compute=False)
        short = few.lookup(hit.key, matches=hit.matches)
    scores = know(hit)
    for score in (scores.propositional, scores.perspectival, scores.participatory):
        assert (score.shape, score.dtype) == ((32, 32), np.float32)
        assert 0 <= score.min() < score.max() <= 1
    assert peak(scores.participatory)[0] < 16 > peak(scores.participatory)[1], "where the red quarter is"
    with pytest.raises(UsageError, match="channels eccentricity, edge_magnitude, saliency, which"):
        know(short)
