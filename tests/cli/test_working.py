from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from texcat.catalogue import Catalogue
from texcat.catalogue.memory import Memory, Mention, Observation

from .conftest import Texcat


@pytest.fixture
def missed(indexed: Path) -> Path:
    """A catalogue of three photos, where a question about a red scarf was not answered from the store."""
    question = Observation(time.time(), "coded", 0.0, (Mention("red scarf", True),))
    with Catalogue.open(indexed, "w") as catalogue, Memory.of(catalogue) as memory:
        memory.record([question, replace(question, mentions=(Mention("wooden table", True),)), question])
    return indexed


def test_work_fills_what_was_missed(texcat: Texcat, missed: Path) -> None:
    shown = texcat("work", "--once", "-c", missed)
    assert (shown.code, shown.err) == (0, "")
    assert "6 maps made" in shown.out
    assert "2 phrases filled: red scarf, wooden table" in shown.out
    again = texcat("work", "--once", "-c", missed, "--json").json
    assert (again["done"], again["filled"], again["left"]) == ([], 0, 0)


def test_work_is_stopped_by_a_signal_and_ends_well(missed: Path) -> None:
    command = [sys.executable, "-c", "from texcat.cli.main import main\nmain()", "work", "-c", missed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        with Catalogue.open(missed) as catalogue:
            while sum(catalogue.store.stats().maps.values()) < 15:
                assert running.poll() is None
                time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate()
    assert (running.returncode, err) == (0, "")
    assert "6 maps made" in out


def test_suggested_phrases_are_indexed_ahead(texcat: Texcat, missed: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("blue scarf\nsteam engine\n")
    texcat("suggest", "--vocabulary", words, "-c", missed)
    report = texcat("expand", "--suggested", 1, "-c", missed, "--json").json
    assert [s["phrase"] for s in report["done"]] == ["red scarf"]
    assert (report["filled"], report["left"]) == (3, [])
    shown = texcat("expand", "--suggested", 5, "--budget-mb", 0, "-c", missed).out
    assert "no: no room for its" in shown
    assert "0 maps made" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either phrases, or --suggested N"),
        (("cat", "--suggested", "1"), "give either phrases, or --suggested N"),
        (("--suggested", "1", "--exact"), "--exact goes with phrases"),
        (("cat", "--budget-mb", "1"), "go with --suggested"),
        (("--suggested", "0"), "'--suggested'"),
    ],
)
def test_what_cannot_be_expanded(
    texcat: Texcat, indexed: Path, arguments: tuple[str, ...], message: str
) -> None:
    told = texcat("expand", *arguments, "-c", indexed)
    assert told.code == 2
    assert message in told.err


def test_prune_shows_what_would_go_and_does_it_when_it_is_told_to(texcat: Texcat, indexed: Path) -> None:
    assert texcat("interest", "pin", "Rocket", "-c", indexed).out == "1 interest pinned: rocket\n"
    shown = texcat("prune", "--max-mb", 0, "-c", indexed).out
    assert "2 interests would go" in shown
    assert "never" in shown
    assert "Next: the same with --yes" in shown
    assert texcat("prune", "--max-mb", 0, "--dry-run", "-c", indexed, "--json").json["dry_run"]
    done = texcat("prune", "--max-mb", 0, "--yes", "-c", indexed)
    assert done.code == 0
    assert "2 interests pruned" in done.out
    assert "returned to the disk" in done.out
    kept = {i["phrase"]: i for i in texcat("interest", "list", "-c", indexed, "--json").json["interests"]}
    assert {phrase: i["maps"] for phrase, i in kept.items()} == {"cat": 0, "cup of coffee": 0, "rocket": 3}
    assert kept["cat"]["archived"] is not None
    assert "pruned" in texcat("interest", "list", "-c", indexed).out
    assert "3 maps made" in texcat("expand", "cat", "-c", indexed).out
    assert texcat("interest", "unpin", "rocket", "-c", indexed).code == 0
    assert texcat("verify", "-c", indexed).code == 0


def test_an_interest_may_be_pinned_from_the_start(texcat: Texcat, indexed: Path) -> None:
    added = texcat("interest", "add", "red scarf", "--pinned", "-c", indexed, "--json").json["added"]
    assert added[0]["pinned"]
    told = texcat("interest", "pin", "cat", "dog", "-c", indexed)
    assert told.code == 2
    assert "no interest 'dog'" in told.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say what to prune"),
        (("--below", "-1"), "below must be finite and >= 0"),
        (("--below", "1", "--yes", "--dry-run"), "give one of them"),
    ],
)
def test_what_cannot_be_pruned(
    texcat: Texcat, indexed: Path, arguments: tuple[str, ...], message: str
) -> None:
    told = texcat("prune", *arguments, "-c", indexed)
    assert told.code == 2
    assert message in told.err
