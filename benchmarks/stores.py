"""texcat's store against others: the same bytes, the same look-ups, the same arithmetic, in one run.

    pip install "texcat[bench]"; apt-get install redis-server
    python benchmarks/stores.py [--images N] [--lookups N]

A look-up goes from an image key and three weighted interests to a texture float32 [27, 32, 32] and a
relevance map. texcat's is the whole of `Retriever.lookup`, with its `Lookup`; another store's is to get the
bytes, check them, and hand them to the same machine code. The bytes alone are timed too, texcat's with
`TextureStore.fetch`. Every store first answers all look-ups once; then they take turns of 500, so that what
else the machine does falls on all alike. After each turn every store must give texcat's answer, bit by bit.
A write ends when the bytes are on the disk (`sync`). 10,000 images take 7 GB in the temporary folder.
"""

from __future__ import annotations

import argparse
import inspect
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

try:
    import _engines as engines
    import _layouts as layouts
    from matplotlib import pyplot
except ModuleNotFoundError as error:
    raise SystemExit(f'{error.name} is missing; install it: pip install "texcat[bench]"') from error

import _report
from _payload import INTERESTS, Payload
from texcat.catalogue import ChannelSchema, ImageKey, Interest
from texcat.retrieval import Match, Matches
from texcat.retrieval.kernels import Assembler

TURN = 500
NUMPY_EVERY = 20
SCANNED, ADDED = 17, INTERESTS + 1
FLOOR = "dict in memory"
"""Not a store: what a look-up costs when its bytes cost nothing."""

Call = tuple[ImageKey, Matches]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Contender:
    """A store in the comparison, and what was measured of it."""

    name: str
    about: str
    store: layouts.Store
    folder: Path
    write_s: float = 0
    disk_mb: float = 0
    lookup_us: list[float] = field(default_factory=list)
    fetch_us: list[float] = field(default_factory=list)
    numpy_us: list[float] = field(default_factory=list)
    scan_s: float = 0
    add_s: float = 0

    def row(self) -> Row:
        """The figures."""
        p50, p99 = np.percentile(self.lookup_us, [50, 99])
        return Row(
            store=self.name,
            layout=self.store.layout,
            about=self.about,
            p50_us=float(p50),
            p99_us=float(p99),
            fetch_us=float(np.median(self.fetch_us)),
            numpy_us=float(np.median(self.numpy_us)),
            disk_mb=self.disk_mb,
            write_s=self.write_s,
            add_s=self.add_s,
            scan_s=self.scan_s,
        )


@dataclass(frozen=True)
class Row:
    """Figures of one store: microseconds, MB, seconds.

    `fetch_us` is the median of the bytes alone, `numpy_us` that of a look-up whose arithmetic is numpy's.
    """

    store: str
    layout: str
    about: str
    p50_us: float
    p99_us: float
    fetch_us: float
    numpy_us: float
    disk_mb: float
    write_s: float
    add_s: float
    scan_s: float


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--lookups", type=int, default=5_000)
    given = parser.parse_args()
    images = layouts.Images(Payload(layouts.SIDE), given.images)
    with tempfile.TemporaryDirectory(prefix="texcat-stores-") as temporary:
        rows = compare(images, given.lookups, Path(temporary))
    result = {"images": given.images, "interests": INTERESTS, "lookups": given.lookups}
    result["rows"] = [asdict(row) for row in rows]
    _report.save("stores", result, table(rows, given.images, given.lookups))
    plot(rows, given.images)


def compare(images: layouts.Images, lookups: int, folder: Path) -> list[Row]:
    """Measure every store, one thing after the other."""
    contenders: list[Contender] = []
    try:
        for contender in open_all(folder, images.payload):
            contenders.append(contender)
            _, contender.write_s = timed(contender.store.write, images)
            contender.disk_mb = disk_bytes(contender.folder) / 1e6
        time_lookups(contenders, images, lookups)
        for contender in contenders:
            found, contender.scan_s = timed(contender.store.scan, SCANNED)
            check_scan(found, images, SCANNED)
            _, contender.add_s = timed(contender.store.add, ADDED, images)
            check_scan(contender.store.scan(ADDED), images, ADDED)
        check_lookups(contenders, images.keys[-1], blended((ADDED, SCANNED, 1)))
    finally:
        for contender in contenders:
            contender.store.close()
    return [contender.row() for contender in contenders]


