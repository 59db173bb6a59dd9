from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest
from texcat.catalogue import Catalogue, ImageKey, Planes, TextureRecord
from texcat.catalogue.registry import KnownFile
from texcat.catalogue.verifying import verify

KEY = ImageKey(bytes(range(16)))


def planes(count: int) -> Planes:
    values = np.random.default_rng(count).integers(0, 256, (count, 16, 16), np.uint8)
    return Planes(values, np.zeros(count, np.float32), np.ones(count, np.float32))


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    """One image, with the map of one interest."""
    with Catalogue.create(tmp_path / "catalogue", shards=1) as made:
        interest = made.add_interest("cat")
        made.store.write([TextureRecord(KEY, planes(3), {interest.id: planes(1)})])
        made.registry.record_files([KnownFile(b"/photos/caf\xe9.jpg", 1, 2, 3, KEY)], {KEY: (640, 480)})
        yield made


def test_a_sound_catalogue_has_no_problem(catalogue: Catalogue) -> None:
    assert list(verify(catalogue)) == []


def test_an_empty_catalogue_has_no_problem(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "empty") as made:
        assert list(verify(made)) == []


def test_maps_of_an_interest_that_the_registry_does_not_know(catalogue: Catalogue) -> None:
    catalogue.registry.remove_interest("cat")  # as if interrupted before the store
    (problem,) = verify(catalogue)
    assert problem.where == "interest 1"
    assert problem.reason.startswith("1 maps are held")


def test_a_file_whose_image_has_no_record(catalogue: Catalogue) -> None:
    catalogue.store.delete([KEY])
    (problem,) = verify(catalogue)
    assert os.fsencode(problem.where) == b"/photos/caf\xe9.jpg"
    assert problem.key == KEY
    assert "there is no record" in problem.reason


def test_an_image_that_has_neither_file_nor_record(catalogue: Catalogue) -> None:
    lost = ImageKey(bytes(16))
    catalogue.registry.record_files([], {lost: (4, 3)})
    (problem,) = verify(catalogue)
    assert (problem.where, problem.key) == (f"image {lost}", lost)
    assert "neither a file nor a record" in problem.reason
    catalogue.store.write([TextureRecord(lost, planes(3))])
    assert list(verify(catalogue)) == [], "an image that never had a file is sound"


def test_a_record_of_an_image_that_the_registry_does_not_know(catalogue: Catalogue) -> None:
    other = ImageKey(bytes(16))
    catalogue.store.write([TextureRecord(other, planes(3))])
    (problem,) = verify(catalogue)
    assert problem.where == f"image {other}"
    assert problem.key == other


def test_a_damaged_record_is_told(catalogue: Catalogue) -> None:
    path = catalogue.path
    catalogue.close()
    shard, key = os.fspath(path / "shards" / "0000.lmdb"), KEY + bytes(4)
    with lmdb.open(shard, subdir=False) as environment, environment.begin(write=True) as transaction:
        value = transaction.get(key)
        assert isinstance(value, bytes)
        transaction.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    with Catalogue.open(path) as opened:
        (problem,) = verify(opened)
    assert problem.key == KEY
    assert "is damaged" in problem.reason


def test_a_shard_that_is_cut_short_is_told(catalogue: Catalogue) -> None:
    path = catalogue.path
    more = [ImageKey(bytes([number]) * 16) for number in range(200)]
    catalogue.store.write([TextureRecord(key, planes(20)) for key in more])
    catalogue.close()
    shard = path / "shards" / "0000.lmdb"
    size = shard.stat().st_size
    content = bytearray(shard.read_bytes())
    content[8192 : size // 2] = bytes(size // 2 - 8192)
    shard.write_bytes(content)
    with Catalogue.open(path) as opened:
        problems = list(verify(opened))
    assert problems
    assert any("0000.lmdb" in problem.where for problem in problems)
