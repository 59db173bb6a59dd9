"""What does a model save that is given fewer visual tokens?

    python benchmarks/realizing.py [--device cuda] [--batches 1 8] [--rounds 20] [--out FOLDER] [--tiny]

Qwen3-VL in the shape of the 2B model, bfloat16, with random weights: neither time nor memory depends on what
they are. Each prompt holds one image of 1,024 x 1,024 px, 1,024 merged tokens, of which an allocation keeps
1,024, 400, 200 or 64, and 32 tokens of words.

- tower: the vision tower, which sees the whole image whatever is kept.
- prefill: the language model over the shortened prompt, with a new cache, up to the logits of its last token.
- prefill, graph: the same as a replayed CUDA graph, without the time that launching its kernels takes. The
  model's own modules in their own order; what DeepStack adds is spread over the prompt beforehand, since
  picking rows by a mask cannot be captured. Its logits are compared with those of `forward`.
- first token: from pixels to the first token: tower, shortening, prefill.
- decode: a further token, the mean of 32.
- cache: bytes of keys and values after the prefill. Peak: memory beyond the weights, from pixels to the first
  token.

In each round all budgets take their turn, in another order; medians over the rounds. `saved` is the median
over rounds of 1 - time / time with all tokens in the same round. Everything but `graph` is eager.
Where texcat is not installed, a folder that holds `texcat/` with links to `catalogue`, `indexer`, `retrieval`
and `cli` of the checkout, first in PYTHONPATH, is enough.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _report
import numpy as np
import torch
import transformers
from texcat.retrieval.allocation import TopKAllocator
from texcat.retrieval.realizing import QwenVLAdapter
from torch import Tensor
from transformers import DynamicCache, Qwen3VLConfig, Qwen3VLForConditionalGeneration

IMAGE, START, END = 151655, 151652, 151653
WORDS = 32
DECODED = 32
BUDGETS = (1024, 400, 200, 64)

TEXT_2B = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 5e6,
        "mrope_section": [24, 20, 20],
        "mrope_interleaved": True,
    },
}
VISION_2B = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_heads": 16,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 2048,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [5, 11, 17],
}
"""Shapes of Qwen/Qwen3-VL-2B-Instruct, as its config.json says (Qwen team 2025)."""

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
TINY_VISION = {"depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2}

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One budget: the prompt that is left, and what is timed of it."""

    budget: int
    calls: dict[str, Call]
    cache_bytes: int
    peak_bytes: int
    graph_error: float | None


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--out", type=Path, default=_report.RESULTS)
    parser.add_argument("--tiny", action="store_true", help="a small model: to try this script")
    arguments = parser.parse_args()

    device = torch.device(arguments.device)
    model = random_model(device, arguments.tiny, arguments.attention)
    rows: list[dict[str, Any]] = []
    for batch in arguments.batches:
        rows += measure(model, batch, arguments.rounds, device)
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    result = {
        "card": card,
        "cuda": torch.version.cuda,
        "driver": driver() if device.type == "cuda" else None,
        "transformers": transformers.__version__,
        "attention": arguments.attention,
        "tiny": arguments.tiny,
        "rounds": arguments.rounds,
        "rows": rows,
    }
    name = "realizing-tiny" if arguments.tiny else "realizing"
    _report.save(
        name,
        result,
        f"Qwen3-VL-2B shape, bf16, {arguments.attention}, {card}\n\n{table(rows)}",
        arguments.out,
    )


def driver() -> str:
    """Version of the NVIDIA driver."""
    line = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").partition("\n")[0]
    return next((word for word in line.split() if word[0].isdigit()), line)


def random_model(device: torch.device, tiny: bool, attention: str) -> Qwen3VLForConditionalGeneration:
    """A model with random weights, in bfloat16."""
    text = {**TEXT_2B, **TINY} if tiny else TEXT_2B
    vision = {**VISION_2B, **TINY_VISION, "out_hidden_size": 64, "deepstack_visual_indexes": [0, 1]}
    config = Qwen3VLConfig(
        text_config=text, vision_config=vision if tiny else VISION_2B, tie_word_embeddings=True
    )
    config._attn_implementation = attention
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with device:
        model = Qwen3VLForConditionalGeneration(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def prompts(batch: int, device: torch.device) -> dict[str, Tensor]:
    """One image of 64 x 64 patches in each prompt, words before and after it."""
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(0, 1000, (batch, WORDS), generator=draw)
    image = torch.full((batch, 1024), IMAGE)
    edges = [torch.full((batch, 1), token) for token in (START, END)]
    ids = torch.cat([words[:, :8], edges[0], image, edges[1], words[:, 8:]], 1)
    pixels = torch.randn(batch * 64 * 64, 3 * 2 * 16 * 16, generator=draw)
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": pixels.to(torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, 64, 64]] * batch),
    }
    return {name: value.to(device) for name, value in inputs.items()}


