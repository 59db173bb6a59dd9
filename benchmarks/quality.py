"""Where do maps light up? Pointing game and recall on labelled photos, and search by class name.

    python benchmarks/quality.py [--encoder builtin] [--data FOLDER] [--search FOLDER | --no-search]

For each photo and each category in it, the phrase is the category's name, and the map is the one that users
get, 32x32.

- pointing (Zhang et al. 2016, "Top-down Neural Attention"): the centre of the map's highest cell lies in one
  of the category's boxes.
- small: the same, where the union of the category's boxes is under 10% of the image.
- recall@200: part of the area of the boxes' union that the 200 highest of the 1,024 cells cover, cut exactly
  at the edges of cells.
- IoU: the cells of at least ``min + CUT (max - min)`` of the map against the mask of the category, where the
  photo has one: intersection over union, mean over pairs. Masks are known to parts of a cell; pixels without
  a label count for nothing. `_masks.CUT` was chosen on coco313. Beside it stand the IoU of the cut that is
  the best for these very masks, one for all maps, and of the one that is the best for each map: ceilings
  that no rule reaches.

Beside them stand maps that know nothing of the phrase, and the map as it is stored: averaged to the encoder's
`map_size`, 8 bits. Figures are means over pairs of photo and category.

Search: 1,000 photos are ranked by the maximum, or the mean, of their maps of a class name, the first of those
in the photo's file name; recall@k is the part of the classes whose photo is among the first k.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import _report
import numpy as np
import torch
from _masks import CUT, CUTS, Mask, read_masks
from numpy.typing import NDArray
from texcat.catalogue.channels import ChannelSchema
from texcat.catalogue.derived import derived_planes
from texcat.catalogue.grid import enlarge_map, grid_channels, resize_plane
from texcat.catalogue.quantise import dequantise, quantise
from texcat.catalogue.types import GRID
from texcat.indexer.channels import base_channels
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.indexer.encoders.tensors import encode_squares, phrase_vectors
from texcat.indexer.images import WORKING_SIZE, load_image
from texcat.indexer.squares import to_square
from texcat.retrieval.labelled import Boxes, Target, covered, read_targets, union_area

BUDGET = 200
SMALL = 0.10
SHARED = Path("../shared/data")

Map = NDArray[np.float32]
Fits = dict[str, dict[str, list[NDArray[np.float64]]]]
"""By kind of mask, and of map: the IoU of each pair at each of `CUTS`."""


def main() -> None:
    """Measure one encoder, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, default=SHARED / "coco128", help="photos with boxes")
    parser.add_argument("--search", type=Path, default=SHARED / "photos1000", help="photos named by class")
    parser.add_argument("--no-search", action="store_true")
    given = parser.parse_args()
    encoder = load_encoder(given.encoder, given.device)

    started = time.perf_counter()
    targets = read_targets(given.data)
    scores, fits = measure(encoder, targets, read_masks(given.data))
    masks = {kind: mask_table(each) for kind, each in fits.items()}
    result: dict[str, object] = {
        "encoder": encoder.fingerprint,
        "device": encoder.device,
        "data": given.data.name,
        "photos": len(targets),
        "pairs": len(scores["exact map"]),
        "small_pairs": sum(score.small for score in scores["exact map"]),
        "seconds": time.perf_counter() - started,
        "maps": {name: summary(each) for name, each in scores.items()},
        "masks": masks,
    }
    lines = [
        f"Encoder `{encoder.fingerprint}` on {encoder.device}; {given.data.name}: {result['photos']} photos, "
        f"{result['pairs']} pairs of photo and category, {result['small_pairs']} of them small.",
        "",
        "| map | pointing | small | recall@200 |",
        "|---|---|---|---|",
        *(f"| {name} | {' | '.join(shown(summary(each)))} |" for name, each in scores.items()),
        "",
        f"IoU with masks, of cells in the upper {1 - CUT:.0%} of a map's range:",
        "",
        "| masks | map | IoU | best cut for all | best cut for each |",
        "|---|---|---|---|---|",
        *(
            f"| {kind} ({found['pairs']:.0f}) | {name} | {found['iou']:.3f} | {found['best']:.3f} "
            f"(at {found['best_cut']:.2f}) | {found['best_of_each']:.3f} |"
            for kind, table in masks.items()
            for name, found in table.items()
        ),
    ]
    if not given.no_search:
        found = search(encoder, given.search)
        result["search"] = found
        lines += ["", f"Search by class name in {given.search.name}:", ""]
        lines += ["| photos ranked by | recall@1 | recall@10 |", "|---|---|---|"]
        lines += [
            f"| {by} of the map | {found[by][0]:.3f} | {found[by][1]:.3f} |" for by in ("maximum", "mean")
        ]
    name = "quality" if given.encoder == "builtin" else f"quality-{encoder.fingerprint}"
    _report.save(
        name if given.data.name == "coco128" else f"{name}-{given.data.name}", result, "\n".join(lines)
    )


