"""Decoding a batch of files to the squares that encoder and channels take, where the encoder runs.

On a GPU, plain JPEG files are decoded there by nvJPEG, through torchvision. What differs from Pillow's
reading of the same file is a level or two of 255, from other rounding. All other files, and those that nvJPEG
refuses, are decoded by the processor, on all of its cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..catalogue.errors import ImageReadError
from .codes import Compress
from .images import WORKING_SIZE, colour_table, decode_image
from .jpeg import PlainJpeg, plain_jpeg
from .matrices import both_sides
from .textures import TextureMaker

TABLE_SIDE = 33
"""Values of red, green and blue in the table of a colour profile; between them, it is interpolated."""

Content = tuple[bytes, bytes]
"""The content of a file, and its path."""

Size = tuple[int, int]
"""Width and height of an upright image, in pixels."""


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A batch.

    Attributes:
        outcomes: for each file, the size of its image, or why it cannot be read.
        working: uint8 [B, 3, 512, 512], the images that can be read; None if there is none.
        squares: the same as the encoder takes them.
    """

    outcomes: Sequence[Size | ImageReadError]
    working: Tensor | None = None
    squares: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Squares:
    """One image, decoded by the processor: uint8 [side, side, 3] each."""

    size: Size
    working: NDArray[np.uint8]
    square: NDArray[np.uint8]


class Decoder:
    """Decodes batches for one `TextureMaker`. Use it as a context.

    Attributes:
        on_cpu: images that the processor decoded for a GPU.
    """

    def __init__(self, maker: TextureMaker) -> None:
        self.on_cpu = 0
        self._lock = Lock()
        self._tables: dict[bytes, Tensor | None] = {}
        self._maker = maker
        self._on_gpu = maker.device.type == "cuda"
        self._pool = ThreadPoolExecutor(os.cpu_count(), "texcat-decode") if self._on_gpu else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def map(self) -> Compress:
        """A `map` that uses the cores that a GPU leaves idle."""
        return map if self._pool is None else self._pool.map

    @torch.inference_mode()
    def decode(self, files: Sequence[Content]) -> Decoded:
        """Decode `files`, in order."""
        if self._pool is None:
            return self._put_together([self._by_processor(file) for file in files], {})
        parts = self._maker.in_parts("decode", len(files), lambda part: self._decode(files[part]))
        outcomes = [outcome for part in parts for outcome in part.outcomes]
        working = [part.working for part in parts if part.working is not None]
        squares = [part.squares for part in parts if part.squares is not None]
        if not working:
            return Decoded(outcomes)
        return Decoded(outcomes, self._maker.joined(working), self._maker.joined(squares))

    def _decode(self, files: Sequence[Content]) -> Decoded:
        """The same on a GPU."""
        assert self._pool is not None
        plain = [plain_jpeg(content) for content, _ in files]
        chosen = [place for place, found in enumerate(plain) if found is not None]
        decoded = dict(zip(chosen, self._by_gpu([files[place][0] for place in chosen]), strict=True))
        images = {
            place: (image, found)
            for place, image in decoded.items()
            if image is not None and (found := plain[place]) is not None
        }
        others = [file for place, file in enumerate(files) if place not in images]
        by_processor = iter(list(self._pool.map(self._by_processor, others)))
        rest = [None if place in images else next(by_processor) for place in range(len(files))]
        made = self._put_together(rest, images)
        with self._lock:
            self.on_cpu += len(others)  # once it is sure that they are not decoded again
        return made

    def _by_processor(self, file: Content) -> _Squares | ImageReadError:
        try:
            loaded = decode_image(*file)
        except ImageReadError as error:
            return error
        return _Squares(loaded.size, *self._maker.squares(loaded.image))

    def _by_gpu(self, contents: Sequence[bytes]) -> list[Tensor | None]:
        """Images uint8 [3, height, width]; None for one that nvJPEG refuses."""
        if not contents:
            return []
        from torchvision.io import ImageReadMode, decode_jpeg

        # Copied, as torch wants to be able to write. Python's lock is kept: to get it back takes longer.
        encoded = [torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents]
        try:
            return list(decode_jpeg(encoded, ImageReadMode.RGB, device=self._maker.device))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # it does not say of which image
            if len(contents) == 1:
                return [None]
            half = len(contents) // 2
            return self._by_gpu(contents[:half]) + self._by_gpu(contents[half:])

    def _converted(self, squares: Tensor, profile: bytes) -> Tensor:
        """Squares [B, 3, side, side], 0 to 255, whose colours an ICC profile tells, in sRGB."""
        if not profile:
            return squares
        if profile not in self._tables:
            found = colour_table(profile, TABLE_SIDE)
            table = None if found is None else torch.from_numpy(found.copy()).to(self._maker.device).float()
            self._tables[profile] = None if table is None else table.permute(3, 2, 1, 0)[None]
        table = self._tables[profile]
        if table is None:
            return squares
        places = (squares.float() / 127.5 - 1).permute(0, 2, 3, 1)[:, None]
        tables = table.expand(len(squares), -1, -1, -1, -1)
        return F.grid_sample(tables, places, padding_mode="border", align_corners=True)[:, :, 0].round_()

    def _put_together(
        self, found: Sequence[_Squares | ImageReadError | None], images: dict[int, tuple[Tensor, PlainJpeg]]
    ) -> Decoded:
        """One batch of what the processor `found`, and of the `images` from the GPU in the places of None."""
        outcomes: list[Size | ImageReadError] = []
        rows: dict[int, int] = {}
        for place, each in enumerate(found):
            if isinstance(each, ImageReadError):
                outcomes.append(each)
                continue
            rows[place] = len(rows)
            outcomes.append(images[place][1].upright_size if each is None else each.size)
        if not rows:
            return Decoded(outcomes)
        maker, side = self._maker, self._maker.encoder.input_size
        squared = [each for each in found if isinstance(each, _Squares)]
        if len(squared) == len(rows):
            working = maker.batch([each.working for each in squared])
            same = side == WORKING_SIZE
            return Decoded(
                outcomes, working, working if same else maker.batch([each.square for each in squared])
            )
        parts: dict[int, list[Tensor]] = {size: [] for size in (WORKING_SIZE, side)}
        order = [place for place in rows if place not in images]
        if squared:
            parts[side] = [maker.batch([each.square for each in squared])]
            parts[WORKING_SIZE] = [maker.batch([each.working for each in squared])]
        for groups in _alike(images):
            order += [place for places in groups for place in places]
            shapes = [reduced(torch.stack([images[place][0] for place in places])) for places in groups]
            plain = images[groups[0][0]][1]
            for size, made in parts.items():
                made.append(self._converted(plain.turn(squeezed(shapes, size)), plain.profile).byte())
        # Put in order at the end, by one index: each that goes to the GPU waits for all that was begun.
        index = torch.from_numpy(np.argsort(order)).to(maker.device)
        batches = {size: torch.cat(made)[index] for size, made in parts.items()}
        return Decoded(outcomes, batches[WORKING_SIZE], batches[side])


