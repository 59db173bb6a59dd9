"""Whether the pages of an LMDB file hang together, found by reading the file and not through LMDB.

LMDB trusts its pages: it follows a damaged one to wherever it points, and the process may end there. So
before a file is read as a whole, its tree is walked here, page by page, and every number is looked at first.

Format of LMDB 0.9 on a 64-bit little-endian machine, as ``mdb.c`` defines it. Pages 0 and 1 are meta pages;
the newer one has the roots of two B-trees: that of the free pages (by transaction: a count, then page
numbers) and that of the entries.

    page     number: uint64, pad: uint16, flags: uint16, lower: uint16, upper: uint16, then from byte 16 to
             `lower` the places of its nodes: uint16 each. An overflow page has a count of pages: uint32, in
             the place of lower and upper.
    node     low, high, flags, key size: uint16 each, then the key. In a leaf low and high are the size of the
             value, which follows, or else (flag 1) lies in the overflow pages whose number follows. In a
             branch low, high and flags are the number of a child page.
    meta     from byte 16: magic, version: uint32; address, map size: uint64; the two trees, 48 bytes each;
             last page, transaction: uint64
    tree     page size: uint32 (of the first one), flags, depth: uint16, counts of pages of three kinds and of
             entries: uint64 each, root: uint64
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .errors import RecordCorruptError

_MAGIC = 0xBEEFC0DE
_VERSION = 1
_META = struct.Struct("<16xIIQQ48s48sQQ")
_TREE = struct.Struct("<IHHQQQQQ")
_PAGE = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_NUMBER = struct.Struct("<Q")
_COUNT = struct.Struct("<I")
_NO_PAGE = (1 << 64) - 1
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_KINDS = _BRANCH | _LEAF | _OVERFLOW | 8 | 0x20 | 0x40
_BIG = 1
_MAX_KEY = 511
_MAX_DEPTH = 32
_MIN_PAGE_BYTES, _MAX_PAGE_BYTES = 512, 1 << 16


@dataclass(frozen=True, slots=True)
class _Tree:
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int


@dataclass(frozen=True, slots=True)
class _Meta:
    page_bytes: int
    free: _Tree
    main: _Tree
    last: int
    transaction: int


def check_pages(path: Path, transaction: int) -> None:
    """Make sure that the trees of the LMDB file `path`, as `transaction` left them, can be followed safely.

    A read transaction must be open as of `transaction`, so that a writer leaves its pages alone.

    Raises:
        RecordCorruptError: a page is not what the page that names it says.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        meta = _newest_meta(path, content, transaction)
        walk = _Walk(path, content, meta)
        free = walk.free_pages()
        walk.entries()
        walk.finish(free)


def _newest_meta(path: Path, content: mmap.mmap, transaction: int) -> _Meta:
    page_bytes = _page_bytes(path, content)
    metas = [_read_meta(path, content, number, page_bytes) for number in (0, 1)]
    # Commits write the two in turn. A number that does not fit would make LMDB go back to an older state.
    first, second = (meta.transaction for meta in metas)
    if abs(first - second) > 1 or ((first, second) != (0, 0) and (first % 2, second % 2) != (0, 1)):
        _damaged(path, 0, "two transactions in turn in the meta pages", f"{first} and {second}")
    found = [meta for meta in metas if meta.transaction == transaction]
    if not found:
        _damaged(path, 0, f"a meta page of transaction {transaction}", f"{first} and {second}")
    return found[-1]


def _page_bytes(path: Path, content: mmap.mmap) -> int:
    if len(content) < 2 * _MIN_PAGE_BYTES:
        _damaged(path, 0, "two meta pages", f"{len(content)} bytes")
    size = int(_TREE.unpack(_META.unpack_from(content)[4])[0])
    if not _MIN_PAGE_BYTES <= size <= _MAX_PAGE_BYTES or size & (size - 1) or len(content) < 2 * size:
        _damaged(path, 0, "the size of a page", size)
    return size


