"""The texture store: what every store does, and an in-memory one that is easy to see through.

A store holds, for each image, one base texture, any number of interest maps, and a code. `LmdbTextureStore`
in `shards.py` keeps them on disk; `MemoryTextureStore` here is the model that it is tested against.

Both give the bytes of an image in one form, records as `codec` describes them: part 0 of an image is its
base, and part p >= 1 holds the maps of interests 15 (p - 1) + 1 to 15 p, as far as there are any. The last
part of all is its code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from . import codec
from .errors import RecordMissingError, UsageError
from .types import ImageKey, InterestMaps, Planes, TextureRecord

Buffer = bytes | memoryview

GROUP = 15
"""Interests whose maps share a record: with their table, 15 maps of 16x16 fill one page of LMDB, and 15 of
32x32 fill four. Adding an interest to an image rewrites one such record, a look-up of three reads at most
three."""


_PAGE = 4096


def part_of(interest: int) -> int:
    """Part of an image that holds the map of `interest` (>= 1)."""
    return 1 + (interest - 1) // GROUP


def slot_of(interest: int) -> int:
    """Slot of `interest` within its part."""
    return (interest - 1) % GROUP


def interest_at(part: int, slot: int) -> int:
    """The interest whose map lies in `slot` of `part`: the inverse of `part_of` and `slot_of`."""
    return (part - 1) * GROUP + slot + 1


def map_bytes(side: int) -> float:
    """Bytes of the disk that one map of side x side cells takes: its part of a full record in whole pages."""
    record = codec.HEADER_BYTES + GROUP * (codec.PLANE_BYTES + side * side)
    return -(-record // _PAGE) * _PAGE / GROUP


def stack(planes: Sequence[Planes]) -> Planes:
    """Planes [1, h, w] of one size as one [N, h, w].

    Raises:
        UsageError: they are of several sizes.
    """
    sizes = {p.values.shape[1:] for p in planes}
    if len(sizes) > 1:
        raise UsageError(f"a store holds maps of one size, got {', '.join(map(str, sorted(sizes)))}")
    return Planes(*(np.concatenate([getattr(p, name) for p in planes]) for name in ("values", "low", "high")))


def together(maps: Mapping[int, Planes]) -> InterestMaps:
    """Maps, by interest id, as they lie together; there is at least one.

    Raises:
        UsageError: as `stack`.
    """
    if isinstance(maps, InterestMaps):
        return maps
    ids = tuple(sorted(maps))
    return InterestMaps(ids, stack([maps[interest] for interest in ids]))


def single(planes: Planes, place: int) -> Planes:
    """One of several planes, as [1, h, w]."""
    chosen = slice(place, place + 1)
    return Planes(planes.values[chosen], planes.low[chosen], planes.high[chosen])


@dataclass(frozen=True, slots=True)
class Reader:
    """A process that has a file open to read; `pinned` while a transaction of its keeps pages from reuse."""

    file: str
    pid: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Sizes of a store.

    Attributes:
        images: how many are held.
        maps: how many maps of each interest.
        base_bytes: bytes of base records.
        map_bytes: bytes of the maps of each interest.
        codes: how many images have a code.
        code_bytes: bytes of the codes.
        file_bytes: bytes of the files on the disk.
        free_bytes: bytes of the files that hold nothing; `compact` returns them.
        readers: who reads the files.
    """

    images: int
    maps: dict[int, int]
    base_bytes: int
    map_bytes: dict[int, int]
    codes: int
    code_bytes: int
    file_bytes: int
    free_bytes: int
    readers: tuple[Reader, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that `check` found wrong.

    Attributes:
        where: file and entry.
        reason: what is wrong.
        key: image whose record it is, if that is known.
        entry: key of the entry in its file, if it is about one.
        foreign: whether it is sound, but of another encoder.
    """

    where: str
    reason: str
    key: ImageKey | None = None
    entry: bytes | None = None
    foreign: bool = False


class TextureStore(Protocol):
    """A map from image keys to textures."""

    def write(self, records: Iterable[TextureRecord]) -> None:
        """Add or replace what `records` give; what they leave out stays as it is.

        When it returns, all is on the disk. Whatever happens before, each image is either as it was or as
        its record says, never between. Maps are planes [1, h, w], all of a store of one size.

        Raises:
            RecordMissingError: a record gives maps or a code alone, of an image that has no base. Nothing is
                written.
            StoreFullError: the disk has no room. Images written by earlier calls are kept.
        """
        ...

    def read(self, key: ImageKey, interests: Collection[int] | None = None) -> TextureRecord:
        """Base of an image, and its maps for `interests` (all when None) as far as they are held.

        Its code is not among them: `code` gives it.

        Raises:
            RecordMissingError: the image is not held.
            RecordCorruptError, FingerprintMismatchError: a part that was asked for is damaged, or foreign.
        """
        ...

    def fetch(self, key: ImageKey, parts: Sequence[int]) -> bytes:
        """The sound records of an image, joined: of its base, and of `parts`.

        `codec.EMPTY` stands for a part that is not there.

        Raises:
            RecordMissingError, RecordCorruptError, FingerprintMismatchError: as `read`.
        """
        ...

    def held(self, key: ImageKey) -> frozenset[int] | None:
        """Interests whose map is held, sound, for an image; None when its base is not."""
        ...

    def lacking(
        self, keys: Iterable[ImageKey], interests: Collection[int]
    ) -> Iterator[tuple[ImageKey, frozenset[int]]]:
        """Those of `interests` whose map is not held, sound, for each of `keys` that has a sound base.

        In no particular order, each key once. For many images it is much quicker than `held`.
        """
        ...

    def code(self, key: ImageKey) -> bytes | None:
        """Code of an image; None when it has none.

        Raises:
            RecordCorruptError, FingerprintMismatchError: it is damaged, or of another codebook.
        """
        ...

    def has_code(self, key: ImageKey) -> bool:
        """Whether a sound code is held for an image."""
        ...

    def codes(self, keys: Iterable[ImageKey] | None = None) -> Iterator[tuple[ImageKey, bytes]]:
        """Code of each of `keys` (every image when None) that has a sound one, in no particular order."""
        ...

    def keys(self) -> Iterator[ImageKey]:
        """Keys of the images held, in no particular order; none is given twice."""
        ...

    def scan(self, interest: int) -> Iterator[tuple[ImageKey, Planes]]:
        """Map of one interest in every image that holds it, in no particular order."""
        ...

    def drop_interest(self, interest: int) -> int:
        """Remove one interest's map from every image; how many there were."""
        ...

    def delete(self, keys: Iterable[ImageKey]) -> int:
        """Remove images with all their maps and their codes; how many there were."""
        ...

    def stats(self) -> StoreStats:
        """Counts and sizes."""
        ...

    def check(self) -> Iterator[Problem]:
        """Read everything, and give each record that is damaged, foreign or out of place."""
        ...

    def close(self) -> None:
        """Let go of files. A store that is closed is not used again."""
        ...


class MemoryTextureStore:
    """A `TextureStore` that is a dict."""

    def __init__(self) -> None:
        self._records: dict[ImageKey, tuple[Planes, dict[int, Planes]]] = {}
        self._codes: dict[ImageKey, bytes] = {}

    def write(self, records: Iterable[TextureRecord]) -> None:
        batch = list(records)
        based = {record.key for record in batch if record.base is not None}
        for record in batch:
            if record.key not in based and record.key not in self._records:
                raise RecordMissingError(str(record.key))
        for record in sorted(batch, key=lambda record: record.base is None):
            base, maps = self._records.get(record.key, (record.base, {}))
            base = base if record.base is None else record.base
            assert base is not None
            self._records[record.key] = (base, {**maps, **record.maps})
            if record.code is not None:
                self._codes[record.key] = record.code

    def read(self, key: ImageKey, interests: Collection[int] | None = None) -> TextureRecord:
        if key not in self._records:
            raise RecordMissingError(str(key))
        base, maps = self._records[key]
        wanted = maps if interests is None else interests
        return TextureRecord(key, base, {i: maps[i] for i in sorted(wanted) if i in maps})

    def fetch(self, key: ImageKey, parts: Sequence[int]) -> bytes:
        record = self.read(key)
        assert record.base is not None
        tag = bytes(codec.TAG_BYTES)
        found = [codec.encode(range(len(record.base.values)), record.base, key, 0, tag)]
        for part in parts:
            maps = {slot_of(i): planes for i, planes in sorted(record.maps.items()) if part_of(i) == part}
            found.append(
                codec.encode(list(maps), stack(list(maps.values())), key, part, tag) if maps else codec.EMPTY
            )
        return b"".join(found)

    def held(self, key: ImageKey) -> frozenset[int] | None:
        return frozenset(self._records[key][1]) if key in self._records else None

    def lacking(
        self, keys: Iterable[ImageKey], interests: Collection[int]
    ) -> Iterator[tuple[ImageKey, frozenset[int]]]:
        for key in dict.fromkeys(keys):
            if key in self._records:
                yield key, frozenset(interests) - self._records[key][1].keys()

    def code(self, key: ImageKey) -> bytes | None:
        return self._codes.get(key)

    def has_code(self, key: ImageKey) -> bool:
        return key in self._codes

    def codes(self, keys: Iterable[ImageKey] | None = None) -> Iterator[tuple[ImageKey, bytes]]:
        for key in list(self._codes) if keys is None else dict.fromkeys(keys):
            if key in self._codes:
                yield key, self._codes[key]

    def keys(self) -> Iterator[ImageKey]:
        yield from list(self._records)

    def scan(self, interest: int) -> Iterator[tuple[ImageKey, Planes]]:
        for key, (_, maps) in list(self._records.items()):
            if interest in maps:
                yield key, maps[interest]

    def drop_interest(self, interest: int) -> int:
        return sum(maps.pop(interest, None) is not None for _, maps in self._records.values())

    def delete(self, keys: Iterable[ImageKey]) -> int:
        gone = [key for key in keys if self._records.pop(key, None) is not None]
        for key in gone:
            self._codes.pop(key, None)
        return len(gone)

    def stats(self) -> StoreStats:
        maps: dict[int, int] = {}
        map_bytes: dict[int, int] = {}
        for _, held in self._records.values():
            for interest, planes in held.items():
                maps[interest] = maps.get(interest, 0) + 1
                map_bytes[interest] = map_bytes.get(interest, 0) + planes.values.nbytes
        base_bytes = sum(base.values.nbytes for base, _ in self._records.values())
        code_bytes = sum(map(len, self._codes.values()))
        return StoreStats(len(self._records), maps, base_bytes, map_bytes, len(self._codes), code_bytes, 0, 0)

    def check(self) -> Iterator[Problem]:
        yield from ()

    def close(self) -> None:
        self._records.clear()
        self._codes.clear()
