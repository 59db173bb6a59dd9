"""Relations from a real encoder's interface, and from stored maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import Catalogue, ImageKey, TextureRecord
from texcat.catalogue.errors import FingerprintMismatchError
from texcat.catalogue.memory import Memory
from texcat.catalogue.quantise import quantise
from texcat.catalogue.relations import Relation, Relations
from texcat.indexer.relating import LEAST_IMAGES, relate_by_meaning, relate_by_sight

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
