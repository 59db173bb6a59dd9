"""What the header of a JPEG file says: whether a plain decoder reads it as Pillow does, and how it is turned.

A plain file is whole, has 8 bits a value, is grey or has the colours YCbCr. Markers are those of ITU-T T.81,
table B.1; orientation is EXIF 2.3's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .images import MAX_DECODED_PIXELS

if TYPE_CHECKING:
    from torch import Tensor

_FILL, _START, _END, _SCAN = 0xFF, 0xD8, 0xD9, 0xDA
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
"""Huffman-coded frames: baseline, extended, progressive."""

_OTHER_FRAMES = frozenset({0xC3, *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)})
_APP1, _APP2, _APP14 = 0xE1, 0xE2, 0xEE
_TAIL = 64
"""Bytes at the end of a file among which the end of its image is looked for."""

_ORIENTATION = 0x0112
_SHORT = 3
_ENTRY = 12
_FIRST_SIDEWAYS = 5
_LONGEST_SHAPE = 16
"""Width over height, or the other way round, beyond which resizing is left to the processor."""


class _NotPlainError(Exception):
    """A file is no plain JPEG."""


@dataclass(frozen=True, slots=True)
class PlainJpeg:
    """A JPEG file that any decoder reads alike.

    Attributes:
        size: (width, height) as it is stored.
        orientation: 1 to 8, as in EXIF: how it is turned upright.
        profile: ICC profile that says what its colours mean; empty for sRGB.
    """

    size: tuple[int, int]
    orientation: int = 1
    profile: bytes = b""

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) once it is turned."""
        width, height = self.size
        return (height, width) if self.orientation >= _FIRST_SIDEWAYS else (width, height)

    def turn(self, squares: Tensor) -> Tensor:
        """Squares [..., side, side] of it, turned upright."""
        rows, columns = squares.ndim - 2, squares.ndim - 1
        if self.orientation >= _FIRST_SIDEWAYS:
            squares = squares.transpose(rows, columns)
        mirrored = {
            2: (columns,),
            3: (rows, columns),
            4: (rows,),
            6: (columns,),
            7: (rows, columns),
            8: (rows,),
        }
        axes = mirrored.get(self.orientation)
        return squares if axes is None else squares.flip(axes)


def plain_jpeg(content: bytes) -> PlainJpeg | None:
    """What the header of a file says; None where it is no plain JPEG, or something in it is out of order."""
    if content[:2] != bytes((_FILL, _START)) or bytes((_FILL, _END)) not in content[-_TAIL:]:
        return None
    try:
        return _read(content)
    except (struct.error, IndexError, _NotPlainError):
        return None


def _read(content: bytes) -> PlainJpeg:
    at = 2
    size: tuple[int, int] | None = None
    orientation, profile, is_grey = 1, b"", False
    while (marker := _marker(content, at)) != _SCAN:
        if marker == _FILL:
            at += 1
            continue
        (length,) = struct.unpack_from(">H", content, at + 2)
        start, at = at + 4, at + 2 + length
        body = content[start:at]
        if marker in _FRAMES:
            precision, height, width, components = struct.unpack_from(">BHHB", body)
            if precision != 8 or components not in (1, 3) or not _is_moderate(width, height):
                raise _NotPlainError
            size, is_grey = (width, height), components == 1
        elif marker in _OTHER_FRAMES:
            raise _NotPlainError
        elif marker == _APP1 and body.startswith(b"Exif\0\0"):
            orientation = _orientation(body[6:])
        elif marker == _APP2 and body.startswith(b"ICC_PROFILE\0"):
            if body[13] != 1:  # of several parts
                raise _NotPlainError
            profile = body[14:]
        elif marker == _APP14 and body.startswith(b"Adobe") and body[11] != 1:  # not YCbCr
            raise _NotPlainError
    if size is None or (is_grey and profile):
        raise _NotPlainError
    return PlainJpeg(size, orientation, profile)


def _marker(content: bytes, at: int) -> int:
    if content[at] != _FILL:
        raise _NotPlainError
    return content[at + 1]


def _is_moderate(width: int, height: int) -> bool:
    shorter, longer = sorted((width, height))
    return shorter > 0 and longer <= _LONGEST_SHAPE * shorter and width * height <= MAX_DECODED_PIXELS


def _orientation(tiff: bytes) -> int:
    """Orientation in the first directory of EXIF data, 1 if it has none that counts."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 1
    (first,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, first)
    for entry in range(first + 2, first + 2 + _ENTRY * count, _ENTRY):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, entry)
        if tag == _ORIENTATION:
            return value if kind == _SHORT and 1 <= value <= 8 else 1
    return 1
