"""The command ``texcat``: exit 0 when all went well, 1 when it failed, 2 when it was not understood."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from . import asking, demo, indexing, inspecting, interests, making

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
app.command()(asking.lookup)
app.command()(asking.query)
app.command()(inspecting.stats)
app.command()(inspecting.verify)
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
    try:
        sys.exit(app(arguments, prog_name="texcat"))
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            _say("interrupted; run the command again to go on")
        raise
    except Exception as error:
        # Imported here: the package brings the database along, and `texcat --help` does not wait for that.
        from ..catalogue.errors import TexcatError, UsageError

        if not isinstance(error, TexcatError):
            raise
        _say(f"error: {error}")
        sys.exit(2 if isinstance(error, UsageError) else 1)


def _say(message: str) -> None:
    from .output import printable

    sys.stderr.write(f"texcat: {printable(message)}\n")
