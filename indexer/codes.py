"""Makes codes: the features of images, so compressed that the map of any direction can be made again.

See `catalogue.codes` for what they are and how they are read. All is done in batches, where the features lie;
what comes back is whole numbers, for zstd.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..catalogue.codes import (
    BLOCK,
    FIXED_BYTES,
    LARGEST,
    MOST_FREQUENCIES,
    NARROW,
    Codebook,
    block_order,
    cosines,
    padded,
    seal,
)
from ..catalogue.errors import UsageError
from ..catalogue.grid import resize_matrix
from . import sizes
from .matrices import fetch, largest, on_device

_log = logging.getLogger(__name__)

BUDGET = 11_976
"""Bytes of a code at most: with the header of its record they are 12,000, in three pages of LMDB."""

LEAST_RANK = 6.0
"""A rank whose singular value is fewer steps costs more bytes than a finer step does."""

FINENESS = 0.8
"""Steps of U are larger than those of B by this: B is fitted to what U has become."""

ROUND_UP = 0.58
"""A number is rounded away from 0 from this on: zeros take the fewest bits (a dead zone)."""

COARSER = 1
"""Exponents by which the step of a code grows that has come out too large: its size is foretold to some 3%,
and an exponent is about as much."""

RANKS = 112
"""Ranks that are looked for: more than the 40 to 80 that `BUDGET` has room for."""

_NEGLIGIBLE = 1e-12
_NOISE = 1e-5
_FINEST = 256
_STEPS_AN_OCTAVE = 16
"""The finest step is 2^(-256 / 16) of the size of the matrix."""

_EXPONENTS_AN_E = 28
"""By how much the exponent grows where a code becomes larger by a factor of e."""

_LADDER = 16
"""Square root of the number of exponents."""

_SPREAD = 12.0
"""c of `_Fitter._estimated`, fitted to 40 photos, maps of 16x16 and 32x32: off by less than one in the
mean, by three at most."""

_SMALLEST = float(np.finfo(np.float32).tiny)
_TOO_LARGE = 1e30
_BATCH = 4
_RIDGE = 1e-4
"""Part of a unit vector's square that is added to the products of rows, so that they can be divided by."""

_SEALED_AT_ONCE = 32
"""Tables that a thread makes codes of, one after the other."""

Seal = Callable[[Sequence["_Table"]], list[bytes]]

Compress = Callable[[Seal, Sequence[Sequence["_Table"]]], Iterable[list[bytes]]]


class Coder:
    """Makes codes of one encoder's features.

    Args:
        codebook: of the encoder.
        side: of the maps.
        device: where the features lie.
    """

    def __init__(self, codebook: Codebook, side: int, device: str) -> None:
        self._side = side
        self._spread = torch.from_numpy(codebook.spread).to(device)
        if self._spread.is_cuda:
            # Loads torch's linear algebra, which fails if two threads use it first (pytorch#90613).
            torch.linalg.cholesky(torch.eye(1, device=device))

    @torch.inference_mode()
    def codes(self, features: Tensor, compress: Compress = map) -> list[bytes]:
        """Codes of images: each about as exact as `BUDGET` bytes allow.

        Args:
            features: of the patches, float32 [B, dim, rows, columns].
            compress: works like `map`. zstd does without Python's lock, so that threads gain.

        Raises:
            UsageError: `features` are not of the codebook's dim, or not numbers below 1e30.
        """
        dim = self._spread.shape[1]
        if features.ndim != _BATCH or features.shape[1] != dim:
            raise UsageError(f"features must be [B, {dim}, rows, columns], got {list(features.shape)}")
        check_range(features)
        rows, columns = (
            on_device(_frequency_matrix, features.device, n, self._side) for n in features.shape[2:]
        )
        # The dims of a patch lie together, as encoders leave them: each product goes over memory as it lies.
        # Else torch would copy many images, but not one, which then comes out otherwise on some processors.
        across = columns @ features.permute(0, 2, 3, 1).contiguous()
        kept = (rows @ across.flatten(2)).reshape(len(features), -1, dim)
        fine = on_device(fine_enough, features.device, self._side)
        fitter = _Fitter(kept[:, fine] @ self._spread.mT, self._side)
        exponents = fitter.search()
        codes = [b""] * len(features)
        places = list(range(len(features)))
        while places:
            tables = fitter.tables(places, exponents)
            starts = range(0, len(tables), _SEALED_AT_ONCE)
            made = compress(_sealed, [tables[start : start + _SEALED_AT_ONCE] for start in starts])
            for place, code in zip(places, chain.from_iterable(made), strict=True):
                codes[place] = code
            places = [place for place in places if len(codes[place]) > BUDGET and exponents[place] > 0]
            for place in places:
                exponents[place] = max(0, exponents[place] - COARSER)
        return codes


