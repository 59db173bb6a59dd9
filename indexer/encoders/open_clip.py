"""Dense CLIP: any plain vision transformer of open_clip, read patch by patch.

`dense_head` says how; here a model of open_clip is loaded, taken apart for it, and given its phrases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import open_clip
import torch
from open_clip.timm_model import TimmModel
from open_clip.transformer import ResidualAttentionBlock
from open_clip.transformer import VisionTransformer as OpenClipViT
from timm.layers.attention import Attention
from timm.layers.attention_pool import AttentionPoolLatent
from timm.models.vision_transformer import Block
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch import Tensor, nn
from torch.nn import functional as F

from ...catalogue.errors import EncoderError, UnknownEncoderError, UsageError
from .dense_head import NEIGHBOURHOOD_SIGMA, DenseHead, Layer, Tower, Variant
from .negatives import split_negatives
from .support import check_images, choose_device, fingerprint

Precision = Literal["fp32", "bf16"]

HEAD_VERSION = 2
"""Goes into the fingerprint: raise it with any change, here or in `dense_head`, that changes a feature or a
direction."""

OPTIONS = ("variant", "size", "precision")
"""What may follow in a specification: ``,variant=clearclip,size=512,precision=bf16``."""

READ_CHARACTERS = 4096
"""How much of a phrase is read. CLIP's context of 77 tokens is full long before, and the time that its
tokenizer takes for one word grows with the square of its length."""

PHRASES_AT_ONCE = 64
"""Phrases that go through the text network together: with their prompts, about 0.5 GB of a ViT-B's memory."""


