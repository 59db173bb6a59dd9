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
from ..catalogue.codes import BLOCK, cosines, open_code
from ..catalogue.derived import HALF_PRESENT, LOWPASS_REACH, LOWPASS_SIGMA, LUMA, centre_surround
from ..catalogue.errors import UsageError
from ..catalogue.grid import gaussian_matrix, grid_channels, map_matrix, resize_matrix
from ..catalogue.store import Buffer
from ..catalogue.types import GRID
from .relevance import EDGE_WEIGHT, PRESENCE_WEIGHT, SALIENCY_WEIGHT
from .types import Matches

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Places = NDArray[np.int64]

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
_ALL_BUT_SIGN = np.int32(2**31 - 1)
_THIRD = np.float32(1 / 3)
_255TH = np.float32(1 / 255)

# Loops of a length that is known are unrolled: the terms of a product that are summed at once, and the cells
# that a lowpass sums, which is said again here, so that a change is one of this file.
_BLOCK = 8
_REACH = 6
_TAPS = 2 * _REACH + 1
_WITH_MARGINS = GRID + 2 * _REACH
assert _REACH == LOWPASS_REACH
_CODED = 32
assert _CODED == BLOCK
_SIGNS, _LOW, _TOP, _EIGHT = (np.uint64(0x0101_0101_0101_0101 * byte) for byte in (0x88, 0x0F, 0x80, 0x08))


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
        # A Gaussian is a row of weights, the same everywhere, but for what a cell near the border lacks.
        smooth = gaussian_matrix(GRID, LOWPASS_SIGMA, LOWPASS_REACH)
        middle = smooth[GRID // 2, GRID // 2 - _REACH : GRID // 2 + _REACH + 1]
        self._taps = middle.copy()
        lacked = smooth.diagonal() / middle[_REACH]
        grid = [grid_channels()[name] for name in ("y", "x", "eccentricity")]
        self._fixed = np.stack([*grid, np.outer(lacked, lacked)])
        # A map on its own grid is widened first, and then made taller. Its presence is widened twice, once
        # smoothed as the centre, and below it as what surrounds it: one product takes that from the centre.
        padded = -(-side // _BLOCK) * _BLOCK
        pad = ((0, padded - side), (0, padded - side))
        centre, surround = (np.pad(matrix, pad) for matrix in centre_surround(side))
        of_map, of_contrast = (
            np.pad(m, ((0, 0), pad[1])) for m in (map_matrix(side), resize_matrix(side, GRID))
        )
        self._taller = np.stack([of_map, of_contrast])
        wider = [of_map.T, (of_contrast @ centre).T, (of_contrast @ surround).T]
        self._wider = np.array(wider, np.float32, order="C")
        self._contrast = np.hstack([centre, -surround])
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

        Which those are, `lacking` says. When there are any, and no `extra` that stands for them, texture and
        relevance are left unmade.

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
            keep, self._nothing if extra is None else extra, extra is None,
            self._rows, self._flags, self._numbers, self._fixed, self._taps,
            self._wider, self._taller, self._contrast,
            planes, relevance,
        )  # fmt: skip
        return planes if self._all else planes[self._wanted], relevance, lacking


def lacking(maps: Buffer, matches: Matches) -> Places:
    """Places of the `matches` whose map is not in `maps` (see `Assembler.assemble`): int64, ascending."""
    found: Places = _lacking(np.frombuffer(maps, np.uint8), len(matches.parts), matches.which, matches.slots)
    return found


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
    total: Floats,
) -> int:
    """Add the maps of matches to `total` [n * n]; how many of them have none."""
    cells = len(total)
    starts = _starts(maps, parts)
    lacking = 0
    for match in range(len(which)):
        start = starts[which[match]]
        count, place = _count(maps, start), _place(maps, start, slots[match])
        if place == count:
            lacking += 1
            continue
        table = start + HEADER_BYTES
        levels = maps[table : table + 8 * count].view(np.float32)
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
def _lacking(maps: Bytes, parts: int, which: Places, slots: Places) -> Places:
    starts = _starts(maps, parts)
    places, count = np.empty(len(which), np.int64), 0
    for match in range(len(which)):
        start = starts[which[match]]
        if _place(maps, start, slots[match]) == _count(maps, start):
            places[count] = match
            count += 1
    return places[:count]


