"""Questions about images: match, look up, blend, allocate."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from sys import getrefcount
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ..catalogue import codec
from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import EncoderNeededError, ImageReadError, RecordMissingError, UsageError
from ..catalogue.grid import resize_plane
from ..catalogue.quantise import dequantise
from ..catalogue.types import GRID, TextureRecord
from ..indexer.encoders import DenseEncoder
from .allocation import ALLOCATORS, Allocation
from .blending import own_share
from .computing import Computer
from .kernels import Assembler, side_of_maps
from .matcher import Matcher
from .sources import ImageLike, Source, find_source
from .types import Lookup, Match, Matches, Tier, Timings

CACHED_QUESTIONS = 4096
UNSHARED = 3
"""References to an array of a tuple while it is looked at: the tuple's, the loop's and the call's."""

Bytes = NDArray[np.uint8]
Plane = NDArray[np.float32]


class Retriever:
    """Answers questions from a catalogue.

    Args:
        catalogue: an open one. If it is open to write, what is computed is saved.
        channels: of the textures: presets, groups or names; every channel of the catalogue when None.
        compute: whether the encoder may be loaded for what the catalogue does not hold: an image or an
            interest that is not indexed, the words of a question that was not asked before or that no
            interest answers. Otherwise the first three are errors, and the last is answered from the
            interests alone.
        device: where the encoder runs, if it is needed: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        encoder: an encoder that is loaded already.

    Raises:
        UnknownChannelError, ChannelNotHeldError: `channels` names one that is not held.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        channels: str | Sequence[str] | None = None,
        compute: bool = True,
        device: str = "auto",
        encoder: DenseEncoder | None = None,
    ) -> None:
        self.catalogue = catalogue
        self._held = catalogue.schema
        self._channels = self._held if channels is None else self._held.select(channels)
        self._names = self._channels.names
        self._ready: Assembler | None = None
        self._spare: deque[tuple[Plane, Plane]] = deque(maxlen=1)
        self._computer = Computer(catalogue, device, encoder) if compute else None
        self._questions: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._matcher: Matcher | None = None
        self._revision = -1

    def lookup(
        self,
        image: ImageLike,
        question: str | None = None,
        *,
        matches: Sequence[Match] | None = None,
        top: int = 3,
    ) -> Lookup:
        """Texture of an image for a question, or for interests that are matched already.

        Args:
            image: path, content of a file, key, or Pillow image.
            question: in words.
            matches: `Lookup.matches` of an earlier call: nothing is matched, and the interests alone make
                the similarity. The quick way, with a key.
            top: how many interests to blend.

        Raises:
            UsageError: not exactly one of `question` and `matches` is given, or there is nothing to match.
            ImageReadError: the image has to be read, and cannot be.
            RecordMissingError: the image is known by its key alone, and not in the catalogue.
            EncoderNeededError: something is not in the catalogue, and the encoder may not be loaded.
            RecordCorruptError: what is stored of the image is damaged.
        """
        started = perf_counter()
        matcher = self._matching()
        if question is not None and matches is None:
            found = matcher.match(self.embedding(question), top)
        elif question is None and matches:
            found = matches if isinstance(matches, Matches) else Matches(matches)
        else:
            raise UsageError("give a look-up a question, or the matches of an earlier one")
        confidence = matcher.confidence(found)
        return self._answer(image, question, found, confidence, matching=perf_counter() - started)

    def lookup_many(self, images: Iterable[ImageLike], matches: Sequence[Match]) -> list[Lookup]:
        """`lookup` of many images for the matches of one question, in order.

        Their textures lie in one block of memory, which stays as long as one of them does. Once the look-ups
        of a call have been dropped, the next call uses the block again: fresh memory costs nearly as much as
        what is written to it.

        Raises:
            UsageError: `matches` is empty.
        """
        if not matches:
            raise UsageError("give the matches of an earlier look-up")
        found = matches if isinstance(matches, Matches) else Matches(matches)
        confidence = self._matching().confidence(found)
        wanted = list(images)
        room = self._room(len(wanted))
        hits = [
            self._answer(image, None, found, confidence, room=room and (room[0][place], room[1][place]))
            for place, image in enumerate(wanted)
        ]
        if room is not None:
            self._spare.append(room)
        return hits

    def _room(self, images: int) -> tuple[Plane, Plane] | None:
        """Room for the textures of `images`: that of an earlier call, when nobody holds a part of it."""
        if self._ready is None:
            return None
        try:
            room = self._spare.pop()
        except IndexError:  # another thread has it, or there was none yet
            return self._ready.room(images)
        if len(room[0]) < images or any(getrefcount(part) > UNSHARED for part in room):
            return self._ready.room(images)
        return room

    def _answer(
        self,
        image: ImageLike,
        question: str | None,
        found: Matches,
        confidence: float,
        *,
        matching: float = 0.0,
        room: tuple[Plane, Plane] | None = None,
    ) -> Lookup:
        started = perf_counter()
        source = find_source(image, self.catalogue.registry)
        records, made = self._fetch(source, found)
        own = None if question is None else self._own_map(source, question, found, confidence)
        read = perf_counter()

        share = 0.0 if own is None else own_share(confidence) if found else 1.0
        assembler = self._assembler(records, own if made is None else made)
        if assembler is None:  # none of these maps is stored, nor was any before: their grid is not known yet
            made = self._make(source, found)
            assembler = self._assembler(records, made)
        assert assembler is not None
        textures, scores, lacking = assembler.assemble(
            records, found, 1 - share, _mix(made, own, share), room
        )
        if lacking and made is None:
            made = self._make(source, [found[place] for place in lacking])
            textures, scores, _ = assembler.assemble(records, found, 1 - share, _mix(made, own, share), room)
        return Lookup(
            key=source.key,
            textures=textures,
            channels=self._names,
            matches=found,
            tier=Tier.STORED if made is None and own is None else Tier.COMPUTED,
            confidence=confidence,
            own_share=share,
            saved=made is not None and self.catalogue.writable,
            relevance=scores,
            timings=Timings(matching, read - started, perf_counter() - read),
        )

    def similarity(self, image: ImageLike, phrase: str) -> Plane:
        """Raw map of any phrase in an image: float32 [32, 32], on the encoder's own scale.

        Read from the store when the phrase is an interest whose map is held, else computed.

        Raises:
            InvalidPhraseError: the phrase is empty, too long, or holds control characters.
            ImageReadError, RecordMissingError, RecordCorruptError, EncoderNeededError: as `lookup`.
        """
        source = find_source(image, self.catalogue.registry)
        interest = self.catalogue.registry.find_interest(phrase)
        held = self.catalogue.store.held(source.key)
        if interest is not None and held is not None and interest.id in held:
            planes = self.catalogue.store.read(source.key, [interest.id]).maps[interest.id]
            return resize_plane(dequantise(planes)[0], GRID)
        return resize_plane(self._computing(f"image {source.key}").map(source, phrase), GRID)

    def allocate(self, hit: Lookup, budget: int = 200, strategy: str = "topk") -> Allocation:
        """Spend `budget` tokens on the positions of a look-up's 32x32 grid.

        Raises:
            UsageError: the strategy is not known, or cannot spend this budget.
        """
        if strategy not in ALLOCATORS:
            raise UsageError(f"strategy {strategy!r} is not known; expected one of: {', '.join(ALLOCATORS)}")
        return ALLOCATORS[strategy].allocate(hit.relevance, budget)

    def embedding(self, question: str) -> NDArray[np.float32]:
        """Text embedding of a question, float32 [d_text], from memory, the registry, or the encoder.

        Raises:
            EncoderNeededError: it was never asked here, and the encoder may not be loaded.
        """
        cached = self._questions.get(question)
        if cached is not None:
            return cached
        catalogue = self.catalogue
        embedding = catalogue.registry.question(catalogue.settings.fingerprint, question)
        if embedding is None:
            embedding = self._computing("a question that was not asked before").embedding(question)
            if catalogue.writable:
                catalogue.registry.put_question(catalogue.settings.fingerprint, question, embedding)
        self._questions[question] = embedding
        if len(self._questions) > CACHED_QUESTIONS:
            self._questions.popitem(last=False)
        return embedding

    def refresh(self) -> None:
        """Take notice of interests that another process has added or removed."""
        self._matcher = None

    def _matching(self) -> Matcher:
        """The matcher over the catalogue's interests as they are."""
        if self._matcher is None or self._revision != self.catalogue.revision:
            self._revision = self.catalogue.revision
            interests = self.catalogue.interests()
            vectors = self.catalogue.registry.vectors(self.catalogue.settings.fingerprint)
            if self._computer is not None and any(interest.id not in vectors for interest in interests):
                vectors = self._computer.vectors()
            settings = self.catalogue.settings
            texts = {i: vector.text for i, vector in vectors.items()}
            self._matcher = Matcher(interests, texts, settings.match_low, settings.match_high)
        return self._matcher

    def _fetch(self, source: Source, matches: Matches) -> tuple[Bytes, Plane | None]:
        """Records of the image; and, when it had none and was made now, the blend of its maps."""
        key = source.key
        try:
            return np.frombuffer(self.catalogue.store.fetch(key, matches.parts), np.uint8), None
        except RecordMissingError:
            record = self._computing(f"image {key}").record(
                source, [m.interest.id for m in matches], base=True
            )
        assert record.base is not None
        base = codec.encode(range(len(record.base.values)), record.base, key, 0, bytes(codec.TAG_BYTES))
        without_maps = np.frombuffer(base + codec.EMPTY * len(matches.parts), np.uint8)
        return without_maps, self._blend(record, matches)

    def _make(self, source: Source, matches: Sequence[Match]) -> Plane:
        """Blend of the maps of `matches`, made now."""
        record = self._computing(f"image {source.key}").record(
            source, [m.interest.id for m in matches], base=False
        )
        return self._blend(record, matches)

    def _blend(self, record: TextureRecord, matches: Sequence[Match]) -> Plane:
        """Weighted sum of maps that were made now, on their own grid."""
        side = self._computing(f"image {record.key}").encoder.map_size
        total = np.zeros((side, side), np.float32)
        for match in matches:
            total += np.float32(match.weight) * dequantise(record.maps[match.interest.id])[0]
        return total

    def _assembler(self, records: Bytes, other: Plane | None) -> Assembler | None:
        """The assembler for the grid that the catalogue's maps are on: all of them have one size.

        None as long as neither `records` nor an `other` map tell that size.
        """
        if self._ready is None:
            side = side_of_maps(records) if other is None else len(other)
            if side is not None:
                self._ready = Assembler(self._held, self._channels, side)
        return self._ready

    def _own_map(
        self, source: Source, question: str, matches: Sequence[Match], confidence: float
    ) -> Plane | None:
        """The question's own map where it has a part in the similarity, and can be made.

        It cannot when the image is known by its key alone and no file of it is left: then the interests
        alone answer, and `Lookup.own_share` says so.
        """
        if matches and (self._computer is None or own_share(confidence) == 0):
            return None
        try:
            return self._computing(f"image {source.key}").map(source, question)
        except (RecordMissingError, ImageReadError):
            if not matches:
                raise
            return None

    def _computing(self, what: str) -> Computer:
        if self._computer is None:
            raise EncoderNeededError(what)
        return self._computer


def _mix(made: Plane | None, own: Plane | None, share: float) -> Plane | None:
    """What is added to the stored part of a blend: maps made now, and the question's own map."""
    if own is None:
        return made
    if made is None:
        return np.asarray(share * own, np.float32)
    return np.asarray((1 - share) * made + share * own, np.float32)