class OpenClipEncoder:
    """A CLIP or SigLIP model with a plain vision transformer. A `DenseEncoder`; maps are cosines, -1 to 1.

    Patch features are those of `dense_head`, scaled to unit length. The model may have QuickGELU or not, and
    pool by class token, average or attention.

    A direction is the mean of a phrase's embeddings in the templates of CLIP's zero-shot classifier, each
    scaled to unit length before and the mean after (Radford et al. 2021, section 3.1.4). From that of a
    phrase with negatives (``red bike -person``, see `negatives`), the mean direction of the negatives is
    taken off: its map is a difference of cosines, -2 to 2, high where the phrase is likelier than they are.

    Args:
        model: a model name of open_clip, or of a configuration given to `open_clip.add_model_config`.
        pretrained: a tag of that model, which open_clip downloads unless its cache holds it, or the path
            of a checkpoint (safetensors, or torch with weights only). With a path, the model's name says
            whether the weights want QuickGELU (``ViT-B-16-quickgelu`` for those of OpenAI).
        device: as torch names it, or ``auto``.
        variant: how the last block is read; see `dense_head`.
        input_size: side of the square input in pixels; the model's own by default. Position embeddings
            are interpolated to another size.
        precision: of the image network. Text, and what `patches` gives, is float32 with either.

    Raises:
        UsageError: `variant` or `precision` is unknown, or `input_size` is no multiple of the patch size.
        EncoderError: the model is unknown or its image network no plain vision transformer, the weights are
            not there or do not fit, or `device` is not there.
    """

    def __init__(
        self,
        model: str,
        pretrained: str,
        device: str = "auto",
        *,
        variant: Variant = "naclip",
        input_size: int | None = None,
        precision: Precision = "fp32",
    ) -> None:
        _check_choice("variant", variant, get_args(Variant))
        _check_choice("precision", precision, get_args(Precision))
        if input_size is not None and input_size < 1:
            raise UsageError(f"input size {input_size} is not positive")
        tag = open_clip.get_pretrained_cfg(model, pretrained)
        checkpoint = _find_checkpoint(model, pretrained, tag)
        self.spec = f"open_clip:{model}/{pretrained if tag else checkpoint}"
        self.spec += f",variant={variant}" if variant != "naclip" else ""
        self.spec += f",size={input_size}" if input_size is not None else ""
        self.spec += f",precision={precision}" if precision != "fp32" else ""
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
        self._clip = clip.requires_grad_(False).eval().to(place)
        if precision == "bf16":
            clip.visual.to(torch.bfloat16)
        tower = take_apart(self.spec, clip.visual)
        self.device = str(place)

        self.input_size = tower.image_size[0]
        if self.input_size % tower.patch_size[0]:
            raise UsageError(
                f"input size {self.input_size} is no multiple of {model}'s patches, {tower.patch_size[0]}"
            )
        self._head = DenseHead(tower, variant)
        self.grid = tower.grid
        self.map_size = self.grid[0]
        config = open_clip.get_model_config(model)
        self.dim: int = config["embed_dim"]
        self.text_dim = self.dim
        mean, std = pixel_statistics(model, tag)
        self._mean = 255 * torch.tensor(mean, device=place)[:, None, None]
        self._std = 255 * torch.tensor(std, device=place)[:, None, None]
        self.fingerprint = fingerprint(
            f"open_clip-{model}-{variant}{'-bf16' if precision == 'bf16' else ''}",
            (checkpoint,),
            # Two configurations with one set of weights differ in what shapes do not tell, such as heads.
            json.dumps(config, sort_keys=True),
            (variant, NEIGHBOURHOOD_SIGMA, HEAD_VERSION),
            (self.input_size, mean, std, bool(tag.get("quick_gelu"))),
            (type(self._tokenize).__name__, self._tokenize.context_length, _prompts("{}")),
        )

    @classmethod
    def from_spec(cls, spec: str, device: str = "auto") -> Self:
        """Encoder that ``open_clip:MODEL/PRETRAINED`` names, with or without `OPTIONS` behind it.

        PRETRAINED may be a path with slashes: ``open_clip:ViT-B-16/openai,variant=clearclip,size=512``.

        Raises:
            UnknownEncoderError: `spec` has another form, or an option that is not known.
            UsageError: as the class.
            EncoderError: as the class.
        """
        prefix, _, rest = spec.partition(":")
        model, _, rest = rest.partition("/")
        pretrained, *written = re.split(r",(?=[a-z]+=)", rest)
        if prefix != "open_clip" or not model or not pretrained:
            raise UnknownEncoderError(spec, "does not name a model and its weights")
        options: dict[str, Any] = dict(option.split("=", 1) for option in written)
        if len(options) < len(written) or not options.keys() <= set(OPTIONS):
            raise UnknownEncoderError(
                spec, f"may have each of the options {', '.join(OPTIONS)} once, no other"
            )
        if "size" in options:
            if not re.fullmatch(r"[0-9]{1,5}", options["size"]):
                raise UnknownEncoderError(spec, f"has the size {options['size']!r}, not a number of pixels")
            options["input_size"] = int(options.pop("size"))
        return cls(model, pretrained, device, **options)

    @torch.inference_mode()
    def patches(self, images: Tensor) -> Tensor:
        """uint8 RGB [B, 3, input_size, input_size] -> float32 [B, dim, *grid], each patch at unit norm.

        Raises:
            UsageError: `images` has another type or shape.
        """
        tower = self._head.tower
        z = F.normalize(self.tokens(images)[:, tower.prefix :], dim=-1)
        return z.transpose(1, 2).reshape(len(z), self.dim, *self.grid)

    @torch.inference_mode()
    def tokens(self, images: Tensor) -> Tensor:
        """All tokens in the joint space, not normalised: float32 [B, prefix + rows * columns, dim].

        The class token comes first, where the model has one; patches are in rows from the top.

        Raises:
            UsageError: `images` has another type or shape.
        """
        check_images(images, self.input_size)
        pixels = (images.to(self.device).float() - self._mean) / self._std
        return self._head.tokens(pixels.to(self._head.tower.weight.dtype)).float()

    @torch.inference_mode()
    def direction(self, phrases: Sequence[str]) -> Tensor:
        """Directions of phrases: float32 [N, dim]; unit norm for a phrase without negatives."""
        read = [_read(phrase) for phrase in phrases]
        directions = self._embed([wanted for wanted, _ in read])
        for row, (_, negatives) in enumerate(read):
            if negatives:
                directions[row] -= self._embed(negatives).mean(0)
        return directions

    @torch.inference_mode()
    def text(self, phrases: Sequence[str]) -> Tensor:
        """Embeddings of phrases and questions: their directions without negatives, float32 [N, dim]."""
        return self._embed([_read(phrase)[0] for phrase in phrases])

    def _embed(self, texts: Sequence[str]) -> Tensor:
        """Prompt ensembles of `texts`: float32 [N, dim], unit norm."""
        embedded = [torch.empty(0, self.dim, device=self.device)]
        for start in range(0, len(texts), PHRASES_AT_ONCE):
            some = texts[start : start + PHRASES_AT_ONCE]
            tokens = self._tokenize([prompt for text in some for prompt in _prompts(text)]).to(self.device)
            each = self._clip.encode_text(tokens, normalize=True).reshape(len(some), -1, self.dim)
            embedded.append(F.normalize(each.mean(1), dim=-1))
        return torch.cat(embedded)


