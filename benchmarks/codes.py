"""Codes: how close are their maps to those of the encoder, how large are they, and how long do they take?

    python benchmarks/codes.py [--encoder builtin] [--device auto] [--data FOLDER] [--unseen FOLDER]

For codes of one, two and three pages of LMDB (the last is what `Coder` makes), on labelled photos, and
on every tenth of others that nothing was ever tried on:

- correlation of the coded map with the exact one, both 32x32, over all pairs of photo and direction: mean and
  5th percentile. Phrases are the names of all categories of the data. Exemplars are a box of each category
  in the first photo where it takes 5% of the image, less the mean of all photos; that photo is left out.
- error: root mean square of the difference, level included, and that of the maps' means, both in standard
  deviations of the exact map; means over the same pairs.
- pointing: the highest cell is in a box of the category (see quality.py), for exact and coded maps.
- time to make a code, one thread; to read a map of one phrase, one thread, as a look-up does; and to read the
  maps of one phrase for 10,000 images, codes given over and over, with one thread and with two.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import _report
import numpy as np
import torch
from numpy.typing import NDArray
from quality import SHARED, Truth, mean
from texcat.catalogue.codes import Codebook, code_maps
from texcat.catalogue.grid import enlarge_map, resize_plane
from texcat.catalogue.types import GRID
from texcat.indexer import codes
from texcat.indexer.codebooks import make_codebook
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.indexer.encoders.tensors import encode_squares, phrase_vectors
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.retrieval.labelled import Target, covered, read_targets
from threadpoolctl import threadpool_limits

PAGES = (4016, 8112, codes.BUDGET)
"""Bytes of codes that take, with the header of a record, one, two and three pages of LMDB."""

IMAGES = 10_000
CHUNK = 500
READS = 20
LARGE = 0.05
UNSEEN_STEP = 10

Floats = NDArray[np.float32]


@dataclass
class Tally:
    """What codes of one size got."""

    bytes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    phrases: list[Closeness] = field(default_factory=list)
    exemplars: list[Closeness] = field(default_factory=list)
    hits: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Closeness:
    """How close the coded maps of one photo are to the exact ones: [N] each, the last two in deviations."""

    correlation: NDArray[np.float64]
    error: NDArray[np.float64]
    level: NDArray[np.float64]

    @classmethod
    def of(cls, coded: Floats, exact: Floats) -> Closeness:
        """Closeness of maps [N, h, w]."""
        a, b = (maps.reshape(len(maps), -1).astype(float) for maps in (coded, exact))
        mean_a, mean_b = a.mean(1, keepdims=True), b.mean(1, keepdims=True)
        covariance = ((a - mean_a) * (b - mean_b)).mean(1)
        return cls(
            covariance / (a.std(1) * b.std(1)),
            np.sqrt(np.square(a - b).mean(1)) / b.std(1),
            np.abs(mean_a - mean_b)[:, 0] / b.std(1),
        )


def main() -> None:
    """Measure one encoder, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, default=SHARED / "coco128", help="photos with boxes")
    parser.add_argument("--unseen", type=Path, default=SHARED / "photos1000", help="photos without boxes")
    given = parser.parse_args()
    encoder = load_encoder(given.encoder, given.device)
    targets = read_targets(given.data)
    codebook = make_codebook(encoder)

    features, encoding = encode(encoder, list(targets))
    with threadpool_limits(1):
        rows, phrases = category_directions(encoder, given.data)
        exemplars, sources = exemplar_directions(targets, features)
        tallies, exact_hits, made = [Tally() for _ in PAGES], [], []
        for place, (own, wanted) in enumerate(zip(features, targets.values(), strict=True)):
            others = exemplars[[source != place for source in sources]]
            boxes = [(rows[target.category], Truth.of(target.boxes)) for target in wanted]
            hits, code = measure(
                encoder, codebook, own, phrases=phrases, exemplars=others, boxes=boxes, tallies=tallies
            )
            exact_hits += hits
            made.append(code)
        unseen = [Tally() for _ in PAGES]
        for path in sorted(given.unseen.iterdir())[::UNSEEN_STEP]:
            (own,), _ = encode(encoder, [path])
            measure(encoder, codebook, own, phrases=phrases, exemplars=exemplars, boxes=[], tallies=unseen)
        coordinates = codebook.coordinates(phrases[:1])
        reading = read_one(made, coordinates)
        expanding = {threads: expand(made, coordinates, threads) for threads in (1, 2)}

    found = {budget: figures(tally, exact_hits) for budget, tally in zip(PAGES, tallies, strict=True)}
    elsewhere = {budget: figures(tally, []) for budget, tally in zip(PAGES, unseen, strict=True)}
    result: dict[str, object] = {
        "encoder": encoder.fingerprint,
        "device": encoder.device,
        "data": given.data.name,
        "photos": len(targets),
        "phrases": len(phrases),
        "exemplars": len(exemplars),
        "pairs": len(exact_hits),
        "pointing_exact": mean(exact_hits),
        "budgets": found,
        "unseen": {"data": given.unseen.name, "photos": len(unseen[0].bytes), "budgets": elsewhere},
        "read_one_us": {"p50": reading[0], "p99": reading[1]},
        "expand_10000_seconds": expanding,
        "encode_image_ms": encoding * 1e3,
        "cheaper_than_encoding": encoding * IMAGES / expanding[1],
    }
    lines = [
        f"Encoder `{encoder.fingerprint}` on {encoder.device}; {given.data.name}: {len(targets)} photos, "
        f"{len(exact_hits)} pairs of photo and category; {len(phrases)} phrases, {len(exemplars)} exemplars. "
        f"Pointing of exact maps: {mean(exact_hits):.3f}.",
        "",
        "| photos | bytes, mean / max | phrases: correlation, mean / 5th percentile | error / of the mean "
        "| exemplars: correlation | pointing lost, points | made in, ms |",
        "|---|---|---|---|---|---|---|",
        *(row(given.data.name, each) for each in found.values()),
        *(row(given.unseen.name, each) for each in elsewhere.values()),
        "",
        f"From the largest: a map of one phrase in {reading[0]:.0f} us (99th percentile {reading[1]:.0f}); "
        f"of {IMAGES:,} images in {expanding[1]:.2f} s on one thread, {expanding[2]:.2f} s on two: "
        f"{encoding * IMAGES / expanding[1]:,.0f} times cheaper than encoding an image after the other, in "
        f"{encoding * 1e3:.0f} ms each.",
    ]
    name = "codes" if given.encoder == "builtin" else f"codes-{encoder.fingerprint}"
    _report.save(
        name if given.data.name == "coco128" else f"{name}-{given.data.name}", result, "\n".join(lines)
    )


