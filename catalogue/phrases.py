"""Phrases: the one spelling under which an interest is kept, and what can be asked.

Two phrases that differ only in case, in composed or decomposed letters, or in white space name one interest.
"""

from __future__ import annotations

import unicodedata

from .errors import InvalidPhraseError

MAX_CHARACTERS = 500
"""A normalised phrase is at most this long; text encoders cut off far earlier."""

# Embeddings, overrides and isolates reorder whatever is printed around them. The other format characters
# stay: scripts and emoji need the joiners and the tags.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
"""Categories of Unicode that leave no ink: controls, format characters and white space."""


def normalise_phrase(phrase: str) -> str:
    """`phrase` in NFC, case-folded, white space collapsed to single spaces and stripped.

    The result is a fixed point: it normalises to itself. Any language and emoji are fine.

    Raises:
        InvalidPhraseError: nothing visible is left, a control character (Cc other than white space), a
            surrogate or a bidirectional control is in it, or it has more than `MAX_CHARACTERS` characters.
    """
    for character in phrase:
        if _is_control(character):
            raise InvalidPhraseError(phrase, f"holds the control character U+{ord(character):04X}")
    normal = _fold(phrase)
    # Folding once more can change a letter that the first folding composed.
    while (again := _fold(normal)) != normal:
        normal = again
    if all(unicodedata.category(character) in {"Cf", "Zs"} for character in normal):
        raise InvalidPhraseError(phrase, "is empty")
    if len(normal) > MAX_CHARACTERS:
        raise InvalidPhraseError(phrase, f"has {len(normal)} characters, more than {MAX_CHARACTERS}")
    return normal


def check_question(question: str) -> None:
    """Let only what can be asked pass. A question is kept as it is written: of any length, lines and all.

    Raises:
        InvalidPhraseError: nothing visible is in it, or a surrogate, which no text encoder can read.
    """
    if all(unicodedata.category(character) in _INVISIBLE for character in question):
        raise InvalidPhraseError(question, "is empty")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        surrogate = ord(question[error.start])
        raise InvalidPhraseError(question, f"holds the surrogate U+{surrogate:04X}") from error


def singulars(phrase: str) -> list[str]:
    """What `phrase`, or its last word, may be the regular English plural of. Not all of them are words."""
    endings = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", ""))
    return [
        phrase.removesuffix(many) + one
        for many, one in endings
        if phrase.endswith(many) and phrase.rsplit(maxsplit=1)[-1] != many
    ]


def _is_control(character: str) -> bool:
    if character in _BIDI_CONTROLS:
        return True
    return unicodedata.category(character) in {"Cc", "Cs"} and not character.isspace()


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFC", text).casefold()
    return unicodedata.normalize("NFC", " ".join(folded.split()))
