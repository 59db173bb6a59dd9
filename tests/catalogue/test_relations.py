"""Relations that are kept, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from texcat.catalogue import relations as relations_module
from texcat.catalogue.database import Database
from texcat.catalogue.errors import UsageError
from texcat.catalogue.memory import Memory
from texcat.catalogue.registry import Registry
from texcat.catalogue.relations import MEANING, SIGHT, Relation, Relations


@pytest.fixture
def memory(registry: Registry, empty_url: str) -> Iterator[Memory]:
    with Memory(Database.open(empty_url)) as opened:
        yield opened


@pytest.fixture
def relations(memory: Memory) -> Relations:
    return Relations(memory.database, "e")


def texts(count: int, start: int = 0) -> dict[str, NDArray[np.float32]]:
    """Embeddings of made-up phrases."""
    vectors = np.random.default_rng(0).normal(size=(start + count, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return {f"phrase {i:03}": vectors[i] for i in range(start, start + count)}


def expected(among: dict[str, NDArray[np.float32]]) -> dict[tuple[str, str], float]:
    """Every phrase with its ten nearest, by comparing each with each."""
    found = {}
    for phrase, vector in among.items():
        ranked = sorted((-float(vector @ among[o]), o) for o in among if o != phrase)[:10]
        found |= {(phrase, other): -cosine for cosine, other in ranked}
    return found


def held(relations: Relations) -> dict[tuple[str, str], float]:
    return {(r.source, r.target): r.value for r in relations.all() if r.kind == MEANING}


def test_each_phrase_is_tied_to_the_nearest_however_they_came(memory: Memory, relations: Relations) -> None:
    every = texts(40)
    memory.add_candidates(every)
    assert relations.without_text() == list(every)
    for portion in (list(every)[:5], list(every)[5:39], list(every)[39:], list(every)):
        relations.add_texts({phrase: every[phrase] for phrase in portion})
    assert relations.without_text() == []
    assert held(relations) == pytest.approx(expected(every), abs=1e-5)


def test_a_batch_after_another(memory: Memory, relations: Relations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations_module, "_BATCH", 7)
    every = texts(30)
    memory.add_candidates(every)
    relations.add_texts(every)
    assert held(relations) == pytest.approx(expected(every), abs=1e-5)


def test_what_is_forgotten_goes_and_the_next_takes_its_place(
    registry: Registry, memory: Memory, relations: Relations
) -> None:
    every = texts(30)
    registry.add_interest("phrase 000")
    memory.add_candidates(phrase for phrase in every if phrase != "phrase 000")
    relations.add_texts(every)
    registry.remove_interest("phrase 000")
    memory.forget()
    del every["phrase 000"]
    assert {end for pair in held(relations) for end in pair} == every.keys()
    more = texts(1, start=30)
    memory.add_candidates(more)
    relations.add_texts(more)
    assert held(relations) == pytest.approx(expected(every | more), abs=1e-5)


def test_two_encoders_do_not_mix(memory: Memory, relations: Relations) -> None:
    memory.add_candidates(texts(3))
    relations.add_texts(texts(3))
    other = Relations(memory.database, "f")
    assert other.all() == []
    assert other.without_text() == list(texts(3))


def test_phrases_that_are_unknown_are_passed_over(relations: Relations) -> None:
    relations.add_texts(texts(2))
    relations.add_texts({})
    assert relations.all() == []


@pytest.mark.parametrize(
    ("vector", "message"),
    [(np.ones(3, np.float32), "one length"), (np.full(8, 0.5, np.float32), "unit norm, got norms")],
)
def test_embeddings_that_cannot_be_compared_are_refused(
    memory: Memory, relations: Relations, vector: NDArray[np.float32], message: str
) -> None:
    memory.add_candidates([*texts(3), "other"])
    relations.add_texts(texts(3))
    before = relations.all()
    with pytest.raises(UsageError, match=message):
        relations.add_texts({"other": vector})
    assert relations.all() == before


def test_interests_are_tied_by_how_their_scores_correlate(memory: Memory, relations: Relations) -> None:
    memory.add_candidates(["bike", "helmet", "plasma", "wall"])
    bike = np.random.default_rng(1).normal(size=100).astype(np.float32)
    scores = {"bike": bike, "helmet": 2 * bike + 1, "plasma": -bike, "wall": np.ones(100, np.float32)}
    relations.put_scores(scores)
    assert sorted(relations.all(), key=lambda relation: relation.source) == [
        Relation(SIGHT, "bike", "helmet", pytest.approx(1.0)),
        Relation(SIGHT, "helmet", "bike", pytest.approx(1.0)),
    ]
    relations.put_scores({"bike": bike, "unknown": bike})  # in place of what was
    assert relations.all() == []
    relations.put_scores({})
    assert relations.all() == []


def test_the_nearest_among_some(memory: Memory, relations: Relations) -> None:
    every = texts(40)
    memory.add_candidates([*every, "without text"])
    relations.add_texts(every)
    some = dict(list(every.items())[::2])
    found = {(r.source, r.target): r.value for r in relations.among([*some, "without text", "unknown"])}
    assert found == pytest.approx(expected(some), abs=1e-5)
    assert relations.among([]) == []
