"""What is recorded, weighed and forgotten, on SQLite and on PostgreSQL."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from sqlalchemy import text
from texcat.catalogue import Catalogue
from texcat.catalogue import memory as memory_module
from texcat.catalogue.database import Database
from texcat.catalogue.errors import InvalidPhraseError, ReadOnlyError, RegistryError, UsageError
from texcat.catalogue.memory import Memory, Mention, Node, Observation
from texcat.catalogue.registry import Registry, sqlite_url
from texcat.catalogue.weights import Use

from .test_registry_access import without_rights_to_write

DAY = 86_400.0


@pytest.fixture
def memory(registry: Registry, empty_url: str) -> Iterator[Memory]:
    """The memory of an empty registry, once on each kind of server."""
    with Memory(Database.open(empty_url)) as opened:
        yield opened


def asked(time: float, *phrases: str, confidence: float = 0.5, **matched: float) -> Observation:
    """A question that names `phrases`, and that the interests `matched` answer with these weights."""
    mentions = [Mention(phrase, True, matched.pop(phrase, 0.0)) for phrase in phrases]
    mentions += [Mention(phrase, False, weight) for phrase, weight in matched.items()]
    return Observation(time, "stored", confidence, tuple(mentions))


def test_what_is_recorded_is_there_in_order(memory: Memory) -> None:
    first = Observation(2.0, "coded", 0.25, (Mention("red car", True), Mention("car", False, 0.75)), 3)
    second = Observation(1.0, "stored", 0.5, ())
    memory.record([first, second])
    memory.record([])
    memory.record([asked(3.0, "car")])
    log = list(memory.observations())
    assert [(o.time, o.tier, o.confidence, o.count) for o in log] == [
        (2.0, "coded", 0.25, 3),
        (1.0, "stored", 0.5, 1),
        (3.0, "stored", 0.5, 1),
    ]
    assert log[0].mentions == first.mentions
    assert log[1].mentions == ()
    assert list(memory.observations(after=log[1].id)) == log[2:]


def test_a_named_phrase_counts_whole_and_a_match_by_weight_and_confidence(memory: Memory) -> None:
    observation = asked(0.0, "red car", "car", car=0.6, wheel=0.4)
    assert observation.amounts() == {"red car": 1.0, "car": 1.0, "wheel": pytest.approx(0.2)}
    memory.record([observation])
    assert memory.uses(0.0) == {
        "red car": Use(1.0, 0.0, 0.0),
        "car": Use(1.0, 0.0, 0.0),
        "wheel": Use(pytest.approx(0.2), 0.0, 0.0),
    }


def test_what_was_missed_counts_with_what_interests_could_not_answer(memory: Memory) -> None:
    whole, half = asked(0.0, "red car", confidence=0.0), asked(0.0, "red car", cat=1.0, confidence=0.25)
    answered = asked(7.0, "red car", "dog", confidence=0.75)
    memory.record([asked(9.0, "red car", confidence=0.0)])  # all of it was stored
    memory.record([replace(whole, tier="coded"), replace(half, tier="computed")])
    assert memory.missed(0.0) == {"red car": Use(1.5, 0.0, 0.0)}, "a match is no name"
    memory.record([replace(answered, tier="coded")])
    missed = memory.missed(10.0, half_life=10.0)
    assert missed == {"red car": Use(0.75, 0.0, 7.0), "dog": Use(0.0, 0.0, 7.0)}
    assert memory.last_observation() == 4


def test_what_was_missed_before_an_interest_was_removed_is_no_reason_to_bring_it_back(
    registry: Registry, memory: Memory
) -> None:
    missed = replace(asked(time.time(), "dog", confidence=0.0), tier="coded")
    memory.record([missed])
    registry.add_interest("dog")
    registry.remove_interest("dog")
    assert memory.missed(time.time()) == {}
    memory.record([replace(missed, time=time.time())])
    assert memory.missed(time.time())["dog"].amount == pytest.approx(1)


def test_use_decays_with_time_and_rises_with_questions_and_feedback(memory: Memory) -> None:
    memory.record([asked(0.0, "cat"), asked(10 * DAY, "cat", "dog")])
    memory.feedback({"dog": 0.75, "bird": 0.25}, useful=False, time=10 * DAY)
    memory.feedback({"dog": 0.5}, useful=True, time=20 * DAY)
    uses = memory.uses(20 * DAY, half_life=10 * DAY)
    assert uses == {
        "cat": Use(0.25 + 0.5, 0.0, 10 * DAY),
        "dog": Use(0.5, 0.5 - 0.75 / 2, 10 * DAY),
        "bird": Use(0.0, -0.125, None),
    }
    assert memory.uses(20 * DAY, half_life=20 * DAY)["cat"].amount == pytest.approx(0.5 + math.sqrt(0.5))


def test_a_clock_that_was_ahead_or_is_set_back_only_makes_use_recent(memory: Memory) -> None:
    memory.record([asked(1e12, "cat"), asked(100.0, "cat"), asked(50.0, "cat")])
    assert memory.uses(100.0, half_life=50.0)["cat"] == Use(1 + 1 + 0.5, 0.0, 1e12)


def test_the_order_of_recording_does_not_matter(memory: Memory) -> None:
    questions = [asked(float(t), f"p{t % 3}", confidence=0.3, other=0.7) for t in range(20)]
    memory.record(questions[::2])
    memory.record(questions[1::2])
    there = memory.uses(100.0, 7.0)
    memory.forget()
    memory.record(questions[::-1])
    again = memory.uses(100.0, 7.0)
    assert there.keys() == again.keys()
    for phrase, use in there.items():
        assert again[phrase].amount == pytest.approx(use.amount)


def test_history_is_use_as_it_was_then(memory: Memory) -> None:
    memory.record([asked(0.0, "cat"), asked(10.0, "cat"), asked(10.0, "dog")])
    memory.feedback({"dog": 1.0}, useful=True, time=20.0)
    history = memory.history([5.0, 20.0], half_life=5.0)
    assert history["cat"] == [Use(0.5, 0.0, 0.0), Use(0.25 + 0.0625, 0.0, 10.0)]
    assert history["dog"] == [Use(0.0, 0.0, None), Use(0.25, 1.0, 10.0)]


def test_the_log_is_bounded(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "MAX_OBSERVATIONS", 3)
    memory.record([asked(float(t), f"phrase {t}") for t in range(5)])
    assert [o.time for o in memory.observations()] == [2.0, 3.0, 4.0]
    assert [node.phrase for node in memory.nodes()] == ["phrase 2", "phrase 3", "phrase 4"]


def test_an_interest_that_is_removed_stays_a_phrase_with_its_history(
    registry: Registry, memory: Memory
) -> None:
    registry.add_interest("Cat", weight=2.0)
    assert memory.nodes() == [Node("cat", 2.0, False)]
    memory.record([asked(0.0, cat=1.0)])
    registry.remove_interest("cat")
    assert memory.nodes() == [Node("cat", None, False)]
    assert memory.uses(0.0)["cat"].amount == 0.5
    registry.add_interest("cat")
    assert memory.uses(0.0)["cat"].amount == 0.5


def test_candidates_are_members_of_the_vocabulary(registry: Registry, memory: Memory) -> None:
    registry.add_interest("cat")
    memory.add_candidates(["Dog", "cat"])
    memory.add_candidates(f"number {i}" for i in range(1_500))
    assert memory.nodes()[:2] == [Node("cat", 1.0, True), Node("dog", None, True)]
    assert len(memory.nodes()) == 1_502
    with pytest.raises(InvalidPhraseError):
        memory.add_candidates(["bird", "\x00"])
    assert "bird" not in {node.phrase for node in memory.nodes()}


class TestForgetting:
    @pytest.fixture(autouse=True)
    def _asked(self, registry: Registry, memory: Memory) -> None:
        registry.add_interest("cat")
        memory.add_candidates(["dog"])
        memory.record([asked(0.0, "cat"), asked(10.0, "cat", "red car"), asked(20.0, "dog", "red car")])
        memory.feedback({"cat": 1.0}, useful=True, time=10.0)
        registry.put_question("e", "where is the red car?", np.ones(2, np.float32))

    def test_everything(self, registry: Registry, memory: Memory) -> None:
        assert memory.forget() == 3
        assert list(memory.observations()) == []
        assert memory.uses(0.0) == {}
        assert memory.nodes() == [Node("cat", 1.0, False), Node("dog", None, True)]
        assert registry.counts().questions == 0
        assert memory.forget() == 0

    def test_a_phrase(self, registry: Registry, memory: Memory) -> None:
        assert memory.forget_phrase(" RED Car ") == 2
        assert [node.phrase for node in memory.nodes()] == ["cat", "dog"]
        assert [[m.phrase for m in o.mentions] for o in memory.observations()] == [["cat"], ["cat"], ["dog"]]
        assert registry.counts().questions == 0
        assert memory.forget_phrase("red car") == 0

    def test_the_phrase_of_an_interest_stays_an_interest(self, memory: Memory) -> None:
        assert memory.forget_phrase("cat") == 2
        assert memory.nodes()[0] == Node("cat", 1.0, False)
        assert "cat" not in memory.uses(0.0)
        # The question that was about nothing else is gone.
        assert [o.time for o in memory.observations()] == [10.0, 20.0]

    def test_a_range_of_time(self, registry: Registry, memory: Memory) -> None:
        assert memory.forget_between(10.0, 20.0) == 1
        assert [o.time for o in memory.observations()] == [0.0, 20.0]
        assert memory.uses(20.0)["cat"].feedback == 0.0
        assert registry.counts().questions == 0
        assert memory.forget_between(-math.inf, math.inf) == 2
        assert [node.phrase for node in memory.nodes()] == ["cat", "dog"]
        with pytest.raises(UsageError, match="starts before it ends"):
            memory.forget_between(1.0, 1.0)

    def test_ids_go_on_so_that_a_reader_misses_nothing(self, memory: Memory) -> None:
        last = max(o.id for o in memory.observations())
        memory.forget()
        memory.record([asked(30.0, "bird")])
        assert [o.time for o in memory.observations(after=last)] == [30.0]


def test_nothing_of_what_was_forgotten_is_left_in_the_files(tmp_path: Path) -> None:
    secret = "purple wombat"
    with Catalogue.create(tmp_path / "cat") as catalogue, Memory.of(catalogue) as memory:
        memory.record([asked(float(t), secret, f"other {t}") for t in range(100)])
        memory.forget_phrase(secret)
        files = [path for path in catalogue.path.iterdir() if path.name.startswith("registry")]
        assert files
        assert [path.name for path in files if secret.encode() in path.read_bytes()] == []


HOLD = """
import sys
from texcat.catalogue import Catalogue
with Catalogue.open(sys.argv[1], "w"):
    print("open", flush=True)
    sys.stdin.read()
