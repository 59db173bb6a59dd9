"""``texcat expand``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from .exploring import graph_progress
from .indexing import show_skipped
from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, out, print_json, printable, table
from .progress import progress_bar

if TYPE_CHECKING:
    from pathlib import Path

    from ..catalogue.graph import Suggestion
    from ..indexer.expanding import ExpandReport

_MEGABYTE = 1_000_000


def expand(
    phrases: Annotated[
        list[str] | None,
        typer.Argument(metavar="PHRASE", help="Interests, new or not; quote each phrase."),
    ] = None,
    *,
    suggested: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="In place of phrases: the N most promising ones that you have not yet."
        ),
    ] = None,
    budget_mb: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="M", help="With --suggested: as many as take no more MB of the disk than this."
        ),
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="With --suggested: stop after so many seconds."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Encode the photos again: slow, but the encoder's own maps.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="Where the encoder runs, if it is needed: auto, cpu, cuda, cuda:1.")
    ] = "auto",
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give every indexed image the maps of interests, from its code: no photo is opened.

    Interests that are not there yet are added. Interrupt it at any time: the same command goes on from there.
    """
    from ..catalogue import Catalogue, UsageError
    from ..indexer.expanding import expand_interest

    if (suggested is None) == (not phrases):
        raise UsageError("give either phrases, or --suggested N")
    if suggested is not None:
        if exact:
            raise UsageError("--exact goes with phrases, not with --suggested")
        _expand_suggested(
            catalogue,
            suggested,
            budget_mb,
            budget_seconds,
            device,
            allow_network=allow_network,
            as_json=as_json,
        )
        return
    if budget_mb is not None or budget_seconds is not None:
        raise UsageError("--budget-mb and --budget-seconds go with --suggested")
    with (
        Catalogue.open(catalogue, "w", allow_network=allow_network) as opened,
        progress_bar("expanding", shown=not as_json) as on_progress,
    ):
        report = expand_interest(opened, phrases or (), exact=exact, device=device, on_progress=on_progress)
    if as_json:
        print_json({**asdict(report), "exact": exact})
    else:
        _show(report)


def _expand_suggested(
    path: Path,
    n: int,
    budget_mb: float | None,
    budget_seconds: float | None,
    device: str,
    *,
    allow_network: bool,
    as_json: bool,
) -> None:
    from ..catalogue import Catalogue
    from ..indexer import interest_graph
    from ..indexer.ahead import expand_suggested

    with Catalogue.open(path, "w", allow_network=allow_network) as opened:
        with graph_progress(shown=not as_json) as on_phrases:
            interest_graph(opened, device=device, on_progress=on_phrases)  # its ties are up to date now
        with progress_bar("indexing ahead", shown=not as_json) as on_progress:
            report = expand_suggested(
                opened,
                n,
                budget_bytes=None if budget_mb is None else round(budget_mb * _MEGABYTE),
                budget_seconds=budget_seconds,
                device=device,
                on_progress=on_progress,
            )
    if as_json:
        print_json(asdict(report))
        return
    console = out()
    rows = table("phrase", "#expected use", "indexed", "because")
    for suggestion in report.done:
        rows.add_row(*_row(suggestion, "yes"))
    for left in report.left:
        rows.add_row(*_row(left.suggestion, f"no: {left.reason}"))
    if not (report.done or report.left):
        console.print("Nothing to suggest yet: ask questions (texcat query), or add interests")
        return
    console.print(rows)
    console.print(
        f"{count(report.filled, 'map')} made, {decimal(report.bytes)} on the disk, in {report.seconds:.1f} s"
    )
    if report.uncoded:
        console.print(
            f"{count(report.uncoded, 'image')} without a code: texcat index FOLDER makes code and maps"
        )


def _row(suggestion: Suggestion, indexed: str) -> tuple[str, str, str, str]:
    reasons = [f"{step.start} ({step.kind})" for step in suggestion.reasons]
    because = [f"asked about {suggestion.asked:.1f} times"] if suggestion.asked >= 0.05 else []
    return (
        printable(suggestion.phrase),
        f"{suggestion.expected:.2f}",
        indexed,
        printable(", ".join(because + reasons)),
    )


def _show(report: ExpandReport) -> None:
    console = out()
    console.print(
        f"{count(report.filled, 'map')} made, {report.present:,} there already, in {report.seconds:.1f} s"
    )
    if report.uncoded:
        console.print(
            f"{count(report.uncoded, 'image')} without a code: texcat index FOLDER makes code and maps"
        )
    if report.unavailable:
        console.print(
            f"{count(report.unavailable, 'image')} not encoded again: no file is there as it was indexed"
        )
    show_skipped(report.skipped)
    if report.filled:
        console.print(f'Next: texcat query IMAGE "{report.interests[0].phrase}" --out picture.png')