def check_range(features: Tensor) -> None:
    """Refuse features that codes cannot be made of, nor of their means, in which they may cancel out.

    Raises:
        UsageError: they are not numbers below 1e30.
    """
    if not largest(features) < _TOO_LARGE:
        raise UsageError("features must be finite, and below 1e30: the encoder gives numbers out of range")


def frequencies(side: int) -> int:
    """How many frequencies a side are kept of maps of side x side: all up to 12, else five in eight, or 12.

    A map is on the coarsest grid that carries it: what it has of the highest ones is noise.
    """
    return min(side, max(12, math.ceil(side * 5 / 8)), MOST_FREQUENCIES)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What `seal` takes."""

    side: int
    frequencies: int
    width: int
    step: np.float32
    scales: NDArray[np.float16]
    wide: NDArray[np.int8]
    pairs: NDArray[np.int8]

    def code(self) -> bytes:
        return seal(
            side=self.side,
            frequencies=self.frequencies,
            width=self.width,
            step=self.step,
            scales=self.scales,
            wide=self.wide,
            pairs=self.pairs,
        )


def _sealed(tables: Sequence[_Table]) -> list[bytes]:
    return [table.code() for table in tables]


@dataclass(frozen=True, slots=True, eq=False)
class _Packed:
    """Tables of a batch, cut into blocks that lie as in a code.

    Attributes:
        blocks: int8 [B, n, 32].
        pairs: int8 [B, m, 32], each two blocks of four bits a number. Those of an image start with its
            block 0 or 1, so that the first of four bits is the first of a pair.
        wide: int64 [B], how many blocks have a byte a number.
        end: int64 [B], how many are kept.
    """

    blocks: Tensor
    pairs: Tensor
    wide: Tensor
    end: Tensor


def fine_enough(side: int) -> NDArray[np.int64]:
    """Which of the F^2 frequencies of maps of side x side are kept, the mean first: int64 [m].

    Where the highest along a side are left out, those along diagonals are left out as well, as far from the
    mean: a quarter of a disc. The corner beyond it had at most 6e-5 of the energy of photos, and took a fifth
    of the time.
    """
    kept = frequencies(side)
    squared = np.add.outer(np.arange(kept) ** 2, np.arange(kept) ** 2).flatten()
    return np.flatnonzero(squared <= (kept - 1) ** 2 if kept < side else squared >= 0)


class _Fitter:
    """Fits codes to the matrices [B, m, K] of images: first row the mean, the others close to U B.

    Their rows are the frequencies that are `fine_enough`. For the others, U is 0.

    The columns of U are the left singular vectors. B is the best for U as it was rounded, so that the errors
    of U cost nothing but what they lose of the space. Everything is in units of the size of the matrix.
    """

    def __init__(self, matrix: Tensor, side: int) -> None:
        self._side = side
        largest = torch.linalg.vector_norm(matrix, torch.inf, dim=(1, 2), keepdim=True)
        largest = torch.where(largest > 0, largest, 1)  # or squares may be out of range
        unit = matrix / largest
        norm = torch.linalg.vector_norm(unit, dim=(1, 2), keepdim=True)
        norm = torch.where(norm > 0, norm, 1)
        unit /= norm
        self._size = (norm.double() * largest.double())[:, 0, 0]
        self._mean = unit[:, :1].clone()
        unit[:, 0] = 0
        self._rest = unit
        left = _left_vectors(unit)
        self._right = left @ unit
        self._left = left.new_zeros(*left.shape[:2], frequencies(side) ** 2)
        self._left[:, :, self._places] = left
        # Not what vectors come with: of the smallest, squares are rounding.
        self._singular: Tensor = self._right.norm(dim=2).cummin(1).values
        self._largest = self._left.abs().amax(2)

    @property
    def _places(self) -> Tensor:
        return on_device(fine_enough, self._rest.device, self._side)

    def search(self) -> list[int]:
        """The exponent of the finest step with which the code of each image is foretold to fit `BUDGET`."""
        low = torch.zeros_like(self._size, dtype=torch.int64)
        high = torch.full_like(low, _FINEST)
        tried, found = self._estimated(), torch.empty_like(low)
        left = torch.arange(len(low), device=low.device)
        while True:
            size = self._foretold(left, tried)
            fits = size <= BUDGET
            low, high = torch.where(fits, tried, low), torch.where(fits, high, tried)
            aim = tried + (BUDGET / size).log().mul_(_EXPONENTS_AN_E).floor_().long()
            aim = torch.minimum(torch.maximum(aim, low), high - 1).clamp_(min=0)
            found[left] = aim
            # An exponent is as much as sizes are foretold to. An image is done whatever others still need.
            going_on = ((aim - tried).abs() > 1).nonzero()[:, 0]
            if not len(going_on):
                exponents: list[int] = found.tolist()
                return exponents
            left, tried, low, high = left[going_on], aim[going_on], low[going_on], high[going_on]

    def _estimated(self) -> Tensor:
        """About the exponent that `search` finds, int64 [B], from the singular values alone.

        Numbers that vary by s steps take some log2(1 + c s^2) / 2 bits each. Sizes rise with exponents, so
        that 16 of them far apart are looked at, and then 16 next to each other.
        """
        area, width = self._left.shape[2], self._rest.shape[2]
        singular = self._singular
        found = torch.zeros_like(self._size, dtype=torch.int64)
        for stride in (_LADDER, 1):
            exponent = found + stride * torch.arange(_LADDER, device=found.device)[:, None]
            step = _step(exponent, self._size)[:, :, None]
            squared = torch.where(singular > LEAST_RANK * step, singular / step, 0).square() * _SPREAD
            bits = (1 + squared * (FINENESS**2 / area)).log2() * area + (1 + squared / width).log2() * width
            fits = bits.sum(2) <= 16 * BUDGET
            found = found + stride * (fits.sum(0) - 1).clamp(min=0)
        return found

    def _foretold(self, chosen: Tensor, exponent: Tensor) -> Tensor:
        """Bytes that codes of `chosen` images with the steps of these exponents will have: float32 [n]."""
        step = _step(exponent, self._size[chosen])
        orders = on_device(_orders, step.device, self._left.shape[2], self._rest.shape[2])
        held = self._left, self._right, self._mean, self._singular, chosen, step, orders
        if self._size.is_cuda:
            from .foretelling import code_bytes

            return code_bytes(*held)
        left, right, mean, singular, places, steps, order = (each.numpy() for each in held)
        found = sizes.code_bytes(
            left, right, mean, singular, places, steps, order, FINENESS, LEAST_RANK, ROUND_UP
        )
        return torch.from_numpy(found).add_(FIXED_BYTES)

    def tables(self, places: Sequence[int], exponents: Sequence[int]) -> list[_Table]:
        """Tables of the images at `places`, with the steps of their `exponents`."""
        chosen = torch.tensor(places, device=self._size.device)
        fitter = self if len(places) == len(self._size) else self._only(chosen)
        exponent = torch.tensor([exponents[place] for place in places], device=chosen.device)
        return fitter._tables(exponent)

    def _only(self, chosen: Tensor) -> _Fitter:
        """Itself, of some of the images."""
        fitter = object.__new__(_Fitter)
        for name, value in vars(self).items():
            setattr(fitter, name, value[chosen] if isinstance(value, Tensor) else value)
        return fitter

    def _tables(self, exponent: Tensor) -> list[_Table]:
        step = _step(exponent, self._size)
        rank = self._rank(step)
        most = int(rank.amax())
        u, fineness = self._rounded(step, rank, most)
        rows = u / fineness[:, :, None]
        kept = torch.arange(most, device=rank.device) < rank[:, None]
        products = rows @ rows.mT + torch.where(kept, _RIDGE, 1).diag_embed()
        lower = torch.linalg.cholesky(products)
        # Not by `cholesky_inverse`, which takes memory from a GPU itself, and so has all of it wait.
        half = torch.linalg.solve_triangular(lower, rows[:, :, self._places] @ self._rest, upper=False)
        fitted = torch.linalg.solve_triangular(lower.mT, half, upper=True)
        b = torch.cat((self._mean, fitted / fineness[:, :, None]), 1)
        scales = torch.cat((torch.ones_like(step)[:, None], 1 / fineness), 1)
        scales = torch.maximum(scales, b.abs().amax(2) / (LARGEST * step[:, None])).half()
        numbers = b / (scales.float() * step[:, None])[:, :, None]
        packed = self._packed(u, _away_from_zero(numbers), rank)
        steps = (step.double() * self._size).float()
        return self._on_host(packed, rank, scales, steps)

    def _on_host(self, packed: _Packed, rank: Tensor, scales: Tensor, steps: Tensor) -> list[_Table]:
        counts = torch.stack((rank, packed.wide, packed.end), 1)
        fetched = fetch(packed.blocks, packed.pairs, scales, steps, counts)
        kept, width = frequencies(self._side), self._rest.shape[2]
        tables = []
        for blocks, pairs, rows, step, (ranks, wide, end) in zip(*fetched, strict=True):
            halves = pairs[wide // 2 : wide // 2 + (end - wide) // 2]
            tables.append(_Table(self._side, kept, width, step, rows[: 1 + ranks], blocks[:wide], halves))
        return tables

    def _rank(self, step: Tensor) -> Tensor:
        """How many singular values are worth keeping with a step: [B]."""
        return (self._singular > LEAST_RANK * step[:, None]).sum(1)

    def _rounded(self, step: Tensor, rank: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """U in whole numbers, float32 [B, most, F^2], and what they are multiples of, [B, most].

        Rows from the rank of an image on are 0.
        """
        singular, largest = self._singular[:, :most], self._largest[:, :most]
        fineness = torch.minimum(FINENESS * singular / step[:, None], LARGEST / largest)
        kept = torch.arange(most, device=rank.device) < rank[:, None]
        fineness = torch.where(kept, fineness, 1)
        u = (self._left[:, :most] * fineness[:, :, None]).round_() * kept[:, :, None]
        return u, fineness

    def _packed(self, u: Tensor, b: Tensor, rank: Tensor) -> _Packed:
        count, most, area = u.shape
        width = b.shape[2]
        table = torch.zeros(count, 1 + most, padded(area) + padded(width), dtype=torch.int8, device=u.device)
        table[:, 1:, :area] = u
        table[:, 0, padded(area) : padded(area) + width] = b[:, 0]
        kept = torch.arange(most, device=rank.device) < rank[:, None]
        table[:, 1:, padded(area) : padded(area) + width] = b[:, 1:] * kept[:, :, None]
        orders = on_device(_orders, u.device, area, width)
        # Behind its last, an image takes block 0 again and again: the mean has no U, so that it is all zeros.
        order = orders[rank, : (1 + most) * table.shape[2] // BLOCK]
        blocks = table.reshape(count, -1, BLOCK).gather(1, order[:, :, None].expand(-1, -1, BLOCK))
        largest = blocks.abs().amax(2)
        behind = torch.arange(1, blocks.shape[1] + 1, device=u.device)
        wide, end = ((behind * (largest > bound)).amax(1) for bound in (NARROW, 0))
        wide = wide + (end - wide) % 2
        last = blocks.shape[1] - 1
        aligned = (wide % 2)[:, None] + torch.arange((last + 1) // 2 * 2, device=u.device)
        aligned = aligned.clamp_(max=last)  # of a pair beyond the end
        halves = blocks.gather(1, aligned[:, :, None].expand(-1, -1, BLOCK))
        low, high = halves[:, 0::2], halves[:, 1::2]
        return _Packed(blocks, low & 15 | high << 4, wide, end)


def _left_vectors(matrix: Tensor) -> Tensor:
    """Left singular vectors of the largest values, at most `RANKS`, as rows [B, R, m], of matrices [B, m, n].

    On a GPU, where an eigenvalue problem of many more rows takes 1.7 ms an image, the range is sketched (N.
    Halko, P. Martinsson, J. Tropp, "Finding structure with randomness", SIAM Review 53(2), 2011, with one
    power iteration), and what is within it decomposed.
    """
    if not matrix.is_cuda:
        return _left_vectors_of_all(matrix)
    # The quickest solver there fails for matrices that lack a rank: those of flat images do, and all do, as
    # the row of the mean is zeros. With a little noise, none lacks any.
    matrix = matrix + on_device(_noise, matrix.device, *matrix.shape[1:])
    if matrix.shape[1] <= RANKS:
        return _left_vectors_of_all(matrix)
    base = _orthonormal(matrix @ on_device(_directions, matrix.device, matrix.shape[2]))
    base = _orthonormal(matrix @ (matrix.mT @ base))
    left: Tensor = _left_vectors_of_all(base.mT @ matrix) @ base.mT
    return left


def _left_vectors_of_all(matrix: Tensor) -> Tensor:
    left: Tensor
    if matrix.is_cuda:
        try:
            left = torch.linalg.svd(matrix.mT, full_matrices=False, driver="gesvda")[2]
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            _log.warning("singular vectors are found the slow way, as the quick one fails: %s", error)
        else:
            if left.isfinite().all():
                return left
    # In single precision, LAPACK does not solve it for some matrices of rank 1.
    vectors = torch.linalg.eigh((matrix @ matrix.mT).double())[1]
    left = vectors[:, :, -RANKS:].flip(2).mT.float().contiguous()
    return left


def _orthonormal(columns: Tensor) -> Tensor:
    """An orthonormal base [B, m, R] of columns [B, m, R], by Cholesky's decomposition of their products."""
    exact = columns.double()
    products = exact.mT @ exact
    size = products.diagonal(dim1=1, dim2=2).amax(1).clamp(min=_SMALLEST)
    ridge = (_NEGLIGIBLE * size)[:, None].expand(products.shape[:2]).diag_embed()
    lower = torch.linalg.cholesky(products + ridge)
    rows: Tensor = torch.linalg.solve_triangular(lower, exact.mT, upper=False)
    return rows.mT.float()


