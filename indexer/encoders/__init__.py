"""Dense encoders: networks that give a feature to each patch of an image, and a direction to a phrase.

Importing this package loads no network and no torch: `load_encoder` does, on its first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...catalogue.errors import UnknownEncoderError, UsageError

if TYPE_CHECKING:
    from torch import Tensor


class DenseEncoder(Protocol):
    """What every encoder offers. The map of a phrase is ``patches . direction``: linear in both.

    Attributes:
        spec: how the user names the encoder (``builtin``, ``open_clip:MODEL/PRETRAINED``, the latter with
            options behind it or not: ``,variant=clearclip,size=512``).
        fingerprint: model, weights digest, preprocessing, tokenizer and version of the dense head.
        input_size: side, in pixels, of the square that `patches` takes.
        grid: rows and columns of patches.
        map_size: side of the coarsest grid that carries a map of this encoder without loss.
        dim: length of a patch feature and of a direction.
        text_dim: length of a text embedding.
        device: where it runs, as torch writes it (``cpu``, ``cuda:0``).
    """

    spec: str
    fingerprint: str
    input_size: int
    grid: tuple[int, int]
    map_size: int
    dim: int
    text_dim: int
    device: str

    def patches(self, images: Tensor) -> Tensor:
        """uint8 RGB [B, 3, input_size, input_size] -> float32 [B, dim, *grid], smoothed as maps are."""
        ...

    def direction(self, phrases: Sequence[str]) -> Tensor:
        """Directions of phrases: float32 [N, dim]; 0 for one that the encoder knows that it cannot place."""
        ...

    def text(self, phrases: Sequence[str]) -> Tensor:
        """Embeddings of phrases and questions for matching: float32 [N, text_dim], unit norm."""
        ...


def devices_of(name: str) -> list[str]:
    """The devices that `name` lists, with commas between; ``auto`` is all GPUs where there are several.

    Raises:
        UsageError: a part of `name` is empty.
    """
    if name == "auto":
        import torch

        count = torch.cuda.device_count()
        return [f"cuda:{number}" for number in range(count)] if count > 1 else [name]
    devices = [part.strip() for part in name.split(",")]
    if not all(devices):
        raise UsageError(f"device {name!r} has an empty part; name devices with one comma between them")
    return devices


def load_encoder(spec: str, device: str = "auto") -> DenseEncoder:
    """Load the encoder that `spec` names onto `device` (``auto``: cuda where there is one, else cpu).

    Raises:
        UnknownEncoderError: `spec` is neither ``builtin`` nor ``open_clip:MODEL/PRETRAINED``.
        EncoderError: the encoder is known, but cannot be loaded; the message says what is missing.
    """
    name, _, rest = spec.partition(":")
    if name == "builtin" and not rest:
        from .builtin import BuiltinEncoder

        return BuiltinEncoder(device)
    if name == "open_clip":
        from .open_clip import OpenClipEncoder

        return OpenClipEncoder.from_spec(spec, device)
    raise UnknownEncoderError(spec, "is not known")