# --- what is measured --------------------------------------------------------------------------------------


def encode(encoder: DenseEncoder, photos: Sequence[Path]) -> tuple[list[NDArray[np.float16]], float]:
    """Features of photos, and the median of the seconds that one takes, its file read and decoded.

    float16 takes half the memory, and makes no difference that could be seen.
    """
    features, seconds = [], []
    for path in photos:
        started = time.perf_counter()
        (own,) = encode_squares(encoder, [to_square(load_image(path).image, encoder.input_size)])
        seconds.append(time.perf_counter() - started)
        features.append(own.astype(np.float16))
    return features, float(np.median(seconds))


def category_directions(encoder: DenseEncoder, folder: Path) -> tuple[dict[str, int], Floats]:
    """Row of each category of the data in `folder`, and the directions [N, dim] of their names."""
    labels = folder / "instances.json"
    if labels.exists():
        names = [category["name"] for category in json.loads(labels.read_text())["categories"]]
    else:
        names = list(json.loads((folder / "names.json").read_text())["boxes"].values())
    vectors = phrase_vectors(encoder, dict(enumerate(names)))
    return {name: i for i, name in enumerate(names)}, np.stack([vectors[i].direction for i in vectors])


def exemplar_directions(
    targets: dict[Path, list[Target]], features: Sequence[NDArray[np.float16]]
) -> tuple[Floats, list[int]]:
    """Directions [M, dim] of one exemplar for each category, and the numbers of the photos they are from."""
    average = np.mean([each.mean((1, 2), dtype=np.float32) for each in features], axis=0)
    found: dict[str, tuple[Floats, int]] = {}
    for place, (own, each) in enumerate(zip(features, targets.values(), strict=True)):
        rows, columns = ((np.arange(side) + 0.5) / side for side in own.shape[1:])
        for target in each:
            inside = covered(target.boxes[:1], columns, rows)
            if inside.mean() >= LARGE and target.category not in found:
                found[target.category] = own[:, inside].mean(1, dtype=np.float32) - average, place
    return np.stack([direction for direction, _ in found.values()]), [place for _, place in found.values()]


