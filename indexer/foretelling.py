"""How many bytes codes will have, foretold by two kernels for a GPU: in torch it takes some 160 steps.

The formulas are those of `codes`, which processors go by. Written in Triton, as `channels.kernels`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..catalogue.codes import BLOCK, FIXED_BYTES, LARGEST, NARROW
from .codes import FINENESS, LEAST_RANK, ROUND_UP

_FINENESS, _LEAST_RANK = tl.constexpr(FINENESS), tl.constexpr(LEAST_RANK)
_ADDED, _LARGEST = tl.constexpr(1 - ROUND_UP), tl.constexpr(LARGEST)
_BLOCK, _NARROW, _FIXED_BYTES = tl.constexpr(BLOCK), tl.constexpr(NARROW), tl.constexpr(FIXED_BYTES)

_AT_ONCE = 64
"""Blocks, or pairs of blocks, that are counted together."""


def code_bytes(
    left: Tensor, right: Tensor, mean: Tensor, singular: Tensor, chosen: Tensor, step: Tensor, orders: Tensor
) -> Tensor:
    """Bytes that the codes of `chosen` images will have with steps: float32 [n].

    Args:
        left: float32 [B, R, area], left singular vectors.
        right: float32 [B, R, width], what they are multiplied by.
        mean: float32 [B, 1, width].
        singular: float32 [B, R], singular values, falling.
        chosen: int64 [n], places of images in the batch.
        step: float32 [n].
        orders: int64 [1 + R or more, m], the blocks of a table of each rank in the order in which they lie.
    """
    _, ranks, area = left.shape
    width = right.shape[2]
    blocks_left, blocks_right = triton.cdiv(area, BLOCK), triton.cdiv(width, BLOCK)
    blocks = blocks_left + blocks_right
    table = torch.empty((len(chosen), 1 + ranks, blocks, BLOCK), dtype=torch.int8, device=left.device)
    peaks = table.new_empty((len(chosen), 1 + ranks, blocks))
    sizes = torch.empty_like(step)
    held = triton.next_power_of_2(ranks)
    with torch.cuda.device_of(left):
        _round_kernel[(len(chosen), 1 + ranks)](
            left.contiguous(),
            right.contiguous(),
            mean.contiguous(),
            singular.contiguous(),
            chosen,
            step,
            table,
            peaks,
            ranks,
            area,
            width,
            held,
            blocks_left,
            blocks_right,
            triton.next_power_of_2(blocks_left),
            triton.next_power_of_2(blocks_right),
            num_warps=2,
        )
        _size_kernel[(len(chosen),)](
            singular.contiguous(),
            chosen,
            step,
            table,
            peaks,
            orders,
            sizes,
            orders.shape[1],
            ranks,
            held,
            blocks,
            triton.next_power_of_2((1 + ranks) * blocks),
            _AT_ONCE,
        )
    return sizes


@triton.jit
def _rank(singular, image, step, RANKS: tl.constexpr, HELD: tl.constexpr):
    """How many singular values of an image are worth keeping."""
    place = tl.arange(0, HELD)
    value = tl.load(singular + image * RANKS + place, place < RANKS, 0.0)
    return tl.sum((value > step * _LEAST_RANK).to(tl.int32), 0)


@triton.jit
def _put(numbers, table, peaks, first, BLOCKS: tl.constexpr, HELD: tl.constexpr):
    """Write whole numbers [HELD * 32] to blocks of the table from the `first` on, and the largest of each."""
    block = tl.arange(0, HELD)
    cut = tl.reshape(numbers, (HELD, _BLOCK))
    inside = block < BLOCKS
    within = tl.arange(0, _BLOCK)
    at = table + (first + block[:, None]) * _BLOCK + within[None, :]
    tl.store(at, cut.to(tl.int8), inside[:, None])
    tl.store(peaks + first + block, tl.max(tl.abs(cut), 1).to(tl.int8), inside)


@triton.jit
def _round_kernel(
    left,
    right,
    mean,
    singular,
    chosen,
    steps,
    table,
    peaks,
    RANKS: tl.constexpr,
    AREA: tl.constexpr,
    WIDTH: tl.constexpr,
    HELD: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    LEFT_HELD: tl.constexpr,
    RIGHT_HELD: tl.constexpr,
):
    """One row of the table of an image in whole numbers, if its rank reaches as far."""
    number, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    image, step = tl.load(chosen + number), tl.load(steps + number)
    if row <= _rank(singular, image, step, RANKS, HELD):
        across = tl.arange(0, LEFT_HELD * _BLOCK)
        along = tl.arange(0, RIGHT_HELD * _BLOCK)
        if row == 0:
            u = tl.zeros((LEFT_HELD * _BLOCK,), tl.float32)
            b = tl.load(mean + image * WIDTH + along, along < WIDTH, 0.0)
        else:
            each = image * RANKS + row - 1
            u = tl.load(left + each * AREA + across, across < AREA, 0.0)
            fineness = tl.load(singular + each) * _FINENESS / step
            most = 1 / tl.max(tl.abs(u), 0) * _LARGEST
            u = tl.floor(u * tl.minimum(fineness, most) + 0.5)
            b = tl.load(right + each * WIDTH + along, along < WIDTH, 0.0)
        b = b / step
        b = tl.where(b < 0, -1.0, 1.0) * tl.minimum(tl.floor(tl.abs(b) + _ADDED), _LARGEST)
        first = (number * (1 + RANKS) + row) * (LEFT + RIGHT)
        _put(u, table, peaks, first, LEFT, LEFT_HELD)
        _put(b, table, peaks, first + LEFT, RIGHT, RIGHT_HELD)


@triton.jit
def _block(table, order, there):
    """The blocks [n, 32] at places [n] of an order, int8."""
    at = tl.load(order, there, 0)
    return tl.load(table + at[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :], there[:, None], 0)


@triton.jit
def _counted(numbers, inside, AT_ONCE: tl.constexpr):
    """How often each number from -128 on is among those of blocks [AT_ONCE, 32] that are `inside`."""
    symbols = tl.where(inside[:, None], numbers.to(tl.int32) + 128, 0)
    counts = tl.histogram(tl.reshape(symbols, (AT_ONCE * _BLOCK,)), 256)
    outside = (AT_ONCE - tl.sum(inside.to(tl.int32), 0)) * _BLOCK
    return counts - tl.where(tl.arange(0, 256) == 0, outside, 0)


@triton.jit
def _huffman_bits(whole):
    """About how many bits Huffman codes take, as `codes._huffman_bytes`."""
    counts = whole.to(tl.float32)
    symbol = tl.arange(0, 256)
    bits = 0.0
    for _ in tl.static_range(2):
        total, top = tl.sum(counts, 0), tl.max(counts, 0)
        dominates = (2 * top > total) & (top < total)
        bits += tl.where(dominates, total, 0.0)
        others = tl.where(symbol == tl.argmax(counts, 0), 0.0, counts)
        counts = tl.where(dominates, others, counts)
    total = tl.maximum(tl.sum(counts, 0), 1.0)
    return bits + tl.sum(counts * tl.log2(total / tl.maximum(counts, 1.0)), 0)


@triton.jit
def _size_kernel(
    singular,
    chosen,
    steps,
    tables,
    peaks,
    orders,
    sizes,
    LENGTH: tl.constexpr,
    RANKS: tl.constexpr,
    HELD: tl.constexpr,
    BLOCKS: tl.constexpr,
    PLACES: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Bytes of the code of one image, whose table has BLOCKS in a row."""
    number = tl.program_id(0).to(tl.int64)
    rank = _rank(singular, tl.load(chosen + number), tl.load(steps + number), RANKS, HELD)
    order = orders + rank * LENGTH
    table = tables + number * (1 + RANKS) * BLOCKS * _BLOCK
    place = tl.arange(0, PLACES)
    inside = place < (1 + rank) * BLOCKS
    block = tl.load(order + place, inside, 0)
    peak = tl.load(peaks + number * (1 + RANKS) * BLOCKS + block, inside, 0).to(tl.int32)
    wide = tl.max(tl.where(peak > _NARROW, place + 1, 0), 0)
    end = tl.max(tl.where(peak > 0, place + 1, 0), 0)
    wide += (end - wide) % 2
    each = tl.arange(0, AT_ONCE)
    counts = tl.zeros((256,), tl.int32)
    for start in range(0, wide, AT_ONCE):
        there = start + each < wide
        whole = _block(table, order + start + each, there)
        counts += _counted(whole, there, AT_ONCE)
    bits = _huffman_bits(counts)
    counts = tl.zeros((256,), tl.int32)
    for begin in range(wide, end, 2 * AT_ONCE):
        at = begin + 2 * each
        low, high = _block(table, order + at, at < end), _block(table, order + at + 1, at < end)
        counts += _counted((low & 15) | (high << 4), at < end, AT_ONCE)
    bits += _huffman_bits(counts)
    tl.store(sizes + number, bits / 8 + 2 * (1 + rank) + _FIXED_BYTES)
