"""A simulated year: a person with drifting interests asks 5,000 questions about their photos.

How many are answered from stored maps, when the disk has room for those of 50 interests? The person is
`_person.Person`; a second one has interests that drift by pure chance, where nothing can be foreseen.
All ways to use the room begin with what the person is most likely to ask about on the first day:

- nothing is learned: these stay;
- LRU and LFU: a phrase that was asked about and is not answered by what is stored gets its maps, in place of
  the one that was used longest ago, or least often (counted from the beginning, also while it is not stored);
- texcat learns: likewise, in place of the one whose decayed use (`weights`) is least;
- with suggestions: some of the room is for what `InterestGraph.suggest` names, every minute and a half while
  questions come; its own weight of each interest, which counts as use there, is 1 or next to nothing;
- an oracle gives up what is needed last (Belady, 1966), and makes nothing that it need not; another one also
  makes maps ahead, each night, for the first ten questions that would miss.

Questions are put in words, and go through `extract_phrases`, the encoder's text embeddings, the confidence of
`Matcher` and `own_share`: a question is answered from the store if `Retriever` would say so (tier `stored`).
Which maps are stored decides that, and not what is in them, so that no photo is encoded. Use goes through
`Memory` (SQLite) and `InterestGraph`. Ties of sight are left out: they connect interests that have maps, and
bring no phrase that has none.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np

try:
    from matplotlib import pyplot
except ModuleNotFoundError as error:
    raise SystemExit(f'{error.name} is missing; install it: pip install "texcat[bench]"') from error

import _report
from _person import DAYS, QUESTIONS, START, Kinds, Person, Question
from numpy.typing import NDArray
from texcat.catalogue import Catalogue
from texcat.catalogue.graph import InterestGraph
from texcat.catalogue.memory import Memory, Mention, Node, Observation
from texcat.catalogue.relations import Relations
from texcat.catalogue.settings import Settings
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.indexer.matching import match_range
from texcat.retrieval.blending import own_share
from texcat.retrieval.extraction import extract_phrases
from texcat.retrieval.matcher import TEMPERATURE

BUDGET = 50
AHEAD = 8
"""Of the room, so much is for suggestions."""

TOP = 3
NIGHTLY = 10
DAY = 86_400.0
PRUNING = 7 * DAY
SUGGESTING = 1 * DAY
LOOK_SECONDS = 90.0
"""So long after it has asked for suggestions, the worker asks again, once there is another question."""

DRIFTING, AIMLESS = "interests that drift", "interests by pure chance"
LEARNED, SUGGESTED = "learned", "learned, with suggestions"
LIGHTLY = "the same, own weights of 0.01"
LIGHT = 0.01
PREPARED = "oracle, with maps made at night"
_BATCH = 64

Vectors = Mapping[str, NDArray[np.float32]]


def main() -> None:
    """Live the years, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="years of the person whose interests drift")
    parser.add_argument("--chance-seeds", type=int, default=1, help="years of the aimless one")
    given = parser.parse_args()
    encoder = load_encoder("builtin", "cpu")
    kinds = Kinds()
    vectors: dict[str, NDArray[np.float32]] = {}
    years: dict[str, list[dict[str, Outcome]]] = {}
    for person, seeds in ((DRIFTING, given.seeds), (AIMLESS, given.chance_seeds)):
        years[person] = []
        for seed in range(seeds):
            started = time.perf_counter()
            world = live(kinds, seed, person == AIMLESS, encoder, vectors)
            years[person].append(every_way(world, encoder))
            closed = closes(years[person][-1], SUGGESTED)
            print(f"{person} {seed}: closes {closed:.2f}, {time.perf_counter() - started:.0f} s", flush=True)
    report(years)


@dataclass(frozen=True)
class Outcome:
    """Of one way in one year: of each question whether it was answered from the store, the part of them
    each of whose phrases had maps of its own, and how many phrases got maps."""

    hits: NDArray[np.bool_]
    named: float
    made: int


