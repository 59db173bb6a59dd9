"""Between numpy arrays and the tensors that encoders take: where an encoder runs, torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...catalogue.types import InterestVectors
from . import DenseEncoder


def encode_squares(encoder: DenseEncoder, squares: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
    """Patch features float32 [dim, rows, columns] of each image uint8 [side, side, 3]."""
    if not squares:
        return []
    images = torch.stack([torch.from_numpy(square).permute(2, 0, 1) for square in squares])
    features = encoder.patches(images.to(encoder.device)).float().cpu().numpy()
    return list(features)


def embed_text(encoder: DenseEncoder, text: str) -> NDArray[np.float32]:
    """Embedding of one phrase or question for matching: float32 [text_dim], unit norm."""
    embedding: NDArray[np.float32] = encoder.text([text])[0].float().cpu().numpy()
    return embedding


def phrase_vectors(encoder: DenseEncoder, phrases: Mapping[int, str]) -> dict[int, InterestVectors]:
    """Vectors of phrases, by the same ids."""
    if not phrases:
        return {}
    texts = encoder.text(list(phrases.values())).float().cpu().numpy()
    directions = encoder.direction(list(phrases.values())).float().cpu().numpy()
    return {i: InterestVectors(t, d) for i, t, d in zip(phrases, texts, directions, strict=True)}
