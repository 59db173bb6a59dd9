from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import (
    Catalogue,
    CatalogueError,
    CatalogueExistsError,
    ImageKey,
    Planes,
    StoreFullError,
    TextureRecord,
)
from texcat.catalogue.backup import backup
from texcat.catalogue.codes import Codebook
from texcat.catalogue.registry import KnownFile
from texcat.catalogue.verifying import Repairs, verify

from .test_store import assert_same


def planes(count: int, seed: int) -> Planes:
    values = np.random.default_rng(seed).integers(0, 256, (count, 16, 16), np.uint8)
    return Planes(values, np.zeros(count, np.float32), np.ones(count, np.float32))


def add(catalogue: Catalogue, numbers: range) -> None:
    """As an indexing pass commits: the store first."""
    keys = [ImageKey.of(b"%d" % number) for number in numbers]
    interests = [interest.id for interest in catalogue.interests()]
    catalogue.store.write(
        TextureRecord(
            key, planes(5, number), {i: planes(1, number + i) for i in interests}, b"code %d" % number
        )
        for key, number in zip(keys, numbers, strict=True)
    )
    files = [KnownFile(b"/p/%d" % n, n, 2, 3, key) for n, key in zip(numbers, keys, strict=True)]
    catalogue.registry.record_files(files, dict.fromkeys(keys, (640, 480)))


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", shards=2) as made:
        for phrase in ("cat", "dog"):
            made.add_interest(phrase)
        made.adopt_encoder("an encoder", 0.25, 0.75)
        made.adopt_codebook(Codebook("an encoder", np.eye(2, 3, dtype=np.float32)))
        add(made, range(40))
        yield made


def test_a_backup_is_a_sound_and_equal_catalogue(catalogue: Catalogue, tmp_path: Path) -> None:
    made = backup(catalogue, tmp_path / "deep" / "copy")
    assert (made.path, made.images, made.repairs) == (tmp_path / "deep" / "copy", 40, Repairs())
    assert made.file_bytes > 0
    with Catalogue.open(made.path, "w") as copy:
        assert list(verify(copy)) == []
        assert copy.settings == catalogue.settings
        assert copy.interests() == catalogue.interests()
        assert copy.registry.files([b"/"]) == catalogue.registry.files([b"/"])
        for key in catalogue.store.keys():
            assert_same(copy.store.read(key), catalogue.store.read(key))
        assert dict(copy.store.codes()) == dict(catalogue.store.codes())
        assert copy.store.stats().codes == 40
        np.testing.assert_array_equal(copy.codebook().project, catalogue.codebook().project)
        copy.remove_interest("dog")
    assert len(catalogue.interests()) == 2
    assert [path.name for path in made.path.parent.iterdir()] == ["copy"]


def test_an_empty_folder_is_taken_and_another_is_not(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert backup(catalogue, tmp_path / "empty").images == 40
    with pytest.raises(CatalogueExistsError):
        backup(catalogue, tmp_path / "empty")
    (tmp_path / "file").touch()
    with pytest.raises(CatalogueExistsError, match="a file"):
        backup(catalogue, tmp_path / "file")
    with pytest.raises(CatalogueError, match="cannot write a backup"):
        backup(catalogue, "/proc/backup")


def test_what_an_interrupted_backup_left_is_replaced(catalogue: Catalogue, tmp_path: Path) -> None:
    left = tmp_path / "copy.partial"
    (left / "shards").mkdir(parents=True)
    (left / "shards" / "0000.7.lmdb").write_bytes(b"half")
    (left / "registry.sqlite").write_bytes(b"half")
    assert backup(catalogue, tmp_path / "copy").images == 40
    assert not left.exists()
    with Catalogue.open(tmp_path / "copy") as copy:
        assert list(verify(copy)) == []


def test_a_damaged_record_is_left_out_and_told(catalogue: Catalogue, tmp_path: Path) -> None:
    key = next(iter(catalogue.store.keys()))
    file = catalogue.store._file(key)
    file.change(lambda txn: txn.put(key + bytes(4), b"damaged" * 10))
    made = backup(catalogue, tmp_path / "copy")
    assert made.images == 39
    assert made.repairs == Repairs(entries=1, files=1, images=1)
    with Catalogue.open(made.path) as copy:
        assert list(verify(copy)) == []


def test_a_full_disk_leaves_nothing(catalogue: Catalogue, small_disk: Path) -> None:
    add(catalogue, range(40, 3000))
    with pytest.raises(StoreFullError, match="copy"):
        backup(catalogue, small_disk / "copy")
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_a_registry_in_postgresql_is_named(new_postgres_database: Callable[[], str], tmp_path: Path) -> None:
    with (
        Catalogue.create(tmp_path / "cat", database=new_postgres_database()) as catalogue,
        pytest.raises(CatalogueError, match="pg_dump"),
    ):
        backup(catalogue, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_backups_made_while_another_process_writes_are_sound(catalogue: Catalogue, tmp_path: Path) -> None:
    path = catalogue.path
    catalogue.close()
    context = multiprocessing.get_context("spawn")
    running, stop = context.Event(), context.Event()
    writer = context.Process(target=_write, args=(path, running, stop), daemon=True)
    writer.start()
    assert running.wait(30)
    sizes = []
    for number in range(6):
        with Catalogue.open(path) as opened:
            made = backup(opened, tmp_path / f"copy{number}")
        assert made.repairs.shards == made.repairs.entries == 0
        with Catalogue.open(made.path) as copy:
            assert list(verify(copy)) == []
            sizes.append(copy.store.stats().images)
            for key in list(copy.store.keys())[:20]:
                assert copy.store.read(key).base is not None
    assert writer.is_alive(), "it wrote all the time"
    stop.set()
    writer.join(30)
    assert writer.exitcode == 0
    assert min(sizes) > 0
    assert len(set(sizes)) > 1, "it wrote between one copy and the next"


def _write(path: Path, running: Event, stop: Event) -> None:
    """Index, remove, add and remove interests, compact: what a catalogue sees, without end."""
    with Catalogue.open(path, "w") as catalogue:
        number = 40
        while not stop.is_set():
            add(catalogue, range(number, number + 20))
            gone = [b"/p/%d" % n for n in range(number - 40, number - 25)]
            catalogue.store.delete(catalogue.registry.forget_files(gone))
            catalogue.remove_interest("dog")
            catalogue.add_interest("dog")
            number += 20
            if number % 100 == 0:
                catalogue.compact()
            running.set()


def test_compact_returns_pages_of_shards_and_registry(catalogue: Catalogue) -> None:
    add(catalogue, range(40, 1500))
    gone = [b"/p/%d" % number for number in range(100, 1500)]
    catalogue.store.delete(catalogue.registry.forget_files(gone))
    seen: list[tuple[int, int]] = []

    def size() -> int:
        return sum(file.stat().st_blocks * 512 for file in catalogue.path.rglob("*") if file.is_file())

    before = size()
    returned = catalogue.compact(lambda done, total: seen.append((done, total)))
    assert returned > before / 2
    assert before - size() >= returned
    assert seen == [(1, 2), (2, 2)]
    assert list(verify(catalogue)) == []
    assert catalogue.registry.counts().files == 100
    assert os.path.getsize(catalogue.path / "registry.sqlite") < 200_000
