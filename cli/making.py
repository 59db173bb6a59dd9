"""``texcat init``."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import out, print_json, printable


def init(
    *,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    encoder: Annotated[
        str, typer.Option(metavar="SPEC", help="'builtin', or 'open_clip:MODEL/PRETRAINED' (tag or file).")
    ] = "builtin",
    groups: Annotated[
        str | None, typer.Option(metavar="A,B", help="Channel groups to hold; all when left out.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, max=1024, help="LMDB files to spread images over.", show_default="4")
    ] = None,
    database: Annotated[
        str,
        typer.Option(
            metavar="URL", help="SQLAlchemy URL of an empty database; SQLite in the folder when empty."
        ),
    ] = "",
    observe: Annotated[
        bool, typer.Option("--observe/--no-observe", help="Whether look-ups record what is asked.")
    ] = True,
    half_life_days: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            help="What was asked so many days ago counts half for the weight of an interest.",
            show_default="30",
        ),
    ] = None,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make an empty catalogue."""
    from ..catalogue import Catalogue, Group
    from ..catalogue.catalogue import DEFAULT_SHARDS
    from ..catalogue.settings import DEFAULT_HALF_LIFE_DAYS

    # An encoder of the user's own may be the wrong file: that is seen before there is a catalogue.
    adopted = None if encoder == "builtin" else _examine(encoder)
    with Catalogue.create(
        catalogue,
        encoder=encoder,
        groups=tuple(Group) if groups is None else groups.split(","),
        shards=shards or DEFAULT_SHARDS,
        database=database,
        observe=observe,
        half_life_days=DEFAULT_HALF_LIFE_DAYS if half_life_days is None else half_life_days,
        allow_network=allow_network,
    ) as made:
        if adopted is not None:
            made.adopt_encoder(*adopted)
        settings = made.settings
        document = {
            "catalogue": str(made.path),
            "encoder": settings.encoder,
            "fingerprint": settings.fingerprint,
            "groups": list(settings.groups),
            "shards": settings.shards,
            "database": made.registry.url,
            "observe": settings.observe,
            "half_life_days": settings.half_life_days,
        }
    if as_json:
        print_json(document)
        return
    console = out()
    console.print(
        f"Made catalogue {printable(str(document['catalogue']))} with encoder {printable(encoder)}."
    )
    console.print('Next: texcat interest add "mountain biking" "my dog", then texcat index FOLDER')


def _examine(spec: str) -> tuple[str, float, float]:
    """Fingerprint of an encoder, and the cosines of its confidence 0 and 1."""
    from ..indexer.encoders import load_encoder
    from ..indexer.matching import match_range

    loaded = load_encoder(spec)
    return (loaded.fingerprint, *match_range(loaded))
