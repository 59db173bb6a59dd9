"""From a question to interests: inner product of text embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ..catalogue.distribution import Distribution
from ..catalogue.errors import UsageError
from ..catalogue.types import Interest
from .types import Match, Matches
from .vectors import Vectors

TEMPERATURE = 0.1
"""Weights fall by a factor e for each 0.1 of cosine: the temperature of the encoders' own class weights."""


class Matcher:
    """Finds the interests that a question is about.

    Args:
        interests: what can be matched.
        embeddings: text embedding of each interest, by id: float32 [d_text], unit norm. An interest without
            one cannot be matched.
        low, high: cosines that stand for confidence 0 and 1.
        distributions: of the interests' maps, by id, as far as they are known.
    """

    def __init__(
        self,
        interests: Sequence[Interest],
        embeddings: Mapping[int, NDArray[np.float32]],
        low: float,
        high: float,
        distributions: Mapping[int, Distribution] = MappingProxyType({}),
    ) -> None:
        # An interest of weight 0 has no part in any blend.
        self._interests = [i for i in interests if i.id in embeddings and i.weight > 0]
        self._weights = {interest.id: interest.weight for interest in self._interests}
        self._places = {interest.id: place for place, interest in enumerate(self._interests)}
        self._low, self._high = low, high
        self._distributions = distributions
        self._vectors: Vectors | None = None
        if self._interests:
            self._vectors = Vectors(np.stack([embeddings[interest.id] for interest in self._interests]))

    def weigh(self, factors: Mapping[str, float]) -> None:
        """From now on, multiply the weight of each interest by its factor: by phrase, > 0; 1 if not given."""
        self._weights = {i.id: i.weight * factors.get(i.phrase, 1.0) for i in self._interests}

    def match(self, question: NDArray[np.float32], top: int) -> Matches:
        """The `top` interests nearest to a question embedding [d_text], the heaviest first.

        The weight of interest i is ``w_i exp(cos_i / 0.1)``, divided by the sum over those chosen, with w_i
        the interest's own weight times its factor. Empty when there are no interests.

        Raises:
            UsageError: `top` is below 1.
        """
        if top < 1:
            raise UsageError(f"top must be at least 1, got {top}")
        if self._vectors is None:
            return Matches()
        cosines, places = self._vectors.nearest(question, top)
        chosen = [self._interests[place] for place in places]
        similarity = cosines.astype(np.float64)
        scores = np.log([self._weights[interest.id] for interest in chosen]) + similarity / TEMPERATURE
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        matches = [
            Match(interest, float(cosine), float(weight), self._distributions.get(interest.id))
            for interest, cosine, weight in zip(chosen, similarity, weights, strict=True)
        ]
        return Matches(sorted(matches, key=lambda match: (-match.weight, match.interest.id)))

    def embedding(self, matches: Matches) -> NDArray[np.float32] | None:
        """Sum of the text embeddings of `matches`, each times its weight: float32 [d_text].

        Interests that cannot be matched add nothing. None when no interest can be.
        """
        if self._vectors is None:
            return None
        parts = [(self._places.get(match.interest.id), match.weight) for match in matches]
        placed = [weight * self._vectors.vector(place) for place, weight in parts if place is not None]
        return np.asarray(sum(placed, start=0 * self._vectors.vector(0)), np.float32)

    def confidence(self, matches: Matches) -> float:
        """How well the best of `matches` answers the question: 0 at `low`, 1 at `high`, linear between."""
        share = (matches.best - self._low) / (self._high - self._low)
        return 0.0 if share < 0.0 else min(share, 1.0)
