"""The graph: worked by hand, against a naive one, and where there is little or nothing in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue import Catalogue
from texcat.catalogue import graph as graph_module
from texcat.catalogue.errors import UnrelatedError, UsageError
from texcat.catalogue.graph import Hub, InterestGraph, Kind, Neighbour, Standing, Step
from texcat.catalogue.memory import Memory, Mention, Node, Observation
from texcat.catalogue.relations import Relation, Relations

MINUTE, DAY = 60.0, 86_400.0
NOW = 1_800_000_000.0


def asked(time: float, *phrases: str, number: int = 0, **matched: float) -> Observation:
    """A question that names `phrases`, and that `matched` answer with these weights and confidence 1."""
    mentions = [Mention(phrase, True) for phrase in phrases]
    mentions += [Mention(phrase, False, weight) for phrase, weight in matched.items()]
    return Observation(time, "stored", 1.0, tuple(mentions), id=number)


def graph_of(
    interests: Sequence[str] = (),
    candidates: Sequence[str] = (),
    relations: Sequence[tuple[str, str, str, float]] = (),
    questions: Sequence[Observation] = (),
) -> InterestGraph:
    graph = InterestGraph(NOW, half_life=10 * DAY)
    graph.put_nodes(Node(phrase, 1.0, False) for phrase in interests)
    graph.put_nodes(Node(phrase, None, True) for phrase in candidates)
    graph.put_relations((Relation(*relation) for relation in relations), 0.0, 1.0)
    for question in questions:
        graph.observe(question)
    return graph


@pytest.fixture
def cyclist() -> InterestGraph:
    """bike - helmet - head by meaning, bike - plasma by use, and sky alone."""
    return graph_of(
        interests=["bike", "plasma", "sky"],
        candidates=["helmet", "head"],
        relations=[
            ("meaning", "bike", "helmet", 0.5),
            ("meaning", "helmet", "bike", 0.5),
            ("meaning", "helmet", "head", 0.8),
        ],
        questions=[asked(NOW, "bike"), asked(NOW + MINUTE, "plasma")],
    )


class TestByHand:
    def test_two_questions_of_a_session_tie_what_they_are_about(self, cyclist: InterestGraph) -> None:
        assert cyclist.neighbours("plasma") == [
            Neighbour(
                "bike",
                Standing.INTEREST,
                pytest.approx(1 / 3, rel=1e-3),
                {Kind.USE: pytest.approx(1 / 3, rel=1e-3)},
            )
        ]
        assert len(cyclist) == 5
        assert cyclist.ties() == 3

    def test_a_pause_ends_a_session(self) -> None:
        within = graph_of(questions=[asked(NOW, "a"), asked(NOW + 29 * MINUTE, "b")])
        assert within.ties() == 1
        after = graph_of(questions=[asked(NOW, "a"), asked(NOW + 30 * MINUTE, "b")])
        assert after.ties() == 0

    def test_a_session_counts_a_pair_once(self) -> None:
        often = graph_of(questions=[asked(NOW, "a", "b") for _ in range(5)])
        assert often.neighbours("a")[0].strength == pytest.approx(1 / 3)
        assert often.use("a") == pytest.approx(5)

    def test_a_match_counts_by_its_weight(self) -> None:
        graph = graph_of(questions=[asked(NOW, "a", b=0.5)])
        assert graph.neighbours("a")[0].strength == pytest.approx(0.5 / 2.5)

    def test_use_fades(self) -> None:
        graph = graph_of(questions=[asked(NOW, "a", "b")])
        graph.move(NOW + 20 * DAY)
        assert graph.use("a") == pytest.approx(0.25)
        assert graph.neighbours("a")[0].strength == pytest.approx(0.25 / 2.25)
        graph.move(NOW + 100 * DAY)
        assert graph.ties() == 0
        assert graph.neighbours("a") == []
        graph.move(NOW)
        assert graph.now == NOW + 100 * DAY

    def test_a_path_names_each_step(self, cyclist: InterestGraph) -> None:
        assert cyclist.path("plasma", "head") == [
            Step("plasma", "bike", Kind.USE, pytest.approx(1 / 3, rel=1e-3)),
            Step("bike", "helmet", Kind.MEANING, 0.5),
            Step("helmet", "head", Kind.MEANING, 0.8),
        ]
        assert cyclist.path("sky", "sky") == []

    def test_a_path_prefers_two_strong_steps_to_a_weak_one(self) -> None:
        relations = [("sight", "a", "c", 0.5), ("meaning", "a", "b", 0.8), ("sight", "b", "c", 0.7)]
        graph = graph_of("abc", relations=relations)
        assert [step.end for step in graph.path("a", "c")] == ["b", "c"]
        graph.put_relations([Relation("meaning", "a", "c", 0.6)], 0.0, 1.0)
        assert graph.path("a", "c") == [Step("a", "c", Kind.MEANING, 0.6)]

    def test_no_path_is_told(self, cyclist: InterestGraph) -> None:
        with pytest.raises(
            UnrelatedError, match=r"nothing leads from 'sky' to 'head': 1 phrases .* and 4 around"
        ):
            cyclist.path("sky", "head")

    def test_meaning_is_on_the_scale_of_confidence(self) -> None:
        graph = graph_of("abcd")
        relations = [("a", "b", 0.7), ("b", "c", 0.95), ("c", "d", 0.4)]
        graph.put_relations((Relation("meaning", *relation) for relation in relations), 0.5, 0.9)
        assert [(n.phrase, n.strength) for n in graph.neighbours("b")] == [
            ("c", 1.0),
            ("a", pytest.approx(0.5)),
        ]
        assert graph.neighbours("d") == []

    def test_centrality_is_the_part_of_all_strength(self, cyclist: InterestGraph) -> None:
        assert cyclist.hubs(2) == [
            Hub("bike", Standing.INTEREST, pytest.approx(0.5)),
            Hub("plasma", Standing.INTEREST, pytest.approx(0.5)),
        ]
        cyclist.observe(asked(NOW + DAY, "helmet"))
        total = 2 * (1 / 3 + 0.5)
        assert cyclist.hubs(3) == [
            Hub("bike", Standing.INTEREST, pytest.approx((1 / 3 + 0.5) / total, rel=0.05)),
            Hub("helmet", Standing.SEEN, pytest.approx(0.5 / total, rel=0.05)),
            Hub("plasma", Standing.INTEREST, pytest.approx(1 / 3 / total, rel=0.05)),
        ]

    def test_an_interest_that_becomes_a_candidate_again_holds_nothing_together(self) -> None:
        graph = graph_of(["bike", "helmet", "head"], relations=[("sight", "bike", "helmet", 0.5)])
        graph.put_relations([Relation("sight", "helmet", "head", 0.5)], 0.0, 1.0)
        assert graph.hubs(1) == [Hub("helmet", Standing.INTEREST, 0.5)]
        graph.put_nodes([Node("bike", None, True)])
        assert graph.standing("bike") is Standing.CANDIDATE
        assert [(hub.phrase, hub.centrality) for hub in graph.hubs()] == [("head", 0.5), ("helmet", 0.5)]
        graph.put_nodes([Node("bike", 1.0, True)])
        assert graph.hubs(1) == [Hub("helmet", Standing.INTEREST, 0.5)]

    def test_a_suggestion_has_its_reasons(self, cyclist: InterestGraph) -> None:
        (helmet,) = cyclist.suggest()
        # bike: asked once, and its weight of 1, of which half moves on.
        assert (helmet.phrase, helmet.standing, helmet.asked) == ("helmet", Standing.CANDIDATE, 0.0)
        assert helmet.expected == pytest.approx(0.5 * 2 * 0.5 / (1 / 3 + 0.5), rel=1e-3)
        assert helmet.reasons == (Step("bike", "helmet", Kind.MEANING, 0.5),)
        assert cyclist.frontier() == [Step("bike", "helmet", Kind.MEANING, 0.5)]

    def test_what_was_asked_for_is_suggested_first_and_is_no_frontier(self, cyclist: InterestGraph) -> None:
        for day in range(1, 4):
            cyclist.observe(asked(NOW + day * DAY, "tandem"))
        first = cyclist.suggest()[0]
        assert (first.phrase, first.standing, first.reasons) == ("tandem", Standing.SEEN, ())
        assert first.expected == first.asked == pytest.approx(3, rel=0.2)
        cyclist.observe(asked(NOW + 4 * DAY, "helmet"))
        assert cyclist.frontier() == []

    def test_other_words_for_an_interest_or_a_suggestion_are_not_suggested(self) -> None:
        graph = graph_of(
            ["bike"],
            ["bicycle", "helmet", "bike helmet"],
            [
                ("meaning", "bike", "bicycle", 0.97),
                ("meaning", "bike", "helmet", 0.6),
                ("meaning", "bike", "bike helmet", 0.7),
                ("meaning", "helmet", "bike helmet", 0.96),
            ],
        )
        assert [suggestion.phrase for suggestion in graph.suggest()] == ["bike helmet"]

    def test_communities(self) -> None:
        one, other = "abcd", "efgh"
        relations = [("meaning", a, b, 0.9) for group in (one, other) for a, b in combinations(group, 2)]
        graph = graph_of(["alone", *one, *other], ["candidate"], [*relations, ("sight", "a", "e", 0.2)])
        found = graph.communities()
        assert [set(members) for members in found] == [set(one), set(other), {"alone"}]
        assert (found[0][0], found[1][0]) == ("a", "e")  # the hubs first

    def test_communities_are_made_again_when_much_has_changed(self) -> None:
        graph = graph_of([f"phrase {i}" for i in range(100)])
        assert len(graph.communities()) == 100
        graph.observe(asked(NOW, "phrase 0", "phrase 1"))
        assert len(graph.communities()) == 100
        graph.observe(asked(NOW, *(f"phrase {i}" for i in range(2, 10))))
        assert len(graph.communities()) == 91


class TestLittle:
    def test_nothing(self) -> None:
        graph = graph_of()
        assert (graph.hubs(), graph.communities(), graph.suggest(), graph.frontier()) == ([], [], [], [])
        assert (len(graph), graph.ties()) == (0, 0)
        for ask in (graph.neighbours, graph.use, graph.standing, lambda phrase: graph.path(phrase, phrase)):
            with pytest.raises(UsageError, match="holds no phrase 'cat'"):
                ask("cat")

    def test_one_phrase(self) -> None:
        graph = graph_of(["cat"])
        assert graph.hubs() == [Hub("cat", Standing.INTEREST, 0.0)]
        assert graph.communities() == [("cat",)]
        assert graph.path("cat", "cat") == graph.neighbours("cat") == graph.suggest() == []

    def test_a_question_about_nothing(self) -> None:
        graph = graph_of(questions=[asked(NOW), asked(NOW, a=0.0), asked(NOW, a=1e-200, b=1e-200)])
        assert graph.ties() == 0
        assert [s.phrase for s in graph.suggest()] == ["a", "b"]

    def test_a_half_life_is_a_length_of_time(self) -> None:
        with pytest.raises(UsageError, match="half-life"):
            InterestGraph(NOW, half_life=0.0)

    def test_an_endless_session_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(graph_module, "SESSION_PHRASES", 2)
        graph = graph_of(questions=[asked(NOW + MINUTE * i, phrase) for i, phrase in enumerate("abcd")])
        assert {n.phrase for n in graph.neighbours("a")} == {"b", "c"}
        assert {n.phrase for n in graph.neighbours("d")} == {"b", "c"}

    def test_a_clock_that_is_set_back(self) -> None:
        graph = graph_of(questions=[asked(NOW, "a"), asked(NOW - 365 * DAY, "b"), asked(NOW, "c")])
        assert graph.ties() == 0  # three sessions
        assert graph.use("b") < 1e-6 < graph.use("c")
        assert graph.now == NOW


# ------------------------------------------------------------------------- against a naive implementation

NAMES = "abcdef"
LIVES = 10 * DAY

questions = st.lists(
    st.builds(
        lambda minutes, named, matched: (
            minutes,
            named,
            {p: w for p, w in matched.items() if p not in named},
        ),
        st.integers(-3_000, 20_000),
        st.sets(st.sampled_from(NAMES), max_size=3),
        st.dictionaries(st.sampled_from(NAMES), st.floats(0.2, 1), max_size=3),
    ),
    max_size=25,
)
strengths = st.dictionaries(
    st.tuples(st.sampled_from(["meaning", "sight"]), st.sampled_from(list(combinations(NAMES, 2)))),
    st.floats(0.05, 0.9),
    max_size=12,
)

Ties = dict[frozenset[str], dict[Kind, float]]


def naive_ties(
    relations: dict[tuple[str, tuple[str, str]], float], log: Sequence[Observation], now: float
) -> Ties:
    """Ties by their definition, from the whole log."""
    sessions: list[list[Observation]] = []
    for i, observation in enumerate(log):
        new = i == 0 or abs(min(observation.time, now) - min(log[i - 1].time, now)) >= 30 * MINUTE
        if new:
            sessions.append([])
        sessions[-1].append(observation)
    together: dict[frozenset[str], float] = {}
    for session in sessions:
        first: dict[str, float] = {}
        for observation in session:
            for phrase, amount in observation.amounts().items():
                if phrase not in first:
                    at = min(observation.time, now)
                    for other, others in first.items():
                        pair = frozenset((phrase, other))
                        together[pair] = together.get(pair, 0) + amount * others * 2 ** ((at - now) / LIVES)
                    first[phrase] = amount
    ties: Ties = {}
    for (kind, pair_of), strength in relations.items():
        ties.setdefault(frozenset(pair_of), {})[Kind(kind)] = strength
    for pair, count in together.items():
        ties.setdefault(pair, {})[Kind.USE] = count / (count + 2)
    return ties


@given(strengths, questions, st.sets(st.sampled_from(NAMES)), st.booleans())
def test_every_answer_is_that_of_a_naive_graph(
    relations: dict[tuple[str, tuple[str, str]], float],
    asked_about: list[tuple[int, set[str], dict[str, float]]],
    interests: set[str],
    at_once: bool,
) -> None:
    log = [asked(NOW + m * MINUTE, *sorted(named), **matched) for m, named, matched in asked_about]
    graph = InterestGraph(NOW, LIVES)
    graph.put_nodes(Node(p, 2.0 if p in interests else None, p not in interests) for p in NAMES)
    graph.put_relations((Relation(k, *pair, s) for (k, pair), s in relations.items()), 0.0, 1.0)
    for observation in log:
        graph.observe(observation, latest=NOW if at_once else math.inf)
    now = graph.now
    if not at_once:
        graph.move(now := max([NOW, *(o.time for o in log)]))
    ties = naive_ties(relations, log, now)

    use = dict.fromkeys(NAMES, 0.0)
    for observation in log:
        for phrase, amount in observation.amounts().items():
            use[phrase] += amount * 2 ** ((min(observation.time, now) - now) / LIVES)
    assert {p: graph.use(p) for p in NAMES} == pytest.approx(use, rel=1e-6)

    whole = {pair: math.fsum(kinds.values()) for pair, kinds in ties.items()}
    sums = {p: math.fsum(s for pair, s in whole.items() if p in pair) for p in NAMES}
    for p in NAMES:
        found = graph.neighbours(p)
        assert {n.phrase: n.strength for n in found} == pytest.approx(
            {next(iter(pair - {p})): s for pair, s in whole.items() if p in pair}, rel=1e-6
        )
        for n in found:
            assert dict(n.ties) == pytest.approx(ties[frozenset((p, n.phrase))], rel=1e-6)
        assert [n.strength for n in found] == sorted((n.strength for n in found), reverse=True)

    explored = interests | {p for o in log for p in o.amounts()}
    own = {p: math.fsum(s for pair, s in whole.items() if p in pair and pair <= explored) for p in explored}
    total = math.fsum(own.values())
    assert {hub.phrase: hub.centrality for hub in graph.hubs()} == pytest.approx(
        {p: own[p] / total if total else 0.0 for p in explored}, rel=1e-6
    )

    u = {p: use[p] + 2.0 * (p in interests) for p in explored}
    brought = {
        x: {y: u[y] * whole.get(frozenset((x, y)), 0) / sums[y] / 2 for y in explored - {x} if sums[y] > 0}
        for x in NAMES
    }
    expected = {x: use[x] + math.fsum(brought[x].values()) for x in set(NAMES) - interests}
    suggested = {s.phrase: s.expected for s in graph.suggest()}
    assert suggested == pytest.approx({x: e for x, e in expected.items() if x in suggested}, rel=1e-6)
    assert all(expected[x] < 1e-9 for x in expected.keys() - suggested.keys())

    frontier = {(step.start, step.end) for step in graph.frontier(100)}
    assert frontier == {
        (y, x) for y in interests for x in set(NAMES) - explored if frozenset((x, y)) in whole
    }

    best = best_walks(ties)
    for a, b in permutations(NAMES, 2):
        if best[a, b] == 0:
            with pytest.raises(UnrelatedError, match="nothing leads"):
                graph.path(a, b)
        else:
            steps = graph.path(a, b)
            assert (steps[0].start, steps[-1].end) == (a, b)
            assert math.prod(s.strength for s in steps) == pytest.approx(best[a, b], rel=1e-6)
            for step in steps:
                assert step.strength == pytest.approx(ties[frozenset((step.start, step.end))][step.kind])
    assert {p for members in graph.communities() for p in members} == explored


def best_walks(ties: Ties) -> dict[tuple[str, str], float]:
    """The greatest product of strengths from each to each, 0 if there is no way (Floyd and Warshall)."""
    best = {(a, b): max(ties.get(frozenset((a, b)), {}).values(), default=0.0) for a in NAMES for b in NAMES}
    for middle, a, b in ((m, a, b) for m in NAMES for a in NAMES for b in NAMES):
        best[a, b] = max(best[a, b], best[a, middle] * best[middle, b])
    return best


# ------------------------------------------------------------------------------------- with a catalogue


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat") as made:
        made.adopt_encoder("e", 0.2, 1.0)
        yield made


def test_loaded_or_followed_it_is_the_same(catalogue: Catalogue) -> None:
    with Memory.of(catalogue) as memory:
        catalogue.add_interest("bike", weight=3.0)
        memory.add_candidates(["helmet"])
        vectors = {"bike": np.array([1, 0], np.float32), "helmet": np.array([0.6, 0.8], np.float32)}
        Relations(memory.database, "e").add_texts(vectors)
        followed = InterestGraph.load(memory, catalogue.settings, now=NOW)
        assert followed.path("bike", "helmet") == [Step("bike", "helmet", Kind.MEANING, pytest.approx(0.5))]

        assert followed.hubs() == [Hub("bike", Standing.INTEREST, 0.0)]
        memory.record([asked(NOW - DAY, "bike", "red wheel"), asked(NOW + DAY, "helmet", "red wheel")])
        catalogue.add_interest("sky")
        catalogue.remove_interest("bike")
        for _ in range(2):  # nothing is taken up twice
            followed.follow(memory, NOW)
        loaded = InterestGraph.load(memory, catalogue.settings, now=NOW)
        for graph in (followed, loaded):
            # An interest that is gone keeps its node and its history.
            assert graph.standing("bike") is graph.standing("red wheel") is Standing.SEEN
            assert graph.standing("sky") is Standing.INTEREST
            assert graph.use("bike") == pytest.approx(2 ** (-1 / 30))
            assert graph.use("helmet") == pytest.approx(1.0)  # asked tomorrow, by a wrong clock
        assert [s.phrase for s in followed.suggest()] == [s.phrase for s in loaded.suggest()]
        assert {h.phrase: h.centrality for h in followed.hubs()} == pytest.approx(
            {h.phrase: h.centrality for h in loaded.hubs()}
        )
        assert followed.ties() == loaded.ties() == 3


def test_a_vocabulary_does_not_come_between_two_interests(catalogue: Catalogue) -> None:
    with Memory.of(catalogue) as memory:
        for phrase in ("bike", "tandem"):
            catalogue.add_interest(phrase)
        angles = {"bike": 0.0, "tandem": 0.8, **{f"bike {i}": 0.01 * i for i in range(1, 13)}}
        memory.add_candidates(phrase for phrase in angles if " " in phrase)
        unit = {p: np.array([math.cos(a), math.sin(a)], np.float32) for p, a in angles.items()}
        Relations(memory.database, "e").add_texts(unit)
        assert ("bike", "tandem") not in {
            (relation.source, relation.target) for relation in Relations(memory.database, "e").all()
        }
        graph = InterestGraph.load(memory, catalogue.settings, now=NOW)
        assert [neighbour.phrase for neighbour in graph.neighbours("bike", 20)][-1] == "tandem"
        assert graph.communities() == [("bike", "tandem")]
