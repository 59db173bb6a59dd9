"""The indexing pass: complete, incremental, resumable, and indifferent to bad files."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from texcat.catalogue import Catalogue, ImageKey, TextureRecord
from texcat.catalogue.codec import CODE_PART
from texcat.catalogue.codes import Codebook, code_maps
from texcat.catalogue.errors import FingerprintMismatchError, ReadOnlyError, StoreFullError, UsageError
from texcat.catalogue.quantise import dequantise
from texcat.catalogue.verifying import verify
from texcat.indexer import Progress, index_corpus
from texcat.indexer.passes import _little_waiting, chunk_size
from texcat.indexer.textures import AT_ONCE, ENCODED_AT_ONCE, TextureMaker
from texcat.indexer.waiting import WaitingRoom
from torch.overrides import TorchFunctionMode

from ..catalogue.strategies import same_planes
from ..fakes import TinyEncoder
from ..unprivileged import as_nobody, let_reach
from .hostile import make_hostile

DAY = 86_400.0
QUICK = ("appearance",)
"""Groups for passes over many photos: the others take most of the time."""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with six small photos, two of them equal, in two folders."""
    folder = tmp_path / "photos"
    for number in range(5):
        photo(folder / ("even" if number % 2 == 0 else "odd") / f"{number}.png", number)
    shutil.copy(folder / "even" / "0.png", folder / "odd" / "copy of 0.png")
    return folder


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat") as made:
        made.add_interest("red")
        made.add_interest("blue")
        yield made


