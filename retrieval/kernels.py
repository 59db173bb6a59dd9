"""A look-up's arithmetic as machine code: from the bytes of records to a texture in one pass.

`blending` and `catalogue.derived` say the same in numpy, and tests hold the two equal. All of it
is here: numba's cache on disk does not notice a change in another file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from time import CLOCK_MONOTONIC
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..catalogue import codec
from ..catalogue.channels import CHANNELS, ChannelSchema
from ..catalogue.codec import HEADER_BYTES
from ..catalogue.derived import HALF_PRESENT, LOWPASS_REACH, LOWPASS_SIGMA, LUMA, centre_surround
from ..catalogue.grid import gaussian_matrix, grid_channels, map_matrix, resize_matrix
from ..catalogue.store import Buffer
from ..catalogue.types import GRID
from .relevance import EDGE_WEIGHT, PRESENCE_WEIGHT, SALIENCY_WEIGHT
from .types import Matches

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Places = NDArray[np.int64]
Words = NDArray[np.uint64]

CELLS = GRID * GRID
_MONOTONIC = np.int32(CLOCK_MONOTONIC)
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

_IN_ORDER = {"nnan", "ninf", "nsz"}
"""What arithmetic may assume, but not another order of sums or fewer roundings. Code from the disk was
optimised once more than what the process compiles itself, and a texture must not tell which it was."""


# The terms of a product that are summed at once, and the cells that a lowpass sums, which is said again here,
# so that a change is one of this file.
_NUMBERS = 7
_BLOCK = 8
_REACH = 6
_TAPS = 2 * _REACH + 1
_WITH_MARGINS = GRID + 2 * _REACH
assert _REACH == LOWPASS_REACH

# Numbers where they lie: an array's view of some of its bytes costs more than to read them. An `offset` is
# one of a byte of the array, and not looked at: who asks has made sure that it is one.

_I64, _I128 = ir.IntType(64), ir.IntType(128)
_LANES = 8
_VECTOR = ir.VectorType(_I64, _LANES)


def _address(context: Any, builder: Any, kind: Any, array: Any, offset: Any, target: Any) -> Any:
    """Where byte `offset` of an array lies, as a pointer to `target`."""
    start = context.make_array(kind)(context, builder, array).data
    byte = builder.gep(builder.bitcast(start, ir.IntType(8).as_pointer()), [offset])
    return builder.bitcast(byte, target.as_pointer())


def _reading(stored: Any, result: Any) -> Any:
    """A function that reads a little-endian number of the type `stored` as `result`."""

    def read(context: Any, array: Any, offset: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            held, place = given
            found = builder.load(_address(context, builder, signature.args[0], held, place, stored))
            found.align = 1
            wider = isinstance(stored, ir.IntType) and stored.width < 64
            return builder.zext(found, _I64) if wider else found

        return result(array, types.int64), generate

    return intrinsic(read)


_short: Callable[[Bytes, int], int] = _reading(ir.IntType(16), types.int64)
_word: Callable[[Bytes | Words, int], np.uint64] = _reading(_I64, types.uint64)
_number: Callable[[Bytes, int], int] = _reading(_I64, types.int64)
_float: Callable[[Bytes, int], np.float32] = _reading(ir.FloatType(), types.float32)


def _swap(context: Any, word: Any) -> Any:
    """The bytes of a word in the other order."""
    return types.uint64(types.uint64), lambda context, builder, signature, given: builder.bswap(given[0])


def _fold(context: Any, a: Any, b: Any) -> Any:
    """The upper half of a product of 128 bits upon the lower."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        product = builder.mul(*(builder.zext(word, _I128) for word in given))
        upper = builder.lshr(product, ir.Constant(_I128, 64))
        return builder.xor(builder.trunc(product, _I64), builder.trunc(upper, _I64))

    return types.uint64(types.uint64, types.uint64), generate


_as_intrinsic: Any = intrinsic
_swapped: Callable[[np.uint64], np.uint64] = _as_intrinsic(_swap)
_folded: Callable[[np.uint64, np.uint64], np.uint64] = _as_intrinsic(_fold)


