"""Distributions that are made from a store, and made again when they are due."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest
from texcat.catalogue import Catalogue, ImageKey, Planes, TextureRecord
from texcat.catalogue.distribution import Distribution
from texcat.catalogue.errors import ReadOnlyError
from texcat.catalogue.quantise import dequantise, quantise
from texcat.catalogue.types import InterestVectors
from texcat.indexer import Progress, index_corpus, statistics
from texcat.indexer.encoders import load_encoder
from texcat.indexer.encoders.tensors import phrase_vectors
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.indexer.statistics import interest_scores, refresh_distributions
from texcat.indexer.textures import TextureMaker

from ..fakes import TinyEncoder
from .test_indexing import photo

VECTORS = InterestVectors(np.ones(2, np.float32), np.ones(2, np.float32))


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    """A catalogue with the interests 1 and 2, in one file of textures, and no image."""
    with Catalogue.create(tmp_path / "cat", shards=1) as made:
        made.adopt_encoder("tiny", 0.0, 1.0)
        ids = [made.add_interest(phrase).id for phrase in ("red", "blue")]
        made.registry.put_vectors("tiny", dict.fromkeys(ids, VECTORS))
        yield made


def key(number: int) -> ImageKey:
    return ImageKey.of(number.to_bytes(4, "big"))


def map_of(number: int, interest: int) -> Planes:
    return quantise(
        np.random.default_rng([number, interest]).normal(interest, 1, (1, 16, 16)).astype(np.float32)
    )


def add(catalogue: Catalogue, numbers: Iterable[int], interests: Iterable[int] = (1, 2)) -> None:
    base = quantise(np.zeros((len(catalogue.schema.stored), 32, 32), np.float32))
    chosen = list(interests)
    catalogue.store.write(TextureRecord(key(n), base, {i: map_of(n, i) for i in chosen}) for n in numbers)


def assert_equal(left: Distribution, right: Distribution) -> None:
    np.testing.assert_array_equal(left.table, right.table)
    assert (left.low, left.high, left.images, left.corpus) == (
        right.low,
        right.high,
        right.images,
        right.corpus,
    )


def expected(numbers: Iterable[int], interest: int) -> Distribution:
    maps = np.concatenate([dequantise(map_of(number, interest)) for number in numbers])
    return Distribution.of(maps, len(maps))


def test_each_interest_gets_the_distribution_of_its_maps(catalogue: Catalogue) -> None:
    add(catalogue, range(20))
    made = refresh_distributions(catalogue)
    kept = catalogue.registry.distributions("tiny")
    assert made.keys() == kept.keys() == {1, 2}
    for interest in (1, 2):
        assert_equal(made[interest], expected(range(20), interest))
        assert_equal(made[interest], kept[interest])


def test_it_is_made_again_when_the_corpus_has_changed_by_more_than_a_tenth(catalogue: Catalogue) -> None:
    add(catalogue, range(20))
    refresh_distributions(catalogue)
    add(catalogue, range(20, 22))
    assert refresh_distributions(catalogue)[1].corpus == 20
    add(catalogue, range(22, 23))
    assert_equal(refresh_distributions(catalogue)[1], expected(range(23), 1))
    catalogue.store.delete(map(key, range(20)))
    assert_equal(refresh_distributions(catalogue)[1], expected(range(20, 23), 1))


def test_it_is_made_again_when_most_of_its_maps_came_later(catalogue: Catalogue) -> None:
    add(catalogue, range(20), [1])
    assert refresh_distributions(catalogue).keys() == {1}
    add(catalogue, range(5), [2])
    assert refresh_distributions(catalogue)[2].images == 5
    add(catalogue, range(5, 20), [2])
    assert_equal(refresh_distributions(catalogue)[2], expected(range(20), 2))


def test_writing_an_image_twice_counts_it_once(catalogue: Catalogue) -> None:
    add(catalogue, range(5))
    add(catalogue, range(5))
    assert_equal(refresh_distributions(catalogue)[2], expected(range(5), 2))


def test_other_vectors_ask_for_another_distribution(catalogue: Catalogue) -> None:
    add(catalogue, range(5), [1])
    refresh_distributions(catalogue)
    add(catalogue, range(5, 10), [1])
    catalogue.store.delete(map(key, range(5)))
    catalogue.registry.put_vectors("tiny", {1: VECTORS})
    assert_equal(refresh_distributions(catalogue)[1], expected(range(5, 10), 1))


def test_a_large_corpus_is_sampled(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "SAMPLE_IMAGES", 8)
    add(catalogue, range(30))
    first = sorted(range(30), key=key)[:8]  # by digest: no order of the files comes through
    made = refresh_distributions(catalogue)[1]
    assert (made.images, made.corpus) == (8, 30)
    np.testing.assert_array_equal(made.table, expected(first, 1).table)


def test_a_damaged_record_is_left_out(
    tmp_path: Path, catalogue: Catalogue, caplog: pytest.LogCaptureFixture
) -> None:
    add(catalogue, range(20))
    catalogue.close()
    shard = str(tmp_path / "cat" / "shards" / "0000.lmdb")
    with lmdb.open(shard, subdir=False) as environment, environment.begin(write=True) as transaction:
        name = key(3) + (1).to_bytes(4, "big")
        value = transaction.get(name)
        assert value is not None
        transaction.put(name, value[:-1] + bytes([value[-1] ^ 1]))
    with Catalogue.open(tmp_path / "cat", "w") as again, caplog.at_level(logging.WARNING):
        made = refresh_distributions(again)
    assert f"record {key(3)}/maps, part 1 is damaged" in caplog.text
    np.testing.assert_array_equal(made[1].table, expected(sorted({*range(20)} - {3}), 1).table)


def test_a_catalogue_without_images_or_interests_has_none(tmp_path: Path, catalogue: Catalogue) -> None:
    assert refresh_distributions(catalogue) == {}
    with Catalogue.create(tmp_path / "new") as new:
        assert refresh_distributions(new) == {}


def test_a_catalogue_open_to_read_is_refused(tmp_path: Path, catalogue: Catalogue) -> None:
    catalogue.close()
    with Catalogue.open(tmp_path / "cat") as reading, pytest.raises(ReadOnlyError, match="distributed"):
        refresh_distributions(reading)


def test_a_pass_ends_with_distributions_even_after_one_that_was_interrupted(tmp_path: Path) -> None:
    for number in range(6):
        photo(tmp_path / "photos" / f"{number}.png", number)

    def interrupt(progress: Progress) -> None:
        if progress.done == progress.total:
            raise KeyboardInterrupt

    with Catalogue.create(tmp_path / "fresh", groups=["appearance"]) as catalogue:
        red = catalogue.add_interest("red").id
        with pytest.raises(KeyboardInterrupt):
            index_corpus(catalogue, [tmp_path / "photos"], encoder=TinyEncoder(), on_progress=interrupt)
        assert catalogue.registry.distributions("tiny-1") == {}
        report = index_corpus(catalogue, [tmp_path / "photos"], encoder=TinyEncoder())
        assert (report.indexed, report.unchanged) == (0, 6)
        made = catalogue.registry.distributions("tiny-1")[red]
        maps = np.concatenate([dequantise(planes) for _, planes in catalogue.store.scan(red)])
        assert_equal(made, Distribution.of(maps, 6))


def test_scores_are_the_means_of_the_maps(catalogue: Catalogue) -> None:
    add(catalogue, range(10))
    images = [*map(key, range(10)), key(99)]
    scores = interest_scores(catalogue.store, images, [2, 7])
    assert (scores.shape, scores.dtype) == ((2, 11), np.float32)
    for image, score in zip(images[:10], scores[0, :10], strict=True):
        assert score == pytest.approx(dequantise(catalogue.store.read(image, [2]).maps[2]).mean(), abs=1e-6)
    assert np.isnan(scores[0, 10])  # it is not held
    assert np.isnan(scores[1]).all()  # nor are its maps


def test_photos_without_the_category_show_no_confident_peak(shared_data: Path, catalogue: Catalogue) -> None:
    names = json.loads((shared_data / "coco128" / "names.json").read_text())["boxes"]
    labels = {
        path.stem: {names[line.split()[0]] for line in path.read_text().splitlines()}
        for path in sorted((shared_data / "coco128" / "boxes").glob("*.txt"))
    }
    wanted = ("airplane", "elephant")
    photos = [stem for stem, shown in labels.items() if shown & {*wanted}]
    photos += [stem for stem, shown in labels.items() if not shown & {*wanted}][:5]
    assert len(photos) == 14
    encoder = load_encoder("builtin", "cpu")
    vectors = phrase_vectors(encoder, dict(enumerate(wanted, 1)))
    base = quantise(np.zeros((len(catalogue.schema.stored), 32, 32), np.float32))
    maker = TextureMaker(encoder, catalogue.schema, vectors)
    for number, stem in enumerate(photos):
        image = load_image(shared_data / "coco128" / "images" / f"{stem}.jpg").image
        (features,) = maker.encode(maker.batch([to_square(image, encoder.input_size)]))
        maps = {i: quantise(maker.map(vectors[i].direction, features)[None]) for i in vectors}
        catalogue.store.write([TextureRecord(key(number), base, maps)])

    made = refresh_distributions(catalogue)
    for interest, phrase in enumerate(wanted, 1):
        maps_of = [catalogue.store.read(key(number)).maps[interest] for number in range(len(photos))]
        has = np.array([phrase in labels[stem] for stem in photos])
        rare = np.array([(made[interest].percentile(dequantise(m)) > 0.95).mean() for m in maps_of])
        peak = np.array([(m.values > 0.8 * 255).mean() for m in maps_of])  # each photo on a scale of its own
        assert rare[has].mean() > 5 * rare[~has].mean()
        assert rare[~has].mean() < 0.03
        assert peak[~has].mean() > peak[has].mean()
        strengths = [made[interest].strength(dequantise(m)).max() for m in maps_of]
        assert np.median(np.array(strengths)[has]) > 5 * np.median(np.array(strengths)[~has])
