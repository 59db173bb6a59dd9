"""Directions fitted to labelled photos: how they are made, kept in a file, and reach a phrase.

An encoder that guesses directions from text alone gains where it has seen boxes. The fit is closed: a
regularised linear discriminant (Fisher 1936) between the patches in a category's boxes and the others of the
same photo, one direction a category. A phrase gets them by nearness of meaning. Over all of MiniLM's
dimensions the bilinear map of ESZSL (Romera-Paredes & Torr 2015) would carry them to every phrase, but does
harm to those that were not fitted (design/0003).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...catalogue.errors import EncoderError

NEAR = 0.6
"""Cosine of two texts from which on the one's direction reaches the other."""

RIDGE = 1.0
"""Added to the covariance's diagonal, in units of its mean."""

LEAST_AREA = 0.01
"""Boxes' area in cells below which they count as if they had this area."""


class Moments:
    """Sums over photos that the fit needs; sums of parts of the photos add up to those of all.

    Attributes:
        scatter: float64 [dim, dim], sum over cells of f f^T, f a cell's feature less the photo's mean.
        inside: float64 [K, dim], sum over photos of sum_cells(coverage f) / sqrt(sum_cells(coverage)).
        cells: number of cells.
    """

    def __init__(self, categories: int, dim: int) -> None:
        self.scatter = torch.zeros(dim, dim, dtype=torch.float64)
        self.inside = torch.zeros(categories, dim, dtype=torch.float64)
        self.cells = 0

    def add(self, features: Tensor, coverage: Tensor) -> None:
        """Count one photo: its smoothed features [dim, h, w], and [K, h, w], the part of each cell in boxes.

        The square root stands between weighing photos alike, and weighing cells alike: small objects are
        heard, large ones have more to say.
        """
        f = features.flatten(1).double()
        f -= f.mean(1, keepdim=True)
        part = coverage.flatten(1).double()
        self.scatter += f @ f.T
        self.inside += (part @ f.T) / part.sum(1, keepdim=True).clamp_min(LEAST_AREA).sqrt()
        self.cells += f.shape[1]

    @classmethod
    def total(cls, parts: Sequence[Moments]) -> Moments:
        """Sum of `parts`, of which there is at least one."""
        total = cls(*parts[0].inside.shape)
        for part in parts:
            total.scatter += part.scatter
            total.inside += part.inside
            total.cells += part.cells
        return total


def fit_directions(moments: Moments, guessed: Tensor, strength: float = 2.0) -> Tensor:
    """Fitted directions of the categories, to be added to those `guessed` from their texts: float32 [K, dim].

    With S the covariance within photos and m a row of `Moments.inside`, ``d = (S + mean(diag S) I)^-1 m``,
    scaled so that its maps spread `strength` times as far as those of the guessed direction. A category
    without any box gets zeros.
    """
    covariance = moments.scatter / moments.cells
    ridge = RIDGE * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=torch.float64)
    fitted = torch.linalg.solve(covariance + ridge, moments.inside.T).T

    def spread(directions: Tensor) -> Tensor:
        return (directions @ covariance * directions).sum(1, keepdim=True).clamp_min(0).sqrt()

    own = spread(fitted)
    scale = torch.where(own > 0, strength * spread(guessed.double()) / own, torch.zeros_like(own))
    made: Tensor = (fitted * scale).float()
    return made


@dataclass(frozen=True, slots=True)
class FittedDirections:
    """What the fit left: the categories' phrases, their texts and directions.

    Attributes:
        phrases: names of the K categories.
        texts: float32 [K, d_text], unit norm.
        directions: float32 [K, dim].
    """

    phrases: tuple[str, ...]
    texts: Tensor
    directions: Tensor

    def added(self, texts: Tensor) -> Tensor:
        """What phrases of these `texts` [N, d_text] get beside their guessed direction: float32 [N, dim]."""
        return self.nearness(texts) @ self.directions

    def nearness(self, texts: Tensor) -> Tensor:
        """Weights of the categories for phrases of these `texts` [N, d_text]: float32 [N, K], in [0, 1].

        ``max(0, (cosine - NEAR) / (1 - NEAR))``: 1 for a category itself, 0 for what is far from all. Where
        they sum to more than 1 they are divided by their sum.
        """
        near = ((texts @ self.texts.T - NEAR) / (1 - NEAR)).clamp_min(0)
        return near / near.sum(1, keepdim=True).clamp_min(1)

    def to(self, device: torch.device) -> FittedDirections:
        """The same on `device`."""
        return FittedDirections(self.phrases, self.texts.to(device), self.directions.to(device))

    def save(self, file: Path) -> None:
        """Write `file`, a safetensors file: texts as float32, directions as float16."""
        tensors = {"texts": self.texts.contiguous(), "directions": self.directions.half().contiguous()}
        save_file(tensors, file, metadata={"phrases": json.dumps(self.phrases)})

    @classmethod
    def load(cls, file: Path, text_dim: int, dim: int) -> FittedDirections:
        """Read what `save` wrote.

        Raises:
            EncoderError: `file` is missing, is no such file, or is made for other dimensions.
        """
        try:
            with safe_open(file, "pt") as content:
                texts = content.get_tensor("texts")
                directions = content.get_tensor("directions").float()
                phrases = tuple(json.loads(content.metadata()["phrases"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise EncoderError(
                "builtin", f"{file} does not hold fitted directions ({error}); reinstall texcat"
            ) from error
        expected = (len(phrases), text_dim), (len(phrases), dim)
        if (texts.shape, directions.shape) != expected:
            raise EncoderError(
                "builtin",
                f"{file} holds texts {list(texts.shape)} and directions {list(directions.shape)} of "
                f"{len(phrases)} phrases, expected {text_dim} and {dim} numbers each; reinstall texcat",
            )
        return cls(phrases, texts, directions)
