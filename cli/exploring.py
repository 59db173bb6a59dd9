"""``texcat suggest``, ``path`` and ``fingerprint``: what the graph of interests tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from .asking import write_picture
from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption
from .output import count, err, out, print_json, printable, table, writing

if TYPE_CHECKING:
    from ..catalogue.graph import Step, Suggestion
    from ..retrieval.fingerprint import Fingerprint

DeviceOption = Annotated[
    str, typer.Option(help="Where the encoder runs, if it is needed: auto, cpu, cuda, cuda:1.")
]


def suggest(
    *,
    n: Annotated[int, typer.Option("-n", min=1, help="How many phrases to suggest.")] = 10,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            "--vocabulary",
            metavar="FILE",
            help="Suggest from the phrases of this file, one a line, in place of the built-in ones; "
            "the catalogue keeps them.",
        ),
    ] = None,
    device: DeviceOption = "auto",
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Show what you might also look for: phrases that are no interests yet, by how much use is expected.

    What was asked about counts in full, and half of the use of a phrase moves on along its ties: to phrases
    that mean alike, are asked about together, or show in the same photos. Each suggestion tells the ties
    that brought it.
    """
    from ..catalogue import Catalogue
    from ..indexer import interest_graph

    candidates = [] if vocabulary is None else _lines(vocabulary)
    with Catalogue.open(catalogue) as opened, graph_progress(shown=not as_json) as on_progress:
        graph = interest_graph(opened, candidates=candidates, device=device, on_progress=on_progress)
        suggestions = graph.suggest(n)
        indexed = opened.settings.fingerprint != ""
    if as_json:
        print_json({"suggestions": [asdict(each) for each in suggestions]})
        return
    console = out()
    if not suggestions:
        console.print(
            "Nothing to suggest: no phrase is tied to an interest yet"
            if indexed
            else "Nothing to suggest yet: texcat index FOLDER, after which phrases are tied by their meaning"
        )
        return
    rows = table("#", "you might also like", "#expected use", "because of")
    for number, each in enumerate(suggestions, 1):
        rows.add_row(str(number), printable(each.phrase), f"{each.expected:.2f}", printable(_reasons(each)))
    console.print(rows)
    console.print(f'Next: texcat expand "{printable(suggestions[0].phrase)}"')


def path(
    start: Annotated[str, typer.Argument(metavar="FROM", help="A phrase of the graph: quote it.")],
    end: Annotated[str, typer.Argument(metavar="TO", help="Another one.")],
    *,
    device: DeviceOption = "auto",
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Walk from one phrase to another through those between them, along the strongest ties.

    Phrases are interests, what was asked about, and candidates. Where no chain of ties leads from one to the
    other, this says so and exits with 1.
    """
    from ..catalogue import Catalogue
    from ..catalogue.phrases import normalise_phrase
    from ..indexer import interest_graph

    ends = normalise_phrase(start), normalise_phrase(end)
    with Catalogue.open(catalogue) as opened, graph_progress(shown=not as_json) as on_progress:
        graph = interest_graph(opened, device=device, on_progress=on_progress)
        steps = graph.path(*ends)
        phrases = [ends[0], *(step.end for step in steps)]
        standings = {phrase: graph.standing(phrase) for phrase in phrases}
    if as_json:
        print_json({"start": ends[0], "end": ends[1], "steps": [asdict(step) for step in steps]})
        return
    console = out()
    rows = table("phrase", "which is", "tie to the next", "#strength")
    for phrase, step in zip(phrases, [*steps, None], strict=True):
        tie = (str(step.kind), f"{step.strength:.2f}") if step else ("", "")
        rows.add_row(printable(phrase), _named(standings[phrase]), *tie)
    console.print(rows)
    console.print(count(len(steps), "step"))


def fingerprint(
    *,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Draw it: a page if the name ends in .html, otherwise a picture."
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page or picture.")] = "What I look for",
    device: DeviceOption = "auto",
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    as_json: JsonOption = False,
) -> None:
    """Show your interests, how they changed, and how they hang together; --out draws them."""
    from ..catalogue import Catalogue
    from ..indexer import interest_graph
    from ..retrieval.fingerprint import take_fingerprint

    with Catalogue.open(catalogue) as opened, graph_progress(shown=not as_json) as on_progress:
        graph = interest_graph(opened, device=device, on_progress=on_progress)
        taken = take_fingerprint(opened, graph)
    if picture is not None:
        _draw(taken, picture, title)
    if as_json:
        print_json({**asdict(taken), "out": None if picture is None else str(picture)})
        return
    _show(taken)
    if picture is not None:
        out().print(f"Wrote {printable(str(picture))}")


def _draw(taken: Fingerprint, file: Path, title: str) -> None:
    """Draw a fingerprint to the file that the user has named."""
    if file.suffix.casefold() in (".html", ".htm"):
        from ..retrieval.fingerprint_page import draw_page

        page = draw_page(taken, title)
        with writing(file):
            file.write_text(page, encoding="utf-8")
    else:
        from ..retrieval.graph_picture import draw_picture

        write_picture(draw_picture(taken, title), file)


def _show(taken: Fingerprint) -> None:
    console = out()
    if not taken.interests:
        console.print('No interests yet: texcat interest add "mountain biking"')
        return
    rows = table("interest", "#weight", "#now", "#use", "#photos that show it", "#maps", "#size")
    for each in taken.interests:
        shown = "" if each.coverage is None else f"{each.coverage:.0%}"
        rows.add_row(
            printable(each.phrase),
            f"{each.weight:g}",
            f"{each.effective:.2f}",
            f"{each.use:.1f}",
            shown,
            f"{each.maps:,}",
            decimal(each.bytes),
        )
    console.print(rows)
    facts = table("", "")
    facts.add_row("holds it together", printable(", ".join(hub.phrase for hub in taken.hubs)))
    for members in taken.communities:
        facts.add_row("belong together", printable(", ".join(members)))
    facts.add_row("you might also like", printable(", ".join(each.phrase for each in taken.suggestions)))
    facts.add_row("questions", f"{taken.questions:,}")
    console.print(facts)


@contextmanager
def graph_progress(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where that is a terminal, while the built-in vocabulary is embedded."""
    from rich import progress as parts

    console = err()
    bar = parts.Progress(
        *parts.Progress.get_default_columns(), console=console, disable=not (shown and console.is_terminal)
    )
    with bar:
        task = bar.add_task("reading the vocabulary, this once", total=None, visible=False)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        yield update


def _lines(file: Path) -> list[str]:
    """Phrases of a file, one a line; blank lines are passed over.

    Raises:
        UsageError: it cannot be read as UTF-8, or holds no phrase.
    """
    from ..catalogue import UsageError

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the phrases of {str(file)!r}: {error}") from error
    phrases = [line for line in lines if line.strip()]
    if not phrases:
        raise UsageError(f"{str(file)!r} holds no phrase; give one a line")
    return phrases


def _reasons(suggestion: Suggestion) -> str:
    asked = [f"asked about ({suggestion.asked:.1f})"] if suggestion.asked >= 0.05 else []
    return ", ".join(asked + [_reason(step) for step in suggestion.reasons])


def _reason(step: Step) -> str:
    return f"{step.start} ({step.kind} {step.strength:.2f})"


def _named(standing: str) -> str:
    return {"interest": "an interest", "seen": "asked about", "candidate": "a candidate"}[standing]
