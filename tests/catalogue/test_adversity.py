"""What machines do to a catalogue: disks that become read-only, clocks that jump, threads all at once."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from texcat.catalogue import Catalogue, ReadOnlyError
from texcat.catalogue.backup import backup
from texcat.catalogue.verifying import verify
from texcat.indexer import index_corpus

from ..fakes import TinyEncoder

DAY = 86_400.0


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def make(path: Path, photos: Path) -> None:
    with Catalogue.create(path, shards=2) as catalogue:
        catalogue.add_interest("red car")
        index_corpus(catalogue, [photos], encoder=TinyEncoder())


def test_a_disk_that_is_mounted_read_only_is_read(photos: Path, small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "catalogue"
    make(path, photos)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with Catalogue.open(path) as catalogue:
        assert list(verify(catalogue)) == []
        assert catalogue.store.stats().images == 6
        assert [interest.phrase for interest in catalogue.interests()] == ["red car"]
        assert backup(catalogue, tmp_path / "copy").images == 6
        with pytest.raises(ReadOnlyError):
            catalogue.compact()
    with pytest.raises(ReadOnlyError, match="Read-only file system"):
        Catalogue.open(path, "w")
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with Catalogue.open(path, "w") as catalogue:
        catalogue.remove_interest("red car")


@pytest.mark.parametrize("jump", [-20 * 365 * DAY, 20 * 365 * DAY], ids=["back", "forward"])
def test_a_clock_that_jumps_loses_nothing_and_makes_nothing_again(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    path, encoder, now = tmp_path / "catalogue", TinyEncoder(), time.time
    make(path, photos)
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    with Catalogue.open(path, "w") as catalogue:
        report = index_corpus(catalogue, [photos], encoder=encoder)
        assert (report.unchanged, report.indexed, encoder.encoded) == (6, 0, 0)
        (photos / "0.png").rename(tmp_path / "away.png")
        assert index_corpus(catalogue, [photos], encoder=encoder).removed == 1
    monkeypatch.undo()
    with Catalogue.open(path, "w") as catalogue:
        index_corpus(catalogue, [photos], encoder=encoder)
        (tmp_path / "away.png").rename(photos / "0.png")
        report = index_corpus(catalogue, [photos], encoder=encoder)
        assert list(verify(catalogue)) == []
        assert catalogue.store.stats().images == 6
    assert encoder.encoded == (1 if jump < 0 else 0), (
        "its days of grace were over when the clock was right again"
    )


def test_times_of_change_in_the_future_or_past_do_not_matter(photos: Path, tmp_path: Path) -> None:
    for number, photo in enumerate(sorted(photos.iterdir())):
        seconds = (0, 1, 4_000_000_000)[number % 3]
        os.utime(photo, (seconds, seconds))
    make(tmp_path / "catalogue", photos)
    encoder = TinyEncoder()
    with Catalogue.open(tmp_path / "catalogue", "w") as catalogue:
        assert index_corpus(catalogue, [photos], encoder=encoder).unchanged == 6
        os.utime(photos / "0.png", (5, 5))
        assert index_corpus(catalogue, [photos], encoder=encoder).indexed == 1
        assert list(verify(catalogue)) == []
    assert encoder.encoded == 0, "the same bytes are the same image"


def test_threads_share_a_catalogue_while_it_is_written_compacted_and_copied(
    photos: Path, tmp_path: Path
) -> None:
    path = tmp_path / "catalogue"
    make(path, photos)
    errors: list[BaseException] = []
    stop = threading.Event()

    with Catalogue.open(path, "w") as catalogue:
        keys = list(catalogue.store.keys())

        def read() -> None:
            try:
                while not stop.is_set():
                    for key in keys:
                        assert catalogue.store.read(key).base is not None
                    assert catalogue.registry.counts().images == 6
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(5):
            catalogue.add_interest(f"green {number}")
            index_corpus(catalogue, [photos], encoder=TinyEncoder())
            catalogue.compact()
            backup(catalogue, tmp_path / f"copy{number}")
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert list(verify(catalogue)) == []