def photo(path: Path, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def contents(catalogue: Catalogue) -> dict[ImageKey, TextureRecord]:
    return {key: catalogue.store.read(key) for key in catalogue.store.keys()}


def assert_equal(left: dict[ImageKey, TextureRecord], right: dict[ImageKey, TextureRecord]) -> None:
    assert left.keys() == right.keys()
    for key, record in left.items():
        other = right[key]
        assert record.base is not None
        assert other.base is not None
        assert same_planes(record.base, other.base)
        assert record.maps.keys() == other.maps.keys()
        assert all(same_planes(planes, other.maps[i]) for i, planes in record.maps.items())


def test_every_photo_gets_a_base_and_a_map_for_each_interest(catalogue: Catalogue, photos: Path) -> None:
    encoder = TinyEncoder()
    report = index_corpus(catalogue, [photos], encoder=encoder)
    assert (report.indexed, report.unchanged, report.removed, report.skipped) == (6, 0, 0, ())
    assert encoder.encoded == 5, "two files with one content are one image"
    ids = {interest.id for interest in catalogue.interests()}
    for record in contents(catalogue).values():
        assert record.base is not None
        assert record.base.values.shape == (len(catalogue.schema.stored), 32, 32)
        assert record.maps.keys() == ids
        assert all(planes.values.shape == (1, 16, 16) for planes in record.maps.values())
    zero = ImageKey.of((photos / "even" / "0.png").read_bytes())
    assert catalogue.registry.image_size(zero) == (64, 48)
    assert len(catalogue.registry.paths_of(zero)) == 2


def test_every_photo_gets_a_code_that_gives_its_maps(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    codes = dict(catalogue.store.codes())
    assert codes.keys() == set(catalogue.store.keys())
    vectors = catalogue.registry.vectors("tiny-1")
    coordinates = catalogue.codebook().coordinates(np.stack([vectors[i].direction for i in (1, 2)]))
    for key, record in contents(catalogue).items():
        made = code_maps(codes[key], coordinates)
        for interest, plane in zip((1, 2), made, strict=True):
            stored = dequantise(record.maps[interest])[0]
            assert np.corrcoef(stored.ravel(), plane.ravel())[0, 1] > 0.5, "of noise, smooth parts are kept"
            assert abs(stored.mean() - plane.mean()) < 0.01


def test_a_pass_without_codes_and_one_that_makes_up_for_it(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder(), codes=False)
    assert catalogue.store.stats().codes == 0
    assert not (catalogue.path / "codebook").exists()
    before = contents(catalogue)
    assert index_corpus(catalogue, [photos], codes=False).unchanged == 6
    encoder = TinyEncoder()
    report = index_corpus(catalogue, [photos], encoder=encoder)
    assert (report.indexed, report.unchanged, encoder.encoded) == (6, 0, 5)
    assert catalogue.store.stats().codes == 5
    assert_equal(contents(catalogue), before)
    photo(photos / "new.png", 100)
    assert index_corpus(catalogue, [photos], encoder=TinyEncoder(), codes=False).indexed == 1
    assert (catalogue.store.stats().codes, catalogue.store.stats().images) == (5, 6)
    assert index_corpus(catalogue, [photos], encoder=TinyEncoder()).indexed == 1
    assert catalogue.store.stats().codes == 6


@pytest.mark.parametrize("content", [None, b"", b"another file"])
def test_a_codebook_that_is_lost_or_damaged_is_made_again(
    catalogue: Catalogue, photos: Path, content: bytes | None
) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    path, file = catalogue.path, catalogue.path / "codebook"
    sound = file.read_bytes()
    catalogue.close()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with Catalogue.open(path, "w") as opened:
        encoder = TinyEncoder()
        report = index_corpus(opened, [photos], encoder=encoder)
        assert (report.unchanged, encoder.encoded) == (6, 0), "the codes are as good as they were"
        assert file.read_bytes() == sound
        assert list(verify(opened)) == []


def test_codes_of_another_codebook_are_made_again(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    codes = dict(catalogue.store.codes())
    # As if it was made on a machine that rounds otherwise, and lost.
    catalogue.adopt_codebook(Codebook("tiny-1", -catalogue.codebook().project))
    assert index_corpus(catalogue, [photos], encoder=TinyEncoder()).indexed == 6
    assert dict(catalogue.store.codes()) != codes
    path = catalogue.path
    catalogue.close()
    (path / "codebook").unlink()
    with Catalogue.open(path, "w") as opened:
        encoder = TinyEncoder()
        assert index_corpus(opened, [photos], encoder=encoder).indexed == 6
        assert encoder.encoded == 5
        assert dict(opened.store.codes()) == codes
        assert list(verify(opened)) == []


def test_a_damaged_code_is_made_again(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    key, code = next(catalogue.store.codes())
    name = key + CODE_PART.to_bytes(4, "big")
    catalogue.store._file(key).change(lambda transaction: transaction.put(name, b"damaged" * 9))
    encoder = TinyEncoder()
    index_corpus(catalogue, [photos], encoder=encoder)
    assert encoder.encoded == 1
    assert catalogue.store.code(key) == code


def test_a_rescan_opens_no_file_and_loads_no_encoder(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "cat") as made:
        index_corpus(made, [photos], encoder=TinyEncoder())
    for path in photos.rglob("*.png"):
        path.chmod(0)
    let_reach(tmp_path / "cat")
    subprocess.run(["chown", "-R", "65534:65534", tmp_path], check=True)

    def rescan() -> str:
        with Catalogue.open(tmp_path / "cat", "w") as opened:
            report = index_corpus(opened, [photos])
        return f"{report.indexed} {report.unchanged} {report.skipped}"

    assert as_nobody(rescan) == "0 6 ()"


def test_only_what_is_new_or_changed_is_made(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    before = contents(catalogue)
    photo(photos / "new.png", 100)
    changed = photos / "odd" / "1.png"
    old = ImageKey.of(changed.read_bytes())
    photo(changed, 101)
    os.utime(changed, ns=(1, 1))
    encoder = TinyEncoder()
    report = index_corpus(catalogue, [photos], encoder=encoder)
    assert (report.indexed, report.unchanged, encoder.encoded) == (2, 5, 2)
    after = contents(catalogue)
    assert old not in after, "what no file holds any more is forgotten"
    assert_equal(
        {key: after[key] for key in before if key != old}, {k: r for k, r in before.items() if k != old}
    )


def test_a_renamed_file_costs_no_encoding(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    before = contents(catalogue)
    (photos / "odd").rename(photos / "moved")
    encoder = TinyEncoder()
    report = index_corpus(catalogue, [photos], encoder=encoder)
    assert (report.indexed, report.removed, encoder.encoded) == (3, 3, 0)
    assert_equal(contents(catalogue), before)


def test_a_new_interest_fills_every_photo_and_keeps_bases(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    before = contents(catalogue)
    green = catalogue.add_interest("green")
    report = index_corpus(catalogue, [photos], encoder=TinyEncoder())
    assert (report.indexed, report.unchanged) == (6, 0)
    after = contents(catalogue)
    assert all(green.id in record.maps for record in after.values())
    catalogue.remove_interest("green")
    assert_equal(contents(catalogue), before)


def test_removed_files_are_kept_for_the_grace_period(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    gone = photos / "even" / "2.png"
    key = ImageKey.of(gone.read_bytes())
    away = gone.rename(photos.parent / "away.png")
    assert index_corpus(catalogue, [photos]).removed == 1
    assert index_corpus(catalogue, [photos]).removed == 0
    assert catalogue.store.held(key) is not None
    away.rename(gone)
    assert index_corpus(catalogue, [photos]).unchanged == 6
    gone.unlink()
    index_corpus(catalogue, [photos])
    _age(catalogue, photos, 29 * DAY)
    index_corpus(catalogue, [photos])
    assert catalogue.store.held(key) is not None
    _age(catalogue, photos, 2 * DAY)
    index_corpus(catalogue, [photos])
    assert catalogue.store.held(key) is None
    assert catalogue.registry.paths_of(key) == []


def test_a_folder_that_is_not_there_loses_nothing(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    before = contents(catalogue)
    photos.rename(photos.with_name("unmounted"))
    report = index_corpus(catalogue, [photos], grace_days=0)
    report = index_corpus(catalogue, [photos], grace_days=0)
    assert (report.removed, report.unavailable) == (0, 6)
    assert [(s.path, "not mounted" in s.reason) for s in report.skipped] == [(str(photos), True)]
    assert_equal(contents(catalogue), before)


def test_hostile_files_are_read_or_skipped_and_the_rest_is_untouched(
    catalogue: Catalogue, photos: Path
) -> None:
    expected = make_hostile(photos / "hostile")
    report = index_corpus(catalogue, [photos], encoder=TinyEncoder(), batch_size=3)
    refused = {name: e.refused for name, e in expected.items() if e.refused is not None}
    reasons = {os.path.relpath(s.path, photos / "hostile"): s.reason for s in report.skipped}
    assert reasons.keys() == refused.keys()
    for name, fragment in refused.items():
        assert fragment is not None
        assert fragment in reasons[name], name
    assert report.indexed == 6 + len(expected) - len(refused)
    assert list(catalogue.store.check()) == []

    again = index_corpus(catalogue, [photos])
    assert again.indexed == 0, "what failed is not tried again unasked"
    assert {s.path for s in again.skipped} == {s.path for s in report.skipped}
    retried = index_corpus(catalogue, [photos], encoder=TinyEncoder(), retry_failed=True)
    assert {s.path for s in retried.skipped} == {s.path for s in report.skipped}


def test_a_mended_file_is_read(catalogue: Catalogue, photos: Path) -> None:
    bad = photos / "bad.png"
    bad.write_bytes(b"")
    assert len(index_corpus(catalogue, [photos], encoder=TinyEncoder()).skipped) == 1
    photo(bad, 9)
    report = index_corpus(catalogue, [photos], encoder=TinyEncoder())
    assert (report.indexed, report.skipped) == (1, ())


def test_copies_of_an_undecodable_file_share_its_reason(catalogue: Catalogue, photos: Path) -> None:
    whole = (photos / "even" / "0.png").read_bytes()
    for number in range(10):
        (photos / f"cut {number}.png").write_bytes(whole[:-40])
    report = index_corpus(catalogue, [photos], encoder=TinyEncoder(), batch_size=2)
    assert report.indexed == 6
    assert len(report.skipped) == 10
    assert {s.reason for s in report.skipped} == {report.skipped[0].reason}


class Cramped(TinyEncoder):
    """An encoder whose memory holds `most` images."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.refused = 0

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        if len(images) > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("no room")
        return super().patches(images)


def test_a_batch_that_memory_is_too_small_for_is_made_in_halves(catalogue: Catalogue, photos: Path) -> None:
    encoder = Cramped(1)
    report = index_corpus(catalogue, [photos], encoder=encoder, batch_size=8)
    assert (report.indexed, report.skipped) == (6, ())
    assert encoder.encoded == 5
    assert encoder.refused == 1, "the first batch of two"
    with Catalogue.create(catalogue.path.with_name("roomy")) as other:
        other.add_interest("red")
        other.add_interest("blue")
        index_corpus(other, [photos], encoder=TinyEncoder())
        assert_equal(contents(catalogue), contents(other))


class Sideways(TinyEncoder):
    """An encoder whose features lie with the dims last, as a GPU's do."""

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        return super().patches(images).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("at_once", [ENCODED_AT_ONCE, 1])
def test_features_that_are_made_in_parts_are_those_of_the_batch(catalogue: Catalogue, at_once: int) -> None:
    squares = torch.randint(0, 256, (ENCODED_AT_ONCE + 3, 3, 64, 64)).byte()
    maker = TextureMaker(Sideways(), catalogue.schema, {})
    maker._at_once["encode"] = at_once
    made = maker.encode(squares)
    expected = Sideways().patches(squares)
    torch.testing.assert_close(made, expected, rtol=0, atol=0)
    assert made.stride() == expected.stride()


def test_batches_after_one_that_memory_is_too_small_for_are_halves_of_it(catalogue: Catalogue) -> None:
    maker = TextureMaker(TinyEncoder(), catalogue.schema, {})

    def make(part: slice) -> int:
        size = int(part.stop - part.start)
        if size > 100:
            raise torch.OutOfMemoryError("no room")
        return size

    assert maker.in_parts("draft", 16, make) == [AT_ONCE["cpu"]] * (16 // AT_ONCE["cpu"])
    assert maker.in_parts("of all", 512, make) == [64] * 8
    assert maker.most == 256
    assert maker.in_parts("of all", 256, make) == [64] * 4
    assert maker.most == 256


class OnGpu(torch.Tensor):
    """Stands for a tensor on a GPU: one that `cpu` has left."""

    def cpu(self) -> torch.Tensor:  # type: ignore[override]
        return self.clone().as_subclass(torch.Tensor)


class Crowded(TinyEncoder):
    """An encoder beside which no batch may wait on the GPU: it has no room then."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[torch.Tensor]] = []
        self.refused = 0

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        if any(each() is not None for each in self.made):
            self.refused += 1
            raise torch.OutOfMemoryError("no room")
        features = super().patches(images).as_subclass(OnGpu)
        self.made.append(weakref.ref(features))
        return features


def test_what_waits_leaves_a_gpu_whose_memory_is_short(catalogue: Catalogue) -> None:
    encoder, images = Crowded(), torch.randint(0, 256, (3, 3, 64, 64)).byte()
    maker = TextureMaker(encoder, catalogue.schema, {})
    waiting = []
    for each in images.split(1):
        waiting.append(maker.waiting.enter(maker.encode(each)))
    assert encoder.refused == 2
    made = torch.cat([each[:] for each in waiting]).as_subclass(torch.Tensor)
    torch.testing.assert_close(made, TinyEncoder().patches(images), rtol=0, atol=0)


def test_what_waits_is_not_lost_when_it_leaves() -> None:
    room = WaitingRoom()
    tensor = torch.arange(24.0).reshape(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    waiting, other = room.enter(tensor.as_subclass(OnGpu)), room.enter(tensor)
    part = waiting[:1]
    assert room.clear()
    assert not room.clear(), "all have left"
    assert isinstance(part, OnGpu)
    for each in (waiting, other):
        assert not isinstance(each[:], OnGpu)
        assert len(each) == 2
        assert torch.equal(each[[1, 0]], tensor.flip(0))
        assert each[:].stride() == tensor.stride()


class Full(TorchFunctionMode):
    """Refuses a function of torch, once."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.refuses: object = function

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is self.refuses:
            self.refuses = None
            raise torch.OutOfMemoryError("no room")
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("refused", [torch.empty_strided, torch.cat])
def test_a_batch_that_a_gpu_has_no_room_for_is_put_together_on_the_host(
    catalogue: Catalogue, refused: object
) -> None:
    maker = TextureMaker(TinyEncoder(), catalogue.schema, {})
    squares = torch.randint(0, 256, (2 * ENCODED_AT_ONCE, 3, 64, 64)).byte()
    with Full(refused) as full:
        made = maker.encode(maker.joined(squares.split(ENCODED_AT_ONCE)))
    assert full.refuses is None
    assert maker.most == ENCODED_AT_ONCE, "half of the batch"
    torch.testing.assert_close(made, TinyEncoder().patches(squares), rtol=0, atol=0)


class Held(TinyEncoder):
    """Keeps an error, as libraries keep those of their import: it holds frames, and these a pass."""

    def patches(self, squares: torch.Tensor) -> torch.Tensor:
        try:
            raise ImportError("as it happens")
        except ImportError as error:
            self.kept = error
        return super().patches(squares)


def test_what_a_pass_before_had_is_collected(tmp_path: Path, photos: Path) -> None:
    class Asking(TinyEncoder):
        before: object = ()

        def patches(self, squares: torch.Tensor) -> torch.Tensor:
            self.before = held()
            return super().patches(squares)

    gc.disable()
    try:
        encoder: TinyEncoder = Held()
        held = weakref.ref(encoder)
        with Catalogue.create(tmp_path / "one") as one:
            index_corpus(one, [photos], encoder=encoder)
        del encoder
        assert held() is not None, "it is not garbage, so this tests nothing"
        asking = Asking()
        with Catalogue.create(tmp_path / "two") as two:
            index_corpus(two, [photos], encoder=asking)
    finally:
        gc.enable()
    assert asking.before is None


def test_garbage_is_left_alone_while_a_gpu_is_kept_busy() -> None:
    with _little_waiting(wanted=True):
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_did_not_fit_is_free_before_it_is_tried_again(catalogue: Catalogue) -> None:
    maker = TextureMaker(TinyEncoder(), catalogue.schema, {})
    held: list[weakref.ref[torch.Tensor]] = []

    def make(part: slice) -> int:
        assert all(each() is None for each in held)
        room = torch.empty(part.stop - part.start)
        held.append(weakref.ref(room))
        if len(room) > 2:
            raise torch.OutOfMemoryError("no room")
        return len(room)

    room = maker._make_room
    freed: list[bool] = []

    def make_room(count: int) -> bool:
        freed.append(all(each() is None for each in held))
        return room(count)

    maker._make_room = make_room  # type: ignore[method-assign]
    assert sum(maker.in_parts("of all", 16, make)) == 16
    assert freed == [True] * 3


def test_a_single_image_that_memory_is_too_small_for_is_an_error(catalogue: Catalogue, photos: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        index_corpus(catalogue, [photos], encoder=Cramped(0))


def test_each_stage_tells_its_time(catalogue: Catalogue, photos: Path) -> None:
    report = index_corpus(catalogue, [photos], encoder=TinyEncoder())
    names = ["read", "claim", "decode", "encode", "draft", "code", "write"]
    assert [stage.name for stage in report.stages] == names
    assert all(0 < stage.share <= 1 and stage.seconds > 0 for stage in report.stages)
    assert index_corpus(catalogue, [photos]).stages == ()


def test_progress_ends_at_the_total(catalogue: Catalogue, photos: Path) -> None:
    seen: list[Progress] = []
    (photos / "bad.png").write_bytes(b"")
    index_corpus(catalogue, [photos], encoder=TinyEncoder(), on_progress=seen.append)
    assert seen[0] == Progress(0, 7, 0)
    assert seen[-1] == Progress(7, 7, 1)


def test_the_order_and_size_of_batches_change_nothing(tmp_path: Path, photos: Path) -> None:
    results = []
    for name, batch_size in (("one", 1), ("many", 50)):
        with Catalogue.create(tmp_path / name) as made:
            made.add_interest("red")
            index_corpus(made, [photos], encoder=TinyEncoder(), batch_size=batch_size)
            results.append(contents(made))
    assert_equal(*results)


@given(
    most=st.integers(1, 600),
    batches=st.floats(0.01, 200),
    shares=st.sampled_from([2, 16, 64]),
)
def test_chunks_are_small_at_both_ends(most: int, batches: float, shares: int) -> None:
    left = total = ceil(batches * most)
    sizes: list[int] = []
    while left > 0:
        sizes.append(chunk_size(most, len(sizes), left, shares))
        left -= sizes[-1]
    assert set(sizes) <= {most, most // 2, most // 4, most // 8} - {0}
    assert sizes[0] == sizes[-1] == max(1, most // 8)
    grown = sizes.index(max(sizes))
    assert sizes == sorted(sizes[:grown]) + sorted(sizes[grown:], reverse=True)
    if total > 2 * shares * most:
        assert sum(size == most for size in sizes) * most > total / 3


def test_another_encoder_is_refused_by_name(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder(1))
    photo(photos / "new.png", 50)
    with pytest.raises(FingerprintMismatchError, match=r"made with encoder tiny-1, but .* is tiny-2"):
        index_corpus(catalogue, [photos], encoder=TinyEncoder(2))


def test_what_cannot_be_asked(catalogue: Catalogue, photos: Path) -> None:
    with pytest.raises(UsageError, match="engine 'spark' is not known"):
        index_corpus(catalogue, [photos], engine="spark")
    with pytest.raises(UsageError, match="batch_size"):
        index_corpus(catalogue, [photos], batch_size=0)
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as reading, pytest.raises(ReadOnlyError, match="cannot index"):
        index_corpus(reading, [photos])


def test_a_full_disk_keeps_what_was_done(small_disk: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for number in range(400):
        photo(photos / f"{number:03}.png", number)
    with Catalogue.create(small_disk / "cat", groups=QUICK) as made:
        made.add_interest("red")
        with pytest.raises(StoreFullError, match="free some space and run the command again"):
            index_corpus(made, [photos], encoder=TinyEncoder())
        done = len(list(made.store.keys()))
        assert 0 < done < 400
        assert list(made.store.check()) == []
    (small_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    with Catalogue.open(small_disk / "cat", "w") as opened:
        encoder = TinyEncoder()
        report = index_corpus(opened, [photos], encoder=encoder)
        assert report.skipped == ()
        assert encoder.encoded == 400 - done
        assert len(list(opened.store.keys())) == 400


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_pass_that_is_stopped_goes_on_where_it_stopped(tmp_path: Path, how: signal.Signals) -> None:
    photos = tmp_path / "photos"
    for number in range(200):
        photo(photos / f"{number:03}.png", number)
    with Catalogue.create(tmp_path / "whole", groups=QUICK) as whole:
        whole.add_interest("red")
        index_corpus(whole, [photos], encoder=TinyEncoder())
        expected = contents(whole)
    with Catalogue.create(tmp_path / "cat", groups=QUICK) as made:
        made.add_interest("red")
    code = (
        "import sys\n"
        "from tests.fakes import TinyEncoder\n"
        "from texcat.catalogue import Catalogue\n"
        "from texcat.indexer import index_corpus\n"
        "with Catalogue.open(sys.argv[1], 'w') as catalogue:\n"
        "    index_corpus(catalogue, [sys.argv[2]], encoder=TinyEncoder(),\n"
        "                 on_progress=lambda p: print(p.done, flush=True))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "cat"), str(photos)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) > 0:
                break
        time.sleep(0.1)
        child.send_signal(how)
    with Catalogue.open(tmp_path / "cat", "w") as opened:
        assert list(opened.store.check()) == []
        done = len(list(opened.store.keys()))
        assert 0 < done < 200
        encoder = TinyEncoder()
        report = index_corpus(opened, [photos], encoder=encoder)
        assert encoder.encoded == 200 - done
        assert report.indexed + report.unchanged == 200
        assert_equal(contents(opened), expected)


def test_a_pass_killed_between_store_and_registry_encodes_nothing_again(
    catalogue: Catalogue, photos: Path
) -> None:
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    # What such a kill leaves: records in the store that no row of the registry names.
    rows = catalogue.registry.files([os.fsencode(photos)])
    catalogue.registry.forget_files(rows)
    encoder = TinyEncoder()
    report = index_corpus(catalogue, [photos], encoder=encoder)
    assert (report.indexed, encoder.encoded) == (6, 0)
    zero = ImageKey.of((photos / "even" / "0.png").read_bytes())
    assert catalogue.registry.image_size(zero) == (64, 48)


def _age(catalogue: Catalogue, photos: Path, seconds: float) -> None:
    """Let the missing files have been missing for `seconds` longer."""
    rows = catalogue.registry.files([os.fsencode(photos)]).values()
    aged = [replace(r, missing_since=r.missing_since - seconds) for r in rows if r.missing_since is not None]
    catalogue.registry.record_files(aged)
