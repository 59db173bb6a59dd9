"""Which positions are kept: every balancer and every allocator, by how much of what was asked for they cover.

    python benchmarks/allocation.py [--train FOLDER] [--data FOLDER] [--work FOLDER] [--seed N] [--write]

Balancers are trained on the photos of one folder, chosen on those of them that are held out, and measured on
the other folder, once. The builtin encoder's own directions were fitted to coco313, so that its maps there
are better than on any other photo. A balancer that learned from those would trust them too much: its maps
come from directions that were fitted to the other four fifths of the photos, as in `fit_builtin`.

An example is a photo and a category that it shows; the catalogue's interests are the categories. *Recall* is
the part of the area of the category's boxes (or of its mask) that lies in the kept positions.

- similarity alone: the participatory score; look-up: `Lookup.relevance`, 0.8 presence + 0.1 edges + 0.1
  saliency; saliency alone, the centre, an even grid, and chance
- best choice: the positions with the most area, which no choice of as many can exceed
- fitted to the judged photos: a tension balancer trained on the very photos that it is measured on: more
  than any like it may expect of photos that it has not seen
- budgets gives regions of 8 x 8 positions 64 to 400 tokens each, so that at these budgets it keeps whole
  regions: few of them, and their every token
- overlap: of three questions about one photo, the part of 200 kept positions that two choices share
- costs: of one choice of 200 of 1,024 positions; where a machine is shared, the least of 200 runs counts

With --write the chosen balancers replace those that texcat ships. --work keeps the catalogues.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import get_args

import _report
import numpy as np
import torch
from _masks import read_masks
from fit_builtin import FOLDS, Moments, cover, encode, moments
from numpy.typing import NDArray
from quality import SHARED, Truth
from texcat.catalogue import Catalogue
from texcat.indexer import index_corpus
from texcat.indexer.encoders.builtin import BuiltinEncoder
from texcat.indexer.encoders.fitted import FittedDirections, fit_directions
from texcat.retrieval import ALLOCATORS, Retriever
from texcat.retrieval.attending import allocator
from texcat.retrieval.balancing import SHIPPED, Balancer, Kind
from texcat.retrieval.cells import Cells
from texcat.retrieval.evidence import PLANES, evidence
from texcat.retrieval.examples import Examples, collect, index_examples, recall
from texcat.retrieval.knowing import know
from texcat.retrieval.labelled import Target, read_targets
from texcat.retrieval.naming import named_matches
from texcat.retrieval.training import BUDGETS, MAIN_BUDGET, Loss, Options, hold_out, train

Floats = NDArray[np.float32]


def main() -> None:
    """Train, choose, measure, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", type=Path, default=SHARED / "coco313", help="photos with boxes")
    parser.add_argument("--data", type=Path, default=SHARED / "coco128", help="photos to measure on")
    parser.add_argument(
        "--work", type=Path, help="where catalogues are kept; a temporary folder if not given"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="replace the balancers that texcat ships")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        encoder = BuiltinEncoder(given.device)
        learned = cross_fitted(encoder, given.train, work)
        chosen, trials = choose(learned, encoder.fingerprint, given.seed)
        if given.write:
            for kind, balancer in chosen.items():
                balancer.save(SHIPPED[kind])
        with catalogue(work / given.data.name) as opened:
            judged = index_examples(opened, given.data, encoder=encoder)
            result = {
                "train": given.train.name,
                "data": given.data.name,
                "examples": len(judged),
                "trials": trials,
                "best": {kind: dict(balancer.about) for kind, balancer in chosen.items()},
                **measure(opened, given.data, judged, chosen, given.seed),
            }
    _report.save("allocation", result, "\n".join(lines(result)))


# --- training ----------------------------------------------------------------------------------------------


def cross_fitted(encoder: BuiltinEncoder, data: Path, work: Path) -> Examples:
    """Examples of photos whose maps are made by directions that were fitted to the others."""
    targets = read_targets(data)
    photos = list(targets)
    phrases = tuple(sorted({target.category for wanted in targets.values() for target in wanted}))
    fold_of = torch.randperm(len(photos), generator=torch.Generator().manual_seed(0)) % FOLDS
    folds = [[photos[i] for i in np.flatnonzero(fold_of == fold)] for fold in range(FOLDS)]
    paths = [work / f"{data.name}-{fold}" for fold in range(FOLDS)]
    if not all(path.exists() for path in paths):
        encoders = refitted(encoder, targets, phrases, fold_of)
        for path, part, own in zip(paths, folds, encoders, strict=True):
            with catalogue(path) as opened:
                for phrase in phrases:
                    opened.add_interest(phrase)
                index_corpus(opened, [str(photo) for photo in part], encoder=own, codes=False)
    parts = []
    for path, part in zip(paths, folds, strict=True):
        with Catalogue.open(path) as opened:
            parts.append(collect(Retriever(opened, compute=False), {photo: targets[photo] for photo in part}))
    numbers = [part.photos + 10_000 * fold for fold, part in enumerate(parts)]
    return Examples(
        np.concatenate([part.planes for part in parts]),
        np.concatenate([part.asked for part in parts]),
        np.concatenate([part.area for part in parts]),
        np.concatenate(numbers),
        tuple(name for part in parts for name in part.categories),
    )


