"""``texcat verify``, ``texcat compact`` and ``texcat backup``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, err, out, print_json, printable, table

if TYPE_CHECKING:
    from ..catalogue.store import Problem
    from ..catalogue.verifying import Repairs

_REPAIRED = {
    "shards": "shards set aside as NAME.damaged-…: their pages did not hang together",
    "entries": "damaged, foreign or misplaced entries removed",
    "maps": "maps of removed interests removed",
    "records": "records that the registry did not know removed",
    "files": "files that no longer count as indexed",
    "images": "images that the registry has forgotten",
}
_NEXT = "Next: texcat index FOLDER makes again what was removed"


def verify(
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove what is wrong; `texcat index` makes it again.")
    ] = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read every record, and compare records and registry; exit 1 when something is wrong and stays so."""
    from ..catalogue import Catalogue
    from ..catalogue.verifying import repair as mend
    from ..catalogue.verifying import verify as find_problems

    repairs: Repairs | None = None
    left: list[Problem] = []
    with Catalogue.open(catalogue, "w" if repair else "r", allow_network=allow_network) as opened:
        problems = list(find_problems(opened))
        if repair and problems:
            repairs = mend(opened, problems)
            left = list(find_problems(opened))
        images = opened.registry.counts().images
    if as_json:
        document = {"images": images, "problems": [_document(problem) for problem in problems]}
        if repair:
            document |= {
                "repairs": repairs and asdict(repairs),
                "left": [_document(problem) for problem in left],
            }
        print_json(document)
    else:
        _show(images, problems)
        if repairs is not None:
            _show_repairs(repairs)
            _show_left(left)
    if left or (problems and not repair):
        raise typer.Exit(1)


def compact(
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give the room of what was removed back to the disk. Other processes may go on reading."""
    from ..catalogue import Catalogue

    with (
        Catalogue.open(catalogue, "w", allow_network=allow_network) as opened,
        shard_bar("compacting", shown=not as_json) as on_progress,
    ):
        returned = opened.compact(on_progress)
    if as_json:
        print_json({"returned_bytes": returned})
    else:
        out().print(f"{decimal(max(0, returned))} returned to the disk")


def backup(
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="A new or empty folder.")],
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Copy the catalogue to a new folder, whole and sound, while other processes write to it."""
    from ..catalogue import Catalogue
    from ..catalogue.backup import backup as copy

    with Catalogue.open(catalogue) as opened:
        made = copy(opened, destination)
    damaged = made.repairs.shards + made.repairs.entries
    if as_json:
        print_json(
            {
                "backup": str(made.path),
                "images": made.images,
                "bytes": made.file_bytes,
                "left_out": asdict(made.repairs),
            }
        )
        return
    console = out()
    console.print(
        f"{count(made.images, 'image')} copied to {printable(str(made.path))}, {decimal(made.file_bytes)}"
    )
    if damaged:
        console.print(f"{count(damaged, 'damaged part')} left out: run texcat verify on the catalogue")
    console.print(f"To use it: texcat stats -c {printable(str(made.path))}")


def _document(problem: Problem) -> dict[str, str | None]:
    key = None if problem.key is None else str(problem.key)
    return {"where": problem.where, "reason": problem.reason, "key": key}


def _show(images: int, problems: list[Problem]) -> None:
    console = out()
    if not problems:
        console.print(f"{count(images, 'image')}: every record is sound, and records and registry agree")
        return
    rows = table("where", "problem")
    for problem in problems:
        rows.add_row(printable(problem.where), printable(problem.reason))
    console.print(rows)
    console.print(f"{count(len(problems), 'problem')} found")


def _show_repairs(repairs: Repairs) -> None:
    rows = table("#repaired", "what")
    for name, number in asdict(repairs).items():
        if number:
            rows.add_row(f"{number:,}", _REPAIRED[name])
    out().print(rows)
    out().print(_NEXT)


def _show_left(left: list[Problem]) -> None:
    if left:
        out().print("These are left; restore the catalogue from a backup:")
        _show(0, left)
    else:
        out().print("Every record is sound now, and records and registry agree")


@contextmanager
def shard_bar(description: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where that is a terminal; give it the shards that are done, and all."""
    from rich.progress import Progress

    console = err()
    with Progress(console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
