"""Indexing at the speed of the card: end to end against the encoder alone, and against others.

    python benchmarks/pipeline.py --data ../shared/data/coco128/images [--images 10000] [--devices cuda:0]

JPEG files are made by repeating the photos of `--data`, each with a comment of its own, so that no two have
the same bytes. The encoder is open_clip ViT-B/16 at 512 px in bfloat16 with random weights: its speed is the
same. `--tiny` is a small model, and `--builtin` the builtin encoder, to run all of this on a processor.

- encoder only: the encoder's patch features of images that lie on the device, a batch at a time; measured
  just before and just after each pass, as machines that others use, too, change.
- end to end: `index_corpus`, from the first file that is opened to the last commit, on each of `--devices`
  (`cuda:0 cuda:0,cuda:1` is one card, then two). Loading the encoder and its directions are left out.
- plain: a DataLoader with a worker a core, PIL, open_clip's own preprocessing and `encode_image`. It makes
  one vector an image, and writes nothing.
- clip-retrieval's `clip_inference`, where it is installed: the same, and writes the vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import _report
import open_clip
import torch
from PIL import Image
from texcat.catalogue import Catalogue
from texcat.indexer import Progress, index_corpus
from texcat.indexer.encoders import load_encoder
from texcat.indexer.textures import few_threads

INTERESTS = 50
EARLY_IMAGES = 1_000
"""After so many of a pass, memory should be at its peak."""

MODEL = "ViT-B-16"
TINY = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 64, "layers": 3, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}
THINGS = (
    "dog cat bird horse boat car bicycle train bus flower tree snake bridge guitar piano chair table cup "
    "bottle pizza cake apple banana clock book phone laptop keyboard shoe hat umbrella kite ball surfboard "
    "skateboard mountain beach river building window door street sign lamp sofa bed giraffe zebra sheep cow"
)


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/coco128/images"))
    parser.add_argument("--images", type=int, nargs="+", default=[10_000], help="of each pass")
    parser.add_argument("--warm-up", type=int, default=1_000, help="images of a pass before")
    parser.add_argument("--devices", nargs="+", default=["cuda:0" if torch.cuda.is_available() else "cpu"])
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--others", type=int, default=2_000, help="images for the other programs; 0 for none")
    parser.add_argument("--out", type=Path, default=_report.RESULTS, help="folder of the report")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--builtin", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spec, model, checkpoint = "builtin", None, None
        if not given.builtin:
            model = "texcat-tiny-benchmark" if given.tiny else MODEL
            checkpoint = random_weights(model, folder)
            spec = f"open_clip:{model}/{checkpoint},size={128 if given.tiny else 512}"
            spec += ",precision=bf16" if "cuda" in given.devices[0] else ""
        photos = sorted(given.data.glob("*.jpg"))
        made = make_photos(photos, max(given.images) + given.warm_up, folder / "photos")
        result: dict[str, Any] = {
            "card": card(),
            "encoder": spec.replace(str(folder), "..."),
            "warm_up": end_to_end(
                folder / "warm", spec, made[: given.warm_up], given.devices[0], given.batch_size
            ),
            "encoder_only": [],
            "encoder_only_core_ms": [],
            "runs": [],
        }

        def encode() -> None:
            rate, cores = encoder_only(spec, given.devices[0], given.batch_size)
            result["encoder_only"].append(rate)
            result["encoder_only_core_ms"].append(cores)

        encode()
        for count, devices in product(given.images, given.devices):
            chosen = made[given.warm_up :][:count]
            whole = end_to_end(folder / "whole", spec, chosen, devices, given.batch_size)
            result["runs"].append({"devices": devices, "images": count, **whole})
            encode()
            _report.save("pipeline", result, table(result), given.out)  # or what is cut short is lost
        if given.others and model is not None and checkpoint is not None:
            result["plain"] = plain(model, checkpoint, made[: given.others], given)
            result["clip_retrieval"] = clip_retrieval(model, checkpoint, made[: given.others], folder)
    _report.save("pipeline", result, table(result), given.out)


def card() -> str:
    """Name and driver of the first GPU."""
    if not torch.cuda.is_available():
        return "no GPU"
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def random_weights(model: str, folder: Path) -> Path:
    """Checkpoint of the model with seeded weights."""
    if model not in open_clip.list_models():
        (folder / f"{model}.json").write_text(json.dumps(TINY))
        open_clip.add_model_config(folder)
    torch.manual_seed(0)
    path = folder / "weights.pt"
    torch.save(open_clip.create_model(model, pretrained=None).state_dict(), path)
    return path


def make_photos(photos: list[Path], count: int, folder: Path) -> list[Path]:
    """`count` JPEG files of which no two are the same, a thousand to a folder."""
    contents = [photo.read_bytes() for photo in photos]
    made = []
    for number in range(count):
        path = folder / f"{number // 1000:04}" / f"{number:07}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        content, comment = contents[number % len(contents)], f"{number:010}".encode()
        segment = b"\xff\xfe" + (2 + len(comment)).to_bytes(2, "big") + comment
        path.write_bytes(content[:2] + segment + content[2:])
        made.append(path)
    os.sync()  # or the first pass shares the disk with them
    return made


def encoder_only(spec: str, devices: str, batch_size: int | None) -> tuple[float, float]:
    """Images a second of the encoder by itself, on the first of `devices`, and ms of cores an image.

    On a processor, as it is quickest: with all cores, or as two that have half of them each.
    """
    encoder = load_encoder(spec, devices.partition(",")[0])
    on_gpu = encoder.device != "cpu"
    size = batch_size or (128 if on_gpu else 8)
    images = torch.randint(0, 256, (size, 3, encoder.input_size, encoder.input_size), dtype=torch.uint8)
    images = images.to(encoder.device)

    def rate(threads: int) -> tuple[float, float]:
        half = partial(few_threads, max(1, (os.cpu_count() or 1) // 2))
        with ThreadPoolExecutor(threads, initializer=half if threads > 1 else lambda: None) as pool:
            for rounds in (3 if on_gpu else threads, 30 if on_gpu else 12):
                begun, used = time.perf_counter(), time.process_time()
                list(pool.map(encoder.patches, [images] * rounds))
                wait(encoder.device)
                seconds, used = time.perf_counter() - begun, time.process_time() - used
        return size * rounds / seconds, 1e3 * used / (size * rounds)

    return rate(1) if on_gpu else max(rate(1), rate(2))


def wait(device: str) -> None:
    """Wait for a GPU."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def end_to_end(
    path: Path, spec: str, photos: list[Path], devices: str, batch_size: int | None
) -> dict[str, Any]:
    """One pass over `photos` into a new catalogue."""
    shutil.rmtree(path, ignore_errors=True)
    marks: list[tuple[float, Progress]] = []
    early: list[float] = []
    used: list[float] = []
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with Catalogue.create(path, encoder=spec) as catalogue, host_memory() as host:

        def mark(progress: Progress) -> None:
            marks.append((time.perf_counter(), progress))
            used.append(time.process_time())
            if not early and progress.done >= min(EARLY_IMAGES, progress.total):
                early.extend((gpu_peak(), max(host)))

        for thing in THINGS.split()[:INTERESTS]:
            catalogue.add_interest(thing)
        report = index_corpus(
            catalogue,
            photos,
            device=devices,
            batch_size=batch_size,
            on_progress=mark,
        )
        stats = catalogue.store.stats()
    (begun, _), *_, (ended, last) = marks
    assert last.done == last.total == len(photos), last
    assert stats.images == stats.codes == len(photos)
    print(f"{devices}: {len(photos)} images, {len(photos) / (ended - begun):.0f} a second", flush=True)
    return {
        "images_a_second": len(photos) / (ended - begun),
        "seconds": ended - begun,
        "seconds_with_loading": report.seconds,
        "steady_images_a_second": between(marks, 1 / 4, 3 / 4),
        "quarters_images_a_second": [between(marks, each / 4, (each + 1) / 4) for each in range(4)],
        "core_ms_an_image": 1e3 * (used[-1] - used[0]) / len(photos),  # of this process
        "bytes_an_image": stats.file_bytes / stats.images,
        "host_peak_mb": max(host),
        "gpu_peak_mb": gpu_peak(),
        "early_gpu_peak_mb": early[0],
        "early_host_peak_mb": early[1],
        "stages": [asdict(stage) for stage in report.stages],
        "skipped": len(report.skipped),
        "on_cpu": report.on_cpu,
    }


