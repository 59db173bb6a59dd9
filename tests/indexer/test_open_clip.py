"""The open_clip encoder, on small models that the tests make and save."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from texcat.catalogue.errors import EncoderError, UnknownEncoderError, UsageError
from texcat.indexer.encoders import load_encoder
from texcat.indexer.encoders.open_clip import OpenClipEncoder, neighbourhood_prior
from torch import Tensor
from torch.nn import functional as F

SIZE, PATCH, GRID = 64, 16, 4

VISION = {"image_size": SIZE, "layers": 3, "width": 32, "head_width": 16, "patch_size": PATCH}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "texcat-tiny": {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": TEXT},
    "texcat-tiny-quickgelu": {"embed_dim": 24, "quick_gelu": True, "vision_cfg": VISION, "text_cfg": TEXT},
    "texcat-tiny-scaled": {
        "embed_dim": 24,
        "vision_cfg": {**VISION, "ls_init_value": 0.3},
        "text_cfg": TEXT,
    },
    "texcat-tiny-one-head": {"embed_dim": 24, "vision_cfg": {**VISION, "head_width": 32}, "text_cfg": TEXT},
    "texcat-tiny-average": {"embed_dim": 24, "vision_cfg": {**VISION, "pool_type": "avg"}, "text_cfg": TEXT},
    "texcat-tiny-pooler": {
        "embed_dim": 32,
        "vision_cfg": {**VISION, "attentional_pool": True, "attn_pooler_heads": 2},
        "text_cfg": TEXT,
    },
    "texcat-tiny-qk-norm": {"embed_dim": 24, "vision_cfg": {**VISION, "qk_norm": True}, "text_cfg": TEXT},
    "texcat-tiny-shallow": {"embed_dim": 24, "vision_cfg": {**VISION, "layers": 1}, "text_cfg": TEXT},
    "texcat-tiny-resnet": {
        "embed_dim": 24,
        "vision_cfg": {"image_size": SIZE, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16},
        "text_cfg": TEXT,
    },
    "texcat-tiny-timm": {
        "embed_dim": 24,
        "vision_cfg": {"image_size": SIZE, "timm_model_name": "test_vit"},
        "text_cfg": TEXT,
    },
}
PLAIN = ["texcat-tiny", "texcat-tiny-quickgelu", "texcat-tiny-scaled"]


@pytest.fixture(scope="module", autouse=True)
def configs(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("configs")
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)


def seeded(name: str, seed: int = 0) -> Any:
    """A model whose weights are all random, biases and norms included."""
    torch.manual_seed(seed)
    model = open_clip.create_model(name, pretrained=None).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim < 2:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Path of a checkpoint with seeded weights of a model, made once."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def save(name: str, seed: int = 0) -> Path:
        path = folder / f"{name}-{seed}.pt"
        if not path.exists():
            torch.save(seeded(name, seed).state_dict(), path)
        return path

    return save


def images(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)


def normalised(batch: Tensor) -> Tensor:
    mean = torch.tensor(open_clip.OPENAI_DATASET_MEAN)[:, None, None]
    std = torch.tensor(open_clip.OPENAI_DATASET_STD)[:, None, None]
    return (batch / 255 - mean) / std


@pytest.mark.parametrize("name", PLAIN)
def test_vanilla_class_token_is_encode_image(name: str, saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder(name, str(saved(name)), "cpu", variant="vanilla")
    expected = seeded(name).encode_image(normalised(images(3)))
    torch.testing.assert_close(encoder.tokens(images(3))[:, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_naclip_is_its_formula(name: str, saved: Callable[..., Path]) -> None:
    """Patch by patch and head by head, from the formula in the class's docstring."""
    visual = seeded(name).visual
    with torch.no_grad():
        x = visual.conv1(normalised(images(1))).flatten(2).transpose(1, 2)
        x = torch.cat([visual.class_embedding.expand(1, 1, -1), x], dim=1) + visual.positional_embedding
        x = visual.ln_pre(x)
        for block in visual.transformer.resblocks[:-1]:
            x = block(x)
        block = visual.transformer.resblocks[-1]
        attention, y = block.attn, block.ln_1(x)[0]
        _, k, v = (y @ attention.in_proj_weight.T + attention.in_proj_bias).split(32, dim=1)
        heads = []
        for head in (slice(0, 16), slice(16, 32)):
            logits = k[:, head] @ k[:, head].T / math.sqrt(16)
            for i in range(GRID * GRID):
                for j in range(GRID * GRID):
                    squared = (i // GRID - j // GRID) ** 2 + (i % GRID - j % GRID) ** 2
                    logits[1 + i, 1 + j] += math.exp(-squared / 50)
            heads.append(logits.softmax(dim=1) @ v[:, head])
        z = visual.ln_post(block.ls_1(attention.out_proj(torch.cat(heads, dim=1)))) @ visual.proj
        expected = (z / z.norm(dim=1, keepdim=True))[1:].T.reshape(1, 24, GRID, GRID)
    actual = OpenClipEncoder(name, str(saved(name)), "cpu").patches(images(1))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_what_an_encoder_says_of_itself(saved: Callable[..., Path]) -> None:
    encoder = load_encoder(f"open_clip:texcat-tiny/{saved('texcat-tiny')}", "cpu")
    assert encoder.spec == f"open_clip:texcat-tiny/{saved('texcat-tiny')}"
    assert (encoder.input_size, encoder.grid, encoder.map_size) == (SIZE, (GRID, GRID), GRID)
    assert (encoder.dim, encoder.text_dim, encoder.device) == (24, 24, "cpu")
    features = encoder.patches(images(2))
    assert (features.shape, features.dtype) == ((2, 24, GRID, GRID), torch.float32)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(2, GRID, GRID))


