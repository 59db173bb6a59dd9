"""What goes wrong while a GPU indexes: damaged files, too little memory, a lost process, a full disk.

    python benchmarks/hardships.py [--data ../shared/data/coco128/images] [--images 2000] [--device cuda:0]

After each, every image must be accounted for: it is indexed, or named with a reason; and what was made of it
is what a pass without hardship makes, but for rounding. The encoder is that of
`pipeline.py`; `--builtin` is the builtin one, to run this on a processor, where no memory is taken away. The
full disk is a small one in memory, which only root can mount.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import _report
import numpy as np
import torch
from numpy.typing import NDArray
from pipeline import MODEL, THINGS, card, make_photos, random_weights
from texcat.catalogue import Catalogue, StoreFullError
from texcat.catalogue.channels import Kind
from texcat.catalogue.types import IndexReport, Planes
from texcat.catalogue.verifying import verify
from texcat.indexer import Progress, index_corpus

DAMAGED_EVERY = 50
INTERESTS = 10
FRACTION = 0.045
"""Part of the GPU's memory that a pass may have, where memory is short: batches of 256 need more."""

MOST_APART = 0.5
"""Levels of 255 by which values of an image may be apart from those of another pass, in the mean: features
are of half precision, and other batches may round otherwise. Another photo's are 44 or more apart."""


