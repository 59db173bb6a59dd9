from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue import Catalogue, ImageKey, Planes, TextureRecord
from texcat.catalogue.codec import CODE_PART
from texcat.catalogue.codes import Codebook
from texcat.catalogue.errors import CatalogueError, ReadOnlyError
from texcat.catalogue.registry import KnownFile
from texcat.catalogue.store import Problem
from texcat.catalogue.verifying import Repairs, repair, verify

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


def spoil(catalogue: Catalogue, part: int) -> None:
    """Flip a bit in a record, past the store."""
    name = KEY + part.to_bytes(4, "big")
    file = catalogue.store._file(KEY)
    with file.view() as transaction:
        value = transaction.get(name)
    assert value is not None
    file.change(lambda transaction: transaction.put(name, value[:-1] + bytes([value[-1] ^ 1])))


def code_of(catalogue: Catalogue) -> None:
    """Give the image a code, and the catalogue a codebook."""
    catalogue.adopt_codebook(Codebook("", np.eye(2, 3, dtype=np.float32)))
    catalogue.store.write([TextureRecord(KEY, code=b"a code")])


def spoil_code(catalogue: Catalogue) -> None:
    code_of(catalogue)
    spoil(catalogue, CODE_PART)


def lose_interest(catalogue: Catalogue) -> None:
    catalogue.registry.remove_interest("cat")


def lose_record(catalogue: Catalogue) -> None:
    catalogue.store.delete([KEY])


def lose_file(catalogue: Catalogue) -> None:
    catalogue.registry.forget_files([b"/photos/caf\xe9.jpg"])


def lose_base(catalogue: Catalogue) -> None:
    catalogue.store._file(KEY).change(lambda transaction: transaction.delete(KEY + bytes(4)))


def lose_file_and_record(catalogue: Catalogue) -> None:
    lost = ImageKey(bytes(16))
    catalogue.registry.record_files([], {lost: (4, 3)})


def misplace(catalogue: Catalogue) -> None:
    catalogue.store._file(KEY).change(lambda transaction: transaction.put(b"short", b"value"))


