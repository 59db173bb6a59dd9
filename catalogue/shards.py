"""The texture store on disk: LMDB files, one writer at a time, any number of readers.

The first four bytes of an image key choose its shard. In a shard, the key of an entry is the image key
followed by a big-endian uint32, the part: so all that one look-up reads lies in neighbouring entries, and
adding an interest to an image rewrites one of them. The code of an image is its last entry.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from . import codec
from .errors import (
    FingerprintMismatchError,
    RecordCorruptError,
    RecordMissingError,
    StoreError,
    TexcatError,
)
from .lmdb_file import Entry, LmdbFile, Pages, Transaction
from .store import (
    GROUP,
    Buffer,
    Problem,
    StoreStats,
    interest_at,
    part_of,
    single,
    slot_of,
    together,
)
from .types import KEY_BYTES, ImageKey, InterestMaps, Planes, TextureRecord

Out = TypeVar("Out")
Given = TypeVarTuple("Given")

CHUNK = 512
"""Entries that a scan reads in one transaction: long ones would keep freed pages from being used again."""

_PART = struct.Struct(">I")
_BASE = _PART.pack(0)
_CODE = _PART.pack(codec.CODE_PART)
_BEHIND = _CODE + b"\0"
_SHARD = struct.Struct(">I")
_suffix = lru_cache(maxsize=4096)(_PART.pack)
_log = logging.getLogger(__name__)


class LmdbTextureStore:
    """A `TextureStore` in a folder of LMDB files.

    Args:
        folder: holds one file a shard; made when missing and not `read_only`.
        shards: how many; fixed for the life of the folder.
        fingerprint: of the encoder whose records these are; a record of another is an error.
        codebook: digest of the codebook that codes are made with; a code of another is an error.
        read_only: refuse changes. Works on a file system that cannot be written.
    """

    def __init__(
        self, folder: Path, *, shards: int, fingerprint: str, codebook: str = "", read_only: bool = False
    ) -> None:
        self.folder = folder
        self._tag = codec.fingerprint_tag(fingerprint)
        self._stamp = codec.stamp(self._tag)
        self._code_tag = codec.fingerprint_tag(codebook)
        self._code_stamp = codec.stamp(self._code_tag)
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
        self._files: list[LmdbFile] = []
        try:
            for number in range(shards):
                self._files.append(LmdbFile(folder, f"{number:04}", read_only))
        except BaseException:
            self.close()
            raise

    def write(self, records: Iterable[TextureRecord]) -> None:
        batch = list(records)
        based = {record.key for record in batch if record.base is not None}
        others = [record.key for record in batch if record.key not in based]
        sound = {key for key, _ in self.lacking(others, ())}
        for key in others:
            if key not in sound:
                raise RecordMissingError(str(key))
        changes: dict[LmdbFile, list[TextureRecord]] = {}
        for record in batch:
            changes.setdefault(self._file(record.key), []).append(record)
        for file, chosen in changes.items():
            file.change(self._putting(chosen))

    def read(self, key: ImageKey, interests: Collection[int] | None = None) -> TextureRecord:
        file = self._file(key)
        with file.view() as txn:
            base = txn.get(key + _BASE)
            parts = _parts(txn, key) if interests is None else sorted({part_of(i) for i in interests})
            entries = {part: txn.get(key + _PART.pack(part)) for part in parts}
        if base is None:
            raise RecordMissingError(str(key))
        planes = self._decode(key, 0, base)[1]
        maps = {}
        for part, value in entries.items():
            if value is not None:
                for interest, plane in self._maps(key, part, value).items():
                    if interests is None or interest in interests:
                        maps[interest] = plane
        return TextureRecord(key, planes, maps)

    def fetch(self, key: ImageKey, parts: Sequence[int]) -> bytes:
        wanted = (0, *parts)

        def sound(records: list[Buffer]) -> bytes:
            if records[0] is codec.EMPTY:
                raise RecordMissingError(str(key))
            codec.check(records, key, wanted, self._stamp)
            return b"".join(records)

        return self._file(key).use([key + _suffix(part) for part in wanted], codec.EMPTY, sound)

    def look(
        self, key: ImageKey, function: Callable[[Pages, int, ImageKey, bytes, *Given], Out], *given: *Given
    ) -> Out:
        """What `function` makes of the pages of the file that holds an image, as `LmdbFile.look` gives them.

        It is given the transaction, the key, and what sound records have after their checksum
        (`codec.stamp`), and then what is `given`. It looks for the records by itself, and checks them.
        """
        return self._file(key).look(function, key, self._stamp, *given)

    def held(self, key: ImageKey) -> frozenset[int] | None:
        with self._file(key).view() as txn:
            entries = parts_of_image(txn, key)
        interests: list[int] = []
        based = False
        for part, value in entries:
            if part == codec.CODE_PART:
                continue
            try:
                slots, _ = self._decode(key, part, value)
            except TexcatError as error:
                _log.warning("%s", error)
                continue
            if part == 0:
                based = True
            else:
                interests.extend(interest_at(part, slot) for slot in slots.tolist())
        return frozenset(interests) if based else None

    def lacking(
        self, keys: Iterable[ImageKey], interests: Collection[int]
    ) -> Iterator[tuple[ImageKey, frozenset[int]]]:
        wanted: dict[int, list[int]] = {}
        for interest in interests:
            wanted.setdefault(part_of(interest), []).append(slot_of(interest))
        suffixes = [_suffix(part) for part in wanted]
        for file, found in self._by_file(keys):
            for chunk in _chunks(found):
                # Of images without a base, as all are at first, nothing more is looked up.
                based = file.use([key + _BASE for key in chunk], codec.EMPTY, self._based(chunk))
                names = [key + suffix for key in based for suffix in suffixes]
                if based:
                    yield from file.use(names, codec.EMPTY, self._lacking(based, wanted))

    def code(self, key: ImageKey) -> bytes | None:
        def sound(records: list[Buffer]) -> bytes | None:
            (value,) = records
            return None if value is codec.EMPTY else self._decode_code(key, value)

        return self._file(key).use([key + _CODE], codec.EMPTY, sound)

    def has_code(self, key: ImageKey) -> bool:
        with self._file(key).view() as txn:
            value = txn.get(key + _CODE)
        return self._sound_code(key, value) is not None

    def codes(self, keys: Iterable[ImageKey] | None = None) -> Iterator[tuple[ImageKey, bytes]]:
        chunks: Iterator[tuple[LmdbFile, Sequence[ImageKey]]]
        if keys is None:
            chunks = ((file, chunk) for file in self._files for chunk in images(file))
        else:
            chunks = ((file, chunk) for file, found in self._by_file(keys) for chunk in _chunks(found))
        for file, chunk in chunks:
            with file.view() as txn:
                values = [txn.get(key + _CODE) for key in chunk]
            for key, value in zip(chunk, values, strict=True):
                code = self._sound_code(key, value)
                if code is not None:
                    yield key, code

    def keys(self) -> Iterator[ImageKey]:
        for file in self._files:
            for chunk in images(file):
                yield from chunk

    def scan(self, interest: int) -> Iterator[tuple[ImageKey, Planes]]:
        part = part_of(interest)
        suffix, slot = _PART.pack(part), slot_of(interest)
        for file in self._files:
            for chunk in images(file):
                with file.view() as txn:
                    values = [txn.get(key + suffix) for key in chunk]
                for key, value in zip(chunk, values, strict=True):
                    if value is None:
                        continue
                    slots, planes = self._decode(key, part, value)
                    (place,) = (slots == slot).nonzero()
                    if len(place):
                        yield key, single(planes, int(place[0]))

    def drop_interest(self, interest: int) -> int:
        part = part_of(interest)
        return sum(
            file.change(self._dropping(chunk, part, interest))
            for file in self._files
            for chunk in images(file)
        )

    def delete(self, keys: Iterable[ImageKey]) -> int:
        return sum(file.change(_deleting(chosen)) for file, chosen in self._by_file(keys))

    def stats(self) -> StoreStats:
        images = base_bytes = codes = code_bytes = 0
        maps: dict[int, int] = {}
        map_bytes: dict[int, int] = {}
        for file in self._files:
            for chunk in _entries(file):
                for key, value in chunk:
                    if len(key) != KEY_BYTES + _PART.size:
                        continue  # `check` reports it
                    (part,) = _PART.unpack(key[KEY_BYTES:])
                    if part == 0:
                        images += 1
                        base_bytes += len(value)
                        continue
                    if part == codec.CODE_PART:
                        codes += 1
                        code_bytes += len(value)
                        continue
                    try:
                        slots, _ = self._decode(ImageKey(key[:KEY_BYTES]), part, value)
                    except TexcatError:
                        continue  # `check` reports it, too
                    for slot in slots.tolist():
                        interest = interest_at(part, slot)
                        maps[interest] = maps.get(interest, 0) + 1
                        map_bytes[interest] = map_bytes.get(interest, 0) + len(value) // len(slots)
        sizes = [file.sizes() for file in self._files]
        return StoreStats(
            images=images,
            maps=maps,
            base_bytes=base_bytes,
            map_bytes=map_bytes,
            codes=codes,
            code_bytes=code_bytes,
            file_bytes=sum(size.file_bytes for size in sizes),
            free_bytes=sum(size.free_bytes for size in sizes),
            readers=tuple(reader for size in sizes for reader in size.readers),
        )

    def check(self) -> Iterator[Problem]:
        for file in self._files:
            try:
                file.check_pages()  # first: LMDB may not survive reading a damaged page
                for chunk in _entries(file):
                    for key, value in chunk:
                        yield from self._check_entry(file, key, value)
            except StoreError as error:
                yield Problem(os.fspath(file.path), str(error))

    def discard(self, problems: Iterable[Problem]) -> int:
        """Remove the entries that `check` found problems with; how many there were."""
        doomed: dict[str, set[bytes]] = {}
        for problem in problems:
            if problem.entry is not None:
                doomed.setdefault(problem.where.partition("/")[0], set()).add(problem.entry)
        return sum(
            file.change(_deleting_entries(doomed[file.name])) for file in self._files if file.name in doomed
        )

    def set_aside(self, problems: Iterable[Problem]) -> list[Path]:
        """Put an empty shard in the place of each that `check` could not read; where those lie now."""
        damaged = {problem.where for problem in problems if problem.entry is None}
        return [file.set_aside() for file in self._files if os.fspath(file.path) in damaged]

    def compact(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Rewrite every shard without its free pages; how many bytes that returned to the disk.

        Readers that are open go on with the old file until they take notice, within a second. When it is
        interrupted, each shard is either as it was or compacted.

        Args:
            on_progress: called after each shard, with how many are done, of how many.
        """
        returned = 0
        for done, file in enumerate(self._files, 1):
            returned += file.compact()
            on_progress(done, len(self._files))
        return returned

    def copy(self, folder: Path) -> None:
        """Copy every shard, each as of one moment, without free pages, into the empty folder `folder`."""
        for file in self._files:
            file.copy(folder)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _lacking(
        self, keys: Sequence[ImageKey], wanted: Mapping[int, Collection[int]]
    ) -> Callable[[list[Buffer]], list[tuple[ImageKey, frozenset[int]]]]:
        """From the records of each image: which slots are not held of those `wanted` by part."""

        def look(records: list[Buffer]) -> list[tuple[ImageKey, frozenset[int]]]:
            found = []
            each = iter(records)
            for key in keys:
                absent: list[int] = []
                for part, slots in wanted.items():
                    group = next(each)
                    held = codec.decode_slots(group) if self._sound(key, part, group) else ()
                    absent += [interest_at(part, slot) for slot in slots if slot not in held]
                found.append((key, frozenset(absent)))
            return found

        return look

    def _based(self, keys: Sequence[ImageKey]) -> Callable[[list[Buffer]], list[ImageKey]]:
        """From the base of each image: those of `keys` that have a sound one."""
        return lambda records: [
            key for key, record in zip(keys, records, strict=True) if self._sound(key, 0, record)
        ]

    def _putting(self, records: Sequence[TextureRecord]) -> Callable[[Transaction], int]:
        def action(txn: Transaction) -> int:
            for record in records:
                if record.base is not None:
                    slots = range(len(record.base.values))
                    value = codec.encode(slots, record.base, record.key, 0, self._tag)
                    txn.put(record.key + _BASE, value)
                if record.maps:
                    maps = together(record.maps)
                    for part in dict.fromkeys(map(part_of, maps.ids)):
                        group = maps.between(interest_at(part, 0), interest_at(part, GROUP - 1))
                        self._add_maps(txn, record.key, part, group)
                if record.code is not None:
                    value = codec.encode_code(record.code, record.key, self._code_tag)
                    txn.put(record.key + _CODE, value)
            return len(records)

        return action

    def _dropping(self, keys: Sequence[ImageKey], part: int, interest: int) -> Callable[[Transaction], int]:
        def action(txn: Transaction) -> int:
            dropped = 0
            for key in keys:
                maps = self._sound_maps(key, part, txn.get(key + _PART.pack(part)))
                if maps.pop(interest, None) is not None:
                    if maps:
                        self._put_maps(txn, key, part, together(maps))
                    else:
                        txn.delete(key + _PART.pack(part))
                    dropped += 1
            return dropped

        return action

    def _add_maps(self, txn: Transaction, key: ImageKey, part: int, maps: InterestMaps) -> None:
        name = key + _suffix(part)
        value = txn.get(name)
        if value is not None and self._sound(key, part, value, "; its maps are dropped"):
            for interest, plane in maps.items():
                value = codec.splice(value, slot_of(interest), plane, key, part)
            txn.put(name, value)
        else:
            self._put_maps(txn, key, part, maps)

    def _put_maps(self, txn: Transaction, key: ImageKey, part: int, maps: InterestMaps) -> None:
        first = interest_at(part, 0)
        slots = [interest - first for interest in maps.ids]
        txn.put(key + _suffix(part), codec.encode(slots, maps.planes, key, part, self._tag))

    def _sound_maps(self, key: ImageKey, part: int, value: bytes | None) -> dict[int, Planes]:
        """Maps in a part that is about to be rewritten; none, with a warning, when it is damaged."""
        if value is None:
            return {}
        try:
            return self._maps(key, part, value)
        except TexcatError as error:
            _log.warning("%s; its maps are dropped", error)
            return {}

    def _maps(self, key: ImageKey, part: int, value: bytes) -> dict[int, Planes]:
        slots, planes = self._decode(key, part, value)
        return {interest_at(part, slot): single(planes, place) for place, slot in enumerate(slots.tolist())}

    def _decode(self, key: ImageKey, part: int, value: bytes) -> tuple[codec.Slots, Planes]:
        codec.check([value], key, [part], self._stamp)
        return codec.decode(value)

    def _sound(self, key: ImageKey, part: int, value: Buffer, outcome: str = "") -> bool:
        """Whether a record is there, and sound; if not sound, that is logged, with the `outcome`."""
        if value is codec.EMPTY:
            return False
        try:
            codec.check([value], key, [part], self._stamp)
        except TexcatError as error:
            _log.warning("%s%s", error, outcome)
            return False
        return True

    def _sound_code(self, key: ImageKey, value: bytes | None) -> bytes | None:
        """The code in a record; none, with a warning, when it is damaged or of another codebook."""
        if value is None:
            return None
        try:
            return self._decode_code(key, value)
        except TexcatError as error:
            _log.warning("%s", error)
            return None

    def _decode_code(self, key: ImageKey, value: Buffer) -> bytes:
        codec.check([value], key, [codec.CODE_PART], self._code_stamp)
        return codec.decode_code(value)

    def _check_entry(self, file: LmdbFile, key: bytes, value: bytes) -> Iterator[Problem]:
        where = f"{file.name}/{key.hex()}"
        if len(key) != KEY_BYTES + _PART.size:
            reason = f"its key has {len(key)} bytes, expected {KEY_BYTES + _PART.size}"
            yield Problem(where, reason, entry=key)
            return
        image, (part,) = ImageKey(key[:KEY_BYTES]), _PART.unpack(key[KEY_BYTES:])
        if self._file(image) is not file:
            yield Problem(where, "it is in the wrong shard", image, key)
        try:
            if part == codec.CODE_PART:
                self._decode_code(image, value)
            else:
                self._decode(image, part, value)
        except TexcatError as error:
            yield Problem(where, str(error), image, key, isinstance(error, FingerprintMismatchError))
        if part != 0:
            with file.view() as txn:
                if txn.get(image + _BASE) is None:
                    yield Problem(where, "it belongs to an image that has no base texture", image, key)

    def _by_file(self, keys: Iterable[ImageKey]) -> Iterable[tuple[LmdbFile, list[ImageKey]]]:
        """`keys`, each once, by the file that holds them."""
        found: dict[LmdbFile, list[ImageKey]] = {}
        for key in dict.fromkeys(keys):
            found.setdefault(self._file(key), []).append(key)
        return found.items()

    def _file(self, key: ImageKey) -> LmdbFile:
        number: int = _SHARD.unpack_from(key)[0]
        return self._files[number % len(self._files)]


