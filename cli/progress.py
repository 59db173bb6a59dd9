"""The progress bar of an indexing pass, or of an expansion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .output import err

if TYPE_CHECKING:
    from ..indexer import Progress


@contextmanager
def progress_bar(description: str, *, shown: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error with rate and time left, where that is a terminal; give it each `Progress`."""
    from rich import progress as parts

    console = err()
    bar = parts.Progress(
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TextColumn("{task.fields[rate]}"),
        parts.TimeRemainingColumn(),
        console=console,
        disable=not (shown and console.is_terminal),
    )
    with bar:
        task = bar.add_task(description, total=None, rate="preparing")

        def update(progress: Progress) -> None:
            bar.update(task, completed=progress.done, total=progress.total)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            skipped = f", {progress.skipped:,} skipped" if progress.skipped else ""
            bar.update(task, rate=f"{speed:.1f} images/s{skipped}" if speed else f"starting{skipped}")

        yield update
