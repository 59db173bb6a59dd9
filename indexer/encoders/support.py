"""What the encoders share: where they run, what they take, and how they are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from blake3 import blake3
from torch import Tensor

from ...catalogue.errors import EncoderError, UsageError

_DIGEST_BYTES = 8


def choose_device(encoder: str, name: str) -> torch.device:
    """Device called `name` (``cpu``, ``cuda``, ``cuda:1``; ``auto``: cuda where there is one, else cpu).

    Raises:
        EncoderError: `name` is no device of this machine; the message starts with `encoder`.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # A tensor tells whether the device is there, and gives it its number (`cuda` is `cuda:0`).
        return torch.empty(1, device=name).device
    except (RuntimeError, AssertionError, ImportError) as error:
        why = str(error).partition("\n")[0]
        raise EncoderError(encoder, f"cannot run on device {name!r} ({why}); use 'cpu' or 'auto'") from error


def check_images(images: Tensor, side: int) -> None:
    """Let only uint8 [B, 3, side, side] pass.

    Raises:
        UsageError: another type or shape.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1:] != (3, side, side):
        raise UsageError(
            f"images must be uint8 [B, 3, {side}, {side}], got {images.dtype} {list(images.shape)}; "
            "resize them to the encoder's `input_size` and leave them unnormalised"
        )


def fingerprint(name: str, files: Sequence[Path], *settings: object) -> str:
    """`name`, then 16 hexadecimal digits of BLAKE3 over the content of `files` and over `settings`.

    `settings` are constants whose `repr` is the same on every machine: numbers, strings, tuples of them.
    """
    digest = blake3(repr(settings).encode())
    for file in files:
        digest.update(blake3(max_threads=blake3.AUTO).update_mmap(file).digest())
    return f"{name}-{digest.hexdigest(length=_DIGEST_BYTES)}"
