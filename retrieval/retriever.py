"""Questions about images: match, look up, blend, allocate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ..catalogue import codec
from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import ImageReadError, RecordMissingError, UsageError
from ..catalogue.grid import resize_plane
from ..catalogue.quantise import dequantise
from ..catalogue.types import GRID, ImageKey, TextureRecord
from ..indexer.encoders import DenseEncoder
from .allocation import ALLOCATORS, Allocation
from .blending import own_share
from .computing import Computer
from .kernels import Assembler, side_of_maps
from .matcher import Matcher
from .sources import ImageLike, Source, find_source
from .types import Lookup, Match, Matches, Tier, Timings

CACHED_QUESTIONS = 4096

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
        self._assemblers: dict[int, Assembler] = {}
        self._side: int | None = None
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
            RecordMissingError: something is not in the catalogue, and cannot be computed.
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
        matched = perf_counter()

        source = find_source(image, self.catalogue.registry)
        records, blend, computed = self._stored(source, found)
        own = None if question is None else self._own_map(source, question, found, confidence)
        read = perf_counter()

        share = 0.0 if own is None else own_share(confidence) if found else 1.0
        if own is not None:
            blend = own if blend is None else np.asarray((1 - share) * blend + share * own, np.float32)
        assert blend is not None  # there are matches, or there is the question's own map
        textures, scores = self._assembler(len(blend)).assemble(records, blend)
        blended = perf_counter()

        return Lookup(
            key=source.key,
            textures=textures,
            channels=self._names,
            matches=found,
            tier=Tier.COMPUTED if computed or own is not None else Tier.STORED,
            confidence=confidence,
            own_share=share,
            saved=computed and self.catalogue.writable,
            relevance=scores,
            timings=Timings(matched - started, read - matched, blended - read),
        )

    def lookup_many(self, images: Iterable[ImageLike], matches: Sequence[Match]) -> list[Lookup]:
        """`lookup` of many images for one set of matches, in order."""
        return [self.lookup(image, matches=matches) for image in images]

    def similarity(self, image: ImageLike, phrase: str) -> Plane:
        """Raw map of any phrase in an image: float32 [32, 32], on the encoder's own scale.

        Read from the store when the phrase is an interest whose map is held, else computed.

        Raises:
            InvalidPhraseError: the phrase is empty, too long, or holds control characters.
            ImageReadError, RecordMissingError, RecordCorruptError: as `lookup`.
        """
        source = find_source(image, self.catalogue.registry)
        interest = self.catalogue.registry.find_interest(phrase)
        held = self.catalogue.store.held(source.key)
        if interest is not None and held is not None and interest.id in held:
            planes = self.catalogue.store.read(source.key, [interest.id]).maps[interest.id]
            return resize_plane(dequantise(planes)[0], GRID)
        return resize_plane(self._computing(source.key).map(source, phrase), GRID)

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
            RecordMissingError: it was never asked here, and the encoder may not be loaded.
        """
        cached = self._questions.get(question)
        if cached is not None:
            return cached
        catalogue = self.catalogue
        embedding = catalogue.registry.question(catalogue.settings.fingerprint, question)
        if embedding is None:
            embedding = self._computing(f"question {question!r}").embedding(question)
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

    def _stored(self, source: Source, matches: Matches) -> tuple[Bytes, Plane | None, bool]:
        """Records that start with the base, blend of the maps of `matches`, and whether any was computed.

        The blend is on the maps' own grid; None when there are no matches.
        """
        key = source.key
        try:
            found = self.catalogue.store.fetch(key, matches.parts)
        except RecordMissingError:
            made = self._computing(key).record(source, [m.interest.id for m in matches], base=True)
            assert made.base is not None
            base = codec.encode(range(len(made.base.values)), made.base, key, 0, bytes(codec.TAG_BYTES))
            return np.frombuffer(base, np.uint8), _blend_made(made, matches), True
        records = np.frombuffer(found, np.uint8)
        if not matches:
            return records, None, False
        if self._side is None:
            self._side = side_of_maps(records)
        if self._side is None:  # nothing is stored of these interests
            blend, lacking = None, list(range(len(matches)))
        else:
            blend, lacking = self._assembler(self._side).blend(records, matches)
        if not lacking:
            return records, blend, False
        chosen = [matches[place] for place in lacking]
        made = self._computing(key).record(source, [m.interest.id for m in chosen], base=False)
        added = _blend_made(made, chosen)
        return records, added if blend is None or added is None else blend + added, True

    def _assembler(self, side: int) -> Assembler:
        if side not in self._assemblers:
            self._assemblers[side] = Assembler(self._held, self._channels, side)
        return self._assemblers[side]

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
            return self._computing(source.key).map(source, question)
        except (RecordMissingError, ImageReadError):
            if not matches:
                raise
            return None

    def _computing(self, what: ImageKey | str) -> Computer:
        if self._computer is None:
            raise RecordMissingError(str(what))
        return self._computer


def _blend_made(made: TextureRecord, matches: Sequence[Match]) -> Plane | None:
    """Weighted sum of the maps of `matches` that were made now; None when there are none."""
    if not matches:
        return None
    total = sum(match.weight * dequantise(made.maps[match.interest.id])[0] for match in matches)
    return np.asarray(total, np.float32)
