"""What a worker of a cluster does: it reads files, and makes records of them, for whoever writes those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from ..catalogue.channels import ChannelSchema
from ..catalogue.codes import Codebook
from ..catalogue.errors import ImageReadError
from ..catalogue.types import ImageKey, InterestVectors, TextureRecord
from .encoders import DenseEncoder, load_encoder
from .images import decode_image
from .lacking import Lacking
from .reading import read_content
from .scan import FoundFile

if TYPE_CHECKING:
    from .decoding import Decoded, Decoder
    from .textures import TextureMaker


@dataclass(frozen=True, slots=True)
class Recipe:
    """What workers need to make records: as for `TextureMaker`, and which encoder.

    Attributes:
        encoder: specification of the encoder, or one that is loaded already, which is copied to the workers.
        fingerprint: that it must have.
        schema, vectors, codebook: as for `TextureMaker`.
    """

    encoder: str | DenseEncoder
    fingerprint: str
    schema: ChannelSchema
    vectors: Mapping[int, InterestVectors]
    codebook: Codebook | None


@dataclass(frozen=True, slots=True)
class Identified:
    """The image of a file, or the `reason` why it cannot be read."""

    key: ImageKey | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """Width and height of an image, and what it lacked; or the `reason` why it cannot be decoded."""

    size: tuple[int, int] | None
    record: TextureRecord | None = None
    reason: str | None = None


class Worker:
    """Makes records after a recipe. Files go through it in units: first they are read, then made.

    Args:
        device: where its encoder runs.
    """

    def __init__(self, recipe: Recipe, device: str) -> None:
        self._recipe = recipe
        self._device = device
        self._contents: dict[int, list[bytes]] = {}
        self._maker: TextureMaker
        self._decoder: Decoder

    def start(self) -> str:
        """Load the encoder; its fingerprint.

        Raises:
            EncoderError: it cannot be loaded.
        """
        from .decoding import Decoder
        from .textures import TextureMaker

        recipe = self._recipe
        encoder = (
            load_encoder(recipe.encoder, self._device) if isinstance(recipe.encoder, str) else recipe.encoder
        )
        self._maker = TextureMaker(encoder, recipe.schema, recipe.vectors, recipe.codebook)
        self._decoder = Decoder(self._maker)
        return encoder.fingerprint

    def read(self, unit: int, files: Sequence[FoundFile]) -> list[Identified]:
        """Read the files of a unit, and keep what is in them until they are made."""
        found: list[Identified] = []
        contents: list[bytes] = []
        for file in files:
            try:
                contents.append(read_content(file.path, file.span))
                found.append(Identified(ImageKey.of(contents[-1])))
            except ImageReadError as error:
                contents.append(b"")
                found.append(Identified(None, error.reason))
        self._contents[unit] = contents
        return found

    def make(
        self,
        unit: int,
        files: Sequence[FoundFile],
        keys: Sequence[ImageKey | None],
        lacking: Sequence[Lacking | None],
    ) -> list[Made | None]:
        """What the images of a unit lack; only the size where that is nothing. None where None is lacking.

        Files that another worker has read are read again.

        Args:
            unit: as it was read.
            files, keys, lacking: one for each file.
        """
        contents = self._contents.pop(unit, None)
        made: list[Made | None] = [None] * len(files)
        chosen: list[tuple[int, ImageKey, Lacking, bytes]] = []
        for place, (file, key, lacks) in enumerate(zip(files, keys, lacking, strict=True)):
            if key is None or lacks is None:
                continue
            try:
                content = read_content(file.path, file.span) if contents is None else contents[place]
                if ImageKey.of(content) != key:
                    raise ImageReadError(file.path, "changed while it was indexed; index it again")
                if lacks:
                    chosen.append((place, key, lacks, content))
                else:
                    made[place] = Made(decode_image(content, file.path).size)
            except ImageReadError as error:
                made[place] = Made(None, reason=error.reason)
        for place, result in zip(
            (place for place, *_ in chosen),
            self._records([(files[place], key, lacks, content) for place, key, lacks, content in chosen]),
            strict=True,
        ):
            made[place] = result
        return made

    def _records(self, images: Sequence[tuple[FoundFile, ImageKey, Lacking, bytes]]) -> list[Made]:
        """What each of `images`, of which all lack something, lacks."""
        decoded = self._decoder.decode([(content, file.path) for file, _, _, content in images])
        readable = [
            (key, lacks)
            for (_, key, lacks, _), outcome in zip(images, decoded.outcomes, strict=True)
            if not isinstance(outcome, ImageReadError)
        ]
        records = iter(self._make(decoded, [key for key, _ in readable], [lacks for _, lacks in readable]))
        return [
            Made(None, reason=outcome.reason)
            if isinstance(outcome, ImageReadError)
            else Made(outcome, next(records))
            for outcome in decoded.outcomes
        ]

    def _make(
        self, decoded: Decoded, keys: Sequence[ImageKey], lacking: Sequence[Lacking]
    ) -> Iterator[TextureRecord]:
        if decoded.squares is None:
            return
        made = self._maker.encode(decoded.squares)
        coarse = self._maker.pooled(made)
        features = self._maker.waiting.enter(made)
        pooled = features if coarse is made else self._maker.waiting.enter(coarse)
        del made, coarse  # or they could not leave a GPU
        drafts = self._maker.draft(decoded.working, features, pooled, lacking)
        # By one thread, as in a pass on one machine: with more, products of small matrices round otherwise.
        with threadpool_limits(1, user_api="openmp"):
            codes = self._maker.codes(pooled, lacking, self._decoder.map)
        for place, key in enumerate(keys):
            yield TextureRecord(key, drafts.bases.get(place), drafts.maps.get(place) or {}, codes.get(place))
