"""What only a store on disk can do: grow, be damaged, be shared, be read-only."""

from __future__ import annotations

import multiprocessing
import threading
import time
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import lmdb
import numpy as np
import pytest
from texcat.catalogue import lmdb_file
from texcat.catalogue.codec import CODE_PART
from texcat.catalogue.errors import (
    FingerprintMismatchError,
    FormatVersionError,
    RecordCorruptError,
    RecordMissingError,
    StoreFullError,
    UsageError,
)
from texcat.catalogue.shards import LmdbTextureStore
from texcat.catalogue.types import ImageKey, Planes, TextureRecord

from ..unprivileged import as_nobody, let_reach
from .strategies import KEYS
from .test_store import lmdb_store, plane, record

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
    records = many(2 * lmdb_file.INITIAL_MAP_BYTES // (24 * 1024) * 2)
    store.write(records[:100])
    store.write(records[100:])
    assert store.stats().images == len(records)
    assert store.stats().file_bytes > 2 * lmdb_file.INITIAL_MAP_BYTES
    store.close()


@pytest.mark.timeout(60)
def test_only_the_parts_that_hold_a_map_are_gone_through(tmp_path: Path) -> None:
    """One by one, the parts between these two interests would take minutes."""
    key = ImageKey.of(b"far apart")
    store = lmdb_store(tmp_path)
    store.write([record(key, 1, (1, 2**30))])
    assert store.held(key) == {1, 2**30}
    store.close()


def test_an_open_reader_sees_what_a_grown_store_holds(tmp_path: Path) -> None:
    writer = lmdb_store(tmp_path)
    writer.write([record(KEYS[0], 1)])
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        pool.apply(_open_reader, (tmp_path,))
        assert pool.apply(_count) == 1
        records = many(2 * lmdb_file.INITIAL_MAP_BYTES // (24 * 1024) * 2)
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


@pytest.mark.parametrize("part", ["base", "maps, part 1"])
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
    assert store.held(KEYS[0]) == (None if part == "base" else frozenset()), "what is damaged is made again"
    lacking = {KEYS[1]: set()} if part == "base" else {KEYS[0]: {1}, KEYS[1]: set()}
    assert dict(store.lacking(KEYS, [1])) == lacking
    assert store.discard(problems) == 1
    assert KEYS[0].hex() not in str(list(store.check())) or part == "base"
    store.write([record(KEYS[0], 1, (1,))])
    assert list(store.check()) == []
    store.close()


def test_a_damaged_code_is_never_served_and_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = lmdb_store(tmp_path)
    store.write([replace(record(key, 1, (1,)), code=b"a code") for key in KEYS])
    store.close()
    _spoil(tmp_path, KEYS[0] + CODE_PART.to_bytes(4, "big"))
    store = lmdb_store(tmp_path)
    with pytest.raises(RecordCorruptError, match=f"record {KEYS[0]}/code is damaged"):
        store.code(KEYS[0])
    assert not store.has_code(KEYS[0])
    assert {key for key, _ in store.codes()} == {key for key, _ in store.codes(KEYS)} == set(KEYS[1:])
    assert len(caplog.records) == 3, "it is said each time"
    assert store.held(KEYS[0]) == {1}, "its maps are sound"
    problems = list(store.check())
    assert [problem.key for problem in problems] == [KEYS[0]]
    assert store.discard(problems) == 1
    assert store.code(KEYS[0]) is None
    assert list(store.check()) == []
    store.close()


def test_a_code_of_another_codebook_is_refused(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([replace(record(KEYS[0], 1), code=b"a code")])
    store.close()
    other = lmdb_store(tmp_path, codebook="another codebook")
    with pytest.raises(FingerprintMismatchError):
        other.code(KEYS[0])
    assert not other.has_code(KEYS[0])
    assert [problem.foreign for problem in other.check()] == [True]
    other.write([TextureRecord(KEYS[0], code=b"made again")])
    assert other.code(KEYS[0]) == b"made again"
    other.close()


def test_a_code_of_the_largest_size_takes_three_pages(tmp_path: Path) -> None:
    def bytes_of(code: bytes) -> int:
        store = LmdbTextureStore(tmp_path / str(len(code)), shards=1, fingerprint="an encoder")
        store.write([replace(r, code=code) for r in many(300)])
        stats = store.stats()
        store.close()
        return stats.file_bytes - stats.free_bytes

    most = 12_200
    assert (bytes_of(bytes(most)) - bytes_of(bytes(most - 4_096))) / 300 == pytest.approx(4_096, rel=0.02)
    assert (bytes_of(bytes(most + 100)) - bytes_of(bytes(most))) / 300 == pytest.approx(4_096, rel=0.02)


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
    assert reasons[0] == "it belongs to an image that has no base texture"
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

    def write_all() -> None:
        nonlocal kept
        for start in range(0, len(records), 10):
            store.write(records[start : start + 10])
            kept = start + 10

    with pytest.raises(StoreFullError, match="free some space"):
        write_all()
    assert kept > 0
    assert {r.key for r in records[:kept]} <= set(store.keys())
    assert list(store.check()) == []
    (small_disk / "ballast").unlink()
    store.write(records[kept:])
    assert store.stats().images == len(records)
    store.close()


def test_nothing_is_added_to_an_image_whose_base_is_damaged(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1, (1,)), record(KEYS[1], 1, (1,))])
    store.close()
    _spoil(tmp_path, KEYS[0] + (0).to_bytes(4, "big"))
    store = lmdb_store(tmp_path)
    with pytest.raises(RecordMissingError, match=str(KEYS[0])):
        store.write([TextureRecord(key, None, {2: plane(7)}) for key in KEYS[:2]])
    assert store.held(KEYS[1]) == {1}, "nothing is written"
    store.close()


def test_writing_over_a_damaged_record_mends_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1, (1, 2))])
    store.close()
    _spoil(tmp_path, KEYS[0] + (1).to_bytes(4, "big"))
    store = lmdb_store(tmp_path)
    with caplog.at_level("WARNING"):
        store.write([TextureRecord(KEYS[0], None, {2: plane(7)})])
    assert "its maps are dropped" in caplog.text, "damage gets no sound checksum"
    assert store.read(KEYS[0]).maps.keys() == {2}
    assert list(store.check()) == []
    store.close()


