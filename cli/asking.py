"""``texcat lookup``, ``texcat query`` and ``texcat ask``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NoObserveOption
from .output import count, out, print_json, printable, table, writing

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..catalogue import Catalogue, ImageKey
    from ..retrieval import Allocation, Lookup, Retriever
    from ..retrieval.balancing import Balancer
    from ..retrieval.realizing import QwenVLAdapter

Times = Mapping[str, float]
"""Microseconds of each part of an answer."""

ImageArgument = Annotated[
    str, typer.Argument(metavar="IMAGE", help="Path of an image, or its key of 32 hexadecimal digits.")
]
TopOption = Annotated[int, typer.Option(min=1, help="How many interests to blend.")]
BudgetOption = Annotated[
    str, typer.Option(metavar="N|auto", help="Visual tokens; auto: as many as are needed.")
]
StrategyOption = Annotated[
    str, typer.Option(help="How to spend them: topk, window, quadtree, coverage or budgets.")
]
BalancerOption = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE", help="Makes the relevance: none, tension, adaptive, or a trained file."
    ),
]
PictureOption = Annotated[
    Path | None, typer.Option("--out", metavar="PICTURE.png", help="Draw the answer to this file.")
]


def lookup(
    image: ImageArgument,
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="In words; or name interests.")
    ] = None,
    *,
    interest: Annotated[
        list[str] | None, typer.Option(metavar="PHRASE", help="Blend this interest; may be given again.")
    ] = None,
    top: TopOption = 3,
    channels: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Presets, groups or channels to show; all when left out."),
    ] = None,
    picture: PictureOption = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="TEXTURES.npz", help="Write textures, channels and relevance, as numpy arrays."),
    ] = None,
    no_observe: NoObserveOption = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Show the texture of an image for a question, or for interests; --out draws its similarity."""
    from ..catalogue import UsageError
    from ..retrieval import Retriever
    from ..retrieval.naming import named_matches

    if (question is None) == (not interest):
        raise UsageError('give either a question ("Where is the dog?") or --interest PHRASE')
    with _open_to_answer(catalogue) as (opened, not_saved, observe):
        retriever = Retriever(opened, channels=channels, observe=not no_observe and observe)
        wanted = _image(image)
        if question is not None:
            hit = retriever.lookup(wanted, question, top=top)
        else:
            hit = retriever.lookup(wanted, matches=named_matches(opened, interest or ()))
        if picture is not None and "similarity" not in hit.channels:
            raise UsageError("--out draws the similarity: add it to --channels, or leave one of the two out")
        photo = None if picture is None else _photo(opened, wanted)
    if picture is not None and photo is not None:
        from ..retrieval.pictures import captioned_overlay

        write_picture(captioned_overlay(photo, hit, question or ", ".join(interest or ())), picture)
    if save is not None:
        _write_textures(hit, save)
    if as_json:
        written = {"out": _name(picture), "save": _name(save)}
        print_json({**_document(image, question, hit, not_saved), "channels": _channels(hit), **written})
        return
    _show_hit(hit, not_saved, {"times": _times(hit)})
    rows = table("channel", "#min", "#mean", "#max")
    for name, values in _channels(hit).items():
        rows.add_row(name, *(f"{value:.4g}" for value in values.values()))
    out().print(rows)
    _show_written(picture, save)


