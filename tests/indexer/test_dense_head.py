"""The dense head against its formulas, written out token by token in float64, and against `encode_image`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from texcat.indexer.encoders.dense_head import DenseHead, Variant, neighbourhood_prior
from texcat.indexer.encoders.open_clip import take_apart
from torch import Tensor

from .clip_models import PLAIN, SIZE, add_configs, by_formula, images, normalised, seeded

VARIANTS: tuple[Variant, ...] = get_args(Variant)
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "dense_head.py"


@pytest.fixture(scope="module", autouse=True)
def configs(tmp_path_factory: pytest.TempPathFactory) -> None:
    add_configs(tmp_path_factory.mktemp("configs"))


def pixels(count: int) -> Tensor:
    return normalised(images(count)).double()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PLAIN)
def test_a_head_is_its_formula(name: str, variant: Variant) -> None:
    model = seeded(name).double()
    with torch.no_grad():
        actual = DenseHead(take_apart(name, model.visual), variant).tokens(pixels(1))
        expected = by_formula(model, pixels(1)[0], variant)
    torch.testing.assert_close(actual[0], expected, rtol=1e-9, atol=1e-9)


def test_the_variants_differ() -> None:
    tower = take_apart("texcat-tiny", seeded("texcat-tiny").double().visual)
    with torch.no_grad():
        first, *others = (DenseHead(tower, variant).tokens(pixels(1)) for variant in VARIANTS)
    for other in others:
        assert (first - other).abs().max() > 0.1


def class_token(tokens: Tensor) -> Tensor:
    return tokens[:, 0]


POOLED = {
    **dict.fromkeys(("texcat-tiny", "texcat-tiny-quickgelu", "texcat-tiny-scaled"), class_token),
    **dict.fromkeys(("texcat-tiny-no-ln-pre", "texcat-tiny-timm"), class_token),
    "texcat-tiny-average": lambda tokens: tokens[:, 1:].mean(1),
    "texcat-tiny-unpooled": lambda tokens: tokens,
}
"""Models whose embedding of an image is a row, or a mean of rows, of what `vanilla` gives."""


@pytest.mark.parametrize("name", POOLED)
def test_vanilla_pooled_is_encode_image(name: str) -> None:
    model = seeded(name).double()
    with torch.no_grad():
        tokens = DenseHead(take_apart(name, model.visual), "vanilla").tokens(pixels(3))
        expected = model.encode_image(pixels(3))
    torch.testing.assert_close(POOLED[name](tokens), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PLAIN)
def test_where_all_tokens_are_alike_each_is_encode_image(name: str) -> None:
    """Whatever the pool, it then gives what it would give for one of them."""
    model = seeded(name).double()
    visual = model.visual
    plain = torch.tensor([0.7, -0.4, 1.1], dtype=torch.float64)[None, :, None, None].expand(1, 3, SIZE, SIZE)
    with torch.no_grad():
        if hasattr(visual, "trunk"):  # its pools leave class token and registers out, or are the class token
            vit = visual.trunk
            vit.pos_embed.zero_()
            prefix, patch = vit.num_prefix_tokens, vit.patch_embed(plain)[0, 0]
            for token in (vit.cls_token, vit.reg_token):
                if token is not None:
                    token.copy_(patch.expand_as(token))
        else:
            prefix = 1
            visual.positional_embedding.zero_()
            visual.class_embedding.copy_(visual.conv1(plain)[0, :, 0, 0])
        patches = DenseHead(take_apart(name, visual), "vanilla").tokens(plain)[:, prefix:]
        expected = model.encode_image(plain)
    expected = expected.reshape(1, -1, expected.shape[-1])[:, :1].expand_as(patches)
    torch.testing.assert_close(patches, expected, rtol=1e-9, atol=1e-9)


@given(rows=st.integers(1, 7), columns=st.integers(1, 7), sigma=st.floats(0.5, 10), prefix=st.integers(0, 5))
def test_prior_falls_with_distance_alone(rows: int, columns: int, sigma: float, prefix: int) -> None:
    prior = neighbourhood_prior((rows, columns), sigma, prefix)
    assert prior.shape == (prefix + rows * columns, prefix + rows * columns)
    assert (prior[:prefix] == 0).all()
    assert (prior[:, :prefix] == 0).all()
    for i in range(rows * columns):
        for j in range(rows * columns):
            squared = (i // columns - j // columns) ** 2 + (i % columns - j % columns) ** 2
            expected = math.exp(-squared / (2 * sigma**2))
            assert prior[prefix + i, prefix + j].item() == pytest.approx(expected, abs=1e-6)


def test_the_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--tiny", "--device", "cpu", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    (report,) = tmp_path.glob("*-dense_head.json")
    result = json.loads(report.read_text())
    for variant in VARIANTS:
        assert result["milliseconds"]["2"][variant]["median"] > 0
        assert 0.99 < result["error"][variant]["correlation_least"] < 1
        assert 0 < result["error"][variant]["difference_largest"] < 0.02
    assert result["milliseconds"]["2"]["encode_image"]["overhead"] == 0
