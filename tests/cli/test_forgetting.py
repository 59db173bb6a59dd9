"""What is asked on the command line is recorded, weighs interests, and can be erased."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from texcat.catalogue import Catalogue
from texcat.catalogue.memory import Memory, Mention, Observation

from .conftest import QUESTION, Texcat, held_open

DAY = 86_400.0


def log(path: Path) -> list[Observation]:
    with Catalogue.open(path) as catalogue, Memory.of(catalogue, read_only=True) as memory:
        return list(memory.observations())


@pytest.fixture
def asked(empty: Path) -> Path:
    """A catalogue with one interest, that was asked of a cat today, and of a dog and a bird in 2020."""
    with Catalogue.open(empty, "w") as catalogue, Memory.of(catalogue) as memory:
        catalogue.add_interest("cat")
        then = time.mktime((2020, 5, 1, 12, 0, 0, 0, 0, -1))
        mentions = (Mention("dog", True), Mention("bird", True))
        memory.record([Observation(then, "stored", 1.0, mentions)])
        memory.record([Observation(time.time(), "stored", 1.0, (Mention("cat", True, 1.0),))])
    return empty


@pytest.mark.parametrize("command", ["query", "lookup"])
def test_what_is_asked_is_recorded_unless_it_is_not_to_be(
    texcat: Texcat, indexed: Path, photos: Path, command: str
) -> None:
    assert texcat(command, photos / "chelsea.jpg", QUESTION, "--no-observe", "-c", indexed).code == 0
    assert log(indexed) == []
    assert texcat(command, photos / "chelsea.jpg", QUESTION, "-c", indexed).code == 0
    (observed,) = log(indexed)
    assert (observed.tier, observed.count) == ("stored", 1)
    assert {m.phrase for m in observed.mentions if m.named} == {"cat"}


def test_it_is_recorded_while_another_process_writes(texcat: Texcat, indexed: Path, photos: Path) -> None:
    with held_open(indexed):
        assert texcat("query", photos / "chelsea.jpg", QUESTION, "-c", indexed).code == 0
    assert len(log(indexed)) == 1


def test_a_catalogue_can_be_made_that_records_nothing(texcat: Texcat, tmp_path: Path) -> None:
    made = texcat("init", "-c", tmp_path / "cat", "--no-observe", "--half-life-days", "7", "--json").json
    assert (made["observe"], made["half_life_days"]) == (False, 7.0)
    refused = texcat("init", "-c", tmp_path / "other", "--half-life-days", "0")
    assert refused.code == 2
    assert "half-life" in refused.err
    assert not (tmp_path / "other").exists()


def test_interests_are_listed_with_their_use(texcat: Texcat, asked: Path) -> None:
    (listed,) = texcat("interest", "list", "-c", asked, "--json").json["interests"]
    assert listed["weight"] == 1.0
    assert listed["use"] == pytest.approx(1.0, abs=1e-3)
    assert listed["effective_weight"] == pytest.approx(2 ** (1 / 11), abs=1e-3)
    assert listed["feedback"] == 0.0
    assert time.time() - listed["last_used"] < DAY
    assert time.strftime("%Y-%m-%d") in texcat("interest", "list", "-c", asked).out


def test_forget_all(texcat: Texcat, asked: Path) -> None:
    told = texcat("forget", "--all", "--yes", "-c", asked)
    assert told.code == 0
    assert "2 questions go, all that were asked" in told.out
    assert log(asked) == []
    with Catalogue.open(asked) as catalogue:
        assert [i.phrase for i in catalogue.interests()] == ["cat"]


def test_forget_a_phrase(texcat: Texcat, asked: Path) -> None:
    assert texcat("forget", "--phrase", " DOG", "--yes", "-c", asked, "--json").json == {"forgotten": 1}
    assert [{m.phrase for m in o.mentions} for o in log(asked)] == [{"bird"}, {"cat"}]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--until", "2020-05-02"], ["cat"]),
        (["--since", "2020-05-02"], ["bird"]),
        (["--since", "2020-05-01 11:59:59", "--until", "2020-05-01T12:00:01"], ["cat"]),
        (["--since", "2020-05-02", "--until", "2020-05-03"], ["bird", "cat"]),
    ],
)
def test_forget_a_range_of_time(texcat: Texcat, asked: Path, arguments: list[str], left: list[str]) -> None:
    assert texcat("forget", *arguments, "--yes", "-c", asked).code == 0
    assert [min(m.phrase for m in o.mentions) for o in log(asked)] == left


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to forget"),
        (["--all", "--phrase", "cat", "--yes"], "say what to forget"),
        (["--since", "2021-01-01", "--until", "2020-01-01", "--yes"], "starts before it ends"),
        (["--phrase", "", "--yes"], "is empty"),
        (["--since", "yesterday", "--yes"], "yesterday"),
        (["--all"], "nothing was erased: --yes"),
        (["--all", "--json"], "nothing was erased: --yes"),
    ],
)
def test_what_is_not_understood_erases_nothing(
    texcat: Texcat, asked: Path, arguments: list[str], message: str
) -> None:
    result = texcat("forget", *arguments, "-c", asked)
    assert result.code == 2
    assert message in result.err
    assert len(log(asked)) == 2


@pytest.mark.parametrize("question", ["", " \u200b\n", b"caf\xe9".decode("utf-8", "surrogateescape")])
def test_what_cannot_be_asked_is_refused_and_not_recorded(
    texcat: Texcat, indexed: Path, photos: Path, question: str
) -> None:
    result = texcat("query", photos / "chelsea.jpg", question, "-c", indexed)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert log(indexed) == []


def test_what_looks_like_code_is_a_question(texcat: Texcat, indexed: Path, photos: Path) -> None:
    question = "'); DROP TABLE observations; -- \x1b[31m\x07 ${jndi:ldap://x} <script> Where is the cat? 🐈"
    result = texcat("lookup", photos / "chelsea.jpg", question, "-c", indexed)
    assert result.code == 0
    assert "\x1b" not in result.out
    (observed,) = log(indexed)
    assert "cat" in {m.phrase for m in observed.mentions if m.named}
