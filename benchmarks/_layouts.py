"""Other stores for the same bytes and the same look-ups, each in the layout that suits it best.

An image's bytes are those that `TextureStore.fetch` gives for all its parts: its base record (15 planes of
32x32), and four records of maps of 16x16 (15, 15, 15 and 5 of the 50 interests). Nothing is compressed:
general compression costs more time than these look-ups, and saves little of such bytes.

- `Records`: one value an image, all records one after the other. One read a look-up; an added interest
  rewrites every value.
- `Parts`: one value a record, under image key and part, as in texcat. A look-up reads the base and up to
  three more; an added interest rewrites the last, small record of each image.
- `Columns`: a column for the base, and one for each interest, one row an image. A look-up reads four columns
  at one row; an added interest is one more column.

Below them, an engine (`_engines`) says how one library holds values or columns. A value starts with its
XXH3-64, which a look-up checks, as texcat does, unless the engine checks what it reads itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import xxhash
from _engines import ColumnEngine, Engine, Value, batches
from _payload import INTERESTS, Payload, fill, key
from numpy.typing import NDArray
from texcat.catalogue import Catalogue, ChannelSchema, ImageKey, TextureRecord, codec
from texcat.catalogue.derived import presence
from texcat.catalogue.quantise import dequantise
from texcat.catalogue.store import part_of, slot_of, stack
from texcat.catalogue.types import GRID, Planes
from texcat.retrieval import Matches, Retriever, relevance
from texcat.retrieval.blending import blend, texture_planes
from texcat.retrieval.kernels import Assembler

SIDE = 16
SCHEMA = ChannelSchema.parse("default")
PARTS = range(part_of(INTERESTS) + 1)
SEAL_BYTES = 8
BASE_BYTES = codec.HEADER_BYTES + len(SCHEMA.stored) * (codec.PLANE_BYTES + GRID * GRID)
Texture = tuple[NDArray[np.float32], NDArray[np.float32]]
"""float32 [27, 32, 32] and relevance [32, 32]."""

Scan = tuple[NDArray[np.uint8], NDArray[np.float32]]
"""One interest in all images, in their order: uint8 [N, 16, 16]; low and high, float32 [N, 2]."""


class Images:
    """The records of images 0 to `count` - 1, as bytes."""

    def __init__(self, payload: Payload, count: int) -> None:
        self.payload = payload
        self.keys = [key(number) for number in range(count)]
        self._records = [_records(payload.record(number)) for number in range(len(payload.bases))]

    def records(self, number: int) -> list[bytes]:
        """Base record of an image, then those of its maps."""
        return self._records[number % len(self._records)]

    def map(self, number: int, interest: int) -> Planes:
        """Map [1, 16, 16] of an interest (from 1 on)."""
        return self.payload.map(number, interest - 1)


class Store(Protocol):
    """What is compared."""

    layout: str

    def write(self, images: Images) -> None:
        """Keep every image. What is written is handed to the operating system."""
        ...

    def prepare(self, matches: Matches) -> Matches:
        """`matches` as `lookup` wants them."""
        ...

    def fetch(self, image: ImageKey, matches: Matches) -> bytes | memoryview:
        """Sound records of an image, its base first, in which the maps of `matches` are."""
        ...

    def lookup(self, image: ImageKey, matches: Matches) -> Texture:
        """Blend the maps of `matches` in an image, and put its texture together."""
        ...

    def scan(self, interest: int) -> Scan:
        """Map of one interest in every image."""
        ...

    def add(self, interest: int, images: Images) -> None:
        """Keep the maps of one more interest for every image."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Records:
    """One value an image."""

    layout = "value an image"

    def __init__(self, engine: Engine, assembler: Assembler) -> None:
        self._engine = engine
        self._assembler = assembler
        self._checked = not engine.checks

    def write(self, images: Images) -> None:
        self._keys = images.keys
        self._starts = [0, *accumulate(len(record) for record in images.records(0))]
        values = (seal(b"".join(images.records(number))) for number in range(len(images.keys)))
        self._engine.put(zip(images.keys, values, strict=True))

    def prepare(self, matches: Matches) -> Matches:
        arranged = Matches(matches)
        arranged.parts = tuple(PARTS[1:])
        arranged.which[:] = [part_of(match.interest.id) - 1 for match in matches]
        return arranged

    def fetch(self, image: ImageKey, matches: Matches) -> memoryview:
        return unseal(self._engine.get(image), self._checked)

    def lookup(self, image: ImageKey, matches: Matches) -> Texture:
        return assembled(self._assembler, self.fetch(image, matches), matches)

    def scan(self, interest: int) -> Scan:
        part = part_of(interest)
        place = slice(self._starts[part], self._starts[part + 1] if part < PARTS[-1] else None)
        records = (unseal(value, self._checked)[place] for value in self._values())
        return _gather(records, interest, len(self._keys))

    def add(self, interest: int, images: Images) -> None:
        start = self._starts[PARTS[-1]]

        def longer() -> Iterator[tuple[bytes, bytes]]:
            for number, value in enumerate(self._values()):
                records = unseal(value, self._checked)
                last = extend(records[start:], interest, images.map(number, interest), images.keys[number])
                yield images.keys[number], seal(b"".join((records[:start], last)))

        self._engine.put(longer())

    def close(self) -> None:
        self._engine.close()

    def _values(self) -> Iterator[Value]:
        for chunk in batches(self._keys, 100):
            yield from self._engine.get_many(chunk)


