"""``texcat reindex``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .indexing import show_skipped
from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, out, print_json, printable
from .progress import progress_bar

if TYPE_CHECKING:
    from ..catalogue import IndexReport
    from ..indexer.reindexing import Reindexing


def reindex(
    *,
    encoder: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Encoder to change to, as for init; without it, the same by name."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where the encoder runs: auto, cpu, cuda, cuda:1.")] = "auto",
    no_codes: Annotated[
        bool,
        typer.Option("--no-codes", help="Keep no codes, which show any phrase later without the encoder."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would be.")] = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make all textures anew, with another encoder, or with one that a new version has changed.

    The textures and codes of the encoder before go at once; interests, what was asked, the graph and the
    settings stay. Interrupt it at any time: the same command goes on from there.
    """
    from ..catalogue import Catalogue
    from ..indexer.encoders import load_encoder
    from ..indexer.reindexing import plan_reindexing
    from ..indexer.reindexing import reindex as make_anew

    report: IndexReport | None = None
    with (
        Catalogue.open(catalogue, "w" if yes else "r", allow_network=allow_network) as opened,
        progress_bar("reindexing", shown=not as_json) as on_progress,
    ):
        loaded = load_encoder(encoder or opened.settings.encoder, device)
        plan = plan_reindexing(opened, loaded)
        if yes:
            report = make_anew(opened, loaded, codes=not no_codes, on_progress=on_progress)
    if as_json:
        print_json({**asdict(plan), "report": None if report is None else asdict(report)})
    else:
        _show(plan, report)


def _show(plan: Reindexing, report: IndexReport | None) -> None:
    console = out()
    if plan.before == plan.after:
        console.print(f"The encoder is the catalogue's own already ({printable(plan.after)}).")
    else:
        console.print(f"from {printable(plan.before or '(none)')}")
        console.print(f"to   {printable(plan.after)}")
    lost = f"{count(plan.unavailable, 'image')} have no file that is there as it was"
    if report is not None:
        console.print(
            f"{report.indexed:,} made anew, {report.unchanged:,} were so already, in {report.seconds:.1f} s"
        )
        show_skipped(report.skipped)
    elif plan.before == plan.after:
        console.print("--yes makes what is lacking")
    else:
        console.print(
            f"--yes drops all textures and codes, and makes those of {count(plan.images, 'image')} anew"
        )
    if plan.unavailable:
        console.print(f"{lost}: without one, they get no textures; texcat index makes them when it is back")
