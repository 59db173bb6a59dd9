"""Libraries that hold bytes, each set up as suits texcat's best: by name, or in columns."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import diskcache
import h5py
import lance
import lance.file
import numpy as np
import pyarrow as pa
import redis
import rocksdict
import zarr
from numpy.typing import NDArray

CACHE_BYTES = 1 << 30
"""Memory that an engine may use for a cache of its own: enough for all, as the system's is for the others."""

Value = Any
"""Anything that gives its bytes as a buffer."""

T = TypeVar("T")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """`items` in lists of `size`; the last may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


class Engine(Protocol):
    """Holds values by name.

    Attributes:
        checks: whether it checks the bytes that it reads itself.
    """

    checks = False

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep values. Those of a format without keys take the place of all that there was, in order."""

    def get(self, name: bytes) -> Value:
        """One value."""

    def get_many(self, names: Sequence[bytes]) -> Sequence[Value]:
        """Values of `names`, which are neighbours as `put` had them where the format has no keys."""
        return [self.get(name) for name in names]

    def close(self) -> None:
        """Let go of everything."""


class Memory(Engine):
    """A dict: no store at all, but what a look-up costs when its bytes cost nothing."""

    def __init__(self, folder: Path) -> None:
        self._values: dict[bytes, bytes] = {}

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        self._values.update(items)

    def get(self, name: bytes) -> Value:
        return self._values[name]


class Npz(Engine):
    """An uncompressed file a value, with zip's CRC-32; zipfile reads it in a third of numpy.load's time."""

    checks = True

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in items:
            np.savez(f"{self._folder}{name.hex()}.npz", record=np.frombuffer(value, np.uint8))

    def get(self, name: bytes) -> Value:
        with zipfile.ZipFile(f"{self._folder}{name.hex()}.npz") as archive:
            content = archive.read("record.npy")
        # Of a .npy file, version 1: eight bytes of magic, the length of the header, the header, the values.
        return memoryview(content)[10 + int.from_bytes(content[8:10], "little") :]


class Sqlite(Engine):
    """A table of name and blob with an index; WAL, memory-mapped, 500 a transaction, prepared statements."""

    _get = "SELECT value FROM entries WHERE name = ?"

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "values.sqlite", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA mmap_size = {CACHE_BYTES}")
        # WITHOUT ROWID would save the index, but put the blobs into its tree: three times slower to read.
        self._db.execute("CREATE TABLE entries (name BLOB PRIMARY KEY, value BLOB NOT NULL)")

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        update = "INSERT INTO entries VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
        for chunk in batches(items, 500):
            self._db.execute("BEGIN")
            self._db.executemany(update, chunk)
            self._db.execute("COMMIT")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def get(self, name: bytes) -> Value:
        return self._db.execute(self._get, (name,)).fetchone()[0]

    def close(self) -> None:
        self._db.close()


