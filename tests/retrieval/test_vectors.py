"""The index is exact: what numpy says of the inner products."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from texcat.retrieval.vectors import Vectors

# Whole numbers, so that no order of summing rounds otherwise than another.
tables = npst.arrays(
    np.float32, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=st.integers(-9, 9)
)


@given(tables, st.integers(1, 20), st.integers(0, 9))
def test_products_and_the_nearest(table: np.ndarray, count: int, seed: int) -> None:
    query = np.random.default_rng(seed).integers(-9, 10, table.shape[1]).astype(np.float32)
    expected = table @ query
    vectors = Vectors(table)
    assert np.array_equal(vectors.products(query), expected)
    products, places = vectors.nearest(query, count)
    assert np.array_equal(products, np.sort(expected)[::-1][:count])
    assert np.array_equal(expected[places], products)
    assert len(set(places.tolist())) == len(places)


def test_vectors_are_copied() -> None:
    table = np.eye(2, dtype=np.float32)
    vectors = Vectors(table)
    table[:] = 0
    assert vectors.products(np.ones(2, np.float32)).tolist() == [1, 1]
