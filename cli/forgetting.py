"""``texcat forget``."""

from __future__ import annotations

import math
import sys
from datetime import datetime
from typing import Annotated

import typer

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption
from .output import count, out, print_json, printable

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


def forget(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Erase all that was asked.")] = False,
    phrase: Annotated[
        str | None, typer.Option(metavar="PHRASE", help="Erase this phrase from all that was asked.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="DATE", formats=_FORMATS, help="Erase what was asked from then on; local time."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(metavar="DATE", formats=_FORMATS, help="Erase what was asked before.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Erase what was asked: all of it, a phrase, or a range of time. What goes is said first.

    Interests, their weights and their maps stay; their history goes. Other processes may go on meanwhile.
    """
    from ..catalogue import Catalogue, UsageError
    from ..catalogue.memory import Memory

    ranged = since is not None or until is not None
    if everything + (phrase is not None) + ranged != 1:
        raise UsageError("say what to forget: --all, or --phrase PHRASE, or --since DATE and --until DATE")
    start = -math.inf if since is None else since.timestamp()
    end = math.inf if until is None else until.timestamp()
    with Catalogue.open(catalogue) as opened, Memory.of(opened) as memory:
        questions = memory.count(phrase, start, end)
        if not as_json:
            out().print(f"{count(questions, 'question')} {_which(phrase, since, until)}, with their feedback")
        if not (yes or (sys.stdin.isatty() and typer.confirm("Erase them for good?"))):
            raise UsageError("nothing was erased: --yes erases without asking")
        if phrase is not None:
            erased = memory.forget_phrase(phrase)
        else:
            erased = memory.forget_between(start, end) if ranged else memory.forget()
    if as_json:
        print_json({"forgotten": erased})
    else:
        out().print(f"{count(erased, 'question')} forgotten, and the vectors that were kept of questions")


def _which(phrase: str | None, since: datetime | None, until: datetime | None) -> str:
    if phrase is not None:
        return f"about {printable(phrase)!r} lose that phrase"
    if since is None and until is None:
        return "go, all that were asked"
    return (
        "go, asked"
        + ("" if since is None else f" since {since}")
        + ("" if until is None else f" until {until}")
    )
