"""The last block of a CLIP vision transformer, read patch by patch.

CLIP is trained on one pooled vector, and its last block moves what patches know into it. A dense head lets
each patch keep its own content. The block runs once, in one of four ways:

With x what enters the block, q, k, v of x's layer norm, d the width of a head, o the output projection of the
attention and m the MLP behind its own layer norm (both with layer scale, where the model has it):

- ``naclip``: ``y = o(softmax(k k^T / sqrt(d) + P) v)``. P is ``exp(-distance^2 / (2 * 5^2))`` between two
  patches, distance in patches, and 0 for other tokens: a patch attends to patches like itself and near itself
  (Hajimiri et al. 2025, "Pay Attention to Your Neighbours").
- ``clearclip``: ``y = o(softmax(q q^T / sqrt(d)) v)``: to patches like itself (Lan et al. 2024, "ClearCLIP").
- ``maskclip``: ``a = x + o(v)``, ``y = a + m(a)``: to itself alone (Zhou et al. 2022, "Extract Free Dense
  Labels from CLIP").
- ``vanilla``: ``a = x + o(softmax(q k^T / sqrt(d)) v)``, ``y = a + m(a)``: the block as it was trained.

The first two leave residual and MLP out, which carry what all patches of an image share. Each y is then read
out as the model reads its pooled token; where the model pools by attention, as if it saw this token alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Variant = Literal["naclip", "clearclip", "maskclip", "vanilla"]

NEIGHBOURHOOD_SIGMA = 5.0
"""Standard deviation of the neighbourhood prior, in patches, as Hajimiri et al. 2025 chose it."""

Layer = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision transformer, taken apart at its last block. Tokens are [B, prefix + rows * columns, width].

    Attributes:
        enter: normalised pixels [B, 3, H, W] -> tokens that enter the last block.
        norm: the layer norm before its attention.
        project_q: layer of the queries, as `project_k` and `project_v` are of keys and values.
        heads: number of heads of the attention.
        out: output projection of the attention, and layer scale.
        mlp: the layer norm before the MLP, the MLP, and layer scale.
        read_out: tokens that leave the last block -> tokens in the joint space, each for itself.
        prefix: number of tokens before the patches (class token, registers).
        image_size: height and width of the pixels.
        patch_size: height and width of a patch.
        weight: one of the weights; tells device and dtype.
    """

    enter: Layer
    norm: Layer
    project_q: Layer
    project_k: Layer
    project_v: Layer
    heads: int
    out: Layer
    mlp: Layer
    read_out: Layer
    prefix: int
    image_size: tuple[int, int]
    patch_size: tuple[int, int]
    weight: Tensor

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        (height, width), (patch_height, patch_width) = self.image_size, self.patch_size
        return height // patch_height, width // patch_width


class DenseHead:
    """`tower` with its last block read as `variant` says."""

    def __init__(self, tower: Tower, variant: Variant) -> None:
        self.tower = tower
        blocks: dict[Variant, Layer] = {
            "naclip": self._naclip,
            "clearclip": self._clearclip,
            "maskclip": self._maskclip,
            "vanilla": self._vanilla,
        }
        self._last_block = blocks[variant]
        self._prior = neighbourhood_prior(tower.grid, NEIGHBOURHOOD_SIGMA, tower.prefix).to(tower.weight)

    def tokens(self, pixels: Tensor) -> Tensor:
        """Normalised pixels [B, 3, H, W] -> tokens in the joint space [B, prefix + rows * columns, dim].

        They are not of unit length; patches are in rows from the top. Device and dtype are the tower's.
        """
        return self.tower.read_out(self._last_block(self.tower.enter(pixels)))

    def _naclip(self, x: Tensor) -> Tensor:
        tower = self.tower
        normed = tower.norm(x)
        k, v = self._split(tower.project_k(normed)), self._split(tower.project_v(normed))
        return tower.out(_join(F.scaled_dot_product_attention(k, k, v, attn_mask=self._prior)))

    def _clearclip(self, x: Tensor) -> Tensor:
        tower = self.tower
        normed = tower.norm(x)
        q, v = self._split(tower.project_q(normed)), self._split(tower.project_v(normed))
        return tower.out(_join(F.scaled_dot_product_attention(q, q, v)))

    def _maskclip(self, x: Tensor) -> Tensor:
        tower = self.tower
        a = x + tower.out(tower.project_v(tower.norm(x)))
        return a + tower.mlp(a)

    def _vanilla(self, x: Tensor) -> Tensor:
        tower = self.tower
        normed = tower.norm(x)
        q, k, v = (self._split(p(normed)) for p in (tower.project_q, tower.project_k, tower.project_v))
        a = x + tower.out(_join(F.scaled_dot_product_attention(q, k, v)))
        return a + tower.mlp(a)

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.reshape(*tokens.shape[:2], self.tower.heads, -1).transpose(1, 2)


def _join(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


def neighbourhood_prior(grid: tuple[int, int], sigma: float, prefix: int) -> Tensor:
    """P, added to the logits of attention: float64 [prefix + n, prefix + n] for n patches, row by row.

    Rows and columns of the first `prefix` tokens are 0. Between two patches, P is
    ``exp(-distance^2 / (2 sigma^2))``, distance from centre to centre in patches.
    """
    rows, columns = (torch.arange(side, dtype=torch.float64) for side in grid)
    centres = torch.cartesian_prod(rows, columns)
    squared = (centres[:, None] - centres).square().sum(-1)
    return F.pad(torch.exp(-squared / (2 * sigma**2)), (prefix, 0, prefix, 0))