DAMAGE: dict[str, tuple[Callable[[Catalogue], None], Repairs]] = {
    "interest": (lose_interest, Repairs(maps=1)),
    "record": (lose_record, Repairs(files=1, images=1)),
    "file": (lose_file, Repairs(records=1)),
    "base": (lose_base, Repairs(entries=1, files=1, images=1)),
    "file and record": (lose_file_and_record, Repairs(images=1)),
    "misplaced": (misplace, Repairs(entries=1)),
    "damaged base": (lambda catalogue: spoil(catalogue, 0), Repairs(entries=1, files=1, images=1)),
    "damaged maps": (lambda catalogue: spoil(catalogue, 1), Repairs(entries=1)),
    "damaged code": (spoil_code, Repairs(entries=1)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_repair_leaves_nothing_to_be_found(catalogue: Catalogue, name: str) -> None:
    damage, expected = DAMAGE[name]
    other = ImageKey(b"\xee" * 16)
    whole = TextureRecord(other, planes(3), {catalogue.add_interest("dog").id: planes(1)})
    catalogue.store.write([whole])
    catalogue.registry.record_files([KnownFile(b"/photos/other.jpg", 1, 2, 3, other)], {other: (640, 480)})
    damage(catalogue)
    found = list(verify(catalogue))
    assert found
    assert repair(catalogue, found) == expected
    assert list(verify(catalogue)) == []
    assert repair(catalogue, found) == Repairs(), "what was found before is history"
    assert catalogue.store.held(other) == {2}
    assert catalogue.registry.paths_of(other) == [b"/photos/other.jpg"]


@given(names=st.sets(st.sampled_from(sorted(DAMAGE)), min_size=1))
def test_any_damage_at_once_is_repaired(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    with Catalogue.create(tmp_path_factory.mktemp("many") / "catalogue", shards=1) as made:
        interest = made.add_interest("cat")
        made.store.write([TextureRecord(KEY, planes(3), {interest.id: planes(1)})])
        made.registry.record_files([KnownFile(b"/photos/caf\xe9.jpg", 1, 2, 3, KEY)], {KEY: (640, 480)})
        # From the least to the most that is lost: there must be something left to lose.
        order = (
            "damaged code",
            "misplaced",
            "damaged maps",
            "damaged base",
            "interest",
            "base",
            "file",
            "record",
        )
        for name in (*(n for n in order if n in names), *sorted(names - set(order))):
            DAMAGE[name][0](made)
        repair(made, verify(made))
        assert list(verify(made)) == []


def test_a_repair_that_was_interrupted_is_ended_by_the_next(catalogue: Catalogue) -> None:
    spoil(catalogue, 0)
    catalogue.store.discard(verify(catalogue))  # its first step
    repair(catalogue, verify(catalogue))
    assert list(verify(catalogue)) == []
    catalogue.registry.forget_images([KEY])
    assert catalogue.registry.counts().images == 0


def test_a_shard_that_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    keys = [ImageKey(bytes([0, 0, 0, number] * 4)) for number in range(200)]
    path = tmp_path / "catalogue"
    with Catalogue.create(path, shards=2) as made:
        made.store.write([TextureRecord(key, planes(20)) for key in keys])
        files = [KnownFile(b"/p/%d" % number, 1, 2, 3, key) for number, key in enumerate(keys)]
        made.registry.record_files(files, dict.fromkeys(keys, (1, 1)))
    shard = path / "shards" / "0000.lmdb"
    content = bytearray(shard.read_bytes())
    content[8192 : len(content) // 2] = bytes(len(content) // 2 - 8192)
    shard.write_bytes(content)
    with Catalogue.open(path, "w") as opened:
        (problem,) = verify(opened)
        assert problem.where == os.fspath(shard)
        assert repair(opened, [problem]) == Repairs(shards=1, files=100, images=100)
        assert list(verify(opened)) == []
        assert set(opened.store.keys()) == set(keys[1::2])
        assert opened.registry.counts().files == 100
        opened.store.write([TextureRecord(keys[0], planes(20))])
        (kept,) = (path / "shards").glob("*.damaged-*")
        assert kept.read_bytes() == content
    with Catalogue.open(path, "w") as opened:
        assert opened.store.held(keys[0]) is not None
    assert kept.exists()


def test_records_of_another_encoder_are_not_thrown_away_for_a_wrong_setting(catalogue: Catalogue) -> None:
    path = catalogue.path
    catalogue.adopt_encoder("another", 0.0, 1.0)
    with pytest.raises(CatalogueError, match=r"no record is of encoder another.*nothing was changed"):
        repair(catalogue, verify(catalogue))
    catalogue.close()
    settings = path / "catalogue.toml"
    settings.write_text(settings.read_text().replace('"another"', '""'))
    with Catalogue.open(path) as opened:
        assert list(verify(opened)) == []


def test_a_foreign_record_among_others_is_removed(catalogue: Catalogue) -> None:
    catalogue.adopt_encoder("another", 0.0, 1.0)
    other = ImageKey(b"\xee" * 16)
    catalogue.store.write([TextureRecord(other, planes(3))])
    catalogue.registry.record_files([], {other: (4, 3)})
    assert repair(catalogue, verify(catalogue)) == Repairs(entries=2, files=1, images=1)
    assert set(catalogue.store.keys()) == {other}


def test_a_code_of_an_image_that_has_lost_its_base(catalogue: Catalogue) -> None:
    code_of(catalogue)
    lose_base(catalogue)
    assert repair(catalogue, verify(catalogue)) == Repairs(entries=2, files=1, images=1)
    assert list(verify(catalogue)) == []
    assert catalogue.store.stats().codes == 0


@pytest.mark.parametrize("content", [None, b"", b"another file"])
def test_a_codebook_that_is_lost_or_damaged_is_told_and_left_to_the_next_pass(
    catalogue: Catalogue, content: bytes | None
) -> None:
    code_of(catalogue)
    assert list(verify(catalogue)) == []
    file = catalogue.path / "codebook"
    sound = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    (problem,) = verify(catalogue)
    assert problem.where == str(file)
    assert "`texcat index` makes it again" in problem.reason
    assert repair(catalogue, [problem]) == Repairs()
    assert catalogue.store.has_code(KEY)
    assert list(verify(catalogue)) == [problem]
    file.write_bytes(sound)
    assert list(verify(catalogue)) == []


def test_a_repair_needs_a_catalogue_that_can_be_written(catalogue: Catalogue) -> None:
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as opened, pytest.raises(ReadOnlyError, match="cannot repair"):
        repair(opened, [Problem("somewhere", "wrong")])
