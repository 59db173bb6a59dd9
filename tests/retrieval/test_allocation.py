"""Allocations: exact, in bounds, deterministic, the most relevant first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from texcat.catalogue.errors import UsageError
from texcat.retrieval import TopKAllocator

maps = npst.arrays(
    np.float32, npst.array_shapes(min_dims=2, max_dims=2, max_side=32), elements=st.floats(-10, 10, width=32)
)


@given(maps, st.data())
def test_topk_spends_the_budget_on_the_most_relevant(
    relevance: NDArray[np.float32], data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, relevance.size))
    allocation = TopKAllocator().allocate(relevance, budget)
    assert allocation.budgets.sum() == budget == len(allocation.indices)
    assert (np.diff(allocation.indices) > 0).all()
    rows, columns = allocation.positions.T
    assert np.array_equal(rows * relevance.shape[1] + columns, allocation.indices)
    assert np.array_equal(relevance[rows, columns], allocation.scores)
    dropped = np.delete(relevance.ravel(), allocation.indices)
    assert dropped.size == 0 or dropped.max() <= allocation.scores.min()
    again = TopKAllocator().allocate(relevance.copy(), budget)
    assert np.array_equal(again.indices, allocation.indices)


def test_of_equals_the_first_in_raster_order_are_kept() -> None:
    flat = np.zeros((4, 4), np.float32)
    assert TopKAllocator().allocate(flat, 5).indices.tolist() == [0, 1, 2, 3, 4]
    flat[3, 3] = 1
    assert TopKAllocator().allocate(flat, 3).indices.tolist() == [0, 1, 15]


@pytest.mark.parametrize("budget", [0, -1, 17])
def test_a_budget_that_cannot_be_spent(budget: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 16 tokens"):
        TopKAllocator().allocate(np.zeros((4, 4), np.float32), budget)


def test_relevance_that_is_not_finite() -> None:
    with pytest.raises(UsageError, match="finite"):
        TopKAllocator().allocate(np.full((4, 4), np.nan, np.float32), 3)
