"""The texture store: what every store does, and an in-memory one that is easy to see through.

A store holds, for each image, one base texture and any number of interest maps. `LmdbTextureStore` in
`shards.py` keeps them on disk; `MemoryTextureStore` here is the model that it is tested against.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from .errors import RecordMissingError
from .types import ImageKey, Planes, TextureRecord


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Sizes of a store: counts of records, and bytes of their values and of the files on disk."""

    images: int
    maps: dict[int, int]
    base_bytes: int
    map_bytes: dict[int, int]
    file_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that `check` found wrong: where, what, and the image whose record it is (if known)."""

    where: str
    reason: str
    key: ImageKey | None = None


class TextureStore(Protocol):
    """A map from image keys to textures."""

    def write(self, records: Iterable[TextureRecord]) -> None:
        """Add or replace the parts that `records` give; parts that they leave out stay as they are.

        When it returns, all is on the disk. Whatever happens before, each image is either as it was or as
        its record says, never between.

        Raises:
            RecordMissingError: a record gives maps alone, of an image that has no base. Nothing is written.
            StoreFullError: the disk has no room. Images written by earlier calls are kept.
        """
        ...

    def read(self, key: ImageKey, interests: Collection[int] | None = None) -> TextureRecord:
        """Base of an image, and its maps for `interests` (all when None) as far as they are held.

        Raises:
            RecordMissingError: the image is not held.
            RecordCorruptError, FingerprintMismatchError: a part that was asked for is damaged, or foreign.
        """
        ...

    def held(self, key: ImageKey) -> frozenset[int] | None:
        """Interests whose map is held for an image; None when the image is not held."""
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
        """Remove images with all their maps; how many there were."""
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

    def read(self, key: ImageKey, interests: Collection[int] | None = None) -> TextureRecord:
        if key not in self._records:
            raise RecordMissingError(str(key))
        base, maps = self._records[key]
        wanted = maps if interests is None else interests
        return TextureRecord(key, base, {i: maps[i] for i in sorted(wanted) if i in maps})

    def held(self, key: ImageKey) -> frozenset[int] | None:
        return frozenset(self._records[key][1]) if key in self._records else None

    def keys(self) -> Iterator[ImageKey]:
        yield from list(self._records)

    def scan(self, interest: int) -> Iterator[tuple[ImageKey, Planes]]:
        for key, (_, maps) in list(self._records.items()):
            if interest in maps:
                yield key, maps[interest]

    def drop_interest(self, interest: int) -> int:
        return sum(maps.pop(interest, None) is not None for _, maps in self._records.values())

    def delete(self, keys: Iterable[ImageKey]) -> int:
        return sum(self._records.pop(key, None) is not None for key in keys)

    def stats(self) -> StoreStats:
        maps: dict[int, int] = {}
        map_bytes: dict[int, int] = {}
        for _, held in self._records.values():
            for interest, planes in held.items():
                maps[interest] = maps.get(interest, 0) + 1
                map_bytes[interest] = map_bytes.get(interest, 0) + planes.values.nbytes
        base_bytes = sum(base.values.nbytes for base, _ in self._records.values())
        return StoreStats(len(self._records), maps, base_bytes, map_bytes, 0, 0)

    def check(self) -> Iterator[Problem]:
        yield from ()

    def close(self) -> None:
        self._records.clear()
