"""Fewer visual tokens for Qwen3-VL and Qwen2.5-VL, exactly.

The model sees the whole image: its vision tower runs as ever. Of what its patch merger gives, an allocation
decides what goes on to the language model. A token that is kept has the position ids that it had among all of
them, and its rows of the DeepStack features (Meng et al. 2024), so that the result is that of the whole model
whose attention is masked at the tokens that are dropped, in every layer. Nothing of transformers is changed:
the shortened prompt goes through the model's own `forward` and `generate`.

The only module that imports transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoProcessor,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
    TextStreamer,
)

from ..catalogue.errors import ModelError, UsageError
from .allocation import Allocation
from .attending import allocator, needed_budget
from .cells import Cells, resample

MODELS: dict[str, Any] = {
    "qwen3_vl": Qwen3VLForConditionalGeneration,
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
}
"""Classes by the `model_type` of their configuration."""

Model = Qwen3VLForConditionalGeneration | Qwen2_5_VLForConditionalGeneration


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a model says about an image.

    Attributes:
        text: the model's words.
        allocation: over the model's grid of merged tokens.
        prompt_tokens: of the prompt that the model was given, words and image together.
        whole_prompt_tokens: of the prompt with all of the image's tokens.
    """

    text: str
    allocation: Allocation
    prompt_tokens: int
    whole_prompt_tokens: int