# --- maps --------------------------------------------------------------------------------------------------


def measure(
    encoder: DenseEncoder, targets: dict[Path, list[Target]], masks: dict[Path, list[Mask]]
) -> tuple[dict[str, list[Score]], Fits]:
    """Scores of every kind of map, over all pairs of photo and category; and how they fit masks."""
    phrases = {target.category for each in targets.values() for target in each}
    phrases |= {mask.phrase for each in masks.values() for mask in each}
    vectors = phrase_vectors(encoder, dict(enumerate(sorted(phrases))))
    directions = {phrase: vectors[i].direction for i, phrase in enumerate(sorted(phrases))}
    centre = -grid_channels()["eccentricity"]
    scores: dict[str, list[Score]] = defaultdict(list)
    fits: Fits = defaultdict(lambda: defaultdict(list))
    for path, wanted in targets.items():
        picture = load_image(path).image
        features = encode_squares(encoder, [to_square(picture, encoder.input_size)])[0]
        salient = saliency(to_square(picture, WORKING_SIZE))

        def maps(phrase: str, features: Map = features, salient: Map = salient) -> dict[str, Map]:
            exact, stored = phrase_maps(encoder, features, directions[phrase])
            return {
                "exact map": exact,
                "stored map": stored,
                "saliency alone": salient,
                "centre prior": centre,
            }

        for target in wanted:
            truth = Truth.of(target.boxes)
            for name, plane in maps(target.category).items():
                scores[name].append(truth.score(plane))
            scores["uniform grid"].append(truth.uniform())
            scores["random"].append(truth.random())
        for mask in masks.get(path, []):
            for name, plane in maps(mask.phrase).items():
                fits["things" if mask.thing else "stuff"][name].append(mask.at_cuts(plane))
    return dict(scores), fits


def mask_table(fits: Mapping[str, Sequence[NDArray[np.float64]]]) -> dict[str, dict[str, float]]:
    """Mean IoU of each kind of map: at `CUT`, at the best of `CUTS` for all maps, and for each of them."""
    table = {}
    for name, each in fits.items():
        at_cuts = np.stack(each)
        means = at_cuts.mean(0)
        table[name] = {
            "pairs": len(at_cuts),
            "iou": float(means[CUTS.index(CUT)]),
            "best": float(means.max()),
            "best_cut": CUTS[int(means.argmax())],
            "best_of_each": float(at_cuts.max(1).mean()),
        }
    return table


def phrase_maps(encoder: DenseEncoder, features: Map, direction: NDArray[np.float32]) -> tuple[Map, Map]:
    """The map of a direction, 32x32, before and after storage."""
    similarity = np.einsum("d,dij->ij", direction, features)
    stored = dequantise(quantise(resize_plane(similarity, encoder.map_size)[None]))[0]
    return resize_plane(similarity, GRID), enlarge_map(stored)


