"""A new phrase over 10,000 images: its maps from codes, against encoding the images again.

    python benchmarks/expanding.py [--data ../shared/data/coco128/images] [--photos 64] [--images 10000]

Codes, bases and maps are those of real photos, repeated under other keys to the number of images. Both ways
are timed whole, from the first record read to the last map on the disk, with the distributions that are
measured at the end, and on all cores. The encoder is loaded before: what that takes, once either way, is told
beside.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import _report
from texcat.catalogue import Catalogue, ImageKey
from texcat.indexer import index_corpus
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.indexer.expanding import expand_interest

HELD = ("dog", "bird", "mountain biking", "boat", "food on a plate")
"""Interests whose maps are there already: each new one is written beside them."""

PHRASES = ("red car", "somebody on a horse", "kitchen table", "traffic light", "umbrella")
TOGETHER = ("bus", "laptop", "zebra", "pizza", "clock")
WRITTEN_TOGETHER = 500
MOST_SECONDS = 5.0
LEAST_RATIO = 500


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/coco128/images"))
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--images", type=int, default=10_000)
    given = parser.parse_args()
    started = time.perf_counter()
    encoder = load_encoder("builtin")
    encoder.direction(PHRASES[:1])
    loading = time.perf_counter() - started
    photos = sorted(given.data.resolve().iterdir())[: given.photos]
    with tempfile.TemporaryDirectory() as folder:
        benchmark(Path(folder), photos, given.images, encoder, loading)


def benchmark(folder: Path, photos: list[Path], images: int, encoder: DenseEncoder, loading: float) -> None:
    """Make the catalogues in the empty `folder`, time both ways, and report."""
    with Catalogue.create(folder / "photos") as small:
        for phrase in HELD:
            small.add_interest(phrase)
        index_corpus(small, photos, encoder=encoder)
        with Catalogue.create(folder / "repeated") as large:
            repeat(small, large, images)
            decoding = [seconds(large, phrase, encoder=encoder) / images for phrase in PHRASES]
            present = seconds(large, PHRASES[0], encoder=encoder) / images
            together = seconds(large, *TOGETHER, encoder=encoder) / images
            code_bytes = large.store.stats().code_bytes / images
        encoding = seconds(small, PHRASES[0], encoder=encoder, exact=True) / len(photos)
    ratio = encoding / median(decoding)
    rows = [
        (
            "one phrase, s (median, worst of five)",
            f"{images * median(decoding):.2f}, {images * max(decoding):.2f}",
        ),
        ("the same, µs an image", f"{1e6 * median(decoding):.0f}"),
        ("five phrases at once, s", f"{images * together:.2f}"),
        ("a phrase whose maps are all there, s", f"{images * present:.2f}"),
        (f"encoding again ({len(photos)} photos), ms an image", f"{1e3 * encoding:.0f}"),
        (f"the same for {images:,} images, minutes", f"{images * encoding / 60:.0f}"),
        ("how many times cheaper", f"{ratio:,.0f}"),
        ("loading the encoder, once, s", f"{loading:.1f}"),
        ("bytes of a code, mean", f"{code_bytes:,.0f}"),
    ]
    result = {
        "images": images,
        "photos": len(photos),
        "decode_seconds_an_image": decoding,
        "present_seconds_an_image": present,
        "five_together_seconds_an_image": together,
        "encode_seconds_an_image": encoding,
        "ratio": ratio,
        "loading_seconds": loading,
        "code_bytes": code_bytes,
    }
    table = "\n".join([f"| {images:,} images | figure |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])
    _report.save("expanding", result, table)
    assert images * median(decoding) <= MOST_SECONDS
    assert ratio >= LEAST_RATIO


def repeat(small: Catalogue, large: Catalogue, images: int) -> None:
    """Fill `large` with the records of `small`, over and over, under `images` keys."""
    codes = dict(small.store.codes())
    records = [replace(small.store.read(key), code=code) for key, code in codes.items()]
    settings = small.settings
    large.adopt_encoder(settings.fingerprint, settings.match_low, settings.match_high)
    large.adopt_codebook(small.codebook())
    for interest in small.interests():
        large.add_interest(interest.phrase)
    for start in range(0, images, WRITTEN_TOGETHER):
        numbers = range(start, min(images, start + WRITTEN_TOGETHER))
        large.store.write(replace(records[n % len(records)], key=ImageKey.of(b"%d" % n)) for n in numbers)


def seconds(catalogue: Catalogue, *phrases: str, encoder: DenseEncoder, exact: bool = False) -> float:
    """How long it takes to expand `phrases`."""
    report = expand_interest(catalogue, phrases, exact=exact, encoder=encoder)
    assert not report.uncoded
    assert not report.skipped
    return report.seconds


if __name__ == "__main__":
    main()
