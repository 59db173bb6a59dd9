"""Makes codes: the features of an image, so compressed that the map of any direction can be made again.

See `catalogue.codes` for what they are and how they are read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..catalogue.codes import LARGEST, MOST_FREQUENCIES, Codebook, cosines, pack
from ..catalogue.errors import EncoderError, UsageError
from ..catalogue.grid import resize_plane

if TYPE_CHECKING:
    from .encoders import DenseEncoder

BUDGET = 11_976
"""Bytes of a code at most: with the header of its record they are 12,000, in three pages of LMDB."""

ANY_DIRECTION = 0.2
"""Part of the codes' accuracy that goes to all directions alike: an interest may be given by images, and its
direction is then no mix of those that phrases have."""

LEAST_RANK = 6.0
"""A rank whose singular value is fewer steps costs more bytes than a finer step does."""

FINENESS = 0.8
"""Steps of U are larger than those of B by this: B is fitted to what U has become."""

ROUND_UP = 0.58
"""A number is rounded away from 0 from this on: zeros take the fewest bits (a dead zone)."""

_FINEST = 256
_STEPS_AN_OCTAVE = 16
"""The finest step is 2^(-256 / 16) of the size of the matrix."""

_SMALLEST = float(np.finfo(np.float32).tiny)
_TOO_LARGE = 1e30
_PHRASES = 256

Matrix = NDArray[np.float64]


def make_codebook(encoder: DenseEncoder) -> Codebook:
    """The codebook of `encoder`, from its directions of common nouns. It is kept in the user's cache folder.

    With d the direction of a noun, C is the mean of ``d d^T / |d|``, between an equal weight of all nouns and
    one by the strength of their maps, and a part `ANY_DIRECTION` of its trace is spread over all axes.

    Raises:
        EncoderError: the directions of nouns are all zero, or not finite.
    """
    from .encoders.cache import cached_array
    from .encoders.nouns import common_nouns

    nouns = common_nouns()
    made_of = blake3(repr((nouns, ANY_DIRECTION)).encode()).hexdigest(length=8)
    table = cached_array(
        f"{encoder.fingerprint}-axes-{made_of}", (encoder.dim, encoder.dim), lambda: _axes(encoder, nouns)
    )
    return Codebook(encoder.fingerprint, table)


def _axes(encoder: DenseEncoder, nouns: tuple[str, ...]) -> NDArray[np.float32]:
    """`Codebook.project`."""
    total = np.zeros((encoder.dim, encoder.dim))
    for start in range(0, len(nouns), _PHRASES):
        directions = encoder.direction(nouns[start : start + _PHRASES]).float().cpu().numpy().astype(float)
        length = np.linalg.norm(directions, axis=1, keepdims=True)
        total += directions.T @ np.divide(directions, length, out=directions.copy(), where=length > 0)
    trace = np.trace(total)
    if not (np.isfinite(trace) and trace > 0):
        raise EncoderError(encoder.spec, "gives common nouns no directions, so that no codes can be made")
    shared = (1 - ANY_DIRECTION) / trace * total + ANY_DIRECTION / encoder.dim * np.eye(encoder.dim)
    values, vectors = np.linalg.eigh(shared)
    axes: NDArray[np.float32] = (vectors / np.sqrt(values)).T[::-1].astype(np.float32)
    return axes


def encode_codes(codebook: Codebook, features: NDArray[np.float32], side: int) -> bytes:
    """Code of an image, for maps of side x side: as exact as `BUDGET` bytes allow.

    Args:
        codebook: of the encoder that made the features.
        features: of the patches, float32 [dim, rows, columns].
        side: of the maps.

    Raises:
        UsageError: `features` are not of the codebook's dim, or not numbers below 1e30.
    """
    dim = codebook.project.shape[1]
    if features.ndim != 3 or len(features) != dim:
        raise UsageError(f"features must be [{dim}, rows, columns], got {list(features.shape)}")
    if not np.abs(features).max() < _TOO_LARGE:
        raise UsageError("features must be finite, and below 1e30: the encoder gives numbers out of range")
    basis = cosines(side, frequencies(side))
    planes = (basis @ resize_plane(features, side) @ basis.T).reshape(dim, -1)
    matrix = (codebook.spread @ planes).T.astype(float)
    return _Fitter(matrix, side).code()


def frequencies(side: int) -> int:
    """How many frequencies a side are kept of maps of side x side: all of small ones, else five in eight.

    A map is on the coarsest grid that carries it: what it has of the highest ones is noise.
    """
    return min(side, max(10, math.ceil(side * 5 / 8)), MOST_FREQUENCIES)


class _Fitter:
    """Fits codes to the matrix [F^2, K] of an image: first row the mean, the others close to U B.

    The columns of U are the left singular vectors. B is the best for U as it was rounded, so that the errors
    of U cost nothing but what they lose of the space.
    """

    def __init__(self, matrix: Matrix, side: int) -> None:
        self._side = side
        self._size = float(np.linalg.norm(matrix)) or 1.0
        self._mean = matrix[0].copy()
        rest = matrix.copy()
        rest[0] = 0
        energy, vectors = np.linalg.eigh(rest @ rest.T)
        self._rest = rest.astype(np.float32)
        self._singular = np.sqrt(np.maximum(energy[::-1], 0))
        self._left = vectors[:, ::-1].T

    def code(self) -> bytes:
        """The code with the finest step that `BUDGET` allows."""
        fits, low, high = self._code(0), 1, _FINEST
        while low < high:
            middle = (low + high) // 2
            code = self._code(middle)
            if len(code) <= BUDGET:
                fits, low = code, middle + 1
            else:
                high = middle
        return fits

    def _code(self, exponent: int) -> bytes:
        """The code whose step is 2^(-exponent / 16) of the size of the matrix."""
        step = np.float32(max(self._size * 2 ** (-exponent / _STEPS_AN_OCTAVE), _SMALLEST))
        rank = int(np.count_nonzero(self._singular > LEAST_RANK * step))
        left = self._left[:rank]
        fineness = np.minimum(FINENESS * self._singular[:rank] / step, LARGEST / np.abs(left).max(1))
        u = np.rint(left * fineness[:, None])
        b = np.vstack([self._mean, np.linalg.solve(u @ u.T, u.astype(np.float32) @ self._rest)])
        scales = np.concatenate([[1.0], 1 / fineness])
        scales = np.maximum(scales, np.abs(b).max(1) / (LARGEST * step)).astype(np.float16)
        numbers = b / (scales * step)[:, None]
        rounded = np.copysign(np.floor(np.abs(numbers) + (1 - ROUND_UP)), numbers)
        b8 = np.clip(rounded, -LARGEST, LARGEST).astype(np.int8)
        return pack(self._side, step, scales, u.astype(np.int8), b8)
