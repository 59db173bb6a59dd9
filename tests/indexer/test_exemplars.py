"""Interests that images show: the arithmetic, the corpus they are told from, and files that come and go."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image
from texcat.catalogue import Box, Catalogue, Exemplar, ImageKey
from texcat.catalogue.errors import ImageReadError, UnknownInterestError, UsageError
from texcat.catalogue.quantise import dequantise
from texcat.indexer import index_corpus
from texcat.indexer.exemplars import SAMPLE_IMAGES, box_mean, corpus_mean, exemplar_direction, join_words
from texcat.indexer.indexing import ensure_vectors

from ..fakes import TinyEncoder

Floats = NDArray[np.float32]
RED, GREEN, BLUE, GREY = (220, 30, 30), (30, 200, 30), (30, 30, 220), (120, 120, 120)

positive = st.floats(0.125, 8, width=32)
means = arrays(np.float32, st.tuples(st.integers(1, 4), st.just(5)), elements=positive)
corpora = arrays(np.float32, 5, elements=positive)
edges = st.tuples(st.integers(0, 16), st.integers(0, 16)).filter(lambda pair: pair[0] < pair[1])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos of half red and half grey, and of blue, green and grey."""
    folder = tmp_path / "photos"
    folder.mkdir()
    halves(folder / "red.png", RED, GREY)
    halves(folder / "blue.png", GREY, BLUE)
    halves(folder / "green.png", GREEN, GREY)
    halves(folder / "mixed.png", BLUE, RED)
    return folder


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", groups=["appearance"]) as made:
        yield made


def halves(path: Path, left: tuple[int, int, int], right: tuple[int, int, int]) -> Path:
    image = Image.new("RGB", (64, 64), left)
    image.paste(right, (32, 0, 64, 64))
    image.save(path)
    return path


def stored(catalogue: Catalogue, photo: Path, interest: int) -> Floats:
    key = ImageKey.of(photo.read_bytes())
    return dequantise(catalogue.store.read(key, [interest]).maps[interest])[0]


# --- arithmetic --------------------------------------------------------------------------------------------


@given(arrays(np.float32, (3, 16, 16), elements=st.floats(-4, 4, width=32)), edges, edges)
def test_the_mean_over_whole_patches(features: Floats, x: tuple[int, int], y: tuple[int, int]) -> None:
    box = Box(x[0] / 16, y[0] / 16, x[1] / 16, y[1] / 16)
    expected = features[:, y[0] : y[1], x[0] : x[1]].mean((1, 2))
    np.testing.assert_allclose(box_mean(features, box), expected, atol=1e-5)


def test_a_patch_counts_by_its_part_in_the_box() -> None:
    features = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    # Half of column 1 and all of column 2, of the upper row; a quarter of them from the lower.
    box = Box(0.375, 0, 0.75, 2 / 3)
    upper, lower = (0.5 * 1 + 2) / 1.5, (0.5 * 5 + 6) / 1.5
    assert box_mean(features, box)[0] == pytest.approx((upper * 3 + lower) / 4)
    assert box_mean(features, None)[0] == pytest.approx(3.5)
    assert box_mean(features, Box(0.3, 0.6, np.nextafter(0.3, 1), 0.7))[0] == pytest.approx(5)


@given(means, corpora)
def test_the_corpus_reads_0_and_exemplars_1(means: Floats, corpus: Floats) -> None:
    try:
        direction = exemplar_direction(means, corpus).astype(np.float64)
    except UsageError:
        unit = means / np.linalg.norm(means, axis=1, keepdims=True)
        assert abs(np.cos(_angle(unit.mean(0), corpus))) > 1 - 1e-5
        return
    lengths = np.linalg.norm(means.astype(np.float64), axis=1)
    assert direction @ corpus == pytest.approx(
        0, abs=1e-5 * np.linalg.norm(direction) * np.linalg.norm(corpus)
    )
    assert lengths.mean() * np.mean(means @ direction / lengths) == pytest.approx(1, rel=1e-2)


@given(means, corpora, corpora)
def test_words_have_the_length_of_exemplars(means: Floats, corpus: Floats, words: Floats) -> None:
    direction = np.array([1, -1, 0, 0, 0], np.float32) * np.linalg.norm(means)
    joined = join_words(direction, words, np.zeros(5, np.float32))
    half = joined.astype(np.float64) - direction / 2
    assert np.linalg.norm(half) == pytest.approx(np.linalg.norm(direction) / 2, rel=1e-4)
    assert np.cos(_angle(half, words)) == pytest.approx(1, abs=1e-4)
    np.testing.assert_array_equal(join_words(direction, np.zeros(5, np.float32), corpus), direction)


def test_exemplars_that_are_the_corpus_are_refused() -> None:
    corpus = np.array([1, 2, 3], np.float32)
    for means in (corpus[None], 5 * corpus[None], np.zeros((1, 3), np.float32)):
        with pytest.raises(UsageError, match="look like all images do on average; give a box"):
            exemplar_direction(means, corpus)