@njit(nogil=True, cache=True)
def _starts(maps: Bytes, parts: int) -> Places:
    """Where each record begins of those that are joined in `maps`."""
    starts = np.empty(parts, np.int64)
    start = 0
    for part in range(parts):
        starts[part] = start
        start += _length(maps, start)
    return starts


@njit(nogil=True, cache=True)
def _place(records: Bytes, start: int, slot: int) -> int:
    """Which of the planes of the record at `start` is that of `slot`; their number if none is."""
    count = _count(records, start)
    table = start + HEADER_BYTES + 8 * count
    held = records[table : table + 2 * count].view(np.uint16)
    place = 0
    while place < count and held[place] != slot:
        place += 1
    return place


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
    complete: bool,
    rows: NDArray[np.int64],
    flags: int,
    numbers: Floats,
    fixed: Floats,
    taps: Floats,
    wider: Floats,
    taller: Floats,
    contrast: Floats,
    square: Floats,
    scores: Floats,
) -> int:
    """Fill `square` [27, 32, 32] and `scores` [32, 32]. Planes of channels not held are left as they are.

    So are all, when a map is lacking and the blend must be `complete`.
    """
    of_red, of_green, of_blue, half, of_presence, of_edges, of_saliency = numbers
    side = len(extra)
    small = extra.copy().reshape(side * side)
    lacking = _blend(maps, parts, which, slots, gains, medians, calibrated, np.float32(keep), small)
    if lacking and complete:
        return lacking
    planes, relevance = square.reshape(len(square), CELLS), scores.reshape(CELLS)
    work = np.empty(4 * CELLS, np.float32)  # in one piece: to allocate is not free
    count = len(rows)
    levels = base[HEADER_BYTES : HEADER_BYTES + 8 * count].view(np.float32)
    start = HEADER_BYTES + 10 * count
    of_unit, per_level, of_objects = base, np.float32(0), base
    for place in range(count):
        low, high = levels[place], levels[count + place]
        step = np.float32((np.float64(high) - np.float64(low)) / 255.0)
        plane = planes[rows[place]]
        values = base[start + place * CELLS : start + (place + 1) * CELLS]
        for cell in range(CELLS):
            plane[cell] = np.float32(values[cell]) * step + low
        if rows[place] == _MAGNITUDE and high - low > np.float32(_ROUNDING) * max(abs(low), abs(high)):
            # Brought to [0, 1] as it is kept: from 0, its least value, to 255, its greatest.
            of_unit, per_level = values, _255TH
        if rows[place] == _OBJECT:
            of_objects = values
    for place in range(3):
        plane, known = planes[_Y + place], fixed[place].reshape(CELLS)
        for cell in range(CELLS):
            plane[cell] = known[cell]

    if flags & _HAS_COLOUR:
        red, green, blue, luminance = planes[_RED], planes[_GREEN], planes[_BLUE], planes[_LUMINANCE]
        for cell in range(CELLS):
            luminance[cell] = min(
                of_red * red[cell] + of_green * green[cell] + of_blue * blue[cell], np.float32(1)
            )
        _lowpass(luminance, taps, work, planes[_LOWPASS])
        lowpass, highpass, lacked = planes[_LOWPASS], planes[_HIGHPASS], fixed[3].reshape(CELLS)
        for cell in range(CELLS):
            lowpass[cell] = min(lowpass[cell] * lacked[cell], np.float32(1))
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
        _boundaries(of_objects, work.view(np.uint8), planes[_BOUNDARY])

    padded = len(contrast)
    grid_small = np.zeros((padded, padded), np.float32)
    wide = np.empty((2 * padded, GRID), np.float32)
    _pad(small, side, grid_small)
    _product(grid_small, wider[0], wide[:padded])
    _product(taller[0], wide[:padded], square[_SIMILARITY])
    if calibrated:
        similarity = planes[_SIMILARITY]
        for cell in range(CELLS):
            similarity[cell] = max(similarity[cell], np.float32(0))
    _presence(small, calibrated, half, small)
    _pad(small, side, grid_small)
    _product(grid_small, wider[1], wide[:padded])
    _product(grid_small, wider[2], wide[padded:])
    apart = np.empty((padded, GRID), np.float32)
    _product(contrast, wide, apart)
    _product(taller[1], apart, square[_INTEREST_SALIENCY])
    stands_out = planes[_INTEREST_SALIENCY]
    for cell in range(CELLS):
        stands_out[cell] = max(stands_out[cell], np.float32(0))

    present, around = work[:CELLS], work[CELLS : 2 * CELLS]
    _presence(planes[_SIMILARITY], calibrated, half, present)
    _interest_edges(present, magnitude, around, planes[_INTEREST_EDGES])
    share = np.float32(1) / (
        of_presence + of_edges + (of_saliency if flags & _HAS_SALIENCY else np.float32(0))
    )
    for cell in range(CELLS):
        around_edges = np.float32(of_unit[cell]) * per_level
        relevance[cell] = share * (of_presence * present[cell] + of_edges * around_edges)
    if flags & _HAS_SALIENCY:
        _to_unit(planes[_SALIENCY], around)
        for cell in range(CELLS):
            relevance[cell] += share * of_saliency * around[cell]
    return lacking


