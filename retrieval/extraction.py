"""What a question is about: its noun phrases, each of which may be an interest.

A question is cut into words, its language is told by its function words, every word gets a `_Role`, and
nouns that stand together with their modifiers are the phrases. In the languages of `grammars` a word is known
by the words around it and by its ending, and in English by its entry in the lexicon that comes with TextBlob
(Brill, 1992, "A simple rule-based part of speech tagger"). In any other language a phrase is what stands
between two stop words of `stopwordsiso`: the candidates of RAKE (Rose et al., 2010, "Automatic keyword
extraction from individual documents"). design/0006-phrases.md has the figures.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, lru_cache
from itertools import groupby, pairwise

from ..catalogue.phrases import normalise_phrase
from ..indexer.grammars import CLITICS, GRAMMARS, Grammar
from ..indexer.lexicon import english_tags

MAX_PHRASES = 8
"""So many phrases of a question are kept; one that holds more is a text, not a question."""

READ_CHARACTERS = 4_000
"""A question is read up to here, so that a pasted book costs no more than a long question."""

_MAX_WORDS = 5
_MAX_WORD_CHARACTERS = 40
_JOINERS = "\u200c\u200d"  # they stand inside words of Persian and of Indian scripts

# Scripts that put no space between words: a list of words cannot cut them.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")

_ENGLISH_ENDINGS = (("ing", "VBG"), ("ed", "VBN"), ("ly", "RB"))
_GERMAN_ADJECTIVES = ("e", "en", "er", "es", "em")


class _Gap(Enum):
    """What parts a word from the one before."""

    SPACE = auto()
    APOSTROPHE = auto()
    HYPHEN = auto()
    BREAK = auto()


class _Role(Enum):
    """What a word does in its question; as in `Grammar`."""

    NOUN = auto()
    MODIFIER = auto()
    DETERMINER = auto()
    CONTRACTED = auto()
    VERBAL = auto()
    JOINT = auto()
    LIGHT = auto()
    OTHER = auto()


_OPENING = frozenset({_Role.DETERMINER, _Role.CONTRACTED})


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    end: int
    text: str
    fold: str
    gap: _Gap


def extract_phrases(question: str) -> tuple[str, ...]:
    """The phrases of `question` that may be interests, normalised, in order of appearance, each once.

    At most `MAX_PHRASES`, of at most five words each, out of the first `READ_CHARACTERS` characters. English,
    German, French, Spanish, Italian, Portuguese and Dutch are parsed. Other languages that put spaces between
    their words give what stands between stop words; those that do not give nothing. A phrase keeps the
    inflection that it has in the question, and `normalise_phrase` leaves it as it is.
    """
    text = unicodedata.normalize("NFC", _beginning(question))
    words = _words(text)
    if not words:
        return ()
    phrases: dict[str, None] = {}
    for start, end in _spans(words, _roles(words)):
        phrases[normalise_phrase(text[start:end])] = None
        if len(phrases) == MAX_PHRASES:
            break
    return tuple(phrases)


def _beginning(question: str) -> str:
    """What is read of `question`; a word that the end falls into is left out."""
    if len(question) <= READ_CHARACTERS:
        return question
    end = READ_CHARACTERS
    while end and _in_word(question[end]) and _in_word(question[end - 1]):
        end -= 1
    return question[:end]


def _words(text: str) -> list[_Word]:
    """The words of `text`. "snow-covered" is one, "man's" and "l'eau" and "montre-moi" are two."""
    words: list[_Word] = []
    between = "."  # a question begins as after a full stop
    end = 0
    for in_word, characters in groupby(text, _in_word):
        piece = "".join(characters)
        start, end = end, end + len(piece)
        if not in_word or not any(map(str.isalnum, piece)):
            between += piece
            continue
        gap, between = _gap(between), ""
        if gap is _Gap.HYPHEN and piece.casefold() not in CLITICS:
            first = words.pop()
            start, piece, gap = first.start, text[first.start : end], first.gap
        words.append(_Word(start, end, piece, piece.casefold(), gap))
    return words


@lru_cache(maxsize=4096)
def _in_word(character: str) -> bool:
    if character in "'’ʼ":
        return False
    return character in _JOINERS or unicodedata.category(character)[0] in "LMN"


def _gap(between: str) -> _Gap:
    if between in {"'", "’", "ʼ"}:
        return _Gap.APOSTROPHE
    if between in {"-", "‐", "‑"}:
        return _Gap.HYPHEN
    return _Gap.SPACE if between.isspace() else _Gap.BREAK


def _spans(words: Sequence[_Word], roles: Sequence[_Role]) -> Iterator[tuple[int, int]]:
    """Start and end of every phrase: the longest runs of nouns, their modifiers, and joints between them."""
    run: list[int] = []
    for i, (word, role) in enumerate(zip(words, roles, strict=True)):
        if run and word.gap is _Gap.BREAK:
            yield from _span(words, roles, run)
            run = []
        joins = role is _Role.JOINT and bool(run) and roles[run[-1]] is _Role.NOUN
        if joins or role in {_Role.NOUN, _Role.MODIFIER}:
            run.append(i)
        else:
            yield from _span(words, roles, run)
            run = []
    yield from _span(words, roles, run)


def _span(words: Sequence[_Word], roles: Sequence[_Role], run: list[int]) -> Iterator[tuple[int, int]]:
    """The phrase of `run`, if there is one: it ends in a noun."""
    while run and roles[run[-1]] is not _Role.NOUN:
        run.pop()
    if 0 < len(run) <= _MAX_WORDS:
        yield words[run[0]].start, words[run[-1]].end


# ------------------------------------------------------------------------------------------------ language


def _language(words: Sequence[_Word]) -> str:
    """The ISO 639-1 code of the language that most words are function words of; "en" if there are none."""
    votes = Counter(language for word in words for language in _languages_of_words().get(word.fold, ()))
    return max(votes, key=lambda language: (votes[language], language in GRAMMARS), default="en")


@cache
def _languages_of_words() -> dict[str, tuple[str, ...]]:
    import stopwordsiso

    languages: dict[str, tuple[str, ...]] = {}
    for language in (*GRAMMARS, *sorted(stopwordsiso.langs() - GRAMMARS.keys())):
        own = language in GRAMMARS
        for word in GRAMMARS[language].function_words if own else stopwordsiso.stopwords(language):
            languages[word] = (*languages.get(word, ()), language)
    return languages


# --------------------------------------------------------------------------------------------------- roles


def _roles(words: Sequence[_Word]) -> list[_Role]:
    language = _language(words)
    if language == "en":
        return _english_roles(words)
    if language not in GRAMMARS:
        return _stop_word_roles(words, language)
    return _grammar_roles(words, GRAMMARS[language])


def _stop_word_roles(words: Sequence[_Word], language: str) -> list[_Role]:
    return [
        _Role.OTHER
        if language in _languages_of_words().get(word.fold, ()) or not _is_name(word)
        else _Role.NOUN
        for word in words
    ]


def _is_name(word: _Word) -> bool:
    """Whether `word` can be a noun at all: it has letters, an end, and a script that parts words."""
    return (
        len(word.text) <= _MAX_WORD_CHARACTERS
        and any(map(str.isalpha, word.text))
        and not unicodedata.name(word.text[0], "").startswith(_UNSPACED)
    )


def _function_role(word: _Word, grammar: Grammar) -> _Role | None:
    for role, members in (
        (_Role.LIGHT, grammar.light),
        (_Role.DETERMINER, grammar.determiners),
        (_Role.CONTRACTED, grammar.contracted),
        (_Role.VERBAL, grammar.verbal),
        (_Role.JOINT, grammar.joints),
        (_Role.OTHER, grammar.neutral),
    ):
        if word.fold in members:
            return role
    return None if _is_name(word) else _Role.OTHER


def _around(words: Sequence[_Word], roles: Sequence[_Role], i: int) -> tuple[_Role | None, _Role | None]:
    """The roles before and after word `i`; None at the edge of a sentence."""
    before = roles[i - 1] if words[i].gap is not _Gap.BREAK else None
    after = roles[i + 1] if i + 1 < len(words) and words[i + 1].gap is not _Gap.BREAK else None
    return before, after


# ------------------------------------------------------------------------------------------------- English


def _english_roles(words: Sequence[_Word]) -> list[_Role]:
    tags = [_tag(word) for word in words]
    roles = [
        _function_role(word, GRAMMARS["en"]) or _tag_role(tag) for word, tag in zip(words, tags, strict=True)
    ]
    for i in range(len(words)):
        before, after = _around(words, roles, i)
        opened = before in {_Role.DETERMINER, _Role.MODIFIER}
        if roles[i] is _Role.LIGHT and before is _Role.DETERMINER and after is _Role.NOUN:
            roles[i] = _Role.NOUN  # "the front door", "a picture frame"
        elif tags[i] in {"VBN", "VBG"} and opened and after in {_Role.NOUN, _Role.MODIFIER}:
            roles[i] = _Role.MODIFIER  # "a burning house"
        elif roles[i] is _Role.OTHER and tags[i].startswith("VB") and before is _Role.DETERMINER:
            roles[i] = _Role.NOUN  # "the stop sign"
        elif roles[i] is _Role.NOUN and after is _Role.DETERMINER and before in {None, _Role.NOUN}:
            roles[i] = _Role.OTHER  # "count the sheep", "did the girl drop her ball"
        elif roles[i] is _Role.NOUN and before is None and after is _Role.VERBAL:
            roles[i] = _Role.OTHER  # "show me"
    return roles


def _tag_role(tag: str) -> _Role:
    if tag.startswith("NN"):
        return _Role.NOUN
    return _Role.MODIFIER if tag.startswith("JJ") else _Role.OTHER


def _tag(word: _Word) -> str:
    """The most frequent tag of `word` in the Penn Treebank; "t-shirt" has that of its last part."""
    last = word.fold.rpartition("-")[2]
    known = english_tags().get(last)
    if known is not None:
        return known
    return next((tag for ending, tag in _ENGLISH_ENDINGS if last.endswith(ending)), "NN")


# ------------------------------------------------------------------------------------- the other languages


def _grammar_roles(words: Sequence[_Word], grammar: Grammar) -> list[_Role]:
    roles = [_function_role(word, grammar) or _Role.NOUN for word in words]
    if grammar.capitals and any(a.text.islower() and b.text.istitle() for a, b in pairwise(words)):
        _part_by_capitals(words, roles)
    for i in range(len(words)):
        if roles[i] is _Role.NOUN and _is_verb(words, roles, i, grammar):
            roles[i] = _Role.OTHER
        elif words[i].fold == "s" and words[i].gap is _Gap.APOSTROPHE:
            roles[i] = roles[i - 1]  # Dutch plurals: "auto's"
    return roles


def _part_by_capitals(words: Sequence[_Word], roles: list[_Role]) -> None:
    """Leave `NOUN` to what has a capital letter, and make what is small a modifier or no part of a phrase."""
    for i in reversed(range(len(words))):
        word, (before, after) = words[i], _around(words, roles, i)
        starts = word.gap is _Gap.BREAK
        if roles[i] is not _Role.NOUN or (word.text[0].isupper() and not starts):
            continue
        if after in {_Role.NOUN, _Role.MODIFIER}:
            follows_noun = before is _Role.NOUN and words[i - 1].text[0].isupper()
            verb = starts and word.fold.endswith("en")  # "Tragen Kinder …", but "Rote Autos …"
            agrees = word.fold.endswith(_GERMAN_ADJECTIVES) and before not in {_Role.LIGHT, _Role.VERBAL}
            roles[i] = _Role.MODIFIER if agrees and not verb and not follows_noun else _Role.OTHER
        elif not starts:
            roles[i] = _Role.OTHER


def _is_verb(words: Sequence[_Word], roles: Sequence[_Role], i: int, grammar: Grammar) -> bool:
    word, (before, after) = words[i], _around(words, roles, i)
    if before in _OPENING or (grammar.capitals and word.text[0].isupper() and word.gap is not _Gap.BREAK):
        return False
    if i + 1 < len(words) and words[i + 1].gap is _Gap.HYPHEN:
        return True  # a pronoun hangs on it
    if before is _Role.VERBAL or after is _Role.DETERMINER:
        return True
    if before is _Role.NOUN:
        belongs_to_next = after in {_Role.OTHER, _Role.VERBAL}
        endings = grammar.verbs + (grammar.participles if belongs_to_next else ())
        return word.fold.endswith(endings)
    return before is None and grammar.head_last and after is _Role.VERBAL
