"""What the stress scripts share: small photos, an indexing pass over them, and all that a catalogue holds."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from texcat.catalogue import Catalogue
from texcat.catalogue.memory import Memory, Mention, Observation
from texcat.indexer import expanding, index_corpus, indexing, working
from texcat.indexer.expanding import expand_interest
from texcat.indexer.working import Worker

from ..fakes import TinyEncoder

PHRASES = ("red car", "green field")
EXPANDED = ("red car", "blue sky", "green umbrella")
MISSED = ("blue boat", "red and green hills", "yellow house")
COMMIT_IMAGES = 4

Content = Mapping[str, object]


def make_photos(folder: Path, count: int, seed: int) -> None:
    """`count` photos of 48x48 pixels."""
    folder.mkdir(parents=True)
    for number, pixels in enumerate(np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 3), np.uint8)):
        Image.fromarray(pixels).resize((48, 48)).save(folder / f"{number:04}.png")


def index(path: Path, photos: Path) -> None:
    """One pass, which commits often, so that there is much to interrupt."""
    torch.set_num_threads(1)
    indexing.COMMIT_IMAGES = COMMIT_IMAGES
    with Catalogue.open(path, "w") as catalogue:
        report = index_corpus(catalogue, [photos], encoder=TinyEncoder(), batch_size=COMMIT_IMAGES)
    if report.skipped:
        raise AssertionError(f"{len(report.skipped)} photos were skipped: {report.skipped[0]}")


def expand(path: Path) -> None:
    """An expansion of a catalogue that `index` has filled; it commits often, too."""
    torch.set_num_threads(1)
    expanding.CHUNK = COMMIT_IMAGES
    with Catalogue.open(path, "w") as catalogue:
        report = expand_interest(catalogue, EXPANDED, encoder=TinyEncoder())
    if report.uncoded:
        raise AssertionError(f"{report.uncoded} photos have no code")


def miss(path: Path) -> None:
    """Record, once, a question about `MISSED` that was not answered from the store."""
    with Catalogue.open(path) as catalogue, Memory.of(catalogue) as memory:
        if not memory.last_observation():
            mentions = tuple(Mention(phrase, True) for phrase in MISSED)
            memory.record([Observation(time.time(), "coded", 0.0, mentions)])


def work(path: Path) -> None:
    """Fill what was missed, in the background's small batches."""
    torch.set_num_threads(1)
    working.BATCH = COMMIT_IMAGES
    Worker(encoder=TinyEncoder()).run(path, once=True)


def content(path: Path) -> Content:
    """All that a catalogue holds: interests, files, and of each image base, maps by phrase, and code."""
    with Catalogue.open(path) as catalogue:
        phrases = {interest.id: interest.phrase for interest in catalogue.interests()}
        files = catalogue.registry.files([b"/"]).values()
        found: dict[str, object] = {f"interest {i.phrase}": i.weight for i in catalogue.interests()}
        found |= {f"file {os.fsdecode(file.path)}": (file.key, file.reason) for file in files}
        for key in catalogue.store.keys():
            record = catalogue.store.read(key)
            assert record.base is not None
            maps = {phrases[number]: planes for number, planes in record.maps.items()}
            for name, planes in {"base": record.base, **maps}.items():
                arrays = (planes.values, planes.low, planes.high)
                found[f"record {key} {name}"] = tuple(_bytes(array) for array in arrays)
            found[f"code {key}"] = catalogue.store.code(key)
    return found


def differences(found: Content, expected: Content) -> list[str]:
    """Names of what differs."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


def _bytes(array: NDArray[np.generic]) -> bytes:
    return array.tobytes()
