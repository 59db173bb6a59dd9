"""Recording without waiting: what comes together, what waits, and what survives."""

from __future__ import annotations

import gc
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from texcat.catalogue import Catalogue
from texcat.catalogue import database as database_module
from texcat.catalogue.errors import RegistryError, UsageError
from texcat.catalogue.memory import Memory, Mention, Observation
from texcat.catalogue.observer import Observer
from texcat.catalogue.types import Interest


class Match(NamedTuple):
    interest: Interest
    weight: float


CAT, DOG = Interest(1, "cat"), Interest(2, "dog")
MATCHES = (Match(CAT, 0.75), Match(DOG, 0.25))


def words(question: str) -> list[str]:
    return list(dict.fromkeys(question.split()))


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat") as made:
        yield made


def log(catalogue: Catalogue) -> list[Observation]:
    with Memory.of(catalogue, read_only=True) as memory:
        return list(memory.observations())


def test_a_question_is_recorded_with_its_phrases_and_matches(catalogue: Catalogue) -> None:
    with Observer(Memory.of(catalogue), words) as observer:
        observer.observe("cat bowl", MATCHES, "coded", 0.5, at=7.0)
        observer.observe(None, MATCHES, "stored", 0.5, at=8.0)
    named, matched = log(catalogue)
    assert (named.time, named.tier, named.confidence, named.count) == (7.0, "coded", 0.5, 1)
    assert set(named.mentions) == {
        Mention("cat", True, 0.75),
        Mention("dog", False, 0.25),
        Mention("bowl", True),
    }
    assert set(matched.mentions) == {Mention("cat", False, 0.75), Mention("dog", False, 0.25)}


@pytest.mark.parametrize("question", ["cats", "cat"])
@pytest.mark.parametrize("phrase", ["cats", "cat"])
def test_one_and_many_of_an_interest_are_one_phrase(catalogue: Catalogue, question: str, phrase: str) -> None:
    with Observer(Memory.of(catalogue), words) as observer:
        observer.observe(question, (Match(replace(CAT, phrase=phrase), 1.0),), "stored", 1.0)
    (asked,) = log(catalogue)
    assert asked.mentions == (Mention(phrase, True, 1.0),)


def test_a_question_of_many_images_within_a_second_is_one(catalogue: Catalogue) -> None:
    with Observer(Memory.of(catalogue), words) as observer:
        for image in range(50):
            observer.observe("cat", (Match(CAT, 1.0),), "stored", 1.0, at=5.0 + image / 100)
        observer.observe("cat", MATCHES, "computed", 1.0, at=5.0)
        observer.observe("cat", MATCHES, "stored", 1.0, at=6.0)
        observer.observe("dog", MATCHES, "stored", 1.0, at=5.0)
    assert sorted((o.time, o.tier, o.count) for o in log(catalogue)) == [
        (5.0, "computed", 1),
        (5.0, "stored", 1),
        (5.0, "stored", 50),
        (6.0, "stored", 1),
    ]


def test_equal_matches_are_one_question_whatever_object_holds_them(catalogue: Catalogue) -> None:
    with Observer(Memory.of(catalogue), words) as observer:
        for _ in range(5):
            observer.observe(None, [Match(CAT, 0.75), Match(DOG, 0.25)], "stored", 1.0, at=5.0)
        observer.observe(None, [Match(CAT, 1.0)], "stored", 1.0, at=5.0)
    assert sorted(o.count for o in log(catalogue)) == [1, 5]


