"""From the pixels of one image to its texture record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..catalogue.channels import ChannelSchema, Kind
from ..catalogue.codes import Codebook
from ..catalogue.grid import resize_plane
from ..catalogue.quantise import quantise
from ..catalogue.types import ImageKey, InterestVectors, Planes, TextureRecord
from .codes import encode_codes
from .images import WORKING_SIZE, to_square

if TYPE_CHECKING:
    from PIL.Image import Image

    from .encoders import DenseEncoder

Features = NDArray[np.float32]
"""Patch features of one image: float32 [dim, rows, columns]."""


class TextureMaker:
    """Makes texture records of the channels in `schema` with one encoder.

    Args:
        encoder: gives the patch features.
        schema: channels of the catalogue; those that are stored are made.
        vectors: encoder's vectors of each interest, by id.
        codebook: makes the codes; without one, there are none.
    """

    def __init__(
        self,
        encoder: DenseEncoder,
        schema: ChannelSchema,
        vectors: Mapping[int, InterestVectors],
        codebook: Codebook | None = None,
    ) -> None:
        self.encoder = encoder
        self.vectors = dict(vectors)
        self.codebook = codebook
        self._stored = schema.stored
        self._labels = np.array([channel.kind is Kind.LABEL for channel in self._stored])

    def encode(self, squares: Sequence[NDArray[np.uint8]]) -> list[Features]:
        """Patch features of images given as uint8 [side, side, 3], side = the encoder's `input_size`."""
        from .encoders.tensors import encode_squares

        return encode_squares(self.encoder, squares)

    def squares(self, image: Image) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The image squashed to the size that the channels take, and to the size that the encoder takes."""
        working = to_square(image, WORKING_SIZE)
        side = self.encoder.input_size
        return working, working if side == WORKING_SIZE else to_square(image, side)

    def base(self, square: NDArray[np.uint8], features: Features) -> Planes:
        """Base texture of an image: all stored channels, quantised."""
        # Imported here: it brings scikit-image along, which a look-up of what is stored does not wait for.
        from .channels import ChannelInputs, base_channels

        planes = base_channels(ChannelInputs(square, features), self._stored)
        return quantise(planes, self._labels)

    def map(self, direction: NDArray[np.float32], features: Features) -> NDArray[np.float32]:
        """Map of a direction over the patches: float32 [map_size, map_size], on the encoder's own scale."""
        dim, rows, columns = features.shape
        similarity = (direction @ features.reshape(dim, -1)).reshape(rows, columns)
        return resize_plane(similarity, self.encoder.map_size)

    def record(
        self,
        key: ImageKey,
        square: NDArray[np.uint8] | None,
        features: Features,
        interests: Collection[int],
        with_code: bool = True,
    ) -> TextureRecord:
        """Record of an image: its maps for `interests`, its base texture where a `square` is given, its code.

        There is none `with_code` off, or without a codebook.
        """
        base = None if square is None else self.base(square, features)
        maps = {i: quantise(self.map(self.vectors[i].direction, features)[None]) for i in interests}
        code: bytes | None = None
        if with_code and self.codebook is not None:
            code = encode_codes(self.codebook, features, self.encoder.map_size)
        return TextureRecord(key, base, maps, code)
