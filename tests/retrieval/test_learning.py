"""A retriever learns: it records what is asked, as far as it may, and weighs interests by it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from texcat.catalogue import Catalogue
from texcat.catalogue import observer as observer_module
from texcat.catalogue.errors import InvalidPhraseError, ReadOnlyError, UsageError
from texcat.catalogue.memory import Memory, Mention, Observation
from texcat.indexer import index_corpus
from texcat.retrieval import Lookup, Retriever

from ..fakes import TinyEncoder
from ..postgres import postgres_server

PHRASES = ("red kite", "green field", "blue sea")


@pytest.fixture
def catalogue(tmp_path: Path, photos: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat") as made:
        for phrase in PHRASES:
            made.add_interest(phrase)
        index_corpus(made, [photos], encoder=TinyEncoder())
        yield made


@pytest.fixture
def retriever(catalogue: Catalogue) -> Iterator[Retriever]:
    with Retriever(catalogue, encoder=TinyEncoder()) as made:
        yield made


def log(catalogue: Catalogue) -> list[Observation]:
    with Memory.of(catalogue, read_only=True) as memory:
        return list(memory.observations())


def factor(catalogue: Catalogue, phrase: str) -> float:
    with Memory.of(catalogue, read_only=True) as memory:
        return memory.uses(0.0)[phrase].factor  # what lies ahead counts in full


def weight(hit: Lookup, phrase: str) -> float:
    return next(match.weight for match in hit.matches if match.interest.phrase == phrase)


def test_a_look_up_records_the_question_its_matches_and_its_tier(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    hit = retriever.lookup(photos / "a.png", "Where is the red kite near the old bridge?", top=2)
    retriever.close()
    (observed,) = log(catalogue)
    assert (observed.tier, observed.count) == (hit.tier, 1)
    assert observed.confidence == hit.confidence
    matched = {m.interest.phrase: m.weight for m in hit.matches}
    assert {m.phrase: m.weight for m in observed.mentions if m.weight} == matched
    assert {m.phrase for m in observed.mentions if m.named} == {"red kite", "old bridge"}


def test_what_is_asked_about_and_not_known_becomes_a_node(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    retriever.lookup(photos / "a.png", "Where is the old bridge?")
    retriever.close()
    with Memory.of(catalogue, read_only=True) as memory:
        nodes = {node.phrase: node.weight for node in memory.nodes()}
    assert nodes == {**dict.fromkeys(PHRASES, 1.0), "old bridge": None}


def test_look_ups_by_matches_are_recorded_without_words(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite", top=1, observe=False)
    retriever.lookup(hit.key, matches=hit.matches)
    retriever.close()
    assert [o.mentions for o in log(catalogue)] == [(Mention("red kite", False, 1.0),)]


def test_many_look_ups_of_one_question_are_recorded_once(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite", observe=False)
    assert len(list(retriever.lookup_many([hit.key] * 5, hit.matches))) == 5
    retriever.close()
    assert [o.count for o in log(catalogue)] == [1]


def test_what_is_given_out_as_an_allocation_counts_once(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    retriever.allocate(retriever.lookup(photos / "a.png", "red kite"))
    retriever.close()
    assert sum(o.count for o in log(catalogue)) == 1


def test_one_look_up_or_a_retriever_or_a_catalogue_may_be_left_out(
    catalogue: Catalogue, photos: Path, tmp_path: Path
) -> None:
    with Retriever(catalogue, encoder=TinyEncoder()) as retriever:
        retriever.lookup(photos / "a.png", "red kite", observe=False)
    with Retriever(catalogue, encoder=TinyEncoder(), observe=False) as retriever:
        retriever.lookup(photos / "a.png", "red kite")
    assert log(catalogue) == []
    with Catalogue.create(tmp_path / "silent", observe=False) as silent:
        silent.add_interest("red kite")
        index_corpus(silent, [photos], encoder=TinyEncoder())
        with Retriever(silent, encoder=TinyEncoder()) as retriever:
            retriever.lookup(photos / "a.png", "red kite")
        assert log(silent) == []
        with Retriever(silent, encoder=TinyEncoder(), observe=True) as retriever:
            retriever.lookup(photos / "a.png", "red kite")
        assert len(log(silent)) == 1


def test_a_catalogue_that_is_open_to_read_records_when_it_is_told_to(
    catalogue: Catalogue, photos: Path
) -> None:
    catalogue.close()
    with Catalogue.open(catalogue.path) as reader:
        with Retriever(reader, encoder=TinyEncoder()) as retriever:
            hit = retriever.lookup(photos / "a.png", "red kite")
            with pytest.raises(ReadOnlyError, match="note feedback"):
                retriever.feedback(hit, useful=True)
        assert log(catalogue) == []
        with Retriever(reader, encoder=TinyEncoder(), observe=True) as retriever:
            retriever.feedback(retriever.lookup(photos / "a.png", "red kite"), useful=True)
    assert len(log(catalogue)) == 1


def test_closing_the_catalogue_writes_what_was_asked(catalogue: Catalogue, photos: Path) -> None:
    catalogue.close()
    with Catalogue.open(catalogue.path) as reader:
        Retriever(reader, encoder=TinyEncoder(), observe=True).lookup(photos / "a.png", "red kite")
    assert len(log(catalogue)) == 1


def test_after_close_look_ups_are_answered_and_not_recorded(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    retriever.close()
    retriever.close()
    assert retriever.lookup(photos / "a.png", "red kite").matches
    assert log(catalogue) == []


def test_feedback_moves_the_weights_of_the_next_look_up(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    question = "a red kite over a green field"
    before = retriever.lookup(photos / "a.png", question, top=2, observe=False)
    only_kite = retriever.lookup(photos / "a.png", "red kite", top=1, observe=False)
    retriever.feedback(only_kite, useful=True)
    after = retriever.lookup(photos / "a.png", question, top=2, observe=False)
    assert weight(after, "red kite") > weight(before, "red kite")
    assert after.matches[0].interest.weight == 1.0, "the user's own weight is what it was"
    # 2 ** (s / (10 + s)) with s = 5 for one useful answer; nothing else counts yet.
    kite, field = (weight(before, phrase) for phrase in ("red kite", "green field"))
    gain = 2 ** (5 / 15)
    assert weight(after, "red kite") == pytest.approx(gain * kite / (gain * kite + field), rel=1e-3)
    for _ in range(2):
        retriever.feedback(only_kite, useful=False)
    last = retriever.lookup(photos / "a.png", question, top=2, observe=False)
    assert weight(last, "red kite") < kite
    assert factor(catalogue, "red kite") == pytest.approx(2 ** (-5 / 15))


def test_feedback_for_nothing_is_refused(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "bare") as bare:
        index_corpus(bare, [photos], encoder=TinyEncoder())
        with Retriever(bare, encoder=TinyEncoder()) as retriever:
            hit = retriever.lookup(photos / "a.png", "red kite")
            with pytest.raises(UsageError, match="no interest has a part"):
                retriever.feedback(hit, useful=True)


def test_use_moves_the_weights_when_they_are_worked_out_anew(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    question = "a red kite over a green field"
    before = retriever.lookup(photos / "a.png", question, top=2, observe=False)
    with Memory.of(catalogue) as memory:
        memory.record([Observation(0.0, "stored", 1.0, (Mention("red kite", True),))] * 20)
    retriever.refresh()
    faded = retriever.lookup(photos / "a.png", question, top=2, observe=False)
    assert weight(faded, "red kite") == pytest.approx(weight(before, "red kite")), "that was in 1970"
    with Memory.of(catalogue) as memory:
        memory.record([Observation(9e9, "stored", 1.0, (Mention("red kite", True),))] * 20)
    retriever.refresh()
    after = retriever.lookup(photos / "a.png", question, top=2, observe=False)
    kite, field = (weight(before, phrase) for phrase in ("red kite", "green field"))
    gain = 2 ** (20 / 30)
    assert weight(after, "red kite") == pytest.approx(gain * kite / (gain * kite + field))


ASK = """
import os, signal, sys, time
from texcat.catalogue import Catalogue
from texcat.retrieval import Retriever
catalogue = Catalogue.open(sys.argv[1], "w")
retriever = Retriever(catalogue, compute=False)
hit = retriever.lookup(sys.argv[2], "red kite")
for i in range(50):
    retriever.lookup(hit.key, matches=hit.matches)
