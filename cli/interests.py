"""``texcat interest add|list|pin|unpin|remove``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, out, print_json, printable, table

if TYPE_CHECKING:
    from ..catalogue import Box, Catalogue, Exemplar, Interest
    from ..catalogue.weights import Use

app = typer.Typer(help="What you look for in your images.", no_args_is_help=True)

PhrasesArgument = Annotated[
    list[str], typer.Argument(metavar="PHRASE", help="A few words, in any language; quote each phrase.")
]


@app.command()
def add(
    phrases: PhrasesArgument,
    *,
    weight: Annotated[
        float, typer.Option(help="Part in a blend, beside other interests; 0 takes no part.")
    ] = 1.0,
    images: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="FILE",
            help="An image that shows the interest, in place of its words; repeat it.",
        ),
    ] = None,
    boxes: Annotated[
        list[str] | None,
        typer.Option(
            "--box",
            metavar="L,T,R,B",
            help="Where each --image shows it, in the same order: left, top, right, bottom as fractions of "
            "its width and height. 0,0,1,1 is the whole image.",
        ),
    ] = None,
    with_words: Annotated[
        bool, typer.Option("--with-words", help="The words count too, half and half with the images.")
    ] = False,
    pinned: Annotated[bool, typer.Option("--pinned", help="Never prune them (`texcat prune`).")] = False,
    device: Annotated[
        str, typer.Option(help="Where the encoder looks at the images: auto, cpu, cuda, cuda:1.")
    ] = "auto",
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add interests, or give those that are there a new weight.

    With --image, add one that images show: it lights up what looks like them. Other images than it had
    take their place.
    """
    from ..catalogue import Catalogue
    from ..catalogue.phrases import normalise_phrase

    for phrase in phrases:  # all are looked at before the first is added
        normalise_phrase(phrase)
    exemplars = _exemplars(phrases, images or [], boxes or [], with_words)
    with Catalogue.open(catalogue, "w", allow_network=allow_network) as opened:
        if exemplars:
            from ..indexer import learn_interest

            added = [
                learn_interest(opened, phrases[0], exemplars, weight, with_words=with_words, device=device)
            ]
        else:
            added = [opened.add_interest(phrase, weight=weight) for phrase in phrases]
        if pinned:
            added = [opened.pin_interest(interest.phrase) for interest in added]
        waiting = exemplars and added[0].id not in opened.registry.vectors(opened.settings.fingerprint)
    if as_json:
        print_json({"added": [_document(interest) for interest in added]})
        return
    console = out()
    console.print(f"{count(len(added), 'interest')} added: {', '.join(i.phrase for i in added)}")
    if waiting:
        console.print("The images that show it are looked at by the next texcat index: keep them until then.")
    console.print(
        "Next: texcat index FOLDER makes their maps; images that are indexed already are brought up to date."
    )


@app.command("list")
def list_(catalogue: CatalogueOption = DEFAULT_CATALOGUE, as_json: JsonOption = False) -> None:
    """Show the interests, what each weighs by its use, and of how many images each has a map.

    In a blend an interest has its effective weight: its own, times a factor from 1/2 to 2 that rises with its
    use and with feedback, and falls as time passes.
    """
    from ..catalogue import Catalogue
    from ..catalogue.memory import Memory
    from ..catalogue.weights import Use

    with Catalogue.open(catalogue) as opened, Memory.of(opened, read_only=True) as memory:
        interests = opened.interests()
        held = opened.store.stats()
        known = memory.uses(time.time(), opened.settings.half_life)
    uses = {interest.id: known.get(interest.phrase, Use()) for interest in interests}
    maps = {interest.id: held.maps.get(interest.id, 0) for interest in interests}
    if as_json:
        documents = [{**_document(i), "maps": maps[i.id], **_use_document(i, uses[i.id])} for i in interests]
        print_json({"interests": documents, "images": held.images})
        return
    console = out()
    if not interests:
        console.print('No interests yet: texcat interest add "mountain biking"')
        return
    rows = table(
        *("#id", "phrase", "#weight", "#effective", "#use", "last used"),
        *(f"#maps (of {held.images:,} images)", "shown by", "kept"),
    )
    for interest in interests:
        rows.add_row(
            str(interest.id),
            printable(interest.phrase),
            f"{interest.weight:g}",
            f"{interest.weight * uses[interest.id].factor:.3g}",
            f"{uses[interest.id].amount:.1f}",
            _day(uses[interest.id].last) or "never",
            f"{maps[interest.id]:,}",
            printable(_shown_by(interest)),
            "pinned" if interest.pinned else "" if interest.archived is None else "pruned",
        )
    console.print(rows)