@torch.inference_mode()
def measure(
    model: Qwen3VLForConditionalGeneration, batch: int, rounds: int, device: torch.device
) -> list[dict[str, Any]]:
    """Rows of the table for one size of batch."""
    cases = [case(model, batch, budget, device) for budget in BUDGETS]
    times: dict[tuple[int, str], list[float]] = {}
    order = random.Random(0)
    for _ in range(rounds):
        turns = [(each.budget, name, call) for each in cases for name, call in each.calls.items()]
        order.shuffle(turns)
        for budget, name, call in turns:
            times.setdefault((budget, name), []).append(timed(call, device))
    rows = []
    for each in cases:
        row: dict[str, Any] = {"batch": batch, "budget": each.budget}
        for name in each.calls:
            own, whole = times[each.budget, name], times[BUDGETS[0], name]
            row[f"{name}_ms"] = statistics.median(own)
            row[f"{name}_saved"] = statistics.median(1 - a / b for a, b in zip(own, whole, strict=True))
        row |= {"cache_mb": each.cache_bytes / 1e6, "peak_mb": each.peak_bytes / 1e6}
        row["cache_saved"] = 1 - each.cache_bytes / cases[0].cache_bytes
        row["graph_error"] = each.graph_error
        rows.append(row)
    return rows


def case(model: Qwen3VLForConditionalGeneration, batch: int, budget: int, device: torch.device) -> Case:
    """What is timed of one budget."""
    adapter = QwenVLAdapter(model)
    inputs = prompts(batch, device)
    draw = np.random.default_rng(2)
    allocations = [TopKAllocator().allocate(draw.random((32, 32), np.float32), budget) for _ in range(batch)]
    short = adapter.shorten(inputs, allocations)

    def tower() -> object:
        return model.get_image_features(inputs["pixel_values"], image_grid_thw=inputs["image_grid_thw"])

    def prefill() -> Any:
        return model(**short, logits_to_keep=1, use_cache=True)

    def first() -> Tensor:
        prompt = adapter.shorten(inputs, allocations)
        logits: Tensor = model(**prompt, logits_to_keep=1, use_cache=True).logits
        return logits[:, -1].argmax(-1)

    def decode() -> object:
        return model.generate(
            **short, max_new_tokens=DECODED + 1, min_new_tokens=DECODED + 1, do_sample=False
        )

    calls: dict[str, Call] = {"tower": tower, "prefill": prefill, "first": first, "generate": decode}
    out = prefill()
    cache = next(value for name in ("cache", "past_key_values") if (value := out.get(name)) is not None)
    size = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    error = None
    if device.type == "cuda":
        replay, logits = graphed(model, short)
        calls["graph"] = replay
        replay()
        error = float((logits.float() - out.logits[:, -1].float()).norm() / out.logits[:, -1].float().norm())
    for call in calls.values():
        call()
    return Case(budget, calls, size, peak(first, device), error)


def graphed(model: Qwen3VLForConditionalGeneration, short: dict[str, Any]) -> tuple[Call, Tensor]:
    """The prefill as a CUDA graph; and where its logits [B, vocabulary] are written."""
    language = model.model.language_model
    seen = short["mm_encoder_outputs"]["image"]
    ids = short["input_ids"]
    visual = ids == model.config.image_token_id
    embeds = language.embed_tokens(ids)
    embeds[visual] = torch.cat(seen.pooler_output).to(embeds.dtype)
    added = []
    for layer in seen.deepstack_features:
        spread = torch.zeros_like(embeds)
        spread[visual] = torch.cat(layer).to(embeds.dtype)
        added.append(spread)
    positions = short["position_ids"][1:]

    def run() -> Tensor:
        cache = DynamicCache(config=language.config)
        hidden, rotary = embeds, language.rotary_emb(embeds, positions)
        for number, layer in enumerate(language.layers):
            hidden = layer(hidden, attention_mask=None, cache=cache, position_embeddings=rotary)
            if number < len(added):
                hidden = hidden + added[number]
        logits: Tensor = model.lm_head(language.norm(hidden[:, -1]))
        return logits

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = run()
    return graph.replay, logits


def peak(call: Call, device: torch.device) -> int:
    """Bytes that `call` takes at most, beyond what was taken before."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def timed(call: Call, device: torch.device) -> float:
    """Milliseconds of one call, by CUDA events on a GPU."""
    if device.type != "cuda":
        started = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - started)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| batch | tokens | tower ms | prefill ms | saved | prefill, graph ms | saved | first ms | saved "
        "| 33 tokens ms | saved | cache MB | saved | peak MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        parts = [str(row["batch"]), f"{row['budget']:,}", f"{row['tower_ms']:.1f}"]
        for name in ("prefill", "graph", "first", "generate"):
            known = f"{name}_ms" in row
            parts += [
                f"{row[f'{name}_ms']:.1f}" if known else "-",
                f"{row[f'{name}_saved']:.0%}" if known else "-",
            ]
        parts += [f"{row['cache_mb']:.1f}", f"{row['cache_saved']:.0%}", f"{row['peak_mb']:.0f}"]
        lines.append(f"| {' | '.join(parts)} |")
    errors = [row["graph_error"] for row in rows if row["graph_error"] is not None]
    if errors:
        lines += [
            "",
            f"Logits of the graph against those of `forward`: relative difference at most {max(errors):.1e}.",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