def refitted(
    encoder: BuiltinEncoder,
    targets: Mapping[Path, list[Target]],
    phrases: tuple[str, ...],
    fold_of: torch.Tensor,
) -> list[BuiltinEncoder]:
    """For each fold, the encoder with directions that are fitted to the photos of the other folds."""
    features = encode(encoder, list(targets))
    number = {phrase: index for index, phrase in enumerate(phrases)}
    pairs = [
        (photo, number[target.category], Truth.of(target.boxes))
        for photo, wanted in enumerate(targets.values())
        for target in wanted
    ]
    coverage = cover(pairs, len(features), len(phrases))
    parts = [moments(features, coverage, np.flatnonzero(fold_of == fold).tolist()) for fold in range(FOLDS)]
    texts, guessed = encoder.text(phrases).cpu(), encoder.guess(phrases).cpu()
    made = []
    for fold in range(FOLDS):
        directions = fit_directions(Moments.total(parts[:fold] + parts[fold + 1 :]), guessed)
        own = copy.copy(encoder)
        own._fitted = FittedDirections(phrases, texts, directions).to(torch.device(encoder.device))
        own.fingerprint = f"{encoder.fingerprint}-without-{fold}"
        made.append(own)
    return made


def choose(
    examples: Examples, fingerprint: str, seed: int
) -> tuple[dict[Kind, Balancer], list[dict[str, object]]]:
    """The better loss for each kind, by recall at 200 on the photos held out; and all that was tried."""
    held = hold_out(examples.photos, Options().held, seed)
    chosen: dict[Kind, Balancer] = {}
    trials: list[dict[str, object]] = []
    for kind in get_args(Kind):
        best = -1.0
        for loss in get_args(Loss):
            started = time.perf_counter()
            found = train(examples, fingerprint, Options(kind, loss, seed), held=held)
            trials.append(
                {
                    "kind": kind,
                    "loss": loss,
                    "epochs": len(found.epochs),
                    "best": found.best,
                    "seconds": time.perf_counter() - started,
                    "held_photos": found.held_photos,
                    "recalls": found.recalls,
                }
            )
            print(kind, loss, {k: each["balancer"] for k, each in found.recalls.items()}, flush=True)
            if found.recalls[MAIN_BUDGET]["balancer"] > best:
                best, chosen[kind] = found.recalls[MAIN_BUDGET]["balancer"], found.balancer
    return chosen, trials


# --- measuring ---------------------------------------------------------------------------------------------


def measure(
    opened: Catalogue, data: Path, judged: Examples, balancers: Mapping[Kind, Balancer], seed: int
) -> dict[str, object]:
    """All figures on the judged photos."""
    relevances = {
        "similarity alone": plane(judged, "participatory"),
        "look-up": looked_up(opened, data),
        **{kind: applied(balancer, judged) for kind, balancer in balancers.items()},
        "saliency alone": plane(judged, "perspectival") * 0 + saliency(opened, data),
        "centre": plane(judged, "middle"),
        "even grid": np.stack([even_grid(budget) for budget in BUDGETS]),
        "fitted to the judged photos": in_sample(judged, seed),
        "best choice": judged.area,
    }
    masks, masked = mask_areas(data, judged)
    table, mask_table = {}, {}
    for name, values in relevances.items():
        each = {
            budget: np.broadcast_to(values[place], judged.area.shape) if name == "even grid" else values
            for place, budget in enumerate(BUDGETS)
        }
        table[name] = [float(recall(each[budget], judged.area, budget).mean()) for budget in BUDGETS]
        own = {budget: masks if name == "best choice" else each[budget][masked] for budget in BUDGETS}
        mask_table[name] = [float(recall(own[budget], masks, budget).mean()) for budget in BUDGETS]
    table["chance"] = mask_table["chance"] = [budget / 1024 for budget in BUDGETS]
    read = {name: relevances[name] for name in ("similarity alone", "look-up", "tension")}
    return {
        "recall": table,
        "mask_examples": int(masked.sum()),
        "mask_recall": mask_table,
        "allocators": {
            strategy: {name: spent(strategy, values, judged.area) for name, values in read.items()}
            for strategy in ALLOCATORS
        },
        "by_size": by_size(judged, read),
        "overlap": {name: overlap(values, judged.photos) for name, values in read.items()},
        "costs_ms": costs(opened, data, judged, relevances["tension"], balancers),
    }