def _chunks(keys: Sequence[ImageKey]) -> Iterator[Sequence[ImageKey]]:
    return (keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK))


def _parts(txn: Transaction, key: ImageKey) -> list[int]:
    """Parts of an image that hold maps."""
    return [part for part, _ in parts_of_image(txn, key) if part not in (0, codec.CODE_PART)]


def parts_of_image(txn: Transaction, key: ImageKey) -> list[tuple[int, bytes]]:
    """Every part of an image, with its record."""
    found = []
    cursor = txn.cursor()
    more = cursor.set_range(key)
    while more and (name := cursor.key())[:KEY_BYTES] == key:
        if len(name) == KEY_BYTES + _PART.size:  # `check` reports others
            found.append((_PART.unpack(name[KEY_BYTES:])[0], cursor.value()))
        more = cursor.next()
    return found


def _deleting(keys: Sequence[ImageKey]) -> Callable[[Transaction], int]:
    def action(txn: Transaction) -> int:
        gone = 0
        for key in keys:
            gone += txn.get(key + _BASE) is not None
            for part, _ in parts_of_image(txn, key):
                txn.delete(key + _PART.pack(part))
        return gone

    return action


def _deleting_entries(names: Collection[bytes]) -> Callable[[Transaction], int]:
    return lambda txn: sum(txn.delete(name) for name in names)


