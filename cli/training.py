"""``texcat train-balancer``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, cast

import typer

from .options import JsonOption
from .output import err, out, print_json, printable, table, writing
from .progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..catalogue import Catalogue
    from ..retrieval.balancing import Kind
    from ..retrieval.training import Epoch, Loss, Training


def train_balancer(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Folder with images/, and instances.json (COCO) or boxes/*.txt and names.json (YOLO).",
        ),
    ],
    *,
    weights: Annotated[
        Path, typer.Option("--out", metavar="FILE.safetensors", help="Weights; a report goes beside them.")
    ] = Path("balancer.safetensors"),
    kind: Annotated[str, typer.Option(help="tension or adaptive.")] = "tension",
    loss: Annotated[str, typer.Option(help="cells or recall.")] = "cells",
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="At most.")] = 20,
    held: Annotated[float, typer.Option(help="Part of the photos that is held out.")] = 0.2,
    encoder: Annotated[
        str, typer.Option(help="Encoder of a new catalogue: builtin, or open_clip:...")
    ] = "builtin",
    device: Annotated[str, typer.Option(help="Where the encoder runs: auto, cpu, cuda, cuda:1.")] = "auto",
    catalogue: Annotated[
        Path | None,
        typer.Option(
            "--catalogue",
            "-c",
            metavar="PATH",
            help="Of these photos and their categories, kept for the next run; else a temporary one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a balancer on photos with boxes: which positions of a photo are worth a token.

    The photos are indexed under their categories first. Some are held out: training stops when the recall on
    them gets no better. The same photos, options and seed make the same weights on one machine.
    """
    from ..retrieval.examples import index_examples
    from ..retrieval.training import Options, train

    options = Options(cast("Kind", kind), cast("Loss", loss), seed, epochs=epochs, held=held)
    with _catalogue(catalogue, encoder) as opened:
        with progress_bar("indexing", shown=not as_json) as on_progress:
            examples = index_examples(opened, data, device=device, on_progress=on_progress)
        fingerprint = opened.settings.fingerprint
    with _epochs(epochs, shown=not as_json) as on_epoch:
        trained = train(examples, fingerprint, options, on_epoch=on_epoch)
    report = {"data": str(data), "encoder": fingerprint, "out": str(weights), **trained.report()}
    with writing(weights):
        trained.balancer.save(weights)
        weights.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
        weights.with_suffix(".md").write_text(_markdown(trained, data))
    if as_json:
        print_json(report)
        return
    rows = table("recall on photos held out", *(f"#{budget}" for budget in trained.recalls))
    for name, values in _rows(trained).items():
        rows.add_row(name, *(f"{value:.3f}" for value in values))
    out().print(rows)
    out().print(
        f"{trained.photos:,} photos trained on, {trained.held_photos:,} held out; "
        f"best after epoch {trained.best} of {len(trained.epochs)}"
    )
    out().print(f"Wrote {printable(str(weights))}, and a report as .json and .md")


@contextmanager
def _catalogue(path: Path | None, encoder: str) -> Iterator[Catalogue]:
    """The catalogue of this folder, made if it is not there; a temporary one when there is no folder."""
    from ..catalogue import Catalogue

    with TemporaryDirectory() as temporary:
        place = Path(temporary, "catalogue") if path is None else path
        with (
            Catalogue.open(place, "w")
            if place.exists()
            else Catalogue.create(place, encoder=encoder) as opened
        ):
            yield opened


@contextmanager
def _epochs(total: int, *, shown: bool) -> Iterator[Callable[[Epoch], None]]:
    """A bar on standard error, where that is a terminal."""
    from rich import progress as parts

    console = err()
    bar = parts.Progress(
        parts.TextColumn("training"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TextColumn("{task.fields[recall]}"),
        console=console,
        disable=not (shown and console.is_terminal),
    )
    with bar:
        task = bar.add_task("training", total=total, recall="")

        def update(epoch: Epoch) -> None:
            bar.update(task, completed=epoch.number, recall=f"recall {epoch.recall:.3f} on photos held out")

        yield update


def _rows(trained: Training) -> dict[str, list[float]]:
    return {
        name: [trained.recalls[budget][key] for budget in trained.recalls]
        for name, key in (
            ("balancer", "balancer"),
            ("similarity alone", "participatory"),
            ("best choice", "best"),
        )
    }


def _markdown(trained: Training, data: Path) -> str:
    head = [f"# Balancer `{trained.balancer.kind}`", ""]
    head.append(
        f"Trained on {trained.examples:,} pairs of a photo and a category of {data.name}, "
        f"{trained.photos:,} photos; {trained.held_photos:,} were held out. "
        f"Best after epoch {trained.best} of {len(trained.epochs)}."
    )
    budgets = [str(budget) for budget in trained.recalls]
    rows = [f"| recall on photos held out | {' | '.join(budgets)} |", "|---" * (len(budgets) + 1) + "|"]
    rows += [
        f"| {name} | {' | '.join(f'{value:.3f}' for value in values)} |"
        for name, values in _rows(trained).items()
    ]
    epochs = ["| epoch | loss | recall@200 |", "|---|---|---|"]
    epochs += [f"| {each.number} | {each.loss:.4f} | {each.recall:.4f} |" for each in trained.epochs]
    return "\n".join([*head, "", *rows, "", *epochs]) + "\n"
