"""What is indexed ahead of questions: the most promising first, as long as there is room and time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from texcat.catalogue import Catalogue, CatalogueError, ReadOnlyError, UsageError
from texcat.catalogue.memory import Memory
from texcat.catalogue.verifying import verify
from texcat.indexer import Progress, index_corpus
from texcat.indexer.ahead import expand_suggested

from ..catalogue.test_memory import DAY, asked
from ..fakes import TinyEncoder
from .test_expanding import QUICK, maps, photo

NOW = 100 * DAY


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    """Five photos under one interest; three phrases were asked about."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(5):
        photo(folder / f"{seed}.png", seed)
    with Catalogue.create(tmp_path / "cat", groups=QUICK, shards=1) as made:
        made.add_interest("red")
        index_corpus(made, [folder], encoder=TinyEncoder())
        with Memory.of(made) as memory:
            memory.record([asked(NOW, "green field"), asked(NOW, "green field"), asked(NOW, "blue sky")])
            memory.record([asked(NOW - 60 * DAY, "old hat")])
        yield made


def phrases(catalogue: Catalogue) -> list[str]:
    return [interest.phrase for interest in catalogue.interests()]


def test_the_most_promising_phrases_become_interests_with_maps(catalogue: Catalogue) -> None:
    seen: list[Progress] = []
    report = expand_suggested(catalogue, 2, now=NOW, encoder=TinyEncoder(), on_progress=seen.append)
    assert [s.phrase for s in report.done] == ["green field", "blue sky"]
    assert (report.left, report.filled, report.uncoded) == ((), 10, 0)
    assert (report.bytes_each, report.bytes) == (1366, 2731)
    assert phrases(catalogue) == ["red", "green field", "blue sky"]
    assert len(maps(catalogue, "green field")) == len(maps(catalogue, "blue sky")) == 5
    assert seen[-1] == Progress(5, 5, 0)
    assert list(verify(catalogue)) == []
    again = expand_suggested(catalogue, 9, now=NOW, encoder=TinyEncoder())
    assert [s.phrase for s in again.done] == ["old hat"]
    assert expand_suggested(catalogue, 9, now=NOW).done == ()


def test_what_has_no_room_is_left_and_why_is_told(catalogue: Catalogue) -> None:
    report = expand_suggested(catalogue, 3, budget_bytes=2 * 1366 + 1000, now=NOW, encoder=TinyEncoder())
    assert [s.phrase for s in report.done] == ["green field", "blue sky"]
    assert [left.suggestion.phrase for left in report.left] == ["old hat"]
    assert report.left[0].reason == "no room for its 1,366 bytes"
    assert report.bytes <= 2 * 1366
    nothing = expand_suggested(catalogue, 1, budget_bytes=0, now=NOW)
    assert (nothing.done, len(nothing.left)) == ((), 1)
    assert phrases(catalogue) == ["red", "green field", "blue sky"]


def test_what_has_no_time_is_left(catalogue: Catalogue) -> None:
    report = expand_suggested(catalogue, 2, budget_seconds=0, now=NOW, encoder=TinyEncoder())
    assert (report.done, report.filled) == ((), 0)
    assert [left.reason for left in report.left] == ["0 s were over"] * 2
    assert phrases(catalogue) == ["red"], "nothing was begun"
    report = expand_suggested(catalogue, 2, budget_seconds=600, now=NOW, encoder=TinyEncoder())
    assert [s.phrase for s in report.done] == ["green field", "blue sky"]


def test_an_archived_interest_may_be_what_is_promising(catalogue: Catalogue) -> None:
    catalogue.add_interest("green field", weight=4.0)
    catalogue.archive_interest("green field", NOW)
    report = expand_suggested(catalogue, 1, now=NOW, encoder=TinyEncoder())
    assert [s.phrase for s in report.done] == ["green field"]
    found = catalogue.registry.find_interest("green field")
    assert found is not None
    assert (found.weight, found.archived) == (4.0, None)


def test_what_cannot_be_asked(catalogue: Catalogue, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one phrase is indexed ahead, got n = 0"):
        expand_suggested(catalogue, 0)
    with pytest.raises(UsageError, match="budget_bytes must be finite and >= 0, got -1"):
        expand_suggested(catalogue, 1, budget_bytes=-1)
    with pytest.raises(UsageError, match="budget_seconds must be finite"):
        expand_suggested(catalogue, 1, budget_seconds=float("nan"))
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as reading, pytest.raises(ReadOnlyError, match="cannot index ahead"):
        expand_suggested(reading, 1)
    (path / "codebook").unlink()
    with Catalogue.open(path, "w") as lost, pytest.raises(CatalogueError, match="is lost"):
        expand_suggested(lost, 1, now=NOW, encoder=TinyEncoder())
