"""``texcat search``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .asking import PictureOption, write_picture
from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption
from .output import count, out, print_json, printable, table

if TYPE_CHECKING:
    from ..retrieval.search import Found, Result


def search(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help='Phrases for and against: dog -leash, "red car"^2 +beach. Quote it for the shell.',
        ),
    ],
    *,
    n: Annotated[int, typer.Option("-n", min=1, help="How many photos to show.")] = 20,
    picture: PictureOption = None,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Find the photos that answer phrases best; --out draws them, the region that matched outlined.

    Words that stand together are one phrase; signs, weights and quotation marks part them. A query that
    begins with a minus sign goes last, after a -- of its own.
    """
    from ..catalogue import Catalogue
    from ..retrieval import Retriever
    from ..retrieval.contact_sheet import draw_sheet
    from ..retrieval.sources import find_source

    with Catalogue.open(catalogue) as opened:
        found = Retriever(opened).search(query, n)
        if picture is not None:
            registry = opened.registry
            write_picture(
                draw_sheet(found, query, lambda key: find_source(key, registry).load().image), picture
            )
    if as_json:
        print_json(_document(query, found, picture))
        return
    _show(found, picture)


def _show(found: Found, picture: Path | None) -> None:
    console = out()
    parts = [f"#{printable(str(term))}" for term in found.terms] if len(found.terms) > 1 else []
    rows = table("#", "#score", *parts, "photo")
    for number, result in enumerate(found.results, 1):
        contributions = [f"{part:+.2f}" for part in result.contributions] if parts else []
        rows.add_row(str(number), f"{result.score:.2f}", *contributions, _name(result))
    console.print(rows)
    console.print(f"{count(found.ranked, 'photo')} ranked, by {found.tier} maps")
    if found.unranked:
        unranked = count(found.unranked, "photo")
        console.print(f"{unranked} not ranked, for lack of codes or maps: texcat index FOLDER makes them")
    if picture is not None:
        console.print(f"Wrote {printable(str(picture))}")


def _name(result: Result) -> str:
    """Paths of a photo, or its key when no file of it is known."""
    return ", ".join(map(printable, result.paths)) or str(result.key)


def _document(query: str, found: Found, picture: Path | None) -> dict[str, object]:
    return {
        "query": query,
        "terms": [asdict(term) for term in found.terms],
        "tier": found.tier,
        "ranked": found.ranked,
        "unranked": found.unranked,
        "results": [
            {
                "key": str(result.key),
                "paths": result.paths,
                "score": result.score,
                "contributions": result.contributions,
                "region": None if result.region is None else asdict(result.region),
            }
            for result in found.results
        ],
        "out": None if picture is None else str(picture),
    }
