"""``texcat index``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, out, print_json, printable, table
from .progress import progress_bar

if TYPE_CHECKING:
    from ..catalogue import IndexReport, Skipped

SHOWN_SKIPPED = 20


def index(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Folders, searched to the bottom, files, tar archives (.tar), lists (.parquet, .jsonl), or "
            "URLs of any of these.",
        ),
    ],
    *,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column of the lists with paths or URLs; without it, the first of path, url and image.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(help="Where the encoder runs: auto, cpu, cuda:1; cuda:0,cuda:1 takes a process each."),
    ] = "auto",
    engine: Annotated[
        str, typer.Option(help="Who looks at images: local, this process; ray, workers of a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Head of the cluster; without it, workers run on this machine."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many; without it, one on each GPU, or each two cores.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Read again files that could not be read before.")
    ] = False,
    grace_days: Annotated[
        float, typer.Option(min=0, help="Days for which the records of a removed file are kept.")
    ] = 30.0,
    no_codes: Annotated[
        bool,
        typer.Option("--no-codes", help="Keep no codes, which show any phrase later without the encoder."),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Images that go through the stages together; chosen by default."),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show what each stage took, and which one sets the pace.")
    ] = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Look at every new or changed image once, through all interests.

    Files that cannot be read are skipped and listed with the reason. Interrupt it at any time: the same
    command goes on from there. Tar archives are read where they are; those in a folder are not looked into.
    """
    from ..catalogue import Catalogue
    from ..indexer import index_corpus

    with (
        Catalogue.open(catalogue, "w", allow_network=allow_network) as opened,
        progress_bar("indexing", shown=not as_json) as on_progress,
    ):
        report = index_corpus(
            opened,
            inputs,
            column=column,
            device=device,
            engine=engine,
            ray_address=ray_address,
            workers=workers,
            batch_size=batch_size,
            retry_failed=retry_failed,
            grace_days=grace_days,
            codes=not no_codes,
            on_progress=on_progress,
        )
        interests = len(opened.interests())
    if as_json:
        print_json({**asdict(report), "interests": interests})
    else:
        _show(report, interests)
        if profile:
            _show_stages(report)


def show_skipped(files: Sequence[Skipped]) -> None:
    """Name the first of the files that were skipped, each with the reason."""
    if not files:
        return
    console = out()
    rows = table("skipped", "reason")
    for skipped in files[:SHOWN_SKIPPED]:
        rows.add_row(printable(skipped.path), printable(skipped.reason))
    console.print(rows)
    if len(files) > SHOWN_SKIPPED:
        console.print(f"… and {len(files) - SHOWN_SKIPPED:,} more; --json lists all")


def _show_stages(report: IndexReport) -> None:
    """Name the stages of a pass with their times, and the one that sets its pace."""
    console = out()
    if not report.stages:
        console.print("There was nothing to be made, so no stage ran")
        return
    rows = table("stage", "#threads", "#busy, s", "#share")
    for stage in report.stages:
        rows.add_row(stage.name, str(stage.workers), f"{stage.seconds:.2f}", f"{stage.share:.0%}")
    console.print(rows)
    slowest = max(report.stages, key=lambda stage: stage.share)
    console.print(
        f"The stage {slowest.name!r} sets the pace: it was busy for {slowest.share:.0%} of the time"
    )
    if report.on_cpu:
        console.print(
            f"{count(report.on_cpu, 'image')} decoded by the processor, which the GPU does not read"
        )


def _show(report: IndexReport, interests: int) -> None:
    console = out()
    console.print(
        f"{report.indexed:,} indexed, {report.unchanged:,} unchanged, {report.removed:,} removed, "
        f"{len(report.skipped):,} skipped, in {report.seconds:.1f} s"
    )
    if report.unavailable:
        console.print(
            f"{count(report.unavailable, 'file')} may be on a disk that is not mounted, in an archive that "
            "is damaged, or behind a server that does not answer: what is stored of them is kept"
        )
    show_skipped(report.skipped)
    if not interests:
        console.print('No interests yet, so no maps were made: texcat interest add "…", then index again')
    elif report.indexed or report.unchanged:
        console.print('Next: texcat query IMAGE "QUESTION" --out picture.png')
