"""Giving up the maps of interests that are hardly used: the disk gets their room back, and nothing is lost.

An interest that is pruned is *archived*: it keeps phrase, exemplars, weight, vectors, distribution and
history, and answers questions from codes. `expand` brings its maps back; so does `work`, once a question
names it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .catalogue import Catalogue
from .errors import UsageError
from .graph import InterestGraph
from .memory import Memory
from .store import TextureStore, map_bytes
from .weights import Use


@dataclass(frozen=True, slots=True)
class Prunable:
    """An interest that has maps, and what speaks for it.

    Attributes:
        phrase: of the interest.
        maps: how many images have its map.
        bytes: of the disk that these maps take (`store.map_bytes`).
        weight: its own weight, as use and feedback have moved it: times `Use.factor`.
        expected: questions about it, as recent ones would have it (`InterestGraph.expected`).
        last: when it was last asked about, in seconds since 1970; None if it never was.
        pinned: whether it must be left alone.
    """

    phrase: str
    maps: int
    bytes: int
    weight: float
    expected: float
    last: float | None
    pinned: bool


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What pruning did, or would do.

    Attributes:
        pruned: interests that go, the one that is worth least first.
        kept: the other interests that have maps, the one that is worth most first.
        kept_bytes: of the maps that stay.
        returned_bytes: that the disk got back; 0 in a dry run.
        over_bytes: by how much what is pinned is beyond the budget.
        dry_run: whether nothing was changed.
    """

    pruned: tuple[Prunable, ...]
    kept: tuple[Prunable, ...]
    kept_bytes: int
    returned_bytes: int
    over_bytes: int
    dry_run: bool


def prune_interests(
    catalogue: Catalogue,
    *,
    below: float | None = None,
    max_bytes: int | None = None,
    dry_run: bool = True,
    now: float | None = None,
    compact: bool = True,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PruneReport:
    """Archive interests that are worth least, and give the room of their maps back to the disk.

    An interest is worth its own weight, as use and feedback have moved it, plus its expected use. Pinned ones
    are left alone. When it is interrupted, each interest is either as it was or archived; run it again to go
    on.

    Args:
        catalogue: open to write; to read is enough for a dry run.
        below: archive interests whose weight (`Prunable.weight`) is below this.
        max_bytes: archive, of the rest, those worth least until the maps take no more than this.
        dry_run: only say what would go.
        now: in seconds since 1970; the present when None.
        compact: whether the room is given back at once; otherwise the next `Catalogue.compact` does.
        on_progress: called while room is given back, as by `Catalogue.compact`.

    Raises:
        UsageError: neither `below` nor `max_bytes` is given, or one is negative or not a number.
        ReadOnlyError: not `dry_run`, and the catalogue is open to read.
        StoreFullError: the disk has no room for what is written on the way.
    """
    if below is None and max_bytes is None:
        raise UsageError("say what to prune: interests below a weight, or until maps take so many bytes")
    for name, value in (("below", below), ("max_bytes", max_bytes)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} must be finite and >= 0, got {value}")
    if not dry_run:
        catalogue.require_writable("prune interests")
    moment = time.time() if now is None else now
    ranked = prunable(catalogue, now=moment)
    least, most = (below or 0.0), (math.inf if max_bytes is None else max_bytes)
    pruned = [p for p in ranked if p.weight < least and not p.pinned]
    left = [p for p in ranked if p.pinned or p.weight >= least]
    held = sum(p.bytes for p in left)
    for candidate in list(left):
        if held > most and not candidate.pinned:
            pruned.append(candidate)
            left.remove(candidate)
            held -= candidate.bytes
    returned = 0
    if not dry_run:
        for interest in pruned:
            catalogue.archive_interest(interest.phrase, moment)
        if pruned and compact:
            returned = catalogue.compact(on_progress)
    over = 0 if max_bytes is None else max(0, held - max_bytes)
    return PruneReport(tuple(pruned), tuple(reversed(left)), held, returned, over, dry_run)


def prunable(catalogue: Catalogue, *, now: float) -> list[Prunable]:
    """Every interest that has maps, the one that is worth least first.

    Args:
        catalogue: open to read.
        now: in seconds since 1970.

    Raises:
        RegistryError: the database failed.
    """
    maps, half_life = catalogue.store.stats().maps, catalogue.settings.half_life
    with Memory.of(catalogue, read_only=True) as memory:
        uses = memory.uses(now, half_life)
        graph = InterestGraph.load(memory, catalogue.settings, now=now, half_life=half_life)
    expected = graph.expected()
    one = _bytes_a_map(catalogue.store, maps)
    found = []
    for interest in catalogue.interests():
        if interest.id in maps:
            use = uses.get(interest.phrase, Use())
            found.append(
                Prunable(
                    phrase=interest.phrase,
                    maps=maps[interest.id],
                    bytes=math.ceil(maps[interest.id] * one),
                    weight=interest.weight * use.factor,
                    expected=expected.get(interest.phrase, 0.0),
                    last=use.last,
                    pinned=interest.pinned,
                )
            )
    return sorted(found, key=lambda p: (p.weight + p.expected, p.phrase))


def _bytes_a_map(store: TextureStore, held: Mapping[int, int]) -> float:
    """Bytes of the disk that one map takes; 0 where none is held. All maps of a store have one size."""
    for interest in held:
        for _, planes in store.scan(interest):
            return map_bytes(planes.values.shape[1])
    return 0.0