def test_direction_is_the_mean_over_templates(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    model, tokenize = seeded("texcat-tiny"), open_clip.get_tokenizer("texcat-tiny")
    expected = []
    for phrase in ("red bike", "🚲"):
        prompts = tokenize([template(phrase) for template in open_clip.SIMPLE_IMAGENET_TEMPLATES])
        each = F.normalize(model.encode_text(prompts), dim=1)
        expected.append(F.normalize(each.mean(0), dim=0))
    directions = encoder.direction(["red bike", "🚲"])
    torch.testing.assert_close(directions, torch.stack(expected), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(encoder.text(["red bike", "🚲"]), directions)
    assert encoder.direction([]).shape == (0, 24)


def test_a_question_may_be_long(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    word = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=100_000))
    started = time.perf_counter()
    assert encoder.text([word]).isfinite().all()
    assert time.perf_counter() - started < 30  # whole, the word takes minutes
    beginning = "where is the red bike? " * 10
    torch.testing.assert_close(encoder.text(["\n" * 9_000 + beginning * 400]), encoder.text([beginning]))


@pytest.mark.parametrize("variant", ["naclip", "vanilla"])
def test_planted_patches_peak_where_they_are_planted(variant: Any, tmp_path: Path) -> None:
    """Two phrases are taught what a red and a blue image look like; neither map may be negated or moved."""
    colours = {"red": (230, 20, 20), "blue": (20, 20, 230)}
    model = seeded("texcat-tiny")
    with torch.no_grad():  # random weights see places more than colours, and their keys are all alike
        model.visual.positional_embedding.zero_()
        model.visual.transformer.resblocks[-1].attn.in_proj_weight[32:64] *= 6
    path = tmp_path / "planted.pt"
    torch.save(model.state_dict(), path)
    untaught = OpenClipEncoder("texcat-tiny", str(path), "cpu", variant=variant)

    def plain(colour: tuple[int, int, int]) -> Tensor:
        return torch.tensor(colour, dtype=torch.uint8)[None, :, None, None].expand(1, 3, SIZE, SIZE).clone()

    looks = torch.cat([untaught.patches(plain(colour)).mean((2, 3)) for colour in colours.values()])
    looks -= looks.mean(0)
    tokenize = open_clip.get_tokenizer("texcat-tiny")
    prompts = [t(phrase) for phrase in colours for t in open_clip.SIMPLE_IMAGENET_TEMPLATES]
    with torch.no_grad():
        model.text_projection = torch.nn.Parameter(torch.eye(32))
        before = model.encode_text(tokenize(prompts))
        model.text_projection = torch.nn.Parameter(
            torch.linalg.lstsq(before, looks.repeat_interleave(len(prompts) // 2, 0)).solution
        )
    torch.save(model.state_dict(), path)
    encoder = OpenClipEncoder("texcat-tiny", str(path), "cpu", variant=variant)

    scene = plain((120, 120, 120))
    for (row, column), colour in zip(((0, 1), (3, 2)), colours.values(), strict=True):
        area = scene[0, :, row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]
        area.copy_(torch.tensor(colour, dtype=torch.uint8)[:, None, None])
    maps = torch.einsum("dij,nd->nij", encoder.patches(scene)[0], encoder.direction(list(colours)))
    assert [int(m.argmax()) for m in maps] == [0 * GRID + 1, 3 * GRID + 2]
    assert (maps.amax((1, 2)) > 0).all()


def test_an_image_has_the_same_features_in_any_batch(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    batch = images(5)
    alone = torch.cat([encoder.patches(image[None]) for image in batch])
    torch.testing.assert_close(encoder.patches(batch), alone, rtol=1e-5, atol=1e-5)


def test_safetensors_give_the_same_features(saved: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    save_file(seeded("texcat-tiny").state_dict(), path)
    a = OpenClipEncoder("texcat-tiny", str(path), "cpu").patches(images(1))
    b = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu").patches(images(1))
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_checkpoint_loads_at_another_input_size(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu", input_size=96)
    assert (encoder.input_size, encoder.grid, encoder.map_size) == (96, (6, 6), 6)
    batch = F.interpolate(images(1).float(), size=96).to(torch.uint8)
    assert encoder.patches(batch).shape == (1, 24, 6, 6)


def test_fingerprint_is_stable_and_tells_encoders_apart(saved: Callable[..., Path]) -> None:
    def made(name: str = "texcat-tiny", seed: int = 0, **options: Any) -> str:
        return OpenClipEncoder(name, str(saved("texcat-tiny", seed)), "cpu", **options).fingerprint

    assert made() == made()
    assert made().startswith("open_clip-texcat-tiny-naclip-")
    different = [
        made(),
        made(seed=1),
        made(variant="vanilla"),
        made(input_size=96),
        made("texcat-tiny-one-head"),  # takes the same weights
        made("texcat-tiny-quickgelu"),
    ]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("texcat-tiny-average", "pools its patches"),
        ("texcat-tiny-pooler", "pools its patches"),
        ("texcat-tiny-qk-norm", "CustomResidualAttentionBlock"),
        ("texcat-tiny-shallow", "single block"),
        ("texcat-tiny-resnet", "ModifiedResNet"),
        ("texcat-tiny-timm", "TimmModel"),
    ],
)
def test_other_towers_are_refused(name: str, reason: str, saved: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match=f"{reason}.*needs a plain ViT"):
        OpenClipEncoder(name, str(saved(name)), "cpu")


def test_weights_of_another_model_are_refused(saved: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match=r"cannot load .*texcat-tiny-scaled-0\.pt as texcat-tiny"):
        OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny-scaled")), "cpu")


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.pt"
    path.write_text("<html>not found</html>")
    with pytest.raises(EncoderError, match=r"cannot load .*page\.pt"):
        OpenClipEncoder("texcat-tiny", str(path), "cpu")


@pytest.mark.parametrize(
    ("model", "pretrained", "reason"),
    [
        ("texcat-tiny", "no/such/file.pt", "'no/such/file.pt' is neither a tag .*nor a checkpoint file"),
        ("ViT-B-32", "laion1b", "'laion1b' is neither a tag of ViT-B-32 .*laion2b_s34b_b79k"),
        ("ViT-Z-99", "openai", "no model 'ViT-Z-99'"),
    ],
)
def test_unknown_names_are_named(model: str, pretrained: str, reason: str) -> None:
    with pytest.raises(EncoderError, match=reason):
        OpenClipEncoder(model, pretrained, "cpu")


def test_a_tag_that_cannot_be_downloaded_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EncoderError, match=r"tag 'laion2b_s34b_b79k' .*give the path of a checkpoint file"):
        OpenClipEncoder("ViT-B-32", "laion2b_s34b_b79k", "cpu")


@pytest.mark.parametrize("spec", ["open_clip", "open_clip:", "open_clip:ViT-B-32", "open_clip:/x.pt"])
def test_a_malformed_spec_is_refused(spec: str) -> None:
    with pytest.raises(UnknownEncoderError, match=r"open_clip:MODEL/PRETRAINED"):
        load_encoder(spec, "cpu")


def test_options_that_cannot_be_used_are_named(saved: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"'densest'.*naclip, vanilla"):
        OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu", variant="densest")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"70 is no multiple .* 16"):
        OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu", input_size=70)


def test_images_of_another_size_or_type_are_refused(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    for wrong in (images(1).float(), images(1)[0], images(1)[..., :32]):
        with pytest.raises(UsageError, match=r"uint8 \[B, 3, 64, 64\]"):
            encoder.patches(wrong)


@given(rows=st.integers(1, 7), columns=st.integers(1, 7), sigma=st.floats(0.5, 10))
def test_prior_falls_with_distance_alone(rows: int, columns: int, sigma: float) -> None:
    prior = neighbourhood_prior((rows, columns), sigma)
    assert prior.shape == (1 + rows * columns, 1 + rows * columns)
    assert (prior[0] == 0).all()
    assert (prior[:, 0] == 0).all()
    for i in range(rows * columns):
        for j in range(rows * columns):
            squared = (i // columns - j // columns) ** 2 + (i % columns - j % columns) ** 2
            expected = math.exp(-squared / (2 * sigma**2))
            assert prior[1 + i, 1 + j].item() == pytest.approx(expected, abs=1e-6)
