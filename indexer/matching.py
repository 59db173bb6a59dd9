"""What the cosines of an encoder's text embeddings mean: they differ from one text model to the next."""

from __future__ import annotations

import numpy as np

from .encoders import DenseEncoder

NOUNS = (
    "dog", "tree", "bicycle", "kitchen", "mountain", "telescope", "birthday cake", "traffic light",
    "violin", "snow", "newspaper", "fishing boat", "tomato", "staircase", "tiger", "wedding dress",
    "screwdriver", "beach", "computer keyboard", "church", "horse", "umbrella", "fire", "bookshelf",
)  # fmt: skip
"""Everyday things that have little to do with each other."""

UNRELATED_PERCENTILE = 95.0


def match_range(encoder: DenseEncoder) -> tuple[float, float]:
    """Cosines (low, high) between which a question goes from unrelated to an interest to naming it.

    Each of `NOUNS` is asked for ("Where is the dog?") and compared with each as a phrase: `low` is the 95th
    percentile of the cosines with the other phrases, `high` the median of those with its own.
    """
    questions = encoder.text([f"Where is the {noun}?" for noun in NOUNS])
    cosines = (questions @ encoder.text(NOUNS).T).float().cpu().numpy()
    own = np.eye(len(NOUNS), dtype=bool)
    low, high = np.percentile(cosines[~own], UNRELATED_PERCENTILE), np.median(cosines[own])
    return float(low), float(max(high, low + np.finfo(np.float32).eps))
