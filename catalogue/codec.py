"""Planes to bytes and back: one record format for base textures and for groups of interest maps.

Values lie in a record as they are, a byte a cell: reading a plane is taking a slice. (Compressing them costs
more time than the whole look-up, and saves less than the pages of LMDB round up: design/0002.) The checksum
covers the record and the name it is stored under, so that a record that is damaged, or that turns up under
another name, is an error and is never served.

    offset  size  field
    0       8     checksum: XXH3-64, big-endian, of all that follows, seeded by the name
    8       1     format version
    9       8     tag of the encoder fingerprint (`fingerprint_tag`)
    17      1     zero
    18      6     N, rows, columns: uint16 each; N is the number of planes
    24      4 N   low of each plane: float32
    24+4N   4 N   high: float32
    24+8N   2 N   slot: uint16, ascending: which plane of the base, or which interest of the group, it is
    24+10N  ...   values: uint8 [N, rows, columns]

All other numbers are little-endian. The name of a record is its key in the store: the image key and the part.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import xxhash
from blake3 import blake3
from numpy.typing import NDArray

from .errors import FingerprintMismatchError, FormatVersionError, RecordCorruptError
from .types import KEY_BYTES, Planes

VERSION = 2
HEADER_BYTES = 24
PLANE_BYTES = 10
TAG_BYTES = 8

Slots = NDArray[np.uint16]

EMPTY = bytes(HEADER_BYTES)
"""Stands for a record that is not there: it has no planes."""

_CHECKSUM_BYTES = 8
_HEADER = struct.Struct("<B8sB3H")


def fingerprint_tag(fingerprint: str) -> bytes:
    """The 8 bytes that stand for an encoder fingerprint in a record."""
    return blake3(fingerprint.encode()).digest(length=TAG_BYTES)


def encode(slots: Sequence[int], planes: Planes, name: bytes, tag: bytes) -> bytes:
    """Record of `planes`, one for each of `slots` (ascending), to be stored under `name`.

    `tag` stands for the encoder that they were made with.
    """
    count, rows, columns = planes.values.shape
    body = b"".join(
        (
            _HEADER.pack(VERSION, tag, 0, count, rows, columns),
            planes.low.astype("<f4").tobytes(),
            planes.high.astype("<f4").tobytes(),
            np.asarray(slots, "<u2").tobytes(),
            planes.values.tobytes(),
        )
    )
    return xxhash.xxh3_64_digest(body, _seed(name)) + body


def stamp(tag: bytes) -> bytes:
    """What the sound records of the encoder that `tag` stands for have after their checksum."""
    return bytes([VERSION]) + tag


def check(record: bytes | memoryview, name: bytes, stamp: bytes) -> None:
    """Make sure that `record` is sound, of this version, and of the encoder that `stamp` is made of.

    Raises:
        RecordCorruptError: the bytes are not those that `encode` made for this name.
        FormatVersionError: the record is sound, but of a version that this module does not read.
        FingerprintMismatchError: the record is sound, but was made with another encoder.
    """
    actual = xxhash.xxh3_64_digest(memoryview(record)[_CHECKSUM_BYTES:], _seed(name))
    if record[:_CHECKSUM_BYTES] != actual or len(record) < HEADER_BYTES:
        expected = bytes(record[:_CHECKSUM_BYTES]).hex()
        raise RecordCorruptError(_where(name), f"checksum {expected}", actual.hex())
    found = bytes(record[8:17])
    if found != stamp:
        if found[0] != VERSION:
            raise FormatVersionError(f"record {_where(name)}", found[0], VERSION)
        raise FingerprintMismatchError(f"record {_where(name)}", found[1:].hex(), stamp[1:].hex())


def decode(record: bytes) -> tuple[Slots, Planes]:
    """Slots [N] and planes of a record that `check` has let pass."""
    _, _, _, count, rows, columns = _HEADER.unpack_from(record, _CHECKSUM_BYTES)
    levels = np.frombuffer(record, "<f4", 2 * count, HEADER_BYTES).astype(np.float32)
    slots = np.frombuffer(record, "<u2", count, HEADER_BYTES + 8 * count)
    values = np.frombuffer(record, np.uint8, count * rows * columns, HEADER_BYTES + PLANE_BYTES * count)
    return slots, Planes(values.reshape(count, rows, columns), levels[:count], levels[count:])


def _seed(name: bytes) -> int:
    """Half of it from the image key, a digest itself, and half from the part."""
    return int.from_bytes(name[:4] + name[KEY_BYTES:], "little")


def _where(name: bytes) -> str:
    part = int.from_bytes(name[KEY_BYTES:], "big")
    return f"{name[:KEY_BYTES].hex()}/{f'maps, part {part}' if part else 'base'}"
