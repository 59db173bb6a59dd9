"""A dense encoder that is small enough to see through: it knows colours, and words by their letters."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from blake3 import blake3
from torch import Tensor
from torch.nn import functional as F

_COLOURS = {"red": (1.0, -0.5, -0.5), "green": (-0.5, 1.0, -0.5), "blue": (-0.5, -0.5, 1.0)}


class TinyEncoder:
    """Patch features are mean colours; directions are those of the colour words in a phrase.

    Text embeddings are bags of hashed words, so that phrases are as near as the words they share.

    Args:
        version: goes into the fingerprint: two versions are two encoders.
    """

    spec = "tiny"
    input_size = 64
    grid = (16, 16)
    map_size = 16
    dim = 3
    text_dim = 64
    device = "cpu"

    def __init__(self, version: int = 1) -> None:
        self.fingerprint = f"tiny-{version}"
        self.encoded = 0

    def patches(self, images: Tensor) -> Tensor:
        self.encoded += len(images)
        return F.avg_pool2d(images.float() / 255, 4) - 0.5

    def direction(self, phrases: Sequence[str]) -> Tensor:
        return torch.stack([self._direction(phrase) for phrase in phrases])

    def text(self, phrases: Sequence[str]) -> Tensor:
        bags = torch.zeros(len(phrases), self.text_dim)
        for bag, phrase in zip(bags, phrases, strict=True):
            for word in re.findall(r"\w+", phrase.casefold()) or [phrase]:
                bag[blake3(word.encode()).digest()[0] % self.text_dim] += 1
        return F.normalize(bags, dim=-1)

    def _direction(self, phrase: str) -> Tensor:
        known = [_COLOURS[word] for word in re.findall(r"\w+", phrase.casefold()) if word in _COLOURS]
        return torch.tensor(known).sum(0) if known else torch.full((3,), 0.1)
