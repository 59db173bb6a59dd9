"""Interests that images show, asked about: their name is not what tells where they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import Box, Catalogue, Exemplar
from texcat.catalogue.errors import ImageReadError
from texcat.indexer import index_corpus
from texcat.retrieval import Retriever, Tier

from ..fakes import TinyEncoder
from ..indexer.test_exemplars import BLUE, GREY, RED, halves
from .conftest import peak

LEFT = Box(0, 0, 0.5, 1)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    halves(folder / "red.png", RED, GREY)
    halves(folder / "blue.png", BLUE, GREY)
    halves(folder / "mixed.png", BLUE, RED)
    return folder


@pytest.fixture
def catalogue(tmp_path: Path, photos: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", groups=["appearance"]) as made:
        made.add_interest("green")
        index_corpus(made, [photos], encoder=TinyEncoder())
        yield made


def test_a_question_lights_up_what_the_exemplars_show(catalogue: Catalogue, photos: Path) -> None:
    catalogue.add_interest("blue kite", [Exemplar(str(photos / "red.png"), LEFT)])  # it is red
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    hit = Retriever(catalogue, encoder=TinyEncoder()).lookup(photos / "mixed.png", "blue kite", top=1)
    assert (hit.matches[0].interest.phrase, hit.tier, hit.own_share) == ("blue kite", Tier.STORED, 0)
    assert peak(hit.channel("similarity"))[1] >= 16


def test_a_map_that_is_not_stored_follows_the_exemplars(catalogue: Catalogue, photos: Path) -> None:
    retriever = Retriever(catalogue, encoder=TinyEncoder())
    asked = photos / "mixed.png"
    assert peak(retriever.similarity(asked, "blue kite"))[1] < 16, "words"
    catalogue.add_interest("blue kite", [Exemplar(str(photos / "red.png"), LEFT)])
    made = retriever.similarity(asked, "Blue  kite")
    assert peak(made)[1] >= 16
    catalogue.add_interest("blue kite", [Exemplar(str(photos / "blue.png"), LEFT)])
    assert peak(retriever.similarity(asked, "Blue  kite"))[1] < 16, "other exemplars"
    index_corpus(catalogue, [photos], encoder=TinyEncoder())
    # Nearer to the edge between the colours, which no real map has so sharp, an enlarged map swings.
    np.testing.assert_allclose(
        retriever.similarity(asked, "blue kite")[:, :9], np.ones((32, 9)), atol=0.05, err_msg="stored"
    )


def test_a_lost_exemplar_spoils_no_other_question(catalogue: Catalogue, photos: Path) -> None:
    lost = halves(photos.parent / "lost.png", RED, BLUE)
    catalogue.add_interest("my kite", [lost])
    lost.unlink()
    retriever = Retriever(catalogue, encoder=TinyEncoder())
    hit = retriever.lookup(photos / "mixed.png", "green")
    assert [match.interest.phrase for match in hit.matches] == ["green"]
    with pytest.raises(ImageReadError, match="exemplar of interest 'my kite'"):
        retriever.similarity(photos / "mixed.png", "my kite")
