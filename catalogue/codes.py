"""Codes: what is kept of an image so that the map of any direction can be made without the network.

A map is linear in its direction, so that all maps of an image are in one matrix: its rows are frequencies of
the map (DCT-II, in two dimensions), its columns are coordinates of the direction. Over the directions that
phrases have, coordinates all vary alike (`Codebook`), so that an error of this matrix counts the same
wherever it is. It is close to a product of few ranks, U B, kept as whole numbers of steps; the row of
frequency zero, the mean of the map, is kept apart. `indexer.codes` makes codes.

Row 0 of the table of whole numbers holds the mean, row 1 + j the j-th column of U and the j-th row of B. They
become smaller to the right and downwards, in much the same way for every image. So the table is cut into
blocks of 32, which lie in an order of falling size that is always the same: at first a byte a number, then,
once none is beyond 7, four bits, where the low halves of bytes hold one block and the high ones the next.
Blocks of zeros at the end are left out. zstd's Huffman codes do the rest.

    offset  size      field
    0       1         format version
    1       1         F, frequencies a side
    2       2         side of the map
    4       2         K, number of coordinates
    6       2         rank
    8       4         blocks of a byte a number
    12      4         pairs of blocks of four bits a number
    16      4         bytes of the first zstd frame
    20      4         step: float32
    24      2 + 2 r   scale of each row, in steps: float16; r is the rank
    26+2r   ...       zstd frame of the first kind of blocks, then that of the second

All numbers are little-endian and, but for those that are called otherwise, unsigned.
"""

from __future__ import annotations

import math
import struct
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
import zstandard
from blake3 import blake3
from numpy.typing import NDArray

from .errors import CatalogueError, FormatVersionError, RecordCorruptError, UsageError

Floats = NDArray[np.float32]

LARGEST = 127
"""Largest number of a table."""

MOST_FREQUENCIES = 16
"""More of them, a side, cost more time than the detail is worth."""

_VERSION = 1
_HEADER = struct.Struct("<2B3H3If")
FIXED_BYTES = _HEADER.size
BLOCK = 32
"""Numbers of a row of U or B that are packed alike."""

NARROW = 7
"""Largest number that four bits hold."""

_SIGNS, _LOW, _FOUR = np.uint64(0x8888_8888_8888_8888), np.uint64(0x0F0F_0F0F_0F0F_0F0F), np.uint64(4)

_INFINITE = 0x7C00
"""Bits of the smallest float16 that is no positive finite number."""

_ZSTD = zstandard.ZstdCompressionParameters.from_level(1, min_match=7)
"""Higher levels find little more, and are slower (design/0004). Shorter matches, in numbers that are so much
like noise, take more bytes than they save, and more time to put back."""