def _accumulating(stripes: int) -> Any:
    """A function that takes so many stripes of 64 bytes into the sums of XXH3."""

    def accumulate(context: Any, content: Any, offset: Any, secret: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            def load(kind: Any, array: Any, start: Any, step: int) -> Any:
                found = builder.load(
                    _address(
                        context, builder, kind, array, builder.add(start, ir.Constant(_I64, step)), _VECTOR
                    )
                )
                found.align = 1
                return found

            kinds, (data, start, keys, first) = signature.args, given
            sums = _address(context, builder, kinds[2], keys, ir.Constant(_I64, 8 * _SECRET_WORDS), _VECTOR)
            total = builder.load(sums)
            low, half = ir.Constant(_VECTOR, [0xFFFFFFFF] * _LANES), ir.Constant(_VECTOR, [32] * _LANES)
            swap = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [lane ^ 1 for lane in range(_LANES)])
            total.align = 8
            for stripe in range(stripes):
                words = load(kinds[0], data, start, 64 * stripe)
                keyed = builder.xor(words, load(kinds[2], keys, first, 8 * stripe))
                total = builder.add(total, builder.shuffle_vector(words, words, swap))
                total = builder.add(total, builder.mul(builder.and_(keyed, low), builder.lshr(keyed, half)))
            builder.store(total, sums).align = 8
            return context.get_dummy_value()

        return types.void(content, types.int64, secret, types.int64), generate

    return intrinsic(accumulate)


_ROW = ir.VectorType(ir.FloatType(), GRID)


def _summing(terms: int, lines: int, add: bool) -> Any:
    """A function that sums rows of 32 cells, each times a weight: `lines` sums of so many `terms`, at once.

    ``out[32 l : 32 l + 32] = sum over k of weights[l * across + k] * rows[k * step : k * step + 32]``, or
    that is added to what is there; each array from an offset on. As vectors: numba makes none of so short a
    loop.
    """

    def total(
        context: Any,
        weights: Any,
        at: Any,
        across: Any,
        rows: Any,
        first: Any,
        step: Any,
        out: Any,
        place: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            def address(array: int, offset: Any, target: Any) -> Any:
                byte = builder.mul(offset, ir.Constant(_I64, 4))
                return _address(context, builder, signature.args[array], given[array], byte, target)

            def load(array: int, offset: Any, target: Any) -> Any:
                found = builder.load(address(array, offset, target))
                found.align = 4
                return found

            def plus(offset: Any, count: int, step: Any) -> Any:
                return builder.add(offset, builder.mul(ir.Constant(_I64, count), step))

            _, at, across, _, first, step, _, place = given
            width, one = ir.Constant(_I64, GRID), ir.Constant(_I64, 1)
            zero, nowhere = ir.Constant(_ROW, [0.0] * GRID), ir.Constant(_ROW, ir.Undefined)
            same = ir.Constant(ir.VectorType(ir.IntType(32), GRID), [0] * GRID)
            sums = [load(6, plus(place, line, width), _ROW) if add else zero for line in range(lines)]
            for term in range(terms):
                row = load(3, plus(first, term, step), _ROW)
                for line in range(lines):
                    weight = load(0, plus(plus(at, line, across), term, one), ir.FloatType())
                    vector = builder.insert_element(nowhere, weight, ir.Constant(ir.IntType(32), 0))
                    vector = builder.shuffle_vector(vector, nowhere, same)
                    product = builder.fmul(vector, row, flags=["contract"])
                    sums[line] = builder.fadd(sums[line], product, flags=["contract"])
            for line in range(lines):
                builder.store(sums[line], address(6, plus(place, line, width), _ROW)).align = 4
            return context.get_dummy_value()

        whole = types.int64
        return types.void(weights, whole, whole, rows, whole, whole, out, whole), generate

    return intrinsic(total)


_first_product, _more_product = _summing(_BLOCK, 2, False), _summing(_BLOCK, 2, True)
_smooth = _summing(_TAPS, 1, False)
_take_block, _take_stripe = _accumulating(16), _accumulating(1)
_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))


@njit(nogil=True, cache=True)
def _now() -> float:
    """Seconds, as `time.perf_counter` gives them."""
    found = np.empty(2, np.int64)
    _clock_gettime(_MONOTONIC, found.ctypes.data)
    seconds: float = found[0] + 1e-9 * found[1]
    return seconds


