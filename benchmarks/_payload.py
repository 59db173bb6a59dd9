"""Real textures for benchmarks of the store: coco128 under 50 phrases, repeated under new keys.

The photos are encoded once and kept in the temporary folder between runs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from texcat.catalogue import Catalogue, ChannelSchema, ImageKey, TextureRecord
from texcat.catalogue.grid import resize_plane
from texcat.catalogue.quantise import quantise
from texcat.catalogue.types import Planes

DATA = Path(__file__).parents[1] / ".." / "shared" / "data" / "coco128"
INTERESTS = 50
FINGERPRINT = "benchmark"


class Payload:
    """Base textures [photos, planes, 32, 32] and maps [photos, interests, side, side], quantised."""

    def __init__(self, side: int = 16, data: Path = DATA) -> None:
        bases, maps = _textures(data)
        self.bases = [quantise(base) for base in bases]
        sized = [resize_plane(photo, side) for photo in maps]
        self.maps = [[quantise(plane[None]) for plane in photo] for photo in sized]
        self.side = side

    def record(self, number: int, interests: int = INTERESTS) -> TextureRecord:
        """Record of image `number`, with maps for interests 1 to `interests`."""
        photo = number % len(self.bases)
        maps = {i + 1: self.maps[(photo + i) % len(self.maps)][i % INTERESTS] for i in range(interests)}
        return TextureRecord(key(number), self.bases[photo], maps)

    def records(self, images: int, interests: int = INTERESTS) -> Iterator[TextureRecord]:
        """Records of images 0 to `images` - 1."""
        return (self.record(number, interests) for number in range(images))

    def map(self, number: int, interest: int) -> Planes:
        """Map of one interest in one image."""
        photo = number % len(self.bases)
        return self.maps[(photo + interest) % len(self.maps)][interest % INTERESTS]


def key(number: int) -> ImageKey:
    """Key of image `number`."""
    return ImageKey.of(b"image %d" % number)


def fill(catalogue: Catalogue, payload: Payload, images: int, batch: int = 500) -> None:
    """Give an empty catalogue interests and records."""
    for number in range(INTERESTS):
        catalogue.add_interest(f"interest {number}")
    catalogue.adopt_encoder(FINGERPRINT, 0.0, 1.0)
    pending: list[TextureRecord] = []
    for record in payload.records(images):
        pending.append(record)
        if len(pending) == batch:
            catalogue.store.write(pending)
            pending = []
    catalogue.store.write(pending)


def _textures(data: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    names = json.loads((data / "names.json").read_text())
    phrases = list(dict.fromkeys([*names["boxes"].values()]))[:INTERESTS]
    stored = ChannelSchema.parse("default").stored.names
    digest = blake3(
        repr((phrases, stored, sorted(p.name for p in data.glob("images/*")))).encode()
    ).hexdigest(8)
    kept = Path(tempfile.gettempdir()) / f"texcat-benchmark-{digest}.npz"
    if not kept.exists():
        _make(data, phrases, kept)
    content = np.load(kept)
    return content["bases"], content["maps"]


def _make(data: Path, phrases: list[str], kept: Path) -> None:
    from texcat.indexer.channels import base_channels
    from texcat.indexer.encoders import load_encoder
    from texcat.indexer.encoders.tensors import phrase_vectors
    from texcat.indexer.images import load_image
    from texcat.indexer.squares import to_square
    from texcat.indexer.textures import TextureMaker

    encoder = load_encoder("builtin", "cpu")
    vectors = phrase_vectors(encoder, dict(enumerate(phrases)))
    schema = ChannelSchema.parse("default")
    maker = TextureMaker(encoder, schema, vectors)
    bases, maps = [], []
    for path in sorted(data.glob("images/*")):
        square = to_square(load_image(path).image, 512)
        images = maker.batch([square])
        features = maker.encode(images)
        bases.append(base_channels(images, features, schema)[0].numpy())
        flat = features[0].flatten(1).numpy()
        similarity = [vectors[i].direction @ flat for i in vectors]
        maps.append(np.stack(similarity).reshape(len(vectors), *encoder.grid))
    np.savez(kept, bases=np.stack(bases), maps=np.stack(maps))