def live(
    kinds: Kinds, seed: int, aimless: bool, encoder: DenseEncoder, vectors: dict[str, NDArray[np.float32]]
) -> World:
    """The year of a person; text embeddings that are new go to `vectors`."""
    person = Person(kinds, seed, aimless)
    first = person.likely(BUDGET)
    questions = person.year()
    extracted = [extract_phrases(question.text) for question in questions]
    phrases = list(dict.fromkeys([*kinds.names, *chain.from_iterable(extracted)]))
    texts = dict.fromkeys([*phrases, *(question.text for question in questions)])
    new = sorted((text for text in texts if text not in vectors), key=len)
    for batch in (new[start : start + _BATCH] for start in range(0, len(new), _BATCH)):
        vectors |= zip(batch, encoder.text(batch).float().cpu().numpy(), strict=True)
    place = {phrase: i for i, phrase in enumerate(phrases)}
    named = [[place[phrase] for phrase in found] for found in extracted]
    starts = [place[name] for name in first]
    return World(questions, named, phrases, len(kinds.names), starts, vectors, *match_range(encoder))


def every_way(world: World, encoder: DenseEncoder) -> dict[str, Outcome]:
    """What comes of each way to use the disk."""
    found = {}
    for name, way in {"nothing learned": Fixed, "LRU": Lru, "LFU": Lfu, **ORACLES}.items():
        found[name] = ask(world, way(world))
    for name in (LEARNED, SUGGESTED, LIGHTLY):
        with TemporaryDirectory() as folder, Catalogue.create(Path(folder) / "cat") as catalogue:
            catalogue.adopt_encoder(encoder.fingerprint, world.low, world.high)
            with Memory.of(catalogue) as memory:
                candidates = world.phrases[: world.candidates]
                memory.add_candidates(candidates)
                texts = {phrase: world.vectors[phrase] for phrase in candidates}
                Relations(memory.database, encoder.fingerprint).add_texts(texts)
                if name == LEARNED:
                    learner = Learner(world, memory)
                else:
                    weight = 1.0 if name == SUGGESTED else LIGHT
                    learner = Suggested(world, memory, catalogue.settings, weight)
                found[name] = ask(world, learner)
                learner.check()
    return found


def ask(world: World, way: Way) -> Outcome:
    """Ask the questions of a year."""
    hits = np.zeros(len(world.questions), bool)
    named = 0
    for question, phrases in enumerate(world.named):
        matched, weights, confidence = world.matches(question, way.stored)
        hits[question] = own_share(confidence) == 0
        named += bool(phrases) and all(phrase in way.stored for phrase in phrases)
        way.asked(question, matched, weights, confidence)
        assert len(way.stored) == BUDGET
    return Outcome(hits, named / len(hits), way.made)


def closes(year: Mapping[str, Outcome], name: str, oracle: str = "oracle") -> float:
    """Part of the gap between nothing learned and an oracle that a way closes."""
    least, most = year["nothing learned"].hits.mean(), year[oracle].hits.mean()
    return float((year[name].hits.mean() - least) / (most - least))


def report(years: Mapping[str, list[dict[str, Outcome]]]) -> None:
    """The table, the figures, and the curves of hit rates over the year."""
    lines = [
        f"{QUESTIONS:,} questions in {DAYS} days; room for the maps of {BUDGET} interests, {AHEAD} of "
        f"them for suggestions where there are some. Use is decayed by a half-life of {PRUNING / DAY:g} days "
        f"for pruning, of {SUGGESTING / DAY:g} for suggestions. Means over the years; least and most.",
    ]
    result: dict[str, object] = {}
    for person, lived in years.items():
        lines += [
            "",
            f"| {person}, {len(lived)} of them | tier stored | least to most | gap closed | to the oracle "
            "with nights | every phrase has its own maps | phrases given maps |",
            "|---|---|---|---|---|---|---|",
        ]
        for name in lived[0]:
            rates = [float(year[name].hits.mean()) for year in lived]
            gaps = [closes(year, name) for year in lived]
            ahead = [closes(year, name, PREPARED) for year in lived]
            own = np.mean([year[name].named for year in lived])
            made = np.mean([year[name].made for year in lived])
            lines.append(
                f"| {name} | {np.mean(rates):.3f} | {min(rates):.3f} to {max(rates):.3f} | "
                f"{np.mean(gaps):.2f} | {np.mean(ahead):.2f} | {own:.3f} | {made:,.0f} |"
            )
            result[f"{person}: {name}"] = {
                "hit_rates": rates,
                "gap_closed": gaps,
                "gap_closed_to_prepared_oracle": ahead,
                "own_maps": [year[name].named for year in lived],
                "made": [year[name].made for year in lived],
                "hits_each_1000": [year[name].hits.reshape(-1, 1_000).mean(1).tolist() for year in lived],
            }
    _report.save("year", result, "\n".join(lines))
    draw(years, _report.RESULTS / f"{date.today().isoformat()}-year.png")


