"""Whether a catalogue is sound, and how it becomes so: its records, and the registry against its records.

What one command does to an image is not one transaction: the store commits first when something is added, the
registry first when something is removed. So what is left by an interruption is a record that nothing refers
to, never a file that counts as indexed and is not. A repair removes what has lost its other half: all of it
is made again from the photo.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from .catalogue import CODEBOOK_NAME, Catalogue
from .errors import CatalogueError, StoreError
from .store import Problem
from .types import ImageKey


@dataclass(frozen=True, slots=True)
class Repairs:
    """What a repair did.

    Attributes:
        shards: shards whose pages did not hang together, set aside for an empty one.
        entries: entries of shards, damaged, foreign or out of place, that were removed.
        maps: maps of interests that are not in the registry, that were removed.
        records: sound records that the registry did not know, that were removed.
        files: files that no longer count as indexed; the next pass makes their records again.
        images: images that the registry does not know any more.
    """

    shards: int = 0
    entries: int = 0
    maps: int = 0
    records: int = 0
    files: int = 0
    images: int = 0


def verify(catalogue: Catalogue) -> Iterator[Problem]:
    """Read everything, change nothing, and give each thing that is wrong, with the way out.

    - a shard whose pages do not hang together, a record that is damaged, foreign or out of place;
    - a codebook that is lost, damaged, or not the one that the codes were made with;
    - maps of an interest that is not in the registry;
    - a file that counts as indexed, whose image has no record, and an image that has neither;
    - a record of an image that the registry does not know.

    Images that a running pass commits meanwhile may be given as not known to the registry.

    Raises:
        RegistryError: the registry cannot be read.
    """
    yield from _codebook(catalogue)
    told: set[ImageKey] = set()
    unreadable = False
    for problem in catalogue.store.check():
        unreadable |= problem.entry is None
        if problem.key is not None:
            told.add(problem.key)
        yield problem
    if unreadable:  # it cannot be compared, and LMDB might not survive the attempt
        return
    try:
        yield from _unknown_interests(catalogue)
        yield from _images_without_record(catalogue, told)
        yield from _unknown_images(catalogue, told)
    except StoreError as error:
        yield Problem(os.fspath(catalogue.path), f"records and registry cannot be compared: {error}")


def repair(catalogue: Catalogue, problems: Iterable[Problem]) -> Repairs:
    """Do away with what `verify` found, so that it finds nothing any more.

    A codebook that is lost or damaged is left for the next indexing pass: it takes the encoder to make it.
    What is removed is made again by the next pass. After an interruption, `verify` finds what is left.

    Raises:
        ReadOnlyError: the catalogue is open to read.
        CatalogueError: not one record is of the encoder that the catalogue names.
    """
    catalogue.require_writable("repair")
    found = list(problems)
    _refuse_foreign(catalogue, found)
    set_aside = catalogue.store.set_aside(found)
    if set_aside:
        found = list(verify(catalogue))
    entries = catalogue.store.discard(found)
    maps = sum(catalogue.store.drop_interest(number) for number, _ in _foundlings(catalogue))
    # Registry first, as with every removal. What a problem says may be history: what is now counts.
    halves = sorted({p.key for p in found if p.key is not None and not _is_whole(catalogue, p.key)})
    files = [path for key in halves for path in catalogue.registry.paths_of(key)]
    images = {*catalogue.registry.forget_files(files), *catalogue.registry.forget_images(halves)}
    records = catalogue.store.delete(halves)
    return Repairs(len(set_aside), entries, maps, records, len(files), len(images))


def _codebook(catalogue: Catalogue) -> Iterator[Problem]:
    if not catalogue.settings.codebook:
        return
    try:
        catalogue.read_codebook()
    except CatalogueError as error:
        yield Problem(os.fspath(catalogue.path / CODEBOOK_NAME), str(error))


def _refuse_foreign(catalogue: Catalogue, problems: Collection[Problem]) -> None:
    """If every record is of another encoder, it is not the records that are wrong."""
    foreign = {problem.key for problem in problems if problem.foreign}
    if foreign and all(catalogue.store.held(key) is None for key in catalogue.store.keys()):
        raise CatalogueError(
            f"{catalogue.path}: no record is of encoder {catalogue.settings.fingerprint or '(none)'}, which "
            "catalogue.toml names; put the right catalogue.toml back from a backup (nothing was changed)"
        )


def _is_whole(catalogue: Catalogue, key: ImageKey) -> bool:
    return catalogue.store.held(key) is not None and catalogue.registry.image_size(key) is not None


def _foundlings(catalogue: Catalogue) -> list[tuple[int, int]]:
    """Interests that the registry does not know, each with its number of maps."""
    known = {interest.id for interest in catalogue.interests()}
    held = sorted(catalogue.store.stats().maps.items())
    return [(number, maps) for number, maps in held if number not in known]


def _unknown_interests(catalogue: Catalogue) -> Iterator[Problem]:
    for number, maps in _foundlings(catalogue):
        yield Problem(
            f"interest {number}",
            f"{maps:,} maps are held, but the registry has no such interest: its removal was interrupted; "
            "`texcat verify --repair` ends it",
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
                "has a record, but is not in the registry; `texcat index` the folder that holds it, or let "
                "`texcat verify --repair` remove it",
                key,
            )
