"""What `search` takes: phrases with weights and signs.

::

    query  = term { white space term }
    term   = [ "+" | "-" ] phrase [ "^" weight ]
    phrase = words | '"' characters '"'
    weight = decimal number above 0, such as 2 or 0.5; 1 when left out

Words that stand together are one phrase: it goes on until a sign, a quotation mark or a weight. A sign is
the first character of a word, so ``t-shirt`` is a word. In quotation marks anything goes, and ``""`` stands
for one quotation mark. A minus sign takes what follows away.

``red car`` is one phrase; ``red +car``, ``"red" "car"`` and ``red^1 car`` are two; ``dog^2 beach -leash`` is
three, of which the last counts against a photo.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from ..catalogue.errors import UsageError
from ..catalogue.phrases import normalise_phrase

_WORD = r'[^\s"^+-][^\s"^]*'
_TERM = re.compile(
    rf"""
    (?P<sign>[+-]?)
    (?: "(?P<quoted>(?:[^"]|"")*)" | (?P<words>{_WORD}(?:\s+{_WORD})*) )
    (?: \^(?P<weight>[0-9]+(?:\.[0-9]+)?) )?
    (?: \s+ | $ )
    """,
    re.VERBOSE,
)
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Term:
    """A phrase, normalised, and what it counts: below 0 after a minus sign, never 0."""

    phrase: str
    weight: float = 1.0

    def __str__(self) -> str:
        """One term of a query, as `parse_query` reads it."""
        sign = "-" if self.weight < 0 else ""
        quoted = '"' + self.phrase.replace('"', '""') + '"'
        size = abs(self.weight)
        return f"{sign}{quoted}" + ("" if size == 1 else f"^{np.format_float_positional(size, trim='-')}")


def parse_query(query: str) -> tuple[Term, ...]:
    """Terms of a query, in order.

    Raises:
        UsageError: the query is empty, or not written as the module says; the message says where.
        InvalidPhraseError: a phrase of it can name no interest.
    """
    text = query.strip()
    if not text:
        raise UsageError('the query is empty; give phrases, such as: dog -leash, or "red car"^2 +beach')
    terms: list[Term] = []
    place = 0
    while place < len(text):
        found = _TERM.match(text, place)
        if found is None:
            raise _unreadable(text, place, "expected [+ or -] phrase [^weight]")
        terms.append(_term(text, found))
        place = found.end()
    return tuple(terms)


def _term(text: str, found: re.Match[str]) -> Term:
    weight = float(found["weight"] or 1)
    if not 0 < weight < math.inf:
        raise _unreadable(text, found.start("weight"), "a weight is above 0 and finite")
    phrase = found["words"] if found["quoted"] is None else found["quoted"].replace('""', '"')
    return Term(normalise_phrase(phrase), -weight if found["sign"] == "-" else weight)


def _unreadable(text: str, place: int, expected: str) -> UsageError:
    rest = text[place:]
    shown = rest if len(rest) <= _SHOWN else rest[: _SHOWN - 1] + "…"
    return UsageError(
        f"cannot read the query from character {place + 1} on, {shown!r}: {expected}; "
        'such as: dog -leash, or "red car"^2 +beach'
    )
