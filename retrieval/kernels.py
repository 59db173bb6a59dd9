"""A look-up's arithmetic as machine code: from the bytes of records to a texture in one pass.

`blending` and `catalogue.derived` say the same in numpy, and tests hold the two equal. The only module that
imports numba, and all of its code: numba's cache on disk does not notice a change in another file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..catalogue import codec
from ..catalogue.channels import CHANNELS, ChannelSchema
from ..catalogue.codec import HEADER_BYTES
from ..catalogue.derived import HALF_PRESENT, LOWPASS_SIGMA, LUMA, centre_surround
from ..catalogue.grid import gaussian_matrix, grid_channels, resize_matrix
from ..catalogue.store import Buffer
from ..catalogue.types import GRID
from .relevance import EDGE_WEIGHT, PRESENCE_WEIGHT, SALIENCY_WEIGHT
from .types import Matches

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

CELLS = GRID * GRID
_LOWEST = np.finfo(np.float32).min

# Rows of a full texture, in the order of CHANNELS.
(
    _RED, _GREEN, _BLUE, _LUMINANCE, _LIGHTNESS, _GREEN_RED, _Y, _X, _ECCENTRICITY,
    _EDGE_X, _EDGE_Y, _MAGNITUDE, _INVERTED, _HIGHPASS, _LOWPASS, _COLOR, _INTENSITY, _ORIENTATION, _SALIENCY,
    _CLUSTER, _VARIANCE, _DISTANCE, _OBJECT, _BOUNDARY, _SIMILARITY, _INTEREST_EDGES, _INTEREST_SALIENCY,
) = range(len(CHANNELS))  # fmt: skip

_HAS_COLOUR, _HAS_SALIENCY, _HAS_OBJECTS = 1, 2, 4
_ROUNDING = 1e-6
_THIRD = np.float32(1 / 3)
_255TH = np.float32(1 / 255)


class Assembler:
    """Puts the textures of one catalogue together.

    Args:
        held: channels of the catalogue.
        wanted: those of a texture, in order; all are held.
        side: rows and columns of the catalogue's interest maps.
    """

    def __init__(self, held: ChannelSchema, wanted: ChannelSchema, side: int) -> None:
        places = {channel.name: row for row, channel in enumerate(CHANNELS)}
        stored = held.stored.names
        self._rows = np.array([places[name] for name in stored], np.int64)
        self._flags = _HAS_COLOUR * ("red" in stored and "green" in stored and "blue" in stored)
        self._flags += _HAS_SALIENCY * ("saliency_orientation" in stored) + _HAS_OBJECTS * (
            "object_id" in stored
        )
        self._wanted = np.array([places[name] for name in wanted.names], np.int64)
        self._all = wanted.channels == CHANNELS
        enlarge = resize_matrix(side, GRID)
        centre, surround = (enlarge @ matrix for matrix in centre_surround(side))
        smooth = gaussian_matrix(GRID, LOWPASS_SIGMA)
        grid = [grid_channels()[name] for name in ("y", "x", "eccentricity")]
        self._fixed = np.stack([*grid, smooth, smooth.T])
        # From a map on its own grid to similarity; and from its presence to centre minus surround, whose two
        # sides lie next to each other, so that one product sums and subtracts.
        self._rows_up = np.concatenate([enlarge, centre, surround])
        self._columns_up = np.ascontiguousarray(np.concatenate([enlarge.T, centre.T, -surround.T]))
        self._nothing = np.zeros((side, side), np.float32)
        # Given, and not read from other modules: cached machine code would keep what they were.
        weights = (PRESENCE_WEIGHT, EDGE_WEIGHT, SALIENCY_WEIGHT)
        self._numbers = np.array([*LUMA, HALF_PRESENT, *weights], np.float32)

    def assemble(
        self,
        base: Buffer,
        maps: Buffer,
        matches: Matches,
        keep: float = 1.0,
        extra: Floats | None = None,
    ) -> tuple[Floats, Floats, int]:
        """Texture float32 [C, 32, 32], relevance float32 [32, 32], and how many matches have no map.

        Which those are, `lacking` says.

        Args:
            base, maps: records, as `TextureStore.fetch` gives them for `Matches.parts`.
            matches: whose maps are summed, or the strengths of these (see `blending.blend`).
            keep: what that sum is multiplied with.
            extra: what is added to it, float32 [side, side], on the same scale.
        """
        planes = np.empty((len(CHANNELS), GRID, GRID), np.float32)
        relevance = np.empty((GRID, GRID), np.float32)
        lacking = _assemble(
            np.frombuffer(base, np.uint8), np.frombuffer(maps, np.uint8), len(matches.parts),
            matches.which, matches.slots, matches.gains, matches.medians, matches.calibrated,
            keep, self._nothing if extra is None else extra,
            self._rows, self._flags, self._numbers, self._fixed, self._rows_up, self._columns_up,
            planes, relevance,
        )  # fmt: skip
        return planes if self._all else planes[self._wanted], relevance, lacking


def lacking(maps: Buffer, matches: Matches) -> list[int]:
    """Places of the `matches` whose map is not in `maps` (see `Assembler.assemble`)."""
    held = [codec.decode(record)[0].tolist() for record in _records(maps)]
    wanted = zip(matches.which.tolist(), matches.slots.tolist(), strict=True)
    return [place for place, (part, slot) in enumerate(wanted) if slot not in held[part]]


def side_of_maps(maps: Buffer) -> int | None:
    """Rows of the maps in `maps` (see `Assembler.assemble`); None when it holds none."""
    sizes = (codec.decode(record)[1].values.shape for record in _records(maps))
    return next((rows for count, rows, _ in sizes if count), None)


def _records(maps: Buffer) -> Iterator[bytes]:
    """The records that are joined in `maps`."""
    joined = np.frombuffer(maps, np.uint8)
    start = 0
    while start < len(joined):
        end = start + _length(joined, start)
        yield joined[start:end].tobytes()
        start = end


@njit(nogil=True, cache=True, fastmath=True)
def _blend(
    maps: Bytes,
    parts: int,
    which: NDArray[np.int64],
    slots: NDArray[np.int64],
    gains: Floats,
    medians: Floats,
    calibrated: bool,
    keep: np.float32,
    blend: Floats,
) -> int:
    """Add the maps of matches to `blend` [n, n]; how many of them have none."""
    cells = blend.size
    total = blend.reshape(cells)
    starts = np.empty(parts, np.int64)
    start = 0
    for part in range(parts):
        starts[part] = start
        start += _length(maps, start)
    lacking = 0
    for match in range(len(which)):
        start = starts[which[match]]
        count = _count(maps, start)
        table = start + HEADER_BYTES
        levels = maps[table : table + 8 * count].view(np.float32)
        held = maps[table + 8 * count : table + 10 * count].view(np.uint16)
        place = 0
        while place < count and held[place] != slots[match]:
            place += 1
        if place == count:
            lacking += 1
            continue
        low, high = levels[place], levels[count + place]
        step = np.float32((np.float64(high) - np.float64(low)) / 255.0)
        first = table + 10 * count + place * cells
        values = maps[first : first + cells]
        share, median = keep * gains[match], medians[match]
        # Taken from the level first: a small difference of large values keeps its digits.
        above = low - median
        least = np.float32(0) if calibrated else _LOWEST
        for cell in range(cells):
            total[cell] += share * max(np.float32(values[cell]) * step + above, least)
    return lacking


@njit(nogil=True, cache=True)
def _count(records: Bytes, start: int) -> int:
    """Planes of the record at `start`."""
    return int(records[start + 18]) + 256 * int(records[start + 19])


@njit(nogil=True, cache=True)
def _length(records: Bytes, start: int) -> int:
    """Bytes of the record at `start`."""
    rows = int(records[start + 20]) + 256 * int(records[start + 21])
    columns = int(records[start + 22]) + 256 * int(records[start + 23])
    return HEADER_BYTES + _count(records, start) * (10 + rows * columns)


@njit(nogil=True, cache=True, fastmath=True)
def _assemble(
    base: Bytes,
    maps: Bytes,
    parts: int,
    which: NDArray[np.int64],
    slots: NDArray[np.int64],
    gains: Floats,
    medians: Floats,
    calibrated: bool,
    keep: float,
    extra: Floats,
    rows: NDArray[np.int64],
    flags: int,
    numbers: Floats,
    fixed: Floats,
    rows_up: Floats,
    columns_up: Floats,
    square: Floats,
    scores: Floats,
) -> int:
    """Fill `square` [27, 32, 32] and `scores` [32, 32]. Planes of channels not held are left as they are."""
    of_red, of_green, of_blue, half, of_presence, of_edges, of_saliency = numbers
    small = extra.copy()
    lacking = _blend(maps, parts, which, slots, gains, medians, calibrated, np.float32(keep), small)
    planes, relevance = square.reshape(len(square), CELLS), scores.reshape(CELLS)
    count = len(rows)
    levels = base[HEADER_BYTES : HEADER_BYTES + 8 * count].view(np.float32)
    start = HEADER_BYTES + 10 * count
    of_unit, per_level = base, np.float32(0)
    for place in range(count):
        low, high = levels[place], levels[count + place]
        step = np.float32((np.float64(high) - np.float64(low)) / 255.0)
        if rows[place] == _MAGNITUDE and high - low > np.float32(_ROUNDING) * max(abs(low), abs(high)):
            # Brought to [0, 1] as it is kept: from 0, its least value, to 255, its greatest.
            of_unit, per_level = base[start + place * CELLS : start + (place + 1) * CELLS], _255TH
        plane = planes[rows[place]]
        values = base[start + place * CELLS : start + (place + 1) * CELLS]
        for cell in range(CELLS):
            plane[cell] = np.float32(values[cell]) * step + low
    for place in range(3):
        plane, known = planes[_Y + place], fixed[place].reshape(CELLS)
        for cell in range(CELLS):
            plane[cell] = known[cell]

    scratch = np.empty((GRID, GRID), np.float32)
    if flags & _HAS_COLOUR:
        red, green, blue, luminance = planes[_RED], planes[_GREEN], planes[_BLUE], planes[_LUMINANCE]
        for cell in range(CELLS):
            luminance[cell] = min(
                of_red * red[cell] + of_green * green[cell] + of_blue * blue[cell], np.float32(1)
            )
        lowpass, highpass = planes[_LOWPASS], planes[_HIGHPASS]
        np.dot(fixed[3], square[_LUMINANCE], scratch)
        np.dot(scratch, fixed[4], square[_LOWPASS])
        for cell in range(CELLS):
            lowpass[cell] = min(lowpass[cell], np.float32(1))
            highpass[cell] = luminance[cell] - lowpass[cell]
    magnitude, inverted = planes[_MAGNITUDE], planes[_INVERTED]
    for cell in range(CELLS):
        inverted[cell] = np.float32(1) - magnitude[cell]
    if flags & _HAS_SALIENCY:
        color, intensity, orientation = planes[_COLOR], planes[_INTENSITY], planes[_ORIENTATION]
        saliency = planes[_SALIENCY]
        for cell in range(CELLS):
            saliency[cell] = (color[cell] + intensity[cell] + orientation[cell]) * _THIRD
    if flags & _HAS_OBJECTS:
        _boundaries(planes[_OBJECT], scratch.reshape(CELLS), planes[_BOUNDARY])

    side = small.shape[0]
    between = np.empty((GRID, side), np.float32)
    np.dot(rows_up[:GRID], small, between)
    np.dot(between, columns_up[:side], square[_SIMILARITY])
    present_small = np.empty((side, side), np.float32)
    _presence(small, calibrated, half, present_small)
    sides = np.empty((2 * GRID, side), np.float32)
    np.dot(rows_up[GRID:], present_small, sides)
    beside = np.empty((GRID, 2 * side), np.float32)
    beside[:, :side], beside[:, side:] = sides[:GRID], sides[GRID:]
    np.dot(beside, columns_up[side:], square[_INTEREST_SALIENCY])
    stands_out = planes[_INTEREST_SALIENCY]
    for cell in range(CELLS):
        stands_out[cell] = max(stands_out[cell], np.float32(0))

    u = np.empty((GRID, GRID), np.float32)
    _presence(square[_SIMILARITY], calibrated, half, u)
    present, around = u.reshape(CELLS), scratch.reshape(CELLS)
    _interest_edges(present, magnitude, around, planes[_INTEREST_EDGES])
    for cell in range(CELLS):
        around[cell] = np.float32(of_unit[cell]) * per_level
    share = np.float32(1) / (
        of_presence + of_edges + (of_saliency if flags & _HAS_SALIENCY else np.float32(0))
    )
    for cell in range(CELLS):
        relevance[cell] = share * (of_presence * present[cell] + of_edges * around[cell])
    if flags & _HAS_SALIENCY:
        _to_unit(square[_SALIENCY], scratch)
        for cell in range(CELLS):
            relevance[cell] += share * of_saliency * around[cell]
    return lacking


@njit(nogil=True, cache=True, fastmath=True)
def _presence(similarity: Floats, calibrated: bool, half: np.float32, out: Floats) -> None:
    """See `derived.presence`; both [m, m]."""
    if not calibrated:
        _to_unit(similarity, out)
        return
    strength, present = similarity.reshape(similarity.size), out.reshape(out.size)
    for cell in range(len(strength)):
        present[cell] = strength[cell] / (strength[cell] + half)


@njit(nogil=True, cache=True, fastmath=True)
def _to_unit(plane: Floats, out: Floats) -> None:
    """``(plane - min) / (max - min)`` of [m, m]; zeros where it is constant but for rounding."""
    side = plane.shape[0]
    # Row against row, and only then along one: a reduction over all cells in order is not vectorised.
    lows, highs = plane[0].copy(), plane[0].copy()
    for r in range(1, side):
        for c in range(side):
            lows[c] = min(lows[c], plane[r, c])
            highs[c] = max(highs[c], plane[r, c])
    low, high = np.float64(lows[0]), np.float64(highs[0])
    for c in range(1, side):
        low, high = min(low, np.float64(lows[c])), max(high, np.float64(highs[c]))
    span = high - low
    if span <= _ROUNDING * max(abs(low), abs(high)):
        out[:] = 0
        return
    # Subtracted before it is scaled: a small span upon a large value keeps its digits.
    least, scale = np.float32(low), np.float32(1 / span)
    for r in range(side):
        for c in range(side):
            out[r, c] = (plane[r, c] - least) * scale


# The loops below run over a whole plane at once, across the ends of its rows, and what that makes of the
# ends is put right after: a loop of 32 cells is over before the checks that let it be vectorised have paid.


@njit(nogil=True, cache=True, fastmath=True)
def _interest_edges(u: Floats, magnitude: Floats, work: Floats, out: Floats) -> None:
    """See `derived.interest_edges`; all [1024]."""
    down, across = out, work
    for cell in range(GRID, CELLS - GRID):
        down[cell] = u[cell + GRID] - u[cell - GRID]
    for c in range(GRID):
        down[c] = u[c + GRID] - u[c]
        down[CELLS - GRID + c] = u[CELLS - GRID + c] - u[CELLS - 2 * GRID + c]
    for cell in range(1, CELLS - 1):
        across[cell] = u[cell + 1] - u[cell - 1]
    for start in range(0, CELLS, GRID):
        end = start + GRID - 1
        across[start], across[end] = u[start + 1] - u[start], u[end] - u[end - 1]
    half = np.float32(0.5)
    for cell in range(CELLS):
        change = np.sqrt((down[cell] * down[cell] + across[cell] * across[cell]) * half)
        out[cell] = magnitude[cell] * (u[cell] + change - u[cell] * change)


@njit(nogil=True, cache=True, fastmath=True)
def _boundaries(labels: Floats, work: Floats, out: Floats) -> None:
    """1 where one of the four neighbours has another label, a whole number; all [1024]."""
    for cell in range(CELLS - 1):
        work[cell] = abs(labels[cell + 1] - labels[cell])
    for end in range(GRID - 1, CELLS, GRID):
        work[end] = 0
    out[0] = work[0]
    for cell in range(1, CELLS):
        out[cell] = work[cell] + work[cell - 1]
    for cell in range(CELLS - GRID):
        work[cell] = abs(labels[cell + GRID] - labels[cell])
    for cell in range(CELLS - GRID):
        out[cell] += work[cell]
    for cell in range(GRID, CELLS):
        out[cell] += work[cell - GRID]
    for cell in range(CELLS):
        out[cell] = min(out[cell], np.float32(1))
