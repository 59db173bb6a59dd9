"""What is suggested to somebody who looks for bicycles and for plasma physics, for a person to judge.

A catalogue of photos of many things, seven interests, and two weeks of questions, most of them about
cycling. The candidates are those of the built-in vocabulary.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import _report
from texcat.catalogue import Catalogue
from texcat.catalogue.graph import InterestGraph
from texcat.catalogue.memory import Memory, Mention, Observation
from texcat.indexer import index_corpus, interest_graph
from texcat.indexer.encoders import load_encoder
from texcat.retrieval.fingerprint import take_fingerprint
from texcat.retrieval.graph_picture import draw_picture

INTERESTS = (
    "mountain bike", "road bike", "bicycle wheel", "tokamak", "plasma torch", "fusion reactor",
    "magnetic field coils",
)  # fmt: skip
ASKED = (
    ("mountain bike", "gravel path"), ("road bike", "bicycle wheel"), ("mountain bike", "bike helmet"),
    ("tokamak", "fusion reactor"), ("road bike",), ("plasma torch", "magnetic field coils"),
    ("bicycle wheel", "mountain bike"),
)  # fmt: skip
SUGGESTIONS = 14


def main() -> None:
    """Measure, report, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path, help="folder of photos")
    parser.add_argument("--count", type=int, default=200, help="how many of them")
    parser.add_argument("--picture", type=Path, help="draw the fingerprint here")
    arguments = parser.parse_args()
    photos = sorted(file for file in arguments.photos.iterdir() if file.is_file())
    photos = photos[:: max(1, len(photos) // arguments.count)][: arguments.count]
    encoder = load_encoder("builtin")
    with TemporaryDirectory() as folder, Catalogue.create(Path(folder) / "cat") as catalogue:
        for phrase in INTERESTS:
            catalogue.add_interest(phrase)
        index_corpus(catalogue, [str(photo) for photo in photos], encoder=encoder)
        with Memory.of(catalogue) as memory:
            memory.record(_questions(time.time()))
        started = time.perf_counter()
        graph = interest_graph(catalogue, encoder=encoder)
        seconds = time.perf_counter() - started
        _report.save(
            "suggesting",
            {"photos": len(photos), "suggestions": [s.phrase for s in graph.suggest(SUGGESTIONS)]},
            _written(graph, len(photos), seconds),
        )
        if arguments.picture:
            draw_picture(take_fingerprint(catalogue, graph)).save(arguments.picture)


def _questions(now: float) -> list[Observation]:
    """A session a day, the last an hour ago."""
    days = [*ASKED, *ASKED]
    return [
        Observation(now - 3_600 - 86_400 * (len(days) - day), "stored", 1.0, (Mention(phrase, True),))
        for day, phrases in enumerate(days)
        for phrase in phrases
    ]


def _written(graph: InterestGraph, photos: int, seconds: float) -> str:
    lines = [
        f"Interests: {', '.join(INTERESTS)}. {photos} photos, {len(graph)} phrases, {graph.ties()} ties; "
        f"graph brought up to date in {seconds:.1f} s, with the vocabulary embedded before.",
        "",
        "| | you might also like | expected use | because of |",
        "|---|---|---|---|",
    ]
    for number, each in enumerate(graph.suggest(SUGGESTIONS), 1):
        because = [f"asked about ({each.asked:.1f})"] if each.asked >= 0.05 else []
        because += [f"{step.start} ({step.kind} {step.strength:.2f})" for step in each.reasons[:3]]
        lines.append(f"| {number} | {each.phrase} | {each.expected:.2f} | {', '.join(because)} |")
    lines += ["", "Hubs: " + ", ".join(hub.phrase for hub in graph.hubs(5)) + ".", "", "Communities:"]
    lines += [f"- {', '.join(members)}" for members in graph.communities()]
    steps = graph.path("mountain bike", "tokamak")
    walk = " -> ".join(f"{step.end} ({step.kind} {step.strength:.2f})" for step in steps)
    lines += ["", f"From mountain bike to tokamak: {walk}."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
