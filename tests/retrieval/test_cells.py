from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue.errors import UsageError
from texcat.retrieval.allocation import Allocation, TopKAllocator
from texcat.retrieval.cells import POOLING, Cells, resample


def allocation(grid: tuple[int, int], budgets: dict[tuple[int, int], int]) -> Allocation:
    positions = np.array(sorted(budgets), np.int64).reshape(-1, 2)
    indices = positions[:, 0] * grid[1] + positions[:, 1]
    spent = np.array([budgets[row, column] for row, column in positions.tolist()], np.int64)
    return Allocation(indices, positions, spent, np.ones(len(spent), np.float32), grid)


def test_relevance_is_averaged_over_what_a_token_covers() -> None:
    relevance = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert resample(relevance, (2, 2)).tolist() == [[2.5, 4.5], [10.5, 12.5]]
    assert resample(relevance, (1, 2)).tolist() == [[6.5, 8.5]]
    np.testing.assert_allclose(resample(relevance, (4, 4)), relevance)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_relevance_keeps_its_range_on_any_grid(h: int, w: int, rows: int, columns: int, seed: int) -> None:
    relevance = np.random.default_rng(seed).random((h, w), np.float32)
    made = resample(relevance, (rows, columns))
    assert (made.shape, made.dtype) == ((rows, columns), np.float32)
    assert relevance.min() - 1e-6 <= made.min() <= made.max() <= relevance.max() + 1e-6


@pytest.mark.parametrize("grid", [(0, 3), (3, 0), (-1, 2)])
def test_a_grid_has_cells(grid: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="cannot bring relevance"):
        resample(np.ones((4, 4), np.float32), grid)


def test_relevance_is_finite() -> None:
    with pytest.raises(UsageError, match=r"of shape \(2, 2\)"):
        resample(np.array([[0, np.nan], [1, 1]], np.float32), (2, 2))


def test_on_one_grid_a_position_is_a_token() -> None:
    kept = TopKAllocator().allocate(np.random.default_rng(0).random((5, 7), np.float32), 9)
    cells = Cells.of(kept, (5, 7))
    assert cells.centres.tolist() == kept.indices.tolist()
    assert cells.blocks[:, 2:].tolist() == [[1, 1]] * 9
    places, owners = cells.members()
    assert (places.tolist(), owners.tolist()) == (kept.indices.tolist(), list(range(9)))


def test_a_budget_decides_how_far_a_region_is_pooled() -> None:
    """A grid of 32 x 64 tokens in two regions of 32 x 32: 1,024, 256, 64 and 16 tokens at the four levels."""
    grid, parts = (32, 64), (1, 2)
    for budget, level in [
        (1024, 1),
        (1023, 2),
        (400, 2),
        (256, 2),
        (255, 4),
        (64, 4),
        (63, 8),
        (16, 8),
        (1, 8),
    ]:
        cells = Cells.of(allocation(parts, {(0, 1): budget}), grid)
        assert set(cells.blocks[:, 2].tolist()) == {level}
        assert len(cells.centres) == (32 // level) ** 2
        assert cells.blocks[0].tolist() == [0, 32, level, level]
        assert cells.centres[0] == (level - 1) // 2 * 64 + 32 + (level - 1) // 2


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 20), st.integers(0, 20), st.data())
def test_blocks_are_the_kept_parts_and_never_overlap(
    rows: int, columns: int, more: int, wider: int, data: st.DataObject
) -> None:
    grid = (rows + more, columns + wider)
    positions = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1))
    budgets = data.draw(st.dictionaries(positions, st.integers(1, 500)))
    cells = Cells.of(allocation((rows, columns), budgets), grid)
    places, owners = cells.members()
    assert len(set(places.tolist())) == len(places)
    assert sorted(set(owners.tolist())) == list(range(len(cells.centres)))
    assert cells.centres.tolist() == sorted(set(cells.centres.tolist()))
    expected = set()
    spent: dict[tuple[int, int], int] = dict.fromkeys(budgets, 0)
    for place in range(grid[0] * grid[1]):
        row, column = divmod(place, grid[1])
        part = _part(row, rows, grid[0]), _part(column, columns, grid[1])
        if part in budgets:
            expected.add(place)
            spent[part] += place in set(cells.centres.tolist())
    assert set(places.tolist()) == expected
    for part, budget in budgets.items():
        own = [
            b
            for b in cells.blocks.tolist()
            if (_part(b[0], rows, grid[0]), _part(b[1], columns, grid[1])) == part
        ]
        assert len(own) == spent[part]
        assert len(own) <= budget or max(max(b[2:]) for b in own) <= POOLING[-1]


def _part(place: int, parts: int, size: int) -> int:
    return max(part for part in range(parts) if part * size // parts <= place)


def test_an_allocation_is_not_spent_on_fewer_tokens() -> None:
    with pytest.raises(UsageError, match=r"over \(4, 4\) positions cannot be spent on \(4, 3\) tokens"):
        Cells.of(allocation((4, 4), {(0, 0): 1}), (4, 3))
