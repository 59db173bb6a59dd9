"""Training: soft choices, losses, and modules that numpy repeats."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue import UsageError
from texcat.retrieval import TopKAllocator
from texcat.retrieval.balancing import Kind
from texcat.retrieval.evidence import PLANES
from texcat.retrieval.examples import Examples, recall
from texcat.retrieval.training import (
    BUDGETS,
    AdaptiveBalancer,
    Epoch,
    Loss,
    Options,
    TensionBalancer,
    cells_loss,
    export,
    hold_out,
    predict,
    recall_loss,
    soft_weights,
    train,
)

ASKED = 12
SMALL = Options(epochs=10, batch=10, hidden=8, inner=6, rate=2e-2, dropout=0.0)


def examples(count: int = 24, seed: int = 0) -> Examples:
    """Boxes of an eighth of the grid, with a bright and noisy participatory score in them."""
    drawn = np.random.default_rng(seed)
    planes = drawn.random((count, len(PLANES), 1024), np.float32)
    area = np.zeros((count, 32, 32), np.float32)
    for each in area:
        row, column = drawn.integers(0, 22, 2)
        each[row : row + 10, column : column + 12] = 1 / 1024
    area = area.reshape(count, -1)
    planes[:, PLANES.index("participatory")] += area * 400
    planes[:, PLANES.index("middle")] += area * 1000
    asked = drawn.standard_normal((count, ASKED)).astype(np.float32)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    return Examples(planes, asked, area, np.arange(count) // 2, ("dog",) * count)


@given(
    values=st.lists(st.floats(-30, 30, width=32), min_size=3, max_size=40),
    part=st.floats(0.02, 0.98),
    temperature=st.sampled_from([0.01, 0.3, 2.0]),
)
def test_soft_weights_sum_to_the_budget(values: list[float], part: float, temperature: float) -> None:
    budget = part * len(values)
    weights = soft_weights(torch.tensor([values], dtype=torch.float64), budget, temperature)
    assert float(weights.sum()) == pytest.approx(budget, rel=1e-3)
    assert 0 <= float(weights.min()) <= float(weights.max()) <= 1
    order = np.argsort(values, kind="stable")
    assert (np.diff(weights[0].numpy()[order]) >= -1e-12).all()


def test_soft_weights_become_the_choice_of_the_highest() -> None:
    values = np.random.default_rng(0).random((32, 32), np.float32)
    weights = soft_weights(torch.from_numpy(values.reshape(1, -1)).double(), 200, 1e-5)[0].numpy()
    kept = TopKAllocator().allocate(values, 200).indices
    assert set(np.flatnonzero(weights > 0.5)) == set(kept)
    assert np.abs(weights[kept] - 1).max() < 0.5


def test_the_gradient_of_soft_weights_goes_through_the_threshold() -> None:
    values = torch.randn(3, 20, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: soft_weights(v, 6.0, 0.5), values, eps=1e-5, atol=1e-4)


@pytest.mark.parametrize(("budget", "temperature"), [(0, 1.0), (5, 1.0), (2, 0.0)])
def test_a_soft_choice_of_nothing_is_refused(budget: float, temperature: float) -> None:
    with pytest.raises(UsageError, match="expected a budget between 0 and 5"):
        soft_weights(torch.zeros(1, 5), budget, temperature)


def test_losses_by_hand() -> None:
    area = torch.zeros(1, 1024)
    area[0, :100] = 1 / 1024
    sure = torch.where(area > 0, 40.0, -40.0)
    assert float(recall_loss(torch.zeros(1, 1024), area)) == pytest.approx(
        1 - np.mean(BUDGETS) / 1024, abs=1e-5
    )
    assert float(recall_loss(sure, area)) == pytest.approx(0.36 / 5, abs=2e-3), "64 positions cover 64 of 100"
    assert float(cells_loss(torch.zeros(1, 1024), area)) == pytest.approx(np.log(2))
    assert float(cells_loss(sure, area)) == pytest.approx(0, abs=1e-6)


def test_recall_by_hand() -> None:
    values = np.array([[0.9, 0.1, 0.9, 0.5]], np.float32)
    area = np.array([[0.0, 0.5, 0.25, 0.25]], np.float32)
    assert [float(recall(values, area, k)[0]) for k in (1, 2, 3, 4)] == [0, 0.25, 0.5, 1]


def module(kind: Kind) -> TensionBalancer | AdaptiveBalancer:
    """One whose weights are all drawn."""
    torch.manual_seed(1)
    mean, spread = torch.rand(len(PLANES)), 0.5 + torch.rand(len(PLANES))
    made: TensionBalancer | AdaptiveBalancer
    if kind == "tension":
        made = TensionBalancer(mean, spread, 8)
    else:
        made = AdaptiveBalancer(mean, spread, ASKED, hidden=8, inner=6)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


@pytest.mark.parametrize("kind", get_args(Kind))
def test_numpy_repeats_torch(kind: Kind) -> None:
    """Within 2e-6 of relevance: float32, summed in another order."""
    torched, many = module(kind), examples(6)
    expected = 1 / (1 + np.exp(-predict(torched, many).astype(np.float64)))
    balancer = export(torched, "tiny-1", {})
    assert np.ptp(expected) > 0.1
    for row, (planes, asked) in enumerate(zip(many.planes, many.asked, strict=True)):
        made, tensions = balancer.apply(planes, asked)
        np.testing.assert_allclose(made, expected[row], atol=2e-6)
        assert made.dtype == np.float32
        assert all(0 < each < 1 for each in tensions)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_training_learns_and_repeats_itself(kind: Kind) -> None:
    epochs: list[Epoch] = []
    first = train(examples(), "tiny-1", replace(SMALL, kind=kind), on_epoch=epochs.append)
    again = train(examples(), "tiny-1", replace(SMALL, kind=kind))
    other = train(examples(), "tiny-1", replace(SMALL, kind=kind, seed=1))
    assert tuple(epochs) == first.epochs == again.epochs
    assert epochs[-1].loss < epochs[0].loss
    assert first.recalls[200]["participatory"] < first.recalls[200]["balancer"] <= first.recalls[200]["best"]
    for name, weights in first.balancer.tensors.items():
        np.testing.assert_array_equal(weights, again.balancer.tensors[name], err_msg=name)
    assert (first.balancer.tensors["out.weight"] != other.balancer.tensors["out.weight"]).any()
    assert (first.photos, first.held_photos) == (10, 2)
    assert (first.examples, first.held_examples) == (20, 4)
    assert first.balancer.about["options"] == asdict(replace(SMALL, kind=kind))


@pytest.mark.parametrize("loss", get_args(Loss))
def test_both_losses_train(loss: Loss) -> None:
    trained = train(examples(), "tiny-1", replace(SMALL, loss=loss, kind="tension"))
    assert trained.recalls[200]["balancer"] > trained.recalls[200]["participatory"]


def test_training_stops_when_nothing_gets_better() -> None:
    many = examples()
    many.area[:] = many.area[::-1].copy()  # nothing to learn
    trained = train(many, "tiny-1", replace(SMALL, kind="tension", epochs=60, patience=2))
    assert len(trained.epochs) == trained.best + 2 < 60


def test_photos_are_held_out_whole() -> None:
    photos = np.repeat(np.arange(10), 3)
    held = hold_out(photos, 0.2, 0)
    assert held.sum() == 6
    assert not set(photos[held]) & set(photos[~held])
    assert (held == hold_out(photos, 0.2, 0)).all()
    assert (held != hold_out(photos, 0.2, 1)).any()
    assert hold_out(photos[:6], 0.01, 0).sum() == 3
    assert hold_out(photos[:6], 0.99, 0).sum() == 3
    with pytest.raises(UsageError, match="two photos with boxes are needed"):
        hold_out(photos[:3], 0.2, 0)


@pytest.mark.parametrize(
    "change", [{"kind": "best"}, {"loss": "none"}, {"held": 1.0}, {"epochs": 0}, {"seed": -1}]
)
def test_options_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Options(**change)