def draw(years: Mapping[str, list[dict[str, Outcome]]], path: Path) -> None:
    """Hit rates over the year, each point the mean over 500 questions and all years."""
    lived = {person: found for person, found in years.items() if found}
    figure, axes = pyplot.subplots(
        1, len(lived), figsize=(11, 4.8), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, (person, found) in zip(axes[0], lived.items(), strict=True):
        for colour, name in enumerate(found[0]):
            hits = np.mean([year[name].hits for year in found], axis=0).reshape(-1, 500).mean(1)
            style = "--" if name in ORACLES else "-"
            width = 2.6 if name in (LEARNED, SUGGESTED, LIGHTLY) else 1.3
            questions = np.arange(1, len(hits) + 1) * 500
            axis.plot(questions, hits, style, color=f"C{colour}", linewidth=width, label=name)
        axis.set_title(person)
        axis.set_xlabel("questions asked")
        axis.set_ylim(0, 1.02)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("answered from stored maps")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)


@dataclass
class World:
    """A year of one person, ready to be asked of many ways to use the disk.

    Attributes:
        questions: in order.
        named: of each question, the places of its phrases in `phrases`.
        phrases: everything that may get maps: names of the classes, the candidates, and then what else is
            named in the questions.
        candidates: how many of them are names.
        first: places of what is stored on the first day.
        cosines: [texts, phrases], of each wording of a question with each phrase.
        text: of each question, its place in `cosines`.
    """

    questions: list[Question]
    named: list[list[int]]
    phrases: list[str]
    candidates: int
    first: list[int]
    vectors: Vectors
    low: float
    high: float
    cosines: NDArray[np.float32] = field(init=False)
    text: list[int] = field(init=False)
    answers: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        texts = {question.text: None for question in self.questions}
        places = {text: place for place, text in enumerate(texts)}
        self.text = [places[question.text] for question in self.questions]
        of_phrases = np.stack([self.vectors[phrase] for phrase in self.phrases])
        self.cosines = np.stack([self.vectors[text] for text in texts]) @ of_phrases.T
        confidence = (self.cosines - self.low) / (self.high - self.low)
        self.answers = np.vectorize(own_share, otypes=[float])(confidence) == 0

    def matches(self, question: int, stored: Collection[int]) -> tuple[list[int], list[float], float]:
        """The best of what is stored, their weights, and the confidence; as `Matcher`, if all weigh 1."""
        places = np.fromiter(stored, np.int64, len(stored))
        cosines = self.cosines[self.text[question], places]
        best = np.argsort(-cosines, kind="stable")[:TOP]
        weights = np.exp((cosines[best] - cosines[best[0]]) / TEMPERATURE)
        confidence = (float(cosines[best[0]]) - self.low) / (self.high - self.low)
        return places[best].tolist(), (weights / weights.sum()).tolist(), min(1.0, max(0.0, confidence))


class Way(Protocol):
    """A way to use the disk. `stored` are places in `World.phrases`; `made` counts what got maps."""

    stored: dict[int, None]
    made: int

    def asked(self, question: int, matched: list[int], weights: list[float], confidence: float) -> None:
        """A question was asked, and answered from what is stored if `own_share(confidence)` is 0."""