def plane(examples: Examples, name: str) -> Floats:
    """One plane of the evidence: [E, N]."""
    return examples.planes[:, PLANES.index(name)]


def applied(balancer: Balancer, examples: Examples) -> Floats:
    """Relevance of each example."""
    return np.stack([balancer.apply(*pair)[0] for pair in zip(examples.planes, examples.asked, strict=True)])


def hits(opened: Catalogue, data: Path, take: Callable[..., Floats]) -> Floats:
    """Something of the look-up of each example, in their order."""
    with Retriever(opened, compute=False, observe=False) as retriever:
        return np.stack(
            [
                take(retriever.lookup(path, matches=named_matches(opened, [target.category]))).ravel()
                for path, wanted in read_targets(data).items()
                for target in wanted
                if target.area().sum() > 0
            ]
        )


def looked_up(opened: Catalogue, data: Path) -> Floats:
    """Relevance of each look-up."""
    return hits(opened, data, lambda hit: hit.relevance)


def saliency(opened: Catalogue, data: Path) -> Floats:
    """The channel of each look-up."""
    return hits(opened, data, lambda hit: hit.channel("saliency"))


def even_grid(budget: int) -> Floats:
    """1 at `budget` positions that are spread evenly, 0 elsewhere."""
    rows = round(budget**0.5)
    chosen = np.zeros((32, 32), np.float32)
    for row in range(rows):
        count = budget * (row + 1) // rows - budget * row // rows
        columns = ((np.arange(count) + 0.5) * 32 / count).astype(int)
        chosen[int((row + 0.5) * 32 / rows), columns] = 1
    return chosen.ravel()


def in_sample(judged: Examples, seed: int) -> Floats:
    """Relevance by a tension balancer that learned from the same examples."""
    twice = Examples(
        *(np.concatenate([each, each]) for each in (judged.planes, judged.asked, judged.area)),
        np.concatenate([judged.photos, judged.photos]),
        judged.categories * 2,
    )
    held = np.arange(len(twice)) >= len(judged)
    options = Options("tension", "cells", seed, epochs=60, patience=60, dropout=0.0, decay=0.0)
    return applied(train(twice, "none", options, held=held).balancer, judged)


def mask_areas(data: Path, judged: Examples) -> tuple[Floats, NDArray[np.bool_]]:
    """Area of the mask of each example that has one; and which have."""
    found = read_masks(data)
    areas, masked = [], []
    for path, wanted in read_targets(data).items():
        of = {
            mask.phrase: mask.inside for mask in found.get(path, []) if mask.thing and mask.inside.sum() > 0
        }
        for target in wanted:
            if target.area().sum() > 0:
                masked.append(target.category in of)
                if masked[-1]:
                    areas.append(of[target.category].ravel())
    assert len(masked) == len(judged)
    return np.stack(areas), np.array(masked)


def spent(strategy: str, relevances: Floats, areas: Floats) -> list[float]:
    """Mean recall of an allocator at each budget."""
    recalls = []
    for budget in BUDGETS:
        found = []
        for values, area in zip(relevances, areas, strict=True):
            kept = allocator(strategy).allocate(values.reshape(32, 32), budget)
            places, _ = Cells.of(kept, (32, 32)).members()
            found.append(area[places].sum() / area.sum())
        recalls.append(float(np.mean(found)))
    return recalls


def by_size(judged: Examples, relevances: Mapping[str, Floats]) -> dict[str, dict[str, float]]:
    """Recall at 200 by the cells that the boxes fill."""
    cells = judged.area.sum(1) * 1024
    table: dict[str, dict[str, float]] = {}
    for low, high in ((0, 10), (10, 50), (50, 200), (200, 500), (500, 1025)):
        inside = (cells >= low) & (cells < high)
        each = {**relevances, "best choice": judged.area}
        table[f"{low} to {high - 1}"] = {
            "examples": float(inside.sum()),
            **{
                name: float(recall(values[inside], judged.area[inside], MAIN_BUDGET).mean())
                for name, values in each.items()
            },
        }
    return table


def overlap(relevances: Floats, photos: NDArray[np.int64]) -> dict[str, float]:
    """Mean part of 200 positions that two of the first three questions about a photo share."""
    shared, counted = [], 0
    for photo in np.unique(photos):
        three = np.flatnonzero(photos == photo)[:3]
        if len(three) == 3:
            counted += 1
            kept = [set(np.argsort(-relevances[i], kind="stable")[:MAIN_BUDGET].tolist()) for i in three]
            shared += [len(one & other) / MAIN_BUDGET for one, other in combinations(kept, 2)]
    return {"photos": counted, "overlap": float(np.mean(shared))}


