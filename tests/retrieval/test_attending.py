"""Allocators: what all of them keep to, and what each is for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from texcat.catalogue.errors import UsageError
from texcat.retrieval.allocation import Allocator, TopKAllocator
from texcat.retrieval.attending import ALLOCATORS, allocator, needed_budget
from texcat.retrieval.coverage import CoverageAllocator
from texcat.retrieval.diversity import CDPruner, DivPrune
from texcat.retrieval.neighbourhoods import QuadtreeAllocator, WindowAllocator
from texcat.retrieval.regional import BudgetsAllocator, spend

Plane = NDArray[np.float32]

PER_POSITION: dict[str, Allocator] = {
    **{name: each for name, each in ALLOCATORS.items() if name != "budgets"},
    "divprune": DivPrune(),
    "cdpruner": CDPruner(),
}

relevances = npst.arrays(
    np.float32,
    npst.array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-10, 10, width=32)),
)


def features(relevance: Plane, seed: int = 0) -> Plane:
    return np.random.default_rng(seed).normal(size=(5, *relevance.shape)).astype(np.float32)


@pytest.mark.parametrize("name", PER_POSITION)
@given(relevance=relevances, data=st.data())
@settings(max_examples=40)
def test_every_allocator_keeps_exactly_its_budget(name: str, relevance: Plane, data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, relevance.size))
    made = PER_POSITION[name].allocate(relevance, budget, features(relevance))
    assert made.grid == relevance.shape
    assert len(made.indices) == budget == made.budgets.sum()
    assert (np.diff(made.indices) > 0).all()
    assert 0 <= made.indices[0] <= made.indices[-1] < relevance.size
    assert np.array_equal(made.positions @ [relevance.shape[1], 1], made.indices)
    assert np.array_equal(made.scores, relevance.ravel()[made.indices])
    again = PER_POSITION[name].allocate(relevance.copy(), budget, features(relevance))
    assert np.array_equal(again.indices, made.indices)


@pytest.mark.parametrize("name", PER_POSITION)
@pytest.mark.parametrize("relevance", [np.zeros((6, 5)), np.full((6, 5), 7.0), np.eye(6, 5)])
def test_degenerate_maps_are_spent_on_too(name: str, relevance: Plane) -> None:
    plane = relevance.astype(np.float32)
    for budget in (1, 7, 30):
        made = PER_POSITION[name].allocate(plane, budget, np.ones((2, 6, 5), np.float32))
        assert len(set(made.indices.tolist())) == budget


@pytest.mark.parametrize("name", ["topk", "window", "coverage"])
def test_the_one_peak_is_kept(name: str) -> None:
    plane = np.zeros((9, 11), np.float32)
    plane[6, 3] = 1
    assert 6 * 11 + 3 in PER_POSITION[name].allocate(plane, 5).indices


@pytest.mark.parametrize("name", PER_POSITION)
@pytest.mark.parametrize("budget", [0, 13])
def test_a_budget_that_cannot_be_spent(name: str, budget: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 12 tokens"):
        PER_POSITION[name].allocate(np.zeros((3, 4), np.float32), budget, np.ones((1, 3, 4), np.float32))


@pytest.mark.parametrize("name", [*PER_POSITION, "budgets"])
def test_relevance_that_is_not_finite(name: str) -> None:
    plane = np.array([[0, np.inf], [1, 2]], np.float32)
    with pytest.raises(UsageError):
        {**PER_POSITION, **ALLOCATORS}[name].allocate(plane, 2, np.ones((1, 2, 2), np.float32))


def test_a_window_stays_together() -> None:
    plane = np.zeros((8, 8), np.float32)
    plane[2:5, 2:5] = 0.5
    plane[7, 7] = 0.9
    kept = WindowAllocator(3).allocate(plane, 9)
    assert {tuple(p) for p in kept.positions.tolist()} == {(r, c) for r in range(2, 5) for c in range(2, 5)}
    assert (7, 7) in {tuple(p) for p in WindowAllocator(3).allocate(plane, 10).positions.tolist()}
    with pytest.raises(UsageError, match="at least 1 position, got 0"):
        WindowAllocator(0)


def test_windows_against_the_plain_way() -> None:
    """Sums worked out anew for each window, as the docstring says it."""
    for seed in range(8):
        plane = np.random.default_rng(seed).random((9, 10), np.float32)
        exact = plane.astype(float)
        left = 1 + np.rint((exact - exact.min()) / np.ptp(exact) * 2**30).astype(int)
        kept: set[int] = set()
        while len(kept) < 31:
            sums = {(r, c): left[r : r + 3, c : c + 3].sum() for r in range(7) for c in range(8)}
            row, column = max(sums, key=lambda at: (sums[at], -at[0], -at[1]))
            window = [(row + i) * 10 + column + j for i in range(3) for j in range(3)]
            new = sorted((p for p in window if p not in kept), key=lambda p: (-plane.ravel()[p], p))
            kept |= set(new[: 31 - len(kept)])
            left[row : row + 3, column : column + 3] = 0
        assert WindowAllocator(3).allocate(plane, 31).indices.tolist() == sorted(kept)


def test_a_quadtree_is_fine_where_relevance_changes() -> None:
    plane = np.zeros((16, 16), np.float32)
    plane[:8, :8] = np.random.default_rng(0).random((8, 8), np.float32)
    kept = QuadtreeAllocator().allocate(plane, 67)
    fine = (kept.positions < 8).all(axis=1)
    assert (fine.sum(), (~fine).sum()) == (64, 3)


def test_a_quadtree_by_hand() -> None:
    """Four tokens on 4 x 4: a quarter each, its most relevant position."""
    plane = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert QuadtreeAllocator().allocate(plane, 4).indices.tolist() == [5, 7, 13, 15]
    assert QuadtreeAllocator().allocate(plane, 1).indices.tolist() == [15]


def standing_for(shape: tuple[int, ...], shapes: Plane | None) -> NDArray[np.float64]:
    """S as the formula says it, for all pairs."""
    at = np.argwhere(np.ones(shape))
    near = np.exp(-((at[:, None] - at) ** 2).sum(-1) / (2 * 1.5**2))
    near[near < 0.02] = 0
    if shapes is not None:
        flat = shapes.reshape(len(shapes), -1) / np.linalg.norm(shapes.reshape(len(shapes), -1), axis=0)
        near = near * np.maximum(flat.T @ flat, 0)
    return near


def covered(stands: NDArray[np.float64], weights: NDArray[np.float64], chosen: list[int]) -> float:
    return float(stands[chosen].max(axis=0) @ weights)


@given(seed=st.integers(0, 200), with_features=st.booleans())
@settings(max_examples=25)
def test_coverage_is_the_plain_greedy_choice(seed: int, with_features: bool) -> None:
    draw = np.random.default_rng(seed)
    plane = draw.random((4, 5)).astype(np.float32) ** 3
    shapes = features(plane, seed) if with_features else None
    stands = standing_for(plane.shape, shapes)
    weights = plane.ravel().astype(float)
    covering = CoverageAllocator().cover(plane, 8, shapes)
    chosen: list[int] = []
    for best in covering.order.tolist():
        gains = [covered(stands, weights, [*chosen, u]) if u not in chosen else -1 for u in range(20)]
        assert gains[best] >= max(gains) - 1e-5
        chosen.append(best)
    whole = covered(stands, weights, list(range(20)))
    expected = [covered(stands, weights, chosen[:k]) / whole for k in range(1, 9)]
    np.testing.assert_allclose(covering.coverage, expected, atol=1e-5)


@given(relevance=relevances, data=st.data())
@settings(max_examples=40)
def test_coverage_is_nested(relevance: Plane, data: st.DataObject) -> None:
    """One run serves every budget."""
    most = data.draw(st.integers(1, relevance.size))
    covering = CoverageAllocator().cover(relevance, most)
    fewer = data.draw(st.integers(1, most))
    kept = CoverageAllocator().allocate(relevance, fewer).indices
    assert sorted(covering.order[:fewer].tolist()) == kept.tolist()
    assert (np.diff(covering.coverage) >= 0).all()
    assert 0 <= covering.coverage[0] <= covering.coverage[-1] <= 1 + 1e-9
    share = data.draw(st.floats(0.01, 1))
    budget = covering.budget(share)
    assert 1 <= budget <= most
    assert covering.coverage[budget - 1] >= min(share, covering.coverage[-1]) - 1e-12


def test_coverage_spreads_over_two_blobs_alike() -> None:
    """The best positions of one blob alone would leave the other, a little weaker, without any."""
    y, x = np.mgrid[:16, :16]
    plane = np.exp(-((y - 4) ** 2 + (x - 4) ** 2) / 8) + 0.5 * np.exp(-((y - 12) ** 2 + (x - 12) ** 2) / 8)
    plane = plane.astype(np.float32)
    assert (TopKAllocator().allocate(plane, 8).positions < 8).all()
    assert (CoverageAllocator().allocate(plane, 8).positions >= 8).all(axis=1).sum() >= 2


def test_what_rounding_leaves_of_a_gain_is_not_kept_twice() -> None:
    plane = np.full((7, 8), 0.5, np.float32)
    plane[0, 0] = plane[5, 2] = plane[6, 1] = 0
    kept = CoverageAllocator().allocate(plane, 54, features(plane))
    assert len(set(kept.indices.tolist())) == 54


def test_features_must_fit() -> None:
    plane = np.ones((3, 4), np.float32)
    with pytest.raises(UsageError, match=r"features must be finite and \[D, 3, 4\], got \(2, 4, 3\)"):
        CoverageAllocator().allocate(plane, 2, np.ones((2, 4, 3), np.float32))
    for each in (DivPrune(), CDPruner()):
        with pytest.raises(UsageError, match="diversity needs finite features"):
            each.allocate(plane, 2)
    with pytest.raises(UsageError, match="reach of a position must be above 0, got 0"):
        CoverageAllocator(0)


def test_divprune_keeps_what_differs() -> None:
    """Three directions, each several times: three tokens, one of each."""
    shapes = np.zeros((3, 2, 4), np.float32)
    for place, kind in enumerate([0, 0, 1, 0, 1, 2, 0, 0]):
        shapes[kind, place // 4, place % 4] = 1
    kept = DivPrune().allocate(np.zeros((2, 4), np.float32), 3, shapes)
    assert sorted(shapes[:, p[0], p[1]].argmax() for p in kept.positions) == [0, 1, 2]


def test_cdpruner_is_the_greedy_determinant() -> None:
    for seed in range(10):
        plane = np.random.default_rng(seed).random((3, 4)).astype(np.float32)
        shapes = features(plane, seed)
        flat = shapes.reshape(5, -1) / np.linalg.norm(shapes.reshape(5, -1), axis=0)
        weights = ((plane - plane.min()) / np.ptp(plane)).ravel()
        kernel = weights[:, None] * (flat.T @ flat) * weights
        kept: list[int] = []
        for _ in range(4):
            rest = [u for u in range(12) if u not in kept]
            kept.append(max(rest, key=lambda u: np.linalg.det(kernel[np.ix_([*kept, u], [*kept, u])])))
        assert CDPruner().allocate(plane, 4, shapes).indices.tolist() == sorted(kept)


@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=16),
    least=st.integers(1, 64),
    more=st.integers(0, 400),
    data=st.data(),
)
def test_budgets_are_whole_within_bounds_and_sum_exactly(
    shares: list[float], least: int, more: int, data: st.DataObject
) -> None:
    most = least + more
    budget = data.draw(st.integers(least * len(shares), most * len(shares)))
    made = spend(np.array(shares), budget, least, most)
    assert made.sum() == budget
    assert least <= made.min() <= made.max() <= most
    order = np.argsort(shares, kind="stable")
    assert (np.diff(made[order]) >= -1).all(), "more for a larger share, but for rounding"


def test_budgets_by_hand() -> None:
    assert spend(np.array([1.0, 0.5, 0.25]), 700, 64, 400).tolist() == [400, 200, 100]
    assert spend(np.array([1.0, 0.1]), 464, 64, 400).tolist() == [400, 64]
    assert spend(np.array([1.0, 1.0, 1.0]), 200, 64, 400).tolist() == [67, 67, 66]


@given(relevance=relevances, data=st.data())
@settings(max_examples=40)
def test_regions_get_exactly_the_budget(relevance: Plane, data: st.DataObject) -> None:
    each = BudgetsAllocator((4, 4), 64, 400)
    regions = min(4, relevance.shape[0]) * min(4, relevance.shape[1])
    budget = data.draw(st.integers(64, 400 * regions))
    made = each.allocate(relevance, budget)
    assert made.budgets.sum() == budget
    assert 64 <= made.budgets.min() <= made.budgets.max() <= 400
    assert len(made.indices) == min(regions, budget // 64)


def test_a_power_favours_the_best_regions() -> None:
    plane = np.array([[1, 0.5], [0.5, 0.5]], np.float32)
    shared = [BudgetsAllocator((2, 2), 10, 400, power).allocate(plane, 400).budgets[0] for power in (0, 1, 2)]
    assert shared == [100, 160, 229]
    with pytest.raises(UsageError, match="from 64 to 1600 tokens for 2 x 2 regions"):
        BudgetsAllocator().allocate(plane, 63)
    with pytest.raises(UsageError, match="1 <= least <= most"):
        BudgetsAllocator(least=5, most=4)


def planes() -> Iterator[tuple[str, Plane, int]]:
    y, x = np.mgrid[:32, :32].astype(np.float32)
    yield "one spot", np.exp(-((y - 9) ** 2 + (x - 20) ** 2) / 4), 64
    yield "everywhere", np.ones((32, 32), np.float32), 400


@pytest.mark.parametrize(("name", "plane", "expected"), list(planes()))
def test_an_image_gets_the_tokens_that_it_needs(name: str, plane: Plane, expected: int) -> None:
    assert needed_budget(plane.astype(np.float32)) == expected, name


def test_a_page_of_text_gets_more() -> None:
    plane, text = np.zeros((32, 32), np.float32), np.zeros((32, 32), np.float32)
    plane[3, 3] = 1
    text[:2, :5] = 1
    assert needed_budget(plane, text) == 64
    text[:2, :16] = 1
    assert needed_budget(plane, text) == 512
    assert needed_budget(plane[:16, :16], text[:16, :16]) == 128
    with pytest.raises(UsageError, match="the part to cover must be above 0 and at most 1, got 0"):
        needed_budget(plane, covered=0)


def test_a_strategy_is_known_by_name() -> None:
    assert allocator("topk") is ALLOCATORS["topk"]
    with pytest.raises(UsageError, match="'best' is not known; expected one of: topk, window, quadtree"):
        allocator("best")
