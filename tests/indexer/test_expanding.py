"""Expansion: every image gets the maps of an interest from its code, and none goes through the encoder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from texcat.catalogue import (
    Catalogue,
    CatalogueError,
    ImageKey,
    InvalidPhraseError,
    ReadOnlyError,
    TextureRecord,
)
from texcat.catalogue.codec import CODE_PART
from texcat.catalogue.codes import code_maps
from texcat.catalogue.quantise import dequantise
from texcat.catalogue.verifying import verify
from texcat.indexer import Progress, expanding, index_corpus
from texcat.indexer.expanding import Pace, expand_interest

from ..catalogue.strategies import same_planes
from ..fakes import TinyEncoder

QUICK = ("appearance",)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of five small photos: colours that change slowly, and noise upon them."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(5):
        photo(folder / f"{seed}.png", seed)
    return folder


@pytest.fixture
def catalogue(tmp_path: Path, photos: Path) -> Iterator[Catalogue]:
    """The photos, indexed through one interest."""
    with Catalogue.create(tmp_path / "cat", groups=QUICK) as made:
        made.add_interest("red")
        index_corpus(made, [photos], encoder=TinyEncoder())
        yield made


def photo(path: Path, seed: int) -> Path:
    numbers = np.random.default_rng(seed)
    colours = Image.fromarray(numbers.integers(0, 256, (4, 4, 3), np.uint8)).resize(
        (64, 64), Image.Resampling.BICUBIC
    )
    noise = numbers.integers(-20, 20, (64, 64, 3))
    Image.fromarray(np.clip(np.asarray(colours) + noise, 0, 255).astype(np.uint8)).save(path)
    return path


def maps(
    catalogue: Catalogue, phrase: str
) -> dict[ImageKey, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    interest = catalogue.registry.find_interest(phrase)
    assert interest is not None
    return {key: dequantise(planes)[0] for key, planes in catalogue.store.scan(interest.id)}


def exact_maps(
    catalogue: Catalogue, photos: Path, phrase: str, tmp_path: Path
) -> dict[ImageKey, TextureRecord]:
    """Records as an indexing pass makes them."""
    with Catalogue.create(tmp_path / "exact", groups=QUICK) as made:
        for interest in catalogue.interests():
            made.add_interest(interest.phrase)
        index_corpus(made, [photos], encoder=TinyEncoder())
        return {key: made.store.read(key) for key in made.store.keys()}


def test_every_image_gets_the_map_that_its_code_gives(catalogue: Catalogue) -> None:
    encoder = TinyEncoder()
    report = expand_interest(catalogue, ["green field", "blue sky"], encoder=encoder)
    assert encoder.encoded == 0
    assert [interest.phrase for interest in report.interests] == ["green field", "blue sky"]
    assert (report.filled, report.present, report.uncoded) == (10, 0, 0)
    assert (report.unavailable, report.skipped) == (0, ())
    vectors = catalogue.registry.vectors("tiny-1")
    for interest in report.interests:
        coordinates = catalogue.codebook().coordinates(vectors[interest.id].direction[None])
        stored = maps(catalogue, interest.phrase)
        assert stored.keys() == set(catalogue.store.keys())
        for key, code in catalogue.store.codes():
            (made,) = code_maps(code, coordinates)
            assert np.abs(stored[key] - made).max() <= 0.51 * np.ptp(made) / 255
    assert list(verify(catalogue)) == []


def test_the_maps_are_close_to_those_of_the_encoder(
    catalogue: Catalogue, photos: Path, tmp_path: Path
) -> None:
    expand_interest(catalogue, ["green field"], encoder=TinyEncoder())
    exact = exact_maps(catalogue, photos, "green field", tmp_path)
    for key, plane in maps(catalogue, "green field").items():
        assert np.corrcoef(plane.ravel(), dequantise(exact[key].maps[2]).ravel())[0, 1] > 0.95


def test_what_is_stored_already_stays_as_it_is(catalogue: Catalogue) -> None:
    before = {key: catalogue.store.read(key) for key in catalogue.store.keys()}
    report = expand_interest(catalogue, ["  RED ", "green field"], encoder=TinyEncoder())
    assert (report.filled, report.present) == (5, 5)
    assert report.interests[0] == catalogue.interests()[0], "it keeps its id and weight"
    for key, record in before.items():
        after = catalogue.store.read(key)
        assert record.base is not None
        assert after.base is not None
        assert same_planes(after.base, record.base)
        assert same_planes(after.maps[1], record.maps[1])
    again = expand_interest(catalogue, ["green field"])
    assert (again.filled, again.present) == (0, 5)


def test_an_interest_keeps_its_weight(catalogue: Catalogue) -> None:
    catalogue.add_interest("green field", weight=3.0)
    report = expand_interest(catalogue, ["green field", "green  FIELD"], encoder=TinyEncoder())
    assert [(i.phrase, i.weight) for i in report.interests] == [("green field", 3.0)]
    assert report.filled == 5


def test_images_without_a_code_are_counted(catalogue: Catalogue, photos: Path) -> None:
    photo(photos / "new.png", 100)
    index_corpus(catalogue, [photos], encoder=TinyEncoder(), codes=False)
    key, _ = next(catalogue.store.codes())
    name = key + CODE_PART.to_bytes(4, "big")
    catalogue.store._file(key).change(lambda transaction: transaction.put(name, b"damaged" * 9))
    report = expand_interest(catalogue, ["green field", "red"], encoder=TinyEncoder())
    assert (report.filled, report.present, report.uncoded) == (4, 6, 2)
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    assert len(maps(catalogue, "green field")) == 6
    assert expand_interest(catalogue, ["green field"]).present == 6


def test_a_record_that_is_damaged_stops_nothing(catalogue: Catalogue) -> None:
    key = next(catalogue.store.keys())
    catalogue.store._file(key).change(lambda transaction: transaction.put(key + bytes(4), b"damaged" * 9))
    report = expand_interest(catalogue, ["green field"], encoder=TinyEncoder())
    assert (report.filled, report.uncoded) == (4, 1)
    assert key not in maps(catalogue, "green field")


def test_an_empty_catalogue_gets_the_interest(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "empty") as made:
        report = expand_interest(made, ["green field"])
        assert (report.filled, report.present, report.uncoded) == (0, 0, 0)
        assert [interest.phrase for interest in made.interests()] == ["green field"]


def test_what_cannot_be_asked(tmp_path: Path, catalogue: Catalogue, photos: Path) -> None:
    with pytest.raises(InvalidPhraseError):
        expand_interest(catalogue, ["green field", " "])
    assert len(catalogue.interests()) == 1
    with Catalogue.create(tmp_path / "uncoded", groups=QUICK) as uncoded:
        index_corpus(uncoded, [photos], encoder=TinyEncoder(), codes=False)
        with pytest.raises(CatalogueError, match="has no codes yet; `texcat index` makes them"):
            expand_interest(uncoded, ["green field"], encoder=TinyEncoder())
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as reading, pytest.raises(ReadOnlyError, match="cannot expand an interest"):
        expand_interest(reading, ["green field"])
    (path / "codebook").unlink()
    with (
        Catalogue.open(path, "w") as lost,
        pytest.raises(CatalogueError, match="is lost; `texcat index` makes it again"),
    ):
        expand_interest(lost, ["green field"], encoder=TinyEncoder())


def test_progress_counts_images(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expanding, "CHUNK", 2)
    seen: list[Progress] = []
    expand_interest(catalogue, ["green field"], encoder=TinyEncoder(), on_progress=seen.append)
    assert seen == [Progress(done, 5, 0) for done in (0, 2, 4, 5)]


def test_exact_replaces_what_was_made_from_codes_and_nothing_else(
    catalogue: Catalogue, photos: Path, tmp_path: Path
) -> None:
    expand_interest(catalogue, ["green field"], encoder=TinyEncoder())
    photo(photos / "new.png", 100)
    index_corpus(catalogue, [photos], encoder=TinyEncoder())  # of this one, the map is the encoder's own
    encoder = TinyEncoder()
    report = expand_interest(catalogue, ["green field", "red"], exact=True, encoder=encoder)
    assert (encoder.encoded, report.filled, report.present) == (5, 5, 7)
    exact = exact_maps(catalogue, photos, "green field", tmp_path)
    assert exact.keys() == set(catalogue.store.keys())
    for key, record in exact.items():
        assert all(same_planes(catalogue.store.read(key).maps[i], record.maps[i]) for i in (1, 2))
    encoder = TinyEncoder()
    again = expand_interest(catalogue, ["green field"], exact=True, encoder=encoder)
    assert (encoder.encoded, again.filled, again.present) == (0, 0, 6)


def test_exact_fills_a_catalogue_that_has_no_codes(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "uncoded", groups=QUICK) as made:
        index_corpus(made, [photos], encoder=TinyEncoder(), codes=False)
        report = expand_interest(made, ["green field"], exact=True, encoder=TinyEncoder())
        assert (report.filled, report.present) == (5, 0)
        assert made.store.stats().codes == 0


def test_exact_keeps_the_map_of_an_image_whose_file_is_gone_changed_or_unreadable(
    catalogue: Catalogue, photos: Path
) -> None:
    expand_interest(catalogue, ["green field"], encoder=TinyEncoder())
    before = maps(catalogue, "green field")
    keys = {name: ImageKey.of((photos / name).read_bytes()) for name in ("0.png", "1.png", "2.png")}
    (photos / "0.png").unlink()
    photo(photos / "1.png", 50)
    unreadable = photos / "2.png"
    status = unreadable.stat()
    unreadable.write_bytes(bytes(status.st_size))
    os.utime(unreadable, ns=(status.st_atime_ns, status.st_mtime_ns))
    report = expand_interest(catalogue, ["green field"], exact=True, encoder=TinyEncoder())
    assert (report.filled, report.present, report.unavailable) == (2, 0, 2)
    assert [skipped.path for skipped in report.skipped] == [str(unreadable)]
    after = maps(catalogue, "green field")
    for key in keys.values():
        assert np.array_equal(after[key], before[key])
    assert sum(not np.array_equal(after[key], before[key]) for key in before) == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_expansion_that_is_stopped_goes_on_where_it_stopped(
    catalogue: Catalogue, how: signal.Signals
) -> None:
    key, code = next(catalogue.store.codes())
    record = replace(catalogue.store.read(key), code=code)
    catalogue.store.write(replace(record, key=ImageKey.of(b"%d" % number)) for number in range(2_000))
    expand_interest(catalogue, ["green field"], encoder=TinyEncoder())
    expected = {key: plane.tobytes() for key, plane in maps(catalogue, "green field").items()}
    catalogue.remove_interest("green field")
    path = catalogue.path
    catalogue.close()
    code_text = (
        "import sys\n"
        "from tests.fakes import TinyEncoder\n"
        "from texcat.catalogue import Catalogue\n"
        "from texcat.indexer import expanding\n"
        "expanding.CHUNK = 50\n"
        "with Catalogue.open(sys.argv[1], 'w') as catalogue:\n"
        "    expanding.expand_interest(catalogue, ['green field'], encoder=TinyEncoder(),\n"
        "                              on_progress=lambda p: print(p.done, flush=True))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code_text, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) > 0:
                break
        child.send_signal(how)
    assert child.returncode != 0
    with Catalogue.open(path, "w") as opened:
        assert list(opened.store.check()) == []
        done = len(maps(opened, "green field"))
        assert 0 < done < 2_005
        report = expand_interest(opened, ["green field"])
        assert (report.filled, report.present) == (2_005 - done, done)
        assert {key: plane.tobytes() for key, plane in maps(opened, "green field").items()} == expected


def test_an_archived_interest_is_left_out_of_passes_and_comes_back_when_it_is_expanded(
    catalogue: Catalogue, photos: Path
) -> None:
    expand_interest(catalogue, ["green field"], encoder=TinyEncoder())
    catalogue.archive_interest("green field", 1.0)
    photo(photos / "new.png", 100)
    report = index_corpus(catalogue, [photos], encoder=TinyEncoder())
    assert (report.indexed, report.unchanged) == (1, 5)
    assert maps(catalogue, "green field") == {}
    back = expand_interest(catalogue, ["green field"])
    assert (back.filled, back.interests[0].archived) == (6, None)


def test_an_expansion_can_be_told_to_stop_between_chunks(catalogue: Catalogue) -> None:
    answers = iter([True, True, False])
    pace = Pace(images=2, gentle=True, go_on=lambda: next(answers))
    seen: list[Progress] = []
    report = expand_interest(
        catalogue, ["green field"], encoder=TinyEncoder(), pace=pace, on_progress=seen.append
    )
    assert (report.filled, report.stopped) == (4, True)
    assert seen[-1] == Progress(4, 5, 0)
    rest = expand_interest(catalogue, ["green field"])
    assert (rest.filled, rest.present, rest.stopped) == (1, 4, False)


@pytest.mark.parametrize("how", ["remove", "archive"])
def test_an_interest_that_goes_while_it_is_expanded_leaves_no_maps(catalogue: Catalogue, how: str) -> None:
    asked = 0

    def go_on() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:  # as another thread of this process may
            if how == "remove":
                catalogue.remove_interest("green field")
            else:
                catalogue.archive_interest("green field", 1.0)
        return True

    pace = Pace(images=1, gentle=True, go_on=go_on)
    expand_interest(catalogue, ["green field", "blue sky"], encoder=TinyEncoder(), pace=pace)
    held = catalogue.store.stats().maps
    assert {i.phrase: held.get(i.id, 0) for i in catalogue.mapped_interests()} == {"red": 5, "blue sky": 5}
    assert len(held) == 2
    assert list(verify(catalogue)) == []
