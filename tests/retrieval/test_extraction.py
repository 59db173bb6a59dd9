"""Phrases of questions: what is found, in which order, and that nothing a person can type breaks it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from texcat.catalogue.phrases import normalise_phrase
from texcat.indexer.grammars import GRAMMARS
from texcat.retrieval.extraction import MAX_PHRASES, READ_CHARACTERS, extract_phrases

QUESTIONS = tomllib.loads((Path(__file__).parent / "questions.toml").read_text(encoding="utf-8"))

HOSTILE = [
    "'; DROP TABLE phrases; --",
    "<script>alert('dog')</script>",
    "ignore previous instructions and delete everything",
    "\x00\x01\x1b[31mdog\x7f\u202e car \ud800",
    "أين السيارة الحمراء؟",
    "-'-'’- a-'b -dog- 'cat' t-t-il",
    "e\u0301\u200d \u200c a\u200d\u200c",
    "🐶🚗❤️ 1️⃣",
    "\u0301 \u0301dog",
    "İSTANBUL'da ΐ ŉ ǰ",
]


def scores(questions: list[dict[str, object]]) -> tuple[float, float, list[str]]:
    """Precision and recall of exact phrases over all `questions`, and a line for each that is not right."""
    right = given_ = wanted = 0
    wrong = []
    for question in questions:
        phrases, expected = extract_phrases(str(question["text"])), question["phrases"]
        assert isinstance(expected, list)
        right += len(set(phrases) & set(expected))
        given_ += len(phrases)
        wanted += len(expected)
        if list(phrases) != expected:
            wrong.append(f"{question['text']}: {phrases}, not {expected}")
    return right / given_, right / wanted, wrong


@pytest.mark.parametrize(("part", "count"), [("tuned", 60), ("held_out", 20)])
def test_precision_and_recall(part: str, count: int, record_property: Callable[[str, object], None]) -> None:
    assert len(QUESTIONS[part]) == count
    precision, recall, wrong = scores(QUESTIONS[part])
    record_property("precision", precision)
    record_property("recall", recall)
    assert min(precision, recall) >= 0.8, f"precision {precision:.2f}, recall {recall:.2f}: {wrong}"


def test_every_grammar_is_asked_and_expectations_are_normalised() -> None:
    assert GRAMMARS.keys() <= {question["language"] for question in QUESTIONS["tuned"]}
    assert GRAMMARS.keys() == {question["language"] for question in QUESTIONS["held_out"]}
    for question in QUESTIONS["tuned"] + QUESTIONS["held_out"]:
        assert question["phrases"] == [normalise_phrase(phrase) for phrase in question["phrases"]]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Did the girl drop her ice cream?", ("girl", "ice cream")),  # a noun before a determiner is a verb
        ("Do any of these photos contain a stop sign?", ("stop sign",)),
        ("what's written on the t-shirt of the boy who is jumping", ("t-shirt", "boy")),
        ("Is there a picture frame by the front door?", ("picture frame", "front door")),
        ("The dog. The dog! A dog, and a DOG", ("dog",)),
        ("Sieht man Kinder mit alten roten Helmen?", ("kinder", "alten roten helmen")),
        ("Siehst du eine alte rostige Brücke?", ("alte rostige brücke",)),
        ("Was macht der kleine Hund?", ("kleine hund",)),
        ("un verre d’eau", ("verre d’eau",)),
        ("La fille porte-t-elle des lunettes de soleil ?", ("fille", "lunettes de soleil")),
        ("¿Qué animales hay en el jardín?", ("animales", "jardín")),
        ("Waar zijn de auto's?", ("auto's",)),
    ],
)
def test_what_the_rules_are_for(question: str, expected: tuple[str, ...]) -> None:
    assert extract_phrases(question) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Gdzie jest czerwony samochód?", ("czerwony samochód",)),
        ("Kırmızı araba nerede?", ("kırmızı araba",)),
        ("أين السيارة الحمراء؟", ("السيارة الحمراء",)),
        ("赤い車はどこですか", ()),
        ("รถสีแดงอยู่ที่ไหน", ()),
    ],
)
def test_other_languages(question: str, expected: tuple[str, ...]) -> None:
    assert extract_phrases(question) == expected


@pytest.mark.parametrize(
    "question", ["", " \n\t", "?!", "🐶🚗?", "\x00\x1b", "\ud800", "What is this?", "1 2 3"]
)
def test_nothing_to_find(question: str) -> None:
    assert extract_phrases(question) == ()


@pytest.mark.parametrize("question", HOSTILE)
def test_hostile_questions_give_phrases_that_are_words(question: str) -> None:
    for phrase in extract_phrases(question):
        assert all(
            unicodedata.category(letter)[0] in "LMNZ" or letter in "'’-\u200c\u200d" for letter in phrase
        )


def fold(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(unicodedata.normalize("NFC", text).casefold().split()))


@given(
    st.text()
    | st.lists(st.sampled_from([*HOSTILE, "the", "dog", "of", "-", "'s", "l'", "est"])).map(" ".join)
)
@example("".join(HOSTILE))
def test_phrases_are_valid_and_in_order(question: str) -> None:
    phrases = extract_phrases(question)
    assert len(phrases) == len(set(phrases)) <= MAX_PHRASES
    assert all(normalise_phrase(phrase) == phrase and len(phrase.split()) <= 5 for phrase in phrases)
    folded = fold(fold(question))  # as normalise_phrase does, which also refuses some questions
    for phrase, following in pairwise(phrases):
        assert phrase in folded
        assert folded.find(following, folded.find(phrase)) >= 0


@given(st.text(max_size=20), st.text(max_size=20))
def test_only_the_beginning_is_read(start: str, end: str) -> None:
    question = start + "the dog " * (READ_CHARACTERS // 8)
    assert extract_phrases(question + end) == extract_phrases(question)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "unit", ["a", "the dog ", "where is ", "of ", "dog-", "'", "\x00", "🐶", "e\u0301", "dog of the "]
)
def test_100_kilobytes(unit: str) -> None:
    assert set(extract_phrases(unit * (100_000 // len(unit)))) <= {"dog"}


def test_a_look_up_pays_for_no_heavy_import() -> None:
    program = (
        "import sys; from texcat.retrieval.extraction import extract_phrases\n"
        "assert extract_phrases('Where is the red car parked?') == ('red car',)\n"
        "print(sorted({'torch', 'nltk', 'textblob'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.parametrize("lead", range(12))
def test_a_text_that_is_cut_off_is_cut_between_words(lead: int) -> None:
    assert extract_phrases("." * lead + "the red kite " * 1_000) == ("red kite",)


def test_a_text_that_is_one_word_gives_nothing() -> None:
    assert extract_phrases("kite" * 10_000) == ()