def test_it_is_written_within_a_second(catalogue: Catalogue) -> None:
    with Observer(Memory.of(catalogue), words) as observer:
        for question in ("cat", "dog"):
            observer.observe(question, (), "stored", 1.0)
            deadline = time.monotonic() + 20
            while question not in {m.phrase for o in log(catalogue) for m in o.mentions}:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_flush_writes_at_once_and_close_twice_is_fine(catalogue: Catalogue) -> None:
    observer = Observer(Memory.of(catalogue), words)
    observer.observe("cat", (), "stored", 1.0)
    observer.flush()
    assert len(log(catalogue)) == 1
    observer.observe("dog", (), "stored", 1.0)
    observer.close()
    observer.close()
    assert len(log(catalogue)) == 2
    with pytest.raises(UsageError, match="closed"):
        observer.observe("bird", (), "stored", 1.0)


def test_threads_may_observe_at_once(catalogue: Catalogue) -> None:
    def ask(number: int) -> None:
        for i in range(500):
            observer.observe(f"cat{number}", (), "stored", 1.0, at=float(i))

    with Observer(Memory.of(catalogue), words) as observer:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(o.count for o in log(catalogue)) == 2_000


def test_feedback_is_credited_to_the_matches(catalogue: Catalogue) -> None:
    with Observer(Memory.of(catalogue), words) as observer:
        observer.feedback(MATCHES, useful=True, at=1.0)
        observer.feedback(MATCHES[:1], useful=False, at=1.0)
    with Memory.of(catalogue, read_only=True) as memory:
        uses = memory.uses(1.0)
    assert (uses["cat"].feedback, uses["dog"].feedback) == (0.0, 0.25)
    assert uses["dog"].factor > 1.0


def test_while_another_keeps_the_lock_it_waits_and_loses_nothing(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database_module, "LOCK_SECONDS", 0.1)
    observer = Observer(Memory.of(catalogue), words)
    with Memory.of(catalogue) as other, caplog.at_level(logging.WARNING):
        with other.database.writing("keep the lock"):
            observer.observe("cat", (), "stored", 1.0)
            with pytest.raises(RegistryError, match="another process is writing"):
                observer.flush()
            deadline = time.monotonic() + 20
            while not caplog.records:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        observer.close()
    assert "waits to be recorded" in caplog.text
    assert len(caplog.records) == 1
    assert len(log(catalogue)) == 1


OBSERVE = """
import os, signal, sys, time
from texcat.catalogue import Catalogue
from texcat.catalogue.memory import Memory
from texcat.catalogue.observer import Observer
catalogue = Catalogue.open(sys.argv[1])
observer = Observer(Memory.of(catalogue), str.split)
for i in range(100):
    observer.observe(f"cat {i}", (), "stored", 1.0)
"""


@pytest.mark.parametrize("ending", ["", "raise KeyboardInterrupt", "sys.exit(3)", "os.fork() or sys.exit()"])
def test_a_clean_end_loses_nothing(catalogue: Catalogue, ending: str) -> None:
    # Nobody closes the observer; a forked child that ends writes nothing again.
    program = OBSERVE + "\nimport warnings; warnings.simplefilter('ignore')\n" + ending
    subprocess.run(
        [sys.executable, "-c", program, catalogue.path], stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert sum(o.count for o in log(catalogue)) == 100


def test_kill_loses_the_last_second_at_most(catalogue: Catalogue) -> None:
    program = OBSERVE + (
        "\nprint('asked', flush=True)\ntime.sleep(1)"
        "\nobserver.observe('last', (), 'stored', 1.0)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, catalogue.path], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert sum(o.count for o in log(catalogue)) in {100, 101}


def test_observing_costs_a_look_up_next_to_nothing(catalogue: Catalogue) -> None:
    # A look-up takes 25 us; a twentieth of that is 1.25. The quickest of many rounds is what it costs here.
    with Observer(Memory.of(catalogue), words) as observer:
        best = float("inf")
        gc.disable()
        try:
            for _ in range(50):
                started = time.perf_counter()
                for _ in range(1_000):
                    observer.observe("cat", MATCHES, "stored", 1.0)
                best = min(best, (time.perf_counter() - started) / 1_000)
        finally:
            gc.enable()
    assert best < 1.25e-6, f"{1e6 * best:.2f} us"