"""


class TestAccess:
    def test_what_is_asked_is_recorded_while_another_process_writes(self, tmp_path: Path) -> None:
        Catalogue.create(tmp_path / "cat").close()
        command = [sys.executable, "-c", HOLD, tmp_path / "cat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            with Catalogue.open(tmp_path / "cat") as reader, Memory.of(reader) as memory:
                memory.record([asked(0.0, "cat")])
                with Memory.of(reader, read_only=True) as other:
                    assert len(list(other.observations())) == 1
                    with pytest.raises(ReadOnlyError, match="record what was asked"):
                        other.record([asked(0.0, "cat")])
            writer.communicate()
        assert writer.returncode == 0

    def test_a_registry_that_cannot_be_written_is_told_at_once(self) -> None:
        with TemporaryDirectory(prefix="texcat-") as name:  # every user can reach it
            Path(name).chmod(0o755)
            with Catalogue.create(Path(name) / "cat") as catalogue:
                with (
                    without_rights_to_write(catalogue.path),
                    pytest.raises(RegistryError, match="nothing that is asked is recorded"),
                ):
                    Memory.of(catalogue)
                Memory.of(catalogue).close()


RECORD = """
import sys
from texcat.catalogue.database import Database
from texcat.catalogue.memory import Memory, Mention, Observation
with Memory(Database.open(sys.argv[1])) as memory:
    for i in range(100):
        mentions = (Mention("shared", True), Mention(f"{i % 7}", True))
        memory.record([Observation(float(i), "stored", 1.0, mentions)])
"""


def test_two_processes_record_at_once_and_nothing_is_lost(registry: Registry, empty_url: str) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", RECORD, empty_url], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in running:
        _, told = process.communicate(timeout=100)
        assert process.returncode == 0, told
    with Memory(Database.open(empty_url)) as memory:
        assert len(list(memory.observations())) == 200
        uses = memory.uses(0.0)
        assert uses["shared"].amount == pytest.approx(200)
        assert sum(uses[str(i)].amount for i in range(7)) == pytest.approx(200)


def test_what_an_older_registry_holds_becomes_phrases(tmp_path: Path) -> None:
    from alembic import command
    from texcat.catalogue import migrations

    url = sqlite_url(tmp_path / "registry.sqlite")
    with Registry.create(url) as registry:
        registry.add_interest("dog")
        registry.add_interest("cat")
    with Database.open(url).writing("go back") as connection:
        command.downgrade(migrations.config(connection), "0003")
        assert connection.execute(text("SELECT count(*) FROM interests")).scalar_one() == 2
    with Memory(Database.open(url)) as memory:
        assert [node.phrase for node in memory.nodes()] == ["dog", "cat"]
