"""Small models of open_clip, all that the dense head reads or refuses, and its formulas written out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import open_clip
import timm
import torch
from timm.models.vision_transformer import VisionTransformer, _create_vision_transformer
from torch import Tensor

SIZE, PATCH, GRID = 64, 16, 4

VISION = {"image_size": SIZE, "layers": 3, "width": 32, "head_width": 16, "patch_size": PATCH}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}


def _vision(**settings: object) -> dict[str, Any]:
    return {"embed_dim": 24, "vision_cfg": {**VISION, **settings}, "text_cfg": TEXT}


def _timm(name: str, pool: str, proj: str, width: int = 24) -> dict[str, Any]:
    vision = {"image_size": SIZE, "timm_model_name": name, "timm_pool": pool, "timm_proj": proj}
    return {"embed_dim": width, "vision_cfg": vision, "text_cfg": TEXT, "custom_text": True}


PLAIN: dict[str, dict[str, Any]] = {
    "texcat-tiny": _vision(),
    "texcat-tiny-quickgelu": {**_vision(), "quick_gelu": True},
    "texcat-tiny-scaled": _vision(ls_init_value=0.3),
    "texcat-tiny-no-ln-pre": _vision(no_ln_pre=True, pos_embed_type="sin_cos_2d"),
    "texcat-tiny-average": _vision(pool_type="avg"),
    "texcat-tiny-average-first": _vision(pool_type="avg", final_ln_after_pool=True),
    "texcat-tiny-unpooled": _vision(pool_type="none"),
    "texcat-tiny-coca": _vision(attentional_pool=True, attn_pooler_heads=2, attn_pooler_queries=3),
    "texcat-tiny-coca-same-width": {
        **_vision(attentional_pool=True, attn_pooler_heads=2, attn_pooler_queries=3),
        "embed_dim": 32,
    },
    "texcat-tiny-timm": _timm("texcat_tiny_vit", "token", "linear"),
    "texcat-tiny-timm-average": _timm("texcat_tiny_vit", "avg", "mlp"),
    "texcat-tiny-timm-registers": _timm("texcat_tiny_registers", "map", "linear"),
    # open_clip would download a tokenizer for a name that holds "siglip"
    "texcat-tiny-latent": _timm("texcat_tiny_latent", "map", "none", 32),
}
"""What the dense head reads, by the name of its configuration."""

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "texcat-tiny-qk-norm": (_vision(qk_norm=True), "CustomResidualAttentionBlock"),
    "texcat-tiny-timm-qk-norm": (_timm("texcat_tiny_qk_norm", "token", "linear"), "within its attention"),
    "texcat-tiny-shallow": (_vision(layers=1), "single block"),
    "texcat-tiny-two-pools": (
        {**_vision(attentional_pool="parallel", attn_pooler_heads=2), "embed_dim": 32},
        "pools by attention twice",
    ),
    "texcat-tiny-wide": (_vision(image_size=(SIZE, 2 * SIZE)), "not square"),
    "texcat-tiny-resnet": (
        {
            **_vision(layers=[1, 1, 1, 1], width=8),
            "vision_cfg": {**VISION, "layers": [1, 1, 1, 1], "width": 8},
        },
        "ModifiedResNet",
    ),
    "texcat-tiny-convnext": (_timm("test_convnext", "", "linear"), "ConvNeXt"),
    "texcat-tiny-relpos": (_timm("test_vit_relpos", "avg", "linear"), "VisionTransformerRelPos"),
}
"""What it refuses, and the reason that it gives."""

OTHERS: dict[str, dict[str, Any]] = {
    "texcat-tiny-one-head": _vision(head_width=32),  # takes the weights of texcat-tiny
    "texcat-tiny-224": _vision(image_size=224, layers=2),
    "texcat-tiny-timm-224": _timm("texcat_tiny_vit_224", "token", "linear"),
}


def _timm_vit(**settings: Any) -> VisionTransformer:
    shape = {"img_size": SIZE, "patch_size": PATCH, "embed_dim": 32, "depth": 3, "num_heads": 2}
    vit: VisionTransformer = _create_vision_transformer("test_vit", **{**shape, **settings})
    return vit


@timm.models.register_model
def texcat_tiny_vit(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    return _timm_vit(pretrained=pretrained, **settings)


@timm.models.register_model
def texcat_tiny_vit_224(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    return _timm_vit(pretrained=pretrained, img_size=224, **settings)


@timm.models.register_model
def texcat_tiny_registers(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    unlike = {"global_pool": "map", "reg_tokens": 2, "qkv_bias": False, "init_values": 0.3}
    return _timm_vit(pretrained=pretrained, **{**settings, **unlike})


@timm.models.register_model
def texcat_tiny_latent(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    return _timm_vit(pretrained=pretrained, class_token=False, **settings)


@timm.models.register_model
def texcat_tiny_qk_norm(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    return _timm_vit(pretrained=pretrained, qk_norm=True, **settings)


def add_configs(folder: Path) -> None:
    """Make all of them known to open_clip; `folder` takes their configuration files."""
    for name, config in {**PLAIN, **{name: c for name, (c, _) in REFUSED.items()}, **OTHERS}.items():
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


def images(count: int, seed: int = 0, size: int = SIZE) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def normalised(batch: Tensor) -> Tensor:
    mean = torch.tensor(open_clip.OPENAI_DATASET_MEAN)[:, None, None]
    std = torch.tensor(open_clip.OPENAI_DATASET_STD)[:, None, None]
    return (batch / 255 - mean) / std


def last_block(visual: Any) -> dict[str, Any]:
    """The same things by one name, where open_clip and timm have two."""
    if hasattr(visual, "trunk"):
        block = visual.trunk.blocks[-1]
        attention = block.attn
        return {
            "block": block, "heads": attention.num_heads, "norm_1": block.norm1, "norm_2": block.norm2,
            "qkv": (attention.qkv.weight, attention.qkv.bias), "out": attention.proj,
            "scale_1": block.ls1, "scale_2": block.ls2, "mlp": block.mlp,
        }  # fmt: skip
    block = visual.transformer.resblocks[-1]
    attention = block.attn
    return {
        "block": block, "heads": attention.num_heads, "norm_1": block.ln_1, "norm_2": block.ln_2,
        "qkv": (attention.in_proj_weight, attention.in_proj_bias), "out": attention.out_proj,
        "scale_1": block.ls_1, "scale_2": block.ls_2, "mlp": block.mlp,
    }  # fmt: skip


def read_out_alone(visual: Any, token: Tensor) -> Tensor:
    """The joint embedding of an image that has left the last block as one `token` [width]."""
    one = token[None, None]
    if hasattr(visual, "trunk"):
        trunk = visual.trunk
        one = trunk.norm(one)
        pooled = one[:, 0] if trunk.attn_pool is None else trunk.attn_pool(one)
        embedded: Tensor = visual.head(trunk.head(trunk.fc_norm(pooled)))[0]
        return embedded
    pooled = one[:, 0] if visual.attn_pool is None else visual.attn_pool(one)[:, 0]
    embedded = (visual.ln_post(pooled) @ visual.proj)[0]
    return embedded


def by_formula(model: Any, image: Tensor, variant: str) -> Tensor:
    """All tokens of one image [3, H, W], from the formulas in the docstring of `dense_head`."""
    parts = last_block(model.visual)
    entered: list[Tensor] = []
    hook = parts["block"].register_forward_pre_hook(lambda _, given: entered.append(given[0][0]))
    model.encode_image(image[None])
    hook.remove()
    x = entered[0]
    count, width = x.shape
    prefix = count - GRID * GRID
    weight, bias = parts["qkv"]
    projected = parts["norm_1"](x) @ weight.T + (0 if bias is None else bias)
    q, k, v = projected.split(width, dim=1)
    attended = torch.empty_like(x)
    d = width // parts["heads"]
    for head in range(parts["heads"]):
        own = slice(head * d, (head + 1) * d)
        for i in range(count):
            logits = []
            for j in range(count):
                left, right = {"naclip": (k, k), "clearclip": (q, q)}.get(variant, (q, k))
                logit = float(left[i, own] @ right[j, own]) / math.sqrt(d)
                if variant == "naclip" and min(i, j) >= prefix:
                    (row, column), (other_row, other_column) = (divmod(t - prefix, GRID) for t in (i, j))
                    logit += math.exp(-((row - other_row) ** 2 + (column - other_column) ** 2) / (2 * 5**2))
                logits.append(logit)
            weights = [math.exp(logit) for logit in logits]
            if variant == "maskclip":
                weights = [float(i == j) for j in range(count)]
            attended[i, own] = sum(w / sum(weights) * v[j, own] for j, w in enumerate(weights))
    y = parts["scale_1"](attended @ parts["out"].weight.T + parts["out"].bias)
    if variant in ("maskclip", "vanilla"):
        y = x + y
        y = y + parts["scale_2"](parts["mlp"](parts["norm_2"](y)))
    return torch.stack([read_out_alone(model.visual, token) for token in y])
