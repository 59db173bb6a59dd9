"""Interests that images show: their direction is made from patch features, in place of words.

With m the mean feature of the patches of the corpus, f_i that of the patches of exemplar i, each weighted by
the part of it that lies in the box, and E the mean over exemplars,

    u = E[f_i / |f_i|]        a = u - m (u . m) / (m . m)        direction = a / (|a|^2 E[|f_i|])

a is what the exemplars show and images in general do not. The average patch reads 0, and exemplars about 1:
f_i / |f_i| times E[|f_i|] does so exactly, in the mean over i. u - m would keep a part along m, which follows
the contrast of a patch, and points less well, as do whitened directions (`benchmarks/exemplars.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import ImageReadError, UsageError
from ..catalogue.registry import CorpusMean, Registry
from ..catalogue.types import Box, Exemplar, ImageKey, Interest, InterestVectors
from .encoders import DenseEncoder
from .images import LoadedImage, decode_image, load_image
from .reading import read_content

SAMPLE_IMAGES = 64
"""Images that stand for the corpus."""

SAMPLE_TRIES = 4 * SAMPLE_IMAGES
"""Files that are tried for them, since the disk that holds them may not be mounted."""

BATCH_SIZE = 8

INDISTINCT = 1e-3
"""Length of `a`, which is at most 1, below which it is made of rounding errors."""

Feature = NDArray[np.float32]
"""float32 [dim]."""

Features = NDArray[np.float32]
"""Of the patches of an image: float32 [dim, rows, columns]."""


def exemplar_vectors(
    catalogue: Catalogue, encoder: DenseEncoder, interest: Interest, corpus: Feature
) -> InterestVectors:
    """Vectors of an interest that has exemplars.

    Its text embedding, which questions are compared with, is that of its phrase.

    Args:
        catalogue: where other files with the images of exemplars are looked for.
        encoder: makes the vectors.
        interest: `Interest.id` is not looked at.
        corpus: as `corpus_mean` gives it.

    Raises:
        ImageReadError: an exemplar is not there as it was when it was added.
        UsageError: the exemplars do not differ from what images show in general.
    """
    from .encoders.tensors import phrase_vectors

    loaded = (_load_exemplar(interest, exemplar, catalogue.registry) for exemplar in interest.exemplars)
    means = np.stack(
        [
            box_mean(features, exemplar.box)
            for exemplar, features in zip(interest.exemplars, _encode(encoder, loaded), strict=True)
        ]
    )
    words = phrase_vectors(encoder, {0: interest.phrase})[0]
    try:
        direction = exemplar_direction(means, corpus)
    except UsageError as error:
        raise UsageError(f"interest {interest.phrase!r}: {error}") from error
    if interest.with_words:
        direction = join_words(direction, words.direction, corpus)
    return InterestVectors(words.text, direction)


def corpus_mean(catalogue: Catalogue, encoder: DenseEncoder, files: Sequence[bytes] = ()) -> Feature:
    """Mean feature of all patches of up to `SAMPLE_IMAGES` images of the corpus: float32 [dim].

    They are the first of the catalogue that can be read, by their keys, which are digests: a random choice.
    The mean is kept if the catalogue can be written, and made again as long as it rests on fewer images than
    there are.

    Args:
        catalogue: its images are the corpus.
        encoder: gives the features.
        files: paths that are about to be indexed; some of them, at even distances, make up for images that
            the catalogue lacks.

    Raises:
        UsageError: there are no images.
    """
    registry = catalogue.registry
    known = registry.corpus_mean(encoder.fingerprint)
    if known is not None and known.images >= min(SAMPLE_IMAGES, registry.counts().images):
        return known.feature
    total = np.zeros(encoder.dim)
    images = 0
    for features in _encode(encoder, _sample(registry, files)):
        total += features.mean((1, 2), dtype=np.float64)
        images += 1
    if not images:
        raise UsageError(
            f"catalogue {catalogue.path} has no images that exemplars can be told from; `texcat index` a "
            "folder of images"
        )
    made = CorpusMean(images, (total / images).astype(np.float32))
    if catalogue.writable:
        registry.put_corpus_mean(encoder.fingerprint, made)
    return made.feature


def box_mean(features: Features, box: Box | None) -> Feature:
    """Mean of patch features [dim, rows, columns] over a box, each weighted by its part that lies in it."""
    rows, columns = features.shape[1:]
    if box is None:
        box = Box(0, 0, 1, 1)
    down = _overlap(box.top, box.bottom, rows)
    right = _overlap(box.left, box.right, columns)
    return np.asarray(features @ right @ down, np.float32)


def exemplar_direction(means: NDArray[np.float32], corpus: Feature) -> Feature:
    """Direction of the formula above: float32 [dim].

    Args:
        means: float32 [N, dim], the mean feature of each exemplar.
        corpus: float32 [dim].

    Raises:
        UsageError: the exemplars do not differ from the corpus.
    """
    lengths = np.linalg.norm(means.astype(np.float64), axis=1)
    if lengths.all():
        own = _without((means / lengths[:, None]).mean(0), corpus)
        squared = own @ own
        if squared > INDISTINCT**2:
            return np.asarray(own / (squared * lengths.mean()), np.float32)
    raise UsageError(
        "its exemplars look like all images do on average; give a box around what they show, or other images"
    )


def join_words(direction: Feature, words: Feature, corpus: Feature) -> Feature:
    """Mean of the direction of exemplars and that of words, which is first brought to the other's length.

    What all images have in common is taken off the words too, so that the average patch reads 0.
    """
    own = _without(words, corpus)
    length = np.linalg.norm(own)
    if length == 0:  # words that the encoder cannot place at all
        return direction
    return np.asarray((direction + own * (np.linalg.norm(direction) / length)) / 2, np.float32)


def _without(vector: NDArray[np.floating], corpus: Feature) -> NDArray[np.float64]:
    """The part of `vector` at right angles to the mean of the corpus."""
    exact, mean = vector.astype(np.float64), corpus.astype(np.float64)
    squared = float(mean @ mean)
    return exact - mean * (float(exact @ mean) / squared) if squared else exact


def _overlap(low: float, high: float, cells: int) -> NDArray[np.float32]:
    """Part of the interval from `low` to `high` (0 to 1) that lies in each of `cells` equal cells."""
    edges = np.linspace(0, 1, cells + 1)
    inside = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0, None)
    return np.asarray(inside / inside.sum(), np.float32)


def _encode(encoder: DenseEncoder, images: Iterable[LoadedImage]) -> Iterator[Features]:
    """Patch features of each image, a batch at a time."""
    from .encoders.tensors import encode_squares
    from .squares import square_of

    squares = (square_of(loaded, encoder.input_size) for loaded in images)
    while batch := list(islice(squares, BATCH_SIZE)):
        yield from encode_squares(encoder, batch)


def _sample(registry: Registry, files: Sequence[bytes]) -> Iterator[LoadedImage]:
    """Images that stand for the corpus, each once; files that cannot be read are passed over."""
    known = (path for key in registry.images() for path in registry.paths_of(key)[:1])
    spread = files[:: max(1, len(files) // SAMPLE_IMAGES)]
    readable = _readable(islice(chain(known, spread), SAMPLE_TRIES))
    return islice(readable, SAMPLE_IMAGES)


def _readable(paths: Iterable[bytes]) -> Iterator[LoadedImage]:
    seen: set[ImageKey] = set()
    for path in paths:
        try:
            loaded = load_image(path)
        except ImageReadError:
            continue
        if loaded.key not in seen:
            seen.add(loaded.key)
            yield loaded


def _load_exemplar(interest: Interest, exemplar: Exemplar, registry: Registry) -> LoadedImage:
    """Decode an exemplar, from its own file or any other that holds its image."""
    others = [] if exemplar.key is None else registry.paths_of(exemplar.key)
    for path in (os.fsencode(exemplar.path), *others):
        try:
            content = read_content(path)
        except ImageReadError:
            continue
        if exemplar.key in (None, ImageKey.of(content)):
            return decode_image(content, path)
    raise ImageReadError(
        exemplar.path,
        f"is not there as it was when it was given as an exemplar of interest {interest.phrase!r}, and no "
        f"other file is known to hold that image; `texcat interest add {interest.phrase!r} --image …` again",
    )
