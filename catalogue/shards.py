"""The texture store on disk: LMDB files, one writer at a time, any number of readers.

The first four bytes of an image key choose its shard. In a shard, the key of an entry is the image key
followed by a big-endian uint32: 0 for the base texture, else the id of an interest. So all that one look-up
reads lies in neighbouring entries, and adding or removing an interest rewrites nothing else.

The only module that imports lmdb. Facts that it rests on:

- A commit is on the disk when it returns, and an interrupted one leaves no trace.
- The memory map has a size. It is grown between transactions, never within one; a process that finds that
  another has grown the file adopts the new size. No transaction of this process may be open meanwhile,
  so each shard has a lock, held while one is.
- An environment must not be used after a fork; that is an error here.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lmdb

from . import codec
from .errors import (
    FormatVersionError,
    RecordCorruptError,
    RecordMissingError,
    StoreError,
    StoreFullError,
    TexcatError,
)
from .store import Problem, StoreStats
from .types import KEY_BYTES, ImageKey, Planes, TextureRecord

INITIAL_MAP_BYTES = 1 << 24
MAX_READERS = 1024
FULL_BELOW_BYTES = 1 << 24
"""With less room than this on the disk, a write that is cut short means that the disk is full."""

CHUNK = 512
"""Entries that a scan reads in one transaction: long ones would keep freed pages from being used again."""

_PART = struct.Struct(">I")
_BASE = _PART.pack(0)
_LAST = b"\xff" * _PART.size
_FORMAT_LIB = 0  # LMDB 0.9's file format, which every LMDB tool reads
_META_PAGES = 2

_Entry = tuple[bytes, bytes]


class LmdbTextureStore:
    """A `TextureStore` in a folder of LMDB files.

    Args:
        folder: holds one file a shard, ``0000.lmdb`` and so on; made when missing and not `read_only`.
        shards: how many; fixed for the life of the folder.
        fingerprint: of the encoder whose records these are; a record of another is an error.
        read_only: refuse changes. Works on a file system that cannot be written.
    """

    def __init__(self, folder: Path, *, shards: int, fingerprint: str, read_only: bool = False) -> None:
        self.folder = folder
        self._tag = codec.fingerprint_tag(fingerprint)
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
        self._shards = [_Shard(folder / f"{number:04}.lmdb", read_only) for number in range(shards)]

    def write(self, records: Iterable[TextureRecord]) -> None:
        batch = list(records)
        based = {record.key for record in batch if record.base is not None}
        for record in batch:
            if record.key not in based and self.held(record.key) is None:
                raise RecordMissingError(str(record.key))
        entries: dict[_Shard, list[_Entry]] = {}
        for record in batch:
            entries.setdefault(self._shard(record.key), []).extend(self._entries(record))
        for shard, items in entries.items():
            shard.change(_put(items))

    def read(self, key: ImageKey, interests: Collection[int] | None = None) -> TextureRecord:
        shard = self._shard(key)
        with shard.view() as txn:
            base = txn.get(key + _BASE)
            if base is None:
                raise RecordMissingError(str(key))
            if interests is None:
                interests = _parts(txn, key)
            maps = {i: value for i in sorted(interests) if (value := txn.get(key + _PART.pack(i))) is not None}
        return TextureRecord(
            key,
            self._decode(key + _BASE, base),
            {i: self._decode(key + _PART.pack(i), value) for i, value in maps.items()},
        )

    def held(self, key: ImageKey) -> frozenset[int] | None:
        with self._shard(key).view() as txn:
            if txn.get(key + _BASE) is None:
                return None
            return frozenset(_parts(txn, key))

    def keys(self) -> Iterator[ImageKey]:
        for shard in self._shards:
            for chunk in _images(shard):
                yield from chunk

    def scan(self, interest: int) -> Iterator[tuple[ImageKey, Planes]]:
        part = _PART.pack(interest)
        for shard in self._shards:
            for chunk in _images(shard):
                with shard.view() as txn:
                    found = [(key, value) for key in chunk if (value := txn.get(key + part)) is not None]
                for key, value in found:
                    yield key, self._decode(key + part, value)

    def drop_interest(self, interest: int) -> int:
        part = _PART.pack(interest)
        return sum(
            shard.change(_delete([key + part for key in chunk]))
            for shard in self._shards
            for chunk in _images(shard)
        )

    def delete(self, keys: Iterable[ImageKey]) -> int:
        doomed: dict[_Shard, list[ImageKey]] = {}
        for key in dict.fromkeys(keys):
            doomed.setdefault(self._shard(key), []).append(key)
        gone = 0
        for shard, chosen in doomed.items():
            with shard.view() as txn:
                held = [key for key in chosen if txn.get(key + _BASE) is not None]
                entries = [key + _PART.pack(part) for key in held for part in (0, *_parts(txn, key))]
            shard.change(_delete(entries))
            gone += len(held)
        return gone

    def stats(self) -> StoreStats:
        images = base_bytes = 0
        maps: dict[int, int] = {}
        map_bytes: dict[int, int] = {}
        for shard in self._shards:
            for chunk in _entries(shard):
                for key, value in chunk:
                    (part,) = _PART.unpack(key[-_PART.size :])
                    if part == 0:
                        images += 1
                        base_bytes += len(value)
                    else:
                        maps[part] = maps.get(part, 0) + 1
                        map_bytes[part] = map_bytes.get(part, 0) + len(value)
        sizes = [shard.sizes() for shard in self._shards]
        return StoreStats(
            images, maps, base_bytes, map_bytes, sum(file for file, _ in sizes), sum(free for _, free in sizes)
        )

    def check(self) -> Iterator[Problem]:
        for shard in self._shards:
            try:
                for chunk in _entries(shard):
                    for key, value in chunk:
                        yield from self._check_entry(shard, key, value)
            except StoreError as error:
                yield Problem(os.fspath(shard.path), str(error))

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    def _check_entry(self, shard: _Shard, key: bytes, value: bytes) -> Iterator[Problem]:
        where = f"{shard.path.name}/{key.hex()}"
        if len(key) != KEY_BYTES + _PART.size:
            yield Problem(where, f"its key has {len(key)} bytes, expected {KEY_BYTES + _PART.size}")
            return
        image = ImageKey(key[:KEY_BYTES])
        if self._shard(image) is not shard:
            yield Problem(where, "it is in the wrong shard", image)
        try:
            self._decode(key, value)
        except TexcatError as error:
            yield Problem(where, str(error), image)
        if key[KEY_BYTES:] != _BASE:
            with shard.view() as txn:
                if txn.get(image + _BASE) is None:
                    yield Problem(where, "it is a map of an image that has no base texture", image)

    def _shard(self, key: ImageKey) -> _Shard:
        return self._shards[int.from_bytes(key[:4], "big") % len(self._shards)]

    def _entries(self, record: TextureRecord) -> Iterator[_Entry]:
        parts = {0: record.base, **record.maps} if record.base is not None else record.maps
        for part, planes in parts.items():
            if planes is not None:
                key = record.key + _PART.pack(part)
                yield key, codec.encode(planes, key, self._tag)

    def _decode(self, key: bytes, value: bytes) -> Planes:
        image, part = key[:KEY_BYTES].hex(), _PART.unpack(key[KEY_BYTES:])[0]
        return codec.decode(value, key, self._tag, f"{image}/{f'interest {part}' if part else 'base'}")


class _Shard:
    """One LMDB file."""

    def __init__(self, path: Path, read_only: bool) -> None:
        self.path = path
        self._pid = os.getpid()
        self._lock = threading.RLock()
        file_bytes = path.stat().st_size if path.exists() else 0
        with self._explained():
            self._env = lmdb.open(
                os.fspath(path),
                subdir=False,
                create=not read_only,
                readonly=read_only,
                # Without a lock file a reader is not known to the writer. That is right only where
                # nobody can write: on a file system or in a folder that is read-only to us.
                lock=not read_only or os.access(path.parent, os.W_OK),
                map_size=max(INITIAL_MAP_BYTES, 2 * file_bytes),
                max_readers=MAX_READERS,
                readahead=False,
                lib_version=_FORMAT_LIB,
            )

    @contextmanager
    def view(self) -> Iterator[lmdb.Transaction]:
        """A short read transaction."""
        with self._lock, self._explained():
            self._refuse_fork()
            try:
                txn = self._env.begin()
            except lmdb.MapResizedError:
                self._env.set_mapsize(0)
                txn = self._env.begin()
            with txn:
                yield txn

    def change(self, action: Callable[[lmdb.Transaction], int]) -> int:
        """Run `action` in a write transaction, and commit. It runs again, from the start, after growth."""
        with self._lock, self._explained():
            self._refuse_fork()
            while True:
                try:
                    with self._env.begin(write=True) as txn:
                        return action(txn)
                except lmdb.MapFullError:
                    self._env.set_mapsize(2 * self._env.info()["map_size"])
                except lmdb.MapResizedError:
                    self._env.set_mapsize(0)

    def sizes(self) -> tuple[int, int]:
        """Bytes of the file on disk, and how many of them are in pages that are free."""
        with self.view() as txn:
            stat, info = txn.stat(None), self._env.info()
        used = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] + _META_PAGES
        free = info["last_pgno"] + 1 - used
        return self.path.stat().st_blocks * 512, max(0, free) * stat["psize"]

    def close(self) -> None:
        with self._lock:
            self._env.close()

    def _refuse_fork(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.path}: opened by process {self._pid}, used by its child {os.getpid()}; "
                "open the catalogue again after the fork"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what LMDB and the disk say into our errors."""
        try:
            yield
        except (lmdb.MapFullError, lmdb.MapResizedError):
            raise
        except lmdb.DiskError as error:
            raise StoreFullError(self.path, str(error)) from error
        except (lmdb.InvalidError, lmdb.VersionMismatchError) as error:
            raise FormatVersionError(os.fspath(self.path), str(error), "an LMDB 0.9 file") from error
        except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError) as error:
            raise RecordCorruptError(os.fspath(self.path), "sound LMDB pages", str(error)) from error
        except lmdb.Error as error:
            if "already open in this process" in str(error):
                reason = "is open in this process already; use that object, or close it first"
                raise StoreError(f"{self.path} {reason}") from error
            # LMDB says EIO when a write is cut short, which is how most disks say that they are full.
            if error.code == errno.EIO and _room_beside(self.path) < FULL_BELOW_BYTES:
                raise StoreFullError(self.path, str(error)) from error
            raise StoreError(f"{self.path}: {error}; is the disk sound, or its quota used up?") from error
        except OSError as error:
            raise StoreError(f"{self.path}: {error}") from error


