"""How much slower is a look-up while `texcat work` fills maps beside it?

    python benchmarks/working.py [--data ../shared/data/coco128/images] [--images 4000] [--pairs 40]

A catalogue of real photos' records, repeated under other keys, gets more interests than a worker can fill in
the time. The worker is a process of its own, as `texcat work` is; it is stopped and let go on (SIGSTOP,
SIGCONT) by turns, so that windows with and without it are neighbours. In each window stored look-ups of three
interests are timed, keys at random. Medians over pairs of windows, once with the processes free to use all
cores, and once with both on one core.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import _report
import numpy as np
from expanding import HELD, repeat
from texcat.catalogue import Catalogue, ImageKey
from texcat.indexer import index_corpus
from texcat.indexer.encoders import load_encoder
from texcat.indexer.encoders.nouns import common_nouns
from texcat.indexer.working import Worker
from texcat.retrieval import Match, Matches, Retriever

WINDOW_SECONDS = 0.4
QUEUED = 150
MOST_SLOWER = 1.10


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/coco128/images"))
    parser.add_argument("--images", type=int, default=4_000)
    parser.add_argument("--pairs", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue"
        keys = make(path, sorted(given.data.resolve().iterdir())[:32], given.images)
        every = os.sched_getaffinity(0)
        free = beside(path, keys, given.pairs, every)
        shared = beside(path, keys, given.pairs, {min(every)})
    rows = [("all cores", free), ("one core for both", shared)]
    figures = "| {name} | {alone_us:.1f} | {beside_us:.1f} | {p50:.3f} | {p99:.3f} | {maps:,} |"
    lines = [figures.format(name=name, **row) for name, row in rows]
    head = "| look-up by key | alone, p50 us | beside `work` | ratio of p50 | of p99 | maps made |"
    lines = [head, "|---" * 6 + "|", *lines]
    result = {"images": given.images, "pairs": given.pairs, "all_cores": free, "one_core": shared}
    _report.save("working", result, "\n".join(lines))
    assert free["p50"] <= MOST_SLOWER
    assert shared["p50"] <= MOST_SLOWER


def make(path: Path, photos: list[Path], images: int) -> list[ImageKey]:
    """The catalogue; its keys."""
    encoder = load_encoder("builtin")
    with Catalogue.create(path.with_name("photos")) as small, Catalogue.create(path) as large:
        for phrase in HELD:
            small.add_interest(phrase)
        index_corpus(small, photos, encoder=encoder)
        repeat(small, large, images)
        queued = [phrase for phrase in common_nouns() if large.registry.find_interest(phrase) is None]
        for phrase in random.Random(0).sample(queued, QUEUED):
            large.add_interest(phrase)
        return list(large.store.keys())


def beside(path: Path, keys: list[ImageKey], pairs: int, cores: set[int]) -> dict[str, float]:
    """Look-ups alone, and beside a worker."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(path,), daemon=True)
    worker.start()
    assert worker.pid is not None
    try:
        with Catalogue.open(path) as catalogue:
            began = held(catalogue)
            while held(catalogue) == began:  # the worker loads its encoder first
                time.sleep(0.5)
            retriever = Retriever(catalogue, compute=False)
            interests = [interest for interest in catalogue.interests() if interest.phrase in HELD][:3]
            matches = Matches(Match(interest, 1.0, 1 / 3) for interest in interests)
            window(retriever, keys, matches)
            began = held(catalogue)
            ratios, alone, with_it = [], [], []
            for _ in range(pairs):
                os.kill(worker.pid, signal.SIGSTOP)
                without = window(retriever, keys, matches)
                os.kill(worker.pid, signal.SIGCONT)
                time.sleep(0.05)
                along = window(retriever, keys, matches)
                ratios.append(along / without)
                alone.append(without)
                with_it.append(along)
            maps = held(catalogue) - began
    finally:
        os.kill(worker.pid, signal.SIGCONT)
        worker.terminate()
        worker.join()
        os.sched_setaffinity(0, before)
    p50, p99 = np.median(ratios, axis=0)
    return {
        "alone_us": float(np.median(alone, axis=0)[0]),
        "beside_us": float(np.median(with_it, axis=0)[0]),
        "p50": float(p50),
        "p99": float(p99),
        "maps": maps,
    }


def work(path: Path) -> None:
    """What `texcat work` runs."""
    Worker().run(path)


def held(catalogue: Catalogue) -> int:
    """Maps in the store."""
    return sum(catalogue.store.stats().maps.values())


def window(
    retriever: Retriever, keys: list[ImageKey], matches: Matches
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Median and 99th percentile of look-ups, in microseconds."""
    draw, times = random.Random(len(keys)), []
    end = time.perf_counter() + WINDOW_SECONDS
    while (started := time.perf_counter()) < end:
        retriever.lookup(draw.choice(keys), matches=matches)
        times.append(1e6 * (time.perf_counter() - started))
    return np.percentile(times, [50, 99])


if __name__ == "__main__":
    main()
