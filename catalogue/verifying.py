"""Whether a catalogue is sound: its records, and the registry against its records."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from .catalogue import Catalogue
from .errors import StoreError
from .store import Problem
from .types import ImageKey


def verify(catalogue: Catalogue) -> Iterator[Problem]:
    """Read everything, change nothing, and give each thing that is wrong, with the way out.

    - a record that is damaged, foreign or out of place (`TextureStore.check`);
    - maps of an interest that is not in the registry;
    - a file that counts as indexed, whose image has no record, and an image that has neither;
    - a record of an image that the registry does not know.

    Images that a running pass commits meanwhile may be given as not known to the registry.

    Raises:
        RegistryError: the registry cannot be read.
    """
    told: set[ImageKey] = set()
    for problem in catalogue.store.check():
        if problem.key is not None:
            told.add(problem.key)
        yield problem
    try:
        yield from _unknown_interests(catalogue)
        yield from _images_without_record(catalogue, told)
        yield from _unknown_images(catalogue, told)
    except StoreError as error:
        # A shard that cannot be read to its end cannot be compared.
        yield Problem(os.fspath(catalogue.path), f"records and registry cannot be compared: {error}")


def _unknown_interests(catalogue: Catalogue) -> Iterator[Problem]:
    known = {interest.id for interest in catalogue.interests()}
    for number, maps in sorted(catalogue.store.stats().maps.items()):
        if number not in known:
            yield Problem(
                f"interest {number}",
                f"{maps:,} maps are held, but the registry has no such interest: its removal was interrupted",
            )


def _images_without_record(catalogue: Catalogue, told: Collection[ImageKey]) -> Iterator[Problem]:
    for key in catalogue.registry.images():
        if key in told or catalogue.store.held(key) is not None:
            continue
        paths = catalogue.registry.paths_of(key)
        for path in paths:
            yield Problem(
                os.fsdecode(path),
                f"counts as indexed, but there is no record of its image {key}; `texcat index` makes it",
                key,
            )
        if not paths:
            yield Problem(
                f"image {key}",
                "is in the registry, but has neither a file nor a record; a look-up that is given the image "
                "makes one",
                key,
            )


def _unknown_images(catalogue: Catalogue, told: Collection[ImageKey]) -> Iterator[Problem]:
    for key in catalogue.store.keys():
        if key not in told and catalogue.registry.image_size(key) is None:
            yield Problem(
                f"image {key}",
                "has a record, but is not in the registry; `texcat index` the folder that holds it",
                key,
            )
