from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from texcat.catalogue.errors import ModelError, UsageError
from texcat.retrieval.allocation import Allocation, TopKAllocator
from texcat.retrieval.realizing import QwenVLAdapter
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from .qwen_models import CELL, IMAGE, MODELS, PAD, Model, kept_columns, masked, processor, prompts, save

BATCHES = {
    "one image": [[(4, 6)]],
    "two images": [[(4, 6), (3, 3)]],
    "three prompts": [[(4, 6)], [(2, 2), (5, 3)], [(6, 4)]],
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]()


@pytest.fixture(params=BATCHES)
def grids(request: pytest.FixtureRequest) -> list[list[tuple[int, int]]]:
    return BATCHES[request.param]


def some(grids: Sequence[Sequence[tuple[int, int]]], seed: int) -> list[Allocation]:
    """A random part of each image, of another size for each."""
    draw = np.random.default_rng(seed)
    sizes = [grid for prompt in grids for grid in prompt]
    return [
        TopKAllocator().allocate(draw.random(grid, np.float32), 1 + number % (grid[0] * grid[1]))
        for number, grid in enumerate(sizes, 2)
    ]


def whole(grids: Sequence[Sequence[tuple[int, int]]]) -> list[Allocation]:
    return [
        TopKAllocator().allocate(np.ones(grid, np.float32), grid[0] * grid[1])
        for prompt in grids
        for grid in prompt
    ]


@torch.inference_mode()
def hidden(model: Model, inputs: dict[str, Tensor]) -> Tensor:
    out: Tensor = model(**inputs, output_hidden_states=True).hidden_states[-1]
    return out


