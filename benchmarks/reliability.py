"""The stress scripts at full size, one after the other (`python -m tests.stress` runs one alone).

    python benchmarks/reliability.py [--only NAME]

Mounting the small disk that runs full needs root.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import _report

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stress.__main__ import FULL, run


def main() -> None:
    """Run all scripts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=FULL)
    only = parser.parse_args().only
    result: dict[str, object] = {}
    rows = ["| script | size | counts | s |", "|---|---|---|---:|"]
    for name, sizes in FULL.items():
        if only in (None, name):
            started = time.monotonic()
            counts = run(name)
            seconds = time.monotonic() - started
            result[name] = {"sizes": sizes, "counts": counts, "seconds": seconds}
            told = "; ".join(f"{what}: {_short(found)}" for what, found in counts.items())
            rows.append(f"| {name} | {_short(sizes)} | {told} | {seconds:.0f} |")
    _report.save("reliability", result, "\n".join(rows))


def _short(found: object) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{name} {_short(value)}" for name, value in found.items()) or "nothing"
    return f"{found:,}" if isinstance(found, int) else str(found)


if __name__ == "__main__":
    main()
