"""Questions about images: match, look up, blend, allocate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic, perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ..catalogue import codec
from ..catalogue.catalogue import Catalogue
from ..catalogue.distribution import Distribution
from ..catalogue.errors import EncoderNeededError, ImageReadError, RecordMissingError, UsageError
from ..catalogue.grid import enlarge_map
from ..catalogue.quantise import dequantise
from ..catalogue.types import ImageKey, Interest, TextureRecord
from ..indexer.encoders import DenseEncoder
from .allocation import Allocation
from .attending import allocator, needed_budget
from .balancing import Balanced, Balancer, Kind, shipped
from .blending import blend, own_share
from .caching import keep
from .computing import Computer
from .decoding import Decoder
from .kernels import Assembler, Places, side_of_maps
from .knowing import know
from .learning import Learning
from .matcher import Matcher
from .sources import ImageLike, Source, find_source
from .types import Lookup, Match, Matches, Tier, Timings

if TYPE_CHECKING:
    from .search import Found, Searcher

CACHED_QUESTIONS = 4096

WEIGH_SECONDS = 600.0
"""Weights of interests are worked out anew so often: they halve in weeks."""

_timings = tuple.__new__
"""Makes `Timings`, in a third of the time that its own constructor takes."""

Plane = NDArray[np.float32]
Scale = Literal["raw", "strength", "percentile"]


class Retriever:
    """Answers questions from a catalogue, and learns from them.

    What is asked is recorded, for the weights of interests and for suggestions: phrases, never words as they
    were written (design/0007). A look-up only leaves a note of it in memory; a thread writes what has come
    together, half a second later. `close`, the catalogue's own, and the end of the interpreter write the
    rest; kill -9 loses the last second at most.

    An interest weighs in a blend what the user gave it, times a factor from 1/2 to 2 that rises with its use
    and with `feedback` and falls as time passes: the formula is that of `catalogue.weights`. The factors are
    brought up to date every ten minutes, after `feedback` and `refresh`, and when the interests change.

    Args:
        catalogue: an open one. If it is open to write, what is computed is saved.
        channels: of the textures: presets, groups or names; every channel of the catalogue when None.
        compute: whether the encoder may be loaded for what the catalogue does not hold: an image that is not
            indexed, an interest of one that has no code, the words of a question that was not asked before or
            that no interest answers. Otherwise the first three are errors, and the last is answered from the
            interests alone.
        device: where the encoder runs, if it is needed: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        encoder: an encoder that is loaded already.
        observe: whether to record what is asked. When None, as the catalogue's settings say if it is open to
            write, and not if it is open to read. When True, one that is open to read records too, which takes
            no more than the right to write its registry: another process may index meanwhile.

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
        observe: bool | None = None,
    ) -> None:
        self.catalogue = catalogue
        self._learning = Learning(catalogue, observe)
        self._held = catalogue.schema
        self._channels = self._held if channels is None else self._held.select(channels)
        self._names = self._channels.names
        self._ready: Assembler | None = None
        self._computer = Computer(catalogue, device, encoder) if compute else None
        self._decoder = Decoder(catalogue, self._computer)
        self._questions: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._matched: OrderedDict[tuple[str, int], Matches] = OrderedDict()
        self._matcher: Matcher | None = None
        self._searcher: Searcher | None = None
        self._revision = -1
        self._weigh_at = 0.0

    def lookup(
        self,
        image: ImageLike,
        question: str | None = None,
        *,
        matches: Sequence[Match] | None = None,
        top: int = 3,
        observe: bool = True,
    ) -> Lookup:
        """Texture of an image for a question, or for interests that are matched already.

        Args:
            image: path, content of a file, key, or Pillow image.
            question: in words.
            matches: `Lookup.matches` of an earlier call: nothing is matched, and the interests alone make
                the similarity. The quick way, with a key.
            top: how many interests to blend.
            observe: False leaves this look-up out of what is recorded. True changes nothing where the
                retriever does not record.

        Raises:
            UsageError: not exactly one of `question` and `matches` is given, or there is nothing to match.
            ImageReadError: the image has to be read, and cannot be.
            RecordMissingError: the image is known by its key alone, and not in the catalogue.
            EncoderNeededError: something is not in the catalogue, and the encoder may not be loaded.
            RecordCorruptError: what is stored of the image is damaged.
            CatalogueError: its code is needed, and the codebook is lost or damaged.
            RegistryError: it is to be recorded, and the registry cannot be written.
        """
        started = perf_counter()
        matcher = self._matching()
        if question is not None and matches is None:
            found = self._match(matcher, question, top)
        elif question is None and matches:
            found = matches if isinstance(matches, Matches) else Matches(matches)
        else:
            raise UsageError("give a look-up a question, or the matches of an earlier one")
        confidence = matcher.confidence(found)
        hit = self._answer(image, question, found, confidence, perf_counter() - started)
        if observe and self._learning.observes:
            self._learning.observer.observe(question, found, hit.tier, confidence)
        return hit

    def lookup_many(self, images: Iterable[ImageLike], matches: Sequence[Match]) -> Iterator[Lookup]:
        """`lookup` of many images for the matches of one question, in order, each made when it is asked for.

        One that is dropped before the next leaves it memory that is still in the processor's cache: going
        through a corpus that way is quicker than keeping all of them, and takes no more memory than one. It
        is recorded once, with the first image.

        Raises:
            UsageError: `matches` is empty.
        """
        if not matches:
            raise UsageError("give the matches of an earlier look-up")
        found = matches if isinstance(matches, Matches) else Matches(matches)
        return self._answers(images, found, self._matching().confidence(found))

    def _answers(self, images: Iterable[ImageLike], found: Matches, confidence: float) -> Iterator[Lookup]:
        for place, image in enumerate(images):
            hit = self._answer(image, None, found, confidence)
            if place == 0 and self._learning.observes:
                self._learning.observer.observe(None, found, hit.tier, confidence)
            yield hit

    def _answer(
        self,
        image: ImageLike,
        question: str | None,
        found: Matches,
        confidence: float,
        matching: float = 0.0,
    ) -> Lookup:
        started = perf_counter()
        source = image if isinstance(image, ImageKey) else find_source(image, self.catalogue.registry)
        if question is None or (found and own_share(confidence) == 0):
            key = source if isinstance(source, ImageKey) else source.key
            hit = self._stored(key, found, confidence, matching, started)
            if hit is not None:
                return hit
        if isinstance(source, ImageKey):
            source = find_source(source, self.catalogue.registry)
        records, made = self._fetch(source, found)
        maps_tier = own_tier = Tier.STORED
        if made is not None:
            maps_tier = Tier.COMPUTED
        own: Plane | None = None
        if question is not None:
            own, own_tier = self._own_map(source, question, found, confidence)
        read = perf_counter()

        share = 0.0 if own is None else own_share(confidence) if found else 1.0
        assembler = self._assembler(records, own if made is None else made)
        if assembler is None:  # none of these maps is stored, nor was any before: their grid is not known yet
            made, maps_tier = self._make(source, found, np.arange(len(found)))
            assembler = self._assembler(records, made)
        assert assembler is not None
        textures, scores, lacking = assembler.assemble(records, found, 1 - share, _mix(made, own, share))
        if len(lacking) and made is None:
            made, maps_tier = self._make(source, found, lacking)
            textures, scores, _ = assembler.assemble(records, found, 1 - share, _mix(made, own, share))
        return Lookup(
            key=source.key,
            textures=textures,
            channels=self._names,
            matches=found,
            tier=max(maps_tier, own_tier, key=list(Tier).index),
            confidence=confidence,
            own_share=share,
            saved=maps_tier is Tier.COMPUTED and self.catalogue.writable,
            relevance=scores,
            timings=Timings(matching, read - started, perf_counter() - read),
            question=question if share else None,
        )

    def _stored(
        self, key: ImageKey, found: Matches, confidence: float, matching: float, started: float
    ) -> Lookup | None:
        """The look-up, when all that it takes is stored or coded. The quick way, and kept short for that."""
        assembler = self._ready
        if assembler is None:
            return None
        look = self.catalogue.store.look
        made = look(key, assembler.look_up, found)
        if made is None:  # whatever it is, the other way says so
            return None
        textures, scores, lacking, read = made
        tier = Tier.STORED
        if len(lacking):
            decoded = self._decoder.blend(key, found, lacking)
            made = None if decoded is None else look(key, assembler.look_up, found, decoded)
            if made is None or made[2].tolist() != lacking.tolist():  # others than before: it was changed
                return None
            textures, scores, _, read = made
            tier = Tier.CODED
        timings = _timings(Timings, (matching, read - started, perf_counter() - read))
        return Lookup(key, textures, self._names, found, tier, confidence, 0.0, False, scores, timings)

    def similarity(self, image: ImageLike, phrase: str, scale: Scale = "raw") -> Plane:
        """Map of any phrase in an image: float32 [32, 32].

        From the best that there is: the store, when the phrase is an interest whose map is held; the image's
        code; the encoder.

        Args:
            image: path, content of a file, key, or Pillow image.
            phrase: in words.
            scale: ``raw``: the encoder's own. ``strength`` and ``percentile``: what `Distribution` makes of
                that, from the interest's distribution; or, for any other phrase, from that of its maps in
                some of the images that have codes. Without codes, it is the image itself that its values are
                compared with.

        Raises:
            UsageError: the scale is not known.
            InvalidPhraseError: the phrase is empty, too long, or holds control characters.
            ImageReadError, RecordMissingError, RecordCorruptError, EncoderNeededError, CatalogueError: as
                `lookup`.
        """
        if scale not in get_args(Scale):
            raise UsageError(f"scale {scale!r} is not known; expected one of: {', '.join(get_args(Scale))}")
        source = find_source(image, self.catalogue.registry)
        interest = self.catalogue.registry.find_interest(phrase)
        held = self.catalogue.store.held(source.key)
        if interest is not None and held is not None and interest.id in held:
            planes = self.catalogue.store.read(source.key, [interest.id]).maps[interest.id]
            return self._scaled(dequantise(planes)[0], phrase, interest, scale)
        decoded = None
        if interest is not None:
            self._matching()  # from which the decoder knows the interests as they are
            decoded = self._decoder.interest_map(source.key, interest.id)
        if decoded is None:
            decoded = self._decoder.phrase_map(source.key, phrase)
        if decoded is None:
            decoded = self._computing(f"image {source.key}").map(source, phrase)
        return self._scaled(decoded, phrase, interest, scale)

    def _scaled(self, plane: Plane, phrase: str, interest: Interest | None, scale: Scale) -> Plane:
        """A raw map enlarged, and on another scale."""
        if scale == "raw":
            return enlarge_map(plane)
        distribution = None
        if interest is not None:
            fingerprint = self.catalogue.settings.fingerprint
            distribution = self.catalogue.registry.distributions(fingerprint).get(interest.id)
        distribution = distribution or self._distribution(phrase, plane)
        if scale == "percentile":
            return distribution.percentile(enlarge_map(plane))
        return np.maximum(enlarge_map(distribution.strength(plane)), 0)  # as a look-up does

    def search(self, query: str, n: int = 20) -> Found:
        """The `n` photos that answer a query best: see `search.Searcher`, and `query` for how one is written.

        Raises:
            UsageError: `n` is below 1, or the query cannot be read.
            InvalidPhraseError, EncoderNeededError, RecordCorruptError, CatalogueError: as `Searcher.search`.
        """
        from .search import Searcher

        if self._searcher is None:
            self._searcher = Searcher(
                self.catalogue, lambda phrase: self._computing(f"phrase {phrase!r}").direction(phrase)
            )
        return self._searcher.search(query, n)

    def allocate(
        self,
        hit: Lookup,
        budget: int | None = 200,
        strategy: str = "topk",
        balancer: Kind | Balancer | None = None,
    ) -> Allocation:
        """Spend `budget` tokens on the positions of a look-up's 32x32 grid.

        Nothing is recorded here: the look-up was, and its question counts once.

        Args:
            hit: of a look-up.
            budget: tokens; as many as the image needs (`attending.needed_budget`) when None.
            strategy: one of `ALLOCATORS`.
            balancer: makes the relevance that is allocated by, see `balance`; the look-up's own when None.

        Raises:
            UsageError: the strategy is not known, or cannot spend this budget.
            BalancerError, EncoderNeededError: as `balance`.
        """
        chosen = allocator(strategy)
        relevance = hit.relevance if balancer is None else self.balance(hit, balancer).relevance
        if budget is None:
            text = hit.channel("text_likelihood") if "text_likelihood" in hit.channels else None
            budget = needed_budget(relevance, text)
        return chosen.allocate(relevance, budget)

    def balance(self, hit: Lookup, balancer: Kind | Balancer | None = None) -> Balanced:
        """The relevance that a balancer makes of a look-up, with the scores and tensions that it is made of.

        Args:
            hit: of a look-up.
            balancer: ``tension`` or ``adaptive``, which come with texcat and are for the builtin encoder, or
                one that was trained (`Balancer.load`). None gives the look-up's own relevance.

        Raises:
            UsageError: there is no such balancer, or the look-up holds too few channels.
            BalancerError: it was trained with another encoder than the catalogue's, or its file is damaged.
            EncoderNeededError: as `asked`, of an ``adaptive`` one.
        """
        if balancer is None:
            return Balanced(hit.relevance, know(hit), None, None)
        chosen = shipped(balancer) if isinstance(balancer, str) else balancer
        chosen.check_encoder(self.catalogue.settings.fingerprint)
        return chosen.balance(hit, self.asked(hit) if chosen.kind == "adaptive" else None)

    def feedback(self, hit: Lookup, useful: bool) -> None:
        """Say whether a look-up was useful. The next one weighs the interests accordingly.

        Each interest of `hit` is credited, or debited, with its part in the blend, as five questions would
        be. This is written at once, and also where look-ups are not recorded, if the catalogue is open to
        write.

        Raises:
            UsageError: no interest was matched.
            ReadOnlyError: the catalogue is open to read, and the retriever does not record.
            RegistryError, StoreFullError: it cannot be written.
        """
        self._learning.feedback(hit.matches, useful)
        self._weigh_at = 0.0

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
        return keep(self._questions, question, embedding, CACHED_QUESTIONS)

    def asked(self, hit: Lookup) -> NDArray[np.float32]:
        """Text embedding of what a look-up's similarity is made of: float32 [d_text], of norm 1, or 0.

        The sum of the interests' and the question's own, each times its part in the similarity, brought to
        norm 1: so that "Where is the dog?" is read as "dog" where an interest of that name answers it.

        Raises:
            UsageError: nothing of what it was made of is known any more.
            EncoderNeededError: as `embedding`.
        """
        interests = self._matching().embedding(hit.matches)
        parts = [] if interests is None else [(1 - hit.own_share) * interests]
        if hit.question is not None:
            parts.append(hit.own_share * self.embedding(hit.question))
        if not parts:
            raise UsageError(
                "this look-up was made of no interest that the catalogue still has, nor of words"
            )
        total = np.sum(parts, axis=0)
        return np.asarray(total / max(float(np.linalg.norm(total)), np.finfo(np.float32).tiny), np.float32)

    def refresh(self) -> None:
        """Take notice of interests that another process has added or removed, and of all that was asked."""
        self._matcher = None

    def close(self) -> None:
        """Write what was asked, and record no more. May be called twice; the catalogue stays open.

        What cannot be written then is lost, and a warning is logged.
        """
        self._learning.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _matching(self) -> Matcher:
        """The matcher over the catalogue's interests as they are."""
        if self._matcher is None or self._revision != self.catalogue.revision:
            self._revision = self.catalogue.revision
            self._matched.clear()
            interests = self.catalogue.interests()
            vectors = self.catalogue.registry.vectors(self.catalogue.settings.fingerprint)
            if self._computer is not None and any(interest.id not in vectors for interest in interests):
                vectors = self._computer.vectors()
            self._decoder.know(vectors)
            settings = self.catalogue.settings
            # An interest that the encoder cannot place has no map, and no question is about it.
            texts = {i: vector.text for i, vector in vectors.items() if vector.direction.any()}
            distributions = self.catalogue.registry.distributions(settings.fingerprint)
            self._matcher = Matcher(interests, texts, settings.match_low, settings.match_high, distributions)
            self._weigh_at = 0.0
        if monotonic() >= self._weigh_at:
            self._matcher.weigh(self._learning.factors())
            self._matched.clear()
            self._weigh_at = monotonic() + WEIGH_SECONDS
        return self._matcher

    def _match(self, matcher: Matcher, question: str, top: int) -> Matches:
        """The matches of a question; those of one that was asked before are kept."""
        found = self._matched.get((question, top))
        if found is None:
            matched = matcher.match(self.embedding(question), top)
            found = keep(self._matched, (question, top), matched, CACHED_QUESTIONS)
        return found

    def _fetch(self, source: Source, matches: Matches) -> tuple[bytes, Plane | None]:
        """Records of the image, base and maps; and the maps' blend, if it had none and was made now."""
        key = source.key
        try:
            return self.catalogue.store.fetch(key, matches.parts), None
        except RecordMissingError:
            record = self._computing(f"image {key}").record(
                source, [m.interest.id for m in matches], base=True
            )
        assert record.base is not None
        base = codec.encode(range(len(record.base.values)), record.base, key, 0, bytes(codec.TAG_BYTES))
        return base + codec.EMPTY * len(matches.parts), self._computed(record, matches, matches.calibrated)

    def _make(self, source: Source, matches: Matches, places: Places) -> tuple[Plane, Tier]:
        """Blend of the maps of `matches` at `places`, made now: from the image's code when it has one."""
        decoded = self._decoder.blend(source.key, matches, places)
        if decoded is not None:
            return decoded, Tier.CODED
        chosen = [matches[place] for place in places.tolist()]
        ids = [match.interest.id for match in chosen]
        record = self._computing(f"image {source.key}").record(source, ids, base=False)
        return self._computed(record, chosen, matches.calibrated), Tier.COMPUTED

    def _computed(self, record: TextureRecord, matches: Sequence[Match], calibrated: bool) -> Plane:
        """Blend of maps that were made with the encoder."""
        if not matches:
            side = self._computing(f"image {record.key}").encoder.map_size
            return np.zeros((side, side), np.float32)
        maps = [dequantise(record.maps[match.interest.id])[0] for match in matches]
        return blend(maps, matches, calibrated)

    def _assembler(self, records: bytes, other: Plane | None) -> Assembler | None:
        """The assembler for the grid that the catalogue's maps are on: all of them have one size.

        None as long as neither `records` nor an `other` map tell that size.
        """
        if self._ready is None:
            side = side_of_maps(records) if other is None else len(other)
            if side is not None:
                self._ready = Assembler(self._held, self._channels, side)
        return self._ready

    def _own_map(
        self, source: Source, question: str, matches: Matches, confidence: float
    ) -> tuple[Plane | None, Tier]:
        """The question's own map where it has a part in the similarity, and can be made; and how it was made.

        It cannot when the encoder may not be loaded and the question was not seen before, or when the image
        has no code, is known by its key alone, and no file of it is left: then the interests alone answer,
        and `Lookup.own_share` says so.
        """
        if matches and own_share(confidence) == 0:
            return None, Tier.STORED
        decoded = self._decoder.phrase_map(source.key, question)
        if decoded is not None:
            return self._own_strength(question, decoded, matches), Tier.CODED
        if matches and self._computer is None:
            return None, Tier.STORED
        try:
            made = self._computing(f"image {source.key}").map(source, question)
            return self._own_strength(question, made, matches), Tier.COMPUTED
        except (RecordMissingError, ImageReadError):
            if not matches:
                raise
            return None, Tier.STORED

    def _own_strength(self, question: str, plane: Plane, matches: Matches) -> Plane:
        """The question's own map on the scale on which the maps of `matches` are summed."""
        return self._distribution(question, plane).strength(plane) if matches.calibrated else plane

    def _distribution(self, phrase: str, plane: Plane) -> Distribution:
        """Distribution of the maps of a phrase; without codes there is only its map in this image."""
        return self._decoder.distribution(phrase) or Distribution.of(plane[None], 1)

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