def _angle(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    return float(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


# --- the corpus --------------------------------------------------------------------------------------------


def test_the_mean_is_of_all_patches_and_is_made_once(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    encoder = TinyEncoder()
    mean = corpus_mean(catalogue, encoder)
    colours = np.array([RED, GREY, GREY, BLUE, GREEN, GREY, BLUE, RED]) / 255 - 0.5
    np.testing.assert_allclose(mean, colours.mean(0), atol=1e-3)
    np.testing.assert_array_equal(corpus_mean(catalogue, encoder), mean)
    assert encoder.encoded == 4


def test_the_mean_grows_with_a_small_catalogue(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos / "red.png"], codes=False, encoder=TinyEncoder())
    before = corpus_mean(catalogue, TinyEncoder())
    index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    assert not np.allclose(corpus_mean(catalogue, TinyEncoder()), before)


def test_the_mean_takes_a_sample_and_passes_over_what_is_gone(catalogue: Catalogue, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(SAMPLE_IMAGES + 10):
        halves(folder / f"{number}.png", (number, 0, 0), (0, number, 0))
    shutil.copy(folder / "0.png", folder / "copy.png")
    index_corpus(catalogue, [folder], codes=False, encoder=TinyEncoder())
    for number in range(5):
        (folder / f"{number}.png").unlink()
    encoder = TinyEncoder()
    corpus_mean(catalogue, encoder)
    assert encoder.encoded == SAMPLE_IMAGES
    kept = catalogue.registry.corpus_mean(encoder.fingerprint)
    assert kept is not None
    assert kept.images == SAMPLE_IMAGES


def test_without_any_image_there_is_no_mean(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match=r"no images that exemplars can be told from; `texcat index`"):
        corpus_mean(catalogue, TinyEncoder())


# --- interests ---------------------------------------------------------------------------------------------


def test_the_first_pass_makes_the_maps(catalogue: Catalogue, photos: Path) -> None:
    shown = catalogue.add_interest("my kite", [Exemplar(str(photos / "red.png"), Box(0, 0, 0.5, 1))])
    words = catalogue.add_interest("blue")
    report = index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    assert (report.indexed, report.skipped) == (4, ())
    plane = stored(catalogue, photos / "mixed.png", shown.id)
    np.testing.assert_allclose(plane[:, 8:], 1, atol=0.02)
    assert plane[:, :8].max() < 0.3
    every = [stored(catalogue, photo, shown.id).mean() for photo in sorted(photos.iterdir())]
    assert np.mean(every) == pytest.approx(0, abs=0.02)
    assert stored(catalogue, photos / "mixed.png", words.id)[:, :8].min() > 0.2


def test_an_interest_is_matched_by_its_name(catalogue: Catalogue, photos: Path) -> None:
    shown = catalogue.add_interest("my kite", [photos / "red.png"])
    index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    encoder = TinyEncoder()
    text = catalogue.registry.vectors(encoder.fingerprint)[shown.id].text
    np.testing.assert_array_equal(text, encoder.text(["my kite"])[0].numpy())


def test_words_beside_exemplars(catalogue: Catalogue, photos: Path) -> None:
    exemplar = Exemplar(str(photos / "red.png"), Box(0, 0, 0.5, 1))
    both = catalogue.add_interest("blue kite", [exemplar], with_words=True)
    index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    plane = stored(catalogue, photos / "mixed.png", both.id)
    green = stored(catalogue, photos / "green.png", both.id)[:, :8]
    assert plane[:, :8].min() > green.max() + 0.2
    assert plane[:, 8:].min() > green.max() + 0.2


def test_other_exemplars_light_up_elsewhere(catalogue: Catalogue, photos: Path) -> None:
    catalogue.add_interest("my kite", [Exemplar(str(photos / "red.png"), Box(0, 0, 0.5, 1))])
    index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    again = catalogue.add_interest("my kite", [Exemplar(str(photos / "blue.png"), Box(0.5, 0, 1, 1))])
    report = index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    assert report.indexed == 4
    plane = stored(catalogue, photos / "mixed.png", again.id)
    assert plane[:, :8].min() > 0.9
    assert plane[:, 8:].max() < 0.3


def test_an_exemplar_that_moved_is_found_by_its_content(catalogue: Catalogue, photos: Path) -> None:
    index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    shutil.copy(photos / "red.png", photos.parent / "outside.png")
    shown = catalogue.add_interest("my kite", [photos.parent / "outside.png"])
    (photos.parent / "outside.png").write_bytes(b"something else by now")
    assert shown.id in ensure_vectors(catalogue, TinyEncoder(), [shown.id])


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_an_exemplar_that_is_lost_stops_no_pass(
    catalogue: Catalogue, photos: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    outside = halves(photos.parent / "outside.png", RED, GREEN)
    shown = catalogue.add_interest("my kite", [outside])
    words = catalogue.add_interest("blue")
    outside.unlink()
    if change == "changed":
        halves(outside, BLUE, RED)
    with caplog.at_level(logging.WARNING):
        report = index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
    assert report.indexed == 4
    assert catalogue.store.held(ImageKey.of((photos / "red.png").read_bytes())) == {words.id}
    assert "interest 'my kite' gets no maps" in caplog.text
    with pytest.raises(
        ImageReadError, match=r"not there as it was .* exemplar of interest 'my kite'"
    ) as caught:
        ensure_vectors(catalogue, TinyEncoder(), [shown.id])
    assert caught.value.path == str(outside)


def test_an_exemplar_that_is_no_image_stops_no_pass(
    catalogue: Catalogue, photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (photos.parent / "page.png").write_text("<html></html>")
    catalogue.add_interest("my kite", [photos.parent / "page.png"])
    with caplog.at_level(logging.WARNING):
        assert index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder()).indexed == 4
    assert "page.png': is not an image: it looks like an HTML page" in caplog.text


def test_an_interest_that_is_gone(catalogue: Catalogue) -> None:
    with pytest.raises(UnknownInterestError):
        ensure_vectors(catalogue, TinyEncoder(), [7])
