"""The command ``texcat``: exit 0 when all went well, 1 when it failed, 2 when it was not understood."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from . import (
    asking,
    demo,
    expanding,
    exploring,
    forgetting,
    indexing,
    inspecting,
    interests,
    keeping,
    making,
    pruning,
    reindexing,
    searching,
    training,
    working,
)

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

app = typer.Typer(
    name="texcat",
    help="Relevance maps of your images, made once through your interests, looked up in microseconds.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(making.init)
app.add_typer(interests.app, name="interest")
app.command()(indexing.index)
app.command()(expanding.expand)
app.command()(working.work)
app.command()(pruning.prune)
app.command()(reindexing.reindex)
app.command()(asking.lookup)
app.command()(asking.query)
app.command()(asking.ask)
app.command()(searching.search)
app.command()(exploring.suggest)
app.command()(exploring.path)
app.command()(exploring.fingerprint)
app.command()(forgetting.forget)
app.command()(inspecting.stats)
app.command()(keeping.verify)
app.command()(keeping.compact)
app.command()(keeping.backup)
app.command()(training.train_balancer)
app.command()(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"texcat {version('texcat')}")
        raise typer.Exit


@app.callback()
def _texcat(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `arguments` (those of the process when None), and exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # always text files here
    with _warnings_told():
        try:
            sys.exit(app(arguments, prog_name="texcat"))
        except SystemExit as ending:
            if ending.code == INTERRUPTED:
                _say("interrupted; run the command again to go on")
            raise
        except Exception as error:
            # Imported here: the package brings the database along, and `texcat --help` need not wait for it.
            from ..catalogue.errors import TexcatError, UsageError

            if not isinstance(error, TexcatError):
                raise
            _say(f"error: {error}")
            sys.exit(2 if isinstance(error, UsageError) else 1)


class _OneLine(logging.Handler):
    """Tells each warning once, by its first line: the others are source code of a library."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage().strip().partition("\n")[0]
        if line not in self._told:
            self._told.add(line)
            _say(f"warning: {line}")


@contextmanager
def _warnings_told() -> Iterator[None]:
    """While what is logged, and what libraries warn of, is told on standard error."""
    handler, root = _OneLine(), logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)


def _say(message: str) -> None:
    from .output import printable

    sys.stderr.write(f"texcat: {printable(message)}\n")