def _read_meta(path: Path, content: mmap.mmap, number: int, page_bytes: int) -> _Meta:
    magic, version, _, _, free, main, last, transaction = _META.unpack_from(content, number * page_bytes)
    if (magic, version) != (_MAGIC, _VERSION):
        _damaged(path, number, f"magic {_MAGIC:x}, version {_VERSION}", f"{magic:x}, {version}")
    size, _, *free_tree = _TREE.unpack(free)
    _, flags, *main_tree = _TREE.unpack(main)
    if size != page_bytes:
        _damaged(path, number, f"pages of {page_bytes} bytes", size)
    if flags:
        _damaged(path, number, "a tree of plain entries", f"flags {flags:#x}")
    return _Meta(size, _Tree(*free_tree), _Tree(*main_tree), last, transaction)


class _Walk:
    """One pass over both trees of a file. Every page may be met once."""

    def __init__(self, path: Path, content: mmap.mmap, meta: _Meta) -> None:
        self._path, self._content, self._meta = path, content, meta
        self._met = {0, 1}
        self._counts = [0, 0, 0, 0]  # branches, leaves, overflows, entries of the tree at hand
        self._integer_keys = False

    def free_pages(self) -> list[int]:
        """Numbers of the pages that the file says are free."""
        self._integer_keys = True
        numbers: list[int] = []
        for page, _, start, size in self._walk(self._meta.free):
            if size < _NUMBER.size:
                _damaged(self._path, page, "a list of free pages", f"{size} bytes")
            (count,) = _NUMBER.unpack_from(self._content, start)
            if (count + 1) * _NUMBER.size > size:
                _damaged(self._path, page, f"at most {size // _NUMBER.size - 1} free pages", count)
            numbers.extend(struct.unpack_from(f"<{count}Q", self._content, start + _NUMBER.size))
        return numbers

    def entries(self) -> None:
        """Walk the tree of the entries."""
        self._integer_keys = False
        self._walk(self._meta.main)

    def finish(self, free: list[int]) -> None:
        """Make sure that no page is both free and in use: the next writer would write over it."""
        for number in free:
            if number in self._met or number > self._meta.last:
                _damaged(self._path, number, "a free page once, and in no tree", "another use of it")
            self._met.add(number)

    def _walk(self, tree: _Tree) -> list[tuple[int, bytes, int, int]]:
        """Entries of a tree, ascending: page, key, and place and size of the value."""
        self._counts = [0, 0, 0, 0]
        found: list[tuple[int, bytes, int, int]] = []
        if tree.root != _NO_PAGE:
            if not 1 <= tree.depth <= _MAX_DEPTH:
                _damaged(self._path, 0, f"a depth from 1 to {_MAX_DEPTH}", tree.depth)
            self._page(tree.root, tree.depth, None, None, found)
        expected = [tree.branches, tree.leaves, tree.overflows, tree.entries]
        if self._counts != expected:
            _damaged(self._path, 0, f"{expected} branches, leaves, overflow pages, entries", self._counts)
        return found

    def _page(
        self,
        number: int,
        height: int,
        low: bytes | None,
        high: bytes | None,
        found: list[tuple[int, bytes, int, int]],
    ) -> None:
        """Walk a branch or leaf whose keys are from `low`, below `high`."""
        start = self._enter(number, 1)
        kind = _LEAF if height == 1 else _BRANCH
        _, _, flags, lower, upper = _PAGE.unpack_from(self._content, start)
        if flags & _KINDS != kind:
            _damaged(self._path, number, f"a page of kind {kind}", f"flags {flags:#x}")
        if lower % 2 or not _PAGE.size + 2 <= lower <= upper <= self._meta.page_bytes:
            _damaged(self._path, number, "room for nodes", f"from {lower} to {upper}")
        self._counts[0 if kind == _BRANCH else 1] += 1
        places = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", self._content, start + _PAGE.size)
        nodes = [self._node(number, start, place, upper) for place in places]
        if kind == _LEAF:
            self._leaf(number, nodes, low, high, found)
            return
        keys = [low, *(key for key, *_ in nodes[1:]), high]  # LMDB does not look at the first key
        for (_, node, node_low, node_high), left, right in zip(nodes, keys[:-1], keys[1:], strict=True):
            child = node_low | node_high << 16 | _NODE.unpack_from(self._content, node)[2] << 32
            self._ordered(number, left, right)
            self._page(child, height - 1, left, right, found)

    def _node(self, number: int, start: int, place: int, upper: int) -> tuple[bytes, int, int, int]:
        """Key, place in the file, and the two halves of the size of a node."""
        if not upper <= place <= self._meta.page_bytes - _NODE.size:
            _damaged(self._path, number, f"nodes from byte {upper}", place)
        low, high, _, key_bytes = _NODE.unpack_from(self._content, start + place)
        if key_bytes > _MAX_KEY or place + _NODE.size + key_bytes > self._meta.page_bytes:
            _damaged(self._path, number, "a key within the page", f"{key_bytes} bytes at {place}")
        key = start + place + _NODE.size
        return self._content[key : key + key_bytes], start + place, low, high

    def _leaf(
        self,
        number: int,
        nodes: list[tuple[bytes, int, int, int]],
        low: bytes | None,
        high: bytes | None,
        found: list[tuple[int, bytes, int, int]],
    ) -> None:
        self._counts[3] += len(nodes)
        page_end = (number + 1) * self._meta.page_bytes
        last = low
        for place, (key, node, size_low, size_high) in enumerate(nodes):
            self._ordered(number, last, key, equal=place == 0)
            last = key
            flags = _NODE.unpack_from(self._content, node)[2]
            value, size = node + _NODE.size + len(key), size_low | size_high << 16
            if flags & ~_BIG:
                _damaged(self._path, number, "plain values", f"flags {flags:#x}")
            if value + (_NUMBER.size if flags else size) > page_end:
                _damaged(self._path, number, "a value within the page", f"{size} bytes at {value}")
            if flags:
                value = self._overflow(_NUMBER.unpack_from(self._content, value)[0], size)
            found.append((number, key, value, size))
        self._ordered(number, last, high)

    def _overflow(self, number: int, size: int) -> int:
        """Place in the file of a value that has pages of its own."""
        pages = (_PAGE.size - 1 + size) // self._meta.page_bytes + 1
        start = self._enter(number, pages)
        flags = _PAGE.unpack_from(self._content, start)[2]
        (found,) = _COUNT.unpack_from(self._content, start + 12)
        if flags & _KINDS != _OVERFLOW or found < pages:
            _damaged(self._path, number, f"{pages} overflow pages", f"{found}, flags {flags:#x}")
        if found > pages:
            self._enter_more(number + pages, found - pages)
        self._counts[2] += found
        return start + _PAGE.size

    def _enter(self, number: int, pages: int) -> int:
        """Place of a page that is met for the first time, with those after it."""
        self._enter_more(number, pages)
        start = number * self._meta.page_bytes
        (own,) = _NUMBER.unpack_from(self._content, start)
        if own != number:
            _damaged(self._path, number, f"page {number}", f"page {own}")
        return start

    def _enter_more(self, number: int, pages: int) -> None:
        end = number + pages
        if end > self._meta.last + 1 or end * self._meta.page_bytes > len(self._content):
            _damaged(self._path, number, f"pages up to {self._meta.last}", f"{pages} pages from {number}")
        for page in range(number, end):
            if page in self._met:
                _damaged(self._path, page, "one use of it", "two")
            self._met.add(page)

    def _ordered(self, number: int, left: bytes | None, right: bytes | None, equal: bool = False) -> None:
        if left is None or right is None:
            return
        if self._integer_keys:
            left, right = left[::-1], right[::-1]
        if left > right or (left == right and not equal):
            _damaged(self._path, number, f"keys that ascend from {left.hex()}", right.hex())


def _damaged(path: Path, page: int, expected: object, found: object) -> NoReturn:
    raise RecordCorruptError(f"{os.fspath(path)}, page {page},", expected, found)