class Parts:
    """One value a record, under image key and part."""

    layout = "value a part"

    def __init__(self, engine: Engine, assembler: Assembler) -> None:
        self._engine = engine
        self._assembler = assembler
        self._checked = not engine.checks

    def write(self, images: Images) -> None:
        self._keys = images.keys
        values = (
            (image + bytes([part]), seal(record))
            for number, image in enumerate(images.keys)
            for part, record in enumerate(images.records(number))
        )
        self._engine.put(values)

    def prepare(self, matches: Matches) -> Matches:
        return matches

    def fetch(self, image: ImageKey, matches: Matches) -> bytes:
        values = self._engine.get_many([image + bytes([part]) for part in (0, *matches.parts)])
        return b"".join([unseal(value, self._checked) for value in values])

    def lookup(self, image: ImageKey, matches: Matches) -> Texture:
        return assembled(self._assembler, self.fetch(image, matches), matches)

    def scan(self, interest: int) -> Scan:
        return _gather(self._records(part_of(interest)), interest, len(self._keys))

    def add(self, interest: int, images: Images) -> None:
        part = part_of(interest)
        longer = (
            (
                images.keys[number] + bytes([part]),
                seal(extend(record, interest, images.map(number, interest), images.keys[number])),
            )
            for number, record in enumerate(self._records(part))
        )
        self._engine.put(longer)

    def close(self) -> None:
        self._engine.close()

    def _records(self, part: int) -> Iterator[memoryview]:
        for chunk in batches(self._keys, 100):
            for value in self._engine.get_many([image + bytes([part]) for image in chunk]):
                yield unseal(value, self._checked)


class Columns:
    """A column for the base, and one an interest: low and high (float32), then values, behind their seal."""

    layout = "column an interest"

    _levels_end = SEAL_BYTES + 8
    _header = struct.Struct("<18x3H")

    def __init__(self, engine: ColumnEngine, assembler: Assembler) -> None:
        self._engine = engine
        self._assembler = assembler

    def write(self, images: Images) -> None:
        self._rows = {image: row for row, image in enumerate(images.keys)}
        bases = [seal(images.records(number)[0]) for number in range(len(images.keys))]
        maps = {f"{i}": self._column(i, images) for i in range(1, INTERESTS + 1)}
        self._engine.write({"base": np.frombuffer(b"".join(bases), np.uint8).reshape(len(bases), -1), **maps})

    def prepare(self, matches: Matches) -> Matches:
        arranged = Matches(matches)
        arranged.parts = (1,)
        arranged.which[:], arranged.slots[:] = 0, np.arange(len(matches))
        return arranged

    def fetch(self, image: ImageKey, matches: Matches) -> bytes:
        names = ["base", *(f"{match.interest.id}" for match in matches)]
        base, *maps = [unseal(value, True) for value in self._engine.row(self._rows[image], names)]
        # One record of just these maps, as `codec` lays it out.
        count = len(maps)
        return b"".join(
            (
                base,
                self._header.pack(count, SIDE, SIDE),
                *(plane[:4] for plane in maps),
                *(plane[4:8] for plane in maps),
                np.arange(count, dtype="<u2").tobytes(),
                *(plane[8:] for plane in maps),
            )
        )

    def lookup(self, image: ImageKey, matches: Matches) -> Texture:
        return assembled(self._assembler, self.fetch(image, matches), matches)

    def scan(self, interest: int) -> Scan:
        rows = self._engine.column(f"{interest}")
        for row in rows:
            unseal(row, True)
        values = rows[:, self._levels_end :].reshape(-1, SIDE, SIDE)
        return values, np.ascontiguousarray(rows[:, SEAL_BYTES : self._levels_end]).view(np.float32)

    def add(self, interest: int, images: Images) -> None:
        self._engine.add(f"{interest}", self._column(interest, images))

    def close(self) -> None:
        self._engine.close()

    def _column(self, interest: int, images: Images) -> NDArray[np.uint8]:
        """Sealed rows uint8 [N, 272]."""
        planes = (images.map(number, interest) for number in range(len(images.keys)))
        rows = [seal(p.low.tobytes() + p.high.tobytes() + p.values.tobytes()) for p in planes]
        return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