def measure(
    encoder: DenseEncoder,
    codebook: Codebook,
    features: NDArray[np.float16],
    *,
    phrases: Floats,
    exemplars: Floats,
    boxes: Sequence[tuple[int, Truth]],
    tallies: Sequence[Tally],
) -> tuple[list[float | None], bytes]:
    """Add one photo to a tally for each of `PAGES`; whether the exact maps hit, and its largest code.

    `boxes` are targets, each with the row of its phrase.
    """
    own = features.astype(np.float32)
    exact, exact_others = (exact_maps(own, each) for each in (phrases, exemplars))
    for budget, tally in zip(PAGES, tallies, strict=True):
        codes.BUDGET = budget
        coder, tensor = codes.Coder(codebook, encoder.map_size, "cpu"), torch.from_numpy(own)[None]
        started = time.perf_counter()
        (code,) = coder.codes(tensor)
        tally.seconds.append(time.perf_counter() - started)
        tally.bytes.append(len(code))
        coded = coded_maps(code, codebook, phrases)
        tally.phrases.append(Closeness.of(coded, exact))
        tally.exemplars.append(Closeness.of(coded_maps(code, codebook, exemplars), exact_others))
        tally.hits += [truth.score(coded[row]).hit for row, truth in boxes]
    return [truth.score(exact[row]).hit for row, truth in boxes], code


def exact_maps(features: Floats, directions: Floats) -> Floats:
    """Maps of the encoder: [N, 32, 32]."""
    dim, *grid = features.shape
    return resize_plane((directions @ features.reshape(dim, -1)).reshape(-1, *grid), GRID)


def coded_maps(code: bytes, codebook: Codebook, directions: Floats) -> Floats:
    """Maps from a code: [N, 32, 32]."""
    return enlarge_map(code_maps(code, codebook.coordinates(directions)))


def figures(tally: Tally, exact_hits: Sequence[float | None]) -> dict[str, float | None]:
    """Figures of codes of one size; no pointing where there are no boxes."""
    exact, coded = mean(exact_hits), mean(tally.hits)
    every, others = (
        np.concatenate([each.correlation for each in closeness])
        for closeness in (tally.phrases, tally.exemplars)
    )
    return {
        "bytes_mean": float(np.mean(tally.bytes)),
        "bytes_max": max(tally.bytes),
        "correlation": float(every.mean()),
        "correlation_p5": float(np.percentile(every, 5)),
        "error": float(np.concatenate([each.error for each in tally.phrases]).mean()),
        "level_error": float(np.concatenate([each.level for each in tally.phrases]).mean()),
        "exemplar_correlation": float(others.mean()),
        "exemplar_correlation_p5": float(np.percentile(others, 5)),
        "pointing_lost": None if exact is None or coded is None else 100 * (exact - coded),
        "make_ms": 1e3 * float(np.median(tally.seconds)),
    }


def row(data: str, found: dict[str, float | None]) -> str:
    """A row of the table."""
    lost = found["pointing_lost"]
    return (
        f"| {data} | {found['bytes_mean']:,.0f} / {found['bytes_max']:,} "
        f"| {found['correlation']:.3f} / {found['correlation_p5']:.3f} "
        f"| {found['error']:.3f} / {found['level_error']:.3f} "
        f"| {found['exemplar_correlation']:.3f} / {found['exemplar_correlation_p5']:.3f} "
        f"| {'-' if lost is None else f'{lost:.1f}'} | {found['make_ms']:.1f} |"
    )


# --- time --------------------------------------------------------------------------------------------------


def read_one(made: Sequence[bytes], coordinates: Floats) -> tuple[float, float]:
    """Median and 99th percentile of the time of one map, in us."""
    times = []
    for code in itertools.chain.from_iterable([made] * READS):
        started = time.perf_counter()
        code_maps(code, coordinates)
        times.append(time.perf_counter() - started)
    return float(np.median(times)) * 1e6, float(np.percentile(times, 99)) * 1e6


def expand(made: Sequence[bytes], coordinates: Floats, threads: int) -> float:
    """Seconds that the maps of one phrase for 10,000 images take."""
    every = list(itertools.islice(itertools.cycle(made), IMAGES))
    chunks = [every[start : start + CHUNK] for start in range(0, IMAGES, CHUNK)]

    def read(chunk: list[bytes]) -> Floats:
        return np.concatenate([code_maps(code, coordinates) for code in chunk])

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(read, chunks):
            pass
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
