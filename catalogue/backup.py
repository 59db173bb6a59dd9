"""A copy of a catalogue that is sound by itself, made while others write."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .catalogue import CODEBOOK_NAME, REGISTRY_NAME, SHARDS_NAME, Catalogue
from .errors import CatalogueError, CatalogueExistsError, CatalogueLockedError, StoreFullError
from .settings import read_settings, sync_file, sync_folder, write_settings
from .verifying import Repairs, repair, verify

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy that was made.

    Attributes:
        path: its folder.
        images: how many it holds.
        file_bytes: bytes of its files.
        repairs: what the copy had to lose. Shards and entries were damaged in the catalogue itself; the rest
            was written or removed while the copy was made.
    """

    path: Path
    images: int
    file_bytes: int
    repairs: Repairs


def backup(catalogue: Catalogue, destination: str | os.PathLike[str]) -> Backup:
    """Copy `catalogue`, open to read or to write, to a new or empty folder, while other processes write.

    The registry is copied first, as of one moment, then the shards, each as of one moment, then
    `catalogue.toml` and the codebook, which is there before the first code. Indexing commits to the shards
    first, so whatever the copied registry names is in the shards that are copied after it, but for what is
    removed between the two. What the shards have beyond the registry, and the registry beyond the shards, is
    then taken out of the copy: it is the catalogue at the moment that its registry was copied, less what was
    removed meanwhile, and `verify` finds nothing in it.

    The folder appears whole, or not at all; until then it is called ``NAME.partial``. What an interrupted
    backup left there is replaced by the next to the same place. It may lie on a network file system, as
    nobody else knows of it before it is whole.

    Raises:
        CatalogueExistsError: `destination` has something in it.
        CatalogueLockedError: another process makes a backup to `destination`.
        CatalogueError: the registry is in PostgreSQL, or `destination` cannot be written.
        StoreFullError: the disk of `destination` has no room.
    """
    if catalogue.settings.database:
        raise CatalogueError(
            f"the registry of {catalogue.path} is in {catalogue.registry.url}, which texcat does not copy; "
            "stop writing, save the database with its own tool (pg_dump), and copy the folder"
        )
    target = Path(destination).absolute()
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise CatalogueExistsError(target, "other files" if target.is_dir() else "a file")
    with _explained(target), _draft(target) as draft:
        catalogue.registry.copy(draft / REGISTRY_NAME)
        (draft / SHARDS_NAME).mkdir()
        catalogue.store.copy(draft / SHARDS_NAME)
        # Read again: the first pass may have named its encoder since the catalogue was opened.
        write_settings(draft, read_settings(catalogue.path))
        if (catalogue.path / CODEBOOK_NAME).exists():
            shutil.copyfile(catalogue.path / CODEBOOK_NAME, draft / CODEBOOK_NAME)
            sync_file(draft / CODEBOOK_NAME)
        with Catalogue.open(draft, "w", allow_network=True) as copy:
            repairs = repair(copy, verify(copy))
            images = copy.store.stats().images
        size = sum(file.stat().st_blocks * 512 for file in draft.rglob("*") if file.is_file())
        sync_folder(draft)
        draft.rename(target)
        sync_folder(target.parent)
    return Backup(target, images, size, repairs)


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """An empty folder beside `target` that no other backup uses; removed if it is still there at the end."""
    folder = target.with_name(f"{target.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CatalogueLockedError(folder, "another backup to the same place") from error
        for left in folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFullError(target, error.strerror or str(error)) from error
        raise CatalogueError(f"cannot write a backup to {target}: {error.strerror or error}") from error
