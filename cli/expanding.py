"""``texcat expand``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .indexing import show_skipped
from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, out, print_json
from .progress import progress_bar

if TYPE_CHECKING:
    from ..indexer.expanding import ExpandReport


def expand(
    phrases: Annotated[
        list[str], typer.Argument(metavar="PHRASE", help="Interests, new or not; quote each phrase.")
    ],
    *,
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
    from ..catalogue import Catalogue
    from ..indexer.expanding import expand_interest

    with (
        Catalogue.open(catalogue, "w", allow_network=allow_network) as opened,
        progress_bar("expanding", shown=not as_json) as on_progress,
    ):
        report = expand_interest(opened, phrases, exact=exact, device=device, on_progress=on_progress)
    if as_json:
        print_json({**asdict(report), "exact": exact})
    else:
        _show(report)


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
