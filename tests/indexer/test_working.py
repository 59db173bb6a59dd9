"""What look-ups missed is filled in the background, and everybody else goes first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from texcat.catalogue import Catalogue, CatalogueLockedError, ImageKey, ReadOnlyError
from texcat.catalogue.memory import Memory
from texcat.catalogue.verifying import verify
from texcat.indexer import Progress, index_corpus, working
from texcat.indexer.working import Task, Worker, queue

from ..catalogue.test_memory import asked
from ..cli.conftest import held_open
from ..fakes import TinyEncoder
from .test_expanding import QUICK, maps, photo


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    """Five photos under one interest; another was added later, and two phrases were missed."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(5):
        photo(folder / f"{seed}.png", seed)
    with Catalogue.create(tmp_path / "cat", groups=QUICK, shards=1) as made:
        made.add_interest("red")
        index_corpus(made, [folder], encoder=TinyEncoder())
        made.add_interest("blue sky", weight=2.0)
        miss(made, "green field", "green field", "green field", "old hat")
        yield made


def miss(catalogue: Catalogue, *phrases: str, confidence: float = 0.0) -> None:
    now = time.time()
    with Memory.of(catalogue) as memory:
        memory.record([replace(asked(now, p, confidence=confidence), tier="coded") for p in phrases])


def tasks(catalogue: Catalogue) -> list[Task]:
    with Memory.of(catalogue, read_only=True) as memory:
        return queue(catalogue, memory, time.time())


def test_the_queue_follows_from_what_is_held_and_what_was_missed(catalogue: Catalogue) -> None:
    assert tasks(catalogue) == [
        Task("green field", pytest.approx(3, rel=1e-3), 5),
        Task("blue sky", 2.0, 5),
        Task("old hat", pytest.approx(1, rel=1e-3), 5),
    ]
    miss(catalogue, "red", "tall tree", confidence=0.7)
    assert [t.phrase for t in tasks(catalogue)] == ["green field", "blue sky", "old hat"], (
        "interests answered"
    )


def test_a_pruned_interest_comes_back_when_it_is_named_again(catalogue: Catalogue) -> None:
    catalogue.archive_interest("red", time.time())
    assert "red" not in [t.phrase for t in tasks(catalogue)]
    miss(catalogue, "red", confidence=1.0)
    assert Task("red", pytest.approx(1, rel=1e-3), 5) in tasks(catalogue)


def test_an_interest_that_the_user_removed_stays_away(catalogue: Catalogue) -> None:
    catalogue.add_interest("green field")
    catalogue.remove_interest("green field")
    assert [t.phrase for t in tasks(catalogue)] == ["blue sky", "old hat"]


def test_images_without_a_code_are_no_work(catalogue: Catalogue, tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "uncoded", groups=QUICK) as made:
        index_corpus(made, [tmp_path / "photos"], encoder=TinyEncoder(), codes=False)
        made.add_interest("red")
        miss(made, "green field")
        assert tasks(made) == []


def test_the_queue_is_drained_the_most_promising_first(catalogue: Catalogue) -> None:
    seen: list[tuple[str, Progress]] = []
    worker = Worker(
        encoder=TinyEncoder(), on_progress=lambda phrase, progress: seen.append((phrase, progress))
    )
    assert worker.drain(catalogue)
    report = worker.report()
    assert report.done == ("green field", "blue sky", "old hat")
    assert (report.filled, report.refused, report.left, report.gave_way) == (15, (), 0, 0)
    assert seen[-1] == ("old hat", Progress(5, 5, 0))
    assert all(len(maps(catalogue, p)) == 5 for p in ("red", *report.done))
    assert tasks(catalogue) == []
    assert list(verify(catalogue)) == []