assert "torch" not in sys.modules
"""


@pytest.fixture
def asked(catalogue: Catalogue, photos: Path) -> Callable[[str], int]:
    """Runs a process that makes 51 look-ups and then the program given; tells how many are recorded."""
    with Retriever(catalogue, encoder=TinyEncoder()) as retriever:
        retriever.embedding("red kite")
    catalogue.close()

    def run(ending: str) -> int:
        program = [sys.executable, "-c", ASK + ending, str(catalogue.path), str(photos / "a.png")]
        done = subprocess.run(program, stderr=subprocess.PIPE, timeout=100, check=False, text=True)
        assert done.returncode in {0, 1, -signal.SIGKILL}, done.stderr
        with Catalogue.open(catalogue.path) as opened:
            return sum(o.count for o in log(opened))

    return run


@pytest.mark.parametrize("ending", ["", "catalogue.close()"])
def test_a_clean_end_loses_nothing(asked: Callable[[str], int], ending: str) -> None:
    assert asked(ending) == 51


def test_kill_loses_the_last_second_at_most(asked: Callable[[str], int]) -> None:
    # What was asked is written within a second or so: when it is, one more is asked, and the process killed.
    ending = (
        "from texcat.catalogue.memory import Memory\n"
        "memory = Memory.of(catalogue, read_only=True)\n"
        "while sum(o.count for o in memory.observations()) < 51: time.sleep(0.05)\n"
        "retriever.lookup(hit.key, matches=hit.matches)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert asked(ending) in {51, 52}


HOSTILE = (
    "the red kite " * 8_000,
    "where is \x07 the\x1b[31m red kite\x00?",
    "أين الطائرة الحمراء؟ \u202ered kite\u202c",
    "🐈🏳️‍🌈🪁",
    "'); DROP TABLE observations; -- ${jndi:ldap://x} {{7*7}} <script>alert(1)</script> ../../etc/passwd",
)


def test_hostile_questions_are_answered_and_recorded(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    for question in HOSTILE:
        assert retriever.lookup(photos / "a.png", question).matches
    retriever.close()
    observed = log(catalogue)
    assert len(observed) == len(HOSTILE)
    assert {m.phrase for m in observed[0].mentions if m.named} == {"red kite"}
    assert not {m.phrase for m in observed[3].mentions if m.named}
    with Memory.of(catalogue) as memory:
        assert memory.forget() == len(HOSTILE)


@pytest.mark.parametrize("question", ["", "\n \u200b", "red \udcff kite"])
def test_what_cannot_be_asked_is_refused_and_not_recorded(
    catalogue: Catalogue, retriever: Retriever, photos: Path, question: str
) -> None:
    with pytest.raises(InvalidPhraseError):
        retriever.lookup(photos / "a.png", question)
    retriever.close()
    assert log(catalogue) == []


def test_a_clock_that_is_set_back_loses_nothing(
    catalogue: Catalogue, retriever: Retriever, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now in (2e9, 1e9, 0.0):
        monkeypatch.setattr(observer_module, "time", lambda now=now: now)
        retriever.lookup(photos / "a.png", "red kite")
    retriever.close()
    assert sorted(o.time for o in log(catalogue)) == [0.0, 1e9, 2e9]
    with Memory.of(catalogue, read_only=True) as memory:
        assert memory.uses(1e9)["red kite"].amount == pytest.approx(2.0, abs=1e-3)


def test_an_interest_may_go_while_it_is_observed(
    catalogue: Catalogue, retriever: Retriever, photos: Path
) -> None:
    for _ in range(10):
        hit = retriever.lookup(photos / "a.png", "red kite")
        catalogue.remove_interest("red kite")
        assert "red kite" not in {m.interest.phrase for m in retriever.lookup(hit.key, "red kite").matches}
        catalogue.add_interest("red kite")
    retriever.close()
    assert sum(o.count for o in log(catalogue)) == 20
    assert factor(catalogue, "red kite") > 1


OBSERVE_AT_ONCE = """
import sys
from texcat.catalogue import Catalogue
from texcat.retrieval import Retriever
with Catalogue.open(sys.argv[1]) as catalogue, Retriever(catalogue, compute=False, observe=True) as retriever:
    hit = retriever.lookup(sys.argv[2], "red kite")
    for _ in range(6):
        for _ in range(100):
            retriever.lookup(hit.key, "red kite")
        retriever._learning.observer.flush()
"""


@pytest.mark.parametrize("server", ["sqlite", "postgresql"])
def test_two_processes_observe_at_once(server: str, tmp_path: Path, photos: Path) -> None:
    with ExitStack() as stack:
        database = "" if server == "sqlite" else stack.enter_context(postgres_server())
        with Catalogue.create(tmp_path / "cat", database=database) as catalogue:
            catalogue.add_interest("red kite")
            index_corpus(catalogue, [photos], encoder=TinyEncoder())
            Retriever(catalogue, encoder=TinyEncoder(), observe=False).embedding("red kite")
        program = [sys.executable, "-c", OBSERVE_AT_ONCE, str(tmp_path / "cat"), str(photos / "a.png")]
        running = [subprocess.Popen(program, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        assert [process.communicate(timeout=110)[1] for process in running] == ["", ""]
        assert sum(o.count for o in log(catalogue)) == 2 * 601
