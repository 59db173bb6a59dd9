"""Features as coarse as maps: what maps and codes are made of."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from texcat.catalogue import Catalogue
from texcat.catalogue.errors import UsageError
from texcat.catalogue.grid import resize_plane
from texcat.indexer.lacking import Lacking
from texcat.indexer.textures import TextureMaker
from torch import Tensor

from ..fakes import TinyEncoder

SIDE = TinyEncoder.map_size


@pytest.fixture
def maker(tmp_path: Path) -> TextureMaker:
    with Catalogue.create(tmp_path / "catalogue") as catalogue:
        return TextureMaker(TinyEncoder(), catalogue.schema, {})


def _features(rows: int, columns: int, count: int = 2) -> Tensor:
    """Features whose dims lie together, as encoders leave them."""
    made = torch.randn(count, rows, columns, 7, generator=torch.Generator().manual_seed(rows * columns))
    return made.permute(0, 3, 1, 2)


@pytest.mark.parametrize(("down", "across"), [(2, 2), (3, 2), (1, 4), (4, 1)])
def test_maps_of_pooled_features_are_maps_resized(maker: TextureMaker, down: int, across: int) -> None:
    features = _features(down * SIDE, across * SIDE)
    pooled = maker.pooled(features)
    assert pooled.shape == (2, 7, SIDE, SIDE)
    direction = np.random.default_rng(0).standard_normal(7).astype(np.float32)
    for image in range(2):
        whole: NDArray[np.float32] = np.einsum("d,dhw->hw", direction, features[image].numpy())
        found = np.einsum("d,dhw->hw", direction, pooled[image].numpy())
        np.testing.assert_allclose(found, resize_plane(whole, SIDE), atol=2e-6)
        np.testing.assert_allclose(maker.map(direction, features[image]), found, atol=2e-6)


@pytest.mark.parametrize(("rows", "columns"), [(SIDE, SIDE), (SIDE + 1, SIDE), (2 * SIDE, SIDE - 1), (1, 1)])
def test_features_of_another_grid_stay_as_they_are(maker: TextureMaker, rows: int, columns: int) -> None:
    features = _features(rows, columns)
    assert maker.pooled(features) is features
    assert maker.map(np.ones(7, np.float32), features[0]).shape == (SIDE, SIDE)


def test_features_that_memory_is_too_small_for_are_pooled_in_parts(
    maker: TextureMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = _features(2 * SIDE, 2 * SIDE, 5)
    expected = maker.pooled(features)
    pool = torch.nn.functional.avg_pool2d

    def cramped(part: Tensor, window: tuple[int, int]) -> Tensor:
        if len(part) > 2:
            raise torch.OutOfMemoryError("no room")
        return pool(part, window)

    monkeypatch.setattr(torch.nn.functional, "avg_pool2d", cramped)
    assert torch.equal(maker.pooled(features), expected)


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("bad", [(math.nan,), (math.inf,), (-math.inf,), (math.inf, -math.inf)])
def test_features_that_are_no_finite_numbers_are_refused(
    maker: TextureMaker, bad: tuple[float, ...], window: int
) -> None:
    features = _features(window * SIDE, window * SIDE)
    features[1, 3, -1, -len(bad) :] = torch.tensor(bad)
    with pytest.raises(UsageError, match="NaN or infinity" if window == 1 else "must be finite"):
        maker.draft(None, features, maker.pooled(features), [Lacking()] * 2)


def test_features_that_are_too_large_do_not_cancel_out(maker: TextureMaker) -> None:
    features = _features(2 * SIDE, 2 * SIDE)
    features[1, 3, -1, -2:] = torch.tensor((2e30, -2e30))
    with pytest.raises(UsageError, match="below 1e30"):
        maker.pooled(features)
