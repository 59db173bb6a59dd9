"""Makes the codebook of an encoder: the axes along which codes measure directions. See `catalogue.codes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..catalogue.codes import Codebook
from ..catalogue.errors import EncoderError

if TYPE_CHECKING:
    from .encoders import DenseEncoder

ANY_DIRECTION = 0.2
"""Part of the codes' accuracy that goes to all directions alike: an interest may be given by images, and its
direction is then no mix of those that phrases have."""

EVERYDAY = 0.2
"""Part of the rest that goes to `everyday_things`: people ask for these more often than for addaxes."""

_PHRASES = 256


def make_codebook(encoder: DenseEncoder) -> Codebook:
    """The codebook of `encoder`, from its directions of nouns. It is kept in the user's cache folder.

    With d the direction of a noun, C is the mean of ``d d^T / |d|``, between an equal weight of all nouns and
    one by the strength of their maps: of common nouns and, for a part `EVERYDAY` of its trace, of everyday
    things. A part `ANY_DIRECTION` of the trace is spread over all axes.

    Raises:
        EncoderError: the directions of nouns are all zero, or not finite.
    """
    from .encoders.cache import cached_array
    from .encoders.nouns import common_nouns, everyday_things

    nouns, things = common_nouns(), everyday_things()
    made_of = blake3(repr((nouns, things, ANY_DIRECTION, EVERYDAY)).encode()).hexdigest(length=8)
    table = cached_array(
        f"{encoder.fingerprint}-axes-{made_of}",
        (encoder.dim, encoder.dim),
        lambda: _axes(encoder, nouns, things),
    )
    return Codebook(encoder.fingerprint, table)


def _axes(encoder: DenseEncoder, nouns: tuple[str, ...], things: tuple[str, ...]) -> NDArray[np.float32]:
    """`Codebook.project`."""
    of_phrases = (1 - EVERYDAY) * _spread(encoder, nouns) + EVERYDAY * _spread(encoder, things)
    shared = (1 - ANY_DIRECTION) * of_phrases + ANY_DIRECTION / encoder.dim * np.eye(encoder.dim)
    values, vectors = np.linalg.eigh(shared)
    axes: NDArray[np.float32] = (vectors / np.sqrt(values)).T[::-1].astype(np.float32)
    return axes


def _spread(encoder: DenseEncoder, nouns: tuple[str, ...]) -> NDArray[np.float64]:
    """Sum of ``d d^T / |d|`` over the directions of `nouns`, divided by its trace: [dim, dim]."""
    total = np.zeros((encoder.dim, encoder.dim))
    for start in range(0, len(nouns), _PHRASES):
        directions = encoder.direction(nouns[start : start + _PHRASES]).float().cpu().numpy().astype(float)
        length = np.linalg.norm(directions, axis=1, keepdims=True)
        total += directions.T @ np.divide(directions, length, out=directions.copy(), where=length > 0)
    trace = np.trace(total)
    if not (np.isfinite(trace) and trace > 0):
        raise EncoderError(encoder.spec, "gives common nouns no directions, so that no codes can be made")
    spread: NDArray[np.float64] = total / trace
    return spread
