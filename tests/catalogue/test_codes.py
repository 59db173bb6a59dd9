"""Codes: what was packed is read back, maps follow the formulas, and nothing damaged gets through."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.fft import idctn
from texcat.catalogue.codes import BLOCK, Codebook, block_order, code_maps, code_mean, cosines, padded, seal
from texcat.catalogue.errors import CatalogueError, FormatVersionError, RecordCorruptError, UsageError

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Table:
    """What goes into a code."""

    side: int
    step: np.float32
    scales: NDArray[np.float16]
    u: NDArray[np.int8]
    b: NDArray[np.int8]

    def pack(self) -> bytes:
        """From the description of the format, a block after the other."""
        (rank, area), width = self.u.shape, self.b.shape[1]
        table = np.zeros((1 + rank, padded(area) + padded(width)), np.int8)
        table[1:, :area] = self.u
        table[:, padded(area) : padded(area) + width] = self.b
        blocks = table.reshape(-1, BLOCK)[block_order(1 + rank, padded(area), padded(width))]
        wide, end = (
            max((i + 1 for i, b in enumerate(blocks) if abs(b).max() > least), default=0) for least in (7, 0)
        )
        wide += (end - wide) % 2
        pairs = blocks[wide:end:2] & 15 | blocks[wide + 1 : end : 2] << 4
        return seal(
            side=self.side,
            frequencies=math.isqrt(area),
            width=width,
            step=self.step,
            scales=self.scales,
            wide=blocks[:wide],
            pairs=pairs,
        )

    def maps(self, coordinates: Floats) -> NDArray[np.float64]:
        """From the formulas, in float64."""
        steps = self.scales.astype(float) * float(self.step)
        weights = coordinates.astype(float) @ (self.b * steps[:, None]).T
        spectrum = weights[:, 1:] @ self.u
        spectrum[:, 0] += weights[:, 0]
        frequencies = math.isqrt(self.u.shape[1])
        full = np.zeros((len(coordinates), self.side, self.side))
        full[:, :frequencies, :frequencies] = spectrum.reshape(-1, frequencies, frequencies)
        planes: NDArray[np.float64] = idctn(full, axes=(1, 2), norm="ortho")
        return planes


def random_table(rng: np.random.Generator, side: int, frequencies: int, rank: int, width: int) -> Table:
    """Numbers of every size, falling to the right and downwards, as those of images do."""

    def numbers(rows: int, columns: int) -> NDArray[np.int8]:
        size = 100 / (1 + np.arange(rows)[:, None]) / (1 + np.arange(columns) / 16)
        return np.clip(np.rint(rng.laplace(size=(rows, columns)) * size), -127, 127).astype(np.int8)

    scales = rng.uniform(0.01, 1, 1 + rank).astype(np.float16)
    u = numbers(rank, frequencies**2)
    u[:, 0] = 0  # the mean has a row of its own
    return Table(side, np.float32(rng.uniform(0.01, 1)), scales, u, numbers(1 + rank, width))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    side = draw(st.integers(1, 32))
    frequencies = draw(st.integers(1, min(side, 12)))
    rank = draw(st.integers(0, min(frequencies**2, 20)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return random_table(rng, side, frequencies, rank, draw(st.integers(1, 200)))


CODE = random_table(np.random.default_rng(0), 16, 10, 20, 300)
PHRASES = np.random.default_rng(1).standard_normal((3, 300)).astype(np.float32)


@given(tables(), st.integers(0, 3))
def test_maps_and_means_follow_the_formulas(table: Table, count: int) -> None:
    coordinates = np.random.default_rng(count).standard_normal((count, table.b.shape[1])).astype(np.float32)
    code = table.pack()
    maps, expected = code_maps(code, coordinates), table.maps(coordinates)
    assert maps.dtype == np.float32
    assert maps.shape == (count, table.side, table.side)
    scale = np.abs(table.b).sum() * np.abs(table.u).max(initial=1) * float(table.step)
    np.testing.assert_allclose(maps, expected, rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(
        code_mean(code).astype(float) @ coordinates.T, expected.mean((1, 2)), rtol=0, atol=1e-5 * scale
    )


@given(tables())
def test_what_is_packed_twice_is_the_same(table: Table) -> None:
    assert table.pack() == table.pack()


def test_a_code_of_format_1_is_read_for_ever() -> None:
    code = bytes.fromhex(
        "01020300460002000600000003000000200000000000003f003c0034003028b52ffd20c0bd000060000064fd020009ff0200ce"
        "000410009370482411110b28b52ffd2060b5000068000d040100a000000500071000031000cca835ae05"
    )
    coordinates = np.zeros((1, 70), np.float32)
    coordinates[0, [0, 40, 69, 33, 66]] = 1, 2, 3, 4, 5
    expected = [
        [-12.38847, 22.994514, 58.377499],
        [-12.497569, 16.666666, 45.830902],
        [-12.606668, 10.338818, 33.284302],
    ]
    np.testing.assert_allclose(code_maps(code, coordinates), [expected], rtol=1e-6)


def test_extreme_numbers_are_kept() -> None:
    """None of them can be kept in four bits, and the last is in the last block."""
    b = np.full((3, 64), -127, np.int8)
    b[-1, -1] = 127
    table = Table(4, np.float32(1), np.ones(3, np.float16), np.full((2, 16), 127, np.int8), b)
    coordinates = np.eye(64, dtype=np.float32)
    np.testing.assert_allclose(code_maps(table.pack(), coordinates), table.maps(coordinates), rtol=1e-5)


def test_small_numbers_take_four_bits() -> None:
    rng = np.random.default_rng(0)
    narrow = rng.integers(-7, 8, (21, 1280)).astype(np.int8)
    table = Table(16, np.float32(1), np.ones(21, np.float16), narrow[1:, :100], narrow)
    assert len(table.pack()) < narrow.size / 2 + 20 * 128 / 2 + 200
    coordinates = rng.standard_normal((1, 1280)).astype(np.float32)
    np.testing.assert_allclose(code_maps(table.pack(), coordinates), table.maps(coordinates), atol=0.5)


def test_many_threads_read_at_once() -> None:
    code = CODE.pack()
    expected = code_maps(code, PHRASES)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: code_maps(code, PHRASES), range(64)))
    assert all(np.array_equal(each, expected) for each in found)


@given(st.integers(0, len(CODE.pack()) - 1))
def test_a_code_that_was_cut_is_damaged(length: int) -> None:
    with pytest.raises((RecordCorruptError, FormatVersionError), match=r"expected|reads"):
        code_maps(CODE.pack()[:length], PHRASES)


@given(st.binary(max_size=200))
def test_what_is_no_code_is_damaged(content: bytes) -> None:
    with pytest.raises((RecordCorruptError, FormatVersionError)):
        code_maps(content, PHRASES)
    with pytest.raises(RecordCorruptError):
        code_mean(b"\x01" + content)


@given(st.data())
def test_a_flipped_bit_never_breaks_the_reader(data: st.DataObject) -> None:
    """The checksum of its record tells of every one; a reader handed such a code says so, or goes on."""
    code = bytearray(CODE.pack())
    bit = data.draw(st.integers(0, 8 * len(code) - 1))
    code[bit // 8] ^= 1 << bit % 8
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # of a step of 1e38
            maps = code_maps(bytes(code), PHRASES)
    except (RecordCorruptError, FormatVersionError, UsageError):
        return
    assert maps.shape[0] == len(PHRASES)


def test_a_later_format_is_refused() -> None:
    with pytest.raises(FormatVersionError, match="a code has format 9, this version of texcat reads 1"):
        code_mean(b"\x09" + CODE.pack()[1:])


@pytest.mark.parametrize("shape", [(300,), (2, 299), (1, 2, 300)])
def test_coordinates_of_another_codebook_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"coordinates must be \[N, 300\].*use the catalogue's codebook"):
        code_maps(CODE.pack(), np.zeros(shape, np.float32))


@pytest.mark.parametrize(("side", "frequencies"), [(1, 1), (16, 10), (32, 32)])
def test_cosines_are_orthonormal(side: int, frequencies: int) -> None:
    basis = cosines(side, frequencies).astype(float)
    np.testing.assert_allclose(basis @ basis.T, np.eye(frequencies), atol=1e-6)
    assert not basis[1:].sum(1).round(5).any()


@pytest.fixture
def codebook() -> Codebook:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((7, 7)))[0] * rng.uniform(0.1, 10, (1, 7))
    return Codebook("an encoder, ünicode", axes.T.astype(np.float32))


def test_coordinates_and_spread_features_give_maps(codebook: Codebook) -> None:
    rng = np.random.default_rng(1)
    directions, features = rng.standard_normal((4, 7)), rng.standard_normal((7, 9))
    coordinates = codebook.coordinates(directions.astype(np.float32))
    np.testing.assert_allclose(coordinates @ (codebook.spread @ features), directions @ features, atol=1e-4)


def test_a_codebook_takes_directions_of_its_encoder_only(codebook: Codebook) -> None:
    with pytest.raises(UsageError, match=r"directions must be \[N, 7\], got \[2, 8\]"):
        codebook.coordinates(np.zeros((2, 8), np.float32))


def test_a_codebook_is_loaded_as_it_was_saved(codebook: Codebook, tmp_path: Path) -> None:
    codebook.save(tmp_path / "codebook")
    loaded = Codebook.load(tmp_path / "codebook")
    assert loaded.fingerprint == codebook.fingerprint
    assert loaded.project.dtype == np.float32
    np.testing.assert_array_equal(loaded.project, codebook.project)


def test_a_damaged_codebook_is_refused(codebook: Codebook, tmp_path: Path) -> None:
    path = tmp_path / "codebook"
    codebook.save(path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(CatalogueError, match=r"codebook '.*codebook' is damaged"):
            Codebook.load(path)
        path.write_bytes(content[:place])
        with pytest.raises(CatalogueError, match="delete it"):
            Codebook.load(path)


def test_a_codebook_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"cannot read the codebook '.*lost': No such file"):
        Codebook.load(tmp_path / "lost")
