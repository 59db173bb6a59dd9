"""Queries: every term is read as it was written, and what cannot be read says where."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from texcat.catalogue.errors import InvalidPhraseError, UsageError
from texcat.catalogue.phrases import normalise_phrase
from texcat.retrieval.query import Term, parse_query


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("dog", [("dog", 1)]),
        ("  Red \t CAR ", [("red car", 1)]),
        ("dog -leash", [("dog", 1), ("leash", -1)]),
        ("dog +leash", [("dog", 1), ("leash", 1)]),
        ("dog^2 beach", [("dog", 2), ("beach", 1)]),
        ("dog beach^0.5", [("dog beach", 0.5)]),
        ('"red car" -"traffic light"', [("red car", 1), ("traffic light", -1)]),
        ("red car -traffic light", [("red car", 1), ("traffic light", -1)]),
        ('red "car"', [("red", 1), ("car", 1)]),
        ('-"red car"^1.5 +beach', [("red car", -1.5), ("beach", 1)]),
        ("a t-shirt, blue+white", [("a t-shirt, blue+white", 1)]),
        ('"2^3 -x +y"', [("2^3 -x +y", 1)]),
        ('"a ""quoted"" word"', [('a "quoted" word', 1)]),
        ("-night", [("night", -1)]),
        ("dog dog^2 +dog", [("dog dog", 2), ("dog", 1)]),
        ("日本の猫 -🐈", [("日本の猫", 1), ("🐈", -1)]),
    ],
)
def test_what_is_read(query: str, terms: list[tuple[str, float]]) -> None:
    assert parse_query(query) == tuple(Term(phrase, weight) for phrase, weight in terms)


@pytest.mark.parametrize(
    ("query", "place", "shown"),
    [
        ("dog - leash", 5, "'- leash'"),
        ("dog --leash", 5, "'--leash'"),
        ("dog^", 1, "'dog^'"),
        ("dog^two", 1, "'dog^two'"),
        ("beach +dog^-1", 7, "'+dog^-1'"),
        ("dog^2^3", 1, "'dog^2^3'"),
        ("dog^0", 5, "'0': a weight is above 0"),
        (f"dog^1{'0' * 400}", 5, "a weight is above 0 and finite"),
        ('"red car', 1, "'\"red car'"),
        ('red car"', 5, "'car\"'"),
        ('"red"car', 1, "'\"red\"car'"),
        ("^2", 1, "'^2'"),
        (f"dog ^{'x' * 1000}", 5, f"'^{'x' * 38}…'"),
    ],
)
def test_what_cannot_be_read_says_where(query: str, place: int, shown: str) -> None:
    with pytest.raises(UsageError, match="cannot read the query") as caught:
        parse_query(query)
    assert f"from character {place} on" in str(caught.value)
    assert shown in str(caught.value)


@pytest.mark.parametrize("query", ["", " \t\n"])
def test_an_empty_query(query: str) -> None:
    with pytest.raises(UsageError, match="the query is empty"):
        parse_query(query)


@pytest.mark.parametrize(
    ("query", "reason"), [('""', "is empty"), ('dog -" "', "is empty"), ("dog\0", "control character")]
)
def test_a_phrase_that_names_nothing(query: str, reason: str) -> None:
    with pytest.raises(InvalidPhraseError, match=reason):
        parse_query(query)


def phrases() -> st.SearchStrategy[str]:
    """Phrases as they are kept: any that can name an interest, signs and quotation marks included."""
    texts = st.text(min_size=1, max_size=12) | st.text('"^+- ab2', min_size=1, max_size=12)
    return texts.filter(can_be_named).map(normalise_phrase)


def can_be_named(text: str) -> bool:
    try:
        return bool(normalise_phrase(text))
    except InvalidPhraseError:
        return False


weights = st.floats(1e-9, 1e9).flatmap(lambda size: st.sampled_from([size, -size]))
terms = st.builds(Term, phrases(), weights | st.just(1.0) | st.just(-1.0))


@given(st.lists(terms, min_size=1, max_size=4))
def test_terms_are_read_as_they_are_written(written: list[Term]) -> None:
    assert parse_query(" ".join(map(str, written))) == tuple(written)


@given(st.text() | st.text('"^+- ab2.\t', max_size=20))
@example('a "')
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = parse_query(text)
    except UsageError:
        return
    assert read
    assert all(term.phrase == normalise_phrase(term.phrase) and term.weight != 0 for term in read)
    assert parse_query(" ".join(map(str, read))) == read