def test_compact_returns_pages_and_keeps_everything(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    records = many(400)
    store.write(records)
    store.delete([r.key for r in records[50:]])
    before = store.stats()
    assert before.free_bytes > before.file_bytes / 2
    returned = store.compact()
    after = store.stats()
    assert returned == before.file_bytes - after.file_bytes > before.file_bytes / 2
    assert after.free_bytes < 64 * 1024
    assert set(store.keys()) == {r.key for r in records[:50]}
    store.write(records)
    assert store.stats().images == 400
    assert sorted(path.name for path in tmp_path.glob("*.lmdb")) == ["0000.1.lmdb", "0001.1.lmdb"]
    store.close()


def test_a_reader_goes_on_through_compaction_and_then_follows(tmp_path: Path) -> None:
    writer = lmdb_store(tmp_path)
    records = many(300)
    writer.write(records)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        pool.apply(_open_reader, (tmp_path,))
        writer.compact()
        assert pool.apply(_count) == 300
        writer.write([record(KEYS[0], 1)])
        writer.compact()
        time.sleep(1.1 * lmdb_file.NOTICE_SECONDS)
        assert pool.apply(_count) == 301
        writer.write([record(KEYS[1], 1)])
        assert pool.apply(_count) == 302
    writer.close()


@pytest.mark.parametrize("left", ["0000.7.lmdb-lock", ".0000.abcdef", "0000.lmdb"])
def test_what_an_interrupted_compaction_leaves_is_cleaned_up(tmp_path: Path, left: str) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1)])
    store.compact()
    store.close()
    (tmp_path / left).write_bytes(b"anything")
    store = lmdb_store(tmp_path)
    assert set(store.keys()) == {KEYS[0]}
    assert not (tmp_path / left).exists() or left.endswith("lock")
    store.close()


def test_a_copy_is_a_store(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path / "one")
    records = many(50)
    store.write(records)
    (tmp_path / "two").mkdir()
    store.copy(tmp_path / "two")
    store.delete([records[0].key])
    copied = lmdb_store(tmp_path / "two")
    assert copied.stats().images == 50
    assert list(copied.check()) == []
    for one in (store, copied):
        one.close()


def test_readers_are_named_and_a_killed_one_pins_nothing_for_long(tmp_path: Path) -> None:
    writer = lmdb_store(tmp_path)
    writer.write(many(20))
    context = multiprocessing.get_context("spawn")
    holding = context.Event()
    child = context.Process(target=_hold_open, args=(tmp_path, holding), daemon=True)
    child.start()
    assert holding.wait(30)
    assert (child.pid, True) in {(reader.pid, reader.pinned) for reader in writer.stats().readers}
    child.kill()
    child.join()
    writer.write(many(20))
    assert child.pid not in {reader.pid for reader in writer.stats().readers}
    # Pages that are freed are used again, two commits later: the file does not grow.
    for _ in range(3):
        writer.write(many(20))
    size = writer.stats().file_bytes
    for _ in range(5):
        writer.write(many(20))
    assert writer.stats().file_bytes == size
    writer.close()


def test_an_interest_of_another_size_is_refused(tmp_path: Path) -> None:
    store = lmdb_store(tmp_path)
    store.write([record(KEYS[0], 1, (1,))])
    with pytest.raises(UsageError, match="maps of one size"):
        store.write([TextureRecord(KEYS[0], None, {2: plane(1, side=32)})])
    assert store.held(KEYS[0]) == {1}
    store.close()


def _hold_open(folder: Path, holding: Event) -> None:
    store = lmdb_store(folder, read_only=True)
    with store._file(KEYS[0]).view():
        holding.set()
        time.sleep(60)


_readers: list[LmdbTextureStore] = []
"""Of a worker process: the one store that it keeps open."""


def _open_reader(folder: Path) -> None:
    _readers.append(lmdb_store(folder, read_only=True))


def _count() -> int:
    (reader,) = _readers
    return len(list(reader.keys()))


def _spoil(folder: Path, key: bytes) -> None:
    """Flip one bit in the value stored under `key`, past the store."""
    with lmdb.open(str(folder / "0000.lmdb"), subdir=False) as env, env.begin(write=True) as txn:
        value = bytearray(txn.get(key) or b"")
        assert value, "the entry must be in shard 0"
        value[-1] ^= 0x10
        txn.put(key, bytes(value))