def test_what_cannot_be_filled_is_told_and_does_not_stop_the_rest(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    shown = tmp_path / "shown.png"
    photo(shown, 77)
    catalogue.add_interest("mine", [shown], weight=50.0)
    shown.unlink()
    worker = Worker(encoder=TinyEncoder())
    assert worker.drain(catalogue)
    report = worker.report()
    assert [phrase for phrase, _ in report.refused] == ["mine"]
    assert len(report.done) == 3


def test_it_stops_after_the_batch_under_way_and_goes_on_later(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "BATCH", 2)
    stop = Event()

    def after_two(phrase: str, progress: Progress) -> None:
        if progress.done == 2:
            stop.set()

    worker = Worker(stop=stop, encoder=TinyEncoder(), on_progress=after_two)
    assert not worker.drain(catalogue)
    assert (worker.report().filled, worker.report().done) == (2, ())
    assert len(maps(catalogue, "green field")) == 2
    assert Worker(encoder=TinyEncoder()).drain(catalogue)
    assert len(maps(catalogue, "green field")) == 5


@pytest.mark.parametrize("how", ["remove", "archive"])
def test_an_interest_that_goes_while_it_is_worked_on(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(working, "BATCH", 2)

    def goes(phrase: str, progress: Progress) -> None:
        if (phrase, progress.done) == ("green field", 2):  # as another thread of this process may
            if how == "remove":
                catalogue.remove_interest(phrase)
            else:
                catalogue.archive_interest(phrase, time.time())

    assert Worker(encoder=TinyEncoder(), on_progress=goes).drain(catalogue)
    assert catalogue.store.stats().maps == {1: 5, 2: 5, 4: 5}
    assert list(verify(catalogue)) == []


def test_a_writer_is_let_go_first(catalogue: Catalogue) -> None:
    path = catalogue.path
    record = replace(
        catalogue.store.read(next(catalogue.store.keys())), code=next(catalogue.store.codes())[1]
    )
    keys = [ImageKey.of(b"%d" % number) for number in range(300)]
    catalogue.store.write(replace(record, key=key) for key in keys)
    catalogue.registry.record_files([], dict.fromkeys(keys, (64, 64)))
    catalogue.close()
    program = (
        "import sys\nfrom threading import Event\nfrom tests.fakes import TinyEncoder\n"
        "from texcat.indexer.working import Worker\n"
        "def told(phrase, progress): print(progress.done, flush=True)\n"
        "report = Worker(encoder=TinyEncoder(), on_progress=told).run(sys.argv[1], once=True)\n"
        "print('report', report.gave_way, report.filled, flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=os.environ
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) > 0:
                break
        with Catalogue.open(path, "w") as writing:  # is not refused
            assert writing.interests()
            assert child.poll() is None
        rest = child.stdout.read().splitlines()
    assert child.returncode == 0
    _, gave_way, filled = rest[-1].split()
    assert (int(gave_way) >= 1, int(filled)) == (True, 3 * 305)
    with Catalogue.open(path) as reading:
        assert reading.store.stats().maps == dict.fromkeys((1, 2, 3, 4), 305)


def test_who_can_wait_is_refused_while_another_writes(catalogue: Catalogue) -> None:
    with pytest.raises(CatalogueLockedError, match="is being written by process"):
        Catalogue.open(catalogue.path, "w", gives_way=True)
    path = catalogue.path
    catalogue.close()
    told: list[str] = []
    with held_open(path):
        report = Worker(on_waiting=told.append).run(path, once=True, seconds=0.3)
    assert (report.filled, report.done) == (0, ())
    assert "is being written by process" in told[0]


def test_a_catalogue_open_to_read_is_not_filled(catalogue: Catalogue) -> None:
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as reading, pytest.raises(ReadOnlyError, match="cannot fill maps"):
        Worker().drain(reading)


def test_a_process_that_is_killed_holds_nobody_up(catalogue: Catalogue) -> None:
    path = catalogue.path
    catalogue.close()
    program = (
        "import sys, time\nfrom texcat.catalogue import Catalogue\n"
        "with Catalogue.open(sys.argv[1], 'w', gives_way=True): print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    Catalogue.open(path, "w").close()
