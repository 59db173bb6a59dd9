"""What every benchmark says of the machine, and where its result goes."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    """Processor, cores, memory and versions of what is installed."""
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    processor = next(
        (value.strip() for name, value in info.items() if name.strip() == "model name"), "unknown"
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    packages = ("numpy", "torch", "transformers", "lmdb", "numba", "faiss-cpu", "pillow")
    return {
        "date": date.today().isoformat(),
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),  # that this process may use
        "memory_gb": round(memory / 1e9),
        "python": platform.python_version(),
        **{name: found for name in packages if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a benchmark may need less than texcat as a whole
        return None


def save(name: str, result: dict[str, object], table: str, folder: Path = RESULTS) -> None:
    """Write `result` as JSON and `table` as Markdown into `folder`, dated, and print the table."""
    about = machine()
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{about['date']}-{name}"
    stem.with_suffix(".json").write_text(json.dumps({"machine": about, **result}, indent=1) + "\n")
    line = f"{about['date']}, {about['processor']}, {about['cores']} cores, {about['memory_gb']} GB\n\n"
    stem.with_suffix(".md").write_text(f"# {name}\n\n{line}{table}\n")
    print(line + table)
