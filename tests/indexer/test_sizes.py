"""Sizes of codes, as machine code foretells them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from texcat.catalogue.codes import BLOCK, FIXED_BYTES, LARGEST, NARROW, block_order, padded
from texcat.indexer.codes import FINENESS, LEAST_RANK, RANKS, ROUND_UP, _Fitter, _step, fine_enough

Floats = NDArray[np.float64]


def matrix_of(seed: int, rows: int, width: int, noise: float, mean: float) -> torch.Tensor:
    """Some ranks, the first ones the largest, noise, and a mean."""
    rng = np.random.default_rng(seed)
    ranks = min(rows, 40)
    made = (rng.standard_normal((rows, ranks)) * np.logspace(0, -1.5, ranks)) @ rng.standard_normal(
        (ranks, width)
    )
    made += noise * rng.standard_normal(made.shape)
    made[0] = mean * rng.standard_normal(width)
    return torch.from_numpy(made.astype(np.float32))


def whole(numbers: Floats, round_up: float) -> NDArray[np.int64]:
    rounded = np.sign(numbers) * np.floor(np.abs(numbers) + 1 - round_up)
    return np.clip(rounded, -LARGEST, LARGEST).astype(np.int64)


def huffman_bits(symbols: NDArray[np.int64]) -> float:
    """Entropy; of a symbol that is more than half of all, a bit each, and once more for what is left then."""
    bits = 0.0
    for _ in range(2):
        kinds, counts = np.unique(symbols, return_counts=True)
        if len(kinds) > 1 and 2 * counts.max() > len(symbols):
            bits += len(symbols)
            symbols = symbols[symbols != kinds[counts.argmax()]]
    counts = np.unique(symbols, return_counts=True)[1]
    return bits + float((counts * np.log2(len(symbols) / counts)).sum())


def size_of(left: Floats, right: Floats, mean: Floats, singular: Floats, step: float) -> float:
    """The same in plain steps, for one image."""
    rank = int((singular > LEAST_RANK * step).sum())
    area, width = left.shape[1], right.shape[1]
    table = np.zeros((1 + rank, padded(area) + padded(width)), np.int64)
    table[0, padded(area) : padded(area) + width] = whole(mean / step, ROUND_UP)
    for row in range(rank):
        u = left[row]
        fineness = min(FINENESS * singular[row] / step, LARGEST / np.abs(u).max())
        table[1 + row, :area] = whole(u * fineness, 0.5)
        table[1 + row, padded(area) : padded(area) + width] = whole(right[row] / step, ROUND_UP)
    blocks = table.reshape(-1, BLOCK)[block_order(1 + rank, padded(area), padded(width))]
    peaks = np.abs(blocks).max(1)
    wide, end = (1 + max(np.flatnonzero(peaks > bound), default=-1) for bound in (NARROW, 0))
    wide += (end - wide) % 2
    low, high = blocks[wide:end:2], blocks[wide + 1 : end : 2]
    bits = huffman_bits(blocks[:wide].ravel()) + huffman_bits(((low & 15) | (high & 15) << 4).ravel())
    return FIXED_BYTES + 2 * (1 + rank) + bits / 8


@given(
    st.integers(0, 99),
    st.sampled_from([1, 2, 7, 12, 16]),
    st.integers(1, 150),
    st.sampled_from([0.0, 0.02, 1.0]),
    st.sampled_from([0.0, 1.0, 100.0]),
    st.lists(st.integers(0, 255), min_size=1, max_size=3),
)
@example(0, 12, 96, 0.0, 0.0, [255])
@example(0, 1, 1, 0.0, 0.0, [0])
def test_sizes_are_those_of_plain_steps(
    seed: int, side: int, width: int, noise: float, mean: float, exponents: list[int]
) -> None:
    rows = len(fine_enough(side))
    matrices = torch.stack([matrix_of(seed + k, rows, width, noise, mean) for k in range(len(exponents))])
    fitter = _Fitter(matrices, side)
    chosen = torch.arange(len(exponents)).flip(0)
    exponent = torch.tensor(exponents)
    made = fitter._foretold(chosen, exponent)
    steps = _step(exponent, fitter._size[chosen])
    for place, image in enumerate(chosen.tolist()):
        held = (each[image].double().numpy() for each in (fitter._left, fitter._right, fitter._mean))
        left, right, level = held
        singular = fitter._singular[image].double().numpy()
        expected = size_of(left, right, level[0], singular, float(steps[place]))
        # A number that lies just between two may be rounded to either.
        assert float(made[place]) == pytest.approx(expected, rel=0.01, abs=2), place


def test_no_more_ranks_are_looked_for_than_a_code_has_room_for() -> None:
    fitter = _Fitter(matrix_of(0, len(fine_enough(32)), 300, 1.0, 1.0)[None], 32)
    assert fitter._left.shape == (1, RANKS, 256)
    assert (fitter._singular.diff(dim=1) <= 0).all()