@app.command()
def pin(
    phrases: PhrasesArgument,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Keep interests from being pruned. One that was pruned gets maps again, by the next pass."""
    _pin(phrases, True, catalogue, allow_network, as_json)


@app.command()
def unpin(
    phrases: PhrasesArgument,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let interests be pruned again."""
    _pin(phrases, False, catalogue, allow_network, as_json)


@app.command()
def remove(
    phrases: PhrasesArgument,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove interests, and all their maps."""
    from ..catalogue import Catalogue

    with Catalogue.open(catalogue, "w", allow_network=allow_network) as opened:
        removed = [opened.remove_interest(phrase) for phrase in _known(opened, phrases)]
    if as_json:
        print_json({"removed": [_document(interest) for interest in removed]})
        return
    out().print(f"{count(len(removed), 'interest')} removed: {', '.join(i.phrase for i in removed)}")


def _pin(phrases: Sequence[str], pinned: bool, path: Path, allow_network: bool, as_json: bool) -> None:
    from ..catalogue import Catalogue

    with Catalogue.open(path, "w", allow_network=allow_network) as opened:
        changed = [opened.pin_interest(phrase, pinned) for phrase in _known(opened, phrases)]
    done = "pinned" if pinned else "unpinned"
    if as_json:
        print_json({done: [_document(interest) for interest in changed]})
    else:
        out().print(f"{count(len(changed), 'interest')} {done}: {', '.join(i.phrase for i in changed)}")


def _known(catalogue: Catalogue, phrases: Sequence[str]) -> list[str]:
    """Phrases of the interests that are named, each once; all are looked at before one is changed.

    Raises:
        UnknownInterestError: one is not there.
    """
    from ..catalogue import UnknownInterestError

    found: dict[str, None] = {}
    for phrase in phrases:
        interest = catalogue.registry.find_interest(phrase)
        if interest is None:
            raise UnknownInterestError(phrase)
        found[interest.phrase] = None
    return list(found)


def _document(interest: Interest) -> dict[str, object]:
    return {
        "id": interest.id,
        "phrase": interest.phrase,
        "weight": interest.weight,
        "exemplars": [
            {"path": e.path, "box": e.box and list(astuple(e.box)), "key": str(e.key)}
            for e in interest.exemplars
        ],
        "with_words": interest.with_words,
        "pinned": interest.pinned,
        "archived": interest.archived,
    }


def _use_document(interest: Interest, use: Use) -> dict[str, object]:
    return {
        "effective_weight": interest.weight * use.factor,
        "use": use.amount,
        "feedback": use.feedback,
        "last_used": use.last,
    }


def _day(time_: float | None) -> str | None:
    return None if time_ is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(time_))


def _shown_by(interest: Interest) -> str:
    """What tells where the interest is in an image, for people."""
    if not interest.exemplars:
        return "words"
    shown = [Path(e.path).name + (f" ({_written(e.box)})" if e.box else "") for e in interest.exemplars]
    return ", ".join((*shown, "words") if interest.with_words else shown)


def _exemplars(
    phrases: Sequence[str], images: Sequence[str], boxes: Sequence[str], with_words: bool
) -> list[Exemplar]:
    """Exemplars as the options give them: each image with the box in the same place, or all without one.

    Raises:
        UsageError: they do not go together.
    """
    from ..catalogue import Exemplar, UsageError

    if (boxes or with_words) and not images:
        raise UsageError("--box and --with-words go with --image; name the images that show the interest")
    if images and len(phrases) > 1:
        raise UsageError(f"--image shows one interest, not {len(phrases)}; add them one after the other")
    if boxes and len(boxes) != len(images):
        raise UsageError(
            f"{len(boxes)} --box for {len(images)} --image: give each --image its --box, in the same order "
            "(0,0,1,1 is the whole image), or none"
        )
    return [Exemplar(image, _box(boxes[place]) if boxes else None) for place, image in enumerate(images)]


def _box(text: str) -> Box:
    from ..catalogue import Box, UsageError

    try:
        left, top, right, bottom = map(float, text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--box {text!r} is not L,T,R,B: four fractions of width and height, such as 0.25,0.1,0.75,0.5"
        ) from error
    return Box(left, top, right, bottom)


def _written(box: Box) -> str:
    return ",".join(f"{edge:g}" for edge in astuple(box))
