"""From the pixels of images to their texture records, in batches, where the encoder runs."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional as F

from ..catalogue.channels import ChannelSchema, Kind
from ..catalogue.codes import Codebook
from ..catalogue.errors import UsageError
from ..catalogue.quantise import LEVELS
from ..catalogue.types import ImageKey, InterestMaps, InterestVectors, Planes, TextureRecord
from .channels import base_channels
from .channels.control import Control
from .codes import Coder, Compress, check_range
from .encoders import DenseEncoder
from .graphs import Function, Graph, give_back
from .images import WORKING_SIZE, LoadedImage
from .lacking import Lacking
from .matrices import fetch, largest, resize
from .squares import square_of
from .streams import stream
from .waiting import Waiting, WaitingRoom

_log = logging.getLogger(__name__)
_In = TypeVar("_In")
_Out = TypeVar("_Out")

AT_ONCE = {"cpu": 8, "cuda": 256}
"""Images whose channels are made together: more take memory, or leave a processor's cache. On a GPU each
kernel waits for the encoder to make room, however few images it is for."""

MOST_AT_ONCE = 256
"""Images of a batch on a GPU, at most: the steps behind the encoder are many and small, and what each of
them costs Python has to be for many images. More are no quicker (design/0014), and take more memory."""

ENCODED_AT_ONCE = 16
"""Images that go through the encoder together on a GPU, at most: it is hardly quicker with more, and what
other stages begin waits until a kernel of the encoder ends. nvJPEG, whose streams have no priority, waits for
each image that it decodes."""

ENCODING = "texcat-encode"
"""Stream of the encoder on a GPU. Threads that encode take turns in it."""

RECORDED_AFTER = 3
"""Times that as many images come in succession before a graph is recorded for so many. At the end of a pass,
where batches get smaller, it is not worth the time."""

FEWEST_AT_ONCE = 8
"""Where there is no memory for so few images, it is waited for: other stages give theirs back."""

_WAIT_SECONDS, _MOST_WAITS = 0.5, 60

_BATCHES_AT_ONCE = 8
"""Batches that are on a GPU at once: two each that are decoded and encoded, one each that is drafted and
coded, and some between."""

_BYTES_BESIDE = 16 << 20
"""What an image takes on a GPU beside its encoding: pixels, features, and what channels and codes need."""


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """What a batch of images is to get, quantised, by the place of an image in the batch."""

    bases: dict[int, Planes]
    maps: dict[int, InterestMaps]


@dataclass(slots=True, eq=False)
class _Recording:
    """What is done in one stream again and again, as a graph for `count` images.

    It was done for `last` before, so many `times` in succession.
    """

    last: int = 0
    times: int = 0
    count: int = 0
    graph: Graph | None = None
    possible: bool = True
    lock: Lock = field(default_factory=Lock)


class TextureMaker:
    """Makes texture records of the channels in `schema` with one encoder.

    A batch that does not fit the memory of a GPU is made in halves, and so are those that follow; what waits
    there for other stages goes to the host's memory, and comes back in parts.

    Attributes:
        most: images that fit it together, as far as is known.
        waiting: what waits on it.

    Args:
        encoder: gives the patch features.
        schema: channels of the catalogue; those that are stored are made.
        vectors: encoder's vectors of each interest, by id.
        codebook: makes the codes; without one, there are none.
    """

    def __init__(
        self,
        encoder: DenseEncoder,
        schema: ChannelSchema,
        vectors: Mapping[int, InterestVectors],
        codebook: Codebook | None = None,
    ) -> None:
        self.encoder = encoder
        self.vectors = dict(vectors)
        self.device = torch.device(encoder.device)
        self._stored = schema.stored
        labels = [channel.kind is Kind.LABEL for channel in self._stored]
        self._labels = torch.tensor(labels, device=self.device)
        self._coder = None if codebook is None else Coder(codebook, encoder.map_size, encoder.device)
        self._recordings: dict[tuple[str, torch.cuda.Stream], _Recording] = {}
        self.most = sys.maxsize
        self.waiting = WaitingRoom()
        self._at_once = {
            "decode": MOST_AT_ONCE,
            "encode": ENCODED_AT_ONCE,
            "draft": AT_ONCE[self.device.type],
            "code": MOST_AT_ONCE,
        }

    def wait(self) -> None:
        """Wait for what this thread has begun on a GPU: then other threads can use it."""
        if self.device.type == "cuda":
            # Not for all of the stream: another thread may have begun more there.
            torch.cuda.current_stream(self.device).record_event().synchronize()

    def squares(self, image: LoadedImage) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The image squashed to the size that the channels take, and to the size that the encoder takes.

        Both are uint8 [side, side, 3].
        """
        working = square_of(image, WORKING_SIZE)
        side = self.encoder.input_size
        return working, working if side == WORKING_SIZE else square_of(image, side)

    def batch(self, squares: Sequence[NDArray[np.uint8]]) -> Tensor:
        """Squares of one size as the encoder takes them: uint8 [B, 3, side, side], on its device."""
        return torch.stack([torch.from_numpy(square).permute(2, 0, 1) for square in squares]).to(self.device)

    @torch.inference_mode()
    def encode(self, squares: Tensor | Waiting) -> Tensor:
        """Patch features of images.

        Args:
            squares: uint8 [B, 3, input_size, input_size], on the encoder's device or the host.

        Returns:
            float32 [B, dim, rows, columns], on the encoder's device, or the host where that has no room.
        """
        count = len(squares)
        whole: Tensor | None = None

        def encode(part: slice) -> Tensor:
            nonlocal whole
            features = self._patches(squares[part].to(self.device))
            if len(features) == count:
                return features
            if whole is None:  # which the first part tells the shape of
                whole = self._room(features, count)
            whole[part] = features
            return whole

        return self.in_parts("encode", count, encode)[-1]

    def _room(self, part: Tensor, count: int) -> Tensor:
        """Room for `count` images that lie in memory like those of a part."""
        shape, strides = (count, *part.shape[1:]), (part[0].numel(), *part.stride()[1:])
        make = partial(torch.empty_strided, shape, strides, dtype=part.dtype)
        return self._or_on_host(count, lambda device: make(device=device))

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Parts of a batch as one tensor; on the host where a GPU has no room for it."""
        if len(parts) == 1:
            return parts[0]
        return self._or_on_host(
            sum(map(len, parts)), lambda device: torch.cat([part.to(device) for part in parts])
        )

    def _or_on_host(self, count: int, make: Callable[[torch.device], Tensor]) -> Tensor:
        """What `make` makes of `count` images on the encoder's device, or on the host if that has no room."""
        if fitting := self._if_it_fits(make, self.device):
            return fitting[0]
        self._make_room(count)
        return make(torch.device("cpu"))

    def _patches(self, squares: Tensor) -> Tensor:
        (features,) = self._done("encode", lambda _, images: (self.encoder.patches(images).float(),), squares)
        # A GPU's queues are kept short: where one is full, all threads that begin something wait.
        self.wait()
        return features

    @torch.inference_mode()
    def pooled(self, features: Tensor) -> Tensor:
        """Features as coarse as maps are: what maps and codes are made of.

        Resizing is linear: it does not matter whether maps are resized or features, once for all maps. Where
        the patches are not a whole number of times as fine as maps, these are the features
        themselves.

        Args:
            features: as `encode` gives them.

        Returns:
            float32 [B, dim, h, w].

        Raises:
            UsageError: features that are pooled are not numbers below 1e30.
        """
        side = self.encoder.map_size
        rows, columns = features.shape[2:]
        if rows == columns == side or rows % side or columns % side:
            return features
        window = rows // side, columns // side

        def pool(part: slice) -> Tensor:
            fine = features[part].to(self.device)
            check_range(fine)
            return F.avg_pool2d(fine, window)

        return self.joined(self.in_parts("pool", len(features), pool))

    @torch.inference_mode()
    def draft(
        self,
        working: Tensor | Waiting | None,
        features: Tensor | Waiting,
        pooled: Tensor | Waiting,
        lacking: Sequence[Lacking],
    ) -> Drafts:
        """Base textures and maps of a batch.

        Args:
            working: uint8 [B, 3, 512, 512]; None if no image lacks its base.
            features: of the same images, as `encode` gives them.
            pooled: of these.
            lacking: what each of them is to get.

        Raises:
            UsageError: features are not finite.
        """
        drafts = Drafts({}, {})

        def make(part: slice) -> tuple[dict[int, Planes], dict[int, InterestMaps]]:
            pixels = None if working is None else working[part].to(self.device)
            whole = features[part].to(self.device)
            coarse = whole if pooled is features else pooled[part].to(self.device)
            return self._draft(part.start, pixels, whole, coarse, lacking[part])

        for bases, maps in self.in_parts("draft", len(features), make):
            drafts.bases.update(bases)
            drafts.maps.update(maps)
        return drafts

    def _draft(
        self, start: int, working: Tensor | None, features: Tensor, pooled: Tensor, lacking: Sequence[Lacking]
    ) -> tuple[dict[int, Planes], dict[int, InterestMaps]]:
        """Base textures and maps of a part of a batch that begins at `start`, by places in the batch."""
        if not largest(pooled).isfinite():
            raise UsageError("features hold NaN or infinity; the encoder's output cannot be used")
        interests = sorted(frozenset().union(*(each.interests for each in lacking)))
        maps: dict[int, InterestMaps] = {}
        if interests:
            for place, (planes, each) in enumerate(zip(self._maps(interests, pooled), lacking, strict=True)):
                if each.interests:
                    maps[start + place] = InterestMaps(tuple(interests), planes).only(each.interests)
        based = [place for place, each in enumerate(lacking) if each.base]
        bases: dict[int, Planes] = {}
        if based and working is not None:
            chosen = slice(None) if len(based) == len(lacking) else torch.tensor(based, device=self.device)
            made = _fetched(*self._levels(working[chosen], features[chosen]))
            bases = {start + place: planes for place, planes in zip(based, made, strict=True)}
        return bases, maps

    def codes(
        self, pooled: Tensor | Waiting, lacking: Sequence[Lacking], compress: Compress = map
    ) -> dict[int, bytes]:
        """Codes of those of a batch that lack one, by their place; none without a codebook.

        Args:
            pooled: features of the batch.
            lacking: what each image of it is to get.
            compress: works like `map`, as for `Coder.codes`.

        Raises:
            UsageError: a pooled feature is not below 1e30.
        """
        coder = self._coder
        places = [place for place, each in enumerate(lacking) if each.code]
        if coder is None or not places:
            return {}
        every = len(places) == len(pooled)

        def make(part: slice) -> list[bytes]:
            held = pooled[:]  # if it leaves a GPU meanwhile, that memory is not another's yet
            return coder.codes(held[part if every else places[part]].to(self.device), compress)

        parts = self.in_parts("code", len(places), make)
        return dict(zip(places, (code for part in parts for code in part), strict=True))

    def map(self, direction: NDArray[np.float32], features: Tensor) -> NDArray[np.float32]:
        """Map of a direction over the patches [dim, rows, columns] of an image, on the encoder's own scale.

        Returns:
            float32 [map_size, map_size].
        """
        directions = torch.from_numpy(direction[None]).to(self.device)
        (planes,) = self._similarity(directions, self.pooled(features[None]))
        made: NDArray[np.float32] = planes[0].cpu().numpy()
        return made

    def record(
        self, key: ImageKey, working: Tensor | None, features: Tensor, lacking: Lacking
    ) -> TextureRecord:
        """Record of one image, given as batches of one."""
        pooled = self.pooled(features)
        drafts = self.draft(working, features, pooled, [lacking])
        code = self.codes(pooled, [lacking]).get(0)
        return TextureRecord(key, drafts.bases.get(0), drafts.maps.get(0, {}), code)

    def _maps(self, interests: Sequence[int], pooled: Tensor) -> list[Planes]:
        directions = np.stack([self.vectors[interest].direction for interest in interests])
        return quantised(self._similarity(torch.from_numpy(directions).to(self.device), pooled))

    @torch.inference_mode()
    def _similarity(self, directions: Tensor, features: Tensor) -> Tensor:
        """Maps [B, N, map_size, map_size] of directions [N, dim]: one product for all."""
        products = directions.expand(len(features), -1, -1) @ features.flatten(2)
        planes = products.reshape(len(features), -1, *features.shape[2:])
        return resize(planes, self.encoder.map_size)

    def _levels(self, working: Tensor, features: Tensor) -> tuple[Tensor, ...]:
        """Base textures of some images, as `levels` of them."""
        return self._done("draft", self._base_levels, working, features)

    def _done(self, what: str, function: Function, *inputs: Tensor) -> tuple[Tensor, ...]:
        """`function` of a `Control` and of tensors with as many images.

        On a GPU by a graph, which is recorded in each stream for as many images as come often in succession.
        Where that cannot be, it is told, and no longer tried.
        """
        if self.device.type != "cuda":
            return function(Control(), *inputs)
        here = what, torch.cuda.current_stream(self.device)
        recording = self._recordings.setdefault(here, _Recording())
        with recording.lock:
            made = self._played(what, recording, function, inputs)
        return function(Control(), *inputs) if made is None else made

    def _played(
        self, what: str, recording: _Recording, function: Function, inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...] | None:
        """The same by the graph, if there is one now."""
        count = len(inputs[0])
        recording.times = recording.times + 1 if recording.last == count else 1
        recording.last = count
        if recording.times < RECORDED_AFTER or not recording.possible:
            return None
        graph = recording.graph  # another thread may drop it
        try:
            if graph is None or recording.count != count:
                graph = recording.graph = None  # its memory is needed
                graph = recording.graph = Graph(function, *inputs)
                recording.count = count
            return graph(*inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            recording.possible, recording.graph = False, None
            _log.warning("%s: is done kernel by kernel, as it cannot be recorded: %s", what, error)
            return None

    def _base_levels(self, control: Control, working: Tensor, features: Tensor) -> tuple[Tensor, ...]:
        return levels(base_channels(working, features, self._stored, control), self._labels)

    def in_parts(self, what: str, count: int, make: Callable[[slice], _Out]) -> list[_Out]:
        """`make` of each part of `count` images; a part that memory is too small for is halved.

        What waits there leaves first, and the part is tried again. Batches that follow have half as many
        images then as this one.

        Raises:
            torch.OutOfMemoryError: it is too small for one image, even when it was waited for.
        """
        made: list[_Out] = []
        start = waits = 0
        while start < count:
            size = min(self._at_once.get(what, count), count - start)
            part = slice(start, start + size)
            fitting = self._if_it_fits(make, part)
            made += fitting
            if fitting:
                start, waits = start + size, 0
            elif self._make_room(count):
                continue
            elif size <= FEWEST_AT_ONCE and waits < _MOST_WAITS and self.device.type == "cuda":
                waits += 1
                time.sleep(_WAIT_SECONDS)
            elif size > 1:
                self._at_once[what] = size // 2
            else:
                made.append(make(part))
                start += 1
        return made

    def _if_it_fits(self, make: Callable[[_In], _Out], of: _In) -> list[_Out]:
        """What `make` makes, or nothing where memory is too small. What it held is free again then.

        While an error is handled, it is not: the frames that the error came through hold it.
        """
        try:
            return [make(of)]
        except torch.OutOfMemoryError:
            self.wait()  # what was begun may still use it
            return []

    def _make_room(self, count: int) -> bool:
        """Give back what can be, where a batch of `count` images had too little, and tell if any waited."""
        self.most = min(self.most, max(FEWEST_AT_ONCE, count // 2))
        for recording in list(self._recordings.values()):
            recording.graph = None  # it keeps memory
        self.wait()  # what was begun may still read what leaves
        left = self.waiting.clear()
        if self.device.type == "cuda":
            give_back()
        return left


def levels(planes: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise planes [B, C, H, W], as `catalogue.quantise.quantise` does each image's.

    Returns:
        The values, uint8 [B, C, H, W], and of each plane the lowest and the highest, float32 [B, C].
    """
    low, high = planes.amin((2, 3)), planes.amax((2, 3))
    if labels is not None:
        low, high = torch.where(labels, 0, low), torch.where(labels, LEVELS, high)
    span = high.double() - low
    scale = torch.where(span > 0, LEVELS / span, 0)
    values = ((planes - low.double()[:, :, None, None]) * scale[:, :, None, None]).round_().clamp_(0, LEVELS)
    return values.byte(), low, high


@torch.inference_mode()
def quantised(planes: Tensor) -> list[Planes]:
    """Planes [B, C, H, W], quantised and fetched.

    Raises:
        UsageError: a value is not finite.
    """
    return _fetched(*levels(planes))


def _fetched(values: Tensor, low: Tensor, high: Tensor) -> list[Planes]:
    fetched = fetch(values, low, high)
    if not (np.isfinite(fetched[1]).all() and np.isfinite(fetched[2]).all()):
        raise UsageError("planes must be finite; a plane holds NaN or infinity")
    return [Planes(*each) for each in zip(*fetched, strict=True)]


def few_threads(count: int) -> None:
    """Let this thread compute with so many, where torch would spread each step over all cores."""
    torch.get_num_threads()  # sets a default, once for each thread, which would come after the limit
    threadpool_limits(count, user_api="openmp")


def room_for(maker: TextureMaker) -> int:
    """How many images a batch on a GPU has: the largest power of two, to `MOST_AT_ONCE`, that memory holds.

    What the encoder takes is measured. It is recorded for that, while no other thread wants Python's lock.
    """
    device, side = maker.device, maker.encoder.input_size
    squares = torch.zeros(ENCODED_AT_ONCE, 3, side, side, dtype=torch.uint8, device=device)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with torch.cuda.stream(stream(device, ENCODING)):
        for _ in range(RECORDED_AFTER):
            maker.encode(squares)
    torch.cuda.synchronize(device)
    each = (torch.cuda.max_memory_allocated(device) - before) / ENCODED_AT_ONCE + _BYTES_BESIDE
    free, _ = torch.cuda.mem_get_info(device)
    room = max(1, int(free / (_BATCHES_AT_ONCE * each)))
    return min(MOST_AT_ONCE, 1 << (room.bit_length() - 1))
