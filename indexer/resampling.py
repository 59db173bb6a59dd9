"""Squashing images of any shapes to squares on a GPU: one kernel, started once for a batch.

Products with matrices would need some calls of torch for each distinct shape, and a batch of photos has tens
of them. Written in Triton, as `channels.kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from .images import WORKING_SIZE
from .jpeg import PlainJpeg

_ROWS, _WARPS = 8, 4
"""Rows of a square that a program makes, and its warps: of 512 columns, a thread keeps 32 sums."""

_FIELDS = 10
"""Numbers that the kernel is told of an image."""


def squares(images: Sequence[Tensor], orientations: Sequence[int], side: int) -> Tensor:
    """The whole of images, each squashed to a square and then turned upright: uint8 [B, 3, side, side].

    Bicubic and antialiased, by the formulas of Pillow, as `squares.to_square`. Of large images, blocks
    of 2x2, 4x4 or 8x8 pixels are averaged first, where `images.decode_image` decodes reduced.

    Args:
        images: uint8 [3, H, W] each, contiguous, of any sizes, all on one device; at least one.
        orientations: 1 to 8, as `PlainJpeg.orientation`, of each image.
        side: of the squares, in pixels: 2 or more.
    """
    device = images[0].device
    made = torch.empty((len(images), 3, side, side), dtype=torch.uint8, device=device)
    tables = _tables(images, orientations, side).to(device, non_blocking=True)
    grid = triton.cdiv(side, _ROWS), 3, len(images)
    with torch.cuda.device_of(made):
        _squash_kernel[grid](
            tables, made, side, triton.next_power_of_2(side), _ROWS, _FIELDS, num_warps=_WARPS
        )
    return made


def _tables(images: Sequence[Tensor], orientations: Sequence[int], side: int) -> Tensor:
    """All that the kernel is told, as one tensor, so that it is one copy: int32, pinned for a GPU.

    First are `_FIELDS` numbers of 64 bits for each image: where its pixels are; height and width; where the
    `_line` of its height begins, counted from the start of the tensor, and how many weights a row has there;
    the same of its width; and its `_way`. Then come the lines, each distinct one once.
    """
    shapes = [(image.shape[1], image.shape[2]) for image in images]
    kinds = [
        ((height, scale), (width, scale)) for height, width in shapes for scale in [_scale(height, width)]
    ]
    lines = {kind: _line(*kind, side) for kind in dict.fromkeys(kind for both in kinds for kind in both)}
    at, where = 2 * _FIELDS * len(images), {}
    for kind, line in lines.items():
        where[kind] = at, len(line) - 1
        at += line.size
    fields = [
        (image.data_ptr(), *shape, *where[rows], *where[columns], *_way(orientation, side))
        for image, shape, (rows, columns), orientation in zip(
            images, shapes, kinds, orientations, strict=True
        )
    ]
    tables = torch.empty(at, dtype=torch.int32, pin_memory=images[0].is_cuda)
    head = np.array(fields, np.int64).view(np.int32)
    np.concatenate([head.ravel(), *(line.ravel() for line in lines.values())], out=tables.numpy())
    return tables


def _scale(height: int, width: int) -> int:
    """Side of the blocks of pixels whose mean is taken first: both sides keep 2 * `WORKING_SIZE` pixels."""
    shorter = min(height, width)
    return next((scale for scale in (8, 4, 2) if shorter >= 2 * WORKING_SIZE * scale), 1)


@lru_cache(maxsize=1024)
def _line(n: int, scale: int, side: int) -> NDArray[np.int32]:
    """What n pixels in a line give to each of `side`: Keys's kernel, a = -0.5, of means of `scale` pixels.

    Returns:
        [1 + taps, side]: the first pixel that counts, then the weights of it and of those that follow, which
        are the bits of float32. First pixels never decrease; each pixel that has a weight, even 0, exists.
    """
    means = -(-n // scale)
    step = means / side
    reach = 2 * max(step, 1.0)
    centre = ((np.arange(side) + 0.5) * step)[:, None]
    taps = min(means, math.ceil(2 * reach))
    first = np.clip(np.floor(centre - reach + 0.5).astype(np.int64), 0, means - taps)
    x = np.abs(first + np.arange(taps) + 0.5 - centre) / max(step, 1.0)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0))
    weights /= weights.sum(1, keepdims=True)
    # Each mean's weight is shared by its pixels; the last mean may have fewer, and a line begin within one.
    pixels = min(n, taps * scale)
    start = np.minimum(first * scale, n - pixels)
    mean = (start + np.arange(pixels)) // scale
    shares = np.take_along_axis(weights, np.maximum(mean - first, 0), axis=1)
    shares = np.where(mean < first, 0, shares / np.minimum(scale, n - mean * scale))
    bits = np.ascontiguousarray(shares.T, np.float32).view(np.int32)
    return np.concatenate((start.T.astype(np.int32), bits))


@lru_cache(maxsize=64)
def _way(orientation: int, side: int) -> tuple[int, int, int]:
    """Where pixels of a square go when it is turned: the first, and how far it is from each to the next.

    That is to the one that was below, and to the one that was to the right.
    """
    turned = PlainJpeg((side, side), orientation).turn(torch.arange(side * side).reshape(side, side))
    places = turned.flatten().argsort()
    first, right, below = (int(places[pixel]) for pixel in (0, 1, side))
    return first, below - first, right - first


@triton.jit
def _squash_kernel(
    tables,
    made,
    SIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    FIELDS: tl.constexpr,
):
    """ROWS rows of one plane of a square: each row of pixels that counts is squashed, and added to them."""
    part, plane, image = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    fields = tables.to(tl.pointer_type(tl.int64)) + image * FIELDS
    height, width = tl.load(fields + 1), tl.load(fields + 2)
    rows, row_taps = tables + tl.load(fields + 3), tl.load(fields + 4).to(tl.int32)
    columns, column_taps = tables + tl.load(fields + 5), tl.load(fields + 6).to(tl.int32)
    first, below, right = tl.load(fields + 7), tl.load(fields + 8), tl.load(fields + 9)
    row = part * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    # Beyond the square, all is as at its border, and is not kept.
    near_row, near_column = tl.minimum(row, SIDE - 1), tl.minimum(column, SIDE - 1)
    row_weights = (rows + SIDE).to(tl.pointer_type(tl.float32)) + near_row
    column_weights = (columns + SIDE).to(tl.pointer_type(tl.float32)) + near_column
    top, left = tl.load(rows + near_row), tl.load(columns + near_column)
    pixel_row = tl.load(rows + part * ROWS)
    end = tl.load(rows + tl.minimum(part * ROWS + ROWS, SIDE) - 1) + row_taps
    pixels = tl.load(fields).to(tl.pointer_type(tl.uint8)) + (plane * height + pixel_row) * width
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    while pixel_row < end:  # no `range`, which Triton 3.6 interprets with old NumPy only
        line = tl.zeros((1, WIDTH), tl.float32)
        tap = 0
        while tap < column_taps:
            value = tl.load(pixels + tap + left).to(tl.float32)
            line += value * tl.load(column_weights + tap * SIDE)
            tap += 1
        row_tap = pixel_row - top
        counts = (row_tap >= 0) & (row_tap < row_taps)
        sums += tl.load(row_weights + row_tap * SIDE, counts, 0.0) * line
        pixel_row, pixels = pixel_row + 1, pixels + width
    rounded = tl.minimum(tl.maximum(tl.floor(sums + 0.5), 0.0), 255.0).to(tl.uint8)
    square = made + (image * 3 + plane) * SIDE * SIDE + first
    tl.store(square + row * below + column * right, rounded, (row < SIDE) & (column < SIDE))