@njit(nogil=True, cache=True, fastmath=True)
def _pad(small: Floats, side: int, out: Floats) -> None:
    """Put a plane [side * side] into the corner of a larger one."""
    for r in range(side):
        for c in range(side):
            out[r, c] = small[r * side + c]


@njit(nogil=True, cache=True, fastmath=True)
def _product(a: Floats, b: Floats, out: Floats) -> None:
    """``a @ b`` of [n, m] and [m, 32], m a multiple of 8. BLAS takes up to twice as long for so little."""
    flat = b.reshape(b.size)
    for r in range(len(a)):
        row = out[r]
        for start in range(0, a.shape[1], _BLOCK):
            weights, block = a[r, start : start + _BLOCK], flat[start * GRID : (start + _BLOCK) * GRID]
            for c in range(GRID):
                total = row[c] if start else np.float32(0)
                for k in range(_BLOCK):
                    total += weights[k] * block[k * GRID + c]
                row[c] = total


@njit(nogil=True, cache=True, fastmath=True)
def _lowpass(plane: Floats, taps: Floats, work: Floats, out: Floats) -> None:
    """Sum of the cells around each, weighed with `taps` along both axes; zeros beyond the border."""
    tall, wide = work[: _WITH_MARGINS * GRID], work[_WITH_MARGINS * GRID : 2 * _WITH_MARGINS * GRID]
    for cell in range(_WITH_MARGINS * GRID):
        tall[cell] = wide[cell] = 0
    body = tall[_REACH * GRID :]
    for cell in range(CELLS):
        body[cell] = plane[cell]
    for r in range(GRID):
        above, row = (
            tall[r * GRID : (r + _TAPS) * GRID],
            wide[r * _WITH_MARGINS + _REACH : (r + 1) * _WITH_MARGINS],
        )
        for c in range(GRID):
            total = np.float32(0)
            for tap in range(_TAPS):
                total += taps[tap] * above[tap * GRID + c]
            row[c] = total
    for r in range(GRID):
        before, row = wide[r * _WITH_MARGINS : (r + 1) * _WITH_MARGINS], out[r * GRID : (r + 1) * GRID]
        for c in range(GRID):
            total = np.float32(0)
            for tap in range(_TAPS):
                total += taps[tap] * before[tap + c]
            row[c] = total


