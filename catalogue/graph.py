"""The graph of what the user looks for: what belongs together, and where to go next.

Nodes are phrases: interests, phrases that were asked about but are no interests, and candidates of a
vocabulary. Two phrases are tied in up to three ways, each with a strength in (0, 1]:

- *meaning*: their text embeddings are near: the confidence with which one would answer for the other. A
  phrase is tied to the ten nearest, and an interest or a phrase that was asked about to the ten nearest of
  those, too;
- *sight*: they show in the same images: the correlation of the interests' scores over the corpus;
- *use*: they are asked about together. In each session of questions two phrases count once, when both have
  come up, with the product of what the questions counted for them (`Observation.amounts`). With the decayed
  sum c of that (`weights`) the strength is ``c / (c + 2)``. A question belongs to the session of the one
  recorded before it if less than half an hour lies between them.

A walk takes the strongest tie between two phrases; where ties are added up, all count. The graph is kept in
memory, and follows each question in microseconds; only the moment at which use is weighed moves in steps.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, Self, TypeVar

import networkx as nx

from .errors import UnrelatedError, UsageError
from .memory import Memory, Node, Observation
from .relations import Relation, Relations
from .settings import Settings
from .weights import HALF_LIFE, check_half_life

SESSION_GAP = 1_800.0
"""Seconds without a question that end a session."""

SESSION_PHRASES = 50
"""A session that goes on for ever holds so many phrases; the one that came up first makes room."""

SAME = 0.95
"""Phrases whose tie of meaning is as strong as this are one thing in other words: no use suggesting it."""

REASONS = 5
"""So many reasons are given for a suggestion."""

_HALF_TIED = 2.0
_STEP = 0.01  # of a half-life: use is weighed anew when as much has passed
_FADED = 0.01  # a c below this is no tie,
_GONE = 1e-4  # and one below this is not counted on
_SOURCES = 128  # the most used phrases, from which suggestions come: they hold nearly all of the use
_MOVES_ON = 0.5
_CHANGED = 0.05

K = TypeVar("K")


class Kind(StrEnum):
    """In which way two phrases are tied."""

    MEANING = "meaning"
    USE = "use"
    SIGHT = "sight"


class Standing(StrEnum):
    """What a phrase is to the catalogue."""

    INTEREST = "interest"
    """It has maps, or will have them after the next pass."""

    SEEN = "seen"
    """It was asked about, or was an interest."""

    CANDIDATE = "candidate"
    """It belongs to the vocabulary, and nobody asked about it yet."""


@dataclass(frozen=True, slots=True)
class Step:
    """A tie between two phrases, as it is walked from `start` to `end`; `strength` in (0, 1]."""

    start: str
    end: str
    kind: Kind
    strength: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A phrase that is tied to another; `strength` is the sum of `ties`, in (0, 3]."""

    phrase: str
    standing: Standing
    strength: float
    ties: Mapping[Kind, float]


