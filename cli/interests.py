"""``texcat interest add|list|remove``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, out, print_json, printable, table

if TYPE_CHECKING:
    from ..catalogue import Interest

app = typer.Typer(help="What you look for in your images.", no_args_is_help=True)

PhrasesArgument = Annotated[
    list[str], typer.Argument(metavar="PHRASE", help="A few words, in any language; quote each phrase.")
]


@app.command()
def add(
    phrases: PhrasesArgument,
    weight: Annotated[
        float, typer.Option(help="Part in a blend, beside other interests; 0 takes no part.")
    ] = 1.0,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add interests, or give those that are there a new weight."""
    from ..catalogue import Catalogue
    from ..catalogue.phrases import normalise_phrase

    for phrase in phrases:  # all are looked at before the first is added
        normalise_phrase(phrase)
    with Catalogue.open(catalogue, "w", allow_network=allow_network) as opened:
        added = [opened.add_interest(phrase, weight) for phrase in phrases]
    if as_json:
        print_json({"added": [_document(interest) for interest in added]})
        return
    console = out()
    console.print(f"{count(len(added), 'interest')} added: {', '.join(i.phrase for i in added)}")
    console.print(
        "Next: texcat index FOLDER makes their maps; images that are indexed already are brought up to date."
    )


@app.command("list")
def list_(catalogue: CatalogueOption = DEFAULT_CATALOGUE, as_json: JsonOption = False) -> None:
    """Show the interests, and of how many images each has a map."""
    from ..catalogue import Catalogue

    with Catalogue.open(catalogue) as opened:
        interests = opened.interests()
        held = opened.store.stats()
    maps = {interest.id: held.maps.get(interest.id, 0) for interest in interests}
    if as_json:
        documents = [{**_document(interest), "maps": maps[interest.id]} for interest in interests]
        print_json({"interests": documents, "images": held.images})
        return
    console = out()
    if not interests:
        console.print('No interests yet: texcat interest add "mountain biking"')
        return
    rows = table("#id", "phrase", "#weight", f"#maps (of {held.images:,} images)")
    for interest in interests:
        rows.add_row(
            str(interest.id), printable(interest.phrase), f"{interest.weight:g}", f"{maps[interest.id]:,}"
        )
    console.print(rows)


@app.command()
def remove(
    phrases: PhrasesArgument,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove interests, and all their maps."""
    from ..catalogue import Catalogue, UnknownInterestError

    with Catalogue.open(catalogue, "w", allow_network=allow_network) as opened:
        found = {phrase: opened.registry.find_interest(phrase) for phrase in phrases}
        for phrase, interest in found.items():  # all are looked at before the first is removed
            if interest is None:
                raise UnknownInterestError(phrase)
        wanted = dict.fromkeys(interest.phrase for interest in found.values() if interest is not None)
        removed = [opened.remove_interest(phrase) for phrase in wanted]
    if as_json:
        print_json({"removed": [_document(interest) for interest in removed]})
        return
    out().print(f"{count(len(removed), 'interest')} removed: {', '.join(i.phrase for i in removed)}")


def _document(interest: Interest) -> dict[str, object]:
    return {"id": interest.id, "phrase": interest.phrase, "weight": interest.weight}
