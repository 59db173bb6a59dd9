"""Figures of an interest over the whole corpus, made from its stored maps: no encoder is needed.

A distribution is made again from the store when it is due, and nothing is counted along with the writes: so
an image that is written twice, or taken away, or a process that is killed, cannot leave it wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ..catalogue.catalogue import Catalogue
from ..catalogue.derived import HALF_PRESENT
from ..catalogue.distribution import Distribution
from ..catalogue.errors import TexcatError
from ..catalogue.quantise import LEVELS, dequantise
from ..catalogue.store import GROUP, TextureStore, stack
from ..catalogue.types import ImageKey, Planes

SAMPLE_IMAGES = 2_000
"""Images that a distribution is made from: its percentiles are right to about 0.003 at 0.95 (design/0005)."""

GROWTH = 0.1
"""A distribution is due again when the corpus, or its part in the sample, has changed by more than this."""

COVERAGE_IMAGES = 500
"""Images that are looked at for how many of them show an interest."""

_log = logging.getLogger(__name__)


def refresh_distributions(catalogue: Catalogue) -> dict[int, Distribution]:
    """Bring the distributions of all interests up to date, and return them by interest id.

    An interest whose map no image of the sample holds has none, and one that is archived keeps what it has.
    The sample is the first `SAMPLE_IMAGES` that the store names; it names them by their digests, so that they
    are a random choice. Records that are damaged are left out, with a warning.

    Raises:
        ReadOnlyError: the catalogue is open to read.
        StoreFullError: the disk has no room.
    """
    catalogue.require_writable("measure how the maps of interests are distributed")
    fingerprint = catalogue.settings.fingerprint
    known = catalogue.registry.distributions(fingerprint)
    every = catalogue.store.keys()
    sample = list(islice(every, SAMPLE_IMAGES))
    corpus = len(sample) + sum(1 for _ in every)
    due = [i.id for i in catalogue.mapped_interests() if _is_due(known.get(i.id), len(sample), corpus)]
    made: dict[int, Distribution] = {}
    for start in range(0, len(due), GROUP):
        for interest, maps in _maps(catalogue.store, sample, due[start : start + GROUP]).items():
            made[interest] = Distribution.of(dequantise(stack(maps)), corpus)
    catalogue.registry.put_distributions(fingerprint, made)
    catalogue.revision += len(made)  # retrievers in this process blend with the new ones from now on
    return {**known, **made}


def interest_scores(
    store: TextureStore, keys: Sequence[ImageKey], interests: Sequence[int]
) -> NDArray[np.float32]:
    """Mean of each interest's map in each of the images `keys`, on the encoder's scale: float32 [I, N].

    It is NaN where the image holds no map of the interest. Records that are damaged are left out, with a
    warning.
    """
    means = np.full((len(interests), len(keys)), np.nan, np.float32)
    place = {interest: row for row, interest in enumerate(interests)}
    for column, key in enumerate(keys):
        try:
            record = store.read(key, interests)
        except TexcatError as error:
            _log.warning("%s", error)
            continue
        for interest, planes in record.maps.items():
            span = (planes.high[0] - planes.low[0]) / LEVELS
            # Of 256 bytes: three times as fast as numpy's.
            means[place[interest], column] = (
                planes.low[0] + span * sum(planes.values.tobytes()) / planes.values.size
            )
    return means


def coverage(catalogue: Catalogue) -> dict[int, float]:
    """Part of the images that show an interest, by interest id: those with a cell at `HALF_PRESENT` or above.

    By a sample of at most `COVERAGE_IMAGES`, right to about 0.03. An interest without a distribution, or
    without maps in the sample, is left out, and so are records that are damaged, with a warning.
    """
    known = catalogue.registry.distributions(catalogue.settings.fingerprint)
    sample = list(islice(catalogue.store.keys(), COVERAGE_IMAGES))
    highest = {
        interest: np.array([planes.high[0] for planes in maps], np.float32)
        for interest, maps in _maps(catalogue.store, sample, list(known)).items()
    }
    return {i: float((known[i].strength(peaks) >= HALF_PRESENT).mean()) for i, peaks in highest.items()}


def _is_due(known: Distribution | None, sample: int, corpus: int) -> bool:
    if known is None:
        return True
    # An interest that not every image had a map of when it was measured has more in the sample now.
    return known.images < (1 - GROWTH) * sample or abs(corpus - known.corpus) > GROWTH * known.corpus


def _maps(
    store: TextureStore, sample: Sequence[ImageKey], interests: Sequence[int]
) -> dict[int, list[Planes]]:
    """Maps of `interests` in the images of `sample`, as far as they are held."""
    found: dict[int, list[Planes]] = {}
    for key in sample:
        try:
            record = store.read(key, interests)
        except TexcatError as error:
            _log.warning("%s", error)
            continue
        for interest, planes in record.maps.items():
            found.setdefault(interest, []).append(planes)
    return found