class Fixed:
    """Nothing is learned."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stored = dict.fromkeys(reversed(world.first))
        self.made = 0

    def asked(self, question: int, matched: list[int], weights: list[float], confidence: float) -> None:
        """Stays as it is."""

    def put(self, phrase: int, gone: int) -> None:
        """Store the maps of `phrase` in place of those of `gone`."""
        del self.stored[gone]
        self.stored[phrase] = None
        self.made += 1

    def used(self, question: int, matched: list[int], confidence: float) -> list[int]:
        """What answers the question, or, where nothing does, what should."""
        return matched[:1] if own_share(confidence) == 0 else self.world.named[question]


class Lru(Fixed):
    """What was used longest ago goes."""

    def asked(self, question: int, matched: list[int], weights: list[float], confidence: float) -> None:
        """The order of `stored` is that of use."""
        for phrase in self.used(question, matched, confidence):
            if phrase in self.stored:
                del self.stored[phrase]
                self.stored[phrase] = None
            else:
                self.put(phrase, next(iter(self.stored)))


class Lfu(Fixed):
    """What was used least often goes; of several, that which was used longest ago."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._uses: Counter[int] = Counter()
        self._last: dict[int, int] = {}

    def asked(self, question: int, matched: list[int], weights: list[float], confidence: float) -> None:
        """Counts are kept of what is not stored, too."""
        for phrase in self.used(question, matched, confidence):
            self._uses[phrase] += 1
            self._last[phrase] = question
            if phrase not in self.stored:
                self.put(phrase, min(self.stored, key=lambda p: (self._uses[p], self._last.get(p, -1))))


