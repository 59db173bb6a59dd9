"""Decoding a batch of files to the squares that encoder and channels take, where the encoder runs.

On a GPU, plain JPEG files are decoded there by nvJPEG, through torchvision. What differs from Pillow's
reading of the same file is a level or two of 255, from other rounding. All other files, and those that nvJPEG
refuses, are decoded by the processor, on all of its cores.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
        if self._on_gpu:
            # nvJPEG only reads the files, and to copy them holds Python's lock. But of bytes that must not be
            # written to, torch warns, once in a process: now.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.frombuffer(b"x", dtype=torch.uint8)

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
        joined = self._maker.joined(working)
        same = squares[0] is working[0]
        return Decoded(outcomes, joined, joined if same else self._maker.joined(squares))

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
        # nvJPEG writes in a stream of its own, which waits for nobody: to memory that was this stream's.
        self._maker.wait()
        with self._lock:
            self.on_cpu += len(others)  # once it is sure that they are not decoded again
        return made

    def _by_processor(self, file: Content) -> _Squares | ImageReadError:
        try:
            loaded = decode_image(*file)
        except ImageReadError as error:
            return error
        return _Squares(loaded.size, *self._maker.squares(loaded))

    def _by_gpu(self, contents: Sequence[bytes]) -> list[Tensor | None]:
        """Images uint8 [3, height, width]; None for one that nvJPEG refuses."""
        if not contents:
            return []
        from torchvision.io import ImageReadMode, decode_jpeg

        device = self._maker.device
        encoded = [torch.frombuffer(content, dtype=torch.uint8) for content in contents]
        before = torch.cuda.memory_stats(device)["num_ooms"]
        try:
            return list(decode_jpeg(encoded, ImageReadMode.RGB, device=device))
        except RuntimeError as error:  # it does not say of which image
            if torch.cuda.memory_stats(device)["num_ooms"] > before:  # nor, by its type, why
                raise torch.OutOfMemoryError(str(error)) from error
            if len(contents) == 1:
                return [None]
            half = len(contents) // 2
            return self._by_gpu(contents[:half]) + self._by_gpu(contents[half:])

    def _table(self, profile: bytes) -> Tensor | None:
        """What the colours of an ICC profile are in sRGB, for `_converted`; None where they are the same."""
        if profile not in self._tables:
            found = colour_table(profile, TABLE_SIDE) if profile else None
            table = None if found is None else torch.from_numpy(found.copy()).to(self._maker.device).float()
            self._tables[profile] = None if table is None else table.permute(3, 2, 1, 0)[None]
        return self._tables[profile]

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
        batches = self._squashed(images, {WORKING_SIZE, side})
        if squared:
            order = [*images, *(place for place in rows if place not in images)]
            index = self._index(np.argsort(order))
            others = {
                side: [each.square for each in squared],
                WORKING_SIZE: [each.working for each in squared],
            }
            batches = {
                size: torch.cat((made, maker.batch(others[size])))[index] for size, made in batches.items()
            }
        return Decoded(outcomes, batches[WORKING_SIZE], batches[side])

    def _squashed(
        self, images: dict[int, tuple[Tensor, PlainJpeg]], sizes: Collection[int]
    ) -> dict[int, Tensor]:
        """Images from the GPU as upright squares in sRGB, in order: uint8 [B, 3, size, size] of each size."""
        from .resampling import squares

        pixels = [image for image, _ in images.values()]
        orientations = [found.orientation for _, found in images.values()]
        batches = {size: squares(pixels, orientations, size) for size in sizes}
        profiles: dict[bytes, list[int]] = {}
        for row, (_, found) in enumerate(images.values()):
            profiles.setdefault(found.profile, []).append(row)
        for profile, rows in profiles.items():
            if (table := self._table(profile)) is None:
                continue
            index = self._index(np.array(rows))
            for made in batches.values():
                made[index] = _converted(made[index], table)
        return batches

    def _index(self, rows: NDArray[np.intp]) -> Tensor:
        """Rows of a batch where it is: from pinned memory, as else it would wait for all that was begun."""
        index = torch.from_numpy(rows)
        return index.pin_memory().to(self._maker.device, non_blocking=True) if self._on_gpu else index


def _converted(squares: Tensor, table: Tensor) -> Tensor:
    """Squares, uint8 [B, 3, side, side], whose colours a table [1, 3, n, n, n] tells, 0 to 255, in sRGB."""
    places = (squares.float() / 127.5 - 1).permute(0, 2, 3, 1)[:, None]
    tables = table.expand(len(squares), -1, -1, -1, -1)
    made = F.grid_sample(tables, places, padding_mode="border", align_corners=True)
    return made[:, :, 0].round_().byte()
