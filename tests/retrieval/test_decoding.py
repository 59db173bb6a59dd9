"""The tier `coded`: what is not stored comes from the code, and no image goes through the encoder for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import Catalogue, CatalogueError, EncoderNeededError, RecordCorruptError
from texcat.catalogue.codec import CODE_PART
from texcat.catalogue.codes import code_maps
from texcat.catalogue.grid import enlarge_map
from texcat.indexer import index_corpus
from texcat.indexer.expanding import expand_interest
from texcat.indexer.indexing import ensure_vectors
from texcat.retrieval import Retriever, Tier

from ..fakes import TinyEncoder
from .conftest import GREEN, GREY, peak, quarters


@pytest.fixture
def catalogue(tmp_path: Path, photos: Path) -> Iterator[Catalogue]:
    """Two photos with codes, indexed through one interest."""
    with Catalogue.create(tmp_path / "cat", groups=["appearance"]) as made:
        made.add_interest("red kite")
        index_corpus(made, [photos], encoder=TinyEncoder())
        yield made


@pytest.fixture
def encoder() -> TinyEncoder:
    return TinyEncoder()


@pytest.fixture
def retriever(catalogue: Catalogue, encoder: TinyEncoder) -> Retriever:
    return Retriever(catalogue, encoder=encoder)


def test_a_new_interest_is_seen_through_the_code(
    retriever: Retriever, photos: Path, encoder: TinyEncoder
) -> None:
    interest = retriever.catalogue.add_interest("blue sea")
    hit = retriever.lookup(photos / "a.png", "blue sea", top=1)
    assert [match.interest for match in hit.matches] == [interest]
    assert (hit.tier, hit.saved, encoder.encoded) == (Tier.CODED, False, 0)
    row, column = peak(hit.channel("similarity"))
    assert row >= 16 > column
    held = retriever.catalogue.store.held(hit.key)
    assert held is not None
    assert interest.id not in held


def test_a_coded_texture_is_the_one_that_an_expansion_would_store(catalogue: Catalogue, photos: Path) -> None:
    catalogue.add_interest("blue sea")
    retriever = Retriever(catalogue, encoder=TinyEncoder())
    coded = retriever.lookup(photos / "a.png", "red kite on a blue sea", top=2)
    assert {match.interest.phrase for match in coded.matches} == {"red kite", "blue sea"}
    assert coded.tier is Tier.CODED
    expand_interest(catalogue, ["blue sea"])
    stored = Retriever(catalogue, encoder=TinyEncoder()).lookup(photos / "a.png", matches=coded.matches)
    assert stored.tier is Tier.STORED
    for one, other in zip(coded.textures, stored.textures, strict=True):
        np.testing.assert_allclose(one, other, atol=0.01 * np.ptp(other), err_msg="stored ones are rounded")
    np.testing.assert_allclose(coded.relevance, stored.relevance, atol=0.01)


def test_a_map_that_is_stored_later_takes_the_place_of_the_coded_one(
    catalogue: Catalogue, photos: Path
) -> None:
    catalogue.add_interest("blue sea")
    retriever = Retriever(catalogue, encoder=TinyEncoder())
    coded = retriever.lookup(photos / "a.png", "blue sea", top=1)
    again = retriever.lookup(coded.key, matches=coded.matches)
    assert (coded.tier, again.tier) == (Tier.CODED, Tier.CODED)
    np.testing.assert_array_equal(again.textures, coded.textures)
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    exact = retriever.lookup(coded.key, matches=coded.matches)
    assert exact.tier is Tier.STORED
    assert not np.array_equal(exact.channel("similarity"), coded.channel("similarity"))
    correlation = np.corrcoef(exact.channel("similarity").ravel(), coded.channel("similarity").ravel())
    assert correlation[0, 1] > 0.95


def test_a_question_no_interest_answers_gets_its_own_map_from_the_code(
    retriever: Retriever, photos: Path, encoder: TinyEncoder
) -> None:
    hit = retriever.lookup(photos / "a.png", "green umbrella")
    assert (hit.own_share, hit.tier, hit.saved, encoder.encoded) == (1.0, Tier.CODED, False, 0)
    assert peak(hit.channel("similarity"))[1] >= 16
    (photos / "a.png").unlink()
    assert retriever.lookup(hit.key, "green umbrella").tier is Tier.CODED, "the code outlives the file"


def test_an_image_that_is_not_indexed_is_computed_and_gets_a_code(
    retriever: Retriever, photos: Path, encoder: TinyEncoder
) -> None:
    new = quarters(photos / "new.png", GREY, GREEN, GREY, GREY)
    hit = retriever.lookup(new, "red kite", top=1)
    assert (hit.tier, hit.saved, encoder.encoded) == (Tier.COMPUTED, True, 1)
    assert retriever.catalogue.store.has_code(hit.key)
    retriever.catalogue.add_interest("green field")
    assert retriever.lookup(new, "green field", top=1).tier is Tier.CODED
    report = index_corpus(retriever.catalogue, [photos], encoder=encoder)
    assert report.skipped == ()


def test_an_image_without_a_code_is_computed_and_gets_one(
    catalogue: Catalogue, photos: Path, encoder: TinyEncoder
) -> None:
    new = quarters(photos / "new.png", GREY, GREEN, GREY, GREY)
    index_corpus(catalogue, [photos], encoder=TinyEncoder(), codes=False)
    catalogue.add_interest("green field")
    retriever = Retriever(catalogue, encoder=encoder)
    hit = retriever.lookup(new, "green field", top=1)
    assert (hit.tier, hit.saved, encoder.encoded) == (Tier.COMPUTED, True, 1)
    assert catalogue.store.has_code(hit.key)


def test_similarity_takes_the_best_that_there_is(
    retriever: Retriever, catalogue: Catalogue, photos: Path, encoder: TinyEncoder
) -> None:
    coded = retriever.similarity(photos / "a.png", "green field")
    key = retriever.lookup(photos / "a.png", "red kite", top=1).key
    code = catalogue.store.code(key)
    assert code is not None
    direction = encoder.direction(["green field"]).numpy()
    (made,) = code_maps(code, catalogue.codebook().coordinates(direction))
    np.testing.assert_allclose(coded, enlarge_map(made), atol=1e-6)
    assert encoder.encoded == 0
    new = quarters(photos / "new.png", GREY, GREEN, GREY, GREY)
    assert peak(retriever.similarity(new, "green field")) < (16, 32)
    assert encoder.encoded == 1
    catalogue.add_interest("green field")
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    stored = retriever.similarity(photos / "a.png", "green field")
    assert not np.array_equal(stored, coded)


def test_without_the_encoder_interests_come_from_codes_and_new_words_do_not(
    catalogue: Catalogue, photos: Path
) -> None:
    catalogue.add_interest("blue sea")
    ensure_vectors(catalogue, TinyEncoder())
    Retriever(catalogue, encoder=TinyEncoder()).embedding("blue sea")
    Retriever(catalogue, encoder=TinyEncoder()).embedding("green umbrella")
    retriever = Retriever(catalogue, compute=False)
    assert retriever.lookup(photos / "a.png", "blue sea", top=1).tier is Tier.CODED
    low = retriever.lookup(photos / "a.png", "green umbrella")
    assert (low.own_share, low.tier) == (0.0, Tier.CODED)
    with pytest.raises(EncoderNeededError):
        retriever.similarity(photos / "a.png", "green umbrella")


def test_what_a_coded_look_up_loads(catalogue: Catalogue, photos: Path) -> None:
    catalogue.add_interest("blue sea")
    ensure_vectors(catalogue, TinyEncoder())
    Retriever(catalogue, encoder=TinyEncoder()).embedding("blue sea")
    path = catalogue.path
    catalogue.close()
    code = (
        "import sys\n"
        "from texcat.catalogue import Catalogue\n"
        "from texcat.retrieval import Retriever\n"
        "with Catalogue.open(sys.argv[1]) as catalogue:\n"
        "    hit = Retriever(catalogue).lookup(sys.argv[2], 'blue sea', top=1)\n"
        "    print(hit.tier, 'torch' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(photos / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["coded", "False"]


def test_a_damaged_code_is_never_served(retriever: Retriever, catalogue: Catalogue, photos: Path) -> None:
    key = retriever.lookup(photos / "a.png", "red kite", top=1).key
    name = key + CODE_PART.to_bytes(4, "big")
    catalogue.store._file(key).change(lambda transaction: transaction.put(name, b"damaged" * 9))
    assert retriever.lookup(key, "red kite", top=1).tier is Tier.STORED
    catalogue.add_interest("blue sea")
    with pytest.raises(RecordCorruptError, match=str(key)):
        retriever.lookup(key, "blue sea", top=1)
    with pytest.raises(RecordCorruptError, match=str(key)):
        retriever.similarity(key, "blue sea")


def test_a_lost_codebook_is_told(catalogue: Catalogue, photos: Path) -> None:
    catalogue.add_interest("blue sea")
    path = catalogue.path
    catalogue.close()
    (path / "codebook").unlink()
    with Catalogue.open(path) as reading:
        retriever = Retriever(reading, encoder=TinyEncoder())
        assert retriever.lookup(photos / "a.png", "red kite", top=1).tier is Tier.STORED
        with pytest.raises(CatalogueError, match="is lost; `texcat index` makes it again"):
            retriever.lookup(photos / "a.png", "blue sea", top=1)
