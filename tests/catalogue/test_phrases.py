from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from texcat.catalogue.errors import InvalidPhraseError
from texcat.catalogue.phrases import MAX_CHARACTERS, check_question, normalise_phrase

PHRASES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40)


@pytest.mark.parametrize(
    ("spelling", "normal"),
    [
        ("mountain biking", "mountain biking"),
        ("  Mountain\t\n BIKING ", "mountain biking"),
        ("Cafe\u0301", "caf\u00e9"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("自転車", "自転車"),
        ("全角\u3000スペース", "全角 スペース"),
        ("دوچرخه‌سواری", "دوچرخه‌سواری"),  # a zero-width non-joiner, which Persian spelling needs
        ("👩🏽‍🚒 ❤️", "👩🏽‍🚒 ❤️"),  # joiner, skin tone, variation selector
        (
            "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
            None,
        ),  # a flag, of tags
    ],
)
def test_normal_form(spelling: str, normal: str | None) -> None:
    assert normalise_phrase(spelling) == (spelling if normal is None else normal)


@given(PHRASES)
def test_a_normal_form_is_a_fixed_point(phrase: str) -> None:
    try:
        normal = normalise_phrase(phrase)
    except InvalidPhraseError:
        assume(False)
    assert normalise_phrase(normal) == normal
    assert unicodedata.is_normalized("NFC", normal)
    assert normal == " ".join(normal.split())


@given(PHRASES, st.sampled_from(["NFC", "NFD"]), st.sampled_from([" ", "\t", "\u00a0", "\u3000", " \r\n"]))
def test_spellings_of_one_phrase_are_equal(phrase: str, form: str, space: str) -> None:
    try:
        normal = normalise_phrase(phrase)
    except InvalidPhraseError:
        assume(False)
    spelling = space + unicodedata.normalize(form, phrase).replace(" ", space) + space
    assert normalise_phrase(spelling) == normal
    assert normalise_phrase(phrase.casefold()) == normal


def test_every_letter_has_one_normal_form() -> None:
    letters = (chr(code) for code in range(sys.maxunicode + 1))
    for letter in letters:
        if unicodedata.category(letter)[0] in "LMN":
            normal = normalise_phrase(letter)
            assert normalise_phrase(normal) == normal, f"U+{ord(letter):04X}"


@pytest.mark.parametrize("phrase", ["", " ", "\t\n\u3000", "\u200b", "\ufeff "])
def test_nothing_visible_is_empty(phrase: str) -> None:
    with pytest.raises(InvalidPhraseError, match="is empty"):
        normalise_phrase(phrase)


@pytest.mark.parametrize("character", ["\0", "\a", "\x1b", "\x7f", "\x9b", "\ud800", "\u202e", "\u2066"])
def test_control_characters_are_refused_by_name(character: str) -> None:
    with pytest.raises(InvalidPhraseError, match=rf"U\+{ord(character):04X}") as caught:
        normalise_phrase(f"red {character} bike")
    assert caught.value.phrase == f"red {character} bike"


def test_length_is_that_of_the_normal_form() -> None:
    assert normalise_phrase("x" * MAX_CHARACTERS + " " * 1_000) == "x" * MAX_CHARACTERS
    with pytest.raises(InvalidPhraseError, match="has 502 characters, more than 500"):
        normalise_phrase("ß" * 251)


@pytest.mark.parametrize("question", ["", " ", "\t\r\n\u3000", "\0\x1b", "\u200b\u202e", "\u2028"])
def test_a_question_without_ink_cannot_be_asked(question: str) -> None:
    with pytest.raises(InvalidPhraseError, match="is empty"):
        check_question(question)


def test_a_question_that_is_no_text_cannot_be_asked() -> None:
    with pytest.raises(InvalidPhraseError, match=r"holds the surrogate U\+DCFF"):
        check_question("where? \udcff")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.characters(categories=["L", "N", "P", "S"]))
def test_any_other_question_can_be_asked(text: str, visible: str) -> None:
    check_question(text + visible)
    check_question(visible + text)