# XXH3-64 of more than 240 bytes, with a seed, as its specification says: `codec.check` in machine code.

_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
        "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint64,
)
_SECRET_WORDS = len(_SECRET)
_PRIME_1, _PRIME_2, _PRIME_3 = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77), np.uint64(0xC2B2AE3D)
_LONG_1, _LONG_2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_LONG_3, _LONG_4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_LONG_5, _LAST_PRIME = np.uint64(0x27D4EB2F165667C5), np.uint64(0x165667919E3779F9)
_SHORT = 240


@njit(nogil=True, cache=True)
def _checksum(content: Bytes, start: int, length: int, seed: int, work: Words) -> np.uint64:
    """XXH3-64 of more than 240 bytes; `work` is uint64 [24 + 8], its secret and sums."""
    seeded = np.uint64(seed)
    for word in range(0, _SECRET_WORDS, 2):
        work[word], work[word + 1] = _SECRET[word] + seeded, _SECRET[word + 1] - seeded
    sums = work[_SECRET_WORDS:]
    sums[0], sums[1], sums[2], sums[3] = _PRIME_3, _LONG_1, _LONG_2, _LONG_3
    sums[4], sums[5], sums[6], sums[7] = _LONG_4, _PRIME_2, _LONG_5, _PRIME_1
    blocks = (length - 1) // 1024
    for block in range(blocks):
        _take_block(content, start + 1024 * block, work, 0)
        for lane in range(_LANES):
            kept = sums[lane]
            sums[lane] = (kept ^ (kept >> np.uint64(47)) ^ work[_SECRET_WORDS - _LANES + lane]) * _PRIME_1
    left = start + 1024 * blocks
    for stripe in range((length - 1 - 1024 * blocks) // 64):
        _take_stripe(content, left + 64 * stripe, work, 8 * stripe)
    _take_stripe(content, start + length - 64, work, 8 * (_SECRET_WORDS - _LANES) - 7)
    total = np.uint64(length) * _LONG_1
    for lane in range(0, _LANES, 2):
        one, other = _word(work, 11 + 8 * lane), _word(work, 19 + 8 * lane)
        total += _folded(sums[lane] ^ one, sums[lane + 1] ^ other)
    total = (total ^ (total >> np.uint64(37))) * _LAST_PRIME
    return total ^ (total >> np.uint64(32))


@njit(nogil=True, cache=True)
def _is_sound(content: Bytes, start: int, size: int, seed: int, version: int, tag: int, work: Words) -> bool:
    """Whether the record at `start` is what `codec.check` lets pass, and long enough to be checked here."""
    body = size - 8
    if body <= _SHORT or content[start + 8] != version or _number(content, start + 9) != tag:
        return False
    return bool(_swapped(_word(content, start)) == _checksum(content, start + 8, body, seed, work))


# Where an entry lies in the pages of LMDB, whose format `catalogue.pages` describes. Each number is looked at
# before it is followed, so that a damaged page leads nowhere.

_ABSENT, _DAMAGED = -1, -2
_META_ROOT, _META_NUMBER = 128, 144
_KEY_BYTES, _NODE_BYTES, _PAGE_BYTES, _MAX_DEPTH = 20, 8, 16, 32


@njit(nogil=True, cache=True)
def _find(pages: Bytes, transaction: int, first: int, last: int, part: int) -> tuple[int, int]:
    """Place and size of the value of a `part` of the image whose key is the words `first` and `last`.

    The place is `_ABSENT` when there is none, and `_DAMAGED` when the pages are not as they should be, or not
    those of `transaction`.
    """
    size = _short(pages, 40) if len(pages) >= 2 * 512 else 0
    meta = (transaction & 1) * size
    if size < 512 or 2 * size > len(pages) or _number(pages, meta + _META_NUMBER) != transaction:
        return _DAMAGED, 0
    number = _number(pages, meta + _META_ROOT)
    if _number(pages, meta + _META_NUMBER) != transaction:
        return _DAMAGED, 0
    most = len(pages) // size
    high_word, low_word = _swapped(np.uint64(first)), _swapped(np.uint64(last))
    for _ in range(_MAX_DEPTH):
        if not 1 < number < most or _number(pages, number * size) != number:
            return _DAMAGED, 0
        page = number * size
        leaf, lower = _short(pages, page + 10) & 2, _short(pages, page + 12)
        if not _PAGE_BYTES < lower <= size:
            return _DAMAGED, 0
        # The last entry that is not behind the one looked for; a branch's first has no key: it is before all.
        low, high = (0 if leaf else 1), (lower - _PAGE_BYTES) // 2
        same = False
        while low < high:
            middle = (low + high) >> 1
            node = page + _short(pages, page + _PAGE_BYTES + 2 * middle)
            if node + _NODE_BYTES + _KEY_BYTES > page + size or _short(pages, node + 6) != _KEY_BYTES:
                return _DAMAGED, 0
            order = _compared(pages, node + _NODE_BYTES, high_word, low_word, part)
            if order <= 0:
                low, same = middle + 1, order == 0
            else:
                high = middle
        if leaf and not same:
            return _ABSENT, 0
        node = page + _short(pages, page + _PAGE_BYTES + 2 * (low - 1))
        if node + _NODE_BYTES + (_KEY_BYTES if leaf else 0) > page + size:
            return _DAMAGED, 0
        short, long, flags = _short(pages, node), _short(pages, node + 2), _short(pages, node + 4)
        if not leaf:
            number = short | long << 16 | flags << 32
            continue
        value, length = node + _NODE_BYTES + _KEY_BYTES, short | long << 16
        end = page + size
        if flags == 1:  # in pages of its own
            if value + 8 > end:
                return _DAMAGED, 0
            number = _number(pages, value)
            if not 1 < number < most:
                return _DAMAGED, 0
            value, end = number * size + _PAGE_BYTES, len(pages)
        elif flags:
            return _DAMAGED, 0
        return (value, length) if value + length <= end else (_DAMAGED, 0)
    return _DAMAGED, 0


@njit(nogil=True, cache=True)
def _compared(pages: Bytes, key: int, high: np.uint64, low: np.uint64, part: int) -> int:
    """How the key at byte `key` compares with the one looked for: below 0 when it is before it."""
    word = _swapped(_word(pages, key))
    if word != high:
        return -1 if word < high else 1
    word = _swapped(_word(pages, key + 8))
    if word != low:
        return -1 if word < low else 1
    # The last eight bytes of it: those before the part are known to be the same.
    return int(np.int64(_swapped(_word(pages, key + 12)) & np.uint64(0xFFFFFFFF))) - part


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
        lacked = smooth.diagonal() / middle[_REACH]
        grid = [grid_channels()[name] for name in ("y", "x", "eccentricity")]
        # A map on its own grid is widened first, and then made taller. Its presence is widened twice, once
        # smoothed as the centre, and below it as what surrounds it: one product takes that from the centre.
        padded = _padded(side)
        pad = ((0, padded - side), (0, padded - side))
        centre, surround = (np.pad(matrix, pad) for matrix in centre_surround(side))
        of_map, of_contrast = (
            np.pad(m, ((0, 0), pad[1])) for m in (map_matrix(side), resize_matrix(side, GRID))
        )
        self._nothing = np.zeros((side, side), np.float32)
        # Given, and not read from other modules: cached machine code would keep what they were. In one piece,
        # which is given sooner than many. `_texture` takes it apart.
        numbers = (*LUMA, HALF_PRESENT, PRESENCE_WEIGHT, EDGE_WEIGHT, SALIENCY_WEIGHT)
        wider = of_map.T, (of_contrast @ centre).T, (of_contrast @ surround).T
        pieces = (
            np.array(numbers), middle, *grid, np.outer(lacked, lacked), *wider, of_map, of_contrast,
            np.hstack([centre, -surround]),
        )  # fmt: skip
        self._constants = np.concatenate([piece.ravel() for piece in pieces]).astype(np.float32)

    def assemble(
        self, records: Buffer, matches: Matches, keep: float = 1.0, extra: Floats | None = None
    ) -> tuple[Floats, Floats, Places]:
        """Texture float32 [C, 32, 32], relevance float32 [32, 32], places of the matches that have no map.

        When there are any, and no `extra` that stands for them, texture and relevance are left unmade.

        Args:
            records: as `TextureStore.fetch` gives them for `Matches.parts`.
            matches: whose maps are summed, or the strengths of these (see `blending.blend`).
            keep: what that sum is multiplied with.
            extra: what is added to it, float32 [side, side], on the same scale.
        """
        planes, relevance, absent = self._room(len(matches))
        # For an array that may be written numba would make code of its own, which may round otherwise.
        content = np.frombuffer(memoryview(records).toreadonly(), np.uint8)
        lacking = _assemble(
            content, len(matches.parts),
            matches.places, matches.scales, matches.calibrated,
            keep, self._nothing if extra is None else extra, extra is None,
            self._rows, self._flags, self._constants, planes, relevance, absent,
        )  # fmt: skip
        return planes if self._all else planes[self._wanted], relevance, absent[:lacking]

    def look_up(
        self,
        pages: Bytes,
        transaction: int,
        key: bytes,
        stamp: bytes,
        matches: Matches,
        extra: Floats | None = None,
    ) -> tuple[Floats, Floats, Places, float] | None:
        """The same from the pages of a file: for `LmdbTextureStore.look`. Last comes when all was read.

        None when the records are not all found, sound: `TextureStore.fetch` says what is wrong. That is so,
        too, with those of few bytes, whose checksum is of another kind.
        """
        planes, relevance, absent = self._room(len(matches))
        first, last, version, tag = _IDENTITY.unpack(key + stamp)
        lacking, read = _look_up(
            pages, transaction, first, last, version, tag,
            matches.places, matches.scales, matches.calibrated,
            self._nothing if extra is None else extra, extra is None,
            self._rows, self._flags, self._constants, planes, relevance, absent,
        )  # fmt: skip
        if lacking < 0:
            return None
        return planes if self._all else planes[self._wanted], relevance, absent[:lacking], read

    def _room(self, matches: int) -> tuple[Floats, Floats, Places]:
        """For a texture of all channels, relevance, and places of matches."""
        return (
            np.empty((len(CHANNELS), GRID, GRID), np.float32),
            np.empty((GRID, GRID), np.float32),
            np.empty(matches, np.int64),
        )


_IDENTITY = struct.Struct("<2qBq")
"""An image key, and what sound records have after their checksum."""


def side_of_maps(records: Buffer) -> int | None:
    """Rows of the maps in `records` (see `Assembler.assemble`); None when they hold none."""
    joined = np.frombuffer(records, np.uint8)
    start = int(_length(joined, 0))  # behind the base
    while start < len(joined):
        end = start + int(_length(joined, start))
        values = codec.decode(joined[start:end].tobytes())[1].values
        if len(values):
            return int(values.shape[1])
        start = end
    return None


@njit(nogil=True, cache=True)
def _assemble(
    records: Bytes,
    parts: int,
    places: Places,
    scales: Floats,
    calibrated: bool,
    keep: float,
    extra: Floats,
    complete: bool,
    rows: Places,
    flags: int,
    constants: Floats,
    square: Floats,
    scores: Floats,
    absent: Places,
) -> int:
    """See `Assembler.assemble`: how many matches have no map."""
    starts = np.empty(parts, np.int64)
    start = _length(records, 0)
    for part in range(parts):
        starts[part] = start
        start += _length(records, start)
    return _texture(
        records, 0, starts, places, scales, calibrated, np.float32(keep), extra, complete,
        rows, flags, constants, square, scores, absent,
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _look_up(
    pages: Bytes,
    transaction: int,
    first: int,
    last: int,
    version: int,
    tag: int,
    places: Places,
    scales: Floats,
    calibrated: bool,
    extra: Floats,
    complete: bool,
    rows: Places,
    flags: int,
    constants: Floats,
    square: Floats,
    scores: Floats,
    absent: Places,
) -> tuple[int, float]:
    """See `Assembler.look_up`: how many matches have no map, or -1; and when all was read."""
    base, size = _find(pages, transaction, first, last, 0)
    if base < 0:
        return -1, 0.0
    parts, which = places[2], places[0]
    starts, sizes = np.empty(len(which), np.int64), np.empty(len(which), np.int64)
    count = 0
    for match in range(len(which)):
        if which[match] == count:  # the first match of its part
            starts[count], sizes[count] = _find(pages, transaction, first, last, parts[match])
            if starts[count] == _DAMAGED:
                return -1, 0.0
            count += 1
    secret = np.empty(_SECRET_WORDS + _LANES, np.uint64)
    if not _is_sound(pages, base, size, first ^ last, version, tag, secret):
        return -1, 0.0
    count = 0
    for match in range(len(which)):
        if which[match] == count:
            start, seed = starts[count], first ^ last ^ parts[match]
            if start >= 0 and not _is_sound(pages, start, sizes[count], seed, version, tag, secret):
                return -1, 0.0
            count += 1
    read = _now()
    lacking = _texture(
        pages, base, starts, places, scales, calibrated, np.float32(1), extra, complete,
        rows, flags, constants, square, scores, absent,
    )  # fmt: skip
    return lacking, read


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
def _blend(
    records: Bytes,
    starts: Places,
    places: Places,
    scales: Floats,
    calibrated: bool,
    keep: np.float32,
    total: Floats,
    absent: Places,
) -> int:
    """Add the maps of matches to `total` [n * n]; how many of them have none, whose places go to `absent`."""
    cells = len(total)
    which, slots, gains, medians = places[0], places[1], scales[0], scales[1]
    lacking = 0
    for match in range(len(which)):
        start = starts[which[match]]
        count, place = 0, 0
        if start >= 0:
            count, place = _count(records, start), _place(records, start, slots[match])
        if place == count:
            absent[lacking] = match
            lacking += 1
            continue
        table = start + HEADER_BYTES
        low, high = _float(records, table + 4 * place), _float(records, table + 4 * (count + place))
        step = np.float32((np.float64(high) - np.float64(low)) / 255.0)
        first = table + 10 * count + place * cells
        values = records[first : first + cells]
        share, median = keep * gains[match], medians[match]
        # Taken from the level first: a small difference of large values keeps its digits.
        above = low - median
        least = np.float32(0) if calibrated else _LOWEST
        for cell in range(cells):
            total[cell] += share * max(np.float32(values[cell]) * step + above, least)
    return lacking


@njit(nogil=True, cache=True)
def _place(records: Bytes, start: int, slot: int) -> int:
    """Which of the planes of the record at `start` is that of `slot`; their number if none is."""
    count = _count(records, start)
    table = start + HEADER_BYTES + 8 * count
    place = 0
    while place < count and _short(records, table + 2 * place) != slot:
        place += 1
    return place


@njit(nogil=True, cache=True)
def _count(records: Bytes, start: int) -> int:
    """Planes of the record at `start`."""
    return _short(records, start + 18)


@njit(nogil=True, cache=True)
def _length(records: Bytes, start: int) -> int:
    """Bytes of the record at `start`."""
    cells = _short(records, start + 20) * _short(records, start + 22)
    return HEADER_BYTES + _count(records, start) * (10 + cells)


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
def _texture(
    records: Bytes,
    base: int,
    starts: Places,
    places: Places,
    scales: Floats,
    calibrated: bool,
    keep: np.float32,
    extra: Floats,
    complete: bool,
    rows: Places,
    flags: int,
    constants: Floats,
    square: Floats,
    scores: Floats,
    absent: Places,
) -> int:
    """Fill `square` [27, 32, 32] and `scores` [32, 32]. Planes of channels not held are left as they are.

    So are all, when a map is lacking and the blend must be `complete`. How many are: their places are put
    into `absent`.

    Args:
        records: hold the base from byte `base` on, and each part of the maps from `starts` on.
    """
    side = len(extra)
    small = extra.copy().reshape(side * side)
    lacking = _blend(records, starts, places, scales, calibrated, keep, small, absent)
    if lacking and complete:
        return lacking
    numbers, taps, fixed, wider, taller, contrast = _parts_of(constants, _padded(side))
    of_red, of_green, of_blue, half, of_presence, of_edges, of_saliency = (
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6],
    )  # fmt: skip
    planes, relevance = square.reshape(len(square), CELLS), scores.reshape(CELLS)
    work = np.empty(4 * CELLS, np.float32)  # in one piece: to allocate is not free
    count = len(rows)
    table, start = base + HEADER_BYTES, base + HEADER_BYTES + 10 * count
    of_unit, per_level, of_objects = records, np.float32(0), records
    for place in range(count):
        low, high = _float(records, table + 4 * place), _float(records, table + 4 * (count + place))
        step = np.float32((np.float64(high) - np.float64(low)) / 255.0)
        plane = planes[rows[place]]
        values = records[start + place * CELLS : start + (place + 1) * CELLS]
        for cell in range(CELLS):
            plane[cell] = np.float32(values[cell]) * step + low
        if rows[place] == _MAGNITUDE and high - low > np.float32(_ROUNDING) * max(abs(low), abs(high)):
            # Brought to [0, 1] as it is kept: from 0, its least value, to 255, its greatest.
            of_unit, per_level = values, _255TH
        if rows[place] == _OBJECT:
            of_objects = values
    for place in range(3):
        plane, known = planes[_Y + place], fixed[place]
        for cell in range(CELLS):
            plane[cell] = known[cell]

    if flags & _HAS_COLOUR:
        red, green, blue, luminance = planes[_RED], planes[_GREEN], planes[_BLUE], planes[_LUMINANCE]
        for cell in range(CELLS):
            luminance[cell] = min(
                of_red * red[cell] + of_green * green[cell] + of_blue * blue[cell], np.float32(1)
            )
        _lowpass(luminance, taps, work, planes[_LOWPASS])
        lowpass, highpass, lacked = planes[_LOWPASS], planes[_HIGHPASS], fixed[3]
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


@njit(nogil=True, cache=True)
def _parts_of(constants: Floats, padded: int) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """What `Assembler` has put together."""
    taps = _NUMBERS
    fixed = taps + _TAPS
    wider = fixed + 4 * CELLS
    taller = wider + 3 * padded * GRID
    contrast = taller + 2 * GRID * padded
    return (
        constants[:taps],
        constants[taps:fixed],
        constants[fixed:wider].reshape(4, CELLS),
        constants[wider:taller].reshape(3, padded, GRID),
        constants[taller:contrast].reshape(2, GRID, padded),
        constants[contrast:].reshape(padded, 2 * padded),
    )


@njit(nogil=True, cache=True)
def _padded(side: int) -> int:
    """Rows that a grid of `side` is filled up to."""
    return -(-side // _BLOCK) * _BLOCK


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
def _pad(small: Floats, side: int, out: Floats) -> None:
    """Put a plane [side * side] into the corner of a larger one."""
    for r in range(side):
        for c in range(side):
            out[r, c] = small[r * side + c]


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
def _product(a: Floats, b: Floats, out: Floats) -> None:
    """``a @ b`` of [n, m] and [m, 32], n even, m a multiple of 8. BLAS takes up to four times as long."""
    terms = a.shape[1]
    for r in range(0, len(a), 2):
        _first_product(a, r * terms, terms, b, 0, GRID, out, r * GRID)
        for k in range(_BLOCK, terms, _BLOCK):
            _more_product(a, r * terms + k, terms, b, k * GRID, GRID, out, r * GRID)


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
def _lowpass(plane: Floats, taps: Floats, work: Floats, out: Floats) -> None:
    """Sum of the cells around each, weighed with `taps` along both axes; zeros beyond the border."""
    tall, wide = work[: _WITH_MARGINS * GRID], work[_WITH_MARGINS * GRID : 2 * _WITH_MARGINS * GRID]
    for cell in range(_WITH_MARGINS * GRID):
        tall[cell] = wide[cell] = 0
    body = tall[_REACH * GRID :]
    for cell in range(CELLS):
        body[cell] = plane[cell]
    for r in range(GRID):
        _smooth(taps, 0, 0, tall, r * GRID, GRID, wide, r * _WITH_MARGINS + _REACH)
    for r in range(GRID):
        _smooth(taps, 0, 0, wide, r * _WITH_MARGINS, 1, out, r * GRID)


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
def _presence(similarity: Floats, calibrated: bool, half: np.float32, out: Floats) -> None:
    """See `derived.presence`; both [n]."""
    if not calibrated:
        _to_unit(similarity, out)
        return
    for cell in range(len(similarity)):
        out[cell] = similarity[cell] / (similarity[cell] + half)


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
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


@njit(nogil=True, cache=True, fastmath=_IN_ORDER)
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


# One more, in this file since all of numba's code here is: see `coverage.CoverageAllocator`.

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