def main() -> None:
    """Let all of it happen, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/coco128/images"))
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fraction", type=float, default=FRACTION)
    parser.add_argument("--out", type=Path, default=_report.RESULTS, help="folder of the report")
    parser.add_argument("--builtin", action="store_true")
    given = parser.parse_args()
    on_gpu = given.device != "cpu"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spec = "builtin"
        if not given.builtin:
            spec = f"open_clip:{MODEL}/{random_weights(MODEL, folder)},size=512"
            spec += ",precision=bf16" if on_gpu else ""
        photos = make_photos(sorted(given.data.glob("*.jpg")), given.images, folder / "photos")
        run = Run(folder, spec, photos, given.device)
        result = {"damaged files": run.damaged()}
        if on_gpu:
            result["short memory"] = run.short_memory(given.fraction)
        result["lost process"] = run.lost_process()
        result["full disk"] = run.full_disk()
    rows = [
        f"{card()}; {given.images:,} images on {given.device}",
        "",
        "| what | what became of it |",
        "|---|---|",
    ]
    rows += [f"| {what} | {told} |" for what, told in result.items()]
    _report.save("hardships", dict(result), "\n".join(rows), given.out)


class Run:
    """Passes over `photos`, each into a catalogue of its own."""

    def __init__(self, folder: Path, spec: str, photos: list[Path], device: str) -> None:
        self._folder = folder
        self._spec = spec
        self._photos = photos
        self._device = device
        self._first: Path | None = None

    def damaged(self) -> str:
        """One file in `DAMAGED_EVERY` cut short."""
        whole = {path: path.read_bytes() for path in self._photos[::DAMAGED_EVERY]}
        for path, content in whole.items():
            path.write_bytes(content[:400])
        self._first = self._create("damaged")
        report = self._index(self._first)
        for path, content in whole.items():
            path.write_bytes(content)
        assert {skipped.path for skipped in report.skipped} == {str(path) for path in whole}, report
        assert report.indexed == len(self._photos) - len(whole), report
        return f"{report.indexed:,} indexed, {len(report.skipped)} of {len(whole)} named with a reason"

    def short_memory(self, fraction: float) -> str:
        """A GPU with too little memory for a batch."""
        torch.cuda.empty_cache()
        before = torch.cuda.memory_stats()["num_ooms"]
        torch.cuda.set_per_process_memory_fraction(fraction)
        try:
            path = self._create("memory")
            report = self._index(path)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        times = torch.cuda.memory_stats()["num_ooms"] - before
        self._all(report)
        assert times, "the memory was enough: make --fraction smaller"
        return f"out of memory {times} times; {report.indexed:,} indexed, none skipped{self._compared(path)}"

    def lost_process(self) -> str:
        """One of two processes killed at work."""
        killed: list[int] = []

        def kill(progress: Progress) -> None:
            if not killed and 0 < progress.done < progress.total:
                victim = multiprocessing.active_children()[0]
                victim.kill()
                killed.append(progress.done)

        two, size = f"{self._device},{self._device}", max(1, len(self._photos) // 16)
        path = self._create("lost")
        report = self._index(path, two, kill, size)
        self._all(report)
        assert killed
        indexed = f"{report.indexed:,} indexed, none skipped{self._compared(path)}"
        return f"killed after {killed[0]:,} images; {indexed}"

    def full_disk(self) -> str:
        """A disk that is full in the middle, and then has room."""
        with small_disk(self._folder / "disk") as (disk, limit):
            path = self._create("catalogue", disk)
            size = 24 * len(self._photos) >> 10  # MB: a third of what images need
            limit(max(2, size))
            try:
                self._index(path)
            except StoreFullError:
                pass
            else:
                raise AssertionError("the disk had room")
            with Catalogue.open(path) as catalogue:
                held = catalogue.store.stats().images
            limit(1 << 20)
            report = self._index(path)
            with Catalogue.open(path) as catalogue:
                assert catalogue.store.stats().images == len(self._photos)
                problems = list(verify(catalogue))
            assert not problems, problems
            assert not report.skipped
            compared = self._compared(path)
        made = f"{len(self._photos) - held:,} others were made; verified{compared}"
        return f"told when {held:,} images were stored; with room, the {made}"

    def _create(self, name: str, folder: Path | None = None) -> Path:
        path = (folder or self._folder) / name
        with Catalogue.create(path, encoder=self._spec) as catalogue:
            for thing in THINGS.split()[:INTERESTS]:
                catalogue.add_interest(thing)
        return path

    def _index(
        self,
        path: Path,
        device: str | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        batch_size: int | None = None,
    ) -> IndexReport:
        with Catalogue.open(path, "w") as catalogue:
            return index_corpus(
                catalogue,
                self._photos,
                device=device or self._device,
                on_progress=on_progress,
                batch_size=batch_size,
            )

    def _compared(self, path: Path) -> str:
        """How far the images of a catalogue are apart from those of the first pass."""
        if self._first is None:
            return ""
        each = list(apart(self._first, path))
        mean, most = float(np.mean(each)), max(each)
        assert most <= MOST_APART, f"values of an image are {most:.1f} levels apart, {mean:.2f} in the mean"
        return f"; values {mean:.2f} of 255 levels from those of the first pass, {most:.2f} at most an image"

    def _all(self, report: IndexReport) -> None:
        assert (report.indexed, report.skipped) == (len(self._photos), ()), report


def apart(one: Path, other: Path) -> Iterator[float]:
    """Levels of 255 by which values of base textures and maps are apart, of each image that both have."""
    with Catalogue.open(one) as first, Catalogue.open(other) as second:
        numbers = [channel.kind is not Kind.LABEL for channel in first.schema.stored]
        held = set(second.store.keys())
        for key in filter(held.__contains__, first.store.keys()):
            before, after = first.store.read(key), second.store.read(key)
            assert before.base is not None
            assert after.base is not None
            assert before.maps.keys() == after.maps.keys()
            pairs = [(before.base, after.base, np.array(numbers))]
            pairs += [(before.maps[which], after.maps[which], np.array([True])) for which in before.maps]
            yield float(np.concatenate([_levels(*pair) for pair in pairs]).mean())


def _levels(one: Planes, other: Planes, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far `chosen` planes are apart: [n], in levels of the first."""
    step = np.where(one.high > one.low, one.high - one.low, 1.0)[:, None, None] / 255
    away = (_values(one) - _values(other)) / step
    levels: NDArray[np.float64] = np.abs(away).mean((1, 2))[chosen]
    return levels


def _values(planes: Planes) -> NDArray[np.float64]:
    low, high = planes.low[:, None, None].astype(float), planes.high[:, None, None].astype(float)
    return low + planes.values * (high - low) / 255


@contextmanager
def small_disk(path: Path) -> Iterator[tuple[Path, Callable[[int], None]]]:
    """A disk in memory, and what sets how many MB it has."""
    path.mkdir()

    def mount(*options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(path)], check=True)

    mount("-o", "size=1g")
    try:
        yield path, lambda size: mount("-o", f"remount,size={size}m")
    finally:
        subprocess.run(["umount", str(path)], check=True)


if __name__ == "__main__":
    main()
