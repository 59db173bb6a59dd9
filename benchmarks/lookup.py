"""What a stored look-up costs, beside what computing the same again costs.

    python benchmarks/lookup.py [--images 10000] [--large 200000] [--looks 20000] [--data FOLDER]

Look-ups are whole calls of `Retriever.lookup`: three interests, matches and keys at random, warm, one thread.
`--large N` repeats them over N images (200,000 with 50 interests are 10 million maps); 0 leaves that out.
`--data` holds the photos: `images/`, and `names.json` beside it, as coco128 is laid out. It needs texcat and
its dependencies alone, and 8 GB in the temporary folder (1.2 GB without `--large`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import _report
import numpy as np
from _payload import DATA, INTERESTS, Payload, fill, key
from texcat.catalogue import Catalogue, TextureRecord
from texcat.indexer import index_corpus
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.retrieval import Match, Matches, Retriever

PHRASES = ("dog", "car", "bottle", "chair", "person on a bicycle")


def main() -> None:
    """Run all parts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=200_000)
    parser.add_argument("--looks", type=int, default=20_000)
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    result: dict[str, object] = {"images": given.images, "interests": INTERESTS, "looks": given.looks}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        result |= stored(folder / "grid16", Payload(16, given.data), given.images, given.looks)
        result["mb_32"] = size_on_disk(folder / "grid32", Payload(32, given.data), given.images)
        result |= computed(folder / "real", given.data, float(str(result["p50"])))
        if given.large:
            result |= large(folder / "large", Payload(16, given.data), given.large, given.looks)
    rows = [
        ("look-up by key, p50 / p99", "{p50:.1f} / {p99:.1f} us"),
        ("look-up by path (200 kB) and known question, p50 / p99", "{path_p50:.0f} / {path_p99:.0f} us"),
        ("the same, recorded for the catalogue to learn from, against not recorded", "{observed:.3f} x"),
        (
            "one map of three from the image's code: added to a look-up; against a stored one",
            "{coded_added:.0f} us; {coded_ratio:.1f} x",
        ),
        ("`lookup_many(256)`", "{many:,.0f} images/s"),
        ("two processes against one, look-ups a second", "{two_processes:.2f} x"),
        (f"{given.images:,} images x {INTERESTS} interests, maps of 16x16", "{mb_16:.0f} MB"),
        (f"{given.images:,} images x {INTERESTS} interests, maps of 32x32", "{mb_32:.0f} MB"),
        (f"adding an interest's maps to {given.images:,} images", "{add:.2f} s"),
        (f"reading one interest over {given.images:,} images", "{scan:.2f} s"),
        ("computing the same with the builtin encoder, one image", "{compute_ms:.0f} ms"),
        ("look-up against computing", "{ratio:,.0f} x"),
    ]
    if given.large:
        rows.append(
            (
                f"look-up by key at {given.large * INTERESTS:,} maps, p50 / p99",
                "{large_p50:.1f} / {large_p99:.1f} us",
            )
        )
        rows.append(("that against the first row, p50", "{large_ratio:.2f} x"))
    table = "\n".join(f"| {what} | {figure.format(**result)} |" for what, figure in rows)
    _report.save("lookup", result, f"| what | figure |\n|---|---|\n{table}")