def open_all(folder: Path, payload: Payload) -> Iterator[Contender]:
    """Every store, empty, in a folder of its own."""
    schema = ChannelSchema.parse("default")
    assembler = Assembler(schema, schema, layouts.SIDE)
    empty = (folder / f"{number}" for number in count())

    def made(name: str, kind: Callable[[Path], T], arrange: Callable[[T], layouts.Store]) -> Contender:
        place = next(empty)
        place.mkdir()
        return Contender(name, summary(kind), arrange(kind(place)), place)

    def records(engine: engines.Engine) -> layouts.Store:
        return layouts.Records(engine, assembler)

    def parts(engine: engines.Engine) -> layouts.Store:
        return layouts.Parts(engine, assembler)

    def columns(engine: engines.ColumnEngine) -> layouts.Store:
        return layouts.Columns(engine, assembler)

    place = next(empty)
    place.mkdir()
    yield Contender("texcat", summary(layouts.Texcat), layouts.Texcat(place, payload), place)
    yield made(FLOOR, engines.Memory, records)
    yield made("npz files", engines.Npz, records)
    for arrange in (records, parts):
        yield made("SQLite", engines.Sqlite, arrange)
        yield made("diskcache", engines.Diskcache, arrange)
        yield made("rocksdict", engines.Rocksdict, arrange)
        yield made("Redis", engines.Redis, arrange)
    yield made("h5py", engines.H5pyValues, records)
    yield made("zarr", engines.ZarrValues, records)
    yield made("Lance", engines.LanceValues, records)
    yield made("h5py", engines.H5pyColumns, columns)
    yield made("zarr", engines.ZarrColumns, columns)
    yield made("Lance", engines.LanceColumns, columns)


def time_lookups(contenders: Sequence[Contender], images: layouts.Images, lookups: int) -> None:
    """Fill `microseconds` of each contender with random look-ups, all of them warm, in turns."""
    random = np.random.default_rng(0)
    asked = [blended((random.choice(INTERESTS, 3, replace=False) + 1).tolist()) for _ in range(200)]
    chosen = [images.keys[number] for number in random.integers(0, len(images.keys), lookups)]
    prepared = [[contender.store.prepare(matches) for matches in asked] for contender in contenders]
    for warm in (False, True):
        for start in range(0, lookups, TURN):
            turn = range(start, min(start + TURN, lookups))
            for contender, matches in zip(contenders, prepared, strict=True):
                calls = [(chosen[number], matches[number % len(matches)]) for number in turn]
                looked_up = each_us(contender.store.lookup, calls)
                fetched = each_us(contender.store.fetch, calls)
                if warm:
                    contender.lookup_us += looked_up
                    contender.fetch_us += fetched
                    contender.numpy_us += each_us(numpy_lookup(contender.store), calls[::NUMPY_EVERY])
            check_lookups(contenders, chosen[start], asked[start % len(asked)])


def numpy_lookup(store: layouts.Store) -> Callable[[ImageKey, Matches], object]:
    """A look-up that takes the bytes from `store` and does the rest in numpy."""
    return lambda image, matches: layouts.with_numpy(store.fetch(image, matches), matches)


def each_us(action: Callable[[ImageKey, Matches], object], calls: Sequence[Call]) -> list[float]:
    """Microseconds of each call."""
    taken = []
    for image, matches in calls:
        started = time.perf_counter_ns()
        action(image, matches)
        taken.append((time.perf_counter_ns() - started) / 1e3)
    return taken


def blended(interests: Sequence[int]) -> Matches:
    """Three interests of unequal weights."""
    chosen = [Interest(number, f"interest {number}") for number in interests]
    return Matches(Match(i, 0.8, weight) for i, weight in zip(chosen, (0.5, 0.3, 0.2), strict=True))


def check_lookups(contenders: Sequence[Contender], image: ImageKey, matches: Matches) -> None:
    """Every store gives what the first gives."""
    expected = contenders[0].store.lookup(image, matches)
    for contender in contenders:
        found = contender.store.lookup(image, contender.store.prepare(matches))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=contender.name)


def check_scan(found: layouts.Scan, images: layouts.Images, interest: int) -> None:
    """What was read of an interest is what was written."""
    values, levels = found
    for number in range(len(images.keys)):
        planes = images.map(number, interest)
        np.testing.assert_array_equal(values[number], planes.values[0])
        np.testing.assert_array_equal(levels[number], (planes.low[0], planes.high[0]))


