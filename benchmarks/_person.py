"""A person who asks about photos for a year: what is on their mind, and how they put it.

The world of the person is WordNet's tree of kinds over the 1,000 classes of ImageNet
(`imagenet_kinds.txt`): it was made by lexicographers, and texcat reads nothing of it. Its relations come from
text embeddings, from maps, and from what was asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from texcat.catalogue.phrases import normalise_phrase
from timm.data.imagenet_info import ImageNetInfo

DAYS = 365
QUESTIONS = 5_000
START = 1_798_761_600.0
"""The first of January 2027, in seconds since 1970."""

TOPICS = 12
"""So many things are on the person's mind at a time; the k-th of them is asked about in proportion to 1/k."""

COMPANIONS = 4
"""Each thing has so many others that this person asks about with it: one of them of any kind."""

SESSION = 5.0
"""Questions in a session, on average; their number falls off geometrically."""

DRIFT = 0.35
"""Chance, each day, that one thing gives way to another."""

SEASONAL = 0.25
"""Part of the sessions that are about something of the season."""

_SEASON_TOPICS = 6
_SEASONS = (60, 152, 244, 335)  # first days of spring, summer, autumn, and of the winter that comes back
_DESCRIBED = 0.12
_ADJECTIVES = ("small", "big", "red", "white", "black", "old")
_HABITS = 6  # so many ways of putting a question are this person's own
_TEMPLATES = (
    "Where is the {}?", "Is there a {} in this photo?", "Show me the {}.", "Can you see the {}?",
    "What is next to the {}?", "How many {}s are there?", "What colour is the {}?", "Find the {}, please.",
    "Who took this picture of a {}?", "Is the {} in the foreground?", "What is behind the {}?",
    "Which part shows the {}?", "I'm looking for the {}.", "What does the {} look like?",
    "Does this show a {} or something else?", "How big is the {}?", "Where did I see that {}?",
    "Zoom in on the {}.", "What is the {} doing?", "Is the {} sharp?",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the year; `time` in seconds since 1970, `subject` the class that it is about."""

    time: float
    text: str
    subject: str


class Kinds:
    """The 1,000 classes, by name, in the tree of kinds that WordNet has for them."""

    def __init__(self) -> None:
        lines = (Path(__file__).parent / "imagenet_kinds.txt").read_text().splitlines()
        parents = dict(line.split() for line in lines if not line.startswith("#"))
        info = ImageNetInfo("imagenet-1k")
        self._above: dict[str, list[str]] = {}
        self._below: dict[str, list[str]] = {}
        for synset, described in zip(info.label_names(), info.label_descriptions(), strict=True):
            name = normalise_phrase(described.partition(", ")[0])
            above = []
            kind = synset
            while kind in parents:
                kind = parents[kind]
                above.append(kind)
            # Two classes of one name ("crane") are one thing to ask about, at its first place in the tree.
            if name not in self._above:
                self._above[name] = above
                for kind in above:
                    self._below.setdefault(kind, []).append(name)
        self.names = tuple(self._above)

    def near(self, name: str, chance: random.Random) -> str:
        """Another class, close by: up the tree to the first kind that has others, and with a chance of a
        half each to the next larger one; then down to any class of that kind."""
        larger = [k for k in self._above[name] if len(self._below[k]) > 1]
        kinds = [
            k
            for k, below in zip(larger, [None, *larger], strict=False)
            if below is None or len(self._below[k]) > len(self._below[below])
        ]
        place = 0
        while place < len(kinds) - 1 and chance.random() < 0.5:
            place += 1
        return chance.choice([other for other in self._below[kinds[place]] if other != name])


class Person:
    """A person with drifting interests.

    Args:
        kinds: the world.
        seed: of everything that is left to chance.
        aimless: nothing leads from one thing to the next: whatever would be close by is of any kind.
    """

    def __init__(self, kinds: Kinds, seed: int, aimless: bool = False) -> None:
        self._kinds = kinds
        self._chance = random.Random(seed)
        self._seed = seed
        self._aimless = aimless
        self._companions: dict[str, list[str]] = {}
        self._past: list[str] = []
        self._templates = self._chance.sample(_TEMPLATES, _HABITS)
        self._topics = [self._anything()]
        while len(self._topics) < TOPICS:
            self._topics.append(self._fresh())
        self._seasons = []
        for _ in range(4):
            season = [self._anything()]
            while len(season) < _SEASON_TOPICS:
                season.append(self._near(season[0]))
            self._seasons.append(season)

    def likely(self, count: int) -> list[str]:
        """What this person is most likely to ask about on the first day, the likeliest first."""
        likely: dict[str, float] = {}
        season = self._seasons[0]
        for topics, part in ((self._topics, 1 - SEASONAL), (season, SEASONAL)):
            weights = [1 / (k + 1) for k in range(len(topics))]
            for topic, weight in zip(topics, weights, strict=True):
                share = part * weight / sum(weights)
                for name, of_it in ((topic, 0.45), *((c, 0.3 / COMPANIONS) for c in self._with(topic))):
                    likely[name] = likely.get(name, 0.0) + share * of_it
        for k, topic in enumerate(self._topics):
            likely[topic] += 0.15 / (k + 1) / sum(1 / (j + 1) for j in range(TOPICS))
        return sorted(likely, key=lambda name: -likely[name])[:count]

    def year(self) -> list[Question]:
        """The questions of a year, in order."""
        lengths = []
        while sum(lengths) < QUESTIONS:
            length = 1
            while self._chance.random() > 1 / SESSION:
                length += 1
            lengths.append(min(length, QUESTIONS - sum(lengths)))
        starts = sorted(
            START + 86_400 * self._chance.randrange(DAYS) + self._chance.uniform(8, 22) * 3_600
            for _ in lengths
        )
        asked: list[Question] = []
        day = 0
        for start, length in zip(starts, lengths, strict=True):
            while day < (start - START) // 86_400:
                day += 1
                if self._chance.random() < DRIFT:
                    self._drift()
            asked += self._session(start, length, day)
        return sorted(asked, key=lambda question: question.time)

    def _session(self, start: float, length: int, day: int) -> Iterator[Question]:
        season = self._seasons[sum(day >= first for first in _SEASONS) % 4]
        focus = self._by_rank(season if self._chance.random() < SEASONAL else self._topics)
        time = start
        for _ in range(length):
            about = self._chance.random()
            if about < 0.45:
                subject = focus
            elif about < 0.75:
                subject = self._chance.choice(self._with(focus))
            elif about < 0.90:
                subject = self._by_rank(self._topics)
            else:
                subject = self._near(focus)
            yield Question(time, self._words(subject), subject)
            time += self._chance.uniform(15, 90)

    def _drift(self) -> None:
        """One thing gives way to another, which takes any rank."""
        self._past.append(self._topics.pop(self._chance.randrange(TOPICS)))
        kind = self._chance.random()
        if kind < 0.6:
            new = self._fresh()
        else:
            new = self._chance.choice(self._past) if kind < 0.8 else self._anything()
        if new not in self._topics:
            self._topics.insert(self._chance.randrange(TOPICS), new)
        while len(self._topics) < TOPICS:
            self._topics.append(self._fresh())

    def _fresh(self) -> str:
        """Something close to what is on the person's mind, and not there yet."""
        while (found := self._near(self._by_rank(self._topics))) in self._topics:
            pass
        return found

    def _with(self, topic: str) -> list[str]:
        if topic not in self._companions:
            chance = random.Random(f"{self._seed} {topic}")  # whenever it comes up, it has the same ones
            near = [self._near(topic, chance) for _ in range(COMPANIONS - 1)]
            self._companions[topic] = [*near, chance.choice(self._kinds.names)]
        return self._companions[topic]

    def _near(self, name: str, chance: random.Random | None = None) -> str:
        chance = chance or self._chance
        return chance.choice(self._kinds.names) if self._aimless else self._kinds.near(name, chance)

    def _anything(self) -> str:
        return self._chance.choice(self._kinds.names)

    def _by_rank(self, topics: Sequence[str]) -> str:
        return self._chance.choices(topics, [1 / (k + 1) for k in range(len(topics))])[0]

    def _words(self, subject: str) -> str:
        if self._chance.random() < _DESCRIBED:
            subject = f"{self._chance.choice(_ADJECTIVES)} {subject}"
        return self._chance.choice(self._templates).format(subject)
