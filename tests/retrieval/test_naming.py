from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import Catalogue, ImageKey, UnknownInterestError, UsageError
from texcat.retrieval import Lookup, Match, Tier, Timings
from texcat.retrieval.naming import OWN_WORDS, named_matches, shares


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "catalogue") as made:
        made.add_interest("cat", weight=1.0)
        made.add_interest("dog", weight=3.0)
        made.add_interest("snow", weight=0.0)
        yield made


def test_weights_are_shares_of_the_interests_own_weights(catalogue: Catalogue) -> None:
    matches = named_matches(catalogue, ["CAT", " dog", "cat", "snow"])
    assert [(m.interest.phrase, m.weight, m.similarity) for m in matches] == [
        ("dog", 0.75, 1.0),
        ("cat", 0.25, 1.0),
        ("snow", 0.0, 1.0),
    ]


def test_an_interest_that_is_not_there(catalogue: Catalogue) -> None:
    with pytest.raises(UnknownInterestError, match="no interest 'zebra'"):
        named_matches(catalogue, ["cat", "zebra"])


@pytest.mark.parametrize("phrases", [[], ["snow"]])
def test_nothing_to_blend(catalogue: Catalogue, phrases: list[str]) -> None:
    with pytest.raises(UsageError, match="at least one interest with a weight above 0"):
        named_matches(catalogue, phrases)


def test_shares_take_the_questions_own_words_into_account(catalogue: Catalogue) -> None:
    cat, dog, _ = catalogue.interests()
    plane = np.zeros((32, 32), np.float32)
    hit = Lookup(
        key=ImageKey(bytes(16)),
        textures=plane[None],
        channels=("similarity",),
        matches=(Match(cat, 0.4, 0.75), Match(dog, 0.3, 0.25)),
        tier=Tier.COMPUTED,
        confidence=0.25,
        own_share=0.5,
        saved=False,
        relevance=plane,
        timings=Timings(0.0, 0.0, 0.0),
    )
    assert shares(hit) == [(OWN_WORDS, 0.5), ("cat", 0.375), ("dog", 0.125)]
    assert shares(replace(hit, own_share=1.0)) == [(OWN_WORDS, 1.0)]
    assert shares(replace(hit, own_share=0.0)) == [("cat", 0.75), ("dog", 0.25)]
