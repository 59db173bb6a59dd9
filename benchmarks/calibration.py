"""What calibration does: photos without an interest, interests beside each other, and blends of several.

    python benchmarks/calibration.py [--encoder builtin] [--corpus FOLDER] [--data FOLDER]

The photos of one folder are the corpus that distributions are made from; those of the other are judged, and
have no part in it. Interests are the categories of the judged photos, maps are 16x16 or as the encoder has
them. A cell shows a category if more than half of its area lies in one of the category's boxes.

- without, with: photos that do not have the category, and that do; means over categories.
- AUC: a cell of any photo, under any category, that shows it against one that does not: how far one scale
  holds for all interests.
- pointing, recall: of a category that is in the photo, blended with one or two that are not, drawn at random,
  with equal weights: whether the highest cell shows the category, and the part of its boxes' area in the 50
  highest of 256 cells, which are a fifth of the image.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import _report
import numpy as np
from numpy.typing import NDArray
from quality import SHARED, Truth
from texcat.catalogue.distribution import Distribution
from texcat.catalogue.grid import resize_plane
from texcat.catalogue.types import GRID
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.indexer.encoders.tensors import encode_squares, phrase_vectors
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.indexer.statistics import SAMPLE_IMAGES
from texcat.retrieval.labelled import Target, read_targets

DRAWS = 20
PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
CONFIDENT = 0.8
"""Of a map that is brought to [0, 1]: what a reader takes for a clear find."""

Maps = NDArray[np.float32]
"""[photos, categories, side, side]."""


def main() -> None:
    """Measure one encoder, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--corpus", type=Path, default=SHARED / "coco313")
    parser.add_argument("--data", type=Path, default=SHARED / "coco128", help="photos with boxes")
    given = parser.parse_args()
    encoder = load_encoder(given.encoder, given.device)

    targets = read_targets(given.data)
    categories = sorted({target.category for each in targets.values() for target in each})
    vectors = phrase_vectors(encoder, dict(enumerate(categories)))
    directions = np.stack([vectors[i].direction for i in range(len(categories))])
    corpus = maps_of(encoder, sorted((given.corpus / "images").iterdir()), directions)
    judged = maps_of(encoder, list(targets), directions)
    cells = boxes_on_grid(list(targets.values()), categories, encoder.map_size)

    distributions = [Distribution.of(corpus[:, i], len(corpus)) for i in range(len(categories))]
    forms = readings(judged, distributions)
    result: dict[str, object] = {
        "encoder": encoder.fingerprint,
        "corpus": f"{given.corpus.name}, {len(corpus)} photos",
        "judged": f"{given.data.name}, {len(judged)} photos",
        "photos": by_presence(forms, cells),
        "forms": {name: {"auc": auc(each, cells), **blends(each, cells)} for name, each in forms.items()},
        "table": table_errors(corpus, distributions),
        "samples": sample_errors(corpus),
    }
    _report.save("calibration", result, "\n".join(lines(result)))


# --- maps --------------------------------------------------------------------------------------------------


def maps_of(encoder: DenseEncoder, photos: Sequence[Path], directions: NDArray[np.float32]) -> Maps:
    """Maps of every direction in every photo, on the grid that they are stored on."""
    maps = np.empty((len(photos), len(directions), encoder.map_size, encoder.map_size), np.float32)
    for planes, photo in zip(maps, photos, strict=True):
        (features,) = encode_squares(encoder, [to_square(load_image(photo).image, encoder.input_size)])
        similarity = np.einsum("nd,dij->nij", directions, features)
        planes[:] = [resize_plane(plane, encoder.map_size) for plane in similarity]
    return maps


def boxes_on_grid(targets: Sequence[Sequence[Target]], categories: Sequence[str], side: int) -> Maps:
    """Part of each cell that lies in the boxes of a category."""
    parts = np.zeros((len(targets), len(categories), side, side), np.float32)
    step = GRID // side
    for photo, wanted in zip(parts, targets, strict=True):
        for target in wanted:
            area = Truth.of(target.boxes).area.reshape(side, step, side, step).sum((1, 3))
            photo[categories.index(target.category)] = area * side**2
    return parts


def readings(maps: Maps, distributions: Sequence[Distribution]) -> dict[str, Maps]:
    """The ways to read a map."""
    low, high = maps.min((2, 3), keepdims=True), maps.max((2, 3), keepdims=True)
    percentile, strength = (
        np.stack([getattr(each, name)(maps[:, i]) for i, each in enumerate(distributions)], axis=1)
        for name in ("percentile", "strength")
    )
    return {
        "as the encoder gives it": maps,
        "brought to [0, 1] in each photo": (maps - low) / np.maximum(high - low, 1e-12),
        "percentile": percentile,
        "strength": strength,
    }


# --- measures ----------------------------------------------------------------------------------------------