def costs(
    opened: Catalogue, data: Path, judged: Examples, relevances: Floats, balancers: Mapping[Kind, Balancer]
) -> dict[str, list[float]]:
    """Milliseconds, median and least, of each allocator, and of what a balancer takes before it."""

    def timed(run: Callable[[int], object], times: int = 200) -> list[float]:
        run(0)
        taken = []
        for number in range(times):
            started = time.perf_counter()
            run(number % len(judged))
            taken.append(1e3 * (time.perf_counter() - started))
        return [median(taken), min(taken)]

    def choosing(strategy: str) -> Callable[[int], object]:
        chosen = allocator(strategy)
        return lambda number: chosen.allocate(relevances[number].reshape(32, 32), MAIN_BUDGET)

    path, wanted = next((path, wanted) for path, wanted in read_targets(data).items() if wanted)
    with Retriever(opened, compute=False, observe=False) as retriever:
        hit = retriever.lookup(path, matches=named_matches(opened, [wanted[0].category]))
        asked = retriever.asked(hit)
    scores = know(hit)
    return {
        **{strategy: timed(choosing(strategy)) for strategy in ALLOCATORS},
        "three scores": timed(lambda number: know(hit)),
        "evidence": timed(lambda number: evidence(hit, scores)),
        **{
            f"{kind} balancer": timed(lambda number, b=balancer: b.apply(judged.planes[number], asked))
            for kind, balancer in balancers.items()
        },
    }


def catalogue(path: Path) -> Catalogue:
    """A new one, or one of an earlier run."""
    return Catalogue.open(path, "w") if path.exists() else Catalogue.create(path)


def lines(result: dict[str, object]) -> list[str]:
    """The report."""
    head = "| " + " | ".join(["", *(str(budget) for budget in BUDGETS)]) + " |"
    rule = "|---" * (len(BUDGETS) + 1) + "|"

    def rows(table: Mapping[str, list[float]]) -> list[str]:
        return [
            f"| {name} | {' | '.join(f'{each:.3f}' for each in values)} |" for name, values in table.items()
        ]

    trials, recalls, sizes = result["trials"], result["recall"], result["by_size"]
    assert isinstance(trials, list)
    assert isinstance(recalls, dict)
    assert isinstance(sizes, dict)
    assert isinstance(result["mask_recall"], dict)
    assert isinstance(result["allocators"], dict)
    assert isinstance(result["overlap"], dict)
    assert isinstance(result["costs_ms"], dict)
    gain = recalls["tension"][BUDGETS.index(MAIN_BUDGET)] - recalls["similarity alone"][2]
    return [
        f"Trained on {result['train']} (maps of directions fitted to the other four folds), chosen on "
        f"{trials[0]['held_photos']} of its photos that were held out; measured on {result['data']}, "
        f"{result['examples']} pairs of photo and category.",
        "",
        "Held-out photos of the training folder, recall at each budget of 1,024:",
        "",
        head,
        rule,
        *rows(
            {
                f"{each['kind']}, loss {each['loss']} ({each['seconds']:.0f} s)": [
                    each["recalls"][budget]["balancer"] for budget in BUDGETS
                ]
                for each in trials
            }
        ),
        *rows(
            {
                name: [trials[0]["recalls"][budget][key] for budget in BUDGETS]
                for name, key in (("similarity alone", "participatory"), ("best choice", "best"))
            }
        ),
        "",
        f"{result['data']}, boxes, `topk`. The tension balancer at 200: {100 * gain:+.1f} points on "
        "similarity alone.",
        "",
        head,
        rule,
        *rows(recalls),
        "",
        f"The same, masks of things ({result['mask_examples']} pairs):",
        "",
        head,
        rule,
        *rows(result["mask_recall"]),
        "",
        "Allocators, boxes:",
        "",
        head,
        rule,
        *rows(
            {
                f"{strategy}, {name}": values
                for strategy, each in result["allocators"].items()
                for name, values in each.items()
            }
        ),
        "",
        "By the size of the boxes in cells, recall at 200:",
        "",
        "| cells | " + " | ".join(next(iter(sizes.values()))) + " |",
        "|---" * 6 + "|",
        *(
            f"| {size} | {each['examples']:.0f} | "
            + " | ".join(f"{value:.3f}" for name, value in each.items() if name != "examples")
            + " |"
            for size, each in sizes.items()
        ),
        "",
        "Three questions about one photo, part of 200 positions that two of them share: "
        + ", ".join(
            f"{name} {each['overlap']:.2f} ({each['photos']:.0f} photos)"
            for name, each in result["overlap"].items()
        )
        + ".",
        "",
        "| | ms, median | least |",
        "|---|---|---|",
        *(f"| {name} | {middle:.2f} | {least:.2f} |" for name, (middle, least) in result["costs_ms"].items()),
    ]


if __name__ == "__main__":
    main()
