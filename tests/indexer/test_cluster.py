"""The pass on a cluster: a real one of two workers on this machine, which are also killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from texcat.catalogue import Catalogue, EncoderError, ImageKey, UsageError
from texcat.catalogue.channels import ChannelSchema
from texcat.catalogue.errors import EngineError
from texcat.catalogue.verifying import verify
from texcat.indexer import Progress, cluster, index_corpus
from texcat.indexer.lacking import Lacking
from texcat.indexer.scan import FoundFile
from texcat.indexer.workers import Recipe, Worker
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..fakes import TinyEncoder
from .test_codes import a_codebook
from .test_inputs import picture, shard

DARK = b"P6 8 8 255\n" + bytes(8 * 8 * 3)
"""A picture that is nothing but black."""


class Deadly(TinyEncoder):
    """Kills its process when it sees a black picture."""

    def patches(self, images: Tensor) -> Tensor:
        if (images.flatten(1).amax(1) == 0).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().patches(images)


class Slow(TinyEncoder):
    """Takes its time, and tells in `folder` which processes it runs in."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def patches(self, images: Tensor) -> Tensor:
        (self.folder / str(os.getpid())).touch()
        time.sleep(0.05)
        return super().patches(images)


class Failing(TinyEncoder):
    def patches(self, images: Tensor) -> Tensor:
        raise EncoderError("failing", "the card is on fire")


class Coarse(TinyEncoder):
    """As few patches as ViT-B/32 has, of noise."""

    input_size, grid, map_size, dim = 56, (7, 7), 7, 48

    def patches(self, images: Tensor) -> Tensor:
        seeds = [int(image.long().sum()) for image in images]
        noise = [np.random.default_rng(seed).standard_normal((48, 7, 7), np.float32) for seed in seeds]
        return torch.from_numpy(np.stack(noise))


class Wrong(TinyEncoder):
    def patches(self, images: Tensor) -> Tensor:
        return torch.ones(3).reshape(7)


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[Any]:
    """Ray, which the passes of all tests use, and which outlives them."""
    running = cluster._import_ray(local=True)
    cluster._connect(running, None, 2)
    yield running
    running.shutdown()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:03}.png").write_bytes(picture(number % 24))  # some are there twice
    (folder / "007.png").write_bytes(b"no picture")
    (folder / "008.png").write_bytes(picture(8)[:-30])
    (folder / "108.png").write_bytes(picture(8)[:-30])
    return folder


def made(path: Path, **options: object) -> Catalogue:
    catalogue = Catalogue.create(path, shards=1, **options)  # type: ignore[arg-type]
    for phrase in ("red", "blue"):
        catalogue.add_interest(phrase)
    return catalogue


def entries(catalogue: Catalogue) -> dict[bytes, bytes]:
    """All that the shard holds, byte by byte."""
    (file,) = catalogue.store._files
    found: dict[bytes, bytes] = {}
    with file.view() as transaction:
        cursor = transaction.cursor()
        there = cursor.set_range(b"")
        while there:
            found[bytes(cursor.key())] = bytes(cursor.value())
            there = cursor.next()
    return found


def rows(catalogue: Catalogue) -> object:
    keys = list(catalogue.registry.images())
    return catalogue.registry.files([b"/"]), {key: catalogue.registry.image_size(key) for key in keys}


def test_records_are_those_of_the_local_engine_byte_by_byte(tmp_path: Path, photos: Path) -> None:
    inputs = [photos, shard(tmp_path / "0000.tar", range(20, 40))]
    with made(tmp_path / "local") as local, made(tmp_path / "ray") as spread:
        expected = index_corpus(local, inputs, encoder=TinyEncoder())
        seen: list[Progress] = []
        report = index_corpus(
            spread, inputs, engine="ray", workers=2, encoder=TinyEncoder(), on_progress=seen.append
        )
        assert (report.indexed, report.skipped) == (expected.indexed, expected.skipped)
        assert report.indexed == 28 + 20
        assert len(entries(local)) > 100
        assert entries(spread) == entries(local)
        assert rows(spread) == rows(local)
        assert (seen[0], seen[-1]) == (Progress(0, 51, 0), Progress(51, 51, 3))
        assert list(verify(spread)) == []
        again = index_corpus(spread, inputs, engine="ray", workers=2)
        assert (again.indexed, again.unchanged) == (0, 48)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_makes_the_same_of_an_image_alone_and_among_others(threads: int, tmp_path: Path) -> None:
    encoder = Coarse()
    axes = a_codebook(encoder.dim)
    recipe = Recipe(encoder, encoder.fingerprint, ChannelSchema.parse("core13"), {}, axes)
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(picture(number))
    files = [FoundFile(os.fsencode(path), path.stat().st_size, 0, 0) for path in paths]
    torch.get_num_threads()  # sets a default, once for each thread
    with threadpool_limits(threads, user_api="openmp"):
        worker = Worker(recipe, "cpu")
        worker.start()
        units = [_made(worker, 0, files), *(_made(worker, 1 + n, [file]) for n, file in enumerate(files))]
    together, *alone = units
    assert [code for (code,) in alone] == together


