"""Search: the photos of a catalogue, ranked by phrases that count for them or against them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..catalogue.catalogue import Catalogue
from ..catalogue.coded import coded_maps
from ..catalogue.codes import code_mean
from ..catalogue.errors import CatalogueError, RecordMissingError, UsageError
from ..catalogue.quantise import LEVELS, dequantise
from ..catalogue.store import TextureStore
from ..catalogue.types import Box, ImageKey, Interest, InterestVectors, Planes
from .query import Term, parse_query
from .types import Tier
from .vectors import Vectors

Floats = NDArray[np.float32]

TOP_SHARE = 0.25
"""Part of a stored map, its highest cells, whose mean is its score: benchmarks/search.py compares."""

REGION_PERCENTILE = 95.0
SAMPLE = 256
"""Photos whose maps say what a high value is: the first by key, which is a digest, and so in random order."""


@dataclass(frozen=True, slots=True)
class Result:
    """A photo that was found.

    Attributes:
        key: the photo.
        paths: files that were seen to hold it, in order; they may be gone since.
        score: sum of the contributions.
        contributions: of each term of the query: its weight times the photo's score for its phrase, in
            standard deviations from the mean over all ranked photos.
        region: box around the place that matched; None where no place of the photo stands out.
    """

    key: ImageKey
    paths: tuple[str, ...]
    score: float
    contributions: tuple[float, ...]
    region: Box | None


@dataclass(frozen=True, slots=True)
class Found:
    """Answer to a query.

    Attributes:
        terms: of the query, in order.
        results: photos, the best first.
        tier: what they were ranked from: ``coded`` or ``stored``.
        ranked: how many photos were compared.
        unranked: how many could not be, because what that takes is not held of them.
    """

    terms: tuple[Term, ...]
    results: tuple[Result, ...]
    tier: Tier
    ranked: int
    unranked: int


class Searcher:
    """Searches one catalogue. Codes are read once, and again when the catalogue has other photos.

    Args:
        catalogue: an open one.
        direction: gives the direction, float32 [dim], of any phrase. It is asked only for phrases that are
            no interests, or whose interest has no vectors yet.
    """

    def __init__(self, catalogue: Catalogue, direction: Callable[[str], Floats]) -> None:
        self._catalogue = catalogue
        self._direction = direction
        self._codes: _Codes | None = None

    def search(self, query: str, n: int = 20) -> Found:
        """The `n` photos that answer a query best; see `query` for how one is written.

        A photo's score for one phrase is, from its code, the mean of the phrase's map over the length of the
        photo's mean feature: but for a factor, the cosine of that feature and the phrase's direction. Or it
        is, from the stored map, the mean of its highest quarter. Scores are standardised over the photos, and
        added up times the weights of the terms. Codes are used unless stored maps cover more photos.

        The region of a result is where the weighted sum of the maps of its phrases without minus sign lies
        above the 95th percentile of that sum over the corpus, around its peak.

        Raises:
            UsageError: `n` is below 1, or the query cannot be read.
            InvalidPhraseError: a phrase of it can name no interest.
            CatalogueError: no photo has a code, or maps of all phrases.
            EncoderNeededError, EncoderError: as the `direction` of a new phrase raises them.
            RecordCorruptError: a stored map is damaged.
        """
        if n < 1:
            raise UsageError(f"n must be at least 1, got {n}")
        terms = parse_query(query)
        photos = sorted(self._catalogue.store.keys())
        corpus = self._corpus(terms, photos)
        weights = np.array([term.weight for term in terms])
        parts = weights[:, None] * standardise(corpus.scores)
        scores = parts.sum(0)
        best = np.argsort(-scores, kind="stable")[:n]
        keys = [corpus.keys[place] for place in best]
        results = tuple(
            Result(key, self._paths(key), float(scores[place]), tuple(map(float, parts[:, place])), region)
            for key, place, region in zip(keys, best, _regions(corpus, weights, keys), strict=True)
        )
        return Found(terms, results, corpus.tier, len(corpus.keys), len(photos) - len(corpus.keys))

    def _corpus(self, terms: Sequence[Term], photos: Sequence[ImageKey]) -> _Corpus:
        """What ranks the most of the `photos`: their codes, or the stored maps of interests."""
        catalogue = self._catalogue
        interests = {term.phrase: catalogue.registry.find_interest(term.phrase) for term in terms}
        found: list[_Corpus] = []
        codes = self._read_codes(photos)
        if codes.keys:
            vectors = catalogue.registry.vectors(catalogue.settings.fingerprint)
            directions = [self._direction_of(term, interests[term.phrase], vectors) for term in terms]
            coordinates = catalogue.codebook().coordinates(np.stack(directions))
            found.append(_CodedCorpus(codes, catalogue.store, coordinates))
        known = [interest for term in terms if (interest := interests[term.phrase]) is not None]
        if len(codes.keys) < len(photos) and len(known) == len(terms):
            found.append(_StoredCorpus(catalogue.store, [interest.id for interest in known]))
        best = max(found, key=lambda corpus: len(corpus.keys), default=None)
        if best is None or not best.keys:
            raise self._nothing_to_rank(len(photos), [p for p, interest in interests.items() if not interest])
        return best

    def _read_codes(self, photos: Sequence[ImageKey]) -> _Codes:
        if self._codes is None or self._codes.photos != photos:
            self._codes = _Codes(self._catalogue, photos)
        return self._codes

    def _direction_of(
        self, term: Term, interest: Interest | None, vectors: dict[int, InterestVectors]
    ) -> Floats:
        if interest is not None and interest.id in vectors:
            return vectors[interest.id].direction
        return self._direction(term.phrase)

    def _paths(self, key: ImageKey) -> tuple[str, ...]:
        return tuple(map(os.fsdecode, self._catalogue.registry.paths_of(key)))

    def _nothing_to_rank(self, photos: int, lacking: Sequence[str]) -> CatalogueError:
        name = f"catalogue {os.fspath(self._catalogue.path)!r}"
        if photos == 0:
            return CatalogueError(f"{name} holds no photos to search; `texcat index FOLDER` adds some")
        if lacking:
            return CatalogueError(
                f"{name} has no codes, and no interest {lacking[0]!r}, to rank its photos by: `texcat index "
                "FOLDER` makes codes; `texcat interest add` and then `texcat index FOLDER` make its maps"
            )
        return CatalogueError(
            f"no photo of {name} has a code, or a map of each interest; `texcat index FOLDER` makes both"
        )


class _Corpus(Protocol):
    """Photos with their scores for the terms of one query."""

    tier: Tier
    keys: Sequence[ImageKey]
    """Ascending."""
    scores: Floats
    """[T, N], of each term in each photo."""

    def maps(self, key: ImageKey) -> Floats:
        """Maps of the terms in a photo: [T, side, side]."""
        ...


class _Codes:
    """Mean features of the photos that have a code, read when the catalogue held `photos`.

    `vectors` holds, for each of `keys`, its `code_mean` over the length of its mean feature.
    """

    def __init__(self, catalogue: Catalogue, photos: Sequence[ImageKey]) -> None:
        self.photos = photos
        coded = catalogue.settings.codebook != ""
        means = {key: code_mean(code) for key, code in catalogue.store.codes()} if coded else {}
        self.keys: Sequence[ImageKey] = sorted(means)
        if means:
            stacked = np.stack([means[key] for key in self.keys])
            # The mean feature is stacked @ project. The rows of project are orthogonal.
            lengths = np.sqrt(np.square(stacked) @ np.square(catalogue.codebook().project).sum(1))[:, None]
            self.vectors = Vectors(np.divide(stacked, lengths, out=np.zeros_like(stacked), where=lengths > 0))


class _CodedCorpus:
    tier = Tier.CODED

    def __init__(self, codes: _Codes, store: TextureStore, coordinates: Floats) -> None:
        self.keys = codes.keys
        self.scores = np.stack([codes.vectors.products(each) for each in coordinates])
        self._store = store
        self._coordinates = coordinates

    def maps(self, key: ImageKey) -> Floats:
        code = self._store.code(key)
        if code is None:  # it was there a moment ago
            raise RecordMissingError(str(key))
        return coded_maps(code, self._coordinates)


class _StoredCorpus:
    tier = Tier.STORED

    def __init__(self, store: TextureStore, interests: Sequence[int]) -> None:
        self._store = store
        self._interests = interests
        scores = [{key: top_mean(planes) for key, planes in store.scan(each)} for each in interests]
        self.keys: Sequence[ImageKey] = sorted(set.intersection(*map(set, scores)))
        self.scores = np.array([[each[key] for key in self.keys] for each in scores], np.float32)

    def maps(self, key: ImageKey) -> Floats:
        held = self._store.read(key, self._interests).maps
        return np.concatenate([dequantise(held[each]) for each in self._interests])


def top_mean(planes: Planes) -> float:
    """Mean of the highest quarter of the cells of a stored map [1, n, n]."""
    values = planes.values.ravel()
    count = max(1, round(TOP_SHARE * values.size))
    top = np.partition(values, -count)[-count:]
    return float(planes.low[0] + (planes.high[0] - planes.low[0]) * top.mean() / LEVELS)


def standardise(scores: Floats) -> NDArray[np.float64]:
    """Scores [T, N] less their mean and over their standard deviation, row by row; 0 where those are one."""
    centred = scores - scores.mean(1, keepdims=True, dtype=np.float64)
    spread = centred.std(1, keepdims=True)
    standard: NDArray[np.float64] = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
    return standard


def _regions(corpus: _Corpus, weights: NDArray[np.float64], keys: Sequence[ImageKey]) -> Sequence[Box | None]:
    """Region of each of the photos `keys`; see `Searcher.search`."""
    sample = np.stack([corpus.maps(key) for key in corpus.keys[:SAMPLE]])
    spread = sample.std(axis=(0, 2, 3), dtype=np.float64)
    scale = np.divide(np.maximum(weights, 0), spread, out=np.zeros_like(spread), where=spread > 0)
    threshold = float(np.percentile(np.tensordot(scale, sample, (0, 1)), REGION_PERCENTILE))
    return [region(np.tensordot(scale, corpus.maps(key), 1).astype(np.float32), threshold) for key in keys]


def region(plane: Floats, threshold: float) -> Box | None:
    """Box around the connected part of `plane` [n, n] that lies above `threshold` and holds its peak.

    Its sides are those of cells. None where nothing lies above.
    """
    parts, _ = ndimage.label(plane > threshold)
    part = parts.flat[plane.argmax()]
    if part == 0:
        return None
    rows, columns = ndimage.find_objects(parts)[part - 1]
    side = len(plane)
    return Box(columns.start / side, rows.start / side, columns.stop / side, rows.stop / side)
