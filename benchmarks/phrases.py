"""What is made of phrases with colours, several nouns and negation, and which phrases are placed at all.

    python benchmarks/phrases.py [--data FOLDER]

For the builtin encoder. Everything was chosen on coco313; the figures to quote are those of coco128. "As one
text" is the phrase given to the text network as it is written, without being taken apart.

- colour: photos with at least two boxes of a category, of different colours; the phrase names both. A box
  has the colour that most pixels of its middle (0.6 of its width and height) have, by fixed bounds of hue,
  saturation and value, if two in five do. Asked for are the boxes of that colour.
- two things: "X and Y", both in the photo. Pointing in either; recall@200 of the one that is covered less.
- without: "X without Y", both in the photo. Pointing in X and in Y; recall@200 of X and Y.
- plurals: cosine of the directions of a category's name and its plural.
- placing: share of each list whose direction is not 0. No word was looked at when the bound was chosen.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import _report
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from quality import BUDGET, SHARED, Map, Truth
from skimage.color import rgb2hsv
from texcat.indexer.encoders.builtin import BuiltinEncoder
from texcat.indexer.encoders.tensors import encode_squares
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.retrieval.labelled import Boxes, Target, read_targets
from torch.nn.functional import cosine_similarity

PAIRS_A_PHOTO = 3
SIDE = 64

PLACED = (
    "lighthouse, ladder, candle, pumpkin, bridge, tractor, violin, castle, guitar, sunflower, mushroom, "
    "canoe, helicopter, butterfly, strawberry, staircase, fountain, typewriter, barn, windmill, sofa, tent, "
    "statue, helmet, lemon, squirrel, penguin, dolphin, sailboat, balloon, basket, bucket, hammer, jacket, "
    "boots, sunglasses, necklace, piano, drum, camera, lamp, pillow, blanket, kettle, spoon, teapot, swing, "
    "stroller, icicle, glacier, cliff, beach, island, volcano, cactus, palm, orchid, tulip, curtain, trumpet"
)
NOT_PLACED = {
    "gibberish": "xqzt vlorp, mmkrt, bzzghl qwop, tklmn, grufnik zorb, lkjhg, pqowie, snorgle blat, vqrtk",
    "emoji, other scripts": "🌳, 🚌, 🦒 🌿, 猫, 汽车, дом, велосипед, شجرة, δέντρο, 나무, पेड़, ต้นไม้",
    "abstract": "wisdom, liberty, honesty, capitalism, jealousy, relevance, tuesday, syntax, ethics, "
    "tomorrow, loyalty, budget, opinion, fame, mathematics, virtue, paradox, credibility",
    "German, French, Spanish": "tisch, vogel, kirche, löffel, schmetterling, oiseau, église, cuillère, "
    "papillon, fenêtre, pájaro, iglesia, cuchara, mariposa, ventana, rotes fahrrad, vélo rouge, "
    "bicicleta roja",
}


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=SHARED / "coco128")
    given = parser.parse_args()
    encoder = BuiltinEncoder()
    measured = measure(encoder, read_targets(given.data))
    placing = {"nouns": placed(encoder, PLACED)}
    placing |= {kind: placed(encoder, phrases) for kind, phrases in NOT_PLACED.items()}
    names = sorted({target.category for each in read_targets(given.data).values() for target in each})
    likeness = plurals(encoder, names)
    lines = [f"Encoder `{encoder.fingerprint}`; {given.data.name}.", ""]
    for kind, columns in COLUMNS.items():
        lines += [f"| {kind} ({len(measured[kind]['taken apart'])}) | {' | '.join(columns)} |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        for way, rows in measured[kind].items():
            lines.append(f"| {way} | {' | '.join(f'{value:.3f}' for value in np.mean(rows, 0))} |")
        lines.append("")
    lines += ["| phrases | placed |", "|---|---|"]
    lines += [f"| {kind} | {share:.2f} |" for kind, share in placing.items()]
    lines += ["", f"Plurals: cosine {np.mean(likeness):.3f}, least {min(likeness):.3f}."]
    result = {
        "encoder": encoder.fingerprint,
        "data": given.data.name,
        "measured": {
            kind: {
                way: dict(zip(COLUMNS[kind], map(float, np.mean(rows, 0)), strict=True))
                for way, rows in ways.items()
            }
            for kind, ways in measured.items()
        },
        "placed": placing,
        "plurals": [float(np.mean(likeness)), min(likeness)],
    }
    name = "phrases" if given.data.name == "coco128" else f"phrases-{given.data.name}"
    _report.save(name, result, "\n".join(lines))


COLUMNS = {
    "colour": ("in a box asked for", "in another", "recall asked for", "recall of others"),
    "two things": ("in either", "recall of the lesser"),
    "without": ("in X", "in Y", "recall of X", "recall of Y"),
}
Rows = dict[str, list[tuple[float, ...]]]


def measure(encoder: BuiltinEncoder, targets: dict[Path, list[Target]]) -> dict[str, Rows]:
    """Figures of each phrase, by kind of phrase and way of reading it, in the order of `COLUMNS`."""
    rng = np.random.default_rng(0)
    measured: dict[str, Rows] = {kind: defaultdict(list) for kind in COLUMNS}
    for path, wanted in targets.items():
        picture = load_image(path).image
        features = encode_squares(encoder, [to_square(picture, encoder.input_size)])[0]
        maps = Maps(encoder, features)
        names = colour_names(picture)
        for target in wanted:
            for colour, asked, others in by_colour(target, names):
                phrase = f"{colour} {target.category}"
                for way, plane in maps.ways(phrase, "category alone", target.category):
                    measured["colour"][way].append(peak_and_recall(plane, Truth.of(asked), Truth.of(others)))
        pairs = list(combinations(wanted, 2))
        for i in rng.permutation(len(pairs))[:PAIRS_A_PHOTO]:
            one, two = pairs[i]
            first, second = Truth.of(one.boxes), Truth.of(two.boxes)
            for way, plane in maps.ways(f"{one.category} and {two.category}"):
                cells = highest(plane)
                hit = first.inside.flat[cells[0]] | second.inside.flat[cells[0]]
                lesser = min(first.recall(cells), second.recall(cells))
                measured["two things"][way].append((float(hit), lesser))
            for way, plane in maps.ways(f"{one.category} without {two.category}", "X alone", one.category):
                measured["without"][way].append(peak_and_recall(plane, first, second))
    return measured


class Maps:
    """Maps of phrases in one photo."""

    def __init__(self, encoder: BuiltinEncoder, features: Map) -> None:
        self._encoder, self._features = encoder, features

    def ways(self, phrase: str, alone: str = "", word: str = "") -> list[tuple[str, Map]]:
        """(way, map) of a phrase as one text, taken apart, and of a `word` alone."""
        ways = [("as one text", self._encoder.noun_direction(phrase))]
        ways.append(("taken apart", self._encoder.direction([phrase])[0]))
        if alone:
            ways.append((alone, self._encoder.direction([word])[0]))
        return [(way, np.einsum("d,dij->ij", d.cpu().numpy(), self._features)) for way, d in ways]


def peak_and_recall(plane: Map, asked: Truth, others: Truth) -> tuple[float, ...]:
    """Whether the peak is in what is asked for, and in the others; recall@200 of both."""
    cells = highest(plane)
    hits = (float(truth.inside.flat[cells[0]]) for truth in (asked, others))
    return (*hits, asked.recall(cells), others.recall(cells))


def highest(plane: Map) -> NDArray[np.intp]:
    """The 200 highest cells, the highest first."""
    return np.argsort(-plane, axis=None, kind="stable")[:BUDGET]


def colour_names(picture: Image.Image) -> NDArray[np.str_]:
    """Colour of each of 64 x 64 pixels, by bounds that have nothing to do with the encoder's prototypes."""
    small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
    hue, saturation, value = np.moveaxis(rgb2hsv(np.asarray(small) / 255.0), -1, 0)
    hue = hue * 360
    plain = (saturation < 0.18) | (value < 0.18)
    brown = (hue >= 10) & (hue < 45) & ((value < 0.6) | (saturation < 0.5))
    red = (hue < 15) | (hue >= 345)
    rules = [
        (plain & (value < 0.25), "black"),
        (plain & (value < 0.75), "grey"),
        (plain, "white"),
        (red & (saturation < 0.5) & (value > 0.7), "pink"),
        (brown, "brown"),
        (red, "red"),
        (hue < 42, "orange"),
        (hue < 68, "yellow"),
        (hue < 165, "green"),
        (hue < 255, "blue"),
        (hue < 300, "purple"),
    ]
    return np.select([rule for rule, _ in rules], [name for _, name in rules], "pink")


