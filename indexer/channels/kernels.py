"""Steps of the channels as single kernels for GPUs, where torch goes over memory again and again.

They are those that processors do by machine code, `sums` and `slic`, and give the same but for rounding: sums
are added up in another order. Written in Triton, which comes with torch where there is CUDA; it compiles them
when they are first used, in a few seconds, and keeps what comes out.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...catalogue.derived import LUMA
from .pixels import PixelMeans

_WIDTH = 64
"""Pixels, to the right, that a program of the kernels of pixels goes over.

Programs have one warp each: more take longer (design/0014)."""

_RED, _GREEN, _BLUE = (tl.constexpr(weight / 255) for weight in LUMA)
_HALF_DIAGONAL = tl.constexpr(math.sqrt(0.5))


def pixel_means(images: Tensor, cell: int, block: int) -> PixelMeans:
    """What `PixelMeans` says of images, uint8 [B, 3, H, H].

    Args:
        images: whose side is a multiple of 64.
        cell: side of a cell, in pixels.
        block: side of a block, in pixels.
    """
    count, _, side, _ = images.shape
    cells, blocks = side // cell, side // block
    luma = images.new_empty((count, side, side), dtype=torch.float32)
    means = luma.new_empty((count, 3, blocks, blocks))
    squares, edges = (luma.new_empty((count, 3, cells, cells)) for _ in range(2))
    grid = count, cells, side // _WIDTH
    with torch.cuda.device_of(images):
        _mean_kernel[grid](images.contiguous(), luma, means, squares, side, cell, block, _WIDTH, num_warps=1)
        _edge_kernel[grid](luma, edges, side, cell, _WIDTH, num_warps=1)
    return PixelMeans(means, squares, edges)


def superpixels(colour: Tensor, start: Tensor, along: Tensor, step: int, rounds: int) -> Tensor:
    """SLIC, as `segments.superpixels`: int64 [B, n, n], of which centre each pixel is.

    Args:
        colour: float32 [B, 3, n, n], contiguous, in units of the compactness.
        start: float32 [2, k, k], rows and columns of the centres at the start.
        along: float32 [n], place of each pixel along a side, in steps.
        step: pixels of a side from one centre to the next.
        rounds: how often the centres move.
    """
    count, _, side, _ = colour.shape
    centres_a_side = start.shape[-1]
    kinds = centres_a_side**2
    centres = torch.cat((start, start.new_zeros(3, *start.shape[1:]))).flatten(1).repeat(count, 1, 1)
    sums = colour.new_empty((count, kinds, 9, 6))
    labels = torch.empty((count, side, side), dtype=torch.int64, device=colour.device)
    area = triton.next_power_of_2(step * step)
    with torch.cuda.device_of(colour):
        for last in (False,) * rounds + (True,):
            _assign_kernel[(count * kinds,)](
                colour, along, centres, sums, labels, side, centres_a_side, step, area, last, num_warps=1
            )
            if not last:
                _move_kernel[(count,)](sums, centres, centres_a_side, triton.next_power_of_2(kinds))
    return labels


@triton.jit
def _cell_mean(values, CELL: tl.constexpr, WIDTH: tl.constexpr):
    """Means of [CELL, WIDTH] over squares of CELL x CELL: [WIDTH / CELL]."""
    return tl.sum(tl.reshape(tl.sum(values, 0), (WIDTH // CELL, CELL)), 1) / (CELL * CELL)


@triton.jit
def _mean_kernel(
    images,
    lumas,
    means,
    squares,
    SIDE: tl.constexpr,
    CELL: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Luminance, means and squares in one row of cells of an image, WIDTH pixels of it."""
    number, cell_row, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    row = cell_row * CELL + tl.arange(0, CELL)[:, None]
    column = part * WIDTH + tl.arange(0, WIDTH)[None, :]
    CELLS: tl.constexpr = SIDE // CELL
    BLOCKS: tl.constexpr = SIDE // BLOCK
    cell_column = part * (WIDTH // CELL) + tl.arange(0, WIDTH // CELL)
    block_row = cell_row * (CELL // BLOCK) + tl.arange(0, CELL // BLOCK)[:, None]
    block_column = part * (WIDTH // BLOCK) + tl.arange(0, WIDTH // BLOCK)[None, :]
    luma = tl.zeros((CELL, WIDTH), tl.float32)
    for plane in tl.static_range(3):
        each = number * 3 + plane
        value = tl.load(images + (each * SIDE + row) * SIDE + column).to(tl.float32)
        luma += value * (_RED if plane == 0 else _GREEN if plane == 1 else _BLUE)
        narrow = tl.sum(tl.reshape(value, (CELL, WIDTH // BLOCK, BLOCK)), 2)
        sums = tl.sum(tl.reshape(narrow, (CELL // BLOCK, BLOCK, WIDTH // BLOCK)), 1)
        tl.store(means + (each * BLOCKS + block_row) * BLOCKS + block_column, sums / (BLOCK * BLOCK))
        squared = _cell_mean(value * value, CELL, WIDTH)
        tl.store(squares + (each * CELLS + cell_row) * CELLS + cell_column, squared)
    tl.store(lumas + (number * SIDE + row) * SIDE + column, tl.minimum(luma, 1.0))


@triton.jit
def _edge_kernel(lumas, edges, SIDE: tl.constexpr, CELL: tl.constexpr, WIDTH: tl.constexpr):
    """Gradients of luminance in one row of cells of an image, WIDTH pixels of it."""
    number, cell_row, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    image = lumas + number * SIDE * SIDE
    row = cell_row * CELL + tl.arange(0, CELL)[:, None]
    column = part * WIDTH + tl.arange(0, WIDTH)[None, :]
    # Pixels beyond a border are those at it.
    above, below = image + tl.maximum(row - 1, 0) * SIDE, image + tl.minimum(row + 1, SIDE - 1) * SIDE
    here, left, right = image + row * SIDE, tl.maximum(column - 1, 0), tl.minimum(column + 1, SIDE - 1)
    above_left, above_right = tl.load(above + left), tl.load(above + right)
    below_left, below_right = tl.load(below + left), tl.load(below + right)
    across = 2 * (tl.load(here + right) - tl.load(here + left))
    down = 2 * (tl.load(below + column) - tl.load(above + column))
    to_right = (across + (above_right - above_left) + (below_right - below_left)) / 4
    downwards = (down + (below_left - above_left) + (below_right - above_right)) / 4
    magnitude = tl.sqrt(to_right * to_right + downwards * downwards) * _HALF_DIAGONAL
    CELLS: tl.constexpr = SIDE // CELL
    cell = cell_row * CELLS + part * (WIDTH // CELL) + tl.arange(0, WIDTH // CELL)
    at = edges + number * 3 * CELLS * CELLS + cell
    tl.store(at, _cell_mean(to_right, CELL, WIDTH))
    tl.store(at + CELLS * CELLS, _cell_mean(downwards, CELL, WIDTH))
    tl.store(at + 2 * CELLS * CELLS, _cell_mean(magnitude, CELL, WIDTH))


@triton.jit
def _feature(colour, along, image, row, column, inside, AXIS: tl.constexpr, SIDE: tl.constexpr):
    """What SLIC compares of pixels: row, column, or one of three of colour; 0 for those not `inside`."""
    if AXIS == 0:
        at = along + row
    elif AXIS == 1:
        at = along + column
    else:
        at = colour + ((image * 3 + AXIS - 2) * SIDE + row) * SIDE + column
    return tl.load(at, inside, 0.0)


@triton.jit
def _assign_kernel(
    colour,
    along,
    centres,
    sums,
    labels,
    SIDE: tl.constexpr,
    CENTRES: tl.constexpr,
    STEP: tl.constexpr,
    AREA: tl.constexpr,
    LAST: tl.constexpr,
):
    """The pixels nearest to one centre of the start: which of the 9 around each is of now, or sums over them.

    The sums are of the row, the column, three of colour, and 1.
    """
    number = tl.program_id(0).to(tl.int64)
    image, cell = number // (CENTRES * CENTRES), number % (CENTRES * CENTRES)
    down, across = (cell // CENTRES).to(tl.int32), (cell % CENTRES).to(tl.int32)
    place = tl.arange(0, AREA)
    row, column = down * STEP + place // STEP, across * STEP + place % STEP
    inside = (place < STEP * STEP) & (row < SIDE) & (column < SIDE)
    near = tl.arange(0, 16)
    other_down, other_across = down + near // 3 - 1, across + near % 3 - 1
    there = (near < 9) & (other_down >= 0) & (other_down < CENTRES)
    there = there & (other_across >= 0) & (other_across < CENTRES)
    other = other_down * CENTRES + other_across
    apart = tl.zeros((16, AREA), tl.float32)
    squared = tl.zeros((16,), tl.float32)
    for axis in tl.static_range(5):
        value = _feature(colour, along, image, row, column, inside, axis, SIDE)
        centre = tl.load(centres + (image * 5 + axis) * CENTRES * CENTRES + other, there, 0.0)
        squared += centre * centre
        apart += (-2 * centre)[:, None] * value[None, :]
    apart = tl.where(there[:, None], apart + squared[:, None], float("inf"))
    if LAST:
        nearest = tl.argmin(apart, 0)
        label = (down + nearest // 3 - 1) * CENTRES + across + nearest % 3 - 1
        tl.store(labels + (image * SIDE + row) * SIDE + column, label.to(tl.int64), inside)
    else:
        chosen = (apart == tl.min(apart, 0)[None, :]) & inside[None, :]
        at = sums + (number * 9 + near) * 6
        for axis in tl.static_range(5):
            value = _feature(colour, along, image, row, column, inside, axis, SIDE)
            tl.store(at + axis, tl.sum(tl.where(chosen, value[None, :], 0.0), 1), near < 9)
        tl.store(at + 5, tl.sum(chosen.to(tl.float32), 1), near < 9)


@triton.jit
def _move_kernel(sums, centres, CENTRES: tl.constexpr, KINDS: tl.constexpr):
    """Move the centres of an image to the mean of their pixels; one without pixels stays."""
    image = tl.program_id(0).to(tl.int64)
    kind = tl.arange(0, KINDS)
    down, across = kind // CENTRES, kind % CENTRES
    real = kind < CENTRES * CENTRES
    for axis in tl.static_range(5):
        total = tl.zeros((KINDS,), tl.float32)
        size = tl.zeros((KINDS,), tl.float32)
        for near in tl.static_range(9):
            from_down, from_across = down - (near // 3 - 1), across - (near % 3 - 1)
            there = real & (from_down >= 0) & (from_down < CENTRES)
            there = there & (from_across >= 0) & (from_across < CENTRES)
            cell = image * CENTRES * CENTRES + from_down * CENTRES + from_across
            at = sums + (cell * 9 + near) * 6
            total += tl.load(at + axis, there, 0.0)
            size += tl.load(at + 5, there, 0.0)
        where = centres + (image * 5 + axis) * CENTRES * CENTRES + kind
        tl.store(where, total / tl.maximum(size, 1.0), real & (size > 0))