@njit(nogil=True, cache=True, fastmath=True)
def _presence(similarity: Floats, calibrated: bool, half: np.float32, out: Floats) -> None:
    """See `derived.presence`; both [n]."""
    if not calibrated:
        _to_unit(similarity, out)
        return
    for cell in range(len(similarity)):
        out[cell] = similarity[cell] / (similarity[cell] + half)


@njit(nogil=True, cache=True, fastmath=True)
def _to_unit(values: Floats, out: Floats) -> None:
    """``(values - min) / (max - min)`` of [n]; zeros where they are constant but for rounding."""
    # As whole numbers in the order of the floats: a reduction over floats is not vectorised.
    bits = values.view(np.int32)
    least, greatest = _ALL_BUT_SIGN, -_ALL_BUT_SIGN
    for cell in range(len(bits)):
        ordered = bits[cell] ^ ((bits[cell] >> np.int32(31)) & _ALL_BUT_SIGN)
        least, greatest = min(least, ordered), max(greatest, ordered)
    low = np.int32(least ^ ((least >> np.int32(31)) & _ALL_BUT_SIGN)).view(np.float32)
    high = np.int32(greatest ^ ((greatest >> np.int32(31)) & _ALL_BUT_SIGN)).view(np.float32)
    span = np.float64(high) - np.float64(low)
    if span <= _ROUNDING * max(abs(low), abs(high)):
        for cell in range(len(out)):
            out[cell] = 0
        return
    # Subtracted before it is scaled: a small span upon a large value keeps its digits.
    scale = np.float32(1 / span)
    for cell in range(len(values)):
        out[cell] = (values[cell] - low) * scale


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


@njit(nogil=True, cache=True)
def _boundaries(labels: Bytes, work: Bytes, out: Floats) -> None:
    """1 where one of the four neighbours has another label; all [1024]."""
    # What differs from the next cell, and from the one below; before both, nothing does.
    across, down = work[: GRID + CELLS], work[GRID + CELLS : 2 * (GRID + CELLS)]
    for cell in range(GRID):
        across[cell] = down[cell] = down[CELLS + cell] = 0
    right, below = across[GRID:], down[GRID:]
    for cell in range(CELLS - 1):
        right[cell] = labels[cell] ^ labels[cell + 1]
    for end in range(GRID - 1, CELLS, GRID):
        right[end] = 0
    for cell in range(CELLS - GRID):
        below[cell] = labels[cell] ^ labels[cell + GRID]
    left = across[GRID - 1 :]
    for cell in range(CELLS):
        differs = right[cell] | left[cell] | below[cell] | down[cell]
        out[cell] = np.float32(1) if differs else np.float32(0)


# Two more, in this file since all of numba's code is. The first is `codes.code_maps` and `blending.blend`.


def coded_map(code: bytes, coordinates: Floats) -> Floats:
    """Map of one direction: float32 [side, side], as `codes.code_maps` gives it for `coordinates` [K].

    Raises:
        RecordCorruptError, FormatVersionError, UsageError: as `codes.code_maps`.
    """
    return coded_blend(code, coordinates[None], _ONE, _ZERO, calibrated=False)