class QwenVLAdapter:
    """A Qwen3-VL or Qwen2.5-VL that is given a part of its visual tokens.

    Args:
        model: as transformers made it, on whatever device, with whatever attention.
        processor: makes `inputs`, and words of tokens. Not needed for anything else.

    Raises:
        ModelError: it is another kind of model.
    """

    def __init__(self, model: Model, processor: Any = None) -> None:
        if not isinstance(model, tuple(MODELS.values())):
            known = " or ".join(kind.__name__ for kind in MODELS.values())
            raise ModelError(type(model).__name__, f"is not supported; expected {known}")
        self.model = model
        self._processor = processor

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        dtype: str = "auto",
        attention: str | None = None,
    ) -> Self:
        """A model and its processor from the folder of a checkpoint; nothing is downloaded.

        Args:
            folder: as `save_pretrained` writes it: config.json, safetensors, tokenizer and processor.
            device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1`` …
            dtype: of the weights: ``auto`` (as saved), ``float32``, ``bfloat16``, ``float16``.
            attention: ``sdpa``, ``flash_attention_2``, ``eager``; what transformers chooses when None.

        Raises:
            ModelError: the folder holds no such model, or it cannot be loaded.
        """
        path = Path(folder)
        if not (path / "config.json").is_file():
            raise ModelError(str(folder), "is no folder of a checkpoint: it has no config.json")
        try:
            kind = AutoConfig.from_pretrained(path, local_files_only=True).model_type
            if kind not in MODELS:
                raise ModelError(str(folder), f"is a {kind}; expected one of: {', '.join(MODELS)}")
            model, told = MODELS[kind].from_pretrained(
                path,
                dtype=dtype,
                attn_implementation=attention,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
            processor = AutoProcessor.from_pretrained(path, local_files_only=True)  # type: ignore[no-untyped-call,unused-ignore]
            model = model.to(_place(device)).eval()
        except ModelError:
            raise
        except Exception as error:  # transformers, safetensors and tokenizers raise nearly everything
            why = str(error).strip().partition("\n")[0]
            raise ModelError(str(folder), f"cannot be loaded: {why}") from error
        if told["missing_keys"] or told["mismatched_keys"]:
            lacking = sorted(map(str, (*told["missing_keys"], *told["mismatched_keys"])))
            raise ModelError(
                str(folder), f"lacks {len(lacking)} of its tensors, {lacking[0]} the first; copy it again"
            )
        return cls(model, processor)

    def inputs(self, images: Sequence[Image.Image], question: str) -> dict[str, Tensor]:
        """The processor's inputs for one conversation: the images, then the question.

        Raises:
            ModelError: this was made without a processor.
        """
        content: list[dict[str, Any]] = [{"type": "image", "image": image} for image in images]
        content.append({"type": "text", "text": question})
        made = self._need_processor().apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        return {name: value.to(self.model.device) for name, value in made.items()}

    def grids(self, inputs: Mapping[str, Tensor]) -> list[tuple[int, int]]:
        """Rows and columns of merged tokens of each image, in the order of the prompt.

        Raises:
            UsageError: there is no image, or there is a video.
        """
        sizes = inputs.get("image_grid_thw")
        if sizes is None or inputs.get("pixel_values_videos") is not None:
            raise UsageError("the inputs hold no image, or a video; expected images")
        vision: Any = self.model.config.vision_config
        merge = vision.spatial_merge_size
        return [(rows // merge, columns // merge) for _, rows, columns in sizes.tolist()]

    def shorten(
        self, inputs: Mapping[str, Tensor], allocations: Sequence[Allocation | None]
    ) -> dict[str, Any]:
        """What the model's `forward` and `generate` take instead of `inputs`.

        Prompts of a batch may keep different numbers of tokens: the shorter are padded on the left.

        Args:
            inputs: as the processor makes them: input_ids [B, L], attention_mask [B, L], pixel_values,
                image_grid_thw. Padding may be on either side.
            allocations: one an image, in the order of the prompts; None keeps all of its tokens. On the grid
                of the image's merged tokens, or on a coarser one, whose budgets decide how far the tokens of
                each position are pooled: see `Cells`.

        Returns:
            input_ids, attention_mask: int64 [B, S].
            position_ids: int64 [4, B, S]: place in the prompt, then time, row and column of the rotary
            embedding, those of the whole prompt.
            mm_encoder_outputs: the visual tokens.

        Raises:
            UsageError: there is not one allocation an image, or one does not fit its image's grid.
        """
        grids = self.grids(inputs)
        if len(allocations) != len(grids):
            raise UsageError(f"{len(grids)} images need as many allocations, got {len(allocations)}")
        cells = [
            None if allocation is None else Cells.of(allocation, grid)
            for allocation, grid in zip(allocations, grids, strict=True)
        ]
        ids = inputs["input_ids"]
        mask = inputs.get("attention_mask")
        mask = torch.ones_like(ids) if mask is None else mask
        is_visual = ids == self.model.config.image_token_id
        positions, _ = self.model.model.get_rope_index(
            ids,
            mm_token_type_ids=is_visual.int(),
            image_grid_thw=inputs["image_grid_thw"],
            attention_mask=mask,
        )
        columns = _columns(is_visual, mask.bool(), grids, cells)
        width = max(map(len, columns))
        padding = self.model.generation_config.pad_token_id or 0
        shortened = ids.new_full((len(ids), width), padding)
        kept = torch.zeros_like(shortened)
        places = positions.new_zeros((4, len(ids), width))
        for row, chosen in enumerate(columns):
            begin = width - len(chosen)
            shortened[row, begin:] = ids[row, chosen]
            kept[row, begin:] = 1
            places[0, row, begin:] = torch.arange(len(chosen))
            places[1:, row, begin:] = positions[:, row, chosen]
        return {
            "input_ids": shortened,
            "attention_mask": kept,
            "position_ids": places,
            "mm_encoder_outputs": {"image": self._visual(inputs, cells)},
        }

    @torch.inference_mode()
    def logits(self, inputs: Mapping[str, Tensor], allocations: Sequence[Allocation | None]) -> Tensor:
        """Logits of the next token at each position of the shortened prompts: [B, S, vocabulary]."""
        out: Tensor = self.model(**self.shorten(inputs, allocations)).logits
        return out

    @torch.inference_mode()
    def generate(
        self,
        inputs: Mapping[str, Tensor],
        allocations: Sequence[Allocation | None],
        max_new_tokens: int = 256,
        **options: Any,
    ) -> Tensor:
        """New tokens of each prompt: int64 [B, T], padded on the right.

        Args:
            inputs, allocations: see `shorten`.
            max_new_tokens: when to stop at the latest.
            options: of `GenerationMixin.generate`: do_sample, temperature, streamer, …
        """
        prompt = self.shorten(inputs, allocations)
        tokens: Tensor = self.model.generate(**prompt, max_new_tokens=max_new_tokens, **options)
        return tokens[:, prompt["input_ids"].shape[1] :]

    def words(self, tokens: Tensor) -> list[str]:
        """Tokens [B, T] as text."""
        decoded: list[str] = self._need_processor().batch_decode(tokens, skip_special_tokens=True)
        return decoded

    def ask(
        self,
        photo: Image.Image,
        relevance: NDArray[np.float32],
        question: str,
        *,
        budget: int | None = 200,
        strategy: str = "topk",
        max_new_tokens: int = 256,
        write: Callable[[str], object] | None = None,
    ) -> Answer:
        """Let the model answer a question about a photo from the tokens that matter for it.

        Args:
            photo: mode RGB.
            relevance: float32 [rows, columns] of this photo and question, on any grid: `Lookup.relevance`, or
                that of `Retriever.balance`.
            question: in words.
            budget: tokens of the photo; all of them, if it has no more; when None, as many as it needs
                (`attending.needed_budget`).
            strategy: one of `ALLOCATORS`.
            max_new_tokens: of the answer.
            write: is given the answer's words as they come.

        Raises:
            UsageError: the strategy is not known, or cannot spend this budget.
            ModelError: this was made without a processor.
        """
        inputs = self.inputs([photo], question)
        on_tokens = resample(relevance, self.grids(inputs)[0])
        wanted = needed_budget(on_tokens) if budget is None else min(budget, on_tokens.size)
        allocation = allocator(strategy).allocate(on_tokens, wanted)
        options = {} if write is None else {"streamer": _Words(self._need_processor(), write)}
        tokens = self.generate(inputs, [allocation], max_new_tokens, **options)
        words = inputs["input_ids"].numel() - on_tokens.size
        return Answer(
            self.words(tokens)[0], allocation, words + len(allocation.indices), words + on_tokens.size
        )

    def _visual(self, inputs: Mapping[str, Tensor], cells: Sequence[Cells | None]) -> Any:
        """The vision tower's output, of each image the cells that go on."""
        seen = self.model.get_image_features(
            inputs["pixel_values"], image_grid_thw=inputs["image_grid_thw"], return_dict=True
        )
        kept: dict[str, Any] = {"pooler_output": _pool(seen.pooler_output, cells)}
        if "deepstack_features" in seen:
            kept["deepstack_features"] = [_pool(layer, cells) for layer in seen.deepstack_features]
        return type(seen)(**kept)

    def _need_processor(self) -> Any:
        if self._processor is None:
            raise ModelError(type(self.model).__name__, "has no processor here; use QwenVLAdapter.load")
        return self._processor


class _Words(TextStreamer):  # type: ignore[misc,unused-ignore]
    """Hands words on as soon as no later token can change them."""

    def __init__(self, processor: Any, write: Callable[[str], object]) -> None:
        super().__init__(processor.tokenizer, skip_prompt=True, skip_special_tokens=True)
        self._write = write

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if text:
            self._write(text)


def _place(device: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def _columns(
    is_visual: Tensor, mask: Tensor, grids: Sequence[tuple[int, int]], cells: Sequence[Cells | None]
) -> list[Tensor]:
    """Columns of each prompt that go on: all words, and of each image the centres of its cells."""
    images = iter(zip(grids, cells, strict=True))
    columns = []
    for visual, real in zip(is_visual, mask, strict=True):
        keep = real & ~visual
        tokens = torch.nonzero(visual).ravel()
        while len(tokens):
            (rows, across), chosen = next(images)
            own, tokens = tokens[: rows * across], tokens[rows * across :]
            keep[own if chosen is None else own[_on(chosen.centres, own)]] = True
        columns.append(torch.nonzero(keep).ravel())
    return columns


def _pool(images: Sequence[Tensor], cells: Sequence[Cells | None]) -> tuple[Tensor, ...]:
    """Features [N, D] of each image as the means of its cells: [K, D]."""
    pooled = []
    for features, chosen in zip(images, cells, strict=True):
        if chosen is None:
            pooled.append(features)
            continue
        places, owners = (_on(values, features) for values in chosen.members())
        sums = features.new_zeros((len(chosen.centres), features.shape[1]))
        sums = sums.index_add(0, owners, features[places])
        pooled.append(sums / torch.bincount(owners, minlength=len(sums))[:, None].to(sums.dtype))
    return tuple(pooled)


def _on(values: np.ndarray[Any, np.dtype[np.int64]], like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device)
