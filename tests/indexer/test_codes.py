"""Making codes: maps of any direction from at most 12,000 bytes, for every encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from skimage import data
from texcat.catalogue.codes import Codebook, code_maps, code_mean
from texcat.catalogue.errors import EncoderError, UsageError
from texcat.catalogue.grid import gaussian_matrix, resize_plane
from texcat.indexer.codebooks import make_codebook
from texcat.indexer.codes import BUDGET, Coder, _Fitter, _frequency_matrix, fine_enough
from texcat.indexer.encoders.builtin import FITTED, BuiltinEncoder
from texcat.indexer.encoders.fitted import FittedDirections
from texcat.indexer.encoders.nouns import common_nouns, everyday_things
from texcat.indexer.squares import to_square
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..fakes import TinyEncoder

Floats = NDArray[np.float32]


def exact_maps(directions: Floats, features: Floats, side: int) -> Floats:
    return resize_plane(np.einsum("nd,dij->nij", directions, features), side)


def correlations(maps: Floats, exact: Floats) -> NDArray[np.float64]:
    pairs = zip(maps.reshape(len(maps), -1), exact.reshape(len(exact), -1), strict=True)
    return np.array([np.corrcoef(a, b)[0, 1] for a, b in pairs])


def a_codebook(dim: int) -> Codebook:
    """Axes that differ a hundredfold, as those of encoders do."""
    rng = np.random.default_rng(dim)
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0].T / np.geomspace(1, 0.01, dim)[:, None]
    return Codebook("random", axes.astype(np.float32))


def smooth_features(rng: np.random.Generator, dim: int, rows: int, columns: int) -> Floats:
    noise = rng.standard_normal((dim, rows, columns))
    return (gaussian_matrix(rows, 2.0) @ noise @ gaussian_matrix(columns, 2.0).T).astype(np.float32)


# --- the real encoder --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def builtin() -> BuiltinEncoder:
    return BuiltinEncoder("cpu")


@pytest.fixture(scope="module")
def codebook(builtin: BuiltinEncoder) -> Codebook:
    return make_codebook(builtin)


@pytest.fixture(scope="module")
def photos(builtin: BuiltinEncoder) -> list[Floats]:
    """Features of two real photos."""
    squares = np.stack([to_square(Image.fromarray(photo), 512) for photo in (data.chelsea(), data.coffee())])
    return list(builtin.patches(torch.from_numpy(squares).permute(0, 3, 1, 2)).numpy())


def code_of(codebook: Codebook, features: Floats, side: int) -> bytes:
    (code,) = Coder(codebook, side, "cpu").codes(torch.from_numpy(features)[None])
    return code


def test_the_step_of_a_code_is_close_to_what_singular_values_tell(
    codebook: Codebook, photos: list[Floats]
) -> None:
    flat = np.stack([features.reshape(len(features), -1).T for features in photos])
    rows = np.kron(*[_frequency_matrix(32, 16)] * 2)[fine_enough(16)]
    fitter = _Fitter(torch.from_numpy((rows @ flat @ codebook.spread.T).astype(np.float32)), 16)
    found = torch.tensor(fitter.search())
    assert (fitter._estimated() - found).abs().max() <= 3


def test_maps_of_phrases_are_close_to_those_of_the_encoder(
    builtin: BuiltinEncoder, codebook: Codebook, photos: list[Floats]
) -> None:
    phrases = ["cat", "coffee", "a red bicycle", "person", "traffic light", "a wooden table"]
    directions = builtin.direction(phrases).numpy()
    for features in photos:
        code = code_of(codebook, features, 16)
        exact = exact_maps(directions, features, 16)
        maps = code_maps(code, codebook.coordinates(directions))
        assert len(code) <= BUDGET
        assert correlations(maps, exact).min() > 0.95
        assert correlations(maps, exact).mean() > 0.98
        error = np.sqrt(np.square(maps - exact).mean((1, 2))) / exact.std((1, 2))
        assert error.mean() < 0.2  # level included
        means = codebook.coordinates(directions) @ code_mean(code)
        assert np.abs(means - exact.mean((1, 2))).max() < 0.1 * exact.std((1, 2)).max()


def test_directions_of_exemplars_have_maps_too(codebook: Codebook, photos: list[Floats]) -> None:
    """They are made of features, and are no mix of directions that phrases have."""
    cat, coffee = (features[:, 12:20, 12:20].mean((1, 2)) for features in photos)
    directions = np.stack([cat - coffee, coffee - cat])
    for features in photos:
        maps = code_maps(code_of(codebook, features, 16), codebook.coordinates(directions))
        assert correlations(maps, exact_maps(directions, features, 16)).min() > 0.9


def test_a_code_is_the_same_each_time(codebook: Codebook, photos: list[Floats]) -> None:
    assert code_of(codebook, photos[0], 16) == code_of(codebook, photos[0], 16)


# --- any encoder -------------------------------------------------------------------------------------------


@given(st.integers(1, 24), st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(0, 99))
def test_smooth_features_of_any_shape_are_kept(
    dim: int, rows: int, columns: int, side: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    features = smooth_features(rng, dim, rows, columns)
    codebook = a_codebook(dim)
    directions = (rng.standard_normal((3, dim)) @ codebook.spread).astype(np.float32)  # coordinates: noise
    side = min(side, rows, columns)
    exact = exact_maps(directions, features, side)
    maps = code_maps(code_of(codebook, features, side), codebook.coordinates(directions))
    assert np.square(maps - exact).mean() <= 0.01 * np.square(exact).mean() + 1e-9


@pytest.mark.parametrize(
    ("dim", "grid", "side"),
    [(3, 16, 16), (24, 8, 8), (48, 7, 7), (512, 32, 16), (768, 24, 24), (1024, 11, 11), (1291, 16, 16)],
)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_a_code_is_the_same_alone_and_among_others(
    dim: int, grid: int, side: int, order: torch.memory_format
) -> None:
    """As long as one thread makes them, as in a pass: products of small matrices hang on how many do."""
    noise = np.random.default_rng(dim).standard_normal((4, dim, grid, grid), np.float32)
    features = torch.from_numpy(noise).contiguous(memory_format=order)
    coder = Coder(a_codebook(dim), side, "cpu")
    torch.get_num_threads()  # sets a default, once for each thread
    with threadpool_limits(1, user_api="openmp"):
        codes = coder.codes(features)
        assert [coder.codes(features[place : place + 1])[0] for place in range(4)] == codes
        assert coder.codes(features[:3]) == codes[:3]


@settings(max_examples=25)
@given(
    st.integers(0, 99),
    st.sampled_from([0.0, 1e-44, 1e-30, 1e-6, 1.0, 1e6, 1e29]),
    st.sampled_from(["noise", "flat", "one patch"]),
)
@example(0, 1e29, "flat")  # whose frequencies are larger than features may be
def test_any_finite_features_have_a_code(seed: int, scale: float, kind: str) -> None:
    rng = np.random.default_rng(seed)
    features = np.zeros((60, 16, 16))
    if kind == "noise":
        features += rng.standard_normal(features.shape)
    elif kind == "flat":
        features += rng.standard_normal((60, 1, 1))
    else:
        features[:, 3, 5] = rng.standard_normal(60)
    codebook = a_codebook(60)
    code = code_of(codebook, (np.clip(features, -5, 5) * scale).astype(np.float32), 16)
    assert len(code) <= BUDGET
    assert np.isfinite(code_maps(code, np.ones((1, 60), np.float32))).all()


def test_the_last_blocks_of_a_table_are_kept() -> None:
    """Of a flat image the mean is all there is: here it ends with two blocks of small numbers."""
    mean = np.repeat(np.float32([1, 0.03, 0.03]), 32)
    codebook = Codebook("axes", np.eye(96, dtype=np.float32))
    code = code_of(codebook, np.broadcast_to(mean[:, None, None], (96, 16, 16)).copy(), 16)
    maps = code_maps(code, codebook.coordinates(np.eye(96, dtype=np.float32)))
    np.testing.assert_allclose(maps.mean((1, 2)), mean, atol=0.005)


@pytest.mark.parametrize(("side", "count"), [(1, 1), (8, 64), (12, 144), (13, 106), (16, 106), (32, 193)])
def test_frequencies_are_kept_up_to_one_distance(side: int, count: int) -> None:
    """All of maps up to 12x12; of larger ones, no corner beyond the last of a side."""
    kept = fine_enough(side)
    assert len(kept) == count
    assert kept[0] == 0  # the mean


def test_a_code_of_noise_uses_its_bytes() -> None:
    """What cannot be compressed is cut down to the budget, and not much further."""
    features = np.random.default_rng(0).standard_normal((1024, 32, 32)).astype(np.float32)
    assert 0.9 * BUDGET < len(code_of(a_codebook(1024), features, 32)) <= BUDGET


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e31])
def test_features_that_are_no_numbers_are_refused(value: float) -> None:
    features = np.ones((4, 8, 8), np.float32)
    features[2, 3, 4] = value
    with pytest.raises(UsageError, match="features must be finite, and below 1e30"):
        code_of(a_codebook(4), features, 8)


@pytest.mark.parametrize("shape", [(5, 8, 8), (4, 64)])
def test_features_of_another_encoder_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"features must be \[B, 4, rows, columns\]"):
        code_of(a_codebook(4), np.ones(shape, np.float32), 8)


# --- codebooks ---------------------------------------------------------------------------------------------


class CountingEncoder(TinyEncoder):
    """Counts the phrases whose directions it gave."""

    phrases = 0

    def direction(self, phrases: Sequence[str]) -> Tensor:
        self.phrases += len(phrases)
        return super().direction(phrases)


class MuteEncoder(TinyEncoder):
    """Its directions are all zero."""

    def direction(self, phrases: Sequence[str]) -> Tensor:
        return torch.zeros(len(phrases), self.dim)


def test_a_codebook_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    encoder = CountingEncoder()
    made = make_codebook(encoder)
    assert encoder.phrases == len(common_nouns()) + len(everyday_things())
    again = make_codebook(encoder)
    assert encoder.phrases == len(common_nouns()) + len(everyday_things())
    assert made.fingerprint == again.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(made.project, again.project)
    make_codebook(CountingEncoder(version=2))
    assert len(list(tmp_path.rglob("*.f32"))) == 2


def test_coordinates_of_nouns_vary_alike(builtin: BuiltinEncoder, codebook: Codebook) -> None:
    """Along the axes that nouns have, and less along those that are there for exemplars only."""
    directions = builtin.direction(common_nouns()[::50]).numpy()
    coordinates = codebook.coordinates(directions[directions.any(1)])  # a few nouns cannot be placed
    energy = np.square(coordinates / np.linalg.norm(coordinates, axis=1, keepdims=True)).mean(0)
    assert energy[:20].mean() > 10 * energy[-300:].mean()
    assert energy[:20].max() < 10 * energy[:20].min()


def test_an_encoder_without_directions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(EncoderError, match="encoder tiny: gives common nouns no directions"):
        make_codebook(MuteEncoder())


def test_everyday_things_are_those_with_fitted_directions() -> None:
    assert everyday_things() == FittedDirections.load(FITTED, 384, 1280).phrases


def test_nouns_are_common() -> None:
    nouns = common_nouns()
    assert 5_000 < len(nouns) < 7_000
    assert list(nouns) == sorted(set(nouns))
    assert {"bicycle", "dog", "pizza", "person", "tree"} <= set(nouns)
