"""Relating phrases: by what they mean, with the encoder, and by what is seen, from the stored maps."""

from __future__ import annotations

from itertools import islice

import numpy as np

from ..catalogue.catalogue import Catalogue
from ..catalogue.memory import Memory
from ..catalogue.relations import Relations
from .encoders import DenseEncoder
from .statistics import interest_scores

LEAST_IMAGES = 30
"""With fewer images in common, a correlation says nothing."""

_BATCH = 256


def relate_by_meaning(catalogue: Catalogue, memory: Memory, encoder: DenseEncoder) -> int:
    """Embed every phrase that has no text embedding yet, and tie it to the nearest; how many there were.

    What was done is kept when it is interrupted.

    Raises:
        FingerprintMismatchError: the catalogue's records are another encoder's.
        ReadOnlyError, StoreFullError: the memory is open to read, or the disk is full.
    """
    catalogue.check_encoder(encoder.fingerprint)
    relations = Relations(memory.database, encoder.fingerprint)
    phrases = relations.without_text()
    remaining = iter(phrases)
    while batch := list(islice(remaining, _BATCH)):
        texts = encoder.text(batch).float().cpu().numpy()
        relations.add_texts(dict(zip(batch, texts, strict=True)))
    return len(phrases)


def relate_by_sight(catalogue: Catalogue, memory: Memory) -> int:
    """Tie interests whose scores rise and fall together over the corpus, in place of all such ties.

    Compared are the images that all these interests have a map of; how many. An interest with maps of
    fewer than half as many images as the one with most is left out. With fewer than `LEAST_IMAGES` images
    nothing is tied.

    Raises:
        RecordCorruptError: a record is damaged.
        ReadOnlyError, StoreFullError: the memory is open to read, or the disk is full.
    """
    scored = {i.phrase: interest_scores(catalogue.store, i.id) for i in catalogue.mapped_interests()}
    most = max((len(keys) for keys, _ in scored.values()), default=0)
    scored = {phrase: found for phrase, found in scored.items() if 2 * len(found[0]) >= max(most, 1)}
    held = [set(keys) for keys, _ in scored.values()]
    shared = sorted(held[0].intersection(*held[1:])) if held else []
    scores = {}
    if len(shared) >= LEAST_IMAGES:
        for phrase, (keys, values) in scored.items():
            place = {key: i for i, key in enumerate(keys)}
            scores[phrase] = values[np.array([place[key] for key in shared])]
    Relations(memory.database, catalogue.settings.fingerprint).put_scores(scores)
    return len(shared)
