"""The records that the four packages hand to each other. All are frozen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from .errors import UsageError

GRID = 32
"""Side of the grid, in cells, on which every channel is given to callers."""

KEY_BYTES = 16


class ImageKey(bytes):
    """Identity of an image: the 16-byte BLAKE3 digest of its file's content.

    Two files with one content are one image; a file that is moved or renamed keeps its key.
    """

    __slots__ = ()

    def __new__(cls, digest: bytes) -> Self:
        """The key whose 16 bytes are `digest`."""
        if len(digest) != KEY_BYTES:
            raise UsageError(f"an image key has {KEY_BYTES} bytes, got {len(digest)}")
        return super().__new__(cls, digest)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Key of the file whose whole content is `content`."""
        return cls(blake3(content).digest(length=KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Key written as 32 hexadecimal digits, as `str(key)` gives it."""
        try:
            return cls(bytes.fromhex(text))
        except ValueError as error:
            raise UsageError(f"an image key is {2 * KEY_BYTES} hexadecimal digits, got {text!r}") from error

    def __str__(self) -> str:
        return self.hex()

    def __repr__(self) -> str:
        return f"ImageKey({self.hex()})"


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of an image: fractions of its width and height, origin top left, x to the right.

    Raises:
        UsageError: not 0 <= left < right <= 1 and 0 <= top < bottom <= 1.
    """

    left: float
    top: float
    right: float
    bottom: float

    def __post_init__(self) -> None:
        if not (0 <= self.left < self.right <= 1 and 0 <= self.top < self.bottom <= 1):
            raise UsageError(
                f"box {self.left:g},{self.top:g},{self.right:g},{self.bottom:g} is no rectangle in fractions "
                "of an image: 0 <= left < right <= 1 and 0 <= top < bottom <= 1; divide pixels by its width "
                "and height"
            )


@dataclass(frozen=True, slots=True)
class Exemplar:
    """An image, or a rectangle of it, that shows an interest.

    Attributes:
        path: of the file; absolute once it is kept.
        box: the part of it that counts; the whole image when None.
        key: the image. The file is read for it when it is None; from then on only that content counts.
    """

    path: str
    box: Box | None = None
    key: ImageKey | None = None


@dataclass(frozen=True, slots=True)
class Interest:
    """Something the user looks for: a normalised phrase, with its weight in a blend (>= 0).

    Attributes:
        id: never given to another interest, nor to this phrase with other exemplars.
        phrase: what it is called, and what a question is compared with.
        weight: part in a blend, beside other interests.
        exemplars: images that show it. Without any, the words of the phrase tell where it is in an image.
        with_words: whether they do beside exemplars too, half and half.
        pinned: whether pruning must leave it alone.
        archived: when its maps were given up, in seconds since 1970; None while images are to have them. An
            archived interest answers questions from codes, and is filled again when it is asked for.
    """

    id: int
    phrase: str
    weight: float = 1.0
    exemplars: tuple[Exemplar, ...] = ()
    with_words: bool = False
    pinned: bool = False
    archived: float | None = None


@dataclass(frozen=True, slots=True)
class InterestVectors:
    """What an encoder makes of an interest: `text` [d_text] unit norm, `direction` [dim]; float32."""

    text: NDArray[np.float32]
    direction: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Planes:
    """Quantised planes: value v of plane c stands for low[c] + v * (high[c] - low[c]) / 255.

    `values` uint8 [C, H, W], rows top to bottom; `low` and `high` float32 [C].
    """

    values: NDArray[np.uint8]
    low: NDArray[np.float32]
    high: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class InterestMaps(Mapping[int, Planes]):
    """Maps of one image that lie together, one plane [1, h, w] for each interest id.

    Attributes:
        ids: of the interests, ascending.
        planes: theirs, [N, h, w].
    """

    ids: tuple[int, ...]
    planes: Planes

    def __getitem__(self, interest: int) -> Planes:
        place = bisect_left(self.ids, interest)
        if place == len(self.ids) or self.ids[place] != interest:
            raise KeyError(interest)
        return self.planes if len(self.ids) == 1 else self._at(slice(place, place + 1))

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, interests: Collection[int]) -> InterestMaps:
        """Those of `interests`."""
        if len(interests) == len(self.ids):
            return self
        places = [place for place, interest in enumerate(self.ids) if interest in interests]
        return InterestMaps(tuple(self.ids[place] for place in places), self._at(places))

    def between(self, first: int, last: int) -> InterestMaps:
        """Those of the interests from `first` to `last`."""
        chosen = slice(bisect_left(self.ids, first), bisect_right(self.ids, last))
        if chosen == slice(0, len(self.ids)):
            return self
        return InterestMaps(self.ids[chosen], self._at(chosen))

    def _at(self, chosen: slice | list[int]) -> Planes:
        return Planes(self.planes.values[chosen], self.planes.low[chosen], self.planes.high[chosen])


@dataclass(frozen=True, slots=True)
class TextureRecord:
    """What is stored of one image: its base planes, one plane [1, h, w] for each interest id, and its code.

    The code is that of `codes`: from it comes the map of any phrase, without the encoder.
    """

    key: ImageKey
    base: Planes | None = None
    maps: Mapping[int, Planes] = field(default_factory=dict)
    code: bytes | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not indexed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class StageTime:
    """What one stage of a pass took.

    Attributes:
        name: of the stage.
        workers: its threads.
        seconds: for which they were busy, together.
        share: of the time of the pass for which each was busy, 0 to 1. The stage with the largest share sets
            the pace.
    """

    name: str
    workers: int
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What one indexing pass did. Every file that was found or known is in at most one of the counts.

    Attributes:
        indexed: files whose image has a texture now.
        unchanged: files whose image had one already; they were not opened.
        removed: files that are gone since the last pass; their records are kept for a while.
        unavailable: files that may be on a disk that is not mounted, in an archive that is damaged, or behind
            a server that does not answer; nothing of them is touched.
        skipped: files, folders and others that could not be read, each with its reason.
        seconds: duration of the pass.
        stages: what its stages took, in their order; none where there was nothing to be made.
        on_cpu: images that a GPU's decoder does not read, so that the processor did; 0 without a GPU.
    """

    indexed: int
    unchanged: int
    removed: int
    unavailable: int
    skipped: tuple[Skipped, ...]
    seconds: float
    stages: tuple[StageTime, ...] = ()
    on_cpu: int = 0
