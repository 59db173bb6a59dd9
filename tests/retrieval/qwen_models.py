"""Small random Qwen3-VL and Qwen2.5-VL with their processors, and a straight reference of dropping tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

Model = Qwen3VLForConditionalGeneration | Qwen2_5_VLForConditionalGeneration

IMAGE, VIDEO, START, END, PAD, UNKNOWN = range(100, 106)
VOCABULARY = 112
SPECIAL = {
    "<|image_pad|>": IMAGE,
    "<|video_pad|>": VIDEO,
    "<|vision_start|>": START,
    "<|vision_end|>": END,
    "<|pad|>": PAD,
    "<|unknown|>": UNKNOWN,
}
PATCH, MERGE = 4, 2
CELL = PATCH * MERGE
"""Pixels on a side of a merged token."""

_TOKENS = {
    "vocab_size": VOCABULARY,
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}
_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": PAD,
}
_VISION = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "patch_size": PATCH,
    "spatial_merge_size": MERGE,
    "temporal_patch_size": 2,
    "out_hidden_size": 32,
}
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def qwen3(seed: int = 0) -> Qwen3VLForConditionalGeneration:
    """Two DeepStack layers, interleaved rotary sections."""
    torch.manual_seed(seed)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    config = Qwen3VLConfig(
        text_config={**_TEXT, "head_dim": 8, "rope_parameters": rope},
        vision_config={**_VISION, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]},
        **_TOKENS,
    )
    return _ready(Qwen3VLForConditionalGeneration(config))


def qwen2_5(seed: int = 0) -> Qwen2_5_VLForConditionalGeneration:
    """Windows of 2 x 2 merged tokens but in one layer."""
    torch.manual_seed(seed)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    config = Qwen2_5_VLConfig(
        text_config={**_TEXT, "rope_parameters": rope},
        vision_config={**_VISION, "window_size": 2 * CELL, "fullatt_block_indexes": [1]},
        **_TOKENS,
    )
    return _ready(Qwen2_5_VLForConditionalGeneration(config))


def _ready(model: Model) -> Model:
    with torch.no_grad():  # larger than it begins with: else every token gets nearly the same logits
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    model.generation_config.pad_token_id = PAD
    model.generation_config.eos_token_id = None
    return model.eval()


MODELS = {"qwen3_vl": qwen3, "qwen2_5_vl": qwen2_5}


def processor(kind: str) -> Qwen3VLProcessor | Qwen2_5_VLProcessor:
    """Characters for words."""
    letters = {chr(32 + number): number for number in range(95)}
    tokenizer = Tokenizer(models.WordLevel({**letters, **SPECIAL}, unk_token="<|unknown|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens(list(SPECIAL))
    words = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", unk_token="<|unknown|>", padding_side="left"
    )
    sizes = {"patch_size": PATCH, "merge_size": MERGE, "temporal_patch_size": 2}
    limits = {"size": {"shortest_edge": CELL * CELL, "longest_edge": 4096 * CELL * CELL}}
    make = Qwen3VLProcessor if kind == "qwen3_vl" else Qwen2_5_VLProcessor
    return make(
        image_processor=Qwen2VLImageProcessor(**sizes, **limits),
        tokenizer=words,
        video_processor=Qwen2VLVideoProcessor(**sizes, **limits),
        chat_template=TEMPLATE,
    )


def save(kind: str, folder: Path) -> None:
    """A checkpoint's folder, with all that `QwenVLAdapter.load` reads."""
    MODELS[kind]().save_pretrained(folder)
    processor(kind).save_pretrained(folder)


def prompts(
    grids: Sequence[Sequence[tuple[int, int]]], seed: int = 0, left: bool = True
) -> dict[str, Tensor]:
    """Inputs of a batch, as a processor makes them: a prompt for each list of grids (rows, columns).

    Before, between and after the images there are words, of another number in each prompt.
    """
    draw = torch.Generator().manual_seed(seed)

    def words(count: int) -> list[int]:
        made: list[int] = torch.randint(0, 95, (count,), generator=draw).tolist()
        return made

    rows, sizes = [], []
    for number, images in enumerate(grids):
        row = words(3 + number)
        for high, wide in images:
            row += [START, *[IMAGE] * (high * wide), END, *words(2 + number)]
            sizes.append((1, MERGE * high, MERGE * wide))
        rows.append(row)
    length = max(map(len, rows))
    ids = torch.full((len(rows), length), PAD)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        at = slice(length - len(row), length) if left else slice(0, len(row))
        ids[place, at], mask[place, at] = torch.tensor(row), 1
    patches = sum(high * wide for _, high, wide in sizes)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "pixel_values": torch.randn(patches, 3 * 2 * PATCH * PATCH, generator=draw),
        "image_grid_thw": torch.tensor(sizes),
    }


def kept_columns(inputs: dict[str, Tensor], kept: Sequence[Sequence[int]]) -> list[list[int]]:
    """Columns of each prompt that are left when each image keeps only the tokens with these numbers."""
    images, sizes = iter(kept), iter((inputs["image_grid_thw"].prod(1) // MERGE**2).tolist())
    columns = []
    for ids, mask in zip(inputs["input_ids"].tolist(), inputs["attention_mask"].tolist(), strict=True):
        left, place = [], 0
        while place < len(ids):
            if ids[place] == IMAGE:
                left += [place + number for number in sorted(next(images))]
                place += next(sizes)
                continue
            if mask[place]:
                left.append(place)
            place += 1
        columns.append(left)
    return columns


def masked(model: Model, inputs: dict[str, Tensor], kept: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Inputs of the whole model, whose attention is masked at the tokens that are dropped, in every layer."""
    mask = torch.zeros_like(inputs["attention_mask"])
    for row, columns in enumerate(kept_columns(inputs, kept)):
        mask[row, columns] = 1
    types = (inputs["input_ids"] == IMAGE).int()
    positions, _ = model.model.get_rope_index(
        inputs["input_ids"],
        mm_token_type_ids=types,
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
    )
    text = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return {**inputs, "attention_mask": mask, "position_ids": torch.cat([text[None], positions])}
