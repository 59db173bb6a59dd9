"""One LMDB file that grows, is compacted, and says in our words what goes wrong.

The only module that imports lmdb.

Facts that it rests on:

- A commit is on the disk when it returns, and an interrupted one leaves no trace.
- The memory map has a size. It is grown between transactions, never within one; a process that finds that
  another has grown the file adopts the new size. No transaction of this process may be open meanwhile, so
  each file has a lock, held while one is.
- An environment must not be used after a fork; that is an error here.
- A transaction's pages are written before it is committed, and stay as they are while a reader of it is open:
  so a look-up may follow them in a map of its own (`look`), as long as a transaction is open meanwhile.
- The lock file belongs to the file's name. A compacted copy gets a new name, ``NAME.GENERATION.lmdb``, and
  so its own lock file: the readers of the old one keep theirs. The highest generation counts.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast

import lmdb
import numpy as np
from numpy.typing import NDArray

from .errors import FormatVersionError, RecordCorruptError, StoreError, StoreFullError
from .pages import check_pages
from .settings import sync_folder
from .store import Reader

INITIAL_MAP_BYTES = 1 << 24
MAX_READERS = 1024
FULL_BELOW_BYTES = 1 << 24
"""With less room than this on the disk, a write that is cut short means that the disk is full."""

NOTICE_SECONDS = 1.0
"""How often a reader looks for a compacted file."""

_FORMAT_LIB = 0  # LMDB 0.9's file format, which every LMDB tool reads
_META_PAGES = 2
_NOTHING = np.empty(0, np.uint8)

_Out = TypeVar("_Out")
_Given = TypeVarTuple("_Given")

Entry = tuple[bytes, bytes]
Pages = NDArray[np.uint8]
"""A file as it lies in memory, read-only."""


class Cursor(Protocol):
    """The part of lmdb.Cursor that is used, with the types that it has when buffers are off."""

    def set_range(self, key: bytes) -> bool: ...
    def next(self) -> bool: ...
    def key(self) -> bytes: ...
    def value(self) -> bytes: ...


class Transaction(Protocol):
    """The part of lmdb.Transaction that is used, with the types that it has when buffers are off."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> bool: ...
    def delete(self, key: bytes) -> bool: ...
    def cursor(self) -> Cursor: ...


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a file on the disk, how many of them are free, and who reads it."""

    file_bytes: int
    free_bytes: int
    readers: tuple[Reader, ...]


class LmdbFile:
    """The file ``NAME.lmdb`` in `folder`, or the compacted ``NAME.GENERATION.lmdb`` that took its place."""

    def __init__(self, folder: Path, name: str, read_only: bool) -> None:
        self.folder = folder
        self.name = name
        self._read_only = read_only
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._open()
        if not read_only:
            self._remove_leftovers()

    @contextmanager
    def view(self) -> Iterator[Transaction]:
        """A short read transaction."""
        with self._lock, self._explained():
            self._take_notice()
            with self._begin() as txn:
                yield cast(Transaction, txn)

    def use(
        self, keys: Sequence[bytes], absent: bytes, function: Callable[[list[bytes | memoryview]], _Out]
    ) -> _Out:
        """What `function` makes of the values of `keys`, as of one moment; `absent` for those not there.

        It sees them where they lie, and must not keep them.
        """
        with self._lock, self._explained():
            self._take_notice()
            with self._begin(buffers=True) as txn:
                return function([txn.get(key, absent) for key in keys])

    def look(self, function: Callable[[Pages, int, *_Given], _Out], *given: *_Given) -> _Out:
        """What `function` makes of the pages of the file, and of the number of a transaction that is open.

        A look-up's way to its bytes: machine code finds them sooner than LMDB's functions can be called. What
        is given follows. `function` must not keep the pages. Written out, as every look-up goes this way.
        """
        lock = self._lock
        lock.acquire()
        try:
            self._take_notice()
            txn = self._begin()
            try:
                number = txn.id()
                if number != self._mapped:
                    self._map(number)
                return function(self._pages, number, *given)
            finally:
                txn.abort()
        except lmdb.Error as error:
            raise self._our(error) from error
        finally:
            lock.release()

    def change(self, action: Callable[[Transaction], int]) -> int:
        """Run `action` in a write transaction, and commit. It runs again, from the start, after growth."""
        with self._lock, self._explained():
            self._refuse_fork()
            self._env.reader_check()  # the slots of readers that were killed would pin pages
            while True:
                try:
                    with self._env.begin(write=True) as txn:
                        return action(cast(Transaction, txn))
                except lmdb.MapFullError:
                    self._env.set_mapsize(2 * self._env.info()["map_size"])
                except lmdb.MapResizedError:
                    self._env.set_mapsize(0)

    def compact(self) -> int:
        """Put a copy without free pages in the place of the file; how many bytes smaller it is."""
        with self._lock, self._explained():
            before = self.path.stat().st_blocks
            old_path = self.path
            draft = self.folder / f".{self.name}.{os.urandom(6).hex()}"
            try:
                self._copy_to(draft)
                draft.rename(self.folder / f"{self.name}.{_generation(self.path) + 1}.lmdb")
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(self.folder)
            self._close()
            self._open()
            _remove(old_path)
            return (before - self.path.stat().st_blocks) * 512

    def copy(self, folder: Path) -> None:
        """Copy the file, as of one moment, without free pages, to ``NAME.lmdb`` in `folder`."""
        with self._lock, self._explained():
            self._take_notice()
            self._copy_to(folder / f"{self.name}.lmdb")

    def check_pages(self) -> None:
        """Make sure that the pages of the file hang together: see `pages.check_pages`."""
        with self._lock, self._explained():
            self._take_notice()
            with self._begin() as txn:
                check_pages(self.path, txn.id())

    def set_aside(self) -> Path:
        """Rename a file that is damaged, and put an empty one in its place; where it lies now."""
        with self._lock, self._explained():
            generation = _generation(self.path) + 1
            kept = self.folder / f"{self.path.name}.damaged-{os.urandom(3).hex()}"
            self._close()
            self.path.rename(kept)
            _remove(self.path)
            # Under a new name, so that readers take notice, and whole from the start.
            draft = self.folder / f".{self.name}.{os.urandom(6).hex()}"
            lmdb.open(os.fspath(draft), subdir=False, lock=False, lib_version=_FORMAT_LIB).close()
            draft.rename(self.folder / f"{self.name}.{generation}.lmdb")
            sync_folder(self.folder)
            self._open()
            return kept

    def sizes(self) -> Sizes:
        """How large the file is, how much of it is free, and who reads it."""
        with self._lock, self._explained():
            self._take_notice()
            with self._begin() as txn:
                stat, info = txn.stat(None), self._env.info()
            used = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] + _META_PAGES
            free = max(0, info["last_pgno"] + 1 - used) * stat["psize"]
            return Sizes(self.path.stat().st_blocks * 512, free, self._readers())

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._env.close()
        self._file.close()
        self._pages = _NOTHING

    def _open(self) -> None:
        """Open the highest generation. One that is replaced and removed meanwhile is looked for again."""
        while True:
            path = _newest(self.folder, self.name)
            try:
                with self._explained(path):
                    file_bytes = path.stat().st_size if path.exists() else 0
                    env = lmdb.open(
                        os.fspath(path),
                        subdir=False,
                        create=not self._read_only,
                        readonly=self._read_only,
                        # Without a lock file a reader is not known to the writer. That is right only
                        # where nobody can write: on a file system, or in a folder, that is read-only to us.
                        lock=not self._read_only or os.access(self.folder, os.W_OK),
                        map_size=max(INITIAL_MAP_BYTES, 2 * file_bytes),
                        max_readers=MAX_READERS,
                        max_spare_txns=4,
                        readahead=False,
                        lib_version=_FORMAT_LIB,
                    )
                    try:
                        file = path.open("rb")
                    except OSError:
                        env.close()
                        raise
            except StoreError:
                if path == _newest(self.folder, self.name):
                    raise
                continue
            self.path, self._env, self._file = path, env, file
            self._pages, self._mapped = _NOTHING, -1
            self._noticed = monotonic()
            return

    def _map(self, transaction: int) -> None:
        """Have all pages of `transaction`, the file's last one, in the map."""
        with self._explained():
            if os.fstat(self._file.fileno()).st_size > len(self._pages):
                mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
                mapped.madvise(mmap.MADV_RANDOM)
                self._pages = np.frombuffer(mapped, np.uint8)
        self._mapped = transaction

    def _begin(self, buffers: bool = False) -> lmdb.Transaction[Any]:
        begin: Callable[..., lmdb.Transaction[Any]] = self._env.begin
        try:
            return begin(buffers=buffers)
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)
            return begin(buffers=buffers)

    def _take_notice(self) -> None:
        """Move on to the compacted file when there is one; refuse use after a fork."""
        self._refuse_fork()
        now = monotonic()
        if now - self._noticed < NOTICE_SECONDS:
            return
        self._noticed = now
        if not self._read_only or _newest(self.folder, self.name) == self.path:
            return
        self._close()
        self._open()

    def _refuse_fork(self) -> None:
        if self._pid != getpid():
            raise StoreError(
                f"{self.path}: opened by process {self._pid}, used by its child {os.getpid()}; "
                "open the catalogue again after the fork"
            )

    def _remove_leftovers(self) -> None:
        """Remove what an interrupted compaction left."""
        for path in self.folder.iterdir():
            draft = path.name.startswith(f".{self.name}.")
            if draft or (_belongs(path, self.name) and path != self.path):
                _remove(path)

    def _copy_to(self, path: Path) -> None:
        with path.open("wb") as file:
            self._env.copyfd(file.fileno(), compact=True)
            file.flush()
            os.fsync(file.fileno())

    def _readers(self) -> tuple[Reader, ...]:
        rows = self._env.readers().splitlines()[1:]  # a heading, then: pid thread txnid
        fields = [row.split() for row in rows]
        return tuple(Reader(self.name, int(f[0]), f[-1] != "-") for f in fields if f and f[0].isdigit())

    @contextmanager
    def _explained(self, path: Path | None = None) -> Iterator[None]:
        """Turn what LMDB and the disk say into our errors."""
        try:
            yield
        except (lmdb.MapFullError, lmdb.MapResizedError):
            raise
        except lmdb.Error as error:
            raise self._our(error, path) from error
        except OSError as error:
            where = path or self.path
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFullError(where, error.strerror or str(error)) from error
            raise StoreError(f"{where}: {error}") from error

    def _our(self, error: lmdb.Error, opening: Path | None = None) -> Exception:
        """Our error for one of LMDB's."""
        path = opening or self.path
        if isinstance(error, lmdb.DiskError):
            return StoreFullError(path, str(error))
        if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError):
            return FormatVersionError(os.fspath(path), str(error), "an LMDB 0.9 file")
        if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.PanicError):
            return RecordCorruptError(os.fspath(path), "sound LMDB pages", str(error))
        if "already open in this process" in str(error):
            return StoreError(f"{path} is open in this process already; use that object, or close it first")
        # LMDB says EIO when a write is cut short, which is how most disks say that they are full.
        if error.code == errno.EIO and _room_beside(path) < FULL_BELOW_BYTES:
            return StoreFullError(path, str(error))
        return StoreError(f"{path}: {error}; is the disk sound, or its quota used up?")


def _newest(folder: Path, name: str) -> Path:
    """The file of the highest generation; generation 0 where there is none."""
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    paths = [folder / entry for entry in names if _belongs(Path(entry), name)]
    return max(paths, key=_generation, default=folder / f"{name}.lmdb")


def _belongs(path: Path, name: str) -> bool:
    return re.fullmatch(rf"{re.escape(name)}(\.\d+)?\.lmdb", path.name) is not None


def _generation(path: Path) -> int:
    """0 for ``0000.lmdb``, 3 for ``0000.3.lmdb``."""
    _, *middle, _ = path.name.split(".")
    return int(middle[0]) if middle else 0


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}-lock").unlink(missing_ok=True)


def _room_beside(path: Path) -> int:
    system = os.statvfs(path.parent)
    return system.f_bavail * system.f_frsize