def take_apart(spec: str, visual: nn.Module) -> Tower:
    """The image network of an open_clip model, as the dense head needs it.

    Its weights must not be moved or cast afterwards.

    Raises:
        EncoderError: `visual` is no plain vision transformer, so that the head's formulas are not those of
            its last block; the message starts with `spec` and says what it is.
    """
    if isinstance(visual, OpenClipViT):
        tower = _from_open_clip(spec, visual)
    elif isinstance(visual, TimmModel) and isinstance(visual.trunk, TimmViT):
        tower = _from_timm(spec, visual.trunk, visual.head)
    else:
        raise _unfit(spec, f"is a {type(getattr(visual, 'trunk', visual)).__name__}")
    if tower.image_size[0] != tower.image_size[1] or tower.patch_size[0] != tower.patch_size[1]:
        raise _unfit(spec, f"takes images or patches that are not square ({tower.image_size})")
    return tower


class _PatchProduct(nn.Module):
    """A convolution whose patches do not overlap, as one product: a tenth off ViT-B/16 on a GPU."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self._size = convolution.kernel_size
        self._weight, self._bias = convolution.weight, convolution.bias

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, width, rows, columns]."""
        count, depth, height, width = images.shape
        rows, columns = height // self._size[0], width // self._size[1]
        split = images.reshape(count, depth, rows, self._size[0], columns, self._size[1])
        patches = split.permute(0, 2, 4, 1, 3, 5).reshape(count, rows * columns, -1)
        projected = F.linear(patches, self._weight.flatten(1), self._bias)
        return projected.mT.reshape(count, -1, rows, columns)


def _as_product(layer: nn.Module) -> nn.Module:
    """`layer` as a product, if it is a convolution of patches side by side."""
    if (
        type(layer) is not nn.Conv2d
        or layer.kernel_size != layer.stride
        or layer.groups != 1
        or layer.padding != (0, 0)
        or layer.dilation != (1, 1)
    ):
        return layer
    return _PatchProduct(layer)


def _from_open_clip(spec: str, vit: Any) -> Tower:
    vit.conv1 = _as_product(vit.conv1)
    blocks = vit.transformer.resblocks
    block = _plain_block(spec, blocks, ResidualAttentionBlock)
    pool: Layer = nn.Identity()
    if vit.attn_pool is not None:
        if vit.attn_pool_contrastive is not None:
            raise _unfit(spec, "pools by attention twice")
        pool = _pool_of_one(vit.attn_pool)

    def enter(pixels: Tensor) -> Tensor:
        before = vit.forward_intermediates(
            pixels,
            indices=[-2],
            stop_early=True,
            intermediates_only=True,
            output_fmt="NLC",
            output_extra_tokens=True,
        )
        return torch.cat((before["image_intermediates_prefix"][0], before["image_intermediates"][0]), dim=1)

    def read_out(tokens: Tensor) -> Tensor:
        joint: Tensor = vit.ln_post(pool(tokens)) @ vit.proj
        return joint

    attention = block.attn
    project_q, project_k, project_v = _thirds(attention.in_proj_weight, attention.in_proj_bias)
    return Tower(
        enter=enter,
        norm=block.ln_1,
        project_q=project_q,
        project_k=project_k,
        project_v=project_v,
        heads=attention.num_heads,
        out=nn.Sequential(attention.out_proj, block.ls_1),
        mlp=nn.Sequential(block.ln_2, block.mlp, block.ls_2),
        read_out=read_out,
        prefix=1,
        image_size=vit.image_size,
        patch_size=vit.patch_size,
        weight=attention.in_proj_weight,
    )


