"""The graph of interests at 10,000 phrases and 200,000 ties, and what observing a question costs.

The phrases are names of ImageNet-21k's classes, so meaning is that of a real vocabulary; 300 of them are
interests. The questions are made up: in each session a person asks about some of the phrases around one of
their interests.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import _report
import numpy as np
from numpy.typing import NDArray
from texcat.catalogue import Catalogue
from texcat.catalogue.graph import InterestGraph
from texcat.catalogue.memory import Memory, Mention, Observation
from texcat.catalogue.observer import Observer
from texcat.catalogue.relations import Relations
from texcat.indexer.encoders import load_encoder
from texcat.indexer.matching import match_range
from texcat.retrieval.extraction import extract_phrases
from texcat.retrieval.types import Match, Matches
from timm.data.imagenet_info import ImageNetInfo

PHRASES = 10_000
INTERESTS = 300
SESSIONS = 4_000
NOW = 1_800_000_000.0
QUESTION = "Where is the red bike leaning against the wall?"


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    encoder = load_encoder("builtin", "cpu")
    names = (n.partition(", ")[0].casefold() for n in ImageNetInfo("imagenet-21k-goog").label_descriptions())
    phrases = list(dict.fromkeys(names))
    random.Random(0).shuffle(phrases)
    phrases = phrases[:PHRASES]
    vectors = encoder.text(phrases).float().cpu().numpy()
    figures: dict[str, tuple[float, float]] = {}
    with TemporaryDirectory() as folder, Catalogue.create(Path(folder) / "cat") as catalogue:
        catalogue.adopt_encoder(encoder.fingerprint, *match_range(encoder))
        for phrase in phrases[:INTERESTS]:
            catalogue.add_interest(phrase)
        with Memory.of(catalogue) as memory:
            graph = measure_kept(catalogue, memory, phrases, vectors, figures)
            measure_asked(graph, phrases, figures)
        figures |= measure_observing(catalogue)
    title = f"{len(graph):,} phrases, {graph.ties():,} ties"
    lines = [
        f"{title}; {INTERESTS} interests, {SESSIONS:,} sessions. Median, and the slowest of a hundred.",
        "",
        "| | median | slowest |",
        "|---|---|---|",
        *(
            f"| {name} | {_written(seconds)} | {_written(slow)} |"
            for name, (seconds, slow) in figures.items()
        ),
    ]
    _report.save("graph", {"ties": graph.ties(), "phrases": len(graph), "seconds": figures}, "\n".join(lines))


def measure_kept(
    catalogue: Catalogue,
    memory: Memory,
    phrases: list[str],
    vectors: NDArray[np.float32],
    figures: dict[str, tuple[float, float]],
) -> InterestGraph:
    """What is made once and kept, and reading it."""
    random_numbers = np.random.default_rng(0)
    relations = Relations(memory.database, catalogue.settings.fingerprint)
    memory.add_candidates(phrases)
    texts = dict(zip(phrases, vectors, strict=True))
    last = phrases[-20:]
    figures["tie all phrases by meaning, once"] = timed(
        lambda: relations.add_texts({p: v for p, v in texts.items() if p not in last}), 1
    )
    remaining = iter(last)
    figures["tie one more phrase by meaning"] = timed(
        lambda: relations.add_texts(_only(texts, remaining)), 20
    )
    topics = random_numbers.normal(size=(30, 2_000))
    shown = {
        p: (topics[i % 30] + random_numbers.normal(size=2_000)).astype(np.float32)
        for i, p in enumerate(phrases[:INTERESTS])
    }
    figures["tie 300 interests by sight, over 2,000 images"] = timed(lambda: relations.put_scores(shown), 5)
    asked = questions(phrases, vectors)
    figures[f"record {len(asked):,} questions"] = timed(lambda: memory.record(asked), 1)
    figures["use of every phrase, from the log"] = timed(lambda: memory.uses(NOW), 5)

    def load() -> InterestGraph:
        return InterestGraph.load(memory, catalogue.settings, now=NOW)

    figures["load the graph"] = timed(load, 3)
    return load()


def measure_asked(graph: InterestGraph, phrases: list[str], figures: dict[str, tuple[float, float]]) -> None:
    """What is asked of the graph."""
    chance = random.Random(1)

    def any_phrase() -> str:
        return chance.choice(phrases)

    figures["neighbours"] = timed(lambda: graph.neighbours(any_phrase()))
    figures["path, between any two phrases"] = timed(lambda: graph.path(any_phrase(), any_phrase()))
    figures["path, between any two interests"] = timed(
        lambda: graph.path(chance.choice(phrases[:INTERESTS]), chance.choice(phrases[:INTERESTS]))
    )
    figures["hubs"] = timed(graph.hubs)
    figures["suggest 10"] = timed(graph.suggest)
    figures["frontier"] = timed(graph.frontier)
    figures["communities, made"] = timed(graph.communities, 1)
    figures["communities, as long as little has changed"] = timed(graph.communities)
    session = chance.sample(phrases, 300)
    moments = iter(range(100))

    def observe() -> None:
        graph.observe(
            Observation(
                NOW + next(moments) * 120,
                "stored",
                0.8,
                tuple(Mention(p, True) for p in chance.sample(session, 3)),
            )
        )

    figures["take up a question"] = timed(observe)
    figures["weigh use anew, every 7 hours"] = timed(lambda: graph.move(graph.now + 30_000), 5)


def measure_observing(catalogue: Catalogue) -> dict[str, tuple[float, float]]:
    """What observing takes of something that runs as long as a look-up, while the thread beside it writes."""
    matches = Matches(Match(interest, 0.8, 1 / 3) for interest in catalogue.interests()[:3])
    numbers = list(range(8_000))
    alone, calls, beside = [], [], []
    with Observer(Memory.of(catalogue), extract_phrases) as observer:
        for _ in range(100):
            for seconds, observing in ((alone, False), (beside, True)):
                started = time.perf_counter()
                for _ in range(2_000):
                    sum(numbers)
                    if observing:
                        observer.observe(QUESTION, matches, "stored", 0.8)
                seconds.append((time.perf_counter() - started) / 2_000)
            started = time.perf_counter()
            for _ in range(2_000):
                observer.observe(QUESTION, matches, "stored", 0.8)
            calls.append((time.perf_counter() - started) / 2_000)
    return {
        "observe, the call": (float(np.median(calls)), max(calls)),
        "work of about a look-up's length": (float(np.median(alone)), max(alone)),
        "the same, observed each time": (float(np.median(beside)), max(beside)),
    }


def questions(phrases: list[str], vectors: NDArray[np.float32]) -> list[Observation]:
    """Questions of three months, five in a session, about the sixty phrases nearest to one interest."""
    chance = random.Random(0)
    similar = vectors[:INTERESTS] @ vectors.T
    around = np.argsort(-similar, 1)[:, :60]
    asked = []
    for session in range(SESSIONS):
        topic = min(int(chance.expovariate(1 / 80)), INTERESTS - 1)
        start = NOW - (SESSIONS - session) * 1_950
        for i in range(5):
            named = {phrases[chance.choice(around[topic])] for _ in range(2)}
            matched = (phrases[topic], phrases[around[topic][chance.randrange(1, 9)]])
            mentions = [Mention(p, True) for p in sorted(named)]
            mentions += [Mention(p, False, 0.5) for p in dict.fromkeys(matched) if p not in named]
            asked.append(Observation(start + 25 * i, "stored", 0.7, tuple(mentions)))
    return asked


def timed(run: Callable[[], object], times: int = 100) -> tuple[float, float]:
    """Median and longest duration of `run`, in seconds."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds)), max(seconds)


def _only(texts: dict[str, NDArray[np.float32]], phrases: Iterator[str]) -> dict[str, NDArray[np.float32]]:
    phrase = next(phrases)
    return {phrase: texts[phrase]}


def _written(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:,.3g} {unit}"
    return f"{seconds / 1e-6:.2g} us"


if __name__ == "__main__":
    main()
