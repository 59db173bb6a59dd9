"""``texcat work``."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption, NetworkOption
from .output import count, err, out, print_json, printable

if TYPE_CHECKING:
    from ..indexer import Progress


def work(
    *,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left to do.")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="End after so many seconds.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where the encoder runs, if it is needed: auto, cpu, cuda, cuda:1.")
    ] = "auto",
    catalogue: CatalogueOption = DEFAULT_CATALOGUE,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the maps that look-ups missed, for all images, in the background: the most promising first.

    It goes on until it is stopped (Ctrl-C, or SIGTERM), which loses nothing. Leave it running: it takes
    little, and lets every other command go first.
    """
    from ..indexer.working import Worker

    stop = Event()
    with _stopped_by_signals(stop), _bar(shown=not as_json) as on_progress:
        report = Worker(stop=stop, device=device, on_progress=on_progress, on_waiting=_once()).run(
            catalogue, once=once, seconds=seconds, allow_network=allow_network
        )
    if as_json:
        print_json(asdict(report))
        return
    console = out()
    done = f": {', '.join(map(printable, report.done))}" if report.done else ""
    console.print(
        f"{count(report.filled, 'map')} made in {report.seconds:.1f} s; "
        f"{count(len(report.done), 'phrase')} filled{done}"
    )
    for phrase, reason in report.refused:
        console.print(f"{printable(phrase)}: {printable(reason)}")
    if report.left:
        console.print(f"{count(report.left, 'phrase')} left: run texcat work again")


@contextmanager
def _stopped_by_signals(stop: Event) -> Iterator[None]:
    """While SIGINT and SIGTERM set `stop`."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, frame: stop.set()) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[str, Progress], None]]:
    """A bar on standard error, where that is a terminal, that shows the phrase that is being filled."""
    from rich.progress import Progress as Bar

    console = err()
    with Bar(console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("waiting", total=None)

        def update(phrase: str, progress: Progress) -> None:
            bar.update(task, description=printable(phrase), completed=progress.done, total=progress.total)

        yield update


def _once() -> Callable[[str], None]:
    """Tells each reason for waiting once."""
    told: set[str] = set()

    def tell(reason: str) -> None:
        if reason not in told:
            told.add(reason)
            err().print(f"texcat: waiting: {printable(reason)}")

    return tell