def by_colour(target: Target, names: NDArray[np.str_]) -> list[tuple[str, Boxes, Boxes]]:
    """(colour, boxes that have it, the others), if the boxes have at least two colours."""
    colours = []
    for left, top, right, bottom in target.boxes:
        width, height = right - left, bottom - top
        x, y = int((left + 0.2 * width) * SIDE), int((top + 0.2 * height) * SIDE)
        x_end = max(int((right - 0.2 * width) * SIDE), x + 1)
        y_end = max(int((bottom - 0.2 * height) * SIDE), y + 1)
        found, counts = np.unique(names[y:y_end, x:x_end], return_counts=True)
        clear = len(counts) and width * height >= 0.002 and counts.max() > 0.4 * counts.sum()
        colours.append(str(found[counts.argmax()]) if clear else "")
    named = sorted(set(colours) - {""})
    if len(named) < 2:
        return []
    of = np.array(colours)
    return [(colour, target.boxes[of == colour], target.boxes[of != colour]) for colour in named]


def placed(encoder: BuiltinEncoder, phrases: str) -> float:
    """Share of `phrases`, parted by commas, that the encoder places."""
    return float(encoder.direction(phrases.split(", ")).any(1).float().mean())


def plurals(encoder: BuiltinEncoder, names: Sequence[str]) -> list[float]:
    """Cosine of the directions of each name and its plural, made by the rules of spelling."""
    irregular = {"person": "people", "sheep": "sheep", "mouse": "mice", "knife": "knives"}
    names = [name for name in names if not name.endswith("s") or name == "bus"]
    many = [
        irregular.get(name, name + ("es" if name.endswith(("s", "sh", "ch", "x")) else "s")) for name in names
    ]
    one, more = encoder.direction(names), encoder.direction(many)
    return [float(value) for value in cosine_similarity(one, more)]  # 0 where one of them is not placed


if __name__ == "__main__":
    main()
