"""Phrases taken apart by their words."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.indexer.encoders.phrases import COLOURS, Parsed, Parts, parse

NAMES = frozenset({"red fox", "white wine"})


@pytest.mark.parametrize(
    ("phrase", "nouns", "colours"),
    [
        ("red car", ["car"], ["red"]),
        ("a dark blue T-shirt", ["t-shirt"], ["blue"]),
        ("sky-blue house", ["house"], ["blue"]),
        ("Gray cat", ["cat"], ["grey"]),
        ("black and white cat", ["cat"], ["black", "white"]),
        ("something red", [], ["red"]),
        ("bike - the red one", ["bike"], ["red"]),
        ("dog and bike", ["dog", "bike"], []),
        ("woman with umbrella", ["woman", "umbrella"], []),
        ("dog, cat; bird", ["dog", "cat", "bird"], []),
        ("a man riding a horse", ["man riding", "horse"], []),
        ("green apples on a white plate", ["apples", "plate"], ["green", "white"]),
        ("glass of red juice", ["glass of juice"], ["red"]),
        ("Where is the red bike parked?", ["bike parked"], ["red"]),
    ],
)
def test_nouns_and_colours(phrase: str, nouns: list[str], colours: list[str]) -> None:
    assert parse(phrase, NAMES) == Parsed(Parts(tuple(nouns), tuple(colours)))


@pytest.mark.parametrize(
    "phrase",
    [
        "Mountain biking",
        "a photo of a dog",
        "orange",
        "an orange",
        "red fox",
        "glass of water",
        "traffic light",
        "no parking sign",
        "🐶",
        "红色的车",
        "the",
        "",
        "?!",
    ],
)
def test_one_thing_is_left_as_it_was_written(phrase: str) -> None:
    assert parse(phrase, NAMES) == Parsed(Parts((phrase,)))


@pytest.mark.parametrize(
    ("phrase", "wanted", "unwanted"),
    [
        ("no dog", [], ["dog"]),
        ("not a cat", [], ["cat"]),
        ("street without cars", ["street"], ["cars"]),
        ("street without cars and people but with trees", ["street", "trees"], ["cars", "people"]),
        ("no dog and a cat", ["cat"], ["dog"]),
        ("no dog, cat", ["cat"], ["dog"]),
        ("it isn't a dog", [], ["dog"]),
        ("it isn’t a dog", [], ["dog"]),
        ("not only dogs", ["not only dogs"], []),
        ("dog -leash -muzzle", ["dog"], ["leash", "muzzle"]),
    ],
)
def test_what_is_not_meant(phrase: str, wanted: list[str], unwanted: list[str]) -> None:
    assert parse(phrase) == Parsed(Parts(tuple(wanted)), Parts(tuple(unwanted)))


def test_a_colour_that_is_not_meant() -> None:
    assert parse("a dog that is not black") == Parsed(Parts(("dog",)), Parts((), ("black",)))


@given(st.text(max_size=200))
def test_any_text_has_parts(phrase: str) -> None:
    parsed = parse(phrase)
    assert parsed.wanted != Parts() or parsed.unwanted != Parts()
    for part in (parsed.wanted, parsed.unwanted):
        assert set(part.colours) <= set(COLOURS.values())


def test_taking_apart_needs_no_torch() -> None:
    code = "import sys, texcat.indexer.encoders.phrases; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
