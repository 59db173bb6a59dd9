"""Options that every command takes, spelt once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CATALOGUE_VARIABLE = "TEXCAT_CATALOGUE"
DEFAULT_CATALOGUE = Path(".texcat")

CatalogueOption = Annotated[
    Path,
    typer.Option(
        "--catalogue", "-c", metavar="PATH", envvar=CATALOGUE_VARIABLE, help="Folder of the catalogue."
    ),
]
NetworkOption = Annotated[
    bool,
    typer.Option("--allow-network", help="Write on a network file system, which no other host may open."),
]
NoObserveOption = Annotated[
    bool, typer.Option("--no-observe", help="Do not record what is asked; see texcat forget.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, on standard output.")
]
