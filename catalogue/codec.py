"""Planes to bytes and back: one record format for base textures, groups of interest maps, and codes.

Values lie in a record as they are, a byte a cell: reading a plane is taking a slice. (Compressing them costs
more time than the whole look-up, and saves less than the pages of LMDB round up: design/0002.) The checksum
covers the record, and the image and part it is stored for, so that a record that is damaged, or that turns up
elsewhere, is an error and is never served.

    offset  size  field
    0       8     checksum: XXH3-64, big-endian, of all that follows, seeded by key and part
    8       1     format version
    9       8     tag of the encoder fingerprint (`fingerprint_tag`)
    17      1     zero
    18      6     N, rows, columns: uint16 each; N is the number of planes
    24      4 N   low of each plane: float32
    24+4N   4 N   high: float32
    24+8N   2 N   slot: uint16, ascending: which plane of the base, or which interest of the group, it is
    24+10N  ...   values: uint8 [N, rows, columns]

All other numbers are little-endian. The record of a code has no planes, the tag of the codebook in the place
of the encoder's, and its payload from offset 24 on.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import xxhash
from blake3 import blake3
from numpy.typing import NDArray

from .errors import FingerprintMismatchError, FormatVersionError, RecordCorruptError, UsageError
from .types import Planes

VERSION = 2
HEADER_BYTES = 24
PLANE_BYTES = 10
TAG_BYTES = 8

Slots = NDArray[np.uint16]

EMPTY = bytes(HEADER_BYTES)
"""Stands for a record that is not there: it has no planes."""

CODE_PART = 2**32 - 1
"""Part of an image that holds its code: so far behind those of interests that none will ever be it."""

_CHECKSUM_BYTES = 8
_STAMPED = 17
_HEADER = struct.Struct("<B8sB3H")
_HALVES = struct.Struct("<QQ")


def fingerprint_tag(fingerprint: str) -> bytes:
    """The 8 bytes that stand for an encoder fingerprint in a record."""
    return blake3(fingerprint.encode()).digest(length=TAG_BYTES)


def encode(slots: Sequence[int], planes: Planes, key: bytes, part: int, tag: bytes) -> bytes:
    """Record of `planes`, one for each of `slots` (ascending), for `part` of the image `key`.

    `tag` stands for the encoder that they were made with.
    """
    count, rows, columns = planes.values.shape
    body = b"".join(
        (
            _HEADER.pack(VERSION, tag, 0, count, rows, columns),
            planes.low.astype("<f4", copy=False).tobytes(),
            planes.high.astype("<f4", copy=False).tobytes(),
            np.asarray(slots, "<u2").tobytes(),
            planes.values.tobytes(),
        )
    )
    return xxhash.xxh3_64_digest(body, _seed(key) ^ part) + body


def splice(record: bytes, slot: int, plane: Planes, key: bytes, part: int) -> bytes:
    """`record`, of `part` of the image `key`, with `plane` [1, h, w] for `slot`, in the place of one it had.

    What `encode` makes of all its planes, but none of the others is looked at: `check` must have let the
    record pass, or damage would get a sound checksum.

    Raises:
        UsageError: the planes of the record are of another size.
    """
    version, tag, zero, count, rows, columns = _HEADER.unpack_from(record, _CHECKSUM_BYTES)
    if plane.values.shape != (1, rows, columns):
        raise UsageError(f"a store holds maps of one size, {(rows, columns)}, got {plane.values.shape[1:]}")
    slots = decode_slots(record)
    place = bisect_left(slots, slot)
    behind = bisect_right(slots, slot)
    pieces = [_HEADER.pack(version, tag, zero, count + 1 - (behind - place), rows, columns)]
    start = HEADER_BYTES
    for size, new in (
        (4, plane.low.astype("<f4").tobytes()),
        (4, plane.high.astype("<f4").tobytes()),
        (2, slot.to_bytes(2, "little")),
        (rows * columns, plane.values.tobytes()),
    ):
        end = start + count * size
        pieces += record[start : start + place * size], new, record[start + behind * size : end]
        start = end
    body = b"".join(pieces)
    return xxhash.xxh3_64_digest(body, _seed(key) ^ part) + body


def encode_code(code: bytes, key: bytes, tag: bytes) -> bytes:
    """Record of a code of the image `key`, made with the codebook that `tag` stands for."""
    body = _HEADER.pack(VERSION, tag, 0, 0, 0, 0) + code
    return xxhash.xxh3_64_digest(body, _seed(key) ^ CODE_PART) + body


def stamp(tag: bytes) -> bytes:
    """What the sound records of the encoder, or codebook, that `tag` stands for have after their checksum."""
    return bytes([VERSION]) + tag


def check(records: Sequence[bytes | memoryview], key: bytes, parts: Sequence[int], stamp: bytes) -> None:
    """Make sure that `records` are sound, of this version, and of the encoder that `stamp` is made of.

    They are those of `parts` of the image `key`. Those that are `EMPTY` are passed over.

    Raises:
        RecordCorruptError: the bytes of one are not those that `encode` made for this part of this image.
        FormatVersionError: one is sound, but of a version that this module does not read.
        FingerprintMismatchError: one is sound, but was made with another encoder.
    """
    first = _seed(key)
    for record, part in zip(records, parts, strict=True):
        if record is EMPTY:
            continue
        digest = xxhash.xxh3_64_digest(record[_CHECKSUM_BYTES:], first ^ part)
        if record[:_STAMPED] != digest + stamp:
            _complain(bytes(record), digest, stamp, f"{key.hex()}/{_name(part)}")


def decode(record: bytes) -> tuple[Slots, Planes]:
    """Slots [N] and planes of a record that `check` has let pass."""
    _, _, _, count, rows, columns = _HEADER.unpack_from(record, _CHECKSUM_BYTES)
    levels = np.frombuffer(record, "<f4", 2 * count, HEADER_BYTES).astype(np.float32)
    slots = np.frombuffer(record, "<u2", count, HEADER_BYTES + 8 * count)
    values = np.frombuffer(record, np.uint8, count * rows * columns, HEADER_BYTES + PLANE_BYTES * count)
    return slots, Planes(values.reshape(count, rows, columns), levels[:count], levels[count:])


def decode_slots(record: bytes | memoryview) -> tuple[int, ...]:
    """The slots of a record that `check` has let pass."""
    count: int = _HEADER.unpack_from(record, _CHECKSUM_BYTES)[3]
    return struct.unpack_from(f"<{count}H", record, HEADER_BYTES + 8 * count)


def decode_code(record: bytes | memoryview) -> bytes:
    """The code in a record that `check` has let pass."""
    return bytes(record[HEADER_BYTES:])


def _name(part: int) -> str:
    return {0: "base", CODE_PART: "code"}.get(part, f"maps, part {part}")


def _seed(key: bytes) -> int:
    """Seed of the image `key`, itself a digest: its halves, one upon the other; of a part, this ^ part."""
    first, last = _HALVES.unpack(key)
    seed: int = first ^ last
    return seed


def _complain(record: bytes, digest: bytes, stamp: bytes, where: str) -> NoReturn:
    if record[:_CHECKSUM_BYTES] != digest or len(record) < HEADER_BYTES:
        raise RecordCorruptError(where, f"checksum {record[:_CHECKSUM_BYTES].hex()}", digest.hex())
    version, tag = record[_CHECKSUM_BYTES], record[_CHECKSUM_BYTES + 1 : _STAMPED]
    if version != VERSION:
        raise FormatVersionError(f"record {where}", version, VERSION)
    raise FingerprintMismatchError(f"record {where}", tag.hex(), stamp[1:].hex())
