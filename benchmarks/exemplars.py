"""Do interests that images show light up as well as words do?

    python benchmarks/exemplars.py [--encoder builtin] [--data FOLDER]

For each category that at least five of the photos show, the photos are put in a random order. From the first
half come exemplars: the largest box of the category in each of 1, 3, 5 or all photos. The other half is asked
for the category, and the maps, 32x32, are scored as in `quality.py`: pointing, small targets, recall@200.

Maps come from the words (the category's name), from the exemplars, and from both, as the package makes them;
beside them stand other directions that exemplars could have, and a map that knows nothing of the category:

- difference: ``u - m``, of exemplars and corpus
- whitened: the linear discriminant ``(S + tr(S) / dim)^-1 (u - m)``, S the covariance of patch features
  (Hariharan et al. 2012, "Discriminative decorrelation for clustering and classification")
- own photos: the exemplars' whole photos in place of the corpus
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import _report
import numpy as np
from numpy.typing import NDArray
from quality import SHARED, Score, Truth, shown, summary
from texcat.catalogue.grid import grid_channels, resize_plane
from texcat.catalogue.types import GRID, Box
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.indexer.encoders.tensors import encode_squares, phrase_vectors
from texcat.indexer.exemplars import SAMPLE_IMAGES, box_mean, exemplar_direction, join_words
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.retrieval.labelled import Boxes, read_targets

MIN_PHOTOS = 5
NUMBERS = (1, 3, 5, None)
"""How many photos exemplars come from; None is all of the first half."""

SEED = 0

Floats = NDArray[np.float32]


def main() -> None:
    """Measure one encoder, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, default=SHARED / "coco313", help="photos with boxes")
    given = parser.parse_args()
    encoder = load_encoder(given.encoder, given.device)
    photos = read_photos(encoder, given.data)
    tasks = make_tasks(photos)
    corpus = Corpus.of(photos)
    words = phrase_vectors(encoder, dict(enumerate(tasks)))

    figures: dict[str, dict[str, dict[str, float | None]]] = {}
    for number in NUMBERS:
        scores: dict[str, list[Score]] = defaultdict(list)
        for task, vectors in zip(tasks.values(), words.values(), strict=True):
            for name, direction in directions(task, number, corpus, vectors.direction).items():
                scores[name] += [score(photo, task.category, direction) for photo in task.asked]
            scores["centre prior"] += [centre_score(photo, task.category) for photo in task.asked]
        figures[str(number or "half")] = {name: summary(each) for name, each in scores.items()}
    pairs = sum(len(task.asked) for task in tasks.values())
    lines = [
        f"Encoder `{encoder.fingerprint}` on {encoder.device}; {given.data.name}: {len(tasks)} categories, "
        f"{pairs} pairs of photo and category.",
        "",
        "| photos with an exemplar | map | pointing | small | recall@200 |",
        "|---|---|---|---|---|",
    ]
    for number, each in figures.items():
        lines += [f"| {number} | {name} | {' | '.join(shown(values))} |" for name, values in each.items()]
    result: dict[str, object] = {
        "encoder": encoder.fingerprint,
        "device": encoder.device,
        "data": given.data.name,
        "categories": len(tasks),
        "pairs": pairs,
        "maps": figures,
    }
    name = "exemplars" if given.encoder == "builtin" else f"exemplars-{encoder.fingerprint}"
    _report.save(
        name if given.data.name == "coco313" else f"{name}-{given.data.name}", result, "\n".join(lines)
    )


@dataclass(frozen=True, slots=True)
class Photo:
    """Patch features of a photo, float16 [dim, rows, columns] to save memory, and its boxes by category."""

    features: NDArray[np.float16]
    boxes: Mapping[str, Boxes]


@dataclass(frozen=True, slots=True)
class Task:
    """A category, photos to take exemplars from, and photos to find it in."""

    category: str
    shown: Sequence[Photo]
    asked: Sequence[Photo]


def read_photos(encoder: DenseEncoder, folder: Path) -> list[Photo]:
    """Every photo of the folder."""
    photos = []
    for path, targets in read_targets(folder).items():
        features = encode_squares(encoder, [to_square(load_image(path).image, encoder.input_size)])[0]
        boxes = {target.category: target.boxes for target in targets}
        photos.append(Photo(features.astype(np.float16), boxes))
    return photos


def make_tasks(photos: Sequence[Photo]) -> dict[str, Task]:
    """Tasks by category, in order of their names."""
    random = np.random.default_rng(SEED)
    tasks: dict[str, Task] = {}
    for category in sorted({category for photo in photos for category in photo.boxes}):
        holding = [photo for photo in photos if category in photo.boxes]
        if len(holding) >= MIN_PHOTOS:
            mixed = [holding[place] for place in random.permutation(len(holding))]
            half = len(mixed) // 2
            tasks[category] = Task(category, mixed[:half], mixed[half:])
    return tasks


@dataclass(frozen=True, slots=True)
class Corpus:
    """Mean feature of all patches, float32 [dim]; and what multiplies a difference to whiten it."""

    mean: Floats
    whiten: Callable[[Floats], Floats]

    @classmethod
    def of(cls, photos: Sequence[Photo]) -> Corpus:
        """Corpus of as many photos as the package takes."""
        sample = photos[:: max(1, len(photos) // SAMPLE_IMAGES)]
        dim = len(sample[0].features)
        patches = np.concatenate([photo.features.reshape(dim, -1) for photo in sample], 1).astype(np.float32)
        covariance = np.cov(patches).astype(np.float64)
        shrunk = covariance + np.trace(covariance) / dim * np.eye(dim)
        return cls(patches.mean(1), lambda difference: np.linalg.solve(shrunk, difference).astype(np.float32))


def directions(task: Task, number: int | None, corpus: Corpus, words: Floats) -> dict[str, Floats]:
    """Directions of a category, by how they are made."""
    photos = task.shown[:number]
    features = [photo.features.astype(np.float32) for photo in photos]
    boxes = [largest(photo.boxes[task.category]) for photo in photos]
    means = np.stack([box_mean(each, box) for each, box in zip(features, boxes, strict=True)])
    own = np.mean([each.mean((1, 2)) for each in features], 0)
    direction = exemplar_direction(means, corpus.mean)
    difference = means.mean(0) - corpus.mean
    return {
        "words": words,
        "exemplars": direction,
        "words and exemplars": join_words(direction, words, corpus.mean),
        "exemplars, difference": difference,
        "exemplars, whitened": corpus.whiten(difference),
        "exemplars, own photos": exemplar_direction(means, own),
    }


def largest(boxes: Boxes) -> Box:
    """The largest of several boxes, within the photo."""
    left, top, right, bottom = max(boxes.clip(0, 1), key=lambda box: (box[2] - box[0]) * (box[3] - box[1]))
    return Box(float(left), float(top), float(right), float(bottom))


def score(photo: Photo, category: str, direction: Floats) -> Score:
    """Score of a direction's map of a photo."""
    plane = np.einsum("d,dij->ij", direction, photo.features.astype(np.float32))
    return Truth.of(photo.boxes[category]).score(resize_plane(plane, GRID))


def centre_score(photo: Photo, category: str) -> Score:
    """Score of the map that is highest in the middle."""
    return Truth.of(photo.boxes[category]).score(-grid_channels()["eccentricity"])


if __name__ == "__main__":
    main()