def query(
    image: ImageArgument,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="In words.")],
    *,
    budget: BudgetOption = "200",
    strategy: StrategyOption = "topk",
    balancer: BalancerOption = "none",
    top: TopOption = 3,
    picture: PictureOption = None,
    no_observe: NoObserveOption = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Choose the visual tokens that a question needs; --out draws what is kept, and why."""
    from ..retrieval import Retriever
    from ..retrieval.balancing import named_balancer
    from ..retrieval.types import Tier

    tokens, chosen = _tokens(budget), named_balancer(balancer)
    with _open_to_answer(catalogue) as (opened, not_saved, observe):
        retriever = Retriever(opened, observe=not no_observe and observe)
        wanted = _image(image)
        hit, allocation, times = answer(
            retriever, wanted, question, top=top, budget=tokens, strategy=strategy, balancer=chosen
        )
        again: Times | None = None
        if hit.tier is Tier.STORED:  # the time in a process that has everything loaded
            *_, again = answer(
                retriever,
                hit.key,
                question,
                top=top,
                budget=tokens,
                strategy=strategy,
                balancer=chosen,
                observe=False,
            )
        if picture is not None:
            from ..retrieval.homunculus import Homunculus

            balanced = retriever.balance(hit, chosen)
            drawn = Homunculus(_photo(opened, wanted), hit, balanced, allocation, question)
            write_picture(drawn.picture(), picture)
    if as_json:
        print_json(
            {
                **_document(image, question, hit, not_saved),
                "times_us": times,
                "times_again_us": again,
                "budget": int(allocation.budgets.sum()),
                "strategy": strategy,
                "balancer": balancer,
                "grid": list(allocation.grid),
                "kept": len(allocation.indices),
                "positions": allocation.positions.tolist(),
                "budgets": allocation.budgets.tolist(),
                "out": _name(picture),
            }
        )
        return
    _show_hit(hit, not_saved, {"times": times} if again is None else {"times": times, "asked again": again})
    positions = allocation.grid[0] * allocation.grid[1]
    spent, kept = int(allocation.budgets.sum()), len(allocation.indices)
    what = "" if spent == kept else f" for {count(kept, 'region')}"
    out().print(f"{count(spent, 'token')}{what} kept of {positions:,}, by {strategy}")
    _show_written(picture, None)


def ask(
    image: ImageArgument,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="In words.")],
    *,
    model: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of a Qwen3-VL or Qwen2.5-VL checkpoint.")
    ],
    budget: BudgetOption = "200",
    strategy: StrategyOption = "topk",
    balancer: BalancerOption = "none",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 256,
    device: Annotated[str, typer.Option(help="Where the model runs: auto, cpu, cuda, cuda:1 ...")] = "auto",
    top: TopOption = 3,
    no_observe: NoObserveOption = False,
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Let a vision-language model answer from the visual tokens that a question needs."""
    from ..retrieval import Retriever
    from ..retrieval.attending import allocator
    from ..retrieval.balancing import named_balancer

    tokens, chosen = _tokens(budget), named_balancer(balancer)
    allocator(strategy)  # known before the model is loaded, which takes long
    adapter = _adapter(model, device)
    with _open_to_answer(catalogue) as (opened, not_saved, observe):
        wanted = _image(image)
        retriever = Retriever(opened, observe=not no_observe and observe)
        hit = retriever.lookup(wanted, question, top=top)
        relevance = hit.relevance if chosen is None else retriever.balance(hit, chosen).relevance
        photo = _photo(opened, wanted)
    said = adapter.ask(
        photo,
        relevance,
        question,
        budget=tokens,
        strategy=strategy,
        max_new_tokens=max_new_tokens,
        write=None if as_json else lambda words: out().out(printable(words), end="", highlight=False),
    )
    kept, positions = len(said.allocation.indices), said.allocation.grid[0] * said.allocation.grid[1]
    if as_json:
        print_json(
            {
                **_document(image, question, hit, not_saved),
                "answer": said.text,
                "budget": int(said.allocation.budgets.sum()),
                "strategy": strategy,
                "balancer": balancer,
                "grid": list(said.allocation.grid),
                "kept": kept,
                "positions": said.allocation.positions.tolist(),
                "prompt_tokens": said.prompt_tokens,
                "whole_prompt_tokens": said.whole_prompt_tokens,
            }
        )
        return
    out().print()
    out().print(
        f"{count(kept, 'token')} of {positions:,} of the photo, by {strategy}: a prompt of "
        f"{said.prompt_tokens:,} in place of {said.whole_prompt_tokens:,}"
    )


def _adapter(folder: Path, device: str) -> QwenVLAdapter:
    """A model; transformers is imported here, and is not part of a plain installation."""
    from ..catalogue import UsageError

    try:
        from ..retrieval.realizing import QwenVLAdapter
    except ImportError as error:
        raise UsageError(
            f"a vision-language model needs transformers 5.19 or newer ({error}): pip install 'texcat[vlm]'"
        ) from error
    return QwenVLAdapter.load(folder, device)


def answer(
    retriever: Retriever,
    image: str | ImageKey,
    question: str,
    *,
    top: int,
    budget: int | None,
    strategy: str,
    balancer: Balancer | None = None,
    observe: bool = True,
) -> tuple[Lookup, Allocation, Times]:
    """Look up, allocate, and say how many microseconds each part took."""
    hit = retriever.lookup(image, question, top=top, observe=observe)
    started = perf_counter()
    allocation = retriever.allocate(hit, budget, strategy, balancer)
    return hit, allocation, {**_times(hit), "allocate": 1e6 * (perf_counter() - started)}


