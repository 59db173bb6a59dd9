"""Relations from a real encoder's interface, and from stored maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import Catalogue, ImageKey, TextureRecord
from texcat.catalogue.errors import FingerprintMismatchError, InvalidPhraseError
from texcat.catalogue.graph import Standing
from texcat.catalogue.memory import Memory
from texcat.catalogue.quantise import quantise
from texcat.catalogue.relations import Relation, Relations
from texcat.catalogue.types import InterestVectors
from texcat.indexer import interest_graph
from texcat.indexer.encoders.nouns import class_names
from texcat.indexer.relating import (
    CANDIDATES,
    LEAST_IMAGES,
    measure_maps,
    relate_by_meaning,
    relate_by_sight,
    take_candidates,
)

from ..fakes import TinyEncoder

WHEELS = np.random.default_rng(0).normal(size=LEAST_IMAGES)


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", groups=["appearance"], shards=1) as made:
        made.adopt_encoder("tiny-1", 0.0, 1.0)
        yield made


@pytest.fixture
def memory(catalogue: Catalogue) -> Iterator[Memory]:
    with Memory.of(catalogue) as opened:
        yield opened


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def add_map(catalogue: Catalogue, image: int, interest: int, level: float) -> None:
    planes = quantise(np.full((1, 16, 16), level, np.float32) + np.eye(16, dtype=np.float32))
    base = quantise(np.zeros((len(catalogue.schema.stored), 32, 32), np.float32))
    catalogue.store.write([TextureRecord(ImageKey.of(bytes([image])), base, {interest: planes})])


def test_phrases_that_share_words_are_near(catalogue: Catalogue, memory: Memory) -> None:
    catalogue.add_interest("red bike")
    memory.add_candidates(["blue bike", "sky"])
    assert relate_by_meaning(catalogue, memory, TinyEncoder()) == 3
    assert relate_by_meaning(catalogue, memory, TinyEncoder()) == 0
    relations = Relations(memory.database, "tiny-1").all()
    assert Relation("meaning", "red bike", "blue bike", pytest.approx(0.5)) in relations
    with pytest.raises(FingerprintMismatchError):
        relate_by_meaning(catalogue, memory, TinyEncoder(version=2))


def test_interests_that_show_in_the_same_images_are_tied(catalogue: Catalogue, memory: Memory) -> None:
    bike, helmet, sky, rare = (catalogue.add_interest(p).id for p in ("bike", "helmet", "sky", "rare"))
    for image, level in enumerate(WHEELS):
        add_map(catalogue, image, bike, level)
        add_map(catalogue, image, helmet, 3 * level + 1)
        add_map(catalogue, image, sky, -level)
    add_map(catalogue, 0, rare, 1.0)  # what few images have a map of takes no other's images away
    add_map(catalogue, 99, bike, 5.0)
    assert relate_by_sight(catalogue, memory) == LEAST_IMAGES
    relations = Relations(memory.database, "tiny-1").all()
    assert {(r.kind, r.source, r.target) for r in relations} == {
        ("sight", "bike", "helmet"),
        ("sight", "helmet", "bike"),
    }
    assert [r.value for r in relations] == pytest.approx([1.0, 1.0], abs=1e-3)


def test_too_few_images_say_nothing(catalogue: Catalogue, memory: Memory) -> None:
    assert relate_by_sight(catalogue, memory) == 0
    ids = [catalogue.add_interest(phrase).id for phrase in ("bike", "helmet")]
    for image, level in enumerate(WHEELS[1:]):
        for interest in ids:
            add_map(catalogue, image, interest, level)
    assert relate_by_sight(catalogue, memory) == LEAST_IMAGES - 1
    assert Relations(memory.database, "tiny-1").all() == []


def test_ties_of_sight_follow_the_maps(catalogue: Catalogue, memory: Memory) -> None:
    relations = Relations(memory.database, "tiny-1")
    ids = [catalogue.add_interest(phrase).id for phrase in ("bike", "helmet")]
    vectors = InterestVectors(np.ones(2, np.float32), np.ones(3, np.float32))
    catalogue.registry.put_vectors("tiny-1", dict.fromkeys(ids, vectors))
    for image, level in enumerate(WHEELS):
        for interest in ids:
            add_map(catalogue, image, interest, level)
    measure_maps(catalogue)
    assert len(relations.all()) == 2
    relations.put_scores({})
    measure_maps(catalogue)  # nothing is due, so nothing is read again
    assert relations.all() == []


def test_the_nearest_of_the_vocabulary_come_along(catalogue: Catalogue, memory: Memory, cache: Path) -> None:
    encoder = TinyEncoder()
    catalogue.add_interest("bicycle pump")
    told: list[tuple[int, int]] = []
    assert take_candidates(catalogue, memory, encoder, lambda *at: told.append(at)) == CANDIDATES
    assert told[-1] == (len(class_names()), len(class_names()))
    candidates = {node.phrase for node in memory.nodes() if node.candidate}
    assert not candidates & {"bicycle pump", "bicycle", "pump"}  # what it says itself is no news
    relate_by_meaning(catalogue, memory, encoder)
    assert take_candidates(catalogue, memory, encoder) == 0  # nothing is new
    catalogue.add_interest("acoustic guitar")
    told.clear()
    assert 0 < take_candidates(catalogue, memory, encoder, lambda *at: told.append(at)) <= CANDIDATES
    assert told == []  # the vocabulary is embedded once
    assert len(list(cache.rglob("vocabulary-*"))) == 1


def test_a_graph_of_other_candidates(catalogue: Catalogue, memory: Memory, cache: Path) -> None:
    catalogue.add_interest("red bike")
    graph = interest_graph(catalogue, candidates=["Blue  Bike", "sky"], encoder=TinyEncoder())
    assert "blue bike" in [suggestion.phrase for suggestion in graph.suggest()]
    assert graph.standing("blue bike") is Standing.CANDIDATE
    catalogue.add_interest("green bike")
    assert len(interest_graph(catalogue, encoder=TinyEncoder())) == 4  # and none of the built-in ones
    assert not list(cache.rglob("vocabulary-*"))
    with pytest.raises(InvalidPhraseError):
        interest_graph(catalogue, candidates=["fine", " "], encoder=TinyEncoder())
    assert len(memory.nodes()) == 4


def test_nothing_is_loaded_when_nothing_is_new(catalogue: Catalogue, cache: Path) -> None:
    catalogue.add_interest("red bike")
    interest_graph(catalogue, candidates=["blue bike"], encoder=TinyEncoder())
    # The catalogue's own encoder is "builtin", whose fingerprint is another: it would be refused.
    assert len(interest_graph(catalogue)) == 2
    catalogue.remove_interest("red bike")
    assert interest_graph(catalogue).standing("red bike") is Standing.SEEN


def test_before_the_first_image_there_are_no_ties(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "new") as catalogue:
        assert len(interest_graph(catalogue)) == 0
        catalogue.add_interest("red bike")
        catalogue.add_interest("blue bike")
        graph = interest_graph(catalogue)
        assert (len(graph), graph.ties(), graph.suggest()) == (2, 0, [])