class Texcat:
    """A catalogue, and `Retriever.lookup`: with its checks, locks and results, as in any use."""

    layout = "value a part"

    def __init__(self, folder: Path, payload: Payload) -> None:
        self._catalogue = Catalogue.create(folder / "catalogue")
        fill(self._catalogue, payload, 0)
        self._retriever = Retriever(self._catalogue, compute=False)

    def write(self, images: Images) -> None:
        self._numbers = {image: number for number, image in enumerate(images.keys)}
        for numbers in batches(range(len(images.keys)), 500):
            self._catalogue.store.write([images.payload.record(number) for number in numbers])

    def prepare(self, matches: Matches) -> Matches:
        return matches

    def fetch(self, image: ImageKey, matches: Matches) -> bytes:
        return self._catalogue.store.fetch(image, matches.parts)

    def lookup(self, image: ImageKey, matches: Matches) -> Texture:
        hit = self._retriever.lookup(image, matches=matches)
        return hit.textures, hit.relevance

    def scan(self, interest: int) -> Scan:
        values = np.empty((len(self._numbers), SIDE, SIDE), np.uint8)
        levels = np.empty((len(self._numbers), 2), np.float32)
        for image, planes in self._catalogue.store.scan(interest):
            number = self._numbers[image]
            values[number] = planes.values[0]
            levels[number] = planes.low[0], planes.high[0]
        return values, levels

    def add(self, interest: int, images: Images) -> None:
        maps = ({interest: images.map(number, interest)} for number in range(len(images.keys)))
        self._catalogue.store.write(TextureRecord(k, None, m) for k, m in zip(images.keys, maps, strict=True))

    def close(self) -> None:
        self._catalogue.close()


def seal(body: bytes) -> bytes:
    """`body` behind its checksum."""
    return xxhash.xxh3_64_digest(body) + body


def unseal(value: Value, check: bool) -> memoryview:
    """The body of a sealed value.

    Raises:
        ValueError: `check` is given, and the body is not what was sealed.
    """
    view = memoryview(value)
    body = view[SEAL_BYTES:]
    if check and xxhash.xxh3_64_digest(body) != view[:SEAL_BYTES]:
        raise ValueError("a value is damaged")
    return body


def assembled(assembler: Assembler, records: bytes | memoryview, matches: Matches) -> Texture:
    """Texture and relevance out of what `Store.fetch` gives."""
    texture, relevance, _ = assembler.assemble(records, matches)
    return texture, relevance


def extend(record: memoryview, interest: int, planes: Planes, image: ImageKey) -> bytes:
    """A record of maps with the map of one more interest, the last of its part."""
    slots, held = codec.decode(bytes(record))
    return _encode([*slots.tolist(), slot_of(interest)], stack([held, planes]), image, part_of(interest))


def _records(record: TextureRecord) -> list[bytes]:
    """Records of an image: base, then each part of its maps."""
    assert record.base is not None
    encoded = [_encode(range(len(record.base.values)), record.base, record.key, 0)]
    for part in PARTS[1:]:
        maps = {slot_of(i): planes for i, planes in record.maps.items() if part_of(i) == part}
        encoded.append(_encode([*maps], stack([*maps.values()]), record.key, part))
    return encoded


def _encode(slots: Sequence[int], planes: Planes, image: ImageKey, part: int) -> bytes:
    return codec.encode(slots, planes, image, part, bytes(codec.TAG_BYTES))


def _gather(records: Iterable[memoryview], interest: int, count: int) -> Scan:
    """Maps of `interest` in `records`, each of which holds the part that it is in."""
    values, levels = np.empty((count, SIDE, SIDE), np.uint8), np.empty((count, 2), np.float32)
    for number, record in enumerate(records):
        slots, planes = codec.decode(bytes(record))
        (place,) = (slots == slot_of(interest)).nonzero()[0]
        values[number] = planes.values[place]
        levels[number] = planes.low[place], planes.high[place]
    return values, levels


def with_numpy(records: bytes | memoryview, matches: Matches) -> Texture:
    """The same as `assembled`, in numpy: what a look-up does without texcat's machine code."""
    content, parts = bytes(records), []
    while content:
        slots, planes = codec.decode(content)
        parts.append((slots, planes))
        content = content[codec.HEADER_BYTES + codec.PLANE_BYTES * len(slots) + planes.values.size :]
    (_, base), *groups = parts
    maps = []
    for which, slot in zip(matches.which.tolist(), matches.slots.tolist(), strict=True):
        slots, planes = groups[which]
        place = slots.tolist().index(slot)
        chosen = slice(place, place + 1)
        maps.append(dequantise(Planes(planes.values[chosen], planes.low[chosen], planes.high[chosen]))[0])
    named = texture_planes(SCHEMA, base, blend(maps, matches, False), calibrated=False)
    texture = np.stack([named[name] for name in SCHEMA.names])
    present = presence(named["similarity"], calibrated=False)
    return texture, relevance(present, named["edge_magnitude"], named["saliency"])
