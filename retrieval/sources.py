"""The image of a look-up, in any form that a caller has it."""

from __future__ import annotations

import os

from PIL.Image import Image

from ..catalogue.errors import ImageReadError, RecordMissingError
from ..catalogue.registry import KnownFile, Registry
from ..catalogue.types import ImageKey
from ..indexer.images import LoadedImage, decode_image, from_picture
from ..indexer.places import absolute
from ..indexer.reading import look, read_content

ImageLike = str | os.PathLike[str] | bytes | ImageKey | Image
"""A path, a URL or a member of an archive, a file's content, a key, or a Pillow image."""


class Source:
    """An image whose key is known, and which is decoded only when it must be.

    Attributes:
        key: the image.
        file: row of the file it was read from, as the registry keeps it; None when it came otherwise.
    """

    __slots__ = ("_image", "_registry", "file", "key")

    def __init__(
        self,
        key: ImageKey,
        image: bytes | LoadedImage,
        registry: Registry,
        file: KnownFile | None = None,
    ) -> None:
        self.key = key
        self.file = file
        self._image = image
        self._registry = registry

    def load(self) -> LoadedImage:
        """Decode the image.

        Raises:
            ImageReadError: it cannot be decoded.
            RecordMissingError: only its key is known, and no file that is recorded for it is left.
        """
        if isinstance(self._image, LoadedImage):
            return self._image
        if isinstance(self._image, ImageKey):
            return _load_known(self._image, self._registry)
        return decode_image(self._image, self.file.path if self.file is not None else "<bytes>")


def find_source(image: ImageLike, registry: Registry) -> Source:
    """Source of `image`. A path is read whole, since its content is its identity; nothing is decoded.

    A Pillow image has no file: its key is the digest of its size and pixels (`from_picture`).

    Raises:
        ImageReadError: a path cannot be read.
    """
    if isinstance(image, ImageKey):
        return Source(image, image, registry)
    if isinstance(image, bytes):
        return Source(ImageKey.of(image), image, registry)
    if isinstance(image, Image):
        loaded = from_picture(image)
        return Source(loaded.key, loaded, registry)
    found = look(absolute(image))  # before it is read: if it changes meanwhile, the next pass sees that
    content = read_content(image)
    key = ImageKey.of(content)
    row = None if found is None else KnownFile(found.path, found.size, found.mtime_ns, found.device, key)
    return Source(key, content, registry, row)


def _load_known(key: ImageKey, registry: Registry) -> LoadedImage:
    """Decode the first file of those recorded for `key` that still has its content."""
    for path in registry.paths_of(key):
        try:
            content = read_content(path)
        except ImageReadError:
            continue
        if ImageKey.of(content) == key:
            return decode_image(content, path)
    raise RecordMissingError(str(key))
