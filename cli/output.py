"""How commands print: tables for people, or one JSON document for programs.

File names may hold any byte but zero and ``/``. In tables, what a terminal could act on is escaped; in JSON,
bytes that are not UTF-8 are lone surrogates (``\\udcXX``), which `os.fsencode` turns back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def out() -> Console:
    """Console on standard output. What is printed is taken as it is: ``[b]`` in a file name is no markup."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


def err() -> Console:
    """Console on standard error, for progress and notes."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def print_json(document: object) -> None:
    """Print `document` as pure ASCII JSON."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def printable(text: str) -> str:
    """`text` on one line, with control characters, surrogates and invisible characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(*columns: str, title: str | None = None) -> Table:
    """Empty table. A column whose name starts with ``#`` holds numbers: aligned to the right, on one line."""
    made = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        number = column.startswith("#")
        made.add_column(
            column.removeprefix("#"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return made


def count(number: int, noun: str) -> str:
    """``1 photo``, ``2 photos``, ``1,024 photos``."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around what writes `path`, which the user has named.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        from ..catalogue.errors import UsageError

        raise UsageError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
