"""The image of a look-up, in any form that a caller has it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from PIL.Image import Image

from ..catalogue.errors import ImageReadError, RecordMissingError
from ..catalogue.registry import KnownFile, Registry
from ..catalogue.types import ImageKey
from ..indexer.images import LoadedImage, decode_image, from_picture, read_content
from ..indexer.scan import absolute

ImageLike = str | os.PathLike[str] | bytes | ImageKey | Image
"""A path, a file's content, a key, or a Pillow image."""


@dataclass(frozen=True, slots=True)
class Source:
    """An image whose key is known, and which is decoded only when it must be.

    Attributes:
        key: the image.
        load: decode it. Raises ImageReadError or RecordMissingError when that cannot be done.
        file: row of the file it was read from, as the registry keeps it; None when it came otherwise.
    """

    key: ImageKey
    load: Callable[[], LoadedImage]
    file: KnownFile | None = None


def find_source(image: ImageLike, registry: Registry) -> Source:
    """Source of `image`. A path is read whole, since its content is its identity; nothing is decoded.

    A Pillow image has no file: its key is the digest of its size and pixels (`from_picture`).

    Raises:
        ImageReadError: a path cannot be read.
    """
    if isinstance(image, ImageKey):
        return Source(image, lambda: _load_known(image, registry))
    if isinstance(image, bytes):
        return Source(ImageKey.of(image), lambda: decode_image(image, "<bytes>"))
    if isinstance(image, Image):
        loaded = from_picture(image)
        return Source(loaded.key, lambda: loaded)
    content = read_content(image)
    path, key = absolute(image), ImageKey.of(content)
    return Source(key, lambda: decode_image(content, path), _row(path, key))


def _row(path: bytes, key: ImageKey) -> KnownFile | None:
    try:
        status = os.stat(path)
    except OSError:  # gone since it was read: a file without a row is found again by the next pass
        return None
    return KnownFile(path, status.st_size, status.st_mtime_ns, status.st_dev, key, None, None)


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
