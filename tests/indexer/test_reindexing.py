"""Making a catalogue anew with another encoder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from texcat.catalogue import Catalogue, FingerprintMismatchError, ReadOnlyError
from texcat.catalogue.memory import Memory
from texcat.catalogue.verifying import verify
from texcat.indexer import index_corpus
from texcat.indexer.reindexing import Reindexing, plan_reindexing, reindex
from texcat.retrieval import Retriever

from ..fakes import TinyEncoder
from .test_inputs import picture, shard

NOW = time.time() + 3600


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.png").write_bytes(picture(number))
    (folder / "copy.png").write_bytes(picture(0))
    return folder


@pytest.fixture
def catalogue(tmp_path: Path, photos: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", groups=("appearance",)) as made:
        made.add_interest("red", weight=2.0)
        made.add_interest("this", [photos / "1.png"])
        index_corpus(made, [photos, shard(tmp_path / "0000.tar", range(10, 13))], encoder=TinyEncoder())
        Retriever(made, encoder=TinyEncoder()).lookup(photos / "2.png", "Where is the red one?")
    with Catalogue.open(tmp_path / "cat", "w") as opened:
        yield opened


def contents(catalogue: Catalogue) -> dict[bytes, object]:
    return {
        key: (repr(catalogue.store.read(key)), catalogue.store.code(key)) for key in catalogue.store.keys()
    }


def uses(catalogue: Catalogue) -> object:
    """What was asked about, and how much that counts at one moment."""
    with Memory.of(catalogue, read_only=True) as memory:
        return memory.uses(NOW, catalogue.settings.half_life)


def test_a_catalogue_made_anew_is_one_that_was_made_with_the_encoder(
    catalogue: Catalogue, photos: Path, tmp_path: Path
) -> None:
    second = TinyEncoder(2)
    assert plan_reindexing(catalogue, second) == Reindexing("tiny-1", "tiny-2", 8, 0)
    assert len(contents(catalogue)) == 8, "a plan changes nothing"
    interests, files, missed = catalogue.interests(), catalogue.registry.all_files(), uses(catalogue)
    assert missed
    with pytest.raises(FingerprintMismatchError, match="`texcat reindex` with the second"):
        catalogue.check_encoder("tiny-2")
    report = reindex(catalogue, second)
    assert (report.indexed, report.unchanged, report.unavailable, report.skipped) == (8, 0, 0, ())
    assert second.encoded >= 8
    assert catalogue.settings.fingerprint == "tiny-2"
    assert (catalogue.interests(), catalogue.registry.all_files()) == (interests, files)
    assert list(verify(catalogue)) == []
    assert uses(catalogue) == missed
    with Catalogue.create(tmp_path / "other", groups=("appearance",)) as other:
        other.add_interest("red", weight=2.0)
        other.add_interest("this", [photos / "1.png"])
        index_corpus(other, [photos, tmp_path / "0000.tar"], encoder=TinyEncoder(2))
        assert contents(other).keys() == contents(catalogue).keys()
    hit = Retriever(catalogue, encoder=second).lookup(photos / "2.png", "red")
    assert hit.tier == "stored"
    assert index_corpus(catalogue, [photos, tmp_path / "0000.tar"], encoder=second).unchanged == 9


def test_it_goes_on_where_it_was_stopped(catalogue: Catalogue, photos: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(progress: object) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        reindex(catalogue, TinyEncoder(2), on_progress=stop)
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path, "w") as opened:
        assert opened.settings.fingerprint == "tiny-2"
        (some,) = [known for known in opened.registry.all_files().values() if known.path.endswith(b"3.png")]
        index_corpus(opened, [os.fsdecode(some.path)], encoder=TinyEncoder(2))
        encoder = TinyEncoder(2)
        report = reindex(opened, encoder)
        assert (report.indexed, report.unchanged) == (7, 1)
        assert reindex(opened, encoder).unchanged == 8
        assert list(verify(opened)) == []


def test_an_interruption_among_the_old_records_mixes_nothing(catalogue: Catalogue) -> None:
    keys = list(catalogue.store.keys())
    catalogue.store.delete(keys[:3])  # as it is when it is killed there
    assert catalogue.settings.fingerprint == "tiny-1"
    assert reindex(catalogue, TinyEncoder(2)).indexed == 8
    assert list(verify(catalogue)) == []


def test_images_without_a_file_get_textures_when_it_is_back(
    catalogue: Catalogue, photos: Path, tmp_path: Path
) -> None:
    away = (photos / "4.png").rename(tmp_path / "away.png")
    (photos / "3.png").write_bytes(picture(3) + b"changed")
    assert plan_reindexing(catalogue, TinyEncoder(2)).unavailable == 2
    report = reindex(catalogue, TinyEncoder(2))
    assert (report.indexed, report.unavailable) == (6, 2)
    away.rename(photos / "4.png")
    assert index_corpus(catalogue, [photos], encoder=TinyEncoder(2)).indexed == 2
    assert list(verify(catalogue)) == []


def test_a_catalogue_that_is_open_to_read_is_left_alone(catalogue: Catalogue) -> None:
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as opened:
        assert plan_reindexing(opened, TinyEncoder(2)).images == 8
        with pytest.raises(ReadOnlyError, match="cannot reindex"):
            reindex(opened, TinyEncoder(2))
