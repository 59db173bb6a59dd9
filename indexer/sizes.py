"""How many bytes codes will have, foretold by machine code for processors, as `foretelling` does on GPUs.

In torch, numbers would be rounded, cut into blocks, put in order and counted in some twenty steps, each of
which goes over all of them.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Numbers = NDArray[np.int8]

_BLOCK = 32
_LARGEST, _NARROW = np.float32(127), 7


@njit(cache=True, nogil=True, error_model="numpy")
def code_bytes(
    left: Floats,
    right: Floats,
    mean: Floats,
    singular: Floats,
    chosen: NDArray[np.int64],
    step: Floats,
    orders: NDArray[np.int64],
    fineness: float,
    least_rank: float,
    round_up: float,
) -> Floats:
    """Bytes that the codes of `chosen` images will have with steps, but for their headers: float32 [n].

    All but the last three are those of `foretelling.code_bytes`, as arrays.

    Args:
        fineness, least_rank, round_up: as in `codes`.
    """
    ranks, area, width = left.shape[1], left.shape[2], right.shape[2]
    first = -(-area // _BLOCK)
    blocks = first + -(-width // _BLOCK)
    table = np.zeros(((1 + ranks) * blocks, _BLOCK), np.int8)
    peaks = np.zeros((1 + ranks) * blocks, np.int64)
    numbers = np.zeros(max(area, width), np.int8)
    counts = np.empty(256, np.int64)
    sizes = np.empty(len(chosen), np.float32)
    for place in range(len(chosen)):
        image, unit = chosen[place], step[place]
        rank = 0
        while rank < ranks and singular[image, rank] > np.float32(least_rank) * unit:
            rank += 1
        for block in range(first):  # the mean has no U
            table[block] = 0
            peaks[block] = 0
        for row in range(1 + rank):
            if row:
                u = left[image, row - 1]
                most = np.float32(0)
                for k in range(area):
                    most = max(most, abs(u[k]))
                scale = min(np.float32(fineness) * singular[image, row - 1] / unit, _LARGEST / most)
                _round(u, scale, np.float32(0.5), numbers)
                _put(numbers, area, row * blocks, table, peaks)
            b = right[image, row - 1] if row else mean[image, 0]
            _round(b, np.float32(1) / unit, np.float32(1 - round_up), numbers)
            _put(numbers, width, row * blocks + first, table, peaks)
        order = orders[rank, : (1 + rank) * blocks]
        wide = end = 0
        for at in range(len(order)):
            peak = peaks[order[at]]
            if peak > _NARROW:
                wide = at + 1
            if peak > 0:
                end = at + 1
        wide += (end - wide) % 2
        counts[:] = 0
        for at in range(wide):
            block = table[order[at]]
            for k in range(_BLOCK):
                counts[np.int64(block[k]) + 128] += 1
        bits = _huffman_bits(counts)
        counts[:] = 0
        for at in range(wide, end, 2):
            low, high = table[order[at]], table[order[at + 1]]
            for k in range(_BLOCK):
                counts[(np.int64(low[k]) & 15) | (np.int64(high[k]) & 15) << 4] += 1
        sizes[place] = (bits + _huffman_bits(counts)) / 8 + 2 * (1 + rank)
    return sizes


@njit(cache=True, nogil=True, error_model="numpy")
def _round(values: Floats, scale: np.float32, added: np.float32, numbers: Numbers) -> None:
    """Write products with `scale` as whole numbers, away from zero from 1 - `added` on."""
    for k in range(len(values)):
        scaled = values[k] * scale
        rounded = min(np.float32(np.int32(min(abs(scaled), np.float32(1000)) + added)), _LARGEST)
        numbers[k] = np.int8(-rounded if scaled < 0 else rounded)


@njit(cache=True, nogil=True, error_model="numpy")
def _put(numbers: Numbers, count: int, block: int, table: Numbers, peaks: NDArray[np.int64]) -> None:
    """Write `count` numbers to blocks of the table from `block` on, and the largest of each."""
    for start in range(0, count, _BLOCK):
        peak = 0
        for k in range(_BLOCK):
            number = numbers[start + k] if start + k < count else np.int8(0)
            table[block, k] = number
            peak = max(peak, abs(int(number)))
        peaks[block] = peak
        block += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _huffman_bits(counts: NDArray[np.int64]) -> float:
    """About how many bits Huffman codes take for symbols that come so often.

    It is their entropy, but that a symbol takes a bit at least: for one that is more than half of them, that
    is what it takes, and the others have a bit more than they would without it. `counts` are changed.
    """
    bits = 0.0
    for _ in range(2):
        total = top = 0
        symbol = 0
        for k in range(256):
            total += counts[k]
            if counts[k] > top:
                top, symbol = counts[k], k
        if top < total < 2 * top:
            bits += total
            counts[symbol] = 0
    total = 0
    for k in range(256):
        total += counts[k]
    for k in range(256):
        if counts[k]:
            bits += counts[k] * np.log2(total / counts[k])
    return bits
