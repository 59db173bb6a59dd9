"""Adding an interest that images show: at once where it can be, and nothing where it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from texcat.catalogue import Box, Catalogue, Exemplar
from texcat.catalogue.errors import (
    FingerprintMismatchError,
    ImageReadError,
    InvalidPhraseError,
    ReadOnlyError,
    UsageError,
)
from texcat.indexer import index_corpus, learn_interest

from ..fakes import TinyEncoder
from .test_exemplars import BLUE, GREY, RED, halves, stored


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    halves(folder / "red.png", RED, GREY)
    halves(folder / "mixed.png", BLUE, RED)
    return folder


@pytest.fixture
def indexed(tmp_path: Path, photos: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", groups=["appearance"]) as made:
        index_corpus(made, [photos], codes=False, encoder=TinyEncoder())
        yield made


def test_vectors_are_made_at_once_and_the_files_may_go(indexed: Catalogue, photos: Path) -> None:
    outside = halves(photos.parent / "outside.png", RED, BLUE)
    added = learn_interest(
        indexed, "My kite", [Exemplar(str(outside), Box(0, 0, 0.5, 1))], encoder=TinyEncoder()
    )
    outside.unlink()
    assert added.phrase == "my kite"
    assert indexed.registry.vectors("tiny-1").keys() == {added.id}
    assert index_corpus(indexed, [photos], codes=False, encoder=TinyEncoder()).indexed == 2
    assert indexed.store.stats().maps == {added.id: 2}


def test_a_new_weight_leaves_the_vectors_that_maps_were_made_with(indexed: Catalogue, photos: Path) -> None:
    exemplars = [Exemplar(str(photos / "red.png"), Box(0, 0, 0.5, 1))]
    first = learn_interest(indexed, "my kite", exemplars, encoder=TinyEncoder())
    before = indexed.registry.vectors("tiny-1")[first.id].direction
    halves(photos / "another.png", BLUE, BLUE)
    index_corpus(
        indexed, [photos], codes=False, encoder=TinyEncoder()
    )  # the mean of the corpus is another now
    again = learn_interest(indexed, "my kite", exemplars, 2.0, encoder=TinyEncoder())
    assert (again.id, again.weight) == (first.id, 2.0)
    np.testing.assert_array_equal(indexed.registry.vectors("tiny-1")[first.id].direction, before)


def test_in_an_empty_catalogue_it_waits_for_the_first_pass(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "empty") as catalogue:
        added = learn_interest(catalogue, "my kite", [photos / "red.png"])  # no encoder is loaded
        assert catalogue.registry.vectors("tiny-1") == {}
        index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
        assert catalogue.registry.vectors("tiny-1").keys() == {added.id}


def test_an_encoder_that_cannot_be_loaded_leaves_it_to_the_next_pass(
    tmp_path: Path, photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = f"open_clip:ViT-B-32/{tmp_path}/lost.pt"
    with Catalogue.create(tmp_path / "clip", encoder=spec, groups=["appearance"]) as catalogue:
        index_corpus(catalogue, [photos], codes=False, encoder=TinyEncoder())
        added = learn_interest(catalogue, "my kite", [photos / "red.png"])
        assert catalogue.interests() == [added]
        assert catalogue.registry.vectors("tiny-1") == {}
        assert (
            "the next pass has to look at the exemplars of interest 'my kite': encoder open_clip"
            in caplog.text
        )


@pytest.mark.parametrize(
    ("phrase", "exemplars", "error", "message"),
    [
        ("my kite", [], UsageError, "no exemplars; give at least one"),
        ("my kite", ["red.png", "missing.png"], ImageReadError, "missing.png': cannot be opened"),
        ("my kite", ["red.png", "page.png"], ImageReadError, "page.png': is not an image"),
        ("", ["red.png"], InvalidPhraseError, "is empty"),
        ("grey", ["grey.png"], UsageError, "interest 'grey': its exemplars look like all images do"),
    ],
)
def test_what_cannot_be_used_adds_nothing(
    tmp_path: Path, photos: Path, phrase: str, exemplars: list[str], error: type[Exception], message: str
) -> None:
    (photos / "page.png").write_text("<html></html>")
    halves(photos / "grey.png", GREY, GREY)
    with Catalogue.create(tmp_path / "cat", groups=["appearance"]) as catalogue:
        index_corpus(catalogue, [photos / "grey.png"], codes=False, encoder=TinyEncoder())
        with pytest.raises(error, match=message):
            learn_interest(catalogue, phrase, [photos / name for name in exemplars], encoder=TinyEncoder())
        assert catalogue.interests() == []


def test_another_encoder_or_a_catalogue_open_to_read_is_refused(indexed: Catalogue, photos: Path) -> None:
    with pytest.raises(FingerprintMismatchError):
        learn_interest(indexed, "my kite", [photos / "red.png"], encoder=TinyEncoder(2))
    indexed.close()
    with Catalogue.open(indexed.path) as reading:
        with pytest.raises(ReadOnlyError, match="cannot add an interest"):
            learn_interest(reading, "my kite", [photos / "red.png"])
        assert reading.interests() == []


def test_on_real_photos_it_lights_up_where_it_is(tmp_path: Path, shared_data: Path) -> None:
    """Motorcycles, boxed in three photos, are found in four others, where the centre finds none."""
    labels = json.loads((shared_data / "coco313" / "instances.json").read_text())
    number = next(each["id"] for each in labels["categories"] if each["name"] == "motorcycle")
    photos = {photo["id"]: photo for photo in labels["images"]}
    boxes: dict[Path, list[Box]] = {}
    for label in labels["annotations"]:
        if label["category_id"] == number:
            photo = photos[label["image_id"]]
            left, top, width, height = label["bbox"]
            edges = np.array([left, top, left + width, top + height])
            fractions = edges / [photo["width"], photo["height"], photo["width"], photo["height"]]
            path = shared_data / "coco313" / "images" / photo["file_name"]
            boxes.setdefault(path, []).append(Box(*map(float, fractions.clip(0, 1))))
    shown, asked = sorted(boxes)[:3], sorted(boxes)[3:7]
    exemplars = [Exemplar(str(path), max(boxes[path], key=area)) for path in shown]
    with Catalogue.create(tmp_path / "cat", groups=["appearance"]) as catalogue:
        interest = learn_interest(catalogue, "xyzzy", exemplars)
        index_corpus(catalogue, asked, codes=False, device="cpu")
        peaks = [peak(stored(catalogue, path, interest.id)) for path in asked]
    hits = [any(holds(box, *at) for box in boxes[path]) for path, at in zip(asked, peaks, strict=True)]
    centred = [any(holds(box, 0.5, 0.5) for box in boxes[path]) for path in asked]
    assert sum(centred) == 0
    assert sum(hits) >= 2


def peak(plane: NDArray[np.float32]) -> tuple[float, float]:
    row, column = np.unravel_index(plane.argmax(), plane.shape)
    return (column + 0.5) / plane.shape[1], (row + 0.5) / plane.shape[0]


def holds(box: Box, x: float, y: float) -> bool:
    return box.left <= x < box.right and box.top <= y < box.bottom


def area(box: Box) -> float:
    return (box.right - box.left) * (box.bottom - box.top)
