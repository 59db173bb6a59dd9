"""Phrases that say what they do not mean: ``red bike -person -road sign``.

A minus right before a letter, after white space, starts a negative; it goes on to the next such minus.
A hyphen within a word (``t-shirt``), a dash between spaces (``a bike - the red one``) and a number
(``-5 degrees``) are text like any other.
"""

from __future__ import annotations

import re

_MINUS = re.compile(r"\s-(?=[^\W\d_])")


def split_negatives(phrase: str) -> tuple[str, tuple[str, ...]]:
    """`phrase` without its negatives, and the negatives, each without its minus.

    A phrase that begins with a minus says nothing that it means: up to the next minus it is read as it is.
    """
    wanted, *negatives = _MINUS.split(phrase.strip())
    return wanted.strip(), tuple(negative.strip() for negative in negatives)