def images(file: LmdbFile) -> Iterator[list[ImageKey]]:
    """Keys of the images of a shard, a chunk a transaction."""
    start: bytes = b"\0"
    more = True
    while more:
        chunk: list[ImageKey] = []
        with file.view() as txn:
            cursor = txn.cursor()
            more = cursor.set_range(start)
            while more and len(chunk) < CHUNK:
                name = cursor.key()
                _require_order(file, start, name)
                if name[KEY_BYTES:] == _BASE:
                    chunk.append(ImageKey(name[:KEY_BYTES]))
                start = name[:KEY_BYTES] + _BEHIND
                more = cursor.set_range(start)
        if chunk:
            yield chunk


def _entries(file: LmdbFile) -> Iterator[list[Entry]]:
    """All entries of a shard, a chunk a transaction."""
    start: bytes = b"\0"
    while True:
        with file.view() as txn:
            cursor = txn.cursor()
            chunk: list[Entry] = []
            more = cursor.set_range(start)
            while more and len(chunk) < CHUNK:
                name = cursor.key()
                _require_order(file, start, name)
                chunk.append((name, cursor.value()))
                start = name + b"\0"
                more = cursor.next()
        if not chunk:
            return
        yield chunk


def _require_order(file: LmdbFile, start: bytes, name: bytes) -> None:
    """Entries ascend. In a damaged file they may not, and a scan would never end."""
    if name < start:
        raise RecordCorruptError(f"{file.path}, entry {name.hex()},", f"one from {start.hex()}", name.hex())
