"""Maps from codes as machine code, without Python's lock: `codes.code_maps`, which says the same in numpy.

All of it is here: numba's cache on disk does not notice a change in another file.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .codes import BLOCK, cosines, open_code
from .errors import UsageError

Floats = NDArray[np.float32]
Places = NDArray[np.int64]

_LOWEST = np.finfo(np.float32).min
_CODED = 32
assert _CODED == BLOCK
_SIGNS, _LOW, _TOP, _EIGHT = (np.uint64(0x0101_0101_0101_0101 * byte) for byte in (0x88, 0x0F, 0x80, 0x08))


def coded_map(code: bytes, coordinates: Floats) -> Floats:
    """Map of one direction: float32 [side, side], as `codes.code_maps` gives it for `coordinates` [K].

    Raises:
        RecordCorruptError, FormatVersionError, UsageError: as `codes.code_maps`.
    """
    made: Floats = coded_maps(code, coordinates[None])[0]
    return made


def coded_blend(code: bytes, coordinates: Floats, gains: Floats, medians: Floats, calibrated: bool) -> Floats:
    """Sum of the maps of directions with `coordinates` [N, K], or of their strengths: float32 [side, side].

    Args:
        code: of an image.
        coordinates: float32 [N, K], of the directions.
        gains, medians, calibrated: of each, float32 [N] (see `retrieval.Matches`).

    Raises:
        RecordCorruptError, FormatVersionError, UsageError: as `codes.code_maps`.
    """
    maps = coded_maps(code, coordinates)
    total = np.zeros(maps.shape[1:], np.float32)
    _blend(maps, gains, medians, calibrated, total)
    return total


def coded_maps(code: bytes, coordinates: Floats) -> Floats:
    """Maps float32 [N, side, side], as `codes.code_maps` gives them for `coordinates` [N, K].

    Raises:
        RecordCorruptError, FormatVersionError, UsageError: as `codes.code_maps`.
    """
    found = open_code(code)
    count, width = coordinates.shape
    if width != found.width:
        raise UsageError(
            f"coordinates must be [N, {found.width}], got {[count, width]}; use the catalogue's codebook"
        )
    padded = np.zeros((count, -(-width // _CODED) * _CODED), np.float32)
    padded[:, :width] = coordinates
    basis = cosines(found.side, found.frequencies)
    maps = np.zeros((count, found.side, found.side), np.float32)
    _maps(found.wide, found.pairs, found.order, found.scales, padded, basis, maps)
    return maps


@njit(nogil=True, cache=True, fastmath=True)
def _maps(
    wide: NDArray[np.int8],
    pairs: NDArray[np.int8],
    order: Places,
    scales: Floats,
    coordinates: Floats,
    basis: Floats,
    maps: Floats,
) -> None:
    """Add to `maps` [N, side, side]."""
    frequencies, side = basis.shape
    ranks, own = len(scales), coordinates.shape[1]
    table = _table(wide, pairs, order).reshape(ranks, -1)
    left = table.shape[1] - own  # columns of U; those of B follow
    spectrum = np.empty(left, np.float32)
    rows = np.empty((frequencies, side), np.float32)
    for each in range(len(coordinates)):
        direction, plane = coordinates[each], maps[each]
        spectrum[:] = 0
        for rank in range(ranks):
            numbers, weight = table[rank, left:], np.float32(0)
            for k in range(own):
                weight += numbers[k] * direction[k]
            weight *= scales[rank]
            if rank == 0:  # the mean, which is in every cell
                spectrum[0] = weight
                continue
            numbers = table[rank, :left]
            for k in range(left):
                spectrum[k] += weight * numbers[k]
        rows[:] = 0
        for r in range(frequencies):
            for f in range(frequencies):
                for c in range(side):
                    rows[r, c] += spectrum[r * frequencies + f] * basis[f, c]
        for f in range(frequencies):
            for r in range(side):
                for c in range(side):
                    plane[r, c] += basis[f, r] * rows[f, c]


@njit(nogil=True, cache=True, fastmath=True)
def _blend(maps: Floats, gains: Floats, medians: Floats, calibrated: bool, total: Floats) -> None:
    """Add maps [N, side, side], or their strengths, to `total` [side, side]."""
    least = np.float32(0) if calibrated else _LOWEST
    for each in range(len(maps)):
        plane, gain, median = maps[each], gains[each], medians[each]
        for r in range(total.shape[0]):
            for c in range(total.shape[1]):
                total[r, c] += gain * max(plane[r, c] - median, least)


@njit(nogil=True, cache=True)
def _table(wide: NDArray[np.int8], pairs: NDArray[np.int8], order: Places) -> NDArray[np.int8]:
    """The numbers of all blocks where they belong (see `codes.OpenedCode`); of those not held, zeros."""
    # Eight numbers at once, as whole numbers without a sign, of which numba makes the least.
    table = np.zeros(len(order) * _CODED, np.int8)
    ordered, first, second = table.view(np.uint64), _eights(wide), _eights(pairs)
    halves = np.empty(2 * len(second), np.uint64)
    for k in range(len(second)):
        # A half with its sign turned is its number plus 8. The top bits keep a byte from borrowing.
        raised = second[k] ^ _SIGNS
        halves[k] = ((raised & _LOW | _TOP) - _EIGHT) ^ _TOP
        halves[k + len(second)] = ((raised >> np.uint64(4) & _LOW | _TOP) - _EIGHT) ^ _TOP
    step = _CODED // 8
    for block in range(len(wide)):
        for k in range(step):
            ordered[order[block] * step + k] = first[block * step + k]
    for pair in range(len(pairs)):
        block = len(wide) + 2 * pair
        for k in range(step):
            ordered[order[block] * step + k] = halves[pair * step + k]
            ordered[order[block + 1] * step + k] = halves[len(second) + pair * step + k]
    return table


@njit(nogil=True, cache=True)
def _eights(blocks: NDArray[np.int8]) -> NDArray[np.uint64]:
    return blocks.reshape(blocks.size).view(np.uint64)