def saliency(square: NDArray[np.uint8]) -> Map:
    """The channel `saliency` of a photo, 32x32."""
    schema = ChannelSchema.parse("saliency")
    (planes,) = base_channels(torch.from_numpy(square).permute(2, 0, 1)[None], None, schema).numpy()
    return derived_planes(dict(zip(schema.stored.names, planes, strict=True)))["saliency"]


# --- measures ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """What one map got for one target. `hit` is 0 or 1, or an expected value; None where there is no peak."""

    hit: float | None
    recall: float
    small: bool


@dataclass(frozen=True, slots=True)
class Truth:
    """A target on the grid: whether each cell's centre is in a box, and the boxes' area in each cell."""

    inside: NDArray[np.bool_]
    area: NDArray[np.float64]

    @classmethod
    def of(cls, boxes: Boxes) -> Truth:
        """Grid of the union of `boxes`."""
        centres = (np.arange(GRID) + 0.5) / GRID
        return cls(covered(boxes, centres, centres), union_area(boxes))

    @property
    def small(self) -> bool:
        """Whether the union of the boxes is a small part of the image."""
        return bool(self.area.sum() < SMALL)

    def score(self, plane: Map) -> Score:
        """Score of a map."""
        best = np.argsort(-plane, axis=None, kind="stable")[:BUDGET]
        return Score(float(self.inside.flat[best[0]]), self.recall(best), self.small)

    def uniform(self) -> Score:
        """Score of 200 cells spread evenly: 10 rows of 20, their distance as even as whole cells allow."""
        rows = (np.arange(10) + 0.5) * GRID / 10
        columns = (np.arange(20) + 0.5) * GRID / 20
        cells = rows.astype(int)[:, None] * GRID + columns.astype(int)
        return Score(None, self.recall(cells.ravel()), self.small)

    def random(self) -> Score:
        """Expected score of cells in a random order."""
        return Score(float(self.inside.mean()), BUDGET / GRID**2, self.small)

    def recall(self, cells: NDArray[np.intp]) -> float:
        """Part of the boxes' area that lies in `cells`."""
        return float(self.area.flat[cells].sum() / self.area.sum())


def summary(scores: Sequence[Score]) -> dict[str, float | None]:
    """Means over all scores, and over the small targets."""
    return {
        "pointing": mean([score.hit for score in scores]),
        "small": mean([score.hit for score in scores if score.small]),
        "recall": mean([score.recall for score in scores]),
    }


def mean(values: Sequence[float | None]) -> float | None:
    """Mean, or None where there is no value."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def shown(figures: dict[str, float | None]) -> list[str]:
    """Cells of a table."""
    return ["-" if value is None else f"{value:.3f}" for value in figures.values()]


# --- search ------------------------------------------------------------------------------------------------


def search(encoder: DenseEncoder, folder: Path) -> dict[str, tuple[float, float]]:
    """Recall of text-to-photo search: each photo's class name must find that photo among all of them."""
    photos = sorted(folder.glob("*.JPEG"))
    names = [photo.stem.partition("_")[2].replace("_", " ") for photo in photos]
    vectors = phrase_vectors(encoder, dict(enumerate(names)))
    directions = np.stack([vectors[i].direction for i in range(len(names))])
    maxima, means = (np.empty((len(names), len(photos)), np.float32) for _ in range(2))
    for j, photo in enumerate(photos):
        square = to_square(load_image(photo).image, encoder.input_size)
        maps = directions @ encode_squares(encoder, [square])[0].reshape(encoder.dim, -1)
        maxima[:, j], means[:, j] = maps.max(1), maps.mean(1)
    return {"maximum": recalls(maxima), "mean": recalls(means)}


def recalls(scores: NDArray[np.float32]) -> tuple[float, float]:
    """recall@1 and recall@10 where photo i is the one that phrase i asks for."""
    rank = (scores > np.diagonal(scores)[:, None]).sum(1)
    return float((rank < 1).mean()), float((rank < 10).mean())


if __name__ == "__main__":
    main()
