"""The indexing pass over 1,000 real photos: rate, memory, bytes, rescan, and a kill in the middle.

    python benchmarks/indexing.py [--data ../shared/data/photos1000] [--photos N]

Every pass runs in a process of its own. Files that a rescan opens are counted with an audit hook, which sees
each `open` of the interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _report
import numpy as np
from texcat.catalogue import Catalogue
from texcat.indexer import index_corpus

INTERESTS = (
    "dog", "bird", "mountain biking", "boat", "food on a plate", "musical instrument",
    "car", "flower", "snake", "old building",
)  # fmt: skip


def main() -> None:
    """Run the benchmark, or one pass of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/photos1000"))
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--one-pass", nargs=2, metavar=("CATALOGUE", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one_pass:
        one_pass(Path(given.one_pass[0]), Path(given.one_pass[1]))
    else:
        benchmark(given.data.resolve(), given.photos)


def one_pass(path: Path, folder: Path) -> None:
    """Index `folder`, and print what it took."""
    opened = 0
    prefix = os.fsencode(folder.resolve())

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal opened
        if event == "open" and isinstance(arguments[0], str | bytes):
            opened += os.fsencode(arguments[0]).startswith(prefix + b"/")

    with Catalogue.open(path, "w") as catalogue:
        sys.addaudithook(audit)
        started = time.perf_counter()
        report = index_corpus(
            catalogue, [folder], on_progress=lambda p: print(p.done, file=sys.stderr, flush=True)
        )
        seconds = time.perf_counter() - started
    print(
        json.dumps(
            {
                "indexed": report.indexed,
                "unchanged": report.unchanged,
                "skipped": len(report.skipped),
                "seconds": seconds,
                "opened": opened,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


def benchmark(data: Path, count: int) -> None:
    """All passes, in a temporary folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "photos"
        folder.mkdir()
        for photo in sorted(data.iterdir())[:count]:
            (folder / photo.name).symlink_to(photo)
        whole, broken = Path(temporary) / "whole", Path(temporary) / "broken"
        for path in (whole, broken):
            with Catalogue.create(path) as catalogue:
                for phrase in INTERESTS:
                    catalogue.add_interest(phrase)
        fresh = run(whole, folder)
        rescan = run(whole, folder)
        killed = run_and_kill(broken, folder, count // 2)
        resumed = run(broken, folder)
        with Catalogue.open(whole) as catalogue:
            stats = catalogue.store.stats()
            sizes = {
                "base": stats.base_bytes / stats.images,
                "maps": sum(stats.map_bytes.values()) / stats.images,
                "files": stats.file_bytes / stats.images,
                "whole catalogue": folder_bytes(whole) / stats.images,
            }
        same = equal(whole, broken)
    result = {
        "photos": count,
        "interests": len(INTERESTS),
        "fresh": fresh,
        "rescan": rescan,
        "killed_after": killed,
        "resumed": resumed,
        "equal": same,
        "bytes_a_photo": sizes,
    }
    rows = [
        ("photos, interests", f"{count}, {len(INTERESTS)}"),
        ("fresh pass", f"{fresh['seconds']:.0f} s, {fresh['indexed'] / fresh['seconds']:.1f} photos/s"),
        ("peak memory", f"{fresh['peak_mb']:.0f} MB"),
        ("bytes a photo: base, maps", f"{sizes['base']:.0f}, {sizes['maps']:.0f}"),
        ("bytes a photo on disk: shards, all", f"{sizes['files']:.0f}, {sizes['whole catalogue']:.0f}"),
        ("rescan", f"{rescan['seconds']:.2f} s, {rescan['opened']} files opened"),
        ("killed (-9) with", f"{killed} photos finished"),
        ("resumed", f"{resumed['indexed']} photos made, {resumed['opened']} files opened"),
        ("equal to the uninterrupted pass, record by record", "yes" if same else "NO"),
    ]
    _report.save(
        "indexing",
        result,
        "\n".join(["| what | figure |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]),
    )
    assert same
    assert rescan["opened"] == 0


def command(path: Path, folder: Path) -> list[str]:
    """Command that runs one pass."""
    return [sys.executable, __file__, "--one-pass", str(path), str(folder)]


def run(path: Path, folder: Path) -> dict[str, float]:
    """One pass, to its end."""
    done = subprocess.run(
        command(path, folder), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def run_and_kill(path: Path, folder: Path, at: int) -> int:
    """One pass, killed when `at` files are done; how many images the store holds then."""
    with subprocess.Popen(
        command(path, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.strip().isdigit() and int(line) >= at:
                break
        time.sleep(0.5)
        child.send_signal(signal.SIGKILL)
    with Catalogue.open(path) as catalogue:
        return sum(1 for _ in catalogue.store.keys())


def equal(left: Path, right: Path) -> bool:
    """Whether two catalogues hold the same records."""
    with Catalogue.open(left) as one, Catalogue.open(right) as other:
        if set(one.store.keys()) != set(other.store.keys()):
            return False
        for key in one.store.keys():
            a, b = one.store.read(key), other.store.read(key)
            assert a.base is not None
            assert b.base is not None
            if a.maps.keys() != b.maps.keys():
                return False
            pairs = [(a.base, b.base), *((a.maps[i], b.maps[i]) for i in a.maps)]
            for x, y in pairs:
                if not all(np.array_equal(getattr(x, n), getattr(y, n)) for n in ("values", "low", "high")):
                    return False
    return True


def folder_bytes(folder: Path) -> int:
    """Bytes that the files below `folder` take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
