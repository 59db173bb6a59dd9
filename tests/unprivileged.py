"""Run a function as a user whom file permissions bind: tests may run as root, whom they do not."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

NOBODY = 65534


def let_reach(path: Path) -> None:
    """Let every user go through pytest's private folders to `path`."""
    shared = Path(tempfile.gettempdir())
    for folder in path.parents:
        if folder.is_relative_to(shared) and folder != shared and folder.stat().st_uid == os.getuid():
            folder.chmod(0o755)


def as_nobody(function: Callable[[], str]) -> str:
    """What `function` returns in a forked child that has given up root; its traceback when it fails.

    Modules that `function` needs must be imported before: the child may not be able to read them.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer = function()
        except BaseException:
            answer = traceback.format_exc()
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer
