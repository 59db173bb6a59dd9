"""How to lay the records of an image out in LMDB: what decision 0002 rests on.

    python benchmarks/layouts.py [--images 10000] [--reads 5000]

Every layout keeps the same planes of the same images under 50 interests, and gives a look-up of three
interests to the same arithmetic. Checksums and the Python objects of a whole look-up are left out, for all
alike.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _report
import lmdb
import numpy as np
import zstandard
from _payload import INTERESTS, Payload, key
from texcat.catalogue import CHANNELS, ChannelSchema, Interest, codec
from texcat.catalogue.store import GROUP, part_of, slot_of, stack
from texcat.catalogue.types import Planes
from texcat.retrieval import Match, Matches
from texcat.retrieval.kernels import Assembler

TAG = bytes(codec.TAG_BYTES)
ALL = ChannelSchema(CHANNELS)
COMPRESS, DECOMPRESS = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()


class Layout:
    """Records under keys; `parts` says which maps share a record."""

    def __init__(
        self, name: str, folder: Path, group: int, zstd_base: bool = False, zstd_maps: bool = False
    ) -> None:
        self.name, self.group, self.zstd_base, self.zstd_maps = name, group, zstd_base, zstd_maps
        self.path = folder / "layout.lmdb"
        self.env = lmdb.open(str(self.path), subdir=False, map_size=1 << 33, readahead=False, lib_version=0)

    def part(self, interest: int) -> int:
        """Record of an interest's map: 0, that of the base itself, when all of an image is one value."""
        return 0 if self.group == 0 else 1 + (interest - 1) // self.group

    def pack(self, part: int, value: bytes) -> bytes:
        """Value as it is stored."""
        return COMPRESS.compress(value) if (self.zstd_base if part == 0 else self.zstd_maps) else value

    def unpack(self, part: int, value: bytes) -> bytes:
        """The inverse of `pack`."""
        return DECOMPRESS.decompress(value) if (self.zstd_base if part == 0 else self.zstd_maps) else value

    def values(self, payload: Payload, number: int) -> dict[int, bytes]:
        """All of an image: values by part."""
        record = payload.record(number)
        assert record.base is not None
        base = codec.encode(range(len(record.base.values)), record.base, key(number), 0, TAG)
        if self.group == 0:
            rest = b"".join(_encode(record.maps, part, number) for part in range(1, part_of(INTERESTS) + 1))
            return {0: self.pack(0, base + rest)}
        parts = {0: self.pack(0, base)}
        for part in sorted({self.part(i) for i in record.maps}):
            maps = {i: m for i, m in record.maps.items() if self.part(i) == part}
            parts[part] = self.pack(part, _encode(maps, None, number, self.group))
        return parts

    def write(self, payload: Payload, images: int) -> None:
        """Fill the file."""
        for start in range(0, images, 500):
            with self.env.begin(write=True) as txn:
                for number in range(start, min(start + 500, images)):
                    for part, value in self.values(payload, number).items():
                        txn.put(_name(number, part), value)

    def fetch(self, number: int, parts: list[int]) -> bytes:
        """What a look-up reads, ready for the arithmetic."""
        with self.env.begin(buffers=True) as txn:
            if self.group == 0:
                return bytes(self.unpack(0, txn.get(_name(number, 0))))  # it must not be used after
            return b"".join([self.unpack(part, txn.get(_name(number, part))) for part in (0, *parts)])

    def change(self, images: int, edit: Callable[[int, bytes | None], bytes | None], part: int) -> None:
        """Rewrite one part of every image, as adding or removing an interest does."""
        for start in range(0, images, 500):
            with self.env.begin(write=True) as txn:
                for number in range(start, min(start + 500, images)):
                    old = txn.get(_name(number, part))
                    new = edit(number, None if old is None else self.unpack(part, old))
                    if new is None:
                        txn.delete(_name(number, part))
                    else:
                        txn.put(_name(number, part), self.pack(part, new))

    def scan(self, images: int, interest: int) -> Iterator[bytes]:
        """The record with one interest's map, of every image."""
        part = self.part(interest)
        with self.env.begin() as txn:
            for number in range(images):
                yield self.unpack(part, txn.get(_name(number, part)))


def main() -> None:
    """Run all layouts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--reads", type=int, default=5_000)
    given = parser.parse_args()
    payload = Payload(16)
    rows = []
    for name, options in (
        ("a record a map, zstd", {"group": 1, "zstd_base": True, "zstd_maps": True}),
        ("a record a map", {"group": 1}),
        ("one value an image", {"group": 0}),
        ("base, and all maps in one record", {"group": 1 << 16}),
        ("base, and groups of 15", {"group": GROUP}),
        ("the same, base with zstd", {"group": GROUP, "zstd_base": True}),
    ):
        folder = Path(tempfile.mkdtemp())
        try:
            rows.append(measure(Layout(name, folder, **options), payload, given.images, given.reads))
        finally:
            shutil.rmtree(folder)
    columns = (
        "layout",
        "MB",
        "read and blend, p50 / p99 us",
        "add an interest, s",
        "remove one, s",
        "read one, s",
    )
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    for row in rows:
        figures = (f"{row['mb']:.0f}", f"{row['p50']:.1f} / {row['p99']:.1f}")
        lines.append(
            " | ".join((row["layout"], *figures, *(f"{row[n]:.2f}" for n in ("add", "remove", "scan"))))
        )
    table = "\n".join(f"| {line} |" for line in lines)
    note = f"{given.images:,} images x {INTERESTS} interests, maps of 16x16; {given.reads:,} reads of three."
    table = f"{note}\n\n{table}"
    _report.save("layouts", {"rows": rows}, table)


def measure(layout: Layout, payload: Payload, images: int, reads: int) -> dict[str, Any]:
    """All figures of one layout."""
    layout.write(payload, images)
    layout.env.sync()
    size = layout.path.stat().st_blocks * 512 / 1e6
    rng = np.random.default_rng(1)
    assembler = Assembler(ALL, ALL, 16)
    times = []
    for number in rng.integers(0, images, reads).tolist():
        ids = (rng.choice(INTERESTS, 3, replace=False) + 1).tolist()
        matches = Matches(Match(Interest(i, str(i)), 1.0, 1 / 3) for i in ids)
        if layout.group == 1:
            matches.which[:], matches.slots[:] = np.arange(3), 0
        elif layout.group > GROUP:
            matches.which[:], matches.slots[:] = 0, np.array(ids) - 1
        elif layout.group == 0:
            matches.which[:] = [part_of(i) - 1 for i in ids]
        parts = list(dict.fromkeys(layout.part(i) for i in ids))
        matches.parts = tuple(range(4)) if layout.group == 0 else tuple(parts)
        started = time.perf_counter_ns()
        *_, lacking = assembler.assemble(layout.fetch(number, parts), matches)
        times.append(time.perf_counter_ns() - started)
        assert not len(lacking)
    new = INTERESTS + 1
    started = time.perf_counter()
    layout.change(images, lambda number, old: _with(payload, layout, number, old, new), layout.part(new))
    added = time.perf_counter() - started
    started = time.perf_counter()
    layout.change(images, lambda number, old: _without(layout, old), layout.part(new))
    removed = time.perf_counter() - started
    started = time.perf_counter()
    for record in layout.scan(images, 7):
        assert record
    scanned = time.perf_counter() - started
    return {
        "layout": layout.name,
        "mb": size,
        "p50": float(np.percentile(times, 50)) / 1e3,
        "p99": float(np.percentile(times, 99)) / 1e3,
        "add": added,
        "remove": removed,
        "scan": scanned,
    }


def _encode(maps: dict[int, Planes], part: int | None, number: int, group: int = GROUP) -> bytes:
    chosen = {i: m for i, m in sorted(maps.items()) if part is None or part_of(i) == part}
    slots = [slot_of(i) if group == GROUP else (i - 1) % group for i in chosen]
    return codec.encode(slots, stack(list(chosen.values())), key(number), part or 1, TAG)


def _name(number: int, part: int) -> bytes:
    return key(number) + part.to_bytes(4, "big")


def _with(payload: Payload, layout: Layout, number: int, old: bytes | None, interest: int) -> bytes:
    """A value with one more map, spliced into its table."""
    plane = payload.map(number, interest)
    if layout.group == 1 or old is None:
        return codec.encode([0], plane, key(number), 1, TAG)
    if layout.group == 0:  # the last record of the value grows
        start = len(old) - codec.HEADER_BYTES - 5 * (codec.PLANE_BYTES + 256)
        return old[:start] + _with_in_record(old[start:], plane, number, slot_of(interest))
    slot = interest - 1 if layout.group > GROUP else slot_of(interest)
    return _with_in_record(old, plane, number, slot)


def _with_in_record(record: bytes, plane: Planes, number: int, slot: int) -> bytes:
    slots, planes = codec.decode(record)
    return codec.encode([*slots.tolist(), slot], stack([planes, plane]), key(number), 1, TAG)


def _without(layout: Layout, old: bytes | None) -> bytes | None:
    """A value without its last map."""
    assert old is not None
    if layout.group == 1:
        return None
    start = len(old) - codec.HEADER_BYTES - 6 * (codec.PLANE_BYTES + 256) if layout.group == 0 else 0
    slots, planes = codec.decode(old[start:])
    rest = Planes(planes.values[:-1], planes.low[:-1], planes.high[:-1])
    return old[:start] + codec.encode(slots[:-1].tolist(), rest, bytes(16), 1, TAG)


if __name__ == "__main__":
    main()
