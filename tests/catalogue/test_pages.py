"""The page walk: it lets every sound file pass, and no damaged one that LMDB would not survive."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue.errors import RecordCorruptError
from texcat.catalogue.pages import check_pages

PAGE = 4096


def fill(path: Path, rounds: list[list[tuple[bytes, int | None]]]) -> int:
    """Put values of given sizes, or delete (None); the last transaction."""
    with lmdb.open(str(path), subdir=False, map_size=1 << 26) as environment:
        for changes in rounds:
            with environment.begin(write=True) as transaction:
                for key, size in changes:
                    if size is None:
                        transaction.delete(key)
                    else:
                        transaction.put(key, bytes(size))
        return int(environment.info()["last_txnid"])


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 400).map(b"%06d".__mod__), st.none() | st.integers(0, 20_000)),
            min_size=1,
            max_size=40,
        ),
        max_size=6,
    )
)
def test_whatever_lmdb_writes_passes(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[bytes, int | None]]]
) -> None:
    path = tmp_path_factory.mktemp("pages") / "file.lmdb"
    check_pages(path, fill(path, rounds))


def large(path: Path) -> int:
    """Three levels, overflow pages and free pages."""
    random = np.random.default_rng(1)
    keys = [random.bytes(20) for _ in range(4000)]
    rounds: list[list[tuple[bytes, int | None]]] = [
        [(key, int(random.integers(0, 5000 if number < 500 else 900))) for number, key in enumerate(keys)],
        [(key, None) for key in keys[::3]],
    ]
    return fill(path, rounds)


def test_a_large_file_passes(tmp_path: Path) -> None:
    check_pages(tmp_path / "file.lmdb", large(tmp_path / "file.lmdb"))


def meta(content: bytearray) -> int:
    """Place of the newer meta page."""
    first, second = (struct.unpack_from("<Q", content, page * PAGE + 144)[0] for page in (0, 1))
    return PAGE if second > first else 0


def root(content: bytearray) -> int:
    return int(struct.unpack_from("<Q", content, meta(content) + 128)[0]) * PAGE


def _own_number(content: bytearray) -> None:
    content[root(content)] ^= 1


def _kind(content: bytearray) -> None:
    content[root(content) + 10] ^= 3


def _lower(content: bytearray) -> None:
    content[root(content) + 13] ^= 0x80


def _place(content: bytearray) -> None:
    content[root(content) + 17] ^= 0xF0


def _child(content: bytearray) -> None:
    (place,) = struct.unpack_from("<H", content, root(content) + 16)
    content[root(content) + place + 3] ^= 0x40


def _key_size(content: bytearray) -> None:
    (place,) = struct.unpack_from("<H", content, root(content) + 18)
    content[root(content) + place + 7] ^= 0xFF


def _separator(content: bytearray) -> None:
    (place,) = struct.unpack_from("<H", content, root(content) + 18)
    content[root(content) + place + 8] ^= 0xFF


def _depth(content: bytearray) -> None:
    content[meta(content) + 88 + 6] ^= 1


def _root(content: bytearray) -> None:
    content[meta(content) + 130] ^= 1


def _entries(content: bytearray) -> None:
    content[meta(content) + 88 + 32] ^= 1


def _transaction(content: bytearray) -> None:
    content[meta(content) + 145] ^= 1


def _page_size(content: bytearray) -> None:
    content[41] ^= 0x30


def _magic(content: bytearray) -> None:
    content[16] ^= 1


def _free_is_used(content: bytearray) -> None:
    free = int(struct.unpack_from("<Q", content, meta(content) + 80)[0]) * PAGE
    (place,) = struct.unpack_from("<H", content, free + 16)
    struct.pack_into("<Q", content, free + place + 8 + 8 + 8, root(content) // PAGE)


@pytest.mark.parametrize(
    "damage",
    [
        _own_number, _kind, _lower, _place, _child, _key_size, _separator, _depth, _root, _entries,
        _transaction, _page_size, _magic, _free_is_used,
    ],
)  # fmt: skip
def test_damage_is_found(tmp_path: Path, damage: Callable[[bytearray], None]) -> None:
    path = tmp_path / "file.lmdb"
    transaction = large(path)
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    with pytest.raises(RecordCorruptError, match=r"file\.lmdb, page \d+, is damaged"):
        check_pages(path, transaction)


def test_a_file_cut_short_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file.lmdb"
    transaction = large(path)
    content = path.read_bytes()
    for size in (100, PAGE, len(content) // 2):
        path.write_bytes(content[:size])
        with pytest.raises(RecordCorruptError):
            check_pages(path, transaction)


def test_no_flip_of_a_bit_breaks_the_walk(tmp_path: Path) -> None:
    path = tmp_path / "file.lmdb"
    transaction = fill(path, [[(b"%04d" % number, 30) for number in range(300)], [(b"0001", None)]])
    sound = path.read_bytes()
    random = np.random.default_rng(3)
    for bit in random.integers(0, 8 * len(sound), 500):
        content = bytearray(sound)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            check_pages(path, transaction)
        except RecordCorruptError:
            continue