def write_picture(picture: Image, path: Path) -> None:
    """Write a PNG file, whatever its name."""
    with writing(path):
        picture.save(path, format="PNG")


@contextmanager
def _open_to_answer(path: Path) -> Iterator[tuple[Catalogue, str | None, bool]]:
    """A catalogue, open to write if possible, so that what is computed is saved; else why it is not.

    And whether what is asked is to be recorded, which can be done while another process writes, too.
    """
    from ..catalogue import Catalogue, CatalogueError, CatalogueLockedError

    not_saved: str | None = None
    reachable = True
    try:
        opened = Catalogue.open(path, "w")
    except CatalogueError as error:  # locked, read-only, on a network; what hinders reading is told then
        not_saved = str(error)
        reachable = isinstance(error, CatalogueLockedError)
        opened = Catalogue.open(path)
    with opened:
        yield opened, not_saved, reachable and opened.settings.observe


def _tokens(budget: str) -> int | None:
    """Tokens to spend; None for as many as are needed."""
    from ..catalogue import UsageError

    if budget == "auto":
        return None
    if not (budget.isascii() and budget.isdigit() and int(budget)):
        raise UsageError(f"--budget must be a number of tokens from 1 up, or auto; got {budget!r}")
    return int(budget)


def _image(text: str) -> str | ImageKey:
    """A file of this name, or else the image of this key."""
    from ..catalogue import ImageKey

    is_key = re.fullmatch("[0-9a-fA-F]{32}", text) is not None and not os.path.lexists(text)
    return ImageKey.parse(text) if is_key else text


def _photo(catalogue: Catalogue, image: str | ImageKey) -> Image:
    from ..retrieval.sources import find_source

    return find_source(image, catalogue.registry).load().image


def _write_textures(hit: Lookup, path: Path) -> None:
    import numpy as np

    with writing(path), path.open("wb") as file:
        np.savez(file, textures=hit.textures, channels=np.array(hit.channels), relevance=hit.relevance)


def _times(hit: Lookup) -> Times:
    timings = hit.timings
    return {"match": 1e6 * timings.match, "lookup": 1e6 * timings.lookup, "blend": 1e6 * timings.blend}


def _document(image: str, question: str | None, hit: Lookup, not_saved: str | None) -> dict[str, object]:
    return {
        "image": image,
        "key": str(hit.key),
        "question": question,
        "matches": [
            {"phrase": match.interest.phrase, "similarity": match.similarity, "weight": match.weight}
            for match in hit.matches
        ],
        "tier": str(hit.tier),
        "confidence": hit.confidence,
        "own_share": hit.own_share,
        "saved": hit.saved,
        "not_saved": not_saved,
        "times_us": _times(hit),
    }


def _channels(hit: Lookup) -> dict[str, dict[str, float]]:
    return {
        name: {"min": float(plane.min()), "mean": float(plane.mean()), "max": float(plane.max())}
        for name, plane in zip(hit.channels, hit.textures, strict=True)
    }


def _show_hit(hit: Lookup, not_saved: str | None, times: Mapping[str, Times]) -> None:
    console = out()
    rows = table("interest", "#weight", "#similarity")
    for match in hit.matches:
        rows.add_row(printable(match.interest.phrase), f"{match.weight:.3f}", f"{match.similarity:.3f}")
    console.print(rows)
    facts = table("image", str(hit.key))
    facts.add_row("tier", hit.tier)
    facts.add_row("confidence", f"{hit.confidence:.2f}")
    if hit.own_share:
        facts.add_row("own share", f"{hit.own_share:.0%} is the question's own map: no interest says it well")
    if hit.saved:
        facts.add_row("saved", "what was computed is in the catalogue now")
    if not_saved is not None:
        facts.add_row("not saved", printable(not_saved))
    for name, parts in times.items():
        facts.add_row(
            name, ", ".join(f"{part} {microseconds:,.0f} µs" for part, microseconds in parts.items())
        )
    console.print(facts)


def _show_written(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            out().print(f"Wrote {printable(str(path))}")


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)