def gpu_peak() -> float:
    """MB of tensors on this process's GPU, at most."""
    return torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0


def between(marks: list[tuple[float, Progress]], start: float, stop: float) -> float:
    """Images a second between two parts of the files; in the middle half, the stages are all full."""
    total = marks[-1][1].total
    begun, first = next((when, each.done) for when, each in marks if each.done >= start * total)
    ended, last = next((when, each.done) for when, each in marks if each.done >= stop * total)
    return (last - first) / (ended - begun) if last > first else 0.0


@contextmanager
def host_memory() -> Iterator[list[float]]:
    """MB of this process's own that are in memory, ten times a second; of files' pages that it maps, none."""
    seen = [0.0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
            seen.append((resident - shared) * resource.getpagesize() / 2**20)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


class Photos(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Files as open_clip's preprocessing gives them."""

    def __init__(self, paths: list[Path], preprocess: Any) -> None:
        self.paths, self.preprocess = paths, preprocess

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> Any:
        with Image.open(self.paths[place]) as image:
            return self.preprocess(image)


def plain(model: str, checkpoint: Path, photos: list[Path], given: argparse.Namespace) -> dict[str, float]:
    """Images a second of the loop that open_clip's users write."""
    device = given.devices[0].split(",")[0]
    on_gpu = device != "cpu"
    network, _, preprocess = open_clip.create_model_and_transforms(
        model,
        pretrained=str(checkpoint),
        force_image_size=128 if given.tiny else 512,
        precision="pure_bf16" if on_gpu else "fp32",
        device=device,
        weights_only=True,
    )
    network.eval()
    loader = torch.utils.data.DataLoader(
        Photos(photos, preprocess), batch_size=128, num_workers=os.cpu_count() or 1, pin_memory=on_gpu
    )
    kind = torch.bfloat16 if on_gpu else torch.float32
    begun = time.perf_counter()
    with torch.inference_mode():
        for batch in loader:
            network.encode_image(batch.to(device, kind, non_blocking=True))
    wait(device)
    return {"images_a_second": len(photos) / (time.perf_counter() - begun)}


def clip_retrieval(model: str, checkpoint: Path, photos: list[Path], folder: Path) -> dict[str, float] | None:
    """Images a second of clip-retrieval, at the size of the model; None where it is not installed."""
    if find_spec("clip_retrieval") is None:
        return None
    from clip_retrieval import clip_inference

    files = folder / "some"
    files.mkdir()
    for photo in photos:
        (files / photo.name).symlink_to(photo)
    begun = time.perf_counter()
    clip_inference(
        input_dataset=str(files),
        output_folder=str(folder / "embeddings"),
        enable_text=False,
        clip_model=f"open_clip:{model}/{checkpoint}",
        batch_size=128,
        num_prepro_workers=os.cpu_count(),
    )
    return {"images_a_second": len(photos) / (time.perf_counter() - begun)}


def table(result: dict[str, Any]) -> str:
    """All of it, in Markdown."""
    lines = [f"{result['card']}; {result['encoder']}; {INTERESTS} interests, default channels, codes", ""]
    heads = (
        "what, images, images/s, encoder only just before; after, of their mean, in the middle half, of it"
    )
    heads += ", GPU MB until 1,000; in all, host MB, decoded by CPU"
    lines += [f"| {heads} |".replace(", ", " | ").replace(";", ",")]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    alone = result["encoder_only"]
    for run, (before, after) in zip(result["runs"], pairwise(alone), strict=True):
        rate, middle, mean = run["images_a_second"], run["steady_images_a_second"], (before + after) / 2
        lines.append(
            f"| end to end, {run['devices']} | {run['images']:,} | {told(rate)} | "
            f"{told(before)}, {told(after)} | {rate / mean:.2f} | {told(middle)} | {middle / mean:.2f} | "
            f"{run['early_gpu_peak_mb']:,.0f}, {run['gpu_peak_mb']:,.0f} | "
            f"{run['early_host_peak_mb']:,.0f}, {run['host_peak_mb']:,.0f} | {run['on_cpu']} |"
        )
    for name in ("plain", "clip_retrieval"):
        if result.get(name):
            rate = result[name]["images_a_second"]
            lines.append(f"| {name} | | {told(rate)} | | {rate / alone[-1]:.2f} | | | | | |")
    cores = pairwise(result["encoder_only_core_ms"])
    for run, (before, after) in zip(result["runs"], cores, strict=True):
        quarters = ", ".join(map(told, run["quarters_images_a_second"]))
        lines += ["", f"{run['devices']}, {run['images']:,} images: {quarters} a second in each quarter; "]
        lines[-1] += f"{run['seconds']:.1f} s, and {run['seconds_with_loading']:.1f} with all that is loaded."
        lines.append("")
        if run["devices"] == "cpu":
            took = run["core_ms_an_image"]
            lines[-1] = f"It took {took:.0f} ms of cores an image; the encoder alone {before:.0f} before and "
            lines[-1] += f"{after:.0f} after, {(before + after) / 2 / took:.2f} of it."
            lines.append("")
        lines += ["| stage | threads | busy, s | share | ms an image |", "|---|---|---|---|---|"]
        lines += [
            f"| {stage['name']} | {stage['workers']} | {stage['seconds']:.1f} | {stage['share']:.2f} | "
            f"{1e3 * stage['seconds'] / run['images']:.3f} |"
            for stage in run["stages"]
        ]
    return "\n".join(lines)


def told(rate: float) -> str:
    """A rate, with a decimal where it is small."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


if __name__ == "__main__":
    main()
