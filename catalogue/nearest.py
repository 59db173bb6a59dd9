"""Which vectors lie near each other, and which scores go together: edges of the graph, from numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Nearest:
    """The k nearest of each of N vectors, itself left out, the nearest first.

    Attributes:
        places: int64 [N, k], of the neighbours among the vectors; -1 where there are fewer than k.
        cosines: float32 [N, k]; -inf where there is no neighbour.
    """

    places: NDArray[np.int64]
    cosines: NDArray[np.float32]

    @classmethod
    def none(cls, vectors: int, k: int) -> Nearest:
        """No neighbours yet, of so many vectors."""
        return cls(np.full((vectors, k), -1, np.int64), np.full((vectors, k), -np.inf, np.float32))


def extend(nearest: Nearest, vectors: NDArray[np.float32]) -> Nearest:
    """The k nearest after vectors were added: exactly those that a comparison of all with all finds.

    Only those that are new are compared with all, and so are those with fewer neighbours than there could
    be: one of theirs was taken away. Of the others, neighbours give way to new ones that are nearer.

    Args:
        nearest: of the first M vectors.
        vectors: float32 [N, d], unit norm, N >= M.
    """
    known, k = nearest.places.shape
    total = len(vectors)
    places = np.vstack([nearest.places, np.full((total - known, k), -1)])
    cosines = np.vstack([nearest.cosines, np.full((total - known, k), -np.inf, np.float32)])
    full = min(k, known - 1)
    short = np.flatnonzero((nearest.places[:, :full] < 0).any(1))
    anew = np.r_[short, known:total]
    for start in range(known, total, _CHUNK):
        new = np.arange(start, min(start + _CHUNK, total))
        _merge(places, cosines, np.arange(known), new, vectors[:known] @ vectors[new].T)
    places[anew], cosines[anew] = -1, -np.inf
    for start in range(0, len(anew), _CHUNK):
        rows = anew[start : start + _CHUNK]
        similar = vectors[rows] @ vectors.T
        similar[np.arange(len(rows)), rows] = -np.inf
        _merge(places, cosines, rows, np.arange(total), similar)
    return Nearest(places, cosines)


def correlations(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Pearson's correlation of each row of `scores`, float32 [N, images >= 1], with each: float32 [N, N].

    0 with a row whose values are all equal, and of a row with itself.
    """
    centred = scores.astype(np.float64) - scores.mean(1, keepdims=True, dtype=np.float64)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    # What rounding leaves of a constant row is no variation.
    varies = norms > 1e-6 * np.abs(scores).max(1, keepdims=True, initial=0.0) * np.sqrt(scores.shape[1])
    unit = np.divide(centred, norms, np.zeros_like(centred), where=varies)
    found = (unit @ unit.T).astype(np.float32)
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def _merge(
    places: NDArray[np.int64],
    cosines: NDArray[np.float32],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    similar: NDArray[np.float32],
) -> None:
    """Put `columns`, whose cosines are `similar` [rows, columns], among the neighbours of `rows`."""
    k = places.shape[1]
    found = np.concatenate([cosines[rows], similar], 1)
    which = np.concatenate([places[rows], np.broadcast_to(columns, similar.shape)], 1)
    if found.shape[1] > k:
        best = np.argpartition(-found, k - 1, 1)[:, :k]
        found, which = np.take_along_axis(found, best, 1), np.take_along_axis(which, best, 1)
    order = np.argsort(-found, 1, kind="stable")
    places[rows] = np.take_along_axis(np.where(np.isinf(found), -1, which), order, 1)
    cosines[rows] = np.take_along_axis(found, order, 1)
