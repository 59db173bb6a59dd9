"""Fit the builtin encoder's directions to labelled photos, and say what the fit is worth.

    python benchmarks/fit_builtin.py [--data FOLDER] [--write]

Photos are encoded once. Directions are fitted on four fifths of the photos and scored on the last, five
times over (photos dealt out by a generator of seed 0), with each phrase's direction

- as the text alone gives it;
- with the fit, the category itself among the fitted ones;
- with the fit, but without the category: what is left for a phrase that the fit has never seen, from those
  whose names are near.

With --write, directions fitted on all photos go to the file that the encoder ships. That file depends on the
photos, the labels and the encoder alone: no number is drawn for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import _report
import numpy as np
import torch
from quality import SHARED, Score, Truth, shown, summary
from texcat.catalogue.grid import enlarge_map, resize_plane
from texcat.catalogue.types import GRID
from texcat.indexer.encoders.builtin import FEATURES, FITTED, BuiltinEncoder
from texcat.indexer.encoders.fitted import FittedDirections, Moments, fit_directions
from texcat.indexer.encoders.tensors import encode_squares
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.retrieval.labelled import read_targets
from torch import Tensor

FOLDS = 5
SIDE = 16
"""Smoothed with a sigma of two cells of 32, features lose nothing on half the grid."""

Pair = tuple[int, int, Truth]
"""Photo, category, and where it is."""


def main() -> None:
    """Fit, cross-validate, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=SHARED / "coco313", help="photos with boxes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", action="store_true", help=f"replace {FITTED.name}")
    given = parser.parse_args()
    encoder = BuiltinEncoder(given.device)

    targets = read_targets(given.data)
    phrases = tuple(sorted({target.category for wanted in targets.values() for target in wanted}))
    number = {phrase: index for index, phrase in enumerate(phrases)}
    pairs = [
        (photo, number[target.category], Truth.of(target.boxes))
        for photo, wanted in enumerate(targets.values())
        for target in wanted
    ]
    features = encode(encoder, list(targets))
    coverage = cover(pairs, len(features), len(phrases))

    fold_of = torch.randperm(len(features), generator=torch.Generator().manual_seed(0)) % FOLDS
    parts = [moments(features, coverage, np.flatnonzero(fold_of == fold).tolist()) for fold in range(FOLDS)]
    texts, guessed = encoder.text(phrases).cpu(), encoder.guess(phrases).cpu()

    def fitted(of: Moments) -> FittedDirections:
        return FittedDirections(phrases, texts, fit_directions(of, guessed))

    folds = [fitted(Moments.total(parts[:fold] + parts[fold + 1 :])) for fold in range(FOLDS)]
    directions = {
        "text alone": [guessed for _ in folds],
        "fitted": [guessed + each.added(texts) for each in folds],
        "fitted without the category": [guessed + added_by_others(each) for each in folds],
    }
    scores = {
        name: [score(features, pair, each[int(fold_of[pair[0]])]) for pair in pairs]
        for name, each in directions.items()
    }
    result: dict[str, object] = {
        "data": given.data.name,
        "photos": len(features),
        "pairs": len(pairs),
        "categories": len(phrases),
        "maps": {name: summary(each) for name, each in scores.items()},
    }
    lines = [
        f"{given.data.name}: {len(features)} photos, {len(pairs)} pairs of photo and category, "
        f"{len(phrases)} categories; scored on photos that fitted nothing, {FOLDS} folds.",
        "",
        "| direction | pointing | small | recall@200 |",
        "|---|---|---|---|",
        *(f"| {name} | {' | '.join(shown(summary(each)))} |" for name, each in scores.items()),
    ]
    _report.save("fit-builtin", result, "\n".join(lines))
    if given.write:
        fitted(Moments.total(parts)).save(FITTED)


def encode(encoder: BuiltinEncoder, photos: list[Path]) -> list[Tensor]:
    """Smoothed patch features of each photo, without its colours: float32 [1280, 16, 16]."""

    def features(photo: Path) -> Tensor:
        square = to_square(load_image(photo).image, encoder.input_size)
        return torch.from_numpy(resize_plane(encode_squares(encoder, [square])[0][:FEATURES], SIDE))

    return [features(photo) for photo in photos]


def cover(pairs: list[Pair], photos: int, categories: int) -> Tensor:
    """The part of each cell that a category's boxes cover: float32 [photos, categories, 16, 16]."""
    coverage = torch.zeros(photos, categories, SIDE, SIDE)
    for photo, category, truth in pairs:
        share = (truth.area * GRID**2).astype(np.float32)
        coverage[photo, category] = torch.from_numpy(resize_plane(share, SIDE))
    return coverage


def moments(features: list[Tensor], coverage: Tensor, photos: list[int]) -> Moments:
    """Moments of some of the photos."""
    found = Moments(coverage.shape[1], len(features[0]))
    for photo in photos:
        found.add(features[photo], coverage[photo])
    return found


def added_by_others(fitted: FittedDirections) -> Tensor:
    """What each category would get were it not among those fitted: float32 [K, dim]."""
    added = []
    for own, text in enumerate(fitted.texts):
        others = [index for index in range(len(fitted.phrases)) if index != own]
        rest = FittedDirections(
            tuple(fitted.phrases[index] for index in others),
            fitted.texts[others],
            fitted.directions[others],
        )
        added.append(rest.added(text[None])[0])
    return torch.stack(added)


def score(features: list[Tensor], pair: Pair, directions: Tensor) -> Score:
    """Score of one pair's map."""
    photo, category, truth = pair
    similarity = torch.einsum("d,dij->ij", directions[category], features[photo])
    return truth.score(enlarge_map(similarity.numpy()))


if __name__ == "__main__":
    main()
