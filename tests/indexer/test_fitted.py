"""Fitted directions: the fit on planted data, nearness, and the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from texcat.catalogue.errors import EncoderError
from texcat.indexer.encoders.fitted import FittedDirections, Moments, fit_directions
from torch import Tensor
from torch.nn import functional as F

DIM, SIDE = 12, 8


def planted(photos: int, seed: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Features, coverage of two categories, and the two directions along which their cells stand out."""
    generator = torch.Generator().manual_seed(seed)
    signs = F.normalize(torch.randn(2, DIM, generator=generator), dim=1)
    features, coverage = [], []
    for _ in range(photos):
        part = torch.zeros(3, SIDE, SIDE)  # the third category is in no photo
        for category in range(2):
            row, column = torch.randint(0, SIDE - 2, (2,), generator=generator).tolist()
            part[category, row : row + 3, column : column + 2] = 1
        noise = torch.randn(DIM, SIDE, SIDE, generator=generator)
        noise[0] *= 10  # loud everywhere: the covariance has to take it off
        features.append(noise + 5 + 4 * torch.einsum("kd,kij->dij", signs, part[:2]))
        coverage.append(part)
    return features, coverage, signs


def moments(features: list[Tensor], coverage: list[Tensor]) -> Moments:
    found = Moments(3, DIM)
    for each, part in zip(features, coverage, strict=True):
        found.add(each, part)
    return found


def test_the_fit_finds_what_was_planted() -> None:
    features, coverage, _ = planted(40, seed=0)
    guessed = torch.randn(3, DIM, generator=torch.Generator().manual_seed(1))
    fitted = fit_directions(moments(features, coverage), guessed)
    assert (fitted.shape, fitted.dtype) == ((3, DIM), torch.float32)
    for each, part in zip(*planted(10, seed=0)[:2], strict=True):
        maps = torch.einsum("kd,dij->kij", fitted, each)
        for category in range(2):
            assert part[category].flatten()[maps[category].argmax()] == 1
    assert not fitted[2].any()


def test_the_fit_is_its_formula() -> None:
    features, coverage, _ = planted(6, seed=3)
    guessed = torch.randn(3, DIM, generator=torch.Generator().manual_seed(1)).double()
    rows, inside = [], np.zeros((2, DIM))
    for each, part in zip(features, coverage, strict=True):
        f = each.double().flatten(1).numpy()
        f = f - f.mean(1, keepdims=True)
        rows.append(f.T)
        for category in range(2):
            covered = part[category].double().flatten().numpy()
            inside[category] += f @ covered / np.sqrt(covered.sum())
    covariance = np.cov(np.concatenate(rows), rowvar=False, bias=True)
    expected = inside @ np.linalg.inv(covariance + np.trace(covariance) / DIM * np.eye(DIM))
    fitted = fit_directions(moments(features, coverage), guessed.float(), strength=3.0).double().numpy()
    for own, wanted, guess in zip(fitted, expected, guessed.numpy(), strict=False):
        np.testing.assert_allclose(own / np.linalg.norm(own), wanted / np.linalg.norm(wanted), atol=1e-5)
        assert np.sqrt(own @ covariance @ own) == pytest.approx(
            3 * np.sqrt(guess @ covariance @ guess), rel=1e-4
        )


def test_parts_of_the_photos_add_up_in_any_order() -> None:
    features, coverage, _ = planted(6, seed=4)
    guessed = torch.ones(3, DIM)
    parts = [moments(features[i::2], coverage[i::2]) for i in (1, 0)]
    torch.testing.assert_close(
        fit_directions(Moments.total(parts), guessed), fit_directions(moments(features, coverage), guessed)
    )


@pytest.fixture
def fitted() -> FittedDirections:
    texts = torch.tensor([[1.0, 0, 0], [0.8, 0.6, 0]])
    return FittedDirections(("cat", "dog"), texts, torch.tensor([[1.0, 0], [0, 2.0]]))


def test_a_phrase_gets_what_is_near(fitted: FittedDirections) -> None:
    near = fitted.nearness(torch.tensor([[1.0, 0, 0], [0, 0, 1], [0.7, 0, 0.714]]))
    # The categories have a cosine of 0.8, and so a nearness of 0.5.
    torch.testing.assert_close(near, torch.tensor([[2 / 3, 1 / 3], [0, 0], [0.25, 0]]))
    torch.testing.assert_close(fitted.added(torch.tensor([[0.7, 0, 0.714]])), torch.tensor([[0.25, 0]]))
    assert fitted.added(torch.empty(0, 3)).shape == (0, 2)


def test_a_file_brings_back_what_was_saved(fitted: FittedDirections, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.safetensors")
    back = FittedDirections.load(tmp_path / "a.safetensors", 3, 2)
    assert back.phrases == fitted.phrases
    assert (back.texts.dtype, back.directions.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(back.texts, fitted.texts)
    torch.testing.assert_close(back.directions, fitted.directions)
    fitted.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("content", [None, b"", b"<html>"])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "fit.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(EncoderError, match=r"fit\.safetensors does not hold fitted directions.*reinstall"):
        FittedDirections.load(file, 3, 2)


def test_a_file_without_phrases_or_of_another_shape_is_refused(
    fitted: FittedDirections, tmp_path: Path
) -> None:
    file = tmp_path / "fit.safetensors"
    save_file({"texts": fitted.texts, "directions": fitted.directions}, file)
    with pytest.raises(EncoderError, match="does not hold fitted directions"):
        FittedDirections.load(file, 3, 2)
    fitted.save(file)
    with pytest.raises(
        EncoderError, match=r"texts \[2, 3\] and directions \[2, 2\] of 2 phrases, expected 3 and 5"
    ):
        FittedDirections.load(file, 3, 5)