def test_all_tokens_are_the_unmodified_model(model: Model, grids: list[list[tuple[int, int]]]) -> None:
    inputs = prompts(grids)
    with torch.inference_mode():
        expected = model(**inputs, mm_token_type_ids=(inputs["input_ids"] == IMAGE).int()).logits
    real = inputs["attention_mask"].bool()
    for allocations in (whole(grids), [None] * len(whole(grids))):
        given = QwenVLAdapter(model).logits(inputs, allocations)
        assert given.shape == expected.shape
        torch.testing.assert_close(given[real], expected[real], atol=1e-6, rtol=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("left", [True, False])
def test_kept_tokens_are_those_of_the_masked_model(
    model: Model, grids: list[list[tuple[int, int]]], seed: int, left: bool
) -> None:
    inputs = prompts(grids, seed, left)
    allocations = some(grids, seed)
    kept = [allocation.indices.tolist() for allocation in allocations]
    expected = hidden(model, masked(model, inputs, kept))
    short = QwenVLAdapter(model).shorten(inputs, allocations)
    given = hidden(model, short)
    for row, columns in enumerate(kept_columns(inputs, kept)):
        assert short["input_ids"][row, -len(columns) :].tolist() == inputs["input_ids"][row, columns].tolist()
        assert int(short["attention_mask"][row].sum()) == len(columns)
        torch.testing.assert_close(given[row, -len(columns) :], expected[row, columns], atol=1e-5, rtol=1e-5)
    unmasked = hidden(model, masked(model, inputs, [range(99)[: g[0] * g[1]] for p in grids for g in p]))
    assert (unmasked[0, columns[-1] if len(grids) == 1 else -1] - expected[0, -1]).abs().max() > 1e-3


def test_generation_is_that_of_the_masked_model(model: Model, grids: list[list[tuple[int, int]]]) -> None:
    inputs = prompts(grids, seed=5)
    allocations = some(grids, seed=5)
    given = QwenVLAdapter(model).generate(inputs, allocations, 20, do_sample=False)
    assert given.shape == (len(grids), 20)
    kept = [allocation.indices.tolist() for allocation in allocations]
    with torch.inference_mode():
        full = model.generate(**masked(model, inputs, kept), max_new_tokens=20, do_sample=False)
    torch.testing.assert_close(given, full[:, inputs["input_ids"].shape[1] :])
    assert len(set(given.ravel().tolist())) > 3, "one and the same token all along would show nothing"


def test_fused_attention_gives_what_the_plain_sum_gives(
    model: Model, grids: list[list[tuple[int, int]]]
) -> None:
    inputs, allocations = prompts(grids, seed=4), some(grids, seed=4)
    short = QwenVLAdapter(model).shorten(inputs, allocations)
    fused = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        expected, answered = (hidden(model, short), QwenVLAdapter(model).generate(inputs, allocations, 12))
        model.set_attn_implementation("sdpa")
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
            with sdpa_kernel(backend):
                given = hidden(model, short)
                again = QwenVLAdapter(model).generate(inputs, allocations, 12)
            real = short["attention_mask"].bool()
            torch.testing.assert_close(given[real], expected[real], atol=1e-5, rtol=1e-5)
            assert torch.equal(again, answered)
    finally:
        model.set_attn_implementation(fused)


def test_a_cache_gives_what_reading_all_again_gives(model: Model) -> None:
    inputs = prompts([[(4, 6)], [(3, 3)]], seed=2)
    allocations = some([[(4, 6)], [(3, 3)]], seed=2)
    adapter = QwenVLAdapter(model)
    cached = adapter.generate(inputs, allocations, 12, do_sample=False)
    again = adapter.generate(inputs, allocations, 12, do_sample=False, use_cache=False)
    assert torch.equal(cached, again)


def test_pooled_tokens_are_means_with_the_position_of_their_centre(model: Model) -> None:
    inputs = prompts([[(8, 8)]])
    coarse = Allocation(
        np.array([0, 3]), np.array([[0, 0], [1, 1]]), np.array([4, 16]), np.ones(2, np.float32), (2, 2)
    )
    short = QwenVLAdapter(model).shorten(inputs, [coarse])
    every = QwenVLAdapter(model).shorten(inputs, [None])
    assert int((short["input_ids"] == IMAGE).sum()) == 4 + 16
    image = every["input_ids"][0] == IMAGE
    tokens = every["mm_encoder_outputs"]["image"].pooler_output[0].reshape(8, 8, -1)
    given = short["mm_encoder_outputs"]["image"].pooler_output[0]
    torch.testing.assert_close(given[0], tokens[0:2, 0:2].mean((0, 1)))
    torch.testing.assert_close(given[-1], tokens[7, 7])
    places = every["position_ids"][:, 0, image].reshape(4, 8, 8)
    kept = short["position_ids"][:, 0, short["input_ids"][0] == IMAGE]
    assert kept[1:, 0].tolist() == places[1:, 0, 0].tolist()
    assert kept[1:, 3].tolist() == places[1:, 2, 2].tolist()


def test_gradients_reach_the_picture(model: Model) -> None:
    inputs = prompts([[(4, 6)]])
    inputs["pixel_values"].requires_grad_()
    short = QwenVLAdapter(model).shorten(inputs, some([[(4, 6)]], 0))
    model(**short).logits.sum().backward()
    assert inputs["pixel_values"].grad is not None
    assert float(inputs["pixel_values"].grad.abs().sum()) > 0


def test_every_image_needs_an_allocation_that_fits(model: Model) -> None:
    inputs = prompts([[(4, 6), (3, 3)]])
    adapter = QwenVLAdapter(model)
    with pytest.raises(UsageError, match="2 images need as many allocations, got 1"):
        adapter.shorten(inputs, [None])
    with pytest.raises(UsageError, match=r"over \(4, 6\) positions cannot be spent on \(3, 3\) tokens"):
        adapter.shorten(inputs, [None, whole([[(4, 6)]])[0]])
    with pytest.raises(UsageError, match="no image, or a video"):
        adapter.shorten({"input_ids": inputs["input_ids"]}, [])


def test_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Linear: is not supported; expected Qwen3VL"):
        QwenVLAdapter(torch.nn.Linear(2, 2))
    with pytest.raises(ModelError, match=r"has no config\.json"):
        QwenVLAdapter.load(tmp_path / "nothing")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match="is a bert; expected one of: qwen3_vl, qwen2_5_vl"):
        QwenVLAdapter.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"')
    with pytest.raises(ModelError, match="cannot be loaded"):
        QwenVLAdapter.load(tmp_path)


def test_a_checkpoint_without_some_of_its_weights_is_refused(tmp_path: Path) -> None:
    save("qwen3_vl", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.language_model.layers.2.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of its tensors, .*layers\.2\.mlp\.up_proj\.weight"):
        QwenVLAdapter.load(tmp_path, device="cpu")


@pytest.mark.parametrize("kind", MODELS)
def test_a_saved_model_answers_from_a_photo(kind: str, tmp_path: Path) -> None:
    save(kind, tmp_path)
    adapter = QwenVLAdapter.load(tmp_path, device="cpu")
    photo = Image.effect_noise((6 * CELL, 4 * CELL), 90).convert("RGB")
    inputs = adapter.inputs([photo], "Where?")
    assert adapter.grids(inputs) == [(4, 6)]
    tokens = adapter.generate(inputs, some([[(4, 6)]], 1), 8, do_sample=False)
    text = adapter.words(tokens)
    assert len(text) == 1
    assert text[0] == "".join(processor(kind).batch_decode(tokens, skip_special_tokens=True))
    with pytest.raises(ModelError, match=r"has no processor here; use QwenVLAdapter\.load"):
        QwenVLAdapter(MODELS[kind]()).inputs([photo], "Where?")


def test_padding_is_the_model_s(model: Model) -> None:
    short = QwenVLAdapter(model).shorten(prompts([[(2, 2)], [(6, 4)]]), [None, None])
    assert set(short["input_ids"][0, : -int(short["attention_mask"][0].sum())].tolist()) == {PAD}