def _alike(images: dict[int, tuple[Tensor, PlainJpeg]]) -> list[list[list[int]]]:
    """Places of images that are turned alike and have one profile; of these, of those that have one shape."""
    groups: dict[object, dict[torch.Size, list[int]]] = {}
    for place, (image, found) in images.items():
        shapes = groups.setdefault((found.orientation, found.profile), {})
        shapes.setdefault(image.shape, []).append(place)
    return [list(shapes.values()) for shapes in groups.values()]


def reduced(images: Tensor) -> Tensor:
    """Images uint8 [B, 3, H, W]; large ones at 1/2, 1/4 or 1/8, in float32, as `decode_image` has them."""
    height, width = images.shape[2:]
    fits = [scale for scale in (8, 4, 2) if min(height, width) >= 2 * WORKING_SIZE * scale]
    return F.avg_pool2d(images.float(), fits[0], ceil_mode=True) if fits else images


def squeezed(shapes: Sequence[Tensor], side: int) -> Tensor:
    """The whole of images, 0 to 255, squashed to squares: whole numbers [sum of B, 3, side, side].

    Bicubic and antialiased, by the formulas of Pillow, which `images.to_square` uses. On a GPU in half
    precision, in which a number below 256 is off by 1/16 at most: one in 25 is rounded to the other side.

    Args:
        shapes: images [B, 3, H, W] of each shape.
    """
    kind = torch.float16 if shapes[0].is_cuda else torch.float32
    squares = []
    for images in shapes:
        rows, columns = (_bicubic(n, side, images.device, kind) for n in images.shape[2:])
        squares.append(both_sides(rows, images.to(kind), columns))
    return torch.cat(squares).round_().clamp_(0, 255)


@lru_cache(maxsize=256)
def _bicubic(n: int, side: int, device: torch.device, kind: torch.dtype) -> Tensor:
    """[side, n]: what each of n pixels in a line gives to each of `side` (Keys's kernel, a = -0.5)."""
    step = n / side
    centre = (torch.arange(side, device=device, dtype=torch.float64) + 0.5) * step
    pixel = torch.arange(n, device=device) + 0.5
    x = ((pixel - centre[:, None]) / max(step, 1)).abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    weights = torch.where(x < 1, near, torch.where(x < 2, far, 0))
    return (weights / weights.sum(1, keepdim=True)).to(kind)