def coded_blend(code: bytes, coordinates: Floats, gains: Floats, medians: Floats, calibrated: bool) -> Floats:
    """Sum of the maps of directions with `coordinates` [N, K], or of their strengths: float32 [side, side].

    Args:
        code: of an image.
        coordinates: float32 [N, K], of the directions.
        gains, medians, calibrated: of each, float32 [N] (see `Matches`).

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
    total = np.zeros((found.side, found.side), np.float32)
    _coded_blend(
        found.wide, found.pairs, found.order, found.scales, padded, basis, gains, medians, calibrated, total
    )
    return total


_ONE, _ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)


@njit(nogil=True, cache=True, fastmath=True)
def _coded_blend(
    wide: NDArray[np.int8],
    pairs: NDArray[np.int8],
    order: Places,
    scales: Floats,
    coordinates: Floats,
    basis: Floats,
    gains: Floats,
    medians: Floats,
    calibrated: bool,
    total: Floats,
) -> None:
    """Add to `total` [side, side]."""
    frequencies, side = basis.shape
    ranks, own = len(scales), coordinates.shape[1]
    table = _table(wide, pairs, order).reshape(ranks, -1)
    left = table.shape[1] - own  # columns of U; those of B follow
    spectrum = np.empty(left, np.float32)
    rows, plane = np.empty((frequencies, side), np.float32), np.empty((side, side), np.float32)
    for each in range(len(coordinates)):
        direction = coordinates[each]
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
        plane[:] = 0
        for f in range(frequencies):
            for r in range(side):
                for c in range(side):
                    plane[r, c] += basis[f, r] * rows[f, c]
        gain, median = gains[each], medians[each]
        least = np.float32(0) if calibrated else _LOWEST
        for r in range(side):
            for c in range(side):
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


# The second: see `coverage.CoverageAllocator`.

Doubles = NDArray[np.float64]
_NO_GAIN = 1e-9


def cover(weights: Doubles, stands: Floats, budget: int) -> tuple[NDArray[np.int64], Doubles]:
    """The greedy choice of positions that cover the most weight, and the weight that each adds.

    Args:
        weights: float64 [rows, columns], >= 0, of sum 1.
        stands: float32 [rows, columns, 2 R + 1, 2 R + 1]: how well a position stands for each one at most R
            rows and columns away, in [0, 1]; the same both ways.
        budget: at most so many; fewer, when none adds anything any more.
    """
    order, added = np.empty(budget, np.int64), np.empty(budget)
    count = _cover(np.ascontiguousarray(weights), np.ascontiguousarray(stands), order, added)
    return order[:count], added[:count]


@njit(nogil=True, cache=True)
def _cover(weights: Doubles, stands: Floats, order: NDArray[np.int64], added: Doubles) -> int:
    rows, columns = weights.shape
    reach = stands.shape[2] // 2
    covered = np.zeros((rows, columns), np.float32)
    gains = np.zeros((rows, columns))
    for r in range(rows):
        for c in range(columns):
            _lower_gains(r, c, reach, -weights[r, c], np.float32(0), np.float32(1), stands, gains)
    for count in range(len(order)):
        best = gains.argmax()
        row, column = best // columns, best % columns
        if gains[row, column] <= _NO_GAIN:
            return count
        order[count], added[count] = best, gains[row, column]
        for r in range(max(0, row - reach), min(rows, row + reach + 1)):
            for c in range(max(0, column - reach), min(columns, column + reach + 1)):
                before, now = covered[r, c], stands[row, column, r - row + reach, c - column + reach]
                if now > before:
                    _lower_gains(r, c, reach, weights[r, c], before, now, stands, gains)
                    covered[r, c] = now
        gains[row, column] = -1  # and not what rounding has left of it
    return len(order)


@njit(nogil=True, cache=True)
def _lower_gains(
    row: int,
    column: int,
    reach: int,
    weight: np.float64,
    before: np.float32,
    now: np.float32,
    stands: Floats,
    gains: Doubles,
) -> None:
    """Take from all gains what they lose when a position of `weight` is covered by `now`, not `before`."""
    for r in range(max(0, row - reach), min(gains.shape[0], row + reach + 1)):
        for c in range(max(0, column - reach), min(gains.shape[1], column + reach + 1)):
            by = stands[row, column, r - row + reach, c - column + reach]
            if by > before:
                gains[r, c] -= weight * (min(by, now) - before)
