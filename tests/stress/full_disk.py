"""Let a disk run full at different moments of a command, and see what is left of the catalogue.

    python -m tests.stress full_disk [--moments 20] [--photos 40] [--seed 0]

The commands are an indexing pass, an expansion of what it has filled, work in the background, and pruning.
The catalogue lies on a small tmpfs (mounting it needs root) that a file fills up to some rest: from nothing
to nearly what the command needs. It must end with StoreFullError; what was there before and what was
committed must be there, and verify but for records that the registry could not be told of; with room again,
the same command must end as it does without a full disk, record by record.
"""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from texcat.catalogue import Catalogue, StoreFullError
from texcat.catalogue.pruning import prune_interests
from texcat.catalogue.store import map_bytes
from texcat.catalogue.verifying import verify

from .corpus import PHRASES, Content, content, differences, expand, index, make_photos, miss, work

DISK_BYTES = 64 << 20
_BALLAST = "ballast"

Command = Callable[[Path, Path], None]


def _expand(path: Path, photos: Path) -> None:
    expand(path)


def _work(path: Path, photos: Path) -> None:
    miss(path)
    work(path)


def _prune(path: Path, photos: Path) -> None:
    with Catalogue.open(path, "w") as catalogue:
        # One goes, so that each record is as it was or as it will be.
        images, interests = catalogue.registry.counts().images, len(catalogue.interests())
        prune_interests(catalogue, max_bytes=ceil(images * map_bytes(16)) * (interests - 1), dry_run=False)


COMMANDS: dict[str, Command] = {"index": index, "expand": _expand, "work": _work, "prune": _prune}
"""Each takes a catalogue and a folder of photos, and starts from what the one before it has made."""


def run(folder: Path, moments: int, photos: int, seed: int) -> dict[str, object]:
    """Let the disk run full at `moments` moments of each command on `photos` photos, in the empty `folder`.

    Returns:
        For each command: how often it was told so, how many bases and maps were written before, and how
        often all went well.

    Raises:
        AssertionError: another error, a loss, or another end than without a full disk.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    make_photos(folder / "photos", photos, seed)
    start = folder / "start"
    with Catalogue.create(start, shards=2) as catalogue:
        for phrase in PHRASES:
            catalogue.add_interest(phrase)
    found: dict[str, object] = {}
    with _disk(folder / "disk") as disk:
        for name, command in COMMANDS.items():
            whole = folder / name
            shutil.copytree(start, whole)
            if _run(context, command, whole, folder / "photos") != "done":
                raise AssertionError(f"{name} fails with room enough")
            found[name] = _fill_up(context, command, start, whole, disk, moments)
            start = whole
    return found


def _fill_up(
    context: ForkServerContext, command: Command, start: Path, whole: Path, disk: Path, moments: int
) -> dict[str, object]:
    """Let a command that makes `whole` of `start` meet a full disk at `moments` moments."""
    photos = whole.parent / "photos"
    before, expected = content(start), content(whole)
    needed = _bytes(whole) - _bytes(start)
    if needed <= 0:  # what it gives back it writes anew first, a shard at a time
        needed = max(file.stat().st_blocks * 512 for file in start.rglob("*.lmdb"))
    counts = Counter[str]()
    committed: list[int] = []
    path = disk / "catalogue"
    for number in range(moments):
        moment = f"{whole.name}, moment {number}"
        shutil.copytree(start, path)
        _fill(disk, needed * number // moments)
        answer = _run(context, command, path, photos)
        if answer not in ("StoreFullError", "done"):
            raise AssertionError(f"{moment}: {answer}")
        counts["told that the disk is full" if answer == "StoreFullError" else "had room"] += 1
        (disk / _BALLAST).unlink()
        committed.append(_survivors(path, before, expected, moment))
        if _run(context, command, path, photos) != "done":
            raise AssertionError(f"{moment}: it fails with room enough")
        with Catalogue.open(path) as catalogue:
            problems = list(verify(catalogue))
        wrong = differences(content(path), expected)
        if problems or wrong:
            raise AssertionError(f"{moment}: {problems} {wrong[:3]}")
        counts["resumed and equal"] += 1
        shutil.rmtree(path)
    return {
        **dict(sorted(counts.items())),
        "needed_bytes": needed,
        "bases and maps written before": committed,
    }


def _run(context: ForkServerContext, command: Command, path: Path, photos: Path) -> str:
    """``done``, or the name of the error, or the exit code of a process that neither says."""
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(command, path, photos, writer))
    process.start()
    writer.close()
    try:
        answer = str(reader.recv())
    except EOFError:
        answer = "no answer"
    process.join()
    return answer if process.exitcode == 0 else f"exit code {process.exitcode}"


def _child(command: Command, path: Path, photos: Path, writer: Connection) -> None:
    try:
        command(path, photos)
        writer.send("done")
    except StoreFullError:
        writer.send("StoreFullError")
    except Exception as error:
        writer.send(repr(error))


def _survivors(path: Path, before: Content, expected: Content, moment: str) -> int:
    """How many bases and maps were written; each must be as before, or as it is without a full disk."""
    with Catalogue.open(path) as catalogue:
        problems = [p for p in verify(catalogue) if "is not in the registry" not in p.reason]
    if problems:
        raise AssertionError(f"{moment}: {problems}")
    found = content(path)
    wrong = [name for name in found if found[name] not in (before.get(name), expected.get(name))]
    lost = sorted((before.keys() & expected.keys()) - found.keys())
    if wrong or lost:
        raise AssertionError(f"{moment}: {wrong[:3]} are not as they were written, {lost[:3]} are lost")
    return sum(name.startswith("record ") and found[name] != before.get(name) for name in found)


def _fill(disk: Path, rest: int) -> None:
    """Leave `rest` bytes, in whole pages."""
    with (disk / _BALLAST).open("wb", buffering=0) as file:
        block = bytes(1 << 16)
        try:
            while True:
                file.write(block)
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
