"""Maps of interests for a whole corpus, made from codes: nothing is encoded again.

A code holds what the encoder saw in an image, small enough to be kept. The map of any phrase is a product of
it with the phrase's coordinates, and close to the map that the encoder makes. Where that map itself is
wanted, the image is encoded again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..catalogue.catalogue import Catalogue
from ..catalogue.coded import coded_maps
from ..catalogue.errors import CatalogueError
from ..catalogue.phrases import normalise_phrase
from ..catalogue.quantise import LEVELS, dequantise, quantise
from ..catalogue.store import TextureStore
from ..catalogue.types import ImageKey, Interest, InterestMaps, Planes, Skipped, TextureRecord
from .encoders import DenseEncoder, load_encoder
from .indexing import adopt_encoder, encode_again, ensure_vectors
from .passes import Progress
from .relating import measure_maps
from .threads import bounded_map, thread_pool

CHUNK = 512
"""Images that are written together: each shard is synced once for them."""

WINDOW = 4
"""Chunks that are being made ahead of the one that is written."""

SAME_LEVELS = 2
"""A stored map was made from the code if it is nowhere further than so many of 255 levels from the one that
the code gives now: another machine may round sums otherwise, and a map of the encoder's is further off."""

Coordinates = Mapping[int, NDArray[np.float32]]
"""By interest id: where its direction lies on the axes of the codebook, float32 [K]."""


@dataclass(frozen=True, slots=True)
class ExpandReport:
    """What an expansion did.

    Attributes:
        interests: those that were expanded, in the order given.
        filled: maps that were made and stored.
        present: maps that were stored already.
        uncoded: images that lack a map and have no code; the next indexing pass makes both.
        unavailable: images that were to be encoded again, no file of which is there as it was indexed.
        skipped: files that were to be encoded again and could not be read, each with its reason.
        stopped: whether it was stopped before it had gone through all images.
        seconds: duration.
    """

    interests: tuple[Interest, ...]
    filled: int = 0
    present: int = 0
    uncoded: int = 0
    unavailable: int = 0
    skipped: tuple[Skipped, ...] = ()
    stopped: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How an expansion from codes goes along.

    Attributes:
        images: so many are written together; `CHUNK` when None.
        gentle: whether one thread does all, and nothing is made ahead of what is written.
        go_on: asked before each chunk of images. When it says no, the expansion ends there: what was written
            is there, and the rest is made by the next one. It may also wait, with nothing held.
    """

    images: int | None = None
    gentle: bool = False
    go_on: Callable[[], bool] = lambda: True


def expand_interest(
    catalogue: Catalogue,
    phrases: Sequence[str],
    *,
    exact: bool = False,
    device: str = "auto",
    encoder: DenseEncoder | None = None,
    pace: Pace = Pace(),
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> ExpandReport:
    """Store the maps of interests for every image that has a code. Interests that are new are added.

    One that is archived is an interest like others again; one that is removed, or archived, while this goes
    on has no maps in the end. Interrupt it at any time: maps that are stored are not made again. No image
    goes through the encoder, unless `exact` is on; it is loaded only for a phrase whose direction is not
    known yet.

    Args:
        catalogue: open to write.
        phrases: of the interests. One that the catalogue holds keeps its weight.
        exact: encode again, from their files, the images that lack a map or whose map was made from the code.
        device: where the encoder runs, if it is needed.
        encoder: an encoder that is loaded already.
        pace: how it goes along, unless `exact` is on.
        on_progress: called after each commit; counts images, and files with `exact`.

    Raises:
        InvalidPhraseError: a phrase cannot name an interest; none is added.
        CatalogueError: the codebook is lost or damaged, or there are images but no codes at all.
        ReadOnlyError, FingerprintMismatchError, EncoderError, StoreFullError: as their names say.
    """
    started = time.monotonic()
    catalogue.require_writable("expand an interest")
    interests = _interests(catalogue, phrases)
    keys = list(catalogue.store.keys())
    if not keys:
        return ExpandReport(interests, seconds=time.monotonic() - started)
    coordinates, encoder = _coordinates(catalogue, interests, encoder, device, needed=not exact)
    if exact:
        again = _inexact(catalogue.store, frozenset(i.id for i in interests), coordinates, keys)
        made, skipped = encode_again(
            catalogue, again, encoder=encoder, device=device, on_progress=on_progress
        )
        report = ExpandReport(
            interests,
            filled=sum(len(again[key]) for key in made),
            present=len(interests) * len(keys) - sum(map(len, again.values())),
            unavailable=len(again) - len(made) - len(skipped),
            skipped=skipped,
        )
    else:
        report = _decode(catalogue, interests, coordinates, keys, pace=pace, on_progress=on_progress)
    _drop_abandoned(catalogue, interests)
    measure_maps(catalogue)
    return replace(report, seconds=time.monotonic() - started)


def _interests(catalogue: Catalogue, phrases: Sequence[str]) -> tuple[Interest, ...]:
    """The interests of `phrases`, each once; those that are new are added, and archived ones restored."""
    normal = dict.fromkeys(normalise_phrase(phrase) for phrase in phrases)  # all are looked at first
    found = []
    for phrase in normal:
        interest = catalogue.registry.find_interest(phrase) or catalogue.add_interest(phrase)
        found.append(interest if interest.archived is None else catalogue.restore_interest(phrase))
    return tuple(found)


def _drop_abandoned(catalogue: Catalogue, interests: Sequence[Interest]) -> None:
    """Drop what was written for interests that another thread has removed or archived meanwhile.

    It changes the registry first, and drops maps then: those that it has not yet forgotten when this looks,
    it drops itself.
    """
    wanted = {interest.id for interest in catalogue.mapped_interests()}
    for interest in interests:
        if interest.id not in wanted:
            catalogue.store.drop_interest(interest.id)


def _coordinates(
    catalogue: Catalogue,
    interests: Sequence[Interest],
    encoder: DenseEncoder | None,
    device: str,
    needed: bool,
) -> tuple[Coordinates, DenseEncoder | None]:
    """Coordinates of `interests`, and the encoder, if it had to be loaded; none without a codebook.

    Raises:
        CatalogueError: there is no sound codebook, and it is `needed`.
    """
    try:
        codebook = catalogue.codebook()
    except CatalogueError:
        if needed:
            raise
        return {}, encoder
    vectors = catalogue.registry.vectors(catalogue.settings.fingerprint)
    if any(interest.id not in vectors for interest in interests):
        encoder = encoder or load_encoder(catalogue.settings.encoder, device)
        adopt_encoder(catalogue, encoder)
        vectors = ensure_vectors(catalogue, encoder, [interest.id for interest in interests])
    directions = np.stack([vectors[interest.id].direction for interest in interests])
    rows = codebook.coordinates(directions)
    return {interest.id: row for interest, row in zip(interests, rows, strict=True)}, encoder


def _decode(
    catalogue: Catalogue,
    interests: tuple[Interest, ...],
    coordinates: Coordinates,
    keys: Sequence[ImageKey],
    *,
    pace: Pace,
    on_progress: Callable[[Progress], None],
) -> ExpandReport:
    """Make the maps that are lacking from codes, and store them, a chunk of images after the other."""
    store = catalogue.store
    filled = present = uncoded = done = 0
    on_progress(Progress(0, len(keys), 0))
    size = pace.images or CHUNK
    with thread_pool() as pool, threadpool_limits(1, user_api="blas"):
        # With a window of one, a chunk is begun when the one before it is written.
        window = 1 if pace.gentle else WINDOW
        chunks = (keys[start : start + size] for start in range(0, len(keys), size) if pace.go_on())
        for chunk in bounded_map(pool, lambda chunk: _decoded(store, coordinates, chunk), chunks, window):
            store.write(chunk.records)
            filled += sum(len(record.maps) for record in chunk.records)
            present += chunk.present
            uncoded += chunk.uncoded
            done += chunk.images
            on_progress(Progress(done, len(keys), uncoded))
    return ExpandReport(interests, filled, present, uncoded, stopped=done < len(keys))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Records of the maps made for some images, how many maps they had, and how many have no code."""

    images: int
    records: list[TextureRecord]
    present: int
    uncoded: int


