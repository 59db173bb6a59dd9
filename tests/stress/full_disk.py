"""Let a disk run full at different moments of an indexing pass, and see what is left of the catalogue.

    python -m tests.stress full_disk [--moments 20] [--photos 40] [--seed 0]

The catalogue lies on a small tmpfs (mounting it needs root) that a file fills up to some rest: from nothing
to nearly what the pass needs. The pass must end with StoreFullError; what was committed must be there, and
verify but for records that the registry could not be told of; with room again, the same pass must end as it
does without a full disk, record by record.
"""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from texcat.catalogue import Catalogue, StoreFullError
from texcat.catalogue.verifying import verify

from .corpus import PHRASES, content, differences, index, make_photos

DISK_BYTES = 64 << 20
_BALLAST = "ballast"


def run(folder: Path, moments: int, photos: int, seed: int) -> dict[str, object]:
    """Let the disk run full at `moments` moments of a pass over `photos` photos, in the empty `folder`.

    Returns:
        How often the pass was told so, how many photos were committed before, and how often all went well.

    Raises:
        AssertionError: another error, a loss, or another end than without a full disk.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    make_photos(folder / "photos", photos, seed)
    with Catalogue.create(folder / "start", shards=2) as catalogue:
        for phrase in PHRASES:
            catalogue.add_interest(phrase)
    shutil.copytree(folder / "start", folder / "whole")
    if _index(context, folder / "whole", folder / "photos") != "done":
        raise AssertionError("the pass fails with room enough")
    expected = content(folder / "whole")
    needed = _bytes(folder / "whole") - _bytes(folder / "start")
    counts = Counter[str]()
    committed: list[int] = []
    with _disk(folder / "disk") as disk:
        for moment in range(moments):
            path = disk / "catalogue"
            shutil.copytree(folder / "start", path)
            _fill(disk, needed * moment // moments)
            answer = _index(context, path, folder / "photos")
            if answer not in ("StoreFullError", "done"):
                raise AssertionError(f"moment {moment}: {answer}")
            counts["told that the disk is full" if answer == "StoreFullError" else "had room"] += 1
            (disk / _BALLAST).unlink()
            committed.append(_survivors(path, expected, moment))
            if _index(context, path, folder / "photos") != "done":
                raise AssertionError(f"moment {moment}: it fails with room enough")
            with Catalogue.open(path) as catalogue:
                problems = list(verify(catalogue))
            wrong = differences(content(path), expected)
            if problems or wrong:
                raise AssertionError(f"moment {moment}: {problems} {wrong[:3]}")
            counts["resumed and equal"] += 1
            shutil.rmtree(path)
    return {**dict(sorted(counts.items())), "needed_bytes": needed, "photos committed before": committed}


def _index(context: ForkServerContext, path: Path, photos: Path) -> str:
    """``done``, or the name of the error, or the exit code of a process that neither says."""
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(path, photos, writer))
    process.start()
    writer.close()
    try:
        answer = str(reader.recv())
    except EOFError:
        answer = "no answer"
    process.join()
    return answer if process.exitcode == 0 else f"exit code {process.exitcode}"


def _child(path: Path, photos: Path, writer: Connection) -> None:
    try:
        index(path, photos)
        writer.send("done")
    except StoreFullError:
        writer.send("StoreFullError")
    except Exception as error:
        writer.send(repr(error))


def _survivors(path: Path, expected: object, moment: int) -> int:
    """How many records there are; each must be as it is without a full disk."""
    assert isinstance(expected, dict)
    with Catalogue.open(path) as catalogue:
        problems = [p for p in verify(catalogue) if "is not in the registry" not in p.reason]
    if problems:
        raise AssertionError(f"moment {moment}: {problems}")
    found = content(path)
    lost = [name for name, value in found.items() if expected.get(name) != value]
    if lost:
        raise AssertionError(f"moment {moment}: {lost[:3]} are not as they were written")
    return sum(name.startswith("record ") for name in found)


def _fill(disk: Path, rest: int) -> None:
    """Leave `rest` bytes, in whole pages."""
    with (disk / _BALLAST).open("wb") as file:
        block = bytes(1 << 16)
        try:
            while True:
                file.write(block)
                file.flush()
        except OSError:
            size = (disk / _BALLAST).stat().st_blocks * 512
    with (disk / _BALLAST).open("r+b") as file:
        file.truncate(max(0, size - rest))


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


@contextmanager
def _disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
