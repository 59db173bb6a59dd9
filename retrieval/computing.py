"""The tier `computed`: what the store does not hold is made now, with the catalogue's encoder."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..catalogue.catalogue import Catalogue
from ..catalogue.codes import Codebook
from ..catalogue.errors import InvalidPhraseError
from ..catalogue.types import ImageKey, InterestVectors, TextureRecord
from ..indexer.encoders import DenseEncoder, load_encoder
from ..indexer.images import LoadedImage
from ..indexer.indexing import adopt_encoder, ensure_vectors
from ..indexer.lacking import Lacking
from .caching import keep
from .sources import Source

if TYPE_CHECKING:
    from torch import Tensor

    from ..indexer.textures import TextureMaker

CACHED_IMAGES = 4
"""Images whose patch features are kept: about 5 MB each with the builtin encoder."""

CACHED_DIRECTIONS = 1024


class Computer:
    """Makes records and maps on demand. The encoder is loaded by the first call that needs it."""

    def __init__(self, catalogue: Catalogue, device: str, encoder: DenseEncoder | None) -> None:
        self._catalogue = catalogue
        self._device = device
        self._given = encoder
        self._loaded: DenseEncoder | None = None
        self._lock = threading.RLock()
        self._features: OrderedDict[ImageKey, Tensor] = OrderedDict()
        self._directions: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._revision = catalogue.revision

    @property
    def encoder(self) -> DenseEncoder:
        """The catalogue's encoder.

        Raises:
            EncoderError: it cannot be loaded.
            FingerprintMismatchError: the catalogue was made with other weights.
        """
        with self._lock:
            if self._loaded is None:
                encoder = self._given or load_encoder(self._catalogue.settings.encoder, self._device)
                adopt_encoder(self._catalogue, encoder)
                self._loaded = encoder
            return self._loaded

    def vectors(self) -> dict[int, InterestVectors]:
        """Vectors of every interest."""
        return ensure_vectors(self._catalogue, self.encoder)

    def embedding(self, text: str) -> NDArray[np.float32]:
        """Text embedding of a question: float32 [d_text], unit norm."""
        from ..indexer.encoders.tensors import embed_text

        return embed_text(self.encoder, text)

    def record(self, source: Source, interests: Collection[int], base: bool) -> TextureRecord:
        """Record of an image with its maps for `interests`, and its base texture if asked for.

        It is saved, with its file, when the catalogue can be written; and with a code if it lacks one, where
        others have one.
        """
        catalogue = self._catalogue
        loaded = source.load()
        features = self._features_of(source, loaded)
        codebook = catalogue.codebook() if catalogue.writable and catalogue.settings.codebook else None
        maker = self._maker(ensure_vectors(catalogue, self.encoder, interests), codebook)
        working = maker.batch(maker.squares(loaded)[:1]) if base else None
        with_code = codebook is not None and not catalogue.store.has_code(source.key)
        lacking = Lacking(base, frozenset(interests), with_code)
        record = maker.record(source.key, working, features, lacking)
        if catalogue.writable:
            catalogue.store.write([record])
            rows = [] if source.file is None else [source.file]
            catalogue.registry.record_files(rows, {source.key: loaded.size})
        return record

    def map(self, source: Source, phrase: str) -> NDArray[np.float32]:
        """Raw map of any phrase in an image: float32 [n, n], on the grid and the scale of the encoder."""
        return self._maker({}).map(self.direction(phrase), self._features_of(source)[0])

    def direction(self, phrase: str) -> NDArray[np.float32]:
        """Direction of any phrase, or of the interest of this name if exemplars show it: float32 [dim]."""
        with self._lock:
            if self._revision != self._catalogue.revision:
                self._revision = self._catalogue.revision
                self._directions.clear()  # an interest may have other exemplars now
            if phrase not in self._directions:
                keep(self._directions, phrase, self._make_direction(phrase), CACHED_DIRECTIONS)
            return self._directions[phrase]

    def _make_direction(self, phrase: str) -> NDArray[np.float32]:
        from ..indexer.encoders.tensors import phrase_vectors

        try:
            interest = self._catalogue.registry.find_interest(phrase)
        except InvalidPhraseError:  # a question may be longer than a name
            interest = None
        if interest is None or not interest.exemplars:
            return phrase_vectors(self.encoder, {0: phrase})[0].direction
        return ensure_vectors(self._catalogue, self.encoder, [interest.id])[interest.id].direction

    def _maker(self, vectors: dict[int, InterestVectors], codebook: Codebook | None = None) -> TextureMaker:
        from ..indexer.textures import TextureMaker  # which imports torch

        return TextureMaker(self.encoder, self._catalogue.schema, vectors, codebook)

    def _features_of(self, source: Source, loaded: LoadedImage | None = None) -> Tensor:
        """Patch features of an image, as a batch of one."""
        with self._lock:
            if source.key not in self._features:
                maker = self._maker({})
                _, square = maker.squares(loaded or source.load())
                keep(self._features, source.key, maker.encode(maker.batch([square])), CACHED_IMAGES)
            self._features.move_to_end(source.key)
            return self._features[source.key]