def stored(path: Path, payload: Payload, images: int, looks: int) -> dict[str, object]:
    """All that needs no encoder."""
    with Catalogue.create(path) as catalogue:
        fill(catalogue, payload, images)
        retriever = Retriever(catalogue, compute=False, observe=False)
        times = time_lookups(catalogue, retriever, images, looks)
        learning = Retriever(catalogue, compute=False, observe=True)
        turns = [(learning, retriever)[turn % 2] for turn in range(40)]
        medians = [float(np.median(time_lookups(catalogue, each, images, looks // 20))) for each in turns]
        learning.close()
        matches = some_matches(catalogue, 1)[0]
        batches = [
            [key(n) for n in range(start, start + 256)] for start in range(0, min(images, 2560) - 255, 256)
        ]
        many = np.median(
            [
                seconds(lambda batch=batch: consume(retriever.lookup_many(batch, matches)))
                for batch in batches * 5
            ]
        )
        size = catalogue.store.stats().file_bytes
        new = catalogue.add_interest("a new interest")
        records = [TextureRecord(key(n), None, {new.id: payload.map(n, 51)}) for n in range(images)]
        added = seconds(lambda: catalogue.store.write(records))
        scanned = seconds(lambda: sum(1 for _ in catalogue.store.scan(new.id)))
    one, two = in_processes(path, images, 1), in_processes(path, images, 2)
    return {
        **percentiles("", times),
        "observed": float(np.median(np.divide(medians[::2], medians[1::2]))),
        "many": 256 / many,
        "mb_16": size / 1e6,
        "add": added,
        "scan": scanned,
        "two_processes": two / one,
    }


def computed(path: Path, data: Path, p50: float) -> dict[str, object]:
    """A look-up by path and question, and what computing the same takes."""
    encoder = load_encoder("builtin")
    photos = sorted(data.glob("images/*"))[:24]
    with Catalogue.create(path) as catalogue:
        for phrase in PHRASES:
            catalogue.add_interest(phrase)
        index_corpus(catalogue, photos, encoder=encoder)
        retriever = Retriever(catalogue, encoder=encoder)
        photo = min(photos, key=lambda p: abs(p.stat().st_size - 200_000))
        retriever.lookup(photo, "Where is the dog?")
        by_path = [seconds(lambda: retriever.lookup(photo, "Where is the dog?")) * 1e6 for _ in range(3000)]
        added, ratio = coded(catalogue, retriever)
    alone = [
        seconds(lambda photo=photo: compute(encoder, path.with_name("empty"), photo)) for photo in photos[:12]
    ]
    return {
        **percentiles("path_", by_path),
        "coded_added": added,
        "coded_ratio": ratio,
        "compute_ms": float(np.median(alone)) * 1e3,
        "ratio": float(np.median(alone)) * 1e6 / p50,
    }


def coded(catalogue: Catalogue, retriever: Retriever) -> tuple[float, float]:
    """Microseconds that a look-up takes longer when one of its three maps is not stored, but coded; how many
    times as long it takes.

    Medians over images of the difference, and the ratio, of medians; stored and coded take turns.
    """
    held = catalogue.interests()[:3]
    new = catalogue.add_interest("a traffic light")
    stored, lacking = (
        Matches(Match(interest, 1.0, 1 / 3) for interest in interests)
        for interests in (held, (*held[:2], new))
    )
    medians = []
    for image in catalogue.store.keys():
        assert retriever.lookup(image, matches=stored).tier == "stored"
        assert retriever.lookup(image, matches=lacking).tier == "coded"
        times = [
            [seconds(lambda m=m: retriever.lookup(image, matches=m)) * 1e6 for m in (stored, lacking)]  # noqa: B023
            for _ in range(200)
        ]
        medians.append(np.median(times, axis=0))
    one, other = np.transpose(medians)
    return float(np.median(other - one)), float(np.median(other / one))


def compute(encoder: DenseEncoder, path: Path, photo: Path) -> None:
    """The texture of one image, from its file, with nothing stored: decode, encode, channels, three maps."""
    if not path.exists():
        with Catalogue.create(path) as catalogue:
            for phrase in PHRASES[:3]:
                catalogue.add_interest(phrase)
            catalogue.adopt_encoder(encoder.fingerprint, 0.0, 1.0)
            Retriever(catalogue, encoder=encoder).lookup(photo, "dog")
            catalogue.store.delete(catalogue.store.keys())
    with Catalogue.open(path) as catalogue:
        retriever = Retriever(catalogue, encoder=encoder)
        matches = Matches(Match(interest, 1.0, 1 / 3) for interest in catalogue.interests())
        hit = retriever.lookup(photo, matches=matches)
        assert hit.tier == "computed"


def large(path: Path, payload: Payload, images: int, looks: int) -> dict[str, object]:
    """Look-ups over so many images that neither caches nor the first levels of a tree hold them."""
    with Catalogue.create(path) as catalogue:
        fill(catalogue, payload, images, batch=5_000)
        retriever = Retriever(catalogue, compute=False)
        small = time_lookups(catalogue, retriever, 10_000, looks)
        times = time_lookups(catalogue, retriever, images, looks)
    ratio = float(np.percentile(times, 50) / np.percentile(small, 50))
    return {**percentiles("large_", times), "large_ratio": ratio, "large_mb": folder_mb(path)}


def size_on_disk(path: Path, payload: Payload, images: int) -> float:
    """Megabytes of the shards."""
    with Catalogue.create(path) as catalogue:
        fill(catalogue, payload, images)
        return catalogue.store.stats().file_bytes / 1e6


def time_lookups(catalogue: Catalogue, retriever: Retriever, images: int, looks: int) -> list[float]:
    """Microseconds of each look-up, each image having been looked up once before."""
    rng = np.random.default_rng(0)
    plans = some_matches(catalogue, 200)
    keys = [key(number) for number in rng.integers(0, images, looks).tolist()]
    for one in keys:
        retriever.lookup(one, matches=plans[0])
    times = []
    for place, one in enumerate(keys):
        matches = plans[place % len(plans)]
        started = time.perf_counter_ns()
        retriever.lookup(one, matches=matches)
        times.append((time.perf_counter_ns() - started) / 1e3)
    return times


def some_matches(catalogue: Catalogue, count: int) -> list[Matches]:
    """Matches of three interests at random."""
    rng = np.random.default_rng(1)
    interests = catalogue.interests()[:INTERESTS]
    return [
        Matches(Match(interests[i], 0.8, 1 / 3) for i in rng.choice(len(interests), 3, replace=False))
        for _ in range(count)
    ]


def in_processes(path: Path, images: int, count: int) -> float:
    """Look-ups a second of `count` processes together."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(count) as pool:
        pool.starmap(look_for, [(path, images, 0.5)] * count)
        return sum(pool.starmap(look_for, [(path, images, 3.0)] * count))


def look_for(path: Path, images: int, duration: float) -> float:
    """Look-ups a second in this process, over `duration` seconds."""
    with Catalogue.open(path) as catalogue:
        retriever = Retriever(catalogue, compute=False)
        matches = some_matches(catalogue, 1)[0]
        rng = np.random.default_rng(os.getpid())
        keys = [key(number) for number in rng.integers(0, images, 1000).tolist()]
        retriever.lookup(keys[0], matches=matches)
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < duration:
            for one in keys:
                retriever.lookup(one, matches=matches)
            done += len(keys)
        return done / (time.perf_counter() - started)


def percentiles(prefix: str, times: list[float]) -> dict[str, object]:
    """p50 and p99."""
    return {f"{prefix}p{p}": float(np.percentile(times, p)) for p in (50, 99)}


def seconds(action: object) -> float:
    """Duration of a call."""
    started = time.perf_counter()
    action()  # type: ignore[operator]
    return time.perf_counter() - started


def consume(hits: Iterable[object]) -> None:
    """Ask for each of `hits`, and let go of it."""
    deque(hits, maxlen=0)


def folder_mb(folder: Path) -> float:
    """Megabytes that the files below `folder` take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    main()
