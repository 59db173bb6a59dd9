"""Dense CLIP: any plain vision transformer of open_clip, read patch by patch.

CLIP is trained on its class token alone, and the last block moves what patches know into that token. The
dense head lets each patch keep its own content: it attends to patches like itself and near itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import open_clip
import torch
from open_clip.transformer import ResidualAttentionBlock, VisionTransformer
from torch import Tensor
from torch.nn import functional as F

from ...catalogue.errors import EncoderError, UnknownEncoderError, UsageError
from .support import check_images, choose_device, fingerprint

HEAD_VERSION = 1
"""Goes into the fingerprint: raise it with any change here that changes a feature or a direction."""

Variant = Literal["naclip", "vanilla"]

READ_CHARACTERS = 4096
"""How much of a phrase is read. CLIP's context of 77 tokens is full long before, and the time that its
tokenizer takes for one word grows with the square of its length."""

NEIGHBOURHOOD_SIGMA = 5.0
"""Standard deviation of the neighbourhood prior, in patches, as Hajimiri et al. 2025 chose it."""


class OpenClipEncoder:
    """A CLIP model with class token, from open_clip. A `DenseEncoder`; maps are cosines, -1 to 1.

    Variants of the last block, whose input is x and whose first layer norm gives q, k, v:

    - ``naclip`` (Hajimiri et al. 2025, "Pay Attention to Your Neighbours"): without residual and MLP,
      ``A = softmax(k k^T / sqrt(d) + P)``, ``z = norm(ln_post(out_proj(A v)) proj)``. P is
      ``exp(-distance^2 / (2 * 5^2))`` between two patches, distance in patches, and 0 for the class token.
    - ``vanilla``: the block as it was trained; the class token's output is that of `encode_image`.

    A direction is the mean of a phrase's embeddings in the templates of CLIP's zero-shot classifier, each
    scaled to unit length before and the mean after (Radford et al. 2021, section 3.1.4).

    Args:
        model: a model name of open_clip, or of a configuration given to `open_clip.add_model_config`.
        pretrained: a tag of that model, which open_clip downloads unless its cache holds it, or the path
            of a checkpoint (safetensors, or torch with weights only).
        device: as torch names it, or ``auto``.
        variant: of the last block.
        input_size: side of the square input in pixels; the model's own by default. Position embeddings
            are interpolated to another size.

    Raises:
        UsageError: `variant` is unknown, or `input_size` is no multiple of the patch size.
        EncoderError: the model is unknown or not a plain vision transformer, the weights are not there or
            do not fit, or `device` is not there.
    """

    def __init__(
        self,
        model: str,
        pretrained: str,
        device: str = "auto",
        *,
        variant: Variant = "naclip",
        input_size: int | None = None,
    ) -> None:
        if variant not in get_args(Variant):
            raise UsageError(f"variant {variant!r} is not known; use one of {', '.join(get_args(Variant))}")
        tag = open_clip.get_pretrained_cfg(model, pretrained)
        checkpoint = _find_checkpoint(model, pretrained, tag)
        self.spec = f"open_clip:{model}/{pretrained if tag else checkpoint}"
        place = choose_device(self.spec, device)
        try:
            clip = open_clip.create_model(
                model,
                pretrained=pretrained if tag else str(checkpoint),
                # A tag says which activation its weights were trained with, a model name may not.
                force_quick_gelu=bool(tag.get("quick_gelu")),
                force_image_size=input_size,
                weights_only=True,
            )
            self._tokenize = open_clip.get_tokenizer(model)
        except Exception as error:  # open_clip and torch.load raise nearly everything
            why = str(error).partition("\n")[0]
            raise EncoderError(self.spec, f"cannot load {checkpoint} as {model}: {why}") from error
        tower = _plain_tower(self.spec, clip.visual)
        self._clip = clip.requires_grad_(False).eval().to(place)
        self._tower = tower
        self._variant = variant
        self.device = str(place)

        self.input_size: int = tower.image_size[0]
        patch_size = tower.patch_size[0]
        if self.input_size % patch_size:
            raise UsageError(
                f"input size {self.input_size} is no multiple of {model}'s patches, {patch_size}"
            )
        self.grid: tuple[int, int] = tower.grid_size
        self.map_size = self.grid[0]
        self.dim: int = tower.output_dim
        self.text_dim = self.dim
        preprocessing = open_clip.get_model_preprocess_cfg(clip)
        mean, std = tuple(preprocessing["mean"]), tuple(preprocessing["std"])
        self._mean = 255 * torch.tensor(mean, device=place)[:, None, None]
        self._std = 255 * torch.tensor(std, device=place)[:, None, None]
        self._prior = neighbourhood_prior(self.grid, NEIGHBOURHOOD_SIGMA).to(place)
        self.fingerprint = fingerprint(
            f"open_clip-{model}-{variant}",
            (checkpoint,),
            # Two configurations with one set of weights differ in what shapes do not tell, such as heads.
            json.dumps(open_clip.get_model_config(model), sort_keys=True),
            (variant, NEIGHBOURHOOD_SIGMA, HEAD_VERSION),
            (self.input_size, mean, std, bool(tag.get("quick_gelu"))),
            (type(self._tokenize).__name__, self._tokenize.context_length, _prompts("{}")),
        )

    @classmethod
    def from_spec(cls, spec: str, device: str = "auto") -> Self:
        """Encoder that ``open_clip:MODEL/PRETRAINED`` names; PRETRAINED may be a path with slashes.

        Raises:
            UnknownEncoderError: `spec` has another form.
            EncoderError: as the class.
        """
        prefix, _, rest = spec.partition(":")
        model, _, pretrained = rest.partition("/")
        if prefix != "open_clip" or not model or not pretrained:
            raise UnknownEncoderError(spec, "does not name a model and its weights")
        return cls(model, pretrained, device)

    @torch.inference_mode()
    def patches(self, images: Tensor) -> Tensor:
        """uint8 RGB [B, 3, input_size, input_size] -> float32 [B, dim, *grid], each patch at unit norm.

        Raises:
            UsageError: `images` has another type or shape.
        """
        z = F.normalize(self.tokens(images)[:, 1:], dim=-1)
        return z.transpose(1, 2).reshape(len(z), self.dim, *self.grid)

    @torch.inference_mode()
    def tokens(self, images: Tensor) -> Tensor:
        """Class token, then patches in rows, in the joint space: float32 [B, 1 + rows * columns, dim].

        Raises:
            UsageError: `images` has another type or shape.
        """
        check_images(images, self.input_size)
        pixels = (images.to(self.device).float() - self._mean) / self._std
        before = self._tower.forward_intermediates(
            pixels,
            indices=[-2],
            stop_early=True,
            intermediates_only=True,
            output_fmt="NLC",
            output_extra_tokens=True,
        )
        x = torch.cat([before["image_intermediates_prefix"][0], before["image_intermediates"][0]], dim=1)
        block = self._tower.transformer.resblocks[-1]
        y = block(x) if self._variant == "vanilla" else self._neighbour_attention(block, x)
        projected: Tensor = self._tower.ln_post(y) @ self._tower.proj
        return projected

    @torch.inference_mode()
    def direction(self, phrases: Sequence[str]) -> Tensor:
        """Directions of phrases: float32 [N, dim], unit norm."""
        if not phrases:
            return torch.empty(0, self.dim, device=self.device)
        read = (phrase.lstrip()[:READ_CHARACTERS] for phrase in phrases)
        prompts = [prompt for phrase in read for prompt in _prompts(phrase)]
        embedded: Tensor = self._clip.encode_text(self._tokenize(prompts).to(self.device), normalize=True)
        return F.normalize(embedded.reshape(len(phrases), -1, self.dim).mean(1), dim=-1)

    def text(self, phrases: Sequence[str]) -> Tensor:
        """Embeddings of phrases and questions: their directions, float32 [N, dim], unit norm."""
        return self.direction(phrases)

    def _neighbour_attention(self, block: Any, x: Tensor) -> Tensor:
        attention = block.attn
        _, k, v = F.linear(block.ln_1(x), attention.in_proj_weight, attention.in_proj_bias).chunk(3, dim=-1)
        heads = (*x.shape[:2], attention.num_heads, -1)
        k, v = (t.reshape(heads).transpose(1, 2) for t in (k, v))
        attended = F.scaled_dot_product_attention(k, k, v, attn_mask=self._prior)
        moved: Tensor = block.ls_1(attention.out_proj(attended.transpose(1, 2).flatten(2)))
        return moved


def neighbourhood_prior(grid: tuple[int, int], sigma: float) -> Tensor:
    """P, added to the logits of attention: float32 [1 + n, 1 + n] for n patches, row by row.

    Token 0 is the class token, and its row and column are 0. Between two patches, P is
    ``exp(-distance^2 / (2 sigma^2))``, distance from centre to centre in patches.
    """
    rows, columns = (torch.arange(side, dtype=torch.float32) for side in grid)
    centres = torch.cartesian_prod(rows, columns)
    squared = (centres[:, None] - centres).square().sum(-1)
    return F.pad(torch.exp(-squared / (2 * sigma**2)), (1, 0, 1, 0))


def _prompts(phrase: str) -> tuple[str, ...]:
    return tuple(template(phrase) for template in open_clip.SIMPLE_IMAGENET_TEMPLATES)


def _find_checkpoint(model: str, pretrained: str, tag: dict[str, Any]) -> Path:
    """File that holds the weights; `tag` is what open_clip knows of `pretrained`, empty if it is a path."""
    spec = f"open_clip:{model}/{pretrained}"
    if open_clip.get_model_config(model) is None:
        raise EncoderError(
            spec, f"open_clip knows no model {model!r}; `open_clip.list_models()` shows those it knows"
        )
    if tag:
        try:
            return Path(open_clip.download_pretrained(tag))
        except Exception as error:  # what a download raises depends on where from
            why = str(error).partition("\n")[0]
            raise EncoderError(
                spec,
                f"the weights of tag {pretrained!r} are not in open_clip's cache and cannot be downloaded "
                f"({why}); give the path of a checkpoint file in place of the tag",
            ) from error
    checkpoint = Path(pretrained).expanduser().resolve()
    if not checkpoint.is_file():
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(model)) or "none"
        raise EncoderError(
            spec, f"{pretrained!r} is neither a tag of {model} (known: {tags}) nor a checkpoint file"
        )
    return checkpoint


def _plain_tower(spec: str, tower: object) -> Any:
    """`tower`, once it is sure that the dense head's formula is that of its last block."""
    if not isinstance(tower, VisionTransformer):
        found = f"is a {type(tower).__name__}"
    elif tower.attn_pool is not None or tower.pool_type != "tok":
        found = "pools its patches in place of a class token"
    elif len(tower.transformer.resblocks) < 2:
        found = "has a single block"
    elif type(tower.transformer.resblocks[-1]) is not ResidualAttentionBlock:
        found = f"has blocks of type {type(tower.transformer.resblocks[-1]).__name__}"
    elif tower.grid_size[0] != tower.grid_size[1]:
        found = f"takes images that are not square ({tower.image_size})"
    else:
        return tower
    raise EncoderError(
        spec,
        f"the image tower {found}; the dense head needs a plain ViT with a class token, such as ViT-B-16",
    )
