"""What retrieval gives back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..catalogue.distribution import Distribution
from ..catalogue.errors import UnknownChannelError
from ..catalogue.store import part_of, slot_of
from ..catalogue.types import ImageKey, Interest


class Tier(StrEnum):
    """How the maps of a look-up were obtained."""

    STORED = "stored"
    """All of them were read from the store."""

    CODED = "coded"
    """At least one was made from the image's code, and none with the encoder."""

    COMPUTED = "computed"
    """At least one was made now, with the encoder."""


@dataclass(frozen=True, slots=True)
class Match:
    """An interest that answers a question.

    Attributes:
        interest: the interest.
        similarity: cosine of the text embeddings of question and interest, in [-1, 1].
        weight: its part in the blend, in [0, 1]; the weights of a look-up sum to 1.
        distribution: of the interest's map over the corpus, if it is known.
    """

    interest: Interest
    similarity: float
    weight: float
    distribution: Distribution | None = field(default=None, compare=False, repr=False)


class Matches(tuple[Match, ...]):
    """Matches of one question, the heaviest first, with what a look-up needs of them worked out once.

    Attributes:
        best: largest similarity; -1 when there are none.
        parts: parts of an image that hold their maps, each once.
        which: int64 [K], place in `parts` of each match's map.
        slots: int64 [K], its slot there.
        calibrated: whether each match has a distribution: then strengths are blended, and not values.
        medians: float32 [K], of the distributions; 0 if not calibrated.
        gains: float32 [K], weight / spread of the distribution; the weight if not calibrated.
        places: int64 [3, K], `which`, `slots`, and the part itself; the first two are views of it.
        scales: float32 [2, K], `gains` and `medians`, which are views of it.
    """

    best: float
    parts: tuple[int, ...]
    which: NDArray[np.int64]
    slots: NDArray[np.int64]
    calibrated: bool
    medians: NDArray[np.float32]
    gains: NDArray[np.float32]
    places: NDArray[np.int64]
    scales: NDArray[np.float32]

    def __new__(cls, matches: Iterable[Match] = ()) -> Self:
        """Matches, in the order given."""
        made = super().__new__(cls, matches)
        ids = [match.interest.id for match in made]
        made.best = max((match.similarity for match in made), default=-1.0)
        made.parts = tuple(dict.fromkeys(part_of(i) for i in ids))
        made.places = np.array(
            [[made.parts.index(part_of(i)) for i in ids], list(map(slot_of, ids)), list(map(part_of, ids))],
            np.int64,
        )
        made.scales = np.zeros((2, len(made)), np.float32)
        made.which, made.slots, _ = made.places
        made.gains, made.medians = made.scales
        made.gains[:] = [match.weight for match in made]
        known = [match.distribution for match in made if match.distribution is not None]
        made.calibrated = len(known) == len(made)
        if known and made.calibrated:
            made.medians[:] = [each.median for each in known]
            spreads = np.array([each.spread for each in known], np.float32)
            made.gains[:] = np.divide(made.gains, spreads, np.zeros_like(spreads), where=spreads > 0)
        return made


class Timings(NamedTuple):
    """Seconds that the parts of a look-up took."""

    match: float
    lookup: float
    blend: float


@dataclass(slots=True, eq=False)  # not frozen: that would cost a look-up a thirtieth of its time
class Lookup:
    """The texture of one image for one question.

    Attributes:
        key: the image.
        textures: float32 [C, 32, 32], one plane a channel, rows top to bottom, on absolute scales.
        channels: their names, in order.
        matches: interests blended, the heaviest first.
        tier: how the maps were obtained.
        confidence: how well the interests answer the question, in [0, 1]; see `Matcher.confidence`.
        own_share: part of the question's own map in the similarity, in [0, 1]; see `blending.own_share`.
        saved: whether what was computed is in the catalogue now.
        relevance: float32 [32, 32] in [0, 1]: what an allocator reads.
        timings: where the time went.
        question: in words, where its own map has a part in the similarity; else None.
    """

    key: ImageKey
    textures: NDArray[np.float32]
    channels: tuple[str, ...]
    matches: Matches
    tier: Tier
    confidence: float
    own_share: float
    saved: bool
    relevance: NDArray[np.float32]
    timings: Timings
    question: str | None = None

    def channel(self, name: str) -> NDArray[np.float32]:
        """Plane of the channel called `name`: float32 [32, 32].

        Raises:
            UnknownChannelError: this look-up has no such channel.
        """
        if name not in self.channels:
            raise UnknownChannelError(name, self.channels)
        plane: NDArray[np.float32] = self.textures[self.channels.index(name)]
        return plane