class Oracle(Fixed):
    """Knows the future: what is needed last goes, and nothing is stored that is needed later than that."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        count = len(world.questions)
        self._next = np.full((count + 1, len(world.phrases)), count, np.int32)
        for question in reversed(range(count)):
            answers = world.answers[world.text[question]]
            self._next[question] = np.where(answers, question, self._next[question + 1])

    def asked(self, question: int, matched: list[int], weights: list[float], confidence: float) -> None:
        """After a miss, of all that would have answered it the one needed next is stored."""
        if own_share(confidence) > 0:
            self.prepare(question, question + 1)

    def prepare(self, question: int, now: int) -> bool:
        """Store what answers `question`, unless all that is stored is needed before it is; at `now`."""
        able = np.flatnonzero(self.world.answers[self.world.text[question]])
        if not len(able):
            return True
        phrase = int(able[self._next[question + 1, able].argmin()])
        gone = max(self.stored, key=lambda p: self._next[now, p])
        needed = min(int(self._next[now, phrase]), len(self.world.questions))
        if self._next[now, gone] <= needed:
            return False
        self.put(phrase, gone)
        return True


class OracleAhead(Oracle):
    """Knows the future, and makes maps ahead, each night, for the first questions that would miss."""

    def asked(self, question: int, matched: list[int], weights: list[float], confidence: float) -> None:
        """As `Oracle`; and the last question of a day is followed by the night."""
        super().asked(question, matched, weights, confidence)
        questions = self.world.questions
        if question + 1 == len(questions) or _day(questions[question]) == _day(questions[question + 1]):
            return
        made = 0
        for later in range(question + 1, len(questions)):
            if made == NIGHTLY:
                return
            if not self.world.answers[self.world.text[later], list(self.stored)].any():
                if not self.prepare(later, question + 1):
                    return
                made += 1


class Learner(Fixed):
    """Phrases that are asked about become interests; the one whose decayed use is least goes."""

    def __init__(self, world: World, memory: Memory) -> None:
        super().__init__(world)
        self.memory = memory
        self._unwritten: list[Observation] = []
        # Of each phrase, what `Memory.uses` makes of the log, times 2 to the half-lives since the start.
        self._use: Counter[int] = Counter()

    def asked(self, question: int, matched: list[int], weights: list[float], confidence: float) -> None:
        """The question is observed, and what it asked for learned."""
        asked = self.world.questions[question]
        parts = dict(zip(matched, weights, strict=True))
        mentions = {p: Mention(self.world.phrases[p], False, weight) for p, weight in parts.items()}
        for phrase in self.world.named[question]:
            mentions[phrase] = Mention(self.world.phrases[phrase], True, parts.get(phrase, 0.0))
        tier = "stored" if own_share(confidence) == 0 else "coded"
        observation = Observation(asked.time, tier, confidence, tuple(mentions.values()))
        for phrase, amount in zip(mentions, observation.amounts().values(), strict=True):
            self._use[phrase] += amount * 2 ** ((asked.time - START) / PRUNING)
        self._unwritten.append(observation)
        self.learn(observation, self.used(question, matched, confidence))
        questions = self.world.questions
        if question + 1 == len(questions) or _day(asked) // 7 != _day(questions[question + 1]) // 7:
            self.memory.record(self._unwritten)
            self._unwritten.clear()
            self.week_ends()

    def learn(self, observation: Observation, used: list[int]) -> None:
        """What was asked about gets its maps."""
        for phrase in used:
            if phrase not in self.stored:
                self.put(phrase, self.least(self.stored))

    def least(self, phrases: Iterable[int]) -> int:
        """The one of `phrases` whose use is least."""
        return min(phrases, key=lambda phrase: self._use[phrase])

    def week_ends(self) -> None:
        """What was asked is recorded, once a week to be quick."""

    def check(self) -> None:
        """What was pruned by is what the memory says."""
        last = self.world.questions[-1].time
        recorded = self.memory.uses(last, PRUNING)
        for phrase, level in self._use.items():
            found = recorded[self.world.phrases[phrase]].amount
            assert math.isclose(found, level * 2 ** ((START - last) / PRUNING), rel_tol=1e-6, abs_tol=1e-9)


class Suggested(Learner):
    """Some of the room is for what the graph suggests."""

    def __init__(self, world: World, memory: Memory, settings: Settings, weight: float) -> None:
        super().__init__(world, memory)
        self._settings = settings
        self._weight = weight
        self._places = {phrase: place for place, phrase in enumerate(world.phrases)}
        self._graph = InterestGraph.load(memory, settings, now=START, half_life=SUGGESTING)
        self._ahead: dict[int, float] = {}
        self._looked = START
        self._stand(self.stored, self._weight)

    def learn(self, observation: Observation, used: list[int]) -> None:
        """Also what is likely to be asked about next gets its maps."""
        self._graph.observe(observation)
        for phrase in used:
            self._ahead.pop(phrase, None)  # it is no guess any more
            if phrase not in self.stored:
                self.exchange(phrase, self.dispensable(learning=True))
        if observation.time < self._looked + LOOK_SECONDS:
            return
        self._looked = observation.time
        # What was made ahead is suggested again as long as it is likely.
        self._stand(self._ahead, None)
        suggested = {self._places[s.phrase]: s.expected for s in self._graph.suggest(AHEAD)}
        self._stand(self._ahead, self._weight)
        self._ahead = {phrase: suggested.get(phrase, 0.0) for phrase in self._ahead}
        for phrase, expected in suggested.items():
            if phrase not in self._ahead:
                self.exchange(phrase, self.dispensable(learning=False))
                self._ahead[phrase] = expected

    def dispensable(self, learning: bool) -> int:
        """Which maps go: of those made ahead if they fill their room, or, for one that is learned, if the
        others do not fill theirs; otherwise of those."""
        asked = [phrase for phrase in self.stored if phrase not in self._ahead]
        crowded = len(asked) < BUDGET - AHEAD if learning else len(self._ahead) >= AHEAD
        if self._ahead and crowded:
            return min(self._ahead, key=lambda phrase: self._ahead[phrase])
        return self.least(asked)

    def exchange(self, phrase: int, gone: int) -> None:
        """As `put`; the graph learns of it."""
        self.put(phrase, gone)
        self._ahead.pop(gone, None)
        self._stand([gone], None)
        self._stand([phrase], self._weight)

    def week_ends(self) -> None:
        """Phrases that were not known are tied by their meaning."""
        relations = Relations(self.memory.database, self._settings.fingerprint)
        new = set(relations.without_text())
        relations.add_texts({phrase: self.world.vectors[phrase] for phrase in sorted(new)})
        ties = (r for r in relations.all() if r.source in new or r.target in new)
        self._graph.put_relations(ties, self._settings.match_low, self._settings.match_high)

    def _stand(self, phrases: Iterable[int], weight: float | None) -> None:
        names = self.world.phrases
        self._graph.put_nodes(Node(names[p], weight, p < self.world.candidates) for p in phrases)


def _day(question: Question) -> int:
    return int((question.time - START) // DAY)


ORACLES = {"oracle": Oracle, PREPARED: OracleAhead}

if __name__ == "__main__":
    main()