def _decoded(store: TextureStore, coordinates: Coordinates, keys: Sequence[ImageKey]) -> _Chunk:
    """Maps that the images `keys` lack, from their codes."""
    absent = dict(store.lacking(keys, coordinates))
    lacking = {key: ids for key, ids in absent.items() if ids}
    # Most images lack the same maps.
    wanted = {ids: tuple(sorted(ids)) for ids in set(lacking.values())}
    rows = {ids: np.stack([coordinates[i] for i in chosen]) for ids, chosen in wanted.items()}
    maps = {key: coded_maps(code, rows[lacking[key]]) for key, code in store.codes(lacking)}
    if maps:
        planes = quantise(np.concatenate(list(maps.values())))
    records = []
    start = 0
    for key, made in maps.items():
        own = slice(start, start + len(made))
        held = Planes(planes.values[own], planes.low[own], planes.high[own])
        records.append(TextureRecord(key, maps=InterestMaps(wanted[lacking[key]], held)))
        start += len(made)
    # To an image that has lost its base nothing can be added: the next indexing pass makes all of it.
    uncoded = len(keys) - len(absent) + len(lacking) - len(maps)
    present = sum(len(coordinates) - len(ids) for ids in absent.values())
    return _Chunk(len(keys), records, present, uncoded)


def _inexact(
    store: TextureStore, ids: frozenset[int], coordinates: Coordinates, keys: Sequence[ImageKey]
) -> dict[ImageKey, frozenset[int]]:
    """Images that lack a map of `ids`, or have one that was made from the code, with these interests."""
    wanted = {key: ids - _exact(store, coordinates, key, ids) for key in keys}
    return {key: lacking for key, lacking in wanted.items() if lacking}


def _exact(
    store: TextureStore, coordinates: Coordinates, key: ImageKey, ids: frozenset[int]
) -> frozenset[int]:
    """Those of `ids` whose map in an image is held, and is not the one that its code gives."""
    held = ids & (store.held(key) or frozenset())
    code = dict(store.codes([key])).get(key)
    if not held or not coordinates or code is None:
        return held
    stored = store.read(key, held).maps
    made = coded_maps(code, np.stack([coordinates[i] for i in stored]))
    return frozenset(i for i, plane in zip(stored, made, strict=True) if not _stands_for(stored[i], plane))


def _stands_for(planes: Planes, made: NDArray[np.float32]) -> bool:
    """Whether a stored map is `made`, but for rounding."""
    step = (planes.high[0] - planes.low[0]) / np.float32(LEVELS)
    return bool(np.abs(dequantise(planes)[0] - made).max() <= SAME_LEVELS * step)
