"""What a phrase is made of: nouns, colours, and what it says it does not mean. English; no network.

A text encoder reads "street without cars" as something about streets and cars, and "dog and bike" as one
thing between the two. So a phrase is taken apart first, by words alone:

1. Clauses end at punctuation. A minus before a word (see `negatives`) or a word of `CUES` turns what follows
   into something unwanted, to the end of the clause or to a word of `TURNS`. "and" goes on with what is
   unwanted ("without cars and people") unless an article follows ("no dog and a cat"). A sign that forbids
   is a thing: in "no parking sign" nothing is unwanted.
2. Function words part a clause into chunks; "of" does not ("glass of water"). Words for pictures, kinds and
   numbers ("photo", "group") are left out where another word is left.
3. A colour word (`COLOURS`; shades such as "dark" go with it) is taken out of its chunk, and what is left is
   the noun: "red car" is car, and red. It stays where it is a noun itself, at the end of a chunk that has
   another word or as "orange" alone, and where chunk and colour are one name ("red fox", `names`).

A phrase that is one chunk without colours is not touched: it is read as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..grammars import GRAMMARS
from .negatives import split_negatives

_TERMS = ("black", "blue", "brown", "green", "grey", "orange", "pink", "purple", "red", "white", "yellow")

COLOURS = {
    **dict(zip(_TERMS, _TERMS, strict=True)),
    "gray": "grey",
    "silver": "grey",
    "crimson": "red",
    "scarlet": "red",
    "violet": "purple",
    "navy": "blue",
    "turquoise": "blue",
    "beige": "brown",
    "golden": "yellow",
}
"""Colour words, and the basic colour term (Berlin & Kay 1969) of each."""

CUES = frozenset(
    ["no", "not", "without", "except", "excluding", "minus", "nor", "neither", "never", "lacking"]
)
"""What follows is not meant. A word that ends in "n't" is one of them, too."""

TURNS = frozenset(["but", "with", "only", "instead", "although", "though"])
"""What follows is meant again."""

_SHADES = frozenset(["bright", "dark", "light", "pale", "deep", "vivid"])
_JOINTS = frozenset({"and", "or"})
_ARTICLES = frozenset(["a", "an", "the", "some", "one"])
_SIGNS = frozenset({"sign", "signs"})
_FRUIT = "orange"

_ENGLISH = GRAMMARS["en"]
_PARTING = _ENGLISH.function_words - _ENGLISH.joints
_WORDS = re.compile(r"\w+(?:[-'’]\w+)*")
_CLAUSES = re.compile(r"[,.;:!?()\[\]\"\n]+|\s[-–—]\s")


@dataclass(frozen=True, slots=True)
class Parts:
    """What is in a phrase: nouns in the order of the phrase, and basic colour terms, each once."""

    nouns: tuple[str, ...] = ()
    colours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A phrase taken apart: what it means, and what it says that it does not mean."""

    wanted: Parts
    unwanted: Parts = Parts()


def parse(phrase: str, names: Collection[str] = ()) -> Parsed:
    """Take a phrase apart; see the module for the rules.

    Args:
        phrase: in any language; what is no English is one noun, as far as no English word parts it.
        names: of things, in small letters, whose colours are part of them: "red fox", "white wine".
    """
    meant, minus = split_negatives(phrase)
    chunks, unwanted = _chunks(meant)
    for negative in minus:
        unwanted += [chunk for chunks_of_it in _chunks(negative) for chunk in chunks_of_it]
    if not unwanted and (not chunks or (len(chunks) == 1 and not _split(chunks[0], names)[1])):
        return Parsed(Parts((phrase,)))
    return Parsed(_parts(chunks, names), _parts(unwanted, names))


def _chunks(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """Chunks of words, in small letters: those that are wanted, and those that are not."""
    wanted: list[list[str]] = []
    unwanted: list[list[str]] = []
    for clause in _CLAUSES.split(text.casefold()):
        words = _WORDS.findall(clause)
        for negated, chunk in _clause_chunks(words):
            (unwanted if negated else wanted).append(chunk)
    return _without_light(wanted), _without_light(unwanted)


def _clause_chunks(words: Sequence[str]) -> Iterator[tuple[bool, list[str]]]:
    """(whether it is unwanted, its words) of each chunk of a clause."""
    forbids = bool(words) and words[-1] in _SIGNS
    negated = False
    chunk: list[str] = []
    for word, following in pairwise((*words, "", "")):
        if not word or word in _PARTING or word in CUES or word in TURNS or _is_contracted(word):
            if chunk:
                yield negated, chunk
            chunk = []
        else:
            chunk.append(word)
        if (word in CUES or _is_contracted(word)) and following != "only" and not forbids:
            negated = True
        elif word in TURNS or (word in _JOINTS and following in _ARTICLES):
            negated = False


def _is_contracted(word: str) -> bool:
    return word.endswith(("n't", "n’t"))


def _without_light(chunks: list[list[str]]) -> list[list[str]]:
    """`chunks` without words that are no interests, unless nothing else is left."""
    cleared = [[word for word in chunk if word not in _ENGLISH.light] for chunk in chunks]
    return [chunk for chunk in cleared if not _ENGLISH.joints.issuperset(chunk)] or chunks


def _parts(chunks: Sequence[Sequence[str]], names: Collection[str]) -> Parts:
    nouns: dict[str, None] = {}
    colours: dict[str, None] = {}
    for chunk in chunks:
        noun, found = _split(chunk, names)
        if noun:
            nouns[" ".join(noun)] = None
        colours |= dict.fromkeys(found)
    return Parts(tuple(nouns), tuple(colours))


def _split(chunk: Sequence[str], names: Collection[str]) -> tuple[list[str], list[str]]:
    """Words of the noun, and basic colour terms, of a chunk."""
    if " ".join(chunk) in names or list(chunk) == [_FRUIT]:
        return list(chunk), []
    noun: list[str] = []
    colours: list[str] = []
    for place, word in enumerate(chunk):
        at_end = place == len(chunk) - 1
        before_colour = not at_end and chunk[place + 1] in COLOURS
        colour = COLOURS.get(word.rpartition("-")[2])  # "sky-blue"
        if colour and not (at_end and noun):
            colours.append(colour)
        elif not (word in _SHADES and before_colour):
            noun.append(word)
    return noun, colours