_MAGIC = b"texcat codebook 1\n"
_SIZES = struct.Struct("<3I")
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Codebook:
    """Axes along which the directions of one encoder are measured: one table, made from the encoder alone.

    With C the mean of d d^T over the directions d of phrases, and C = V L V^T, `project` is L^(-1/2) V^T:
    the coordinates of phrases have unit variance along each axis, and none in common.

    Attributes:
        fingerprint: of the encoder.
        project: float32 [K, dim]; its rows are orthogonal.
    """

    fingerprint: str
    project: Floats

    def coordinates(self, directions: Floats) -> Floats:
        """Coordinates float32 [N, K] of directions [N, dim].

        Raises:
            UsageError: directions of another dim.
        """
        dim = self.project.shape[1]
        if directions.ndim != 2 or directions.shape[1] != dim:
            raise UsageError(f"directions must be [N, {dim}], got {list(directions.shape)}")
        found: Floats = directions.astype(np.float32) @ self.project.T
        return found

    @property
    def spread(self) -> Floats:
        """L^(1/2) V^T, float32 [K, dim]: features times it fit coordinates, as they do directions."""
        scaled: Floats = self.project / np.square(self.project).sum(1, keepdims=True)
        return scaled

    def save(self, path: Path) -> None:
        """Write to the file `path`."""
        name = self.fingerprint.encode()
        table = self.project.astype("<f4").tobytes()
        content = _SIZES.pack(len(name), *self.project.shape) + name + table
        path.write_bytes(_MAGIC + _digest(content) + content)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file `path`.

        Raises:
            CatalogueError: it cannot be read, or is not what `save` wrote.
        """
        try:
            whole = path.read_bytes()
        except OSError as error:
            raise CatalogueError(f"cannot read the codebook {str(path)!r}: {error.strerror}") from error
        start = len(_MAGIC) + _DIGEST_BYTES
        content = whole[start:]
        if whole[:start] != _MAGIC + _digest(content):
            raise CatalogueError(
                f"codebook {str(path)!r} is damaged, or was written by another version of texcat; delete it: "
                "`texcat index` makes it again"
            )
        length, rows, dim = _SIZES.unpack_from(content)
        name = content[_SIZES.size : _SIZES.size + length]
        table = np.frombuffer(content, "<f4", rows * dim, _SIZES.size + length)
        return cls(name.decode(), table.reshape(rows, dim).astype(np.float32))


def code_maps(code: bytes, coordinates: Floats) -> Floats:
    """Maps float32 [N, side, side] of directions with `coordinates` [N, K], on the encoder's scale.

    Raises:
        RecordCorruptError: `code` is not what the indexer made.
        FormatVersionError: it has a format that this module does not read.
        UsageError: `coordinates` are those of another codebook.
    """
    found = _unpack(code)
    width = found.b.shape[1]
    if coordinates.ndim != 2 or coordinates.shape[1] != width:
        raise UsageError(
            f"coordinates must be [N, {width}], got {list(coordinates.shape)}; use the catalogue's codebook"
        )
    weights = (found.b.astype(np.float32) @ coordinates.T).T * found.scales
    planes = weights[:, 1:] @ found.u.astype(np.float32)
    planes[:, 0] += weights[:, 0]
    basis = cosines(found.side, found.frequencies)
    maps: Floats = basis.T @ planes.reshape(-1, found.frequencies, found.frequencies) @ basis
    return maps


def map_side(code: bytes) -> int:
    """Side of the maps that a code gives, in cells.

    Raises:
        RecordCorruptError, FormatVersionError: as `code_maps`.
    """
    return _unpack(code).side


def code_mean(code: bytes) -> Floats:
    """Float32 [K]: its product with the coordinates of a direction is the mean of the map.

    Raises:
        RecordCorruptError, FormatVersionError: as `code_maps`.
    """
    found = _unpack(code)
    mean: Floats = found.b[0] * (found.scales[0] / np.float32(found.side))
    return mean


def seal(
    *,
    side: int,
    frequencies: int,
    width: int,
    step: np.float32,
    scales: NDArray[np.float16],
    wide: NDArray[np.int8],
    pairs: NDArray[np.int8],
) -> bytes:
    """Code for maps of side x side.

    Args:
        side: of the maps.
        frequencies: F.
        width: K.
        step: what `scales` are counted in.
        scales: float16 [1 + rank], of each row of B: the mean, and the others.
        wide: int8 [n, 32], the first blocks of the table, in `block_order`.
        pairs: int8 [m, 32], the blocks after them, none of whose numbers is beyond `NARROW`: two by two, the
            first in the low halves of the bytes, the second in the high ones.
    """
    first, second = (_compress(blocks.tobytes()) for blocks in (wide, pairs))
    counts = (frequencies, side, width, len(scales) - 1, len(wide), len(pairs), len(first))
    return _HEADER.pack(_VERSION, *counts, step) + scales.astype("<f2").tobytes() + first + second


@dataclass(frozen=True, slots=True, eq=False)
class _Unpacked:
    """The table of a code: int8 U [rank, F^2] and B [1 + rank, K], and float32 scales of the rows of B."""

    side: int
    frequencies: int
    scales: Floats
    u: NDArray[np.int8]
    b: NDArray[np.int8]


@dataclass(slots=True, eq=False)  # not frozen: that would take a look-up a hundredth of its time
class OpenedCode:
    """A code whose frames are decompressed, and checked.

    Attributes:
        side: of the maps.
        frequencies: kept a side, F.
        width: K, coordinates of a direction.
        scales: float32 [1 + rank], of the rows of B.
        wide: int8 [n, 32], blocks of a byte a number, the first that there are.
        pairs: int8 [m, 32], the blocks after them, two and two: numbers of four bits, those of the one in the
            low halves of the bytes, those of the next in the high ones.
        order: int64 [blocks], which block of the table each of those n + 2 m is, row by row; and then those
            that are all zeros. A row of the table holds one of U, padded to blocks, and one of B, likewise;
            the first has none of U.
    """

    side: int
    frequencies: int
    width: int
    scales: Floats
    wide: NDArray[np.int8]
    pairs: NDArray[np.int8]
    order: NDArray[np.intp]


def open_code(code: bytes) -> OpenedCode:
    """The parts of a code, for `code_maps` and its likes.

    Raises:
        RecordCorruptError, FormatVersionError: as `code_maps`.
    """
    try:
        version, frequencies, side, width, rank, wide, pairs, length, step = _HEADER.unpack_from(code)
        if version != _VERSION:
            raise FormatVersionError("a code", version, _VERSION)
        area = frequencies**2
        if not 1 <= frequencies <= min(side, MOST_FREQUENCIES) or rank > area or not width:
            raise _damaged("a header of codes", code[: _HEADER.size].hex())
        scales = np.frombuffer(code, "<f2", 1 + rank, _HEADER.size)
        if not (0 < step < math.inf and max(scales.view(np.uint16).tolist()) < _INFINITE):
            raise _damaged("finite scales", step)
        start = _HEADER.size + 2 * (1 + rank)
        first = _decompress(code[start : start + length], wide)
        second = _decompress(code[start + length :], pairs)
    except (struct.error, ValueError, zstandard.ZstdError) as error:
        raise _damaged("a header and two zstd frames", error) from error
    order = block_order(1 + rank, padded(area), padded(width))
    if wide + 2 * pairs > len(order):
        raise _damaged(f"at most {len(order)} blocks", wide + 2 * pairs)
    return OpenedCode(side, frequencies, width, scales * np.float32(step), first, second, order)


def _unpack(code: bytes) -> _Unpacked:
    """The table that was packed."""
    found = open_code(code)
    wide, held, area = len(found.wide), len(found.wide) + 2 * len(found.pairs), found.frequencies**2
    blocks = np.empty((held + 1, BLOCK), np.int8)
    blocks[:wide], blocks[held] = found.wide, 0
    _put_halves(found.pairs, blocks[wide:held])
    # Each is taken from where it lies, or is the last, all zeros: a tenth of the time of putting them there.
    width = padded(area) + padded(found.width)
    places = _block_places(len(found.scales), padded(area), padded(found.width))
    table = blocks.take(places, axis=0, mode="clip").reshape(len(found.scales), width)
    u, b = table[1:, :area], table[:, padded(area) : padded(area) + found.width]
    return _Unpacked(found.side, found.frequencies, found.scales, u, b)


def _put_halves(pairs: NDArray[np.int8], blocks: NDArray[np.int8]) -> None:
    """Write the numbers of four bits in `pairs` [n, 32] to `blocks` [2 n, 32]: the low halves, then the high.

    Eight bytes at once. With its sign turned, a half is its number plus 8.
    """
    raised = pairs.view(np.uint64) ^ _SIGNS
    both = blocks.reshape(len(pairs), 2, BLOCK).view(np.uint64)
    np.bitwise_and(raised, _LOW, out=both[:, 0])
    np.right_shift(raised, _FOUR, out=raised)
    np.bitwise_and(raised, _LOW, out=both[:, 1])
    np.subtract(blocks, np.int8(8), out=blocks)


_local = threading.local()


def _compress(content: bytes) -> bytes:
    """A zstd frame. Like a decompressor, a compressor serves one thread at a time."""
    try:
        compress = _local.compress
    except AttributeError:
        compress = _local.compress = zstandard.ZstdCompressor(compression_params=_ZSTD).compress
    frame: bytes = compress(content)
    return frame


def _decompress(frame: bytes, blocks: int) -> NDArray[np.int8]:
    """The bytes of a zstd frame: int8 [blocks, 32]."""
    size = zstandard.frame_content_size(frame)
    if size != blocks * BLOCK:
        raise _damaged(f"{blocks * BLOCK} bytes in a zstd frame", size)
    # A decompressor serves one thread at a time, and making one takes longer than using it.
    try:
        decompress = _local.decompress
    except AttributeError:
        decompress = _local.decompress = zstandard.ZstdDecompressor().decompress
    return np.frombuffer(decompress(frame), np.int8).reshape(blocks, BLOCK)


def _damaged(expected: str, actual: object) -> RecordCorruptError:
    return RecordCorruptError("of codes", expected, actual)


@lru_cache(maxsize=1024)
def block_order(rows: int, left: int, right: int) -> NDArray[np.intp]:
    """Places of the blocks of a table, from those with large numbers to those with small ones.

    In row i, the b-th block of B (and each of U, as the first one) has numbers of about the size
    ``(i + 2)^-1.5 / (b + 1.5)``. That was fitted to photos, once; another encoder's numbers are packed less
    tightly, and just as right. It is computed in whole numbers: every machine must find the same order.

    Args:
        rows: of the table.
        left: its columns that hold U.
        right: its columns that hold B.
    """
    column = np.concatenate([np.zeros(left // BLOCK, np.int64), np.arange(right // BLOCK)])
    squared = (np.arange(rows)[:, None] + 2) ** 3 * (2 * column + 3) ** 2
    order: NDArray[np.intp] = np.argsort(squared, axis=None, kind="stable")
    order.setflags(write=False)
    return order


@lru_cache(maxsize=1024)
def _block_places(rows: int, left: int, right: int) -> NDArray[np.intp]:
    """Where each block of a table comes in `block_order`."""
    places: NDArray[np.intp] = np.argsort(block_order(rows, left, right))
    places.setflags(write=False)
    return places


def padded(length: int) -> int:
    """`length`, or what is needed to fill the last block."""
    return -(-length // BLOCK) * BLOCK


@lru_cache(maxsize=16)
def cosines(side: int, frequencies: int) -> Floats:
    """The first rows of the orthonormal DCT-II matrix: float32 [frequencies, side], read-only."""
    angle = np.pi * np.arange(frequencies)[:, None] * (np.arange(side) + 0.5) / side
    basis = np.sqrt(2 / side) * np.cos(angle)
    basis[0] = math.sqrt(1 / side)
    frozen: Floats = basis.astype(np.float32)
    frozen.setflags(write=False)
    return frozen


def _digest(content: bytes) -> bytes:
    return blake3(content).digest(length=_DIGEST_BYTES)
