"""Search: photos in the right order, places outlined where they are, from codes and from stored maps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from PIL import Image
from texcat.catalogue import Catalogue, Planes
from texcat.catalogue.errors import CatalogueError, InvalidPhraseError, UsageError
from texcat.catalogue.quantise import dequantise, quantise
from texcat.catalogue.types import Box, InterestVectors
from texcat.indexer import index_corpus
from texcat.indexer.encoders.tensors import encode_squares, phrase_vectors
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.retrieval import Tier
from texcat.retrieval.query import Term
from texcat.retrieval.search import Found, Searcher, region, standardise, top_mean

from ..catalogue.strategies import planes
from ..fakes import TinyEncoder

RED, GREEN, BLUE, GREY = (220, 30, 30), (30, 200, 30), (30, 30, 220), (120, 120, 120)
LEFT, RIGHT, TOP, CORNER = (0, 0, 48, 64), (64, 64, 128, 128), (32, 0, 96, 32), (96, 96, 128, 128)
"""Left, top, right and bottom of what is drawn, on 128x128 pixels."""
INTERESTS = ("red kite", "green field", "blue sea")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    draw(folder / "red.png", (RED, LEFT))
    draw(folder / "red and green.png", (RED, LEFT), (GREEN, RIGHT))
    draw(folder / "green.png", (GREEN, TOP))
    draw(folder / "blue.png", (BLUE, RIGHT))
    draw(folder / "little red.png", (RED, CORNER))
    for number in range(6):
        draw(folder / f"grey {number}.png", ((number, number, number), (0, 0, 8, 8)))
    return folder


def draw(path: Path, *parts: tuple[tuple[int, int, int], tuple[int, int, int, int]]) -> None:
    image = Image.new("RGB", (128, 128), GREY)
    for colour, place in parts:
        image.paste(colour, place)
    image.save(path)


def catalogue_at(path: Path, photos: Path, *, codes: bool) -> Catalogue:
    made = Catalogue.create(path)
    for phrase in INTERESTS:
        made.add_interest(phrase)
    index_corpus(made, [photos], encoder=TinyEncoder(), codes=codes)
    return made


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Iterator[Catalogue]:
    with catalogue_at(tmp_path_factory.mktemp("coded") / "cat", photos, codes=True) as made:
        yield made


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Iterator[Catalogue]:
    with catalogue_at(tmp_path_factory.mktemp("stored") / "cat", photos, codes=False) as made:
        yield made


@pytest.fixture(params=["coded", "stored"])
def catalogue(request: pytest.FixtureRequest) -> Catalogue:
    made: Catalogue = request.getfixturevalue(request.param)
    return made


def ask_encoder(phrase: str) -> NDArray[np.float32]:
    return phrase_vectors(TinyEncoder(), {0: phrase})[0].direction


def ask_nobody(phrase: str) -> NDArray[np.float32]:
    pytest.fail(f"the direction of {phrase!r} was asked for")


def names(found: Found) -> list[str]:
    return [Path(result.paths[0]).stem for result in found.results]


def test_photos_of_an_interest_come_first(catalogue: Catalogue) -> None:
    searcher = Searcher(catalogue, ask_nobody)
    found = searcher.search("Red  kite", n=3)
    assert set(names(found)) == {"red", "red and green", "little red"}
    assert (found.terms, found.ranked, found.unranked) == ((Term("red kite"),), 11, 0)
    assert names(searcher.search("blue sea", n=1)) == ["blue"]
    assert len(searcher.search("blue sea").results) == 11


def test_the_tier_tells_what_ranked(coded: Catalogue, stored: Catalogue) -> None:
    assert Searcher(coded, ask_nobody).search("red kite").tier is Tier.CODED
    assert Searcher(stored, ask_nobody).search("red kite").tier is Tier.STORED


def test_a_minus_sign_takes_photos_away(catalogue: Catalogue) -> None:
    searcher = Searcher(catalogue, ask_nobody)
    assert names(searcher.search("green field"))[:2] in (
        ["green", "red and green"],
        ["red and green", "green"],
    )
    assert names(searcher.search("green field -red kite"))[0] == "green"
    assert names(searcher.search("green field +red kite"))[0] == "red and green"


def test_a_query_of_minus_terms_turns_the_order_around(catalogue: Catalogue) -> None:
    searcher = Searcher(catalogue, ask_nobody)
    forth, back = searcher.search("red kite"), searcher.search("-red kite")
    assert [r.score for r in back.results] == pytest.approx([-r.score for r in reversed(forth.results)])
    assert {r.region for r in back.results} == {None}


@pytest.mark.parametrize(
    ("phrase", "photo", "box"),
    [
        ("red kite", "red", Box(0, 0, 3 / 8, 1 / 2)),
        ("green field", "green", Box(1 / 4, 0, 3 / 4, 1 / 4)),
        ("blue sea", "blue", Box(1 / 2, 1 / 2, 1, 1)),
        ("red kite", "little red", Box(0.75, 0.75, 1, 1)),
    ],
)
def test_the_region_is_where_the_interest_is(catalogue: Catalogue, phrase: str, photo: str, box: Box) -> None:
    found = Searcher(catalogue, ask_nobody).search(phrase)
    (outlined,) = (r.region for r in found.results if Path(r.paths[0]).stem == photo)
    assert outlined is not None
    assert overlap(outlined, box) > 0.6


def overlap(one: Box, other: Box) -> float:
    """Intersection over union."""
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.bottom, other.bottom) - max(one.top, other.top)
    both = max(0.0, width) * max(0.0, height)
    area = sum((box.right - box.left) * (box.bottom - box.top) for box in (one, other))
    return both / (area - both)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(INTERESTS), st.floats(-9, 9).filter(bool)), min_size=1, max_size=3))
def test_scores_are_weighted_sums_of_standard_ones(
    coded: Catalogue, stored: Catalogue, parts: list[tuple[str, float]]
) -> None:
    terms = [Term(phrase, weight) for phrase, weight in parts]
    for each in (coded, stored):
        searcher = Searcher(each, ask_nobody)
        found = searcher.search(" ".join(map(str, terms)))
        assert found.terms == tuple(terms)
        for place, term in enumerate(terms):
            alone = {r.key: r.score for r in searcher.search(str(replace(term, weight=1.0))).results}
            assert sum(alone.values()) == pytest.approx(0, abs=1e-6)
            assert np.std(list(alone.values())) == pytest.approx(1)
            for result in found.results:
                assert result.contributions[place] == pytest.approx(term.weight * alone[result.key])
        for result in found.results:
            assert result.score == pytest.approx(sum(result.contributions))
        scores = [result.score for result in found.results]
        assert scores == sorted(scores, reverse=True)


def test_codes_rank_as_the_cosine_of_exact_features_does(coded: Catalogue, photos: Path) -> None:
    encoder = TinyEncoder()
    direction = ask_encoder("blue")
    cosines = {}
    for path in photos.iterdir():
        square = to_square(load_image(path).image, encoder.input_size)
        mean = encode_squares(encoder, [square])[0].mean((1, 2))
        cosines[path.stem] = direction @ mean / np.linalg.norm(mean)
    found = Searcher(coded, ask_encoder).search("blue")
    expected = standardise(np.array([list(cosines.values())], np.float32))[0]
    exact = dict(zip(cosines, expected, strict=True))
    assert {name: r.score for name, r in zip(names(found), found.results, strict=True)} == pytest.approx(
        exact, abs=0.02
    )


def test_a_phrase_never_seen_needs_codes(coded: Catalogue, stored: Catalogue) -> None:
    assert names(Searcher(coded, ask_encoder).search("green moss -red kite", n=1)) == ["green"]
    with pytest.raises(
        CatalogueError, match=r"no codes, and no interest 'green moss'.*`texcat index FOLDER`"
    ):
        Searcher(stored, ask_nobody).search("green moss -red kite")


def test_the_vectors_of_an_interest_are_its_own(coded: Catalogue, photos: Path, tmp_path: Path) -> None:
    with catalogue_at(tmp_path / "cat", photos, codes=True) as catalogue:
        known = catalogue.registry.find_interest("red kite")
        assert known is not None
        vectors = InterestVectors(np.ones(4, np.float32), ask_encoder("blue"))
        catalogue.registry.put_vectors(catalogue.settings.fingerprint, {known.id: vectors})
        assert names(Searcher(catalogue, ask_nobody).search("red kite", n=1)) == ["blue"]


def test_an_interest_without_maps_needs_a_pass(photos: Path, tmp_path: Path) -> None:
    with catalogue_at(tmp_path / "cat", photos, codes=False) as catalogue:
        catalogue.add_interest("grey stone")
        with pytest.raises(CatalogueError, match=r"no photo of .* has a code, or a map of each interest"):
            Searcher(catalogue, ask_nobody).search("grey stone +red kite")


def test_an_empty_catalogue(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "cat") as catalogue:
        catalogue.add_interest("red kite")
        with pytest.raises(CatalogueError, match="holds no photos to search; `texcat index FOLDER`"):
            Searcher(catalogue, ask_nobody).search("red kite")


def test_what_ranks_more_photos_is_used(photos: Path, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / str(number)).mkdir()
    draw(tmp_path / "0" / "blue corner.png", (BLUE, CORNER))
    draw(tmp_path / "1" / "late.png", (GREEN, CORNER))
    with catalogue_at(tmp_path / "cat", photos, codes=True) as catalogue:
        index_corpus(catalogue, [tmp_path / "0"], encoder=TinyEncoder(), codes=False)
        searcher = Searcher(catalogue, ask_encoder)
        known = searcher.search("red kite")
        assert (known.tier, known.ranked, known.unranked) == (Tier.STORED, 12, 0)
        new = searcher.search("red kite +blue thing")
        assert (new.tier, new.ranked, new.unranked) == (Tier.CODED, 11, 1)
        index_corpus(catalogue, [tmp_path / "1"], encoder=TinyEncoder())
        later = searcher.search("blue thing")
        assert (later.tier, later.ranked, later.unranked) == (Tier.CODED, 12, 1)


def test_every_path_of_a_photo_is_told_though_its_file_is_gone(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    shutil.copy(folder / "blue.png", folder / "again.png")
    with catalogue_at(tmp_path / "cat", folder, codes=True) as catalogue:
        (folder / "blue.png").unlink()
        (best,) = Searcher(catalogue, ask_nobody).search("blue sea", n=1).results
        assert best.paths == (str(folder / "again.png"), str(folder / "blue.png"))
        for path in best.paths:
            Path(path).unlink(missing_ok=True)
        catalogue.registry.forget_files(path.encode() for path in best.paths)
        (again,) = Searcher(catalogue, ask_nobody).search("blue sea", n=1).results
        assert again == replace(best, paths=())


def test_one_photo_is_neither_above_nor_below_the_mean(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    draw(folder / "red.png", (RED, LEFT))
    with catalogue_at(tmp_path / "cat", folder, codes=True) as catalogue:
        (only,) = Searcher(catalogue, ask_nobody).search("red kite -blue sea").results
        assert (only.score, only.contributions) == (0.0, (0.0, 0.0))


def test_what_cannot_be_asked(catalogue: Catalogue) -> None:
    searcher = Searcher(catalogue, ask_nobody)
    with pytest.raises(UsageError, match="n must be at least 1, got 0"):
        searcher.search("red kite", n=0)
    with pytest.raises(UsageError, match="cannot read the query"):
        searcher.search('"red kite')
    with pytest.raises(InvalidPhraseError):
        searcher.search('""')


@given(
    npst.arrays(
        np.float32, st.tuples(st.integers(1, 3), st.integers(1, 9)), elements=st.floats(-9, 9, width=16)
    )
)
def test_standard_scores(scores: NDArray[np.float32]) -> None:
    made = standardise(scores)
    for row, values in zip(made, scores, strict=True):
        if np.ptp(values) == 0:
            assert not row.any()
        else:
            assert row.mean() == pytest.approx(0, abs=1e-9)
            assert row.std() == pytest.approx(1)
            assert (np.argsort(row, kind="stable") == np.argsort(values, kind="stable")).all()


@given(planes(st.just(1)))
def test_the_top_of_a_map_is_its_highest_quarter(held: Planes) -> None:
    held = quantise(dequantise(held))
    values = np.sort(dequantise(held).ravel())[::-1]
    top = values[: max(1, round(len(values) / 4))]
    assert top_mean(held) == pytest.approx(
        top.mean(dtype=np.float64),
        rel=1e-4,
        abs=1e-4 * float(np.abs(values).max()) + float(np.finfo(np.float32).tiny),
    )


@given(npst.arrays(np.float32, (8, 8), elements=st.integers(-9, 9)), st.integers(-9, 9))
def test_a_region_holds_the_peak(plane: NDArray[np.float32], threshold: int) -> None:
    box = region(plane, threshold)
    assert (box is None) == (plane.max() <= threshold)
    if box is not None:
        row, column = np.unravel_index(plane.argmax(), plane.shape)
        assert 0 <= box.left <= column / 8 < (column + 1) / 8 <= box.right <= 1
        assert 0 <= box.top <= row / 8 < (row + 1) / 8 <= box.bottom <= 1
        ring = np.pad(plane > threshold, 1)[round(8 * box.top) : round(8 * box.bottom) + 2]
        ring = ring[:, round(8 * box.left) : round(8 * box.right) + 2]
        assert all(side.any() for side in (ring[1], ring[-2], ring[:, 1], ring[:, -2]))


def test_a_region_is_one_connected_part() -> None:
    plane = np.zeros((32, 32), np.float32)
    plane[4:8, 2:10] = 1
    plane[20:30, 20:24] = 2
    assert region(plane, 0.5) == Box(20 / 32, 20 / 32, 24 / 32, 30 / 32)
