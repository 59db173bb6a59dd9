"""A look-up's arithmetic as machine code: from the bytes of records to a texture in one pass.

`blending` and `catalogue.derived` say the same in numpy, and tests hold the two equal. The only module that
imports numba, and all of its code: numba's cache on disk does not notice a change in another file.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..catalogue.channels import CHANNELS, ChannelSchema
from ..catalogue.codec import HEADER_BYTES
from ..catalogue.derived import LOWPASS_SIGMA, LUMA, centre_surround
from ..catalogue.grid import gaussian_matrix, grid_channels, resize_matrix
from ..catalogue.types import GRID
from .relevance import EDGE_WEIGHT, SALIENCY_WEIGHT, SIMILARITY_WEIGHT
from .types import Matches

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

CELLS = GRID * GRID

# Rows of a full texture, in the order of CHANNELS.
(
    _RED, _GREEN, _BLUE, _LUMINANCE, _LIGHTNESS, _GREEN_RED, _Y, _X, _ECCENTRICITY, _EDGE_X, _EDGE_Y, _MAGNITUDE,
    _INVERTED, _HIGHPASS, _LOWPASS, _COLOR, _INTENSITY, _ORIENTATION, _SALIENCY, _CLUSTER, _VARIANCE, _DISTANCE,
    _OBJECT, _BOUNDARY, _SIMILARITY, _INTEREST_EDGES, _INTEREST_SALIENCY,
) = range(len(CHANNELS))  # fmt: skip

_R, _G, _B = (np.float32(weight) for weight in LUMA)
_ROUNDING = 1e-6
_THIRD = np.float32(1 / 3)
_OF_SIMILARITY, _OF_EDGES, _OF_SALIENCY = (
    np.float32(weight) for weight in (SIMILARITY_WEIGHT, EDGE_WEIGHT, SALIENCY_WEIGHT)
)


class Assembler:
    """Puts the textures of one catalogue together.

    Args:
        held: channels of the catalogue.
        wanted: those of a texture, in order; all are held.
        side: rows and columns of the catalogue's interest maps.
    """

    def __init__(self, held: ChannelSchema, wanted: ChannelSchema, side: int) -> None:
        self._side = side
        places = {channel.name: row for row, channel in enumerate(CHANNELS)}
        stored = held.stored.names
        self._rows = np.array([places[name] for name in stored], np.int64)
        self._has = tuple(
            {*names} <= {*stored}
            for names in (("red", "green", "blue"), ("saliency_color", "saliency_intensity"), ("object_id",))
        )
        self._wanted = np.array([places[name] for name in wanted.names], np.int64)
        self._all = wanted.channels == CHANNELS
        enlarge = resize_matrix(side, GRID)
        centre, surround = centre_surround(side)
        self._smooth = gaussian_matrix(GRID, LOWPASS_SIGMA)
        # What makes similarity and the two sides of its contrast from a map on its own grid.
        self._enlarge = np.stack([enlarge, enlarge @ centre, enlarge @ surround])
        self._grid = np.stack([grid_channels()[name].ravel() for name in ("y", "x", "eccentricity")])

    def blend(self, records: Bytes, matches: Matches) -> tuple[Floats, list[int]]:
        """Weighted sum of the maps of `matches`, float32 [side, side]; and the places of those not there.

        `records` holds, one after the other, what `TextureStore.fetch` gives for `Matches.parts`.
        """
        blend = np.empty((self._side, self._side), np.float32)
        lacking = _blend(records, len(matches.parts), matches.which, matches.slots, matches.weights, blend)
        return blend, [place for place in range(len(matches)) if lacking >> place & 1] if lacking else []

    def assemble(self, records: Bytes, blend: Floats) -> tuple[Floats, Floats]:
        """Texture float32 [C, 32, 32] and relevance float32 [32, 32].

        Args:
            records: starts with the record of the base texture.
            blend: similarity on the maps' own grid, float32 [side, side].
        """
        planes = np.empty((len(CHANNELS), GRID, GRID), np.float32)
        relevance = np.empty((GRID, GRID), np.float32)
        _assemble(
            records, self._rows, self._has, blend, self._smooth, self._enlarge, self._grid, planes, relevance
        )
        return planes if self._all else planes[self._wanted], relevance


def side_of_maps(records: Bytes) -> int | None:
    """Rows of the maps in `records` (see `Assembler.blend`); None when they hold none."""
    start = _length(records, 0)
    while start < len(records):
        if _count(records, start):
            return int(records[start + 20]) + 256 * int(records[start + 21])
        start += _length(records, start)
    return None


@njit(nogil=True, cache=True, fastmath=True)
def _blend(
    records: Bytes,
    parts: int,
    which: NDArray[np.int64],
    slots: NDArray[np.int64],
    weights: Floats,
    blend: Floats,
) -> int:
    """Fill `blend`; the places of matches whose map is not there, as bits. See `Assembler.blend`."""
    cells = blend.size
    total = blend.reshape(cells)
    total[:] = 0
    starts = np.empty(parts, np.int64)
    start = _length(records, 0)
    for part in range(parts):
        starts[part] = start
        start += _length(records, start)
    lacking = 0
    for match in range(len(which)):
        start = starts[which[match]]
        count = _count(records, start)
        table = start + HEADER_BYTES
        levels = records[table : table + 8 * count].view(np.float32)
        held = records[table + 8 * count : table + 10 * count].view(np.uint16)
        place = 0
        while place < count and held[place] != slots[match]:
            place += 1
        if place == count:
            lacking |= 1 << match
            continue
        low, high = levels[place], levels[count + place]
        step = np.float32((np.float64(high) - np.float64(low)) / 255.0)
        first = table + 10 * count + place * cells
        for cell in range(cells):
            total[cell] += weights[match] * (np.float32(records[first + cell]) * step + low)
    return lacking


@njit(nogil=True, cache=True)
def _count(records: Bytes, start: int) -> int:
    """Planes of the record at `start`."""
    return np.int64(records[start + 18]) + 256 * np.int64(records[start + 19])


@njit(nogil=True, cache=True)
def _length(records: Bytes, start: int) -> int:
    """Bytes of the record at `start`."""
    rows = np.int64(records[start + 20]) + 256 * np.int64(records[start + 21])
    columns = np.int64(records[start + 22]) + 256 * np.int64(records[start + 23])
    return HEADER_BYTES + _count(records, start) * (10 + rows * columns)


@njit(nogil=True, cache=True, fastmath=True)
def _assemble(
    record: Bytes,
    rows: NDArray[np.int64],
    has: tuple[bool, bool, bool],
    small: Floats,
    smooth: Floats,
    enlarge: Floats,
    grid: Floats,
    square: Floats,
    scores: Floats,
) -> None:
    """Fill `square` [27, 32, 32] and `scores` [32, 32]. Planes of channels not held are left as they are."""
    planes, relevance = square.reshape(len(square), CELLS), scores.reshape(CELLS)
    count = len(rows)
    levels = record[HEADER_BYTES : HEADER_BYTES + 8 * count].view(np.float32)
    start = HEADER_BYTES + 10 * count
    for place in range(count):
        low, high = levels[place], levels[count + place]
        step = np.float32((np.float64(high) - np.float64(low)) / 255.0)
        plane = planes[rows[place]]
        values = record[start + place * CELLS : start + (place + 1) * CELLS]
        for cell in range(CELLS):
            plane[cell] = np.float32(values[cell]) * step + low
    planes[_Y] = grid[0]
    planes[_X] = grid[1]
    planes[_ECCENTRICITY] = grid[2]

    has_colour, has_saliency, has_objects = has
    if has_colour:
        red, green, blue, luminance = planes[_RED], planes[_GREEN], planes[_BLUE], planes[_LUMINANCE]
        for cell in range(CELLS):
            luminance[cell] = min(_R * red[cell] + _G * green[cell] + _B * blue[cell], np.float32(1))
        lowpass, highpass = planes[_LOWPASS], planes[_HIGHPASS]
        _both_sides(smooth, square[_LUMINANCE], np.empty_like(square[0]), square[_LOWPASS])
        for cell in range(CELLS):
            lowpass[cell] = min(lowpass[cell], np.float32(1))
            highpass[cell] = luminance[cell] - lowpass[cell]
    magnitude, inverted = planes[_MAGNITUDE], planes[_INVERTED]
    for cell in range(CELLS):
        inverted[cell] = np.float32(1) - magnitude[cell]
    if has_saliency:
        color, intensity, orientation = planes[_COLOR], planes[_INTENSITY], planes[_ORIENTATION]
        saliency = planes[_SALIENCY]
        for cell in range(CELLS):
            saliency[cell] = (color[cell] + intensity[cell] + orientation[cell]) * _THIRD
    if has_objects:
        _boundaries(square[_OBJECT], square[_BOUNDARY])

    side = small.shape[0]
    between = np.empty((GRID, side), np.float32)
    _both_sides(enlarge[0], small, between, square[_SIMILARITY])
    outer = np.empty((GRID, GRID), np.float32)
    unit = np.empty((side, side), np.float32)
    _to_unit(small, unit)
    _both_sides(enlarge[1], unit, between, square[_INTEREST_SALIENCY])
    _both_sides(enlarge[2], unit, between, outer)
    stands_out, around = planes[_INTEREST_SALIENCY], outer.reshape(CELLS)
    for cell in range(CELLS):
        stands_out[cell] = max(stands_out[cell] - around[cell], np.float32(0))

    u = np.empty((GRID, GRID), np.float32)
    _to_unit(square[_SIMILARITY], u)
    flat = u.reshape(CELLS)
    _interest_edges(u, square[_MAGNITUDE], square[_INTEREST_EDGES])
    stretched = outer  # of no more use
    _to_unit(square[_MAGNITUDE], stretched)
    edges = stretched.reshape(CELLS)
    share = np.float32(1) / (_OF_SIMILARITY + _OF_EDGES + (_OF_SALIENCY if has_saliency else np.float32(0)))
    for cell in range(CELLS):
        relevance[cell] = share * (_OF_SIMILARITY * flat[cell] + _OF_EDGES * edges[cell])
    if has_saliency:
        _to_unit(square[_SALIENCY], stretched)
        for cell in range(CELLS):
            relevance[cell] += share * _OF_SALIENCY * edges[cell]


@njit(nogil=True, cache=True)
def _both_sides(matrix: Floats, plane: Floats, work: Floats, out: Floats) -> None:
    """``out = matrix @ plane @ matrix.T``, [m, m], for `plane` [n, n]; `work` is [m, n]."""
    np.dot(matrix, plane, work)
    np.dot(work, matrix.T, out)


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


@njit(nogil=True, cache=True, fastmath=True)
def _interest_edges(u: Floats, magnitude: Floats, out: Floats) -> None:
    """See `derived.interest_edges`; all [32, 32]."""
    half = np.float32(0.5)
    across = np.empty(GRID, np.float32)
    for r in range(GRID):
        here, above, below = u[r], u[max(r - 1, 0)], u[min(r + 1, GRID - 1)]
        # Apart from the ends of a row, so that the loops have no branches and are vectorised.
        across[0], across[GRID - 1] = here[1] - here[0], here[GRID - 1] - here[GRID - 2]
        for c in range(1, GRID - 1):
            across[c] = here[c + 1] - here[c - 1]
        for c in range(GRID):
            down = below[c] - above[c]
            change = np.sqrt((down * down + across[c] * across[c]) * half)
            out[r, c] = magnitude[r, c] * (here[c] + change - here[c] * change)


@njit(nogil=True, cache=True)
def _boundaries(labels: Floats, out: Floats) -> None:
    """1 where one of the four neighbours has another label; both [32, 32]."""
    one, none = np.float32(1), np.float32(0)
    for r in range(GRID):
        here, above, below = labels[r], labels[max(r - 1, 0)], labels[min(r + 1, GRID - 1)]
        row = out[r]
        for c in range(GRID):
            row[c] = one if (here[c] != above[c]) | (here[c] != below[c]) else none
        for c in range(GRID - 1):
            row[c] = one if here[c] != here[c + 1] else row[c]
        for c in range(1, GRID):
            row[c] = one if here[c] != here[c - 1] else row[c]