class Diskcache(Engine):
    """Values within its database rather than in files of their own, nothing evicted, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self._cache = diskcache.Cache(
            str(folder),
            eviction_policy="none",
            size_limit=1 << 40,
            disk_min_file_size=1 << 20,
            sqlite_mmap_size=CACHE_BYTES,
        )

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        for chunk in batches(items, 500):
            with self._cache.transact():
                for name, value in chunk:
                    self._cache.set(name, value)

    def get(self, name: bytes) -> Value:
        return self._cache.get(name)

    def close(self) -> None:
        self._cache.close()


class Rocksdict(Engine):
    """Uncompressed blocks, Bloom filters, compacted after a write; a cache for all blocks, each checked
    as it enters. (With values in blob files a read took five times as long.)
    """

    checks = True

    def __init__(self, folder: Path) -> None:
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(rocksdict.Cache(CACHE_BYTES))
        blocks.set_bloom_filter(10, False)
        options = rocksdict.Options(raw_mode=True)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        options.set_block_based_table_factory(blocks)
        self._db = rocksdict.Rdict(str(folder / "values"), options)

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        for chunk in batches(items, 500):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for name, value in chunk:
                batch.put(name, value)
            self._db.write(batch)
        self._db.flush()
        self._db.compact_range(None, None)

    def get(self, name: bytes) -> Value:
        return self._db.get(name)

    def get_many(self, names: Sequence[bytes]) -> Sequence[Value]:
        values: Sequence[Value] = cast(Any, self._db).get(names)
        return values

    def close(self) -> None:
        self._db.close()


class Redis(Engine):
    """A server on a Unix socket, hiredis, an append-only file synced each second; all is in memory, too."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("redis-server") is None:
            raise SystemExit(
                "redis-server is missing; install it (Debian, Ubuntu: apt-get install redis-server)"
            )
        socket = folder / "socket"
        options = {
            "port": "0",
            "unixsocket": str(socket),
            "dir": str(folder),
            "save": "",
            "appendonly": "yes",
            "auto-aof-rewrite-percentage": "0",
        }
        flags = [text for name, value in options.items() for text in (f"--{name}", value)]
        self._server = subprocess.Popen(["redis-server", *flags], stdout=subprocess.DEVNULL)
        while not socket.exists():
            if self._server.poll() is not None:
                raise SystemExit(f"redis-server ended at once, with status {self._server.returncode}")
            time.sleep(0.01)
        self._client = redis.Redis(unix_socket_path=str(socket), single_connection_client=True)

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        for chunk in batches(items, 500):
            self._client.mset(dict(chunk))

    def get(self, name: bytes) -> Value:
        return self._client.get(name)

    def get_many(self, names: Sequence[bytes]) -> Sequence[Value]:
        return self._client.mget(names)

    def close(self) -> None:
        self._client.close()
        self._server.terminate()
        self._server.wait()


