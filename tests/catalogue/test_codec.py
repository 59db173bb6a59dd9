"""The record format: exact, and nothing damaged gets through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from texcat.catalogue import codec
from texcat.catalogue.errors import (
    FingerprintMismatchError,
    FormatVersionError,
    RecordCorruptError,
    UsageError,
)
from texcat.catalogue.store import single, stack
from texcat.catalogue.types import Planes

from .strategies import KEYS, keys, planes, same_planes

TAG = codec.fingerprint_tag("an encoder")
STAMP = codec.stamp(TAG)
FLAT = Planes(np.zeros((1, 4, 4), np.uint8), np.zeros(1, np.float32), np.ones(1, np.float32))


@given(planes(), keys, st.integers(0, 2**32 - 1), st.data())
def test_decode_gives_back_what_was_encoded(
    original: Planes, key: bytes, part: int, data: st.DataObject
) -> None:
    count = len(original.values)
    slots = sorted(data.draw(st.sets(st.integers(0, 65535), min_size=count, max_size=count)))
    record = codec.encode(slots, original, key, part, TAG)
    codec.check([record, codec.EMPTY], key, [part, 7], STAMP)
    found, decoded = codec.decode(record)
    assert found.tolist() == slots
    assert same_planes(decoded, original)
    assert len(record) == codec.HEADER_BYTES + count * codec.PLANE_BYTES + original.values.size


@given(planes(), st.data())
def test_a_spliced_record_is_the_one_that_encode_makes_of_all_its_planes(
    original: Planes, data: st.DataObject
) -> None:
    count, rows, columns = original.values.shape
    slots = sorted(data.draw(st.sets(st.integers(0, 14), min_size=count, max_size=count)))
    slot = data.draw(st.integers(0, 14) | st.sampled_from(slots))
    added = Planes(
        data.draw(npst.arrays(np.uint8, (1, rows, columns))), np.float32([-2.5]), np.float32([7.25])
    )
    all_slots = sorted({*slots, slot})
    each = {old: single(original, place) for place, old in enumerate(slots)} | {slot: added}
    expected = codec.encode(all_slots, stack([each[i] for i in all_slots]), KEYS[0], 3, TAG)
    record = codec.encode(slots, original, KEYS[0], 3, TAG)
    assert codec.splice(record, slot, added, KEYS[0], 3) == expected
    assert codec.decode_slots(memoryview(expected)) == tuple(all_slots)


def test_a_plane_of_another_size_is_not_spliced_in() -> None:
    record = codec.encode([0], FLAT, KEYS[0], 1, TAG)
    other = Planes(np.zeros((1, 8, 8), np.uint8), FLAT.low, FLAT.high)
    with pytest.raises(UsageError, match=r"maps of one size, \(4, 4\), got \(8, 8\)"):
        codec.splice(record, 1, other, KEYS[0], 1)


@given(planes(), st.data())
def test_every_flipped_bit_is_detected(original: Planes, data: st.DataObject) -> None:
    record = bytearray(codec.encode(range(len(original.values)), original, KEYS[0], 0, TAG))
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RecordCorruptError, match=f"record {KEYS[0]}/base is damaged"):
        codec.check([bytes(record)], KEYS[0], [0], STAMP)


@given(planes(), st.data())
def test_every_cut_is_detected(original: Planes, data: st.DataObject) -> None:
    record = codec.encode(range(len(original.values)), original, KEYS[0], 0, TAG)
    length = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(RecordCorruptError):
        codec.check([record[:length]], KEYS[0], [0], STAMP)


@pytest.mark.parametrize(("key", "part"), [(KEYS[1], 0), (KEYS[0], 1)])
def test_a_record_of_another_image_or_part_is_damage(key: bytes, part: int) -> None:
    record = codec.encode([0], FLAT, KEYS[0], 0, TAG)
    with pytest.raises(RecordCorruptError) as caught:
        codec.check([record], key, [part], STAMP)
    assert caught.value.expected != caught.value.actual


def test_a_record_of_another_encoder_is_named() -> None:
    record = codec.encode([0], FLAT, KEYS[0], 0, TAG)
    other = codec.fingerprint_tag("another encoder")
    with pytest.raises(FingerprintMismatchError) as caught:
        codec.check([record], KEYS[0], [0], codec.stamp(other))
    assert (caught.value.expected, caught.value.actual) == (TAG.hex(), other.hex())


def test_a_later_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "VERSION", 9)
        record = codec.encode([0], FLAT, KEYS[0], 0, TAG)
    with pytest.raises(FormatVersionError, match="format 9, this version of texcat reads 2"):
        codec.check([record], KEYS[0], [0], STAMP)


@pytest.mark.parametrize(("side", "pages"), [(16, 1), (32, 4)])
def test_a_full_group_fills_pages_of_lmdb(side: int, pages: int) -> None:
    """A value that LMDB keeps in pages of its own has 16 bytes of the first for their header."""
    group = Planes(np.zeros((15, side, side), np.uint8), np.zeros(15, np.float32), np.ones(15, np.float32))
    size = len(codec.encode(range(15), group, KEYS[0], 0, TAG))
    assert 4096 * (pages - 1) - 16 < size <= 4096 * pages - 16
