"""What goes when room is short, what stays, and what is left of an interest whose maps are gone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import Catalogue, ReadOnlyError, UsageError
from texcat.catalogue.memory import Memory, Node
from texcat.catalogue.pruning import prunable, prune_interests
from texcat.catalogue.store import map_bytes
from texcat.catalogue.types import ImageKey, InterestVectors
from texcat.catalogue.verifying import verify

from .test_memory import DAY, asked
from .test_store import plane, record

NOW = 100 * DAY
IMAGES = 40
PHRASES = ("cat", "dog", "bird", "fish")


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    """Four interests with maps of 32x32: "dog" is asked about often, "bird" was long ago."""
    with Catalogue.create(tmp_path / "cat", groups=["appearance"], shards=1) as made:
        made.adopt_encoder("an encoder", 0.0, 1.0)
        ids = [made.add_interest(phrase).id for phrase in PHRASES]
        vector = np.ones(2, np.float32)
        made.registry.put_vectors("an encoder", {i: InterestVectors(vector, vector) for i in ids})
        keys = [ImageKey.of(bytes([number])) for number in range(IMAGES)]
        made.registry.record_files([], dict.fromkeys(keys, (1, 1)))
        maps = {number: plane(number, side=32) for number in ids}
        made.store.write(replace(record(key, 0), maps=maps) for key in keys)
        with Memory.of(made) as memory:
            memory.record([asked(NOW - day * DAY, "dog") for day in range(10)])
            memory.record([asked(NOW - 90 * DAY, "bird"), asked(NOW - 60 * DAY, "fish", "dog")])
        yield made


def held(catalogue: Catalogue) -> dict[str, int]:
    maps = catalogue.store.stats().maps
    return {i.phrase: maps[i.id] for i in catalogue.interests() if i.id in maps}


def test_what_speaks_for_an_interest_decays_with_time(catalogue: Catalogue) -> None:
    ranked = prunable(catalogue, now=NOW)
    assert [p.phrase for p in ranked] == ["cat", "bird", "fish", "dog"]
    assert (ranked[0].weight, ranked[0].last, ranked[0].maps) == (1.0, None, IMAGES)
    assert ranked[1].last == NOW - 90 * DAY
    assert 1.0 < ranked[1].weight < ranked[2].weight < ranked[3].weight < 2.0
    assert ranked[3].expected > 5
    assert {p.bytes for p in ranked} == {math.ceil(IMAGES * map_bytes(32))}
    later = prunable(catalogue, now=NOW + 3_000 * DAY)
    assert [p.weight for p in later] == pytest.approx([1.0] * 4)


def test_a_dry_run_changes_nothing(catalogue: Catalogue) -> None:
    before = catalogue.interests(), held(catalogue)
    report = prune_interests(catalogue, max_bytes=0, now=NOW)
    assert report.dry_run
    assert [p.phrase for p in report.pruned] == ["cat", "bird", "fish", "dog"]
    assert (report.kept, report.kept_bytes, report.returned_bytes) == ((), 0, 0)
    assert (catalogue.interests(), held(catalogue)) == before


def test_the_least_worth_go_until_the_rest_fits(catalogue: Catalogue) -> None:
    each = prunable(catalogue, now=NOW)[0].bytes
    report = prune_interests(catalogue, max_bytes=2 * each, now=NOW, dry_run=False)
    assert [p.phrase for p in report.pruned] == ["cat", "bird"]
    assert [p.phrase for p in report.kept] == ["dog", "fish"]
    assert (report.kept_bytes, report.over_bytes) == (2 * each, 0)
    assert held(catalogue) == {"dog": IMAGES, "fish": IMAGES}
    assert [i.archived for i in catalogue.interests()] == [NOW, None, NOW, None]
    assert [i.phrase for i in catalogue.mapped_interests()] == ["dog", "fish"]
    again = prune_interests(catalogue, max_bytes=2 * each, now=NOW, dry_run=False)
    assert (again.pruned, again.returned_bytes) == ((), 0)
    assert list(verify(catalogue)) == []


def test_the_disk_gets_its_room_back(catalogue: Catalogue) -> None:
    before = sum(path.stat().st_blocks * 512 for path in catalogue.path.rglob("*") if path.is_file())
    report = prune_interests(catalogue, max_bytes=0, now=NOW, dry_run=False)
    after = sum(path.stat().st_blocks * 512 for path in catalogue.path.rglob("*") if path.is_file())
    assert report.returned_bytes >= 4 * IMAGES * 1024
    assert before - after >= 4 * IMAGES * 1024


def test_what_weighs_less_than_is_asked_for_goes(catalogue: Catalogue) -> None:
    fish = next(p for p in prunable(catalogue, now=NOW) if p.phrase == "fish")
    report = prune_interests(catalogue, below=fish.weight, now=NOW)
    assert [p.phrase for p in report.pruned] == ["cat", "bird"]
    both = prune_interests(catalogue, below=fish.weight, max_bytes=fish.bytes, now=NOW)
    assert [p.phrase for p in both.pruned] == ["cat", "bird", "fish"]
    assert prune_interests(catalogue, below=0.0, now=NOW).pruned == ()


def test_what_is_pinned_stays(catalogue: Catalogue) -> None:
    catalogue.pin_interest("cat")
    catalogue.pin_interest("fish")
    report = prune_interests(catalogue, below=100.0, max_bytes=0, now=NOW, dry_run=False)
    assert {p.phrase for p in report.pruned} == {"dog", "bird"}
    assert held(catalogue) == {"cat": IMAGES, "fish": IMAGES}
    assert report.over_bytes == report.kept_bytes > 0


def test_a_pruned_interest_keeps_everything_but_its_maps(catalogue: Catalogue) -> None:
    before = catalogue.registry.vectors("an encoder")
    interests = catalogue.interests()
    prune_interests(catalogue, max_bytes=0, now=NOW, dry_run=False)
    assert [replace(i, archived=None) for i in catalogue.interests()] == interests
    assert catalogue.registry.vectors("an encoder").keys() == before.keys()
    with Memory.of(catalogue) as memory:
        assert Node("dog", None, False) in memory.nodes(), "it is suggested again"
        assert memory.uses(NOW)["dog"].amount > 5
        catalogue.restore_interest("dog")
        assert Node("dog", 1.0, False) in memory.nodes()
    assert [i.phrase for i in catalogue.mapped_interests()] == ["dog"]


def test_what_cannot_be_asked(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match="say what to prune"):
        prune_interests(catalogue)
    with pytest.raises(UsageError, match="max_bytes must be finite and >= 0, got -1"):
        prune_interests(catalogue, max_bytes=-1)
    with pytest.raises(UsageError, match="below must be finite"):
        prune_interests(catalogue, below=float("nan"))
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as reading:
        assert len(prune_interests(reading, max_bytes=0, now=NOW).pruned) == 4
        with pytest.raises(ReadOnlyError, match="cannot prune interests"):
            prune_interests(reading, max_bytes=0, dry_run=False)
