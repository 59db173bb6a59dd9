"""Run the code blocks of a Markdown document in order, as a reader who follows it would.

``python run_document.py DOCUMENT`` runs each ``sh``, ``console`` and ``python`` block in the current folder,
and stops at the first that fails. The blocks share one session: names that Python blocks define, folders that
shell blocks change to and variables that they export are there for the blocks that follow.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("sh", "console", "python")
FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>\w*)")
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*\S) -->")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its first line of code (from 1), and why it is not run, if it is not."""

    language: str
    line: int
    code: str
    not_run: str | None


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of `text` in the languages that are run.

    Raises:
        ValueError: a fence is never closed.
    """
    lines = text.splitlines()
    before = ""  # the last line that is not blank
    at = 0
    while at < len(lines):
        if fence := FENCE.match(lines[at]):
            start = at + 1
            closing = fence["indent"] + fence["ticks"]
            if closing not in lines[start:]:
                raise ValueError(f"line {start}: this block has no closing {fence['ticks']}")
            at = lines.index(closing, start)
            if fence["language"] in LANGUAGES:
                code = "\n".join(line.removeprefix(fence["indent"]) for line in lines[start:at])
                marked = NOT_RUN.fullmatch(before.strip())
                yield Block(fence["language"], start + 1, code, marked["reason"] if marked else None)
        if lines[at].strip():
            before = lines[at]
        at += 1


def commands(console: str) -> str:
    """Give what was typed in a console block: the lines after ``$``, and after ``>`` where they go on."""
    return "\n".join(line[2:] for line in console.splitlines() if line.startswith(("$ ", "> ")))


def run_shell(code: str) -> None:
    """Run `code` in bash, then take over its folder and its exported variables."""
    with tempfile.NamedTemporaryFile() as state:
        script = f"{code}\nenv -0 >'{state.name}'"
        subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, stdin=subprocess.DEVNULL)
        variables = Path(state.name).read_text(encoding="utf-8").split("\0")
    for variable in filter(None, variables):
        name, _, value = variable.partition("=")
        os.environ[name] = value
    os.chdir(os.environ["PWD"])


def main(document: str) -> None:
    """Run `document`; where a block fails, its place goes to standard error and the exit status is 1."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(Path(document).read_text(encoding="utf-8")):
        place = f"{document}:{block.line}"
        if block.not_run is not None:
            sys.stdout.write(f"{place}: not run: {block.not_run}\n")
            continue
        try:
            if block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.code, document, "exec"), names)
            else:
                run_shell(commands(block.code) if block.language == "console" else block.code)
        except BaseException:
            sys.stderr.write(f"{place}: this {block.language} block failed\n")
            raise


if __name__ == "__main__":
    main(sys.argv[1])
