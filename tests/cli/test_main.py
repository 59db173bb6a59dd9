"""What holds for every command: help, exit codes, where the catalogue is, what goes where."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lmdb
import pytest
import typer
from texcat.catalogue import Catalogue, ImageKey
from texcat.cli.main import app

from .conftest import QUESTION, Texcat, held_open

PROGRAM = [sys.executable, "-c", "from texcat.cli.main import main; main()"]
COMMANDS = {
    ("init",), ("interest", "add"), ("interest", "list"), ("interest", "remove"), ("interest", "pin"),
    ("interest", "unpin"), ("work",), ("prune",), ("index",), ("lookup",),
    ("query",), ("ask",), ("search",), ("expand",), ("suggest",), ("path",), ("fingerprint",), ("forget",),
    ("stats",), ("verify",), ("compact",), ("backup",), ("demo",), ("reindex",), ("train-balancer",),
}  # fmt: skip


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield path, command
    else:
        for name, inner in commands.items():
            yield from leaves(inner, (*path, name))


LEAVES = dict(leaves(typer.main.get_command(app)))


def test_the_commands_are_those_that_are_documented() -> None:
    assert set(LEAVES) == COMMANDS


@pytest.mark.parametrize("path", sorted(LEAVES), ids=" ".join)
def test_every_command_and_option_has_a_help_text(path: tuple[str, ...], texcat: Texcat) -> None:
    result = texcat(*path, "--help")
    assert result.code == 0
    command = LEAVES[path]
    assert command.help
    for parameter in command.params:
        assert parameter.help, parameter.name
        shown = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        assert shown is None or shown in result.out


@pytest.mark.parametrize("path", sorted(LEAVES), ids=" ".join)
def test_every_command_takes_json_and_a_catalogue(path: tuple[str, ...]) -> None:
    options = {option for parameter in LEAVES[path].params for option in parameter.opts}
    assert "--json" in options
    # The demo makes its own catalogue, in the folder that it writes.
    assert ({"-c", "--catalogue"} <= options) is (path != ("demo",))


def test_no_arguments_give_the_help(texcat: Texcat) -> None:
    result = texcat()
    assert result.code == 2
    assert "Usage" in result.out + result.err


def test_an_unknown_command_is_a_usage_error(texcat: Texcat) -> None:
    result = texcat("lokup")
    assert result.code == 2
    assert "lokup" in result.err
    assert result.out == ""


def test_a_missing_catalogue_is_one_line_that_says_what_to_do(texcat: Texcat, tmp_path: Path) -> None:
    result = texcat("stats", "-c", tmp_path / "none", "--json")
    assert result.code == 1
    assert result.out == ""
    assert result.err == (
        f"texcat: error: no catalogue at '{tmp_path}/none'; `texcat init -c {tmp_path}/none` makes one\n"
    )


def test_a_value_that_cannot_be_used_exits_2(texcat: Texcat, empty: Path) -> None:
    result = texcat("interest", "add", " ", "-c", empty)
    assert result.code == 2
    assert "is empty" in result.err


def test_a_message_stays_on_one_line_whatever_is_in_it(texcat: Texcat, tmp_path: Path) -> None:
    result = texcat("stats", "-c", tmp_path / "a\nb\x1b[31m")
    assert result.err.count("\n") == 1
    assert "\x1b" not in result.err


def test_the_catalogue_is_taken_from_the_option_then_the_environment_then_here(
    texcat: Texcat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, variable, here = tmp_path / "named", tmp_path / "variable", tmp_path / ".texcat"
    for path in (named, variable, here):
        Catalogue.create(path).close()
    monkeypatch.chdir(tmp_path)
    assert texcat("stats", "--json").json["catalogue"] == str(here)
    monkeypatch.setenv("TEXCAT_CATALOGUE", str(variable))
    assert texcat("stats", "--json").json["catalogue"] == str(variable)
    assert texcat("stats", "--json", "-c", named).json["catalogue"] == str(named)


def test_another_writer_is_named(texcat: Texcat, empty: Path) -> None:
    with held_open(empty):
        result = texcat("interest", "add", "cat", "-c", empty)
    assert result.code == 1
    assert "is being written by process " in result.err


def test_a_closed_pipe_is_silent(indexed: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, "stats", "-c", indexed], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert done.stderr == ""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_colour_codes_in_a_pipe_and_no_encoding_error(indexed: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [*PROGRAM, "stats", "-c", indexed], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    assert b"cup of coffee" in done.stdout


def test_what_is_logged_is_told_once(texcat: Texcat, indexed: Path, photos: Path) -> None:
    for shard in indexed.glob("shards/*.lmdb"):
        with lmdb.open(str(shard), subdir=False) as environment, environment.begin(write=True) as transaction:
            for key, value in transaction.cursor():
                if key[16:] != bytes(4):
                    transaction.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    result = texcat("index", photos, "-c", indexed)
    assert result.code == 0
    lines = result.err.splitlines()
    assert all(line.startswith("texcat: warning: record ") for line in lines)
    assert {line.partition(" is damaged ")[2] == "" for line in lines} == {False}
    assert len(lines) == len(set(lines)) >= 3, "each of the three photos has its line"


def test_what_a_library_warns_of_is_one_line(indexed: Path, photos: Path, tmp_path: Path) -> None:
    content = (photos / "chelsea.jpg").read_bytes()
    exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0"  # says that five entries follow, and ends
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    photo = tmp_path / "warned.jpg"
    photo.write_bytes(content[:2] + segment + content[2:])
    with Catalogue.open(indexed, "w") as opened:
        record = opened.store.read(ImageKey.of(content))
        opened.store.write([replace(record, key=ImageKey.of(photo.read_bytes()))])
    command = [*PROGRAM, "lookup", photo, QUESTION, "--out", tmp_path / "heat.png", "-c", indexed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("texcat: warning: ")
    assert "Corrupt EXIF data" in done.stderr


def test_version(texcat: Texcat) -> None:
    result = texcat("--version")
    assert result.code == 0
    assert result.out == f"texcat {version('texcat')}\n"


def test_help_starts_fast_without_what_only_work_needs() -> None:
    program = (
        "import sys\nfrom texcat.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(*{'torch', 'numpy', 'faiss', 'PIL', 'sqlalchemy', 'lmdb'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == "\n"
