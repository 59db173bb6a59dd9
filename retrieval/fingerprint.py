"""What a catalogue says about its user: interests, how they changed, and how they hang together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..catalogue.catalogue import Catalogue
from ..catalogue.graph import Hub, InterestGraph, Standing, Step, Suggestion
from ..catalogue.memory import Memory
from ..catalogue.weights import Use
from ..indexer.statistics import coverage

MOMENTS = 25
"""At so many moments, evenly spaced from the first question on, weights are told."""

MOST_DRAWN = 60
"""More phrases than these cannot be read on one picture."""

SUGGESTED = 8
"""So many suggestions are told, and drawn where there is room."""

_LISTED = 10


@dataclass(frozen=True, slots=True)
class InterestFigures:
    """One interest.

    Attributes:
        phrase: what it is called.
        weight: the user's own.
        effective: that, moved by use and feedback (`weights`).
        use: questions about it, decayed.
        last: when it was last asked about, in seconds since 1970; None if it never was.
        maps: how many images have its map.
        bytes: that these take.
        coverage: part of the images that show it, in [0, 1]; None where it is not known yet.
        history: its effective weight at each of `Fingerprint.times`.
    """

    phrase: str
    weight: float
    effective: float
    use: float
    last: float | None
    maps: int
    bytes: int
    coverage: float | None
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a catalogue says about its user.

    Attributes:
        made: when, in seconds since 1970.
        images: how many are held.
        questions: how many are in the log.
        bytes: of the shards on disk.
        phrases, ties: how many the graph has.
        times: moments of the interests' histories, in seconds since 1970; empty if nothing was asked.
        interests: those of the greatest effective weight first, and of these, those with most use.
        hubs: interests and seen phrases that hold most others together.
        communities: of more than one interest or seen phrase: the largest first, each with its hubs first.
        suggestions: phrases that are likely to be asked about, and are no interests.
        frontier: ties that lead from interests to phrases that nobody asked about.
        drawn: phrases of the picture, at most `MOST_DRAWN`, with their standing: the first interests, and
            the suggestions.
        edges: the strongest tie of each two of them.
    """

    made: float
    images: int
    questions: int
    bytes: int
    phrases: int
    ties: int
    times: tuple[float, ...]
    interests: tuple[InterestFigures, ...]
    hubs: tuple[Hub, ...]
    communities: tuple[tuple[str, ...], ...]
    suggestions: tuple[Suggestion, ...]
    frontier: tuple[Step, ...]
    drawn: Mapping[str, Standing]
    edges: tuple[Step, ...]


def take_fingerprint(catalogue: Catalogue, graph: InterestGraph) -> Fingerprint:
    """The fingerprint of `catalogue`.

    Args:
        catalogue: open to read, or to write.
        graph: of its interests, as `texcat.indexer.interest_graph` gives it.

    Raises:
        RegistryError: the database failed.
    """
    now, half_life = time.time(), catalogue.settings.half_life
    with Memory.of(catalogue, read_only=True) as memory:
        asked = [observation.time for observation in memory.observations()]
        uses = memory.uses(now, half_life)
        times = tuple(np.linspace(min(*asked, now), now, MOMENTS).tolist()) if asked else ()
        history = memory.history(times, half_life)
    held, covered = catalogue.store.stats(), coverage(catalogue)
    interests = []
    for interest in catalogue.interests():
        use = uses.get(interest.phrase, Use())
        interests.append(
            InterestFigures(
                interest.phrase,
                interest.weight,
                interest.weight * use.factor,
                use.amount,
                use.last,
                held.maps.get(interest.id, 0),
                held.map_bytes.get(interest.id, 0),
                covered.get(interest.id),
                tuple(interest.weight * u.factor for u in history.get(interest.phrase, [Use()] * len(times))),
            )
        )
    interests.sort(key=lambda each: (-each.effective, -each.use, each.phrase))
    suggestions = graph.suggest(SUGGESTED)
    phrases = [each.phrase for each in interests[: MOST_DRAWN - len(suggestions)]]
    phrases += [each.phrase for each in suggestions]
    drawn = {phrase: graph.standing(phrase) for phrase in phrases}
    return Fingerprint(
        now,
        held.images,
        len(asked),
        held.file_bytes,
        len(graph),
        graph.ties(),
        times,
        tuple(interests),
        tuple(hub for hub in graph.hubs(_LISTED) if hub.centrality > 0),
        tuple(members for members in graph.communities() if len(members) > 1),
        tuple(suggestions),
        tuple(graph.frontier(_LISTED)),
        drawn,
        tuple(graph.among(drawn)),
    )