def _from_timm(spec: str, vit: Any, head: Layer) -> Tower:
    block = _plain_block(spec, vit.blocks, Block)
    vit.patch_embed.proj = _as_product(vit.patch_embed.proj)
    attention = block.attn
    layers = {name for name, layer in attention.named_children() if type(layer) is not nn.Identity}
    if type(attention) is not Attention or layers != {"qkv", "attn_drop", "proj", "proj_drop"}:
        raise _unfit(spec, "normalises or gates within its attention")
    pool = nn.Identity() if vit.attn_pool is None else _pool_of_one_latent(spec, vit.attn_pool)

    def enter(pixels: Tensor) -> Tensor:
        (before,) = vit.forward_intermediates(
            pixels,
            indices=[-2],
            stop_early=True,
            intermediates_only=True,
            output_fmt="NLC",
            return_prefix_tokens=True,
        )
        if not vit.num_prefix_tokens:
            tokens: Tensor = before
            return tokens
        patches, prefix = before
        return torch.cat((prefix, patches), dim=1)

    def read_out(tokens: Tensor) -> Tensor:
        return head(vit.head(vit.fc_norm(pool(vit.norm(tokens)))))

    project_q, project_k, project_v = _thirds(attention.qkv.weight, attention.qkv.bias)
    return Tower(
        enter=enter,
        norm=block.norm1,
        project_q=project_q,
        project_k=project_k,
        project_v=project_v,
        heads=attention.num_heads,
        out=nn.Sequential(attention.proj, block.ls1),
        mlp=nn.Sequential(block.norm2, block.mlp, block.ls2),
        read_out=read_out,
        prefix=vit.num_prefix_tokens,
        image_size=vit.patch_embed.img_size,
        patch_size=vit.patch_embed.patch_size,
        weight=attention.qkv.weight,
    )


def _plain_block(spec: str, blocks: Any, plain: type) -> Any:
    """The last of `blocks`, once it is sure that it is `plain` and not the only one."""
    if len(blocks) < 2:
        raise _unfit(spec, "has a single block")
    if type(blocks[-1]) is not plain:
        raise _unfit(spec, f"has blocks of type {type(blocks[-1]).__name__}")
    return blocks[-1]


def _pool_of_one(pooler: Any) -> Layer:
    """What CoCa's pooler (Yu et al. 2022) gives for one token alone: its value, whatever the query."""
    attention = pooler.attn
    *_, bias = attention.in_proj_bias.chunk(3)
    # torch keeps the three apart where tokens and queries differ in width.
    joined = attention.in_proj_weight
    value = _linear(attention.v_proj_weight if joined is None else joined.chunk(3)[2], bias)
    return lambda tokens: attention.out_proj(value(pooler.ln_k(tokens)))


def _pool_of_one_latent(spec: str, pool: Any) -> Layer:
    """What SigLIP's pool (Zhai et al. 2023) gives for one token alone: its value, and the MLP of it."""
    known = type(pool) is AttentionPoolLatent
    if not known or pool.pos_embed is not None or pool.mlp is None:
        raise _unfit(spec, f"pools with a {type(pool).__name__} that is not SigLIP's")
    _, weight = pool.kv.weight.chunk(2)
    value = _linear(weight, None if pool.kv.bias is None else pool.kv.bias.chunk(2)[1])

    def alone(tokens: Tensor) -> Tensor:
        attended = pool.proj(value(tokens))
        pooled: Tensor = attended + pool.mlp(pool.norm(attended))
        return pooled

    return alone


def _thirds(weight: Tensor, bias: Tensor | None) -> tuple[Layer, Layer, Layer]:
    """The layers of queries, keys and values, which a model keeps as one."""
    q, k, v = weight.chunk(3)
    if bias is None:
        return _linear(q, None), _linear(k, None), _linear(v, None)
    q_bias, k_bias, v_bias = bias.chunk(3)
    return _linear(q, q_bias), _linear(k, k_bias), _linear(v, v_bias)


def _linear(weight: Tensor, bias: Tensor | None) -> Layer:
    return partial(F.linear, weight=weight, bias=bias)


def _unfit(spec: str, found: str) -> EncoderError:
    return EncoderError(
        spec,
        f"the image tower {found}; the dense head needs a plain ViT, such as ViT-B-16 or ViT-B-16-SigLIP",
    )


def _check_choice(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UsageError(f"{what} {given!r} is not known; use one of {', '.join(known)}")


def _read(phrase: str) -> tuple[str, tuple[str, ...]]:
    return split_negatives(phrase.lstrip()[:READ_CHARACTERS])


def _prompts(text: str) -> tuple[str, ...]:
    return tuple(template(text) for template in open_clip.SIMPLE_IMAGENET_TEMPLATES)


def pixel_statistics(model: str, tag: dict[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of pixels, 0 to 1, that the weights were trained with.

    A checkpoint file does not say: then those that all tags of the model share, else those of CLIP.
    """
    tags = (
        [tag]
        if tag
        else [
            open_clip.get_pretrained_cfg(model, name)
            for name in open_clip.list_pretrained_tags_by_model(model)
        ]
    )
    known = {(tuple(known["mean"]), tuple(known["std"])) for known in tags if known.get("mean")}
    if len(known) == 1:
        return known.pop()
    return open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD


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