class H5pyValues(Engine):
    """A dataset [N, bytes], a row a chunk, read and written as raw chunks, past HDF5's conversions."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "values.h5"
        self._file: h5py.File | None = None

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = list(items)
        self.close()
        self._rows = {name: row for row, (name, _) in enumerate(pairs)}
        width = len(pairs[0][1])
        with h5py.File(self._path, "w", libver="latest") as file:
            dataset = file.create_dataset("values", (len(pairs), width), np.uint8, chunks=(1, width))
            for row, (_, value) in enumerate(pairs):
                dataset.id.write_direct_chunk((row, 0), value)
        self._file = h5py.File(self._path, "r")
        self._dataset = self._file["values"].id

    def get(self, name: bytes) -> Value:
        return self._dataset.read_direct_chunk((self._rows[name], 0))[1]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ZarrValues(Engine):
    """An array [N, bytes], a row a chunk and so a file. (From shards a read took twice as long.)"""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "values.zarr"

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = list(items)
        self._rows = {name: row for row, (name, _) in enumerate(pairs)}
        width = len(pairs[0][1])
        self._array = _zarr_array(self._path, (len(pairs), width), (1, width))
        self._array[:] = np.frombuffer(b"".join(value for _, value in pairs), np.uint8).reshape(-1, width)

    def get(self, name: bytes) -> Value:
        return self._array.get_basic_selection((self._rows[name],))

    def get_many(self, names: Sequence[bytes]) -> Sequence[Value]:
        # They are asked for in order, and a slice takes a tenth of the time of as many single rows.
        first = self._rows[names[0]]
        return list(np.asarray(self._array[first : first + len(names)]))


class LanceValues(Engine):
    """Binaries of fixed size, one fragment, read by LanceFileReader, in a quarter of Dataset.take's time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "values.lance"

    def put(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = list(items)
        self._rows = {name: row for row, (name, _) in enumerate(pairs)}
        values = pa.array([value for _, value in pairs], pa.binary(len(pairs[0][1])))
        mode = "overwrite" if self._path.exists() else "create"
        dataset = lance.write_dataset(pa.table({"value": values}), str(self._path), mode=mode)
        dataset.cleanup_old_versions(older_than=timedelta(0))
        (fragment,) = dataset.get_fragments()
        (file,) = fragment.data_files()
        self._file = lance.file.LanceFileReader(str(self._path / "data" / file.path))

    def get(self, name: bytes) -> Value:
        return _bytes_of(self._file.take_rows([self._rows[name]]).to_table().column(0)[0])

    def get_many(self, names: Sequence[bytes]) -> Sequence[Value]:
        column = self._file.take_rows([self._rows[name] for name in names]).to_table().column(0)
        return [_bytes_of(value) for value in column]


class ColumnEngine(Protocol):
    """Holds columns uint8 [N, bytes] by name."""

    def write(self, columns: Mapping[str, NDArray[np.uint8]]) -> None:
        """Keep the first columns."""
        ...

    def add(self, name: str, column: NDArray[np.uint8]) -> None:
        """Keep one more."""
        ...

    def row(self, row: int, names: Sequence[str]) -> Sequence[Value]:
        """What the columns `names` hold at a row."""
        ...

    def column(self, name: str) -> NDArray[np.uint8]:
        """A whole column."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class H5pyColumns(ColumnEngine):
    """A contiguous dataset [N, bytes] a column: no chunk to find. A sieve buffer of a page halves a read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "columns.h5"
        self._file: h5py.File | None = None

    def write(self, columns: Mapping[str, NDArray[np.uint8]]) -> None:
        self.close()
        with h5py.File(self._path, "a", libver="latest") as file:
            for name, column in columns.items():
                file.create_dataset(name, data=column)
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_sieve_buf_size(4096)
        self._file = h5py.File(h5py.h5f.open(bytes(self._path), h5py.h5f.ACC_RDONLY, access))
        self._columns = {name: self._file[name] for name in self._file}

    def add(self, name: str, column: NDArray[np.uint8]) -> None:
        self.write({name: column})

    def row(self, row: int, names: Sequence[str]) -> Sequence[Value]:
        return [self._columns[name][row] for name in names]

    def column(self, name: str) -> NDArray[np.uint8]:
        values: NDArray[np.uint8] = self._columns[name][:]
        return values

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ZarrColumns(ColumnEngine):
    """An array [N, bytes] a column, in chunks of about 17 kB: one row of the base, 64 of an interest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._columns: dict[str, zarr.Array[Any]] = {}

    def write(self, columns: Mapping[str, NDArray[np.uint8]]) -> None:
        for name, column in columns.items():
            self.add(name, column)

    def add(self, name: str, column: NDArray[np.uint8]) -> None:
        rows = 1 if name == "base" else 64
        array = _zarr_array(self._folder / name, column.shape, (rows, column.shape[1]))
        array[:] = column
        self._columns[name] = array

    def row(self, row: int, names: Sequence[str]) -> Sequence[Value]:
        return [self._columns[name].get_basic_selection((row,)) for name in names]

    def column(self, name: str) -> NDArray[np.uint8]:
        return np.asarray(self._columns[name][:])

    def close(self) -> None:
        pass


class LanceColumns(ColumnEngine):
    """Binaries of fixed size, read with Dataset.take; a new column is a new data file."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "columns.lance")

    def write(self, columns: Mapping[str, NDArray[np.uint8]]) -> None:
        self._dataset = lance.write_dataset(_arrow_table(columns), self._path)

    def add(self, name: str, column: NDArray[np.uint8]) -> None:
        table = _arrow_table({name: column})
        self._dataset.add_columns(table.to_reader(), reader_schema=table.schema)

    def row(self, row: int, names: Sequence[str]) -> Sequence[Value]:
        table = self._dataset.take([row], columns=list(names))
        return [_bytes_of(table.column(name)[0]) for name in names]

    def column(self, name: str) -> NDArray[np.uint8]:
        chunk = self._dataset.to_table(columns=[name]).column(name).combine_chunks()
        return np.frombuffer(chunk.buffers()[1], np.uint8).reshape(len(chunk), -1)

    def close(self) -> None:
        pass


def _zarr_array(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> zarr.Array[Any]:
    return zarr.create_array(
        store=str(path),
        shape=shape,
        dtype="uint8",
        chunks=chunks,
        compressors=None,
        filters=None,
        overwrite=True,
    )


def _arrow_table(columns: Mapping[str, NDArray[np.uint8]]) -> pa.Table:
    """Columns uint8 [N, bytes] as binaries of fixed size, none copied."""
    arrays = {
        name: pa.Array.from_buffers(pa.binary(column.shape[1]), len(column), [None, pa.py_buffer(column)])
        for name, column in columns.items()
    }
    return pa.table(arrays)


def _bytes_of(value: pa.Scalar) -> memoryview:
    """A binary of Arrow where it lies; Arrow's own buffers give signed numbers."""
    return memoryview(value.as_buffer()).cast("B")
