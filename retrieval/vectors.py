"""Vectors that are compared by inner product. The only module that imports faiss."""

from __future__ import annotations

import faiss
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Vectors:
    """An exact index of vectors.

    Args:
        vectors: float32 [N, d]. They are copied.
    """

    def __init__(self, vectors: Floats) -> None:
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(np.ascontiguousarray(vectors, np.float32))

    def nearest(self, query: Floats, count: int) -> tuple[Floats, NDArray[np.int64]]:
        """The largest inner products of `query` [d] with the vectors, descending, and which vectors they are.

        Both have length `count`, or N if that is less.
        """
        products, places = self._index.search(query[None].astype(np.float32), min(count, self._index.ntotal))
        return products[0], places[0]

    def vector(self, place: int) -> Floats:
        """The vector that was given in this place: float32 [d]."""
        return np.asarray(self._index.reconstruct(place), np.float32)

    def products(self, query: Floats) -> Floats:
        """Inner product of `query` [d] with every vector: float32 [N], in the order of the vectors."""
        products, places = self.nearest(query, self._index.ntotal)
        ordered = np.empty_like(products)
        ordered[places] = products
        return ordered