def _step(exponent: Tensor, size: Tensor) -> Tensor:
    """Step 2^(-exponent / 16), float32 of the shape of `exponent`, [B] or [n, B], for matrices of `size`."""
    step = torch.exp2(-exponent.double() / _STEPS_AN_OCTAVE)
    return torch.maximum(step, _SMALLEST / size).float()


def _away_from_zero(numbers: Tensor) -> Tensor:
    rounded = torch.copysign((numbers.abs() + (1 - ROUND_UP)).floor_(), numbers)
    return rounded.clamp_(-LARGEST, LARGEST)


def _directions(width: int) -> NDArray[np.float32]:
    """[width, R], random: along which the range of a matrix is sketched."""
    return np.random.default_rng(0).standard_normal((width, RANKS), np.float32)


def _noise(rows: int, width: int) -> NDArray[np.float32]:
    """[rows, width], random: singular values of 4e-4 of a matrix of 1,291 columns whose size is 1."""
    return np.float32(_NOISE) * np.random.default_rng(1).standard_normal((rows, width), np.float32)


def _frequency_matrix(n: int, side: int) -> NDArray[np.float32]:
    """From n cells to the frequencies that are kept of `side` cells: [F, n]."""
    matrix: NDArray[np.float32] = cosines(side, frequencies(side)) @ resize_matrix(n, side)
    return matrix


def _orders(area: int, width: int) -> NDArray[np.int64]:
    """For each rank, the order of the blocks of its table, filled up with block 0: [1 + R, n]."""
    columns, ranks = (padded(area), padded(width)), min(area, RANKS)
    orders = np.zeros((1 + ranks, (1 + ranks) * sum(columns) // BLOCK), np.int64)
    for rank in range(1 + ranks):
        order = block_order(1 + rank, *columns)
        orders[rank, : len(order)] = order
    return orders