def _room_beside(path: Path) -> int:
    system = os.statvfs(path.parent)
    return system.f_bavail * system.f_frsize


def _put(entries: Sequence[_Entry]) -> Callable[[lmdb.Transaction], int]:
    def action(txn: lmdb.Transaction) -> int:
        for key, value in entries:
            txn.put(key, value)
        return len(entries)

    return action


def _delete(keys: Sequence[bytes]) -> Callable[[lmdb.Transaction], int]:
    def action(txn: lmdb.Transaction) -> int:
        return sum(txn.delete(key) for key in keys)

    return action


def _parts(txn: lmdb.Transaction, key: ImageKey) -> list[int]:
    """Ids of the interests held for one image."""
    parts = []
    cursor = txn.cursor()
    found = cursor.set_range(key + _PART.pack(1))
    while found and (entry := cursor.key())[:KEY_BYTES] == key:
        parts.append(_PART.unpack(entry[KEY_BYTES:])[0])
        found = cursor.next()
    return parts


def _images(shard: _Shard) -> Iterator[list[ImageKey]]:
    """Keys of the images of a shard, a chunk a transaction."""
    start: bytes = b"\0"
    while True:
        chunk: list[ImageKey] = []
        with shard.view() as txn:
            cursor = txn.cursor()
            found = cursor.set_range(start)
            while found and len(chunk) < CHUNK:
                image, part = cursor.key()[:KEY_BYTES], cursor.key()[KEY_BYTES:]
                if part == _BASE:
                    chunk.append(ImageKey(image))
                start = image + _LAST
                found = cursor.set_range(start)
        if chunk:
            yield chunk
        if not found:
            return


def _entries(shard: _Shard) -> Iterator[list[_Entry]]:
    """All entries of a shard, a chunk a transaction."""
    start: bytes = b"\0"
    while True:
        with shard.view() as txn:
            cursor = txn.cursor()
            chunk = []
            if cursor.set_range(start):
                for key, value in cursor:
                    if len(chunk) == CHUNK:
                        break
                    chunk.append((key, value))
        if not chunk:
            return
        yield chunk
        start = chunk[-1][0] + b"\0"
