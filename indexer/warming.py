"""What a GPU needs before its first batch, loaded for all stages side by side.

Kernels, nvJPEG and linear algebra are loaded at their first use. As the first batch comes to one stage after
the other, that took 2 s, in which the encoder stood still (design/0014).
"""

from __future__ import annotations

import io
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from ..catalogue.channels import ChannelSchema
from ..catalogue.codes import Codebook
from ..catalogue.types import InterestVectors
from .encoders import DenseEncoder
from .images import WORKING_SIZE
from .lacking import Lacking

_warm: set[str] = set()
"""Devices, in this process."""


def warm_up(encoder: DenseEncoder) -> None:
    """Load what the stages of a pass need on the GPU of `encoder`, if it is on one, once in a process."""
    if encoder.device != "cpu" and encoder.device not in _warm:
        _warm.add(encoder.device)
        make_and_drop(encoder)


def make_and_drop(encoder: DenseEncoder) -> None:
    """Decode a batch, and meanwhile encode another, and make drafts and codes of that.

    They have as many images as the encoder takes together: kernels for one image are not those for many.
    """
    from .decoding import Decoder
    from .graphs import give_back
    from .streams import own_stream
    from .textures import ENCODED_AT_ONCE, TextureMaker

    axes = np.eye(encoder.dim, dtype=np.float32)
    vectors = {0: InterestVectors(np.zeros(encoder.text_dim, np.float32), axes[0])}
    maker = TextureMaker(
        encoder, ChannelSchema.parse("default"), vectors, Codebook(encoder.fingerprint, axes)
    )
    lacking = [Lacking(True, frozenset(vectors), True)] * ENCODED_AT_ONCE
    on_gpu = maker.device.type == "cuda"
    prepare = partial(own_stream, maker.device, priority=-1) if on_gpu else lambda: None
    with Decoder(maker) as decoder, ThreadPoolExecutor(3, "texcat-warm", prepare) as pool:
        begun: list[Future[Any]] = [pool.submit(decoder.decode, [(_grey(), b"")] * ENCODED_AT_ONCE)]
        squares = [np.zeros((size, size, 3), np.uint8) for size in (WORKING_SIZE, encoder.input_size)]
        working, images = (maker.batch([square] * ENCODED_AT_ONCE) for square in squares)
        features = maker.encode(images)
        pooled = maker.pooled(features)
        maker.wait()
        begun.append(pool.submit(maker.draft, working, features, pooled, lacking))
        begun.append(pool.submit(maker.codes, pooled, lacking, decoder.map))
        for each in begun:
            each.result()
    if on_gpu:
        give_back()


def _grey() -> bytes:
    """A JPEG file."""
    written = io.BytesIO()
    Image.new("RGB", (64, 64), "grey").save(written, "JPEG")
    return written.getvalue()