def timed(action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[T, float]:
    """Result of `action`, and the seconds until what it wrote is on the disk."""
    os.sync()
    started = time.perf_counter()
    result = action(*args, **kwargs)
    os.sync()
    return result, time.perf_counter() - started


def disk_bytes(folder: Path) -> int:
    """Bytes that the files below `folder` take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def summary(kind: Callable[..., object]) -> str:
    """First paragraph of a docstring, on one line."""
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")


def table(rows: Sequence[Row], images: int, lookups: int) -> str:
    """The figures as Markdown, the quickest look-up first, and how each store was set up."""
    ours = rows[0]
    peers = [row for row in rows[1:] if row.store != FLOOR]
    best = min(peers, key=lambda row: row.p50_us)
    columns: dict[str, Callable[[Row], str]] = {
        "look-up p50, us": lambda row: f"{row.p50_us:.1f}",
        "p99, us": lambda row: f"{row.p99_us:.1f}",
        "texcat's p50 to it": lambda row: f"{ours.p50_us / row.p50_us:.2f}",
        "with numpy p50, us": lambda row: f"{row.numpy_us:.0f}",
        "bytes alone p50, us": lambda row: f"{row.fetch_us:.1f}",
        "disk, MB": lambda row: f"{row.disk_mb:.0f}",
        "write, s": lambda row: f"{row.write_s:.2f}",
        "add an interest, s": lambda row: f"{row.add_s:.2f}",
        "read an interest, s": lambda row: f"{row.scan_s:.2f}",
    }
    lines = [f"| store | layout | {' | '.join(columns)} |", "|---|---|" + "--:|" * len(columns)]
    for row in sorted(rows, key=lambda row: row.p50_us):
        figures = " | ".join(written(row) for written in columns.values())
        lines.append(f"| {row.store} | {row.layout} | {figures} |")
    setups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        setups.setdefault((row.store, row.about), []).append(row.layout)
    return "\n".join(
        [
            f"{images:,} images x {INTERESTS} interests on 16x16; {lookups:,} random warm look-ups of 3 "
            "interests each, one thread. texcat is timed through the whole of `Retriever.lookup`; the others "
            "without it, once with texcat's machine code for the arithmetic, and once with numpy's.",
            "",
            *lines,
            "",
            f"Handed texcat's machine code, the best other store ({best.store}, {best.layout}) takes "
            f"{best.p50_us / ours.p50_us:.2f} of texcat's time; with numpy, as such a store is used on its "
            f"own, the best takes {min(row.numpy_us for row in peers) / ours.p50_us:.1f} times as long. "
            f"Best of the others, whichever it is: disk {min(row.disk_mb for row in peers):.0f} MB, "
            f"write {min(row.write_s for row in peers):.2f} s, add {min(row.add_s for row in peers):.2f} s, "
            f"read {min(row.scan_s for row in peers):.2f} s.",
            "",
            *(f"- {name}, {' or '.join(kept)}: {about}" for (name, about), kept in setups.items()),
        ]
    )


def plot(rows: Sequence[Row], images: int) -> None:
    """Median look-up against bytes on the disk; labels beside the axes, on the nearer side."""
    stored = sorted((row for row in rows if row.store != FLOOR), key=lambda row: row.p50_us)
    (floor,) = (row for row in rows if row.store == FLOOR)
    bottom, top = 0.8 * floor.p50_us, 1.3 * stored[-1].p50_us
    middle = (min(row.disk_mb for row in stored) + max(row.disk_mb for row in stored)) / 2
    figure, axes = pyplot.subplots(figsize=(10, 5.5), layout="constrained")
    for left in (True, False):
        height = 0.0
        for row in (row for row in stored if (row.disk_mb < middle) == left):
            height = max(height + 0.05, math.log(row.p50_us / bottom) / math.log(top / bottom))
            colour = "C3" if row.store == "texcat" else "C0"
            axes.plot(row.disk_mb, row.p50_us, "o", color=colour)
            axes.annotate(
                f"{row.store}, {row.layout}: {row.p50_us:.0f}",
                (row.disk_mb, row.p50_us),
                (-0.12 if left else 1.04, height),
                textcoords="axes fraction",
                color=colour,
                horizontalalignment="right" if left else "left",
                verticalalignment="center",
                arrowprops={
                    "arrowstyle": "-",
                    "color": "0.7",
                    "linewidth": 0.6,
                    "relpos": (1 if left else 0, 0.5),
                },
            )
    axes.axhline(floor.p50_us, color="0.6", linestyle="--", linewidth=1)
    axes.text(
        middle, floor.p50_us, f"{floor.store}: {floor.p50_us:.0f}", color="0.4", verticalalignment="bottom"
    )
    axes.set(yscale="log", ylim=(bottom, top))
    axes.set_xlabel(f"MB on the disk, {images:,} images x {INTERESTS} interests")
    axes.set_title("Look-up, p50 in microseconds")
    figure.savefig(_report.RESULTS / f"{_report.machine()['date']}-stores.png", dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
