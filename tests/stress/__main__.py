"""Run one of the stress scripts: ``python -m tests.stress NAME --help``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

FULL = {
    "kills": {"kills": 50, "photos": 40, "seed": 0},
    "full_disk": {"moments": 20, "photos": 40, "seed": 0},
    "bit_flips": {"flips": 1_000, "headers": 1_000, "images": 60, "seed": 0},
    "soak": {"writes": 1_000_000, "images": 500, "seed": 0},
}
"""By name of its module, the full size of each script."""


def run(name: str, **sizes: int) -> dict[str, Any]:
    """Run the script `name` in a folder that is removed afterwards; its counts."""
    script = import_module(f".{name}", __package__)  # only this one: bit flips fork, and torch is large
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = script.run(Path(folder), **{**FULL[name], **sizes})
    return found


def main() -> None:
    """Run the script that the command line names, and print its counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True)
    for name, sizes in FULL.items():
        added = names.add_parser(name)
        for option, size in sizes.items():
            added.add_argument(f"--{option}", type=int, default=size)
    given = vars(parser.parse_args())
    sys.stdout.write(json.dumps(run(given.pop("name"), **given), indent=2) + "\n")


if __name__ == "__main__":
    main()
