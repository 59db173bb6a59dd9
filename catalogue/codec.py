"""Planes to bytes and back: one record format for base textures and for interest maps.

A record is a header, `low` and `high` of each plane, and the plane values. The values are filtered
(each row minus the row above it, modulo 256: the Up filter of PNG, RFC 2083 section 6) and compressed with
zstd where that makes them smaller. The checksum covers the record and the key it is stored under, so a
record that is damaged, or that turns up under another key, is an error and is never served.

    offset  size  field
    0       8     checksum: XXH3-64 of the key, then of all that follows
    8       1     format version
    9       1     filter: 0 none, 1 up
    10      1     compression: 0 none, 1 zstd
    11      1     zero
    12      8     tag of the encoder fingerprint (see `fingerprint_tag`)
    20      6     planes, rows, columns: uint16 each
    26      2     zero
    28      8 C   low, then high: float32 each
    28+8C   ...   values

All numbers are little-endian.
"""

from __future__ import annotations

import struct
import threading

import numpy as np
import xxhash
import zstandard
from blake3 import blake3
from numpy.typing import NDArray

from .errors import FingerprintMismatchError, FormatVersionError, RecordCorruptError, UsageError
from .types import Planes

VERSION = 1
ZSTD_LEVEL = 1
TAG_BYTES = 8

_CHECKSUM = struct.Struct("<Q")
_HEADER = struct.Struct("<4B8s3H2x")
_BODY = _CHECKSUM.size + _HEADER.size
_LEVELS = 255


class _PerThread(threading.local):
    """zstandard's objects must not be shared between threads."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _PerThread()


def fingerprint_tag(fingerprint: str) -> bytes:
    """The 8 bytes that stand for an encoder fingerprint in a record."""
    return blake3(fingerprint.encode()).digest(length=TAG_BYTES)


def quantise(planes: NDArray[np.float32], labels: NDArray[np.bool_] | None = None) -> Planes:
    """Quantise float planes [C, H, W] to uint8, with the range of each plane kept.

    The error of a value is at most (high - low) / 510. A plane that `labels` [C] marks holds whole numbers
    from 0 to 255 and is kept exactly.

    Raises:
        UsageError: a value is not finite, or the shape is not [C, H, W] with at least one cell.
    """
    if planes.ndim != 3 or planes.size == 0:
        raise UsageError(f"planes must be [C, H, W] with at least one cell, got shape {planes.shape}")
    low = planes.min(axis=(1, 2)).astype(np.float32)
    high = planes.max(axis=(1, 2)).astype(np.float32)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UsageError("planes must be finite; a plane holds NaN or infinity")
    if labels is not None:
        low[labels] = 0
        high[labels] = _LEVELS
    span = high.astype(np.float64) - low
    scale = np.divide(_LEVELS, span, out=np.zeros_like(span), where=span > 0)
    values = np.rint((planes - low[:, None, None].astype(np.float64)) * scale[:, None, None])
    return Planes(np.clip(values, 0, _LEVELS).astype(np.uint8), low, high)


def dequantise(planes: Planes) -> NDArray[np.float32]:
    """Float planes [C, H, W] of quantised ones."""
    span = planes.high.astype(np.float64) - planes.low
    step = (span / _LEVELS).astype(np.float32)
    return planes.values * step[:, None, None] + planes.low[:, None, None]


def encode(planes: Planes, key: bytes, tag: bytes) -> bytes:
    """Record of `planes`, to be stored under `key`, made with the encoder that `tag` stands for."""
    count, rows, columns = planes.values.shape
    raw = np.ascontiguousarray(planes.values)
    packed = _zstd.compressor.compress(_up(raw).tobytes())
    small = len(packed) < raw.nbytes
    header = _HEADER.pack(VERSION, int(small), int(small), 0, tag, count, rows, columns)
    body = b"".join(
        (
            header,
            planes.low.astype("<f4").tobytes(),
            planes.high.astype("<f4").tobytes(),
            packed if small else raw.tobytes(),
        )
    )
    return _CHECKSUM.pack(_digest(key, body)) + body


def decode(record: bytes | memoryview, key: bytes, tag: bytes, where: str) -> Planes:
    """Planes of a record that was stored under `key`; `where` names it in errors.

    Raises:
        RecordCorruptError: the bytes are not those that `encode` made for this key.
        FormatVersionError: the record is sound, but of a version that this module does not read.
        FingerprintMismatchError: the record is sound, but was made with another encoder.
    """
    if len(record) < _BODY:
        raise RecordCorruptError(where, f"at least {_BODY} bytes", f"{len(record)} bytes")
    view = memoryview(record)
    (stored,) = _CHECKSUM.unpack_from(view)
    actual = _digest(key, view[_CHECKSUM.size :])
    if stored != actual:
        raise RecordCorruptError(where, f"checksum {stored:016x}", f"{actual:016x}")
    version, filtered, compressed, _, found, count, rows, columns = _HEADER.unpack_from(view, _CHECKSUM.size)
    if version != VERSION:
        raise FormatVersionError(f"record {where}", version, VERSION)
    if found != tag:
        raise FingerprintMismatchError(f"record {where}", found.hex(), tag.hex())
    levels = np.frombuffer(view, "<f4", 2 * count, _BODY)
    payload = view[_BODY + levels.nbytes :]
    size = count * rows * columns
    raw = _zstd.decompressor.decompress(payload, max_output_size=size) if compressed else payload
    values = np.frombuffer(raw, np.uint8, size).reshape(count, rows, columns)
    values = np.add.accumulate(values, axis=1, dtype=np.uint8) if filtered else values.copy()
    return Planes(values, levels[:count].astype(np.float32), levels[count:].astype(np.float32))


def _up(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    delta = values.copy()
    delta[:, 1:] -= values[:, :-1]
    return delta


def _digest(key: bytes, body: bytes | memoryview) -> int:
    state = xxhash.xxh3_64(key)
    state.update(body)
    return state.intdigest()