@dataclass(frozen=True, slots=True)
class Hub:
    """A phrase that holds others together.

    Attributes:
        phrase: the phrase.
        standing: what it is.
        centrality: part of the time that a walk along ties between interests and seen phrases, each taken in
            proportion to its strength, spends here, in [0, 1].
    """

    phrase: str
    standing: Standing
    centrality: float


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A phrase that is likely to be asked about, and is no interest yet.

    Attributes:
        phrase: the phrase.
        standing: what it is.
        expected: questions about it, as recent ones would have it; for comparison, not as a forecast.
        asked: how much of that is from questions which named it.
        reasons: ties that bring the rest, those that bring most first; at most `REASONS`.
    """

    phrase: str
    standing: Standing
    expected: float
    asked: float
    reasons: tuple[Step, ...]


class InterestGraph:
    """A graph of phrases, in memory. Not to be shared by threads.

    Args:
        now: in seconds since 1970.
        half_life: of use, in seconds.

    Attributes:
        now: the moment at which use is weighed. It only moves forward, and in steps of 1% of the half-life;
            what was asked later counts as asked now.

    Raises:
        UsageError: `half_life` is not finite and above 0.
    """

    now: float

    def __init__(self, now: float, half_life: float = HALF_LIFE) -> None:
        self.now = now
        self._half_life = check_half_life(half_life)
        self._graph: nx.Graph[str] = nx.Graph()
        self._interests: dict[str, float] = {}  # the user's own weights
        self._sums: dict[str, float] = {}  # of the strengths of each phrase's ties
        self._explored: dict[str, float] = {}  # likewise, of ties to others that are in here
        self._used: dict[str, float] = {}  # log2 of the decayed sum, as if decay had begun in 1970
        self._together: dict[tuple[str, str], float] = {}  # likewise
        self._session: dict[str, float] = {}
        self._last = -math.inf
        self._read = 0
        self._tied = 0
        self._found: list[tuple[str, ...]] | None = None
        self._changes = 0

    @classmethod
    def load(
        cls,
        memory: Memory,
        settings: Settings,
        *,
        now: float,
        half_life: float = HALF_LIFE,
    ) -> Self:
        """The graph of everything that is kept.

        Args:
            memory: of the catalogue.
            settings: of the catalogue: whose encoder's relations to take, and the scale of its cosines.
            now: in seconds since 1970. What was recorded as later, by a wrong clock, counts as now.
            half_life: of use, in seconds.

        Raises:
            UsageError: `half_life` is not finite and above 0.
            RegistryError: the database failed.
        """
        graph = cls(now, half_life)
        graph.put_nodes(memory.nodes())
        for observation in memory.observations():
            graph._take(observation, now)
        kept = Relations(memory.database, settings.fingerprint)
        for relations in (kept.all(), kept.among(graph._explored)):
            graph.put_relations(relations, settings.match_low, settings.match_high)
        for pair in graph._together:
            graph._weigh(pair)
        return graph

    def follow(self, memory: Memory, now: float) -> None:
        """Take up what `memory` has recorded since, and interests that have come or gone.

        What was forgotten, and new relations, take another `load`.
        """
        self.put_nodes(memory.nodes())
        for observation in memory.observations(after=self._read):
            self.observe(observation, latest=now)
        if now > self.now + _STEP * self._half_life:
            self.move(now)

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        """Add phrases, and let those that are there have a new standing."""
        for node in nodes:
            self._graph.add_node(node.phrase)
            self._sums.setdefault(node.phrase, 0.0)
            if node.weight is None:
                self._interests.pop(node.phrase, None)
            else:
                self._interests[node.phrase] = node.weight
            explored = node.weight is not None or node.phrase in self._used or not node.candidate
            if explored != (node.phrase in self._explored):
                self._explore(node.phrase, explored)

    def put_relations(self, relations: Iterable[Relation], low: float, high: float) -> None:
        """Tie phrases by meaning and sight. Relations of phrases that are no nodes are passed over.

        Args:
            relations: cosines and correlations.
            low, high: cosines that stand for confidence 0 and 1; a tie of meaning has the confidence as its
                strength.
        """
        for relation in relations:
            if relation.source in self._graph and relation.target in self._graph:
                kind, strength = Kind(relation.kind), relation.value
                if kind is Kind.MEANING:
                    strength = (strength - low) / (high - low)
                self._tie(relation.source, relation.target, kind, strength)

    def observe(self, observation: Observation, latest: float = math.inf) -> None:
        """Let a question count. Its phrases become nodes if they are none yet.

        Args:
            observation: the next one of the log.
            latest: a time after this counts as this.
        """
        time = min(observation.time, latest)
        if time > self.now + _STEP * self._half_life:
            self.move(time)
        for pair in self._take(observation, time):
            self._weigh(pair)

    def move(self, now: float) -> None:
        """Weigh use as it is at `now`, in seconds since 1970, unless that is earlier than `self.now`."""
        if now > self.now:
            self.now = now
            for pair in list(self._together):
                self._weigh(pair)
                if self._amount(self._together[pair]) < _GONE:
                    del self._together[pair]

    def __len__(self) -> int:
        return len(self._graph)

    def ties(self) -> int:
        """How many ties there are."""
        return self._tied

    def use(self, phrase: str) -> float:
        """Questions about `phrase`, decayed; >= 0.

        Raises:
            UsageError: it is no node.
        """
        self._require(phrase)
        return self._use(phrase)

    def standing(self, phrase: str) -> Standing:
        """What `phrase` is to the catalogue.

        Raises:
            UsageError: it is no node.
        """
        self._require(phrase)
        if phrase in self._interests:
            return Standing.INTEREST
        return Standing.SEEN if phrase in self._explored else Standing.CANDIDATE

    def neighbours(self, phrase: str, n: int = 10) -> list[Neighbour]:
        """The `n` phrases that are tied most strongly to `phrase`, the strongest first.

        Raises:
            UsageError: `phrase` is no node.
        """
        self._require(phrase)
        nearest = heapq.nsmallest(
            n, self._ties_of(phrase).items(), key=lambda item: (-item[1]["strength"], item[0])
        )
        return [
            Neighbour(other, self.standing(other), edge["strength"], MappingProxyType(dict(edge["ties"])))
            for other, edge in nearest
        ]

    def hubs(self, n: int = 10) -> list[Hub]:
        """The `n` interests and seen phrases that hold most together, the greatest centrality first.

        Between interests and seen phrases, it is the sum of the strengths of a phrase's ties, divided by that
        over all phrases: on a graph without directions the stationary distribution of the random walk, which
        is PageRank without jumps (Barrat et al., 2004, call the sum the strength of a node). So it is up to
        date after each question.
        """
        total = math.fsum(self._explored.values())
        best = heapq.nsmallest(n, self._explored.items(), key=lambda item: (-item[1], item[0]))
        return [Hub(p, self.standing(p), strength / total if total > 0 else 0.0) for p, strength in best]

    def path(self, start: str, end: str) -> list[Step]:
        """The walk from `start` to `end` whose strengths have the greatest product; empty if they are one.

        A walk is as long as the sum of the -log of its steps' strengths (Dijkstra, from both ends at once).

        Raises:
            UsageError: one of them is no node.
            UnrelatedError: there is no way from one to the other.
        """
        self._require(start)
        self._require(end)
        try:
            _, phrases = nx.bidirectional_dijkstra(self._graph, start, end, weight="length")
        except nx.NetworkXNoPath:
            component = nx.node_connected_component
            around = len(component(self._graph, start)), len(component(self._graph, end))
            raise UnrelatedError(start, end, around) from None
        return [self._step(a, b) for a, b in pairwise(phrases)]

    def among(self, phrases: Iterable[str]) -> list[Step]:
        """The strongest tie of each two of `phrases` that are tied, once, in alphabetical order.

        Raises:
            UsageError: one of them is no node.
        """
        members = sorted(set(phrases))
        for phrase in members:
            self._require(phrase)
        return [
            self._step(phrase, other)
            for phrase in members
            for other in members
            if phrase < other and other in self._ties_of(phrase)
        ]

    def communities(self) -> list[tuple[str, ...]]:
        """Interests and seen phrases that belong together: the largest first, each with its hubs first.

        By modularity, over the strengths (Louvain: Blondel et al., 2008). Made when it is asked for, and
        again when more than 5% of the ties and phrases have changed; one that is alone is its own community.
        """
        if self._found is None or self._changes > _CHANGED * (len(self._explored) + self._tied):
            self._found = self._communities()
            self._changes = 0
        return list(self._found)

    def suggest(self, n: int = 10) -> list[Suggestion]:
        """The `n` phrases that are no interests and whose expected use is greatest, that first.

        What was asked about counts in full, and half of the use of a phrase moves on along its ties, in
        proportion to their strengths:
        ``expected(x) = use(x) + 1/2 sum over tied y of u(y) strength(x, y) / strengths(y)``, where
        ``strengths(y)`` is the sum over all ties of y, and ``u(y)`` its use, plus the user's own weight if it
        is an interest, so that a catalogue that was never asked has suggestions too. The sum runs over the
        128 phrases with the greatest u. A phrase that is the `SAME` as an interest, or as one that is
        suggested before it, is left out.
        """
        sources = self._sources()
        expected = self._expected(sources)
        ranked = [(-value, phrase) for phrase, value in expected.items() if phrase not in self._interests]
        heapq.heapify(ranked)
        chosen: list[Suggestion] = []
        while ranked and len(chosen) < n:
            value, phrase = heapq.heappop(ranked)
            if not self._is_said(phrase, {suggestion.phrase for suggestion in chosen}):
                reasons = tuple(islice(self._reasons(phrase, sources), REASONS))
                chosen.append(Suggestion(phrase, self.standing(phrase), -value, self._use(phrase), reasons))
        return chosen

    def expected(self) -> dict[str, float]:
        """Expected use of phrases, interests among them, as in `suggest`; where it is 0, one is left out."""
        return self._expected(self._sources())

    def frontier(self, n: int = 10) -> list[Step]:
        """The `n` best ties that lead from an interest to a phrase that nobody asked about: unexplored ones.

        In the order of what they add to the expected use of that phrase (`suggest`).
        """
        leading = (
            (-moving * edge["strength"], source, phrase)
            for source, moving in self._sources().items()
            if source in self._interests
            for phrase, edge in self._ties_of(source).items()
            if phrase not in self._explored
        )
        return [self._step(source, phrase) for _, source, phrase in heapq.nsmallest(n, leading)]

    def _take(self, observation: Observation, latest: float) -> list[tuple[str, str]]:
        """Count a question, and return the pairs whose tie of use has to be weighed anew."""
        time = min(observation.time, latest)
        self._read = max(self._read, observation.id)
        if abs(time - self._last) >= SESSION_GAP:
            self._session = {}
        self._last = time
        halvings = time / self._half_life
        changed = []
        for phrase, amount in observation.amounts().items():
            if amount <= 0:
                continue
            if phrase not in self._graph:
                self._graph.add_node(phrase)
                self._sums[phrase] = 0.0
            if phrase not in self._explored:
                self._explore(phrase, True)
            _count(self._used, phrase, math.log2(amount) + halvings)
            if phrase not in self._session:
                for other, others in self._session.items():
                    pair = (phrase, other) if phrase < other else (other, phrase)
                    _count(self._together, pair, math.log2(amount) + math.log2(others) + halvings)
                    changed.append(pair)
                self._session[phrase] = amount
                if len(self._session) > SESSION_PHRASES:
                    del self._session[next(iter(self._session))]
        return changed

    def _explore(self, phrase: str, explored: bool) -> None:
        """Let `phrase` be an interest or seen, or a candidate that nobody asked about any more."""
        self._changes += 1
        self._explored.pop(phrase, None)
        held = {
            other: edge["strength"]
            for other, edge in self._ties_of(phrase).items()
            if other in self._explored
        }
        for other, strength in held.items():
            self._explored[other] += strength if explored else -strength
        if explored:
            self._explored[phrase] = math.fsum(held.values())

    def _sources(self) -> dict[str, float]:
        """What each of the most used phrases sends along its ties, for each unit of their strength."""
        used = []
        for phrase in self._explored:
            amount = self._use(phrase) + self._interests.get(phrase, 0.0)
            if amount > 0 and self._sums[phrase] > 0:
                used.append((-amount, phrase))
        return {
            phrase: _MOVES_ON * -amount / self._sums[phrase]
            for amount, phrase in heapq.nsmallest(_SOURCES, used)
        }

    def _expected(self, sources: Mapping[str, float]) -> dict[str, float]:
        """Expected use of each phrase that was asked about, or that one of `sources` is tied to."""
        expected = {phrase: self._amount(level) for phrase, level in self._used.items()}
        for source, moving in sources.items():
            for phrase, edge in self._ties_of(source).items():
                expected[phrase] = expected.get(phrase, 0.0) + moving * edge["strength"]
        return expected

    def _is_said(self, phrase: str, before: set[str]) -> bool:
        """Whether an interest, or one of the phrases `before`, is the same in other words."""
        return any(
            edge["ties"].get(Kind.MEANING, 0.0) >= SAME and (other in before or other in self._interests)
            for other, edge in self._ties_of(phrase).items()
        )

    def _reasons(self, phrase: str, sources: Mapping[str, float]) -> Iterator[Step]:
        brought = [
            (-sources[other] * strength, other, kind, strength)
            for other, edge in self._ties_of(phrase).items()
            if other in sources
            for kind, strength in edge["ties"].items()
        ]
        for _, other, kind, strength in sorted(brought):
            yield Step(other, phrase, kind, strength)

    def _step(self, start: str, end: str) -> Step:
        ties: dict[Kind, float] = self._ties_of(start)[end]["ties"]
        kind = max(ties, key=lambda kind: (ties[kind], kind))
        return Step(start, end, kind, ties[kind])

    def _communities(self) -> list[tuple[str, ...]]:
        phrases = sorted(self._explored)
        place = {phrase: i for i, phrase in enumerate(phrases)}
        # Of numbers, in order: the result does not depend on the order of insertion, or on Python's hashes.
        plain: nx.Graph[int] = nx.Graph()
        plain.add_nodes_from(range(len(phrases)))
        plain.add_weighted_edges_from(
            (i, place[other], self._ties_of(phrase)[other]["strength"])
            for i, phrase in enumerate(phrases)
            for other in sorted(self._ties_of(phrase))
            if phrase < other and other in place
        )
        if plain.size() == 0:
            return [(phrase,) for phrase in phrases]
        found = nx.community.louvain_communities(plain, seed=0)
        named = [
            tuple(sorted((phrases[i] for i in members), key=lambda p: (-self._explored[p], p)))
            for members in found
        ]
        return sorted(named, key=lambda members: (-len(members), members))

    def _ties_of(self, phrase: str) -> dict[str, dict[str, Any]]:
        """The edges of `phrase`, by the phrase at the other end."""
        # The dict itself: the view that `adj` gives is five times as slow.
        found: dict[str, dict[str, Any]] = self._graph._adj[phrase]  # type: ignore[attr-defined]
        return found

    def _require(self, phrase: str) -> None:
        if phrase not in self._graph:
            raise UsageError(
                f"the graph holds no phrase {phrase!r}; it holds interests, what was asked about, and "
                "candidates, each in lower case"
            )

    def _use(self, phrase: str) -> float:
        return self._amount(self._used.get(phrase, -math.inf))

    def _amount(self, level: float) -> float:
        return float(2.0 ** (level - self.now / self._half_life))

    def _weigh(self, pair: tuple[str, str]) -> None:
        """Give the tie of use between two phrases the strength that it has now."""
        count = self._amount(self._together[pair])
        self._tie(*pair, Kind.USE, count / (count + _HALF_TIED) if count >= _FADED else 0.0)

    def _tie(self, a: str, b: str, kind: Kind, strength: float) -> None:
        """Let the tie of this kind have this strength, at most 1; 0 or less unties."""
        edge = self._ties_of(a).get(b)
        if edge is None:
            if strength <= 0:
                return
            self._graph.add_edge(a, b, ties={}, strength=0.0, length=math.inf)
            edge = self._ties_of(a)[b]
        ties: dict[Kind, float] = edge["ties"]
        if (kind in ties) != (strength > 0):
            self._changes += 1
            self._tied += 1 if strength > 0 else -1
        if strength > 0:
            ties[kind] = min(1.0, strength)
        else:
            ties.pop(kind, None)
        total = math.fsum(ties.values())
        for phrase, other in ((a, b), (b, a)):
            self._sums[phrase] += total - edge["strength"]
            if phrase in self._explored and other in self._explored:
                self._explored[phrase] += total - edge["strength"]
        if ties:
            edge["strength"], edge["length"] = total, -math.log(max(ties.values()))
        else:
            self._graph.remove_edge(a, b)
            for phrase in (a, b):
                if not self._ties_of(phrase):
                    self._sums[phrase] = 0.0  # and nothing that rounding has left


def _count(levels: dict[K, float], key: K, level: float) -> None:
    """Add, to the sum whose logarithm is kept, what has the logarithm `level`; to base 2."""
    held = levels.get(key, -math.inf)
    high, low = max(held, level), min(held, level)
    levels[key] = high + math.log2(1.0 + 2.0 ** (low - high))
