"""Neighbours that are kept up to date, against comparing all with all; and correlations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from texcat.catalogue.nearest import Nearest, correlations, extend

K = 4


def unit_vectors(seed: int, n: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=(n, 6)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def assert_is_nearest(found: Nearest, vectors: NDArray[np.float32]) -> None:
    """One vector after another, each with all."""
    assert found.places.shape == found.cosines.shape == (len(vectors), K)
    for i, vector in enumerate(vectors):
        ranked = sorted((-float(vector @ other), j) for j, other in enumerate(vectors) if j != i)[:K]
        held = found.places[i][found.places[i] >= 0].tolist()
        assert held == [j for _, j in ranked]
        np.testing.assert_allclose(found.cosines[i, : len(held)], [-c for c, _ in ranked], atol=1e-5)
        assert np.isneginf(found.cosines[i, len(held) :]).all()


@given(st.integers(0, 2**32), st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_added_in_any_portions_it_is_as_if_all_were_compared(seed: int, portions: list[int]) -> None:
    vectors = unit_vectors(seed, sum(portions))
    found = Nearest.none(0, K)
    for end in np.cumsum(portions):
        found = extend(found, vectors[:end])
        assert_is_nearest(found, vectors[:end])


@given(st.integers(0, 2**32), st.integers(2, 15), st.data())
def test_neighbours_that_were_taken_away_are_made_up_for(seed: int, n: int, data: st.DataObject) -> None:
    vectors = unit_vectors(seed, n)
    full = extend(Nearest.none(0, K), vectors)
    gone = data.draw(st.integers(0, n - 1))
    left = np.delete(np.arange(n), gone)
    # As the registry gives it back: what is gone is gone from every list, and the rest has moved up.
    held = Nearest.none(n - 1, K)
    for row, i in enumerate(left):
        kept = [(j - (j > gone), c) for j, c in zip(full.places[i], full.cosines[i], strict=True)]
        kept = [(j, c) for (j, c), was in zip(kept, full.places[i], strict=True) if was not in (gone, -1)]
        for rank, (j, cosine) in enumerate(kept):
            held.places[row, rank], held.cosines[row, rank] = j, cosine
    more = np.vstack([vectors[left], unit_vectors(seed + 1, 2)])
    assert_is_nearest(extend(held, more), more)


def test_more_than_one_chunk() -> None:
    vectors = unit_vectors(0, 700)
    assert_is_nearest(extend(extend(Nearest.none(0, K), vectors[:10]), vectors), vectors)


def test_correlations_are_pearsons() -> None:
    scores = np.random.default_rng(0).normal(5, 1, (4, 50)).astype(np.float32)
    scores[1] = 3 * scores[0] + 7
    scores[2] = -scores[0]
    found = correlations(scores)
    np.testing.assert_allclose(found + np.eye(4), np.corrcoef(scores), atol=1e-5)
    assert found[0, 1] == pytest.approx(1, abs=1e-5)
    assert found[0, 2] == pytest.approx(-1, abs=1e-5)


def test_a_row_that_is_constant_goes_with_none() -> None:
    scores = np.full((3, 20), 0.1, np.float32)
    scores[1] = np.arange(20)
    scores[2] = np.arange(20)
    found = correlations(scores)
    assert found[0].tolist() == [0, 0, 0]
    assert found[1, 2] == pytest.approx(1)
