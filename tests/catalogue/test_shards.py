"""What only a store on disk can do: grow, be damaged, be shared, be read-only."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import lmdb
import numpy as np
import pytest
from texcat.catalogue import shards
from texcat.catalogue.errors import (
    FingerprintMismatchError,
    FormatVersionError,
    RecordCorruptError,
    StoreFullError,
)
from texcat.catalogue.types import ImageKey, Planes, TextureRecord

from ..unprivileged import as_nobody, let_reach
from .strategies import KEYS
from .test_store import lmdb_store, record

RANDOM = np.random.default_rng(7)


def noise(count: int = 24) -> Planes:
    """Planes that do not compress."""
    return Planes(
        RANDOM.integers(0, 256, (count, 32, 32), np.uint8), np.zeros(count, "f4"), np.ones(count, "f4")
    )


def many(count: int) -> list[TextureRecord]:
    return [TextureRecord(ImageKey.of(b"%d" % number), noise()) for number in range(count)]


def test_grows_far_beyond_its_first_map(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    records = many(2 * shards.INITIAL_MAP_BYTES // (24 * 1024) * 2)
    store.write(records[:100])
    store.write(records[100:])
    assert store.stats().images == len(records)
    assert store.stats().file_bytes > 2 * shards.INITIAL_MAP_BYTES
    store.close()


def test_an_open_reader_sees_what_a_grown_store_holds(tmp_path: Path) -> None:
    writer = lmdb_store(tmp_path)
    writer.write([record(KEYS[0], 1)])
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        pool.apply(_open_reader, (tmp_path,))
        assert pool.apply(_count) == 1
        records = many(2 * shards.INITIAL_MAP_BYTES // (24 * 1024) * 2)
        writer.write(records)
        assert pool.apply(_count) == len(records) + 1
    writer.close()


def test_threads_read_while_one_writes_and_grows(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1, (1,))])
    stop = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                base = store.read(KEYS[0], [1]).base
                assert base is not None
                assert (base.values == 1).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    records = many(1600)
    for start in range(0, len(records), 200):
        store.write(records[start : start + 200])
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    store.close()


@pytest.mark.parametrize("part", ["base", "interest 1"])
def test_a_damaged_record_is_never_served_and_is_found(tmp_path: Path, part: str) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1, (1,)), record(KEYS[1], 2, (1,))])
    store.close()
    _spoil(tmp_path, KEYS[0] + (0 if part == "base" else 1).to_bytes(4, "big"))
    store = lmdb_store(tmp_path)
    with pytest.raises(RecordCorruptError, match=f"record {KEYS[0]}/{part} is damaged"):
        store.read(KEYS[0])
    problems = list(store.check())
    assert [problem.key for problem in problems] == [KEYS[0]]
    assert part in problems[0].reason
    assert store.read(KEYS[1]).maps.keys() == {1}
    store.write([record(KEYS[0], 1, (1,))])
    assert list(store.check()) == []
    store.close()


def test_check_finds_what_is_out_of_place(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1, (1,))])
    store.close()
    with lmdb.open(str(tmp_path / "0000.lmdb"), subdir=False) as env, env.begin(write=True) as txn:
        base = txn.get(KEYS[0] + bytes(4))
        assert base is not None
        txn.delete(KEYS[0] + bytes(4))
        txn.put(b"short", b"value")
    with lmdb.open(str(tmp_path / "0001.lmdb"), subdir=False) as env, env.begin(write=True) as txn:
        txn.put(KEYS[0] + bytes(4), base)
    store = lmdb_store(tmp_path)
    reasons = sorted(problem.reason for problem in store.check())
    assert reasons[0] == "it is a map of an image that has no base texture"
    assert reasons[1] == "it is in the wrong shard"
    assert reasons[2].startswith("its key has 5 bytes")
    store.close()


def test_records_of_another_encoder_are_refused(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1)])
    store.close()
    other = lmdb_store(tmp_path, fingerprint="another encoder")
    with pytest.raises(FingerprintMismatchError):
        other.read(KEYS[0])
    other.close()


def test_a_file_that_is_not_lmdb_says_so(tmp_path: Path) -> None:
    (tmp_path / "0000.lmdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(FormatVersionError, match=r"0000\.lmdb"):
        lmdb_store(tmp_path)


def test_reads_from_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1)])
    store.close()
    for file in tmp_path.glob("*-lock"):
        file.unlink()
    let_reach(tmp_path)
    tmp_path.chmod(0o555)

    def count() -> str:
        store = lmdb_store(tmp_path, read_only=True)
        return str(len(list(store.keys())))

    assert as_nobody(count) == "1"


def test_use_after_fork_is_an_error(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1)])
    answer = as_nobody(lambda: repr(store.read(KEYS[0])))
    assert "StoreError" in answer
    assert "open the catalogue again after the fork" in answer
    store.close()


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    store = lmdb_store(small_disk)
    records = many(200)
    kept = 0
    with pytest.raises(StoreFullError, match="free some space"):
        for start in range(0, len(records), 10):
            store.write(records[start : start + 10])
            kept = start + 10
    assert kept > 0
    assert {r.key for r in records[:kept]} <= set(store.keys())
    assert list(store.check()) == []
    (small_disk / "ballast").unlink()
    store.write(records[kept:])
    assert store.stats().images == len(records)
    store.close()


_reader: shards.LmdbTextureStore


def _open_reader(folder: Path) -> None:
    global _reader
    _reader = lmdb_store(folder, read_only=True)


def _count() -> int:
    return len(list(_reader.keys()))


def _spoil(folder: Path, key: bytes) -> None:
    """Flip one bit in the value stored under `key`, past the store."""
    with lmdb.open(str(folder / "0000.lmdb"), subdir=False) as env, env.begin(write=True) as txn:
        value = bytearray(txn.get(key) or b"")
        assert value, "the entry must be in shard 0"
        value[-1] ^= 0x10
        txn.put(key, bytes(value))


