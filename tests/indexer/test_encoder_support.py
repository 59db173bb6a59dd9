"""Fingerprints, and arrays kept in the user's cache folder."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from texcat.indexer.encoders.cache import cache_folder, cached_array
from texcat.indexer.encoders.support import fingerprint

SETTINGS = st.tuples(st.integers(), st.text(max_size=5), st.floats(allow_nan=False))


@given(SETTINGS, SETTINGS)
def test_fingerprints_are_equal_where_settings_are(
    one: tuple[int, str, float], other: tuple[int, str, float]
) -> None:
    assert fingerprint("name", (), one) == fingerprint("name", (), one)
    # 0.0 and -0.0 are equal, but are written in two ways.
    assert (fingerprint("name", (), one) == fingerprint("name", (), other)) == (repr(one) == repr(other))


def test_fingerprint_follows_the_content_of_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"weights")
    other.write_bytes(b"weights")
    assert fingerprint("name", (one,)) == fingerprint("name", (other,))
    other.write_bytes(b"Weights")
    assert fingerprint("name", (one,)) != fingerprint("name", (other,))
    assert fingerprint("name", (one, other)) != fingerprint("name", (other, one))


class Maker:
    """Makes one array, and counts how often it is asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> NDArray[np.float32]:
        self.calls += 1
        return np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "texcat"


def test_an_array_is_made_once(cache: Path) -> None:
    make = Maker()
    for _ in range(3):
        np.testing.assert_array_equal(cached_array("six", (2, 3), make), [[0, 1, 2], [3, 4, 5]])
    assert make.calls == 1
    assert [file.name for file in cache.iterdir()] == ["six.f32"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied"])
def test_a_damaged_file_is_made_again(cache: Path, damage: str) -> None:
    make = Maker()
    cached_array("six", (2, 3), make)
    content = bytearray((cache / "six.f32").read_bytes())
    content[-1] ^= 1
    damaged = {"cut": content[:-4], "flipped": content, "emptied": bytearray()}
    (cache / "six.f32").write_bytes(damaged[damage])
    np.testing.assert_array_equal(cached_array("six", (2, 3), make), make())
    assert make.calls == 3
    cached_array("six", (2, 3), make)
    assert make.calls == 3


def test_a_cache_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(cached_array("six", (2, 3), Maker()), [[0, 1, 2], [3, 4, 5]])
    assert "cannot keep" in caplog.text


def test_the_cache_is_below_home_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "texcat"
