"""What every texture store must do, and a state machine that holds the one on disk to the one in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from texcat.catalogue.errors import RecordMissingError
from texcat.catalogue.shards import LmdbTextureStore
from texcat.catalogue.store import MemoryTextureStore, TextureStore
from texcat.catalogue.types import ImageKey, Planes, TextureRecord

from . import strategies
from .strategies import KEYS, same_planes


def lmdb_store(
    folder: Path, *, fingerprint: str = "an encoder", codebook: str = "a codebook", read_only: bool = False
) -> LmdbTextureStore:
    return LmdbTextureStore(folder, shards=2, fingerprint=fingerprint, codebook=codebook, read_only=read_only)


STORES: dict[str, Callable[[Path], TextureStore]] = {
    "memory": lambda folder: MemoryTextureStore(),
    "lmdb": lmdb_store,
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TextureStore]:
    made = STORES[request.param](tmp_path / "shards")
    yield made
    made.close()


def plane(value: int, side: int = 16, count: int = 1) -> Planes:
    return Planes(
        np.full((count, side, side), value, np.uint8), np.zeros(count, np.float32), np.ones(count, np.float32)
    )


def record(key: ImageKey, value: int, interests: tuple[int, ...] = ()) -> TextureRecord:
    return TextureRecord(key, plane(value, 32, 3), {i: plane(i % 256) for i in interests})


def assert_same(left: TextureRecord, right: TextureRecord) -> None:
    assert left.key == right.key
    assert left.base is not None
    assert right.base is not None
    assert same_planes(left.base, right.base)
    assert left.maps.keys() == right.maps.keys()
    for interest, planes in left.maps.items():
        assert same_planes(planes, right.maps[interest])


class TestContract:
    def test_reads_back_what_was_written(self, store: TextureStore) -> None:
        records = [record(key, number, (1, 7)) for number, key in enumerate(KEYS)]
        store.write(records)
        for expected in records:
            assert_same(store.read(expected.key), expected)
        assert sorted(store.keys()) == sorted(KEYS)

    def test_reads_only_the_interests_asked_for(self, store: TextureStore) -> None:
        store.write([record(KEYS[0], 5, (1, 7, 9))])
        assert list(store.read(KEYS[0], [9, 1, 4]).maps) == [1, 9]
        assert store.read(KEYS[0], []).maps == {}

    def test_maps_are_added_beside_what_is_there(self, store: TextureStore) -> None:
        store.write([record(KEYS[0], 5, (1,))])
        store.write([TextureRecord(KEYS[0], None, {2: plane(9)})])
        store.write([TextureRecord(KEYS[0], plane(6, 32, 3))])
        assert store.held(KEYS[0]) == {1, 2}
        read = store.read(KEYS[0])
        assert read.base is not None
        assert (read.base.values == 6).all()

    def test_what_is_lacking(self, store: TextureStore) -> None:
        store.write([record(KEYS[0], 5, (1, 16)), record(KEYS[1], 5), record(KEYS[2], 5, (2, 16, 31))])
        lacking = dict(store.lacking([KEYS[0], *KEYS], (1, 2, 16)))
        assert lacking == {KEYS[0]: {2}, KEYS[1]: {1, 2, 16}, KEYS[2]: {1}}, "others are not held"
        assert dict(store.lacking(KEYS, ())) == dict.fromkeys(KEYS[:3], frozenset())

    def test_an_image_that_is_not_held(self, store: TextureStore) -> None:
        assert store.held(KEYS[0]) is None
        with pytest.raises(RecordMissingError, match=str(KEYS[0])):
            store.read(KEYS[0])
        assert store.delete([KEYS[0]]) == 0

    def test_maps_without_a_base_are_refused_and_nothing_is_written(self, store: TextureStore) -> None:
        with pytest.raises(RecordMissingError):
            store.write([record(KEYS[1], 1), TextureRecord(KEYS[0], None, {1: plane(1)})])
        assert list(store.keys()) == []

    def test_maps_may_come_before_their_base_in_one_call(self, store: TextureStore) -> None:
        store.write([TextureRecord(KEYS[0], None, {1: plane(1)}), record(KEYS[0], 2)])
        assert store.held(KEYS[0]) == {1}

    def test_one_interest_over_all_images(self, store: TextureStore) -> None:
        store.write([record(key, 0, (3,) if number % 2 else (4,)) for number, key in enumerate(KEYS)])
        assert {key for key, _ in store.scan(3)} == set(KEYS[1::2])
        assert store.drop_interest(3) == 3
        assert list(store.scan(3)) == []
        assert len(list(store.scan(4))) == 3
        assert store.drop_interest(3) == 0

    def test_delete_takes_the_maps_along(self, store: TextureStore) -> None:
        store.write([record(key, 0, (1, 2)) for key in KEYS])
        assert store.delete([*KEYS[:2], KEYS[0]]) == 2
        assert set(store.keys()) == set(KEYS[2:])
        assert {key for key, _ in store.scan(1)} == set(KEYS[2:])

    def test_counts(self, store: TextureStore) -> None:
        store.write([record(KEYS[0], 0, (1, 2)), replace(record(KEYS[1], 0, (2,)), code=bytes(500))])
        stats = store.stats()
        assert stats.codes == 1
        assert 500 <= stats.code_bytes <= 524
        assert stats.images == 2
        assert stats.maps == {1: 1, 2: 2}
        assert stats.base_bytes > 0
        assert stats.map_bytes.keys() == {1, 2}

    def test_a_code_is_kept_beside_the_maps(self, store: TextureStore) -> None:
        codes = {key: bytes([number]) * 11_000 for number, key in enumerate(KEYS)}
        store.write([replace(record(key, 5, (1,)), code=code) for key, code in codes.items()])
        store.write([TextureRecord(KEYS[0], maps={2: plane(9)}), record(KEYS[1], 6)])
        assert {key: store.code(key) for key in KEYS} == dict(store.codes()) == codes
        assert store.held(KEYS[0]) == {1, 2}, "it is no interest"
        assert list(store.read(KEYS[0]).maps) == [1, 2]
        assert {key for key, _ in store.scan(1)} == set(KEYS)
        assert store.drop_interest(1) == len(KEYS)
        store.write([TextureRecord(KEYS[0], code=b"another")])
        assert store.code(KEYS[0]) == b"another"

    def test_an_image_without_a_code(self, store: TextureStore) -> None:
        store.write([record(KEYS[0], 5), replace(record(KEYS[1], 5), code=b"")])
        assert (store.code(KEYS[0]), store.has_code(KEYS[0])) == (None, False)
        assert (store.code(KEYS[1]), store.has_code(KEYS[1])) == (b"", True)
        assert (store.code(KEYS[2]), store.has_code(KEYS[2])) == (None, False)
        assert list(store.codes()) == list(store.codes([*KEYS, KEYS[1]])) == [(KEYS[1], b"")]
        assert list(store.codes([KEYS[0]])) == []

    def test_a_code_goes_with_its_image_and_does_not_come_without(self, store: TextureStore) -> None:
        store.write([replace(record(key, 0), code=b"code") for key in KEYS[:2]])
        assert store.delete(KEYS[:1]) == 1
        assert [key for key, _ in store.codes()] == [KEYS[1]]
        with pytest.raises(RecordMissingError):
            store.write([TextureRecord(KEYS[0], code=b"code")])
        store.write([record(KEYS[0], 0)])
        assert not store.has_code(KEYS[0])

    def test_a_sound_store_has_no_problems(self, store: TextureStore) -> None:
        store.write([replace(record(key, 0, (1, 2)), code=b"code") for key in KEYS])
        assert list(store.check()) == []


class StoreMachine(RuleBasedStateMachine):
    """Any order of operations leaves the store on disk as the one in memory."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.model = MemoryTextureStore()
        self.store = lmdb_store(Path(self.folder.name))

    @rule(key=strategies.keys, base=strategies.planes(), maps=strategies.maps, code=strategies.codes)
    def write(self, key: ImageKey, base: Planes, maps: dict[int, Planes], code: bytes | None) -> None:
        for store in (self.model, self.store):
            store.write([TextureRecord(key, base, maps, code)])

    @rule(key=strategies.keys, maps=strategies.maps, code=strategies.codes)
    def add(self, key: ImageKey, maps: dict[int, Planes], code: bytes | None) -> None:
        outcomes = []
        for store in (self.model, self.store):
            try:
                store.write([TextureRecord(key, None, maps, code)])
                outcomes.append("written")
            except RecordMissingError:
                outcomes.append("missing")
        assert outcomes[0] == outcomes[1]

    @rule(interest=strategies.interest_ids)
    def drop_interest(self, interest: int) -> None:
        assert self.store.drop_interest(interest) == self.model.drop_interest(interest)

    @rule(keys=st.lists(strategies.keys, max_size=3))
    def delete(self, keys: list[ImageKey]) -> None:
        assert self.store.delete(keys) == self.model.delete(keys)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = lmdb_store(Path(self.folder.name))

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "store"):
            return
        assert sorted(self.store.keys()) == sorted(self.model.keys())
        for key in KEYS:
            assert self.store.held(key) == self.model.held(key)
            assert self.store.code(key) == self.model.code(key)
            assert self.store.has_code(key) == self.model.has_code(key)
        assert sorted(self.store.codes()) == sorted(self.model.codes())
        wanted = (1, 2, 16, 255)
        assert dict(self.store.lacking(KEYS, wanted)) == dict(self.model.lacking(KEYS, wanted))
        for key in self.model.keys():
            assert_same(self.store.read(key), self.model.read(key))
        assert list(self.store.check()) == []
        assert self.store.stats().maps == self.model.stats().maps
        assert self.store.stats().codes == self.model.stats().codes

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
