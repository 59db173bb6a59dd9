"""The tier `coded`: maps from the code of an image, which is neither read nor encoded again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ..catalogue.catalogue import Catalogue
from ..catalogue.coded import coded_blend, coded_map, coded_maps
from ..catalogue.distribution import Distribution
from ..catalogue.types import ImageKey, InterestVectors
from .caching import keep
from .computing import Computer
from .kernels import Places
from .types import Matches

CACHED_PHRASES = 1024
SAMPLE_IMAGES = 256
"""From which the distribution of a question's map is estimated, the first time it is asked: about 50 ms."""

Floats = NDArray[np.float32]


class Decoder:
    """Makes maps from codes.

    Args:
        catalogue: holds the codes.
        computer: gives the direction of a phrase that is no interest; without one, such a phrase has no map.
    """

    def __init__(self, catalogue: Catalogue, computer: Computer | None) -> None:
        self._catalogue = catalogue
        self._computer = computer
        self._vectors: Mapping[int, InterestVectors] = {}
        self._of_interests: dict[int, Floats] = {}
        self._of_phrases: OrderedDict[str, Floats] = OrderedDict()
        self._distributions: OrderedDict[str, Distribution] = OrderedDict()

    def know(self, vectors: Mapping[int, InterestVectors]) -> None:
        """Take the vectors of interests, by id, for those known before."""
        self._vectors, self._of_interests = vectors, {}
        self._distributions.clear()
        self._of_phrases.clear()  # a phrase may be an interest with other exemplars now

    def interest_map(self, key: ImageKey, interest: int) -> Floats | None:
        """Map of an interest in an image: float32 [n, n]; None when that has no code, or this is not known.

        It is on the grid and the scale of the encoder.

        Raises:
            RecordCorruptError: the code is damaged.
            CatalogueError: the codebook is lost or damaged.
        """
        code = self._code(key)
        if code is None or interest not in self._vectors:
            return None
        return coded_map(code, self._of_interest(interest)[0])

    def blend(self, key: ImageKey, matches: Matches, places: Places) -> Floats | None:
        """`blending.blend` of the maps of those of `matches` at `places`, at least one: float32 [n, n].

        None when the image has no code, or one of the interests is not known.

        Raises:
            RecordCorruptError, CatalogueError: as `interest_map`.
        """
        interests = [matches[place].interest.id for place in places.tolist()]
        code = self._code(key)
        if code is None or any(interest not in self._vectors for interest in interests):
            return None
        coordinates = [self._of_interest(interest) for interest in interests]
        return coded_blend(
            code,
            coordinates[0] if len(coordinates) == 1 else np.concatenate(coordinates),
            matches.gains[places],
            matches.medians[places],
            matches.calibrated,
        )

    def phrase_map(self, key: ImageKey, phrase: str) -> Floats | None:
        """Map of any phrase in an image: float32 [n, n], as `interest_map`.

        None when the image has no code, or the phrase is new and the encoder may not be loaded.
        """
        code = self._code(key)
        coordinates = None if code is None else self._of_phrase(phrase)
        if code is None or coordinates is None:
            return None
        return coded_map(code, coordinates[0])

    def distribution(self, phrase: str) -> Distribution | None:
        """How the values of a phrase's map are spread over `SAMPLE_IMAGES` of the images that have codes.

        None when there are none, or the phrase is new and the encoder may not be loaded.
        """
        known = self._distributions.get(phrase)
        if known is None and self._catalogue.settings.codebook:
            coordinates = self._of_phrase(phrase)
            if coordinates is None:
                return None
            codes = islice(self._catalogue.store.codes(), SAMPLE_IMAGES)
            maps = [coded_maps(code, coordinates) for _, code in codes]
            if not maps:
                return None
            made = Distribution.of(np.concatenate(maps), len(maps))
            known = keep(self._distributions, phrase, made, CACHED_PHRASES)
        return known

    def _code(self, key: ImageKey) -> bytes | None:
        catalogue = self._catalogue
        return catalogue.store.code(key) if catalogue.settings.codebook else None

    def _of_interest(self, interest: int) -> Floats:
        """Coordinates [1, K] of an interest."""
        found = self._of_interests.get(interest)
        if found is None:
            direction = self._vectors[interest].direction
            found = self._catalogue.codebook().coordinates(direction[None])
            self._of_interests[interest] = found
        return found

    def _of_phrase(self, phrase: str) -> Floats | None:
        """Coordinates [1, K] of a phrase; the first time, from its direction."""
        found = self._of_phrases.get(phrase)
        if found is None and self._computer is not None:
            codebook = self._catalogue.codebook()
            made = codebook.coordinates(self._computer.direction(phrase)[None])
            found = keep(self._of_phrases, phrase, made, CACHED_PHRASES)
        return found
