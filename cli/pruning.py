"""``texcat prune``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from .keeping import shard_bar
from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, out, print_json, printable, table

if TYPE_CHECKING:
    from ..catalogue.pruning import Prunable, PruneReport

_MEGABYTE = 1_000_000


def prune(
    *,
    below: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Prune interests whose weight is below this. One that nobody asks about has its own weight, "
            "1 unless you gave another; use moves it up to twice, useless answers down to half of that.",
        ),
    ] = None,
    max_mb: Annotated[
        float | None,
        typer.Option(metavar="M", help="Prune what is worth least until all maps take at most so many MB."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would go.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would go, as without --yes.")
    ] = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give up the maps of interests that are hardly used, and their room back to the disk.

    Nothing else is lost: `texcat expand PHRASE` brings the maps back in seconds, and until then questions are
    answered from codes. Pinned interests (`texcat interest pin`) are left alone.
    """
    from ..catalogue import Catalogue, UsageError
    from ..catalogue.pruning import prune_interests

    if yes and dry_run:
        raise UsageError("--yes prunes and --dry-run does not; give one of them")
    with (
        Catalogue.open(catalogue, "w" if yes else "r", allow_network=allow_network) as opened,
        shard_bar("compacting", shown=not as_json) as on_progress,
    ):
        report = prune_interests(
            opened,
            below=below,
            max_bytes=None if max_mb is None else round(max_mb * _MEGABYTE),
            dry_run=not yes,
            on_progress=on_progress,
        )
    if as_json:
        print_json(asdict(report))
    else:
        _show(report)


def _show(report: PruneReport) -> None:
    console = out()
    if report.pruned:
        console.print(_rows(report.pruned))
    size = decimal(sum(interest.bytes for interest in report.pruned))
    left = f"{count(len(report.kept), 'interest')} with {decimal(report.kept_bytes)} of maps"
    if report.dry_run:
        console.print(f"{count(len(report.pruned), 'interest')} would go, {size} of maps; {left} would stay")
    else:
        console.print(f"{count(len(report.pruned), 'interest')} pruned, {size} of maps; {left} stay")
        console.print(f"{decimal(max(0, report.returned_bytes))} returned to the disk")
    if report.over_bytes:
        console.print(f"What is pinned takes {decimal(report.over_bytes)} more than that")
    if report.pruned:
        console.print(
            "Next: the same with --yes" if report.dry_run else 'To have one back: texcat expand "PHRASE"'
        )


def _rows(interests: tuple[Prunable, ...]) -> object:
    rows = table("phrase", "#maps", "#size", "#weight", "#expected use", "last asked about")
    for interest in interests:
        rows.add_row(
            printable(interest.phrase),
            f"{interest.maps:,}",
            decimal(interest.bytes),
            f"{interest.weight:.3f}",
            f"{interest.expected:.2f}",
            "never" if interest.last is None else time.strftime("%Y-%m-%d", time.localtime(interest.last)),
        )
    return rows
