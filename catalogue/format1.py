"""Catalogues of format 1, read once more to bring them to the present format.

Format 1 kept each interest map in an entry of its own, whose part was the id of the interest, and stored
channels that are derived now. Its records were compressed:

    offset  size  field
    0       8     checksum: XXH3-64 of the entry's key, then of all that follows
    8       1     format version: 1
    9       1     filter: 0 none, 1 each row minus the row above it, modulo 256
    10      1     compression: 0 none, 1 zstd
    11      1     zero
    12      8     tag of the encoder fingerprint
    20      6     planes, rows, columns: uint16 each
    26      2     zero
    28      8 C   low, then high: float32 each
    28+8C   ...   values

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

from . import codec
from .channels import ChannelSchema
from .errors import CatalogueError, FingerprintMismatchError, RecordCorruptError
from .lmdb_file import LmdbFile, Transaction
from .shards import images, parts_of_image
from .store import part_of, slot_of, stack
from .types import ImageKey, Planes

STORED = {
    "appearance": ("red", "green", "blue", "luminance", "lightness", "green_red"),
    "edges": ("edge_x", "edge_y", "edge_magnitude", "edge_inverted", "highpass", "lowpass"),
    "saliency": ("saliency_color", "saliency_intensity", "saliency_orientation", "saliency"),
    "clusters": ("cluster_id", "color_variance", "distance_to_boundary"),
    "objects": ("object_id", "object_boundary"),
}
"""Channels that format 1 stored of each group, in order."""

_CHECKSUM = struct.Struct("<Q")
_HEADER = struct.Struct("<4B8s3H2x")
_BODY = _CHECKSUM.size + _HEADER.size
_PART = struct.Struct(">I")
_VERSION = 1


def upgrade_shards(folder: Path, shards: int, schema: ChannelSchema, fingerprint: str) -> None:
    """Rewrite the records of format 1 in the shards of `folder`. Goes on where it was interrupted.

    A record that is damaged is dropped: the next indexing pass makes it again.

    Args:
        folder: of the shards.
        shards: how many there are.
        schema: channels of the catalogue.
        fingerprint: of its encoder.

    Raises:
        CatalogueError: the catalogue lacks a channel that others are derived from now.
    """
    names = tuple(name for group, held in STORED.items() if group in schema.groups for name in held)
    lacking = [name for name in schema.stored.names if name not in names]
    if lacking:
        raise CatalogueError(
            f"{folder.parent} has format 1 and lacks {', '.join(lacking)}, which its other channels are "
            "derived from now; make a new catalogue with `texcat init`, and index into it"
        )
    chosen = [names.index(name) for name in schema.stored.names]
    tag = codec.fingerprint_tag(fingerprint)
    for number in range(shards):
        file = LmdbFile(folder, f"{number:04}", read_only=False)
        try:
            for keys in images(file):
                file.change(_upgrading(keys, chosen, tag))
        finally:
            file.close()


def _upgrading(keys: Sequence[ImageKey], chosen: Sequence[int], tag: bytes) -> Callable[[Transaction], int]:
    def action(txn: Transaction) -> int:
        return sum(_upgrade(txn, key, chosen, tag) for key in keys)

    return action


def _upgrade(txn: Transaction, key: ImageKey, chosen: Sequence[int], tag: bytes) -> bool:
    """Rewrite one image, all in one transaction; False when that was done before."""
    base: Planes | None = None
    maps: dict[int, Planes] = {}
    entries = parts_of_image(txn, key)
    if any(len(value) > _CHECKSUM.size and value[_CHECKSUM.size] != _VERSION for _, value in entries):
        return False
    for part, value in entries:
        name = key + _PART.pack(part)
        txn.delete(name)
        try:
            planes = decode(value, name, tag)
        except (RecordCorruptError, FingerprintMismatchError):
            continue
        if part == 0:
            base = Planes(planes.values[chosen], planes.low[chosen], planes.high[chosen])
        else:
            maps[part] = planes
    if base is None:
        return True
    name = key + _PART.pack(0)
    txn.put(name, codec.encode(range(len(chosen)), base, key, 0, tag))
    for part in {part_of(interest) for interest in maps}:
        held = [interest for interest in sorted(maps) if part_of(interest) == part]
        planes = stack([maps[interest] for interest in held])
        slots = [slot_of(interest) for interest in held]
        name = key + _PART.pack(part)
        txn.put(name, codec.encode(slots, planes, key, part, tag))
    return True


def decode(record: bytes, name: bytes, tag: bytes) -> Planes:
    """Planes of a record of format 1 that was stored under `name`.

    Raises:
        RecordCorruptError: the bytes are not those that were written there.
        FingerprintMismatchError: the record is sound, but was made with another encoder.
    """
    where = name.hex()
    if len(record) < _BODY:
        raise RecordCorruptError(where, f"at least {_BODY} bytes", f"{len(record)} bytes")
    view = memoryview(record)
    (stored,) = _CHECKSUM.unpack_from(view)
    actual = _digest(name, view[_CHECKSUM.size :])
    if stored != actual:
        raise RecordCorruptError(where, f"checksum {stored:016x}", f"{actual:016x}")
    _, filtered, compressed, _, found, count, rows, columns = _HEADER.unpack_from(view, _CHECKSUM.size)
    if found != tag:
        raise FingerprintMismatchError(f"record {where}", found.hex(), tag.hex())
    levels = np.frombuffer(view, "<f4", 2 * count, _BODY)
    payload = view[_BODY + levels.nbytes :]
    size = count * rows * columns
    raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=size) if compressed else payload
    values: NDArray[np.uint8] = np.frombuffer(raw, np.uint8, size).reshape(count, rows, columns)
    values = np.add.accumulate(values, axis=1, dtype=np.uint8) if filtered else values.copy()
    return Planes(values, levels[:count].astype(np.float32), levels[count:].astype(np.float32))


def _digest(name: bytes, body: memoryview) -> int:
    state = xxhash.xxh3_64(name)
    state.update(body)
    return state.intdigest()