def _made(worker: Worker, unit: int, files: Sequence[FoundFile]) -> list[bytes | None]:
    keys = [found.key for found in worker.read(unit, files)]
    made = worker.make(unit, files, keys, [Lacking(code=True)] * len(files))
    return [each and each.record and each.record.code for each in made]


def test_only_what_is_lacking_is_made(tmp_path: Path, photos: Path) -> None:
    with made(tmp_path / "local") as local, made(tmp_path / "ray") as spread:
        for catalogue, engine in ((local, "local"), (spread, "ray")):
            workers = 1 if engine == "ray" else None
            index_corpus(catalogue, [photos], engine=engine, workers=workers, encoder=TinyEncoder())
        (photos / "000.png").rename(photos / "moved.png")
        (photos / "new.png").write_bytes(picture(99))
        for catalogue, engine in ((local, "local"), (spread, "ray")):
            workers = 1 if engine == "ray" else None
            catalogue.add_interest("green")
            report = index_corpus(catalogue, [photos], engine=engine, workers=workers, encoder=TinyEncoder())
            assert (report.indexed, report.unchanged) == (29, 0)
            rowless = catalogue.registry.forget_files([os.fsencode(photos / "new.png")])
            assert rowless == [ImageKey.of(picture(99))], "and its record is still there"
            report = index_corpus(catalogue, [photos], engine=engine, workers=workers, encoder=TinyEncoder())
            assert (report.indexed, report.unchanged) == (1, 28)
        assert entries(spread) == entries(local)
        assert catalogue.registry.image_size(ImageKey.of(picture(99))) == (64, 48)


def test_the_images_of_a_worker_that_is_killed_are_made_by_another(tmp_path: Path) -> None:
    folder, pids = tmp_path / "photos", tmp_path / "pids"
    folder.mkdir()
    pids.mkdir()
    for number in range(160):
        (folder / f"{number:03}.png").write_bytes(picture(number))
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.done and not killed:
            killed.extend(int(path.name) for path in pids.iterdir())
            os.kill(killed[0], signal.SIGKILL)

    with made(tmp_path / "cat", groups=("appearance",)) as catalogue:
        report = index_corpus(
            catalogue, [folder], engine="ray", workers=2, encoder=Slow(pids), batch_size=4, on_progress=kill
        )
        assert (report.indexed, report.skipped) == (160, ())
        assert len(list(catalogue.store.keys())) == 160
        assert list(verify(catalogue)) == []
    assert killed
    assert not Path(f"/proc/{killed[0]}").exists()


def test_an_image_that_kills_its_workers_has_failed_and_no_other(tmp_path: Path, photos: Path) -> None:
    deadly = photos / "013.png"
    deadly.write_bytes(DARK)
    (photos / "113.png").write_bytes(DARK)
    with made(tmp_path / "cat", groups=("appearance",)) as catalogue:
        report = index_corpus(catalogue, [photos], engine="ray", workers=2, encoder=Deadly())
        reasons = {Path(skipped.path).name: skipped.reason for skipped in report.skipped}
        told = "its worker was lost 3 times when it was made"
        assert {name for name, reason in reasons.items() if reason == told} == {"013.png", "113.png"}
        assert len(reasons) == 5
        assert report.indexed == 27
        assert list(verify(catalogue)) == []
        deadly.write_bytes(picture(13))
        assert index_corpus(catalogue, [photos], encoder=TinyEncoder()).indexed == 1


def test_workers_that_are_lost_again_and_again_end_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(DARK)
    monkeypatch.setattr(cluster, "LOST_IN_A_ROW", 2)
    with made(tmp_path / "cat") as catalogue:
        with pytest.raises(EngineError, match="2 workers in a row were lost"):
            index_corpus(catalogue, [tmp_path / "photos"], engine="ray", workers=1, encoder=Deadly())
        assert list(verify(catalogue)) == []


def test_what_fails_in_a_worker_is_told_by_the_pass(tmp_path: Path, photos: Path) -> None:
    with made(tmp_path / "cat") as catalogue:
        with pytest.raises(EncoderError, match="the card is on fire"):
            index_corpus(catalogue, [photos], engine="ray", workers=1, encoder=Failing())
        with pytest.raises(EngineError, match="a worker failed: shape"):
            index_corpus(catalogue, [photos], engine="ray", workers=1, encoder=Wrong())


def test_what_cannot_be_asked(tmp_path: Path, photos: Path) -> None:
    with made(tmp_path / "cat") as catalogue:

        def index(**options: object) -> None:
            index_corpus(catalogue, [photos], encoder=TinyEncoder(), **options)  # type: ignore[arg-type]

        with pytest.raises(UsageError, match="at least one worker"):
            index(engine="ray", workers=0)
        with pytest.raises(UsageError, match="room for 2 workers, got workers = 3"):
            index(engine="ray", workers=3)
        with pytest.raises(UsageError, match="device is auto, cpu or cuda, got 'cuda:1'"):
            index(engine="ray", device="cuda:1")
        with pytest.raises(UsageError, match="'local' or 'ray'"):
            index(engine="spark")
        with pytest.raises(UsageError, match="are for engine 'ray'"):
            index(workers=2)
        with pytest.raises(UsageError, match="has had a cluster of its own"):
            index(engine="ray", ray_address="127.0.0.1:1")


def test_nothing_is_reported_and_nobody_is_listened_to(ray: Any) -> None:
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