def by_presence(forms: Mapping[str, Maps], cells: Maps) -> dict[str, list[float]]:
    """Figures of photos without and with a category: means over categories."""
    percentile, strength = forms["percentile"], forms["strength"]
    figures = {
        "area above the 95th percentile": (percentile > 0.95).mean((2, 3)),
        "area above the 99th percentile": (percentile > 0.99).mean((2, 3)),
        "highest percentile": percentile.max((2, 3)),
        "highest strength": strength.max((2, 3)),
        f"area above {CONFIDENT} of a map brought to [0, 1]": (
            forms["brought to [0, 1] in each photo"] > CONFIDENT
        ).mean((2, 3)),
        "highest value of a map brought to [0, 1]": forms["brought to [0, 1] in each photo"].max((2, 3)),
    }
    has = np.any(cells > 0, axis=(2, 3))
    return {
        name: [
            float(np.mean([each[chosen[:, i], i].mean() for i in range(each.shape[1])]))
            for chosen in (~has, has)
        ]
        for name, each in figures.items()
    }


def auc(values: Maps, cells: Maps) -> float:
    """Area under the curve of cells that show their category against all others."""
    shown = (cells > 0.5).ravel()[np.argsort(values, axis=None, kind="stable")]
    return float((np.cumsum(~shown)[shown]).mean() / (~shown).sum())


def blends(values: Maps, cells: Maps) -> dict[str, float]:
    """Pointing and recall of a category in a blend with one, and with two, that the photo does not have."""
    chance = np.random.default_rng(0)
    has, shown = (np.any(cells > part, axis=(2, 3)) for part in (0, 0.5))
    top = values.shape[-1] ** 2 * 50 // 256
    found: dict[str, float] = {}
    for others in (1, 2):
        hits: list[bool] = []
        recalls: list[float] = []
        for photo, category in np.argwhere(shown):
            truth = cells[photo, category].ravel()
            for _ in range(DRAWS):
                absent = chance.choice(np.flatnonzero(~has[photo]), others, replace=False)
                blend = (values[photo, category] + values[photo, absent].sum(0)).ravel()
                hits.append(truth[blend.argmax()] > 0.5)
                recalls.append(truth[np.argsort(-blend, kind="stable")[:top]].sum() / truth.sum())
        found[f"pointing, {others} more"] = float(np.mean(hits))
        found[f"recall, {others} more"] = float(np.mean(recalls))
    return found


def table_errors(corpus: Maps, distributions: Sequence[Distribution]) -> dict[str, list[float]]:
    """Mean and greatest error of percentiles from the table, against those of all cells."""
    exact = np.quantile(corpus, PERCENTILES, axis=(0, 2, 3)).T.astype(np.float32)
    errors = np.abs(
        [each.percentile(at) - PERCENTILES for each, at in zip(distributions, exact, strict=True)]
    )
    return {"mean": errors.mean(0).tolist(), "greatest": errors.max(0).tolist()}


def sample_errors(corpus: Maps) -> dict[str, list[float]]:
    """Root mean square error of percentiles, which comes from the choice of the sample.

    Two halves of the corpus differ by sqrt(2) times the error of one; that falls as 1 / sqrt(photos).
    """
    order = np.random.default_rng(0).permutation(len(corpus))
    half = len(corpus) // 2
    one, other = corpus[order[:half]], corpus[order[half:]]
    exact = np.quantile(other, PERCENTILES, axis=(0, 2, 3)).T.astype(np.float32)
    errors = [Distribution.of(one[:, i], half).percentile(at) - PERCENTILES for i, at in enumerate(exact)]
    measured = np.sqrt(np.square(errors).mean(0) / 2)
    return {
        f"sample of {half} photos": list(map(float, measured)),
        f"sample of {SAMPLE_IMAGES} photos, from that": [
            float(error * (half / SAMPLE_IMAGES) ** 0.5) for error in measured
        ],
    }


def lines(result: Mapping[str, object]) -> list[str]:
    """The result as Markdown."""
    photos, forms, table, samples = (result[name] for name in ("photos", "forms", "table", "samples"))
    assert isinstance(photos, dict)
    assert isinstance(forms, dict)
    assert isinstance(table, dict)
    assert isinstance(samples, dict)
    errors = {f"table, {name}": each for name, each in table.items()}
    errors |= samples
    measures = next(iter(forms.values()))
    return [
        f"Encoder `{result['encoder']}`; corpus: {result['corpus']}; judged: {result['judged']}.",
        "",
        "| of a photo | without the category | with it |",
        "|---|---|---|",
        *(f"| {name} | {without:.3f} | {having:.3f} |" for name, (without, having) in photos.items()),
        "",
        f"| reading | {' | '.join(measures)} |",
        f"|---|{'---|' * len(measures)}",
        *(f"| {name} | {' | '.join(f'{x:.3f}' for x in each.values())} |" for name, each in forms.items()),
        "",
        f"| error at percentile | {' | '.join(f'{100 * p:g}' for p in PERCENTILES)} |",
        f"|---|{'---|' * len(PERCENTILES)}",
        *(f"| {name} | {' | '.join(f'{x:.5f}' for x in each)} |" for name, each in errors.items()),
    ]


if __name__ == "__main__":
    main()
