"""English words and what they mostly are: the lexicon that comes with TextBlob (Brill 1992), 94,000 words."""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution
from pathlib import Path


@cache
def english_tags() -> dict[str, str]:
    """The most frequent tag, in the Penn Treebank's set, of each English word in small letters."""
    # Importing TextBlob takes half a second or more, for NLTK and SciPy; the file needs none of them.
    path = Path(str(distribution("textblob").locate_file("textblob/en/en-lexicon.txt")))
    entries = (line.split(" ") for line in path.read_text(encoding="utf-8").splitlines())
    return {entry[0]: entry[1] for entry in entries if len(entry) > 1 and entry[0].islower()}
