"""The record format: exact, small, and nothing damaged gets through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from texcat.catalogue import codec
from texcat.catalogue.errors import (
    FingerprintMismatchError,
    FormatVersionError,
    RecordCorruptError,
    UsageError,
)
from texcat.catalogue.types import Planes

from .strategies import planes, same_planes

TAG = codec.fingerprint_tag("an encoder")
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


@given(planes(), st.binary(max_size=20))
def test_decode_gives_back_what_was_encoded(original: Planes, key: bytes) -> None:
    record = codec.encode(original, key, TAG)
    assert same_planes(codec.decode(record, key, TAG, "here"), original)


@given(planes(), st.data())
def test_every_flipped_bit_is_detected(original: Planes, data: st.DataObject) -> None:
    record = bytearray(codec.encode(original, b"key", TAG))
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RecordCorruptError, match="record here is damaged"):
        codec.decode(bytes(record), b"key", TAG, "here")


@given(planes(), st.data())
def test_every_cut_is_detected(original: Planes, data: st.DataObject) -> None:
    record = codec.encode(original, b"key", TAG)
    length = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(RecordCorruptError):
        codec.decode(record[:length], b"key", TAG, "here")


def test_a_record_under_another_key_is_damage() -> None:
    record = codec.encode(_flat(), b"key", TAG)
    with pytest.raises(RecordCorruptError) as caught:
        codec.decode(record, b"kez", TAG, "here")
    assert caught.value.expected != caught.value.actual


def test_a_record_of_another_encoder_is_named() -> None:
    record = codec.encode(_flat(), b"key", TAG)
    other = codec.fingerprint_tag("another encoder")
    with pytest.raises(FingerprintMismatchError) as caught:
        codec.decode(record, b"key", other, "here")
    assert (caught.value.expected, caught.value.actual) == (TAG.hex(), other.hex())


def test_a_later_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "VERSION", 9)
        record = codec.encode(_flat(), b"key", TAG)
    with pytest.raises(FormatVersionError, match="format 9, this version of texcat reads 1"):
        codec.decode(record, b"key", TAG, "here")


@given(npst.arrays(np.float32, npst.array_shapes(min_dims=3, max_dims=3, max_side=8), elements=FLOATS))
def test_quantisation_error_is_half_a_step(values: NDArray[np.float32]) -> None:
    quantised = codec.quantise(values)
    error = np.abs(codec.dequantise(quantised).astype(np.float64) - values)
    span = quantised.high.astype(np.float64) - quantised.low
    # half a step, and the rounding of float32 at the size of the values themselves
    bound = span / 510 * 1.001 + np.abs(values).max(axis=(1, 2)) * 2e-6 + 1e-37
    assert (error <= bound[:, None, None]).all()


def test_labels_are_kept_exactly() -> None:
    values = np.stack([np.arange(64, dtype=np.float32).reshape(8, 8), np.full((8, 8), 200, np.float32)])
    quantised = codec.quantise(values, labels=np.array([True, True]))
    assert np.array_equal(codec.dequantise(quantised), values)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantise_refuses_what_is_not_finite(bad: float) -> None:
    values = np.zeros((2, 4, 4), np.float32)
    values[1, 2, 3] = bad
    with pytest.raises(UsageError, match="NaN or infinity"):
        codec.quantise(values)


@pytest.mark.parametrize("shape", [(4, 4), (0, 4, 4), (1, 0, 4)])
def test_quantise_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least one cell"):
        codec.quantise(np.zeros(shape, np.float32))


def test_smooth_planes_shrink_and_noise_does_not_grow() -> None:
    row = np.linspace(0, 200, 32).astype(np.uint8)
    smooth = Planes(np.add.outer(row // 8, row)[None].astype(np.uint8), np.zeros(1, "f4"), np.ones(1, "f4"))
    noise = Planes(
        np.random.default_rng(0).integers(0, 256, (1, 32, 32), np.uint8), np.zeros(1, "f4"), np.ones(1, "f4")
    )
    assert len(codec.encode(smooth, b"", TAG)) < 300
    assert len(codec.encode(noise, b"", TAG)) == 1024 + 28 + 8


def _flat() -> Planes:
    return Planes(np.zeros((1, 4, 4), np.uint8), np.zeros(1, np.float32), np.ones(1, np.float32))
