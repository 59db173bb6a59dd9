"""The records that the four packages hand to each other. All are frozen."""

from __future__ import annotations

from collections.abc import Mapping
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
    """A rectangle of an image: fractions of its width and height, origin top left, x to the right."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Exemplar:
    """An image, or a rectangle of it, that shows an interest."""

    path: str
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Interest:
    """Something the user looks for: a normalised phrase, with its weight in a blend (>= 0)."""

    id: int
    phrase: str
    weight: float = 1.0
    exemplars: tuple[Exemplar, ...] = ()


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


@dataclass(frozen=True, slots=True)
class TextureRecord:
    """All that is stored of one image: its base planes, and one plane [1, h, w] for each interest id."""

    key: ImageKey
    base: Planes | None = None
    maps: Mapping[int, Planes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not indexed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What one indexing pass did. Every file that was found or known is in at most one of the counts.

    Attributes:
        indexed: files whose image has a texture now.
        unchanged: files whose image had one already; they were not opened.
        removed: files that are gone since the last pass; their records are kept for a while.
        unavailable: files that may be on a disk that is not mounted; nothing of them is touched.
        skipped: files and folders that could not be read, each with its reason.
        seconds: duration of the pass.
    """

    indexed: int
    unchanged: int
    removed: int
    unavailable: int
    skipped: tuple[Skipped, ...]
    seconds: float
