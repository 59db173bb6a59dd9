"""What does the dense head cost beside `encode_image`, and what does bfloat16 lose?

    python benchmarks/dense_head.py [--device cuda] [--batches 32 128] [--rounds 20] [--out FOLDER] [--tiny]

ViT-B/16 at 512 px with random weights: neither figure needs trained ones. On a GPU bfloat16 is timed, on a
CPU float32.

- time: milliseconds a batch, median over rounds. In each round, the plain model and all variants take their
  turns in another order, so that a clock that drifts favours none. `encode_image` is given normalised pixels
  of the right type, the dense head images of 8 bits: its own normalisation counts as overhead. A GPU is timed
  with CUDA events.
- overhead: median over rounds of the variant's time over the plain model's in the same round, less 1.
- error: maps of `PHRASES` in bfloat16 against float32 (without TF32), on the same device: correlation over
  the patches of an image, mean and least over images and phrases; largest and mean difference of cosines.

Where texcat is not installed, a folder that holds `texcat/` with links to `catalogue`, `indexer`, `retrieval`
and `cli` of the checkout, first in PYTHONPATH, is enough.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import _report
import open_clip
import torch
from texcat.indexer.encoders.dense_head import Variant
from texcat.indexer.encoders.open_clip import OpenClipEncoder, Precision, pixel_statistics
from torch import Tensor

PHRASES = ("mountain biking", "a red car", "dog", "old building", "food on a plate")
VARIANTS: tuple[Variant, ...] = get_args(Variant)
PLAIN = "encode_image"
WARM_UP = {"cuda": 3, "cpu": 1}
"""Calls before the first that counts; the first of them chooses kernels."""

TINY = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 64, "layers": 3, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}

Call = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """What is measured: a model and its size, where, and how often."""

    model: str
    size: int
    device: torch.device
    precision: Precision
    batches: tuple[int, ...]
    rounds: int


def main() -> None:
    """Measure time and error, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="+", help="default: 32 128 on a GPU, 1 on a CPU")
    parser.add_argument("--rounds", type=int, help="default: 20 on a GPU, 3 on a CPU")
    parser.add_argument("--out", type=Path, default=_report.RESULTS, help="folder of the report")
    parser.add_argument("--tiny", action="store_true", help="a small model, to see that all of this runs")
    given = parser.parse_args()
    device = torch.device(given.device)
    on_gpu = device.type == "cuda"
    setting = Setting(
        model="texcat-tiny-benchmark" if given.tiny else "ViT-B-16",
        size=96 if given.tiny else 512,
        device=device,
        precision="bf16" if on_gpu else "fp32",
        batches=tuple(given.batches or ((32, 128) if on_gpu else (2,) if given.tiny else (1,))),
        rounds=given.rounds or (20 if on_gpu else 3),
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = random_weights(setting, Path(folder))
        model = plain_model(setting, checkpoint)
        encoders = {name: encoder(setting, checkpoint, name, setting.precision) for name in VARIANTS}
        times = {batch: measure_times(setting, model, encoders, batch) for batch in setting.batches}
        errors = measure_errors(setting, checkpoint)
    gpu = torch.cuda.get_device_name(device) if on_gpu else None
    result = {
        "model": setting.model,
        "size": setting.size,
        "device": gpu or "cpu",
        "precision": setting.precision,
        "rounds": setting.rounds,
        "open_clip": open_clip.__version__,
        "milliseconds": {str(batch): summary(rounds) for batch, rounds in times.items()},
        "error": errors,
    }
    table = (
        f"{setting.model}, {setting.size} px, {setting.precision}, {gpu or 'CPU'}\n\n{times_table(times)}\n\n"
    )
    _report.save("dense_head", result, table + errors_table(errors), given.out)


def random_weights(setting: Setting, folder: Path) -> Path:
    """Checkpoint of the model with seeded weights, at the size of its configuration."""
    if setting.model not in open_clip.list_models():
        (folder / f"{setting.model}.json").write_text(json.dumps(TINY))
        open_clip.add_model_config(folder)
    torch.manual_seed(0)
    path = folder / "weights.pt"
    torch.save(open_clip.create_model(setting.model, pretrained=None).state_dict(), path)
    return path


def plain_model(setting: Setting, checkpoint: Path) -> Any:
    """The model as open_clip gives it, at the size and in the precision of `setting`."""
    return open_clip.create_model(
        setting.model,
        pretrained=str(checkpoint),
        force_image_size=setting.size,
        precision="pure_bf16" if setting.precision == "bf16" else "fp32",
        device=setting.device,
    ).eval()


def encoder(setting: Setting, checkpoint: Path, variant: Variant, precision: Precision) -> OpenClipEncoder:
    """The encoder as users get it."""
    return OpenClipEncoder(
        setting.model,
        str(checkpoint),
        str(setting.device),
        variant=variant,
        input_size=setting.size,
        precision=precision,
    )


def some_images(setting: Setting, count: int) -> Tensor:
    """Coloured blobs under noise: uint8 [count, 3, size, size], patches as unlike as those of photos."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    blobs = torch.nn.functional.interpolate(coarse, size=setting.size, mode="bicubic")
    noise = torch.randn(count, 3, setting.size, setting.size, generator=generator)
    return (255 * blobs + 20 * noise).clamp(0, 255).to(torch.uint8).to(setting.device)


def measure_times(
    setting: Setting, model: Any, encoders: dict[Variant, OpenClipEncoder], batch: int
) -> dict[str, list[float]]:
    """Milliseconds a call of the plain model and of each variant, one for each round."""
    images = some_images(setting, batch)
    mean, std = (
        torch.tensor(value, device=setting.device)[:, None, None]
        for value in pixel_statistics(setting.model, {})
    )
    pixels = ((images / 255 - mean) / std).to(model.visual.proj.dtype)
    calls: dict[str, Call] = {
        PLAIN: partial(model.encode_image, pixels),
        **{name: partial(made.patches, images) for name, made in encoders.items()},
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    with torch.inference_mode():
        for call in calls.values():
            for _ in range(WARM_UP[setting.device.type]):
                call()
        for turn in range(setting.rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(milliseconds(calls[name], setting.device))
    return times


def milliseconds(call: Call, device: torch.device) -> float:
    """What one call takes."""
    if device.type != "cuda":
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin)
    event: Any = torch.cuda.Event
    started, ended = event(enable_timing=True), event(enable_timing=True)
    torch.cuda.synchronize(device)
    started.record()
    call()
    ended.record()
    ended.synchronize()
    return float(started.elapsed_time(ended))


def measure_errors(setting: Setting, checkpoint: Path) -> dict[str, dict[str, float]]:
    """Of bfloat16 maps against float32 maps, for each variant."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    images = some_images(setting, 8 if setting.device.type == "cuda" else 1)
    errors: dict[str, dict[str, float]] = {}
    for variant in VARIANTS:
        exact = encoder(setting, checkpoint, variant, "fp32")
        rounded = encoder(setting, checkpoint, variant, "bf16")
        directions = exact.direction(PHRASES)
        maps, near = (
            torch.einsum("bdij,nd->bnij", made.patches(images), directions).flatten(2).double()
            for made in (exact, rounded)
        )
        a, b = (each - each.mean(-1, keepdim=True) for each in (maps, near))
        correlation = torch.nn.functional.cosine_similarity(a, b, dim=-1)
        difference = (maps - near).abs()
        errors[variant] = {
            "correlation_mean": float(correlation.mean()),
            "correlation_least": float(correlation.min()),
            "difference_largest": float(difference.max()),
            "difference_mean": float(difference.mean()),
            "spread_of_map": float(maps.std(-1).mean()),
        }
    return errors


def summary(rounds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median, quartiles and overhead of each contender."""
    return {
        name: {
            "median": statistics.median(own),
            "lower": quartile(own, 0),
            "upper": quartile(own, 2),
            "overhead": overhead(own, rounds[PLAIN]),
        }
        for name, own in rounds.items()
    }


def quartile(values: Sequence[float], which: int) -> float:
    """The first (0), second or third (2) quartile."""
    return statistics.quantiles(values, method="inclusive")[which]


def overhead(own: Sequence[float], plain: Sequence[float]) -> float:
    """Median over rounds of own / plain, less 1."""
    return statistics.median(a / b for a, b in zip(own, plain, strict=True)) - 1


def times_table(times: dict[int, dict[str, list[float]]]) -> str:
    """A row for each batch size and contender."""
    rows = ["| batch | call | ms, median (quartiles) | images/s | overhead |", "|---|---|---|---|---|"]
    for batch, rounds in times.items():
        for name, of in summary(rounds).items():
            rows.append(
                f"| {batch} | {name} | {of['median']:.2f} ({of['lower']:.2f}-{of['upper']:.2f}) "
                f"| {1e3 * batch / of['median']:.3g} | {of['overhead']:+.1%} |"
            )
    return "\n".join(rows)


def errors_table(errors: dict[str, dict[str, float]]) -> str:
    """A row for each variant."""
    rows = [
        "| bf16 against fp32 | correlation, mean | least | difference, largest | mean | spread of a map |",
        "|---|---|---|---|---|---|",
    ]
    for variant, of in errors.items():
        rows.append(
            f"| {variant} | {of['correlation_mean']:.5f} | {of['correlation_least']:.5f} "
            f"| {of['difference_largest']:.5f} | {of['difference_mean']:.6f} | {of['spread_of_map']:.5f} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
