"""A pass on several devices: the same records as in one process, and all files accounted for."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from multiprocessing import active_children
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
import torch
from texcat.catalogue import Catalogue
from texcat.catalogue.errors import EngineError, FingerprintMismatchError, UsageError
from texcat.indexer import Progress, index_corpus
from texcat.indexer.encoders import devices_of

from ..fakes import TinyEncoder
from .test_indexing import QUICK, assert_equal, contents, photo

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twenty small photos, copies of two of them, and two files that are none."""
    folder = tmp_path / "photos"
    for number in range(20):
        photo(folder / f"{number:02}.png", number)
    for number in (3, 17):
        shutil.copy(folder / f"{number:02}.png", folder / f"copy {number}.png")
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_bytes(b"hello")
    return folder


class Mortal(TinyEncoder):
    """An encoder that takes its process along, once, or whenever it sees a white image."""

    def __init__(self, mark: Path | None) -> None:
        super().__init__()
        self.mark = mark

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        dies = bool((images == 255).flatten(1).all(1).any()) if self.mark is None else not self.mark.exists()
        if dies:
            if self.mark is not None:
                self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().patches(images)


class Failing(TinyEncoder):
    def patches(self, images: torch.Tensor) -> torch.Tensor:
        raise ValueError("a bug")


class Interrupted(TinyEncoder):
    """An encoder whose process is interrupted, as all of a terminal are by Ctrl-C."""

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return super().patches(images)


class Lingering(TinyEncoder):
    """An encoder whose process only ends when a file is there, as one of a GPU takes its time to."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__ |= state
        Finalize(None, self._linger, exitpriority=0)

    def _linger(self) -> None:
        patience = time.monotonic() + 20
        while not self.mark.exists() and time.monotonic() < patience:
            time.sleep(0.01)


class Watching(TinyEncoder):
    """An encoder that sees how many processes there are when it is asked for directions."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def direction(self, phrases: Sequence[str]) -> torch.Tensor:
        self.seen.append(len(active_children()))
        return super().direction(phrases)


def test_two_processes_make_what_one_makes(tmp_path: Path, photos: Path) -> None:
    made = []
    for name, device in (("one", "cpu"), ("two", "cpu,cpu")):
        with Catalogue.create(tmp_path / name, groups=QUICK) as catalogue:
            catalogue.add_interest("red")
            report = index_corpus(catalogue, [photos], encoder=TinyEncoder(), device=device, batch_size=3)
            assert report.indexed == 22
            assert {os.path.basename(skipped.path) for skipped in report.skipped} == {"empty.png", "text.jpg"}
            assert catalogue.store.stats().codes == 20
            made.append(contents(catalogue))
            assert index_corpus(catalogue, [photos]).unchanged == 22
    assert {stage.name for stage in report.stages} >= {"cpu read", "cpu encode", "cpu write", "register"}
    assert_equal(*made)


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "cat", groups=QUICK) as catalogue:
        catalogue.add_interest("red")
        encoder = Mortal(tmp_path / "dead")
        report = index_corpus(catalogue, [photos], encoder=encoder, device="cpu,cpu", batch_size=3)
        assert (tmp_path / "dead").exists()
        assert (report.indexed, len(report.skipped)) == (22, 2)
        assert len(contents(catalogue)) == 20


def test_a_file_that_takes_its_process_along_has_failed_and_no_other(tmp_path: Path) -> None:
    from PIL import Image

    photo(tmp_path / "photos" / "noise.png", 1)
    Image.new("RGB", (64, 64), "white").save(tmp_path / "photos" / "white.png")
    with Catalogue.create(tmp_path / "cat", groups=QUICK) as catalogue:
        encoder = Mortal(None)
        report = index_corpus(
            catalogue, [tmp_path / "photos"], encoder=encoder, device="cpu,cpu", batch_size=4
        )
        assert report.indexed == 1
        assert [os.path.basename(skipped.path) for skipped in report.skipped] == ["white.png"]
        assert "was lost" in report.skipped[0].reason


def test_a_process_that_takes_its_time_to_end_holds_nobody_up(tmp_path: Path, photos: Path) -> None:
    alive: list[int] = []

    def mark(progress: Progress) -> None:
        if progress.done == progress.total:
            alive.append(len(active_children()))
            (tmp_path / "done").touch()

    with Catalogue.create(tmp_path / "cat", groups=QUICK) as catalogue:
        encoder = Lingering(tmp_path / "done")
        index_corpus(catalogue, [photos], encoder=encoder, device="cpu,cpu", batch_size=3, on_progress=mark)
    assert alive == [2]
    assert not active_children()


def test_processes_load_while_vectors_are_made(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "cat", groups=QUICK) as catalogue:
        catalogue.add_interest("red")
        encoder = Watching()
        assert index_corpus(catalogue, [photos], encoder=encoder, device="cpu,cpu").indexed == 22
        assert set(encoder.seen) == {2}
        catalogue.add_interest("green")
        encoder = Watching()
        assert index_corpus(catalogue, [photos], encoder=encoder, device="cpu,cpu").indexed == 22
        assert set(encoder.seen) == {2}


def test_no_process_is_left_where_there_is_no_work_for_it(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "cat", groups=QUICK) as catalogue:
        index_corpus(catalogue, [photos], encoder=TinyEncoder())
        photo(photos / "new.png", 99)
        with pytest.raises(FingerprintMismatchError):
            index_corpus(catalogue, [photos], encoder=TinyEncoder(2), device="cpu,cpu")
    assert not active_children()


def test_only_the_process_that_started_others_is_interrupted(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "cat", groups=QUICK) as catalogue:
        report = index_corpus(catalogue, [photos], encoder=Interrupted(), device="cpu,cpu")
        assert (report.indexed, len(report.skipped)) == (22, 2)


def test_what_a_process_raises_ends_the_pass(tmp_path: Path, photos: Path) -> None:
    with (
        Catalogue.create(tmp_path / "cat", groups=QUICK) as catalogue,
        pytest.raises(EngineError, match="the process on cpu failed: ValueError: a bug"),
    ):
        index_corpus(catalogue, [photos], encoder=Failing(), device="cpu,cpu")


def test_names_of_devices() -> None:
    assert devices_of("cpu") == ["cpu"]
    assert devices_of("cuda:0, cuda:1") == ["cuda:0", "cuda:1"]
    with pytest.raises(UsageError, match="empty part"):
        devices_of("cuda:0,")
