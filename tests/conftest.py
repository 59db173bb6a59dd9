"""Fixtures that every test may use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # The processes that run tests share the cores, and so does what they start: threads of torch that
    # outnumber the cores spin while they wait for each other. Torch reads this when it is imported.
    processes = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // processes)))

settings.register_profile("texcat", deadline=None, print_blob=True)
settings.load_profile("texcat")

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the documents: README.md takes longest, and no process should be left alone with it."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real, labelled images that is kept beside the repository (see CONTRIBUTING.md)."""
    folder = Path(os.environ.get("TEXCAT_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "coco128").is_dir():
        pytest.fail(f"{folder} does not hold coco128; put the data there, or name it in TEXCAT_SHARED_DATA")
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB, 4 of them taken by a file called `ballast`. Mounting it needs root."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    try:
        (folder / "ballast").write_bytes(bytes(4 << 20))
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
