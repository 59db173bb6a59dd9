"""Indexing ahead of questions: the most promising phrases become interests before anybody asks for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from ..catalogue.catalogue import Catalogue
from ..catalogue.codes import map_side
from ..catalogue.errors import UsageError
from ..catalogue.graph import InterestGraph, Suggestion
from ..catalogue.memory import Memory
from ..catalogue.store import TextureStore, map_bytes
from .encoders import DenseEncoder
from .expanding import Pace, expand_interest
from .passes import Progress


@dataclass(frozen=True, slots=True)
class Left:
    """A suggested phrase that was left for another time, and why."""

    suggestion: Suggestion
    reason: str


@dataclass(frozen=True, slots=True)
class SuggestedReport:
    """What indexing ahead did.

    Attributes:
        done: phrases that have their maps now, the most promising first.
        left: those that were to have them too, and have not, or not all.
        filled: maps that were made.
        bytes: of the disk that these take.
        bytes_each: of the disk that the maps of one phrase take, in all images.
        uncoded: images that have no code, so that they got no map.
        seconds: duration.
    """

    done: tuple[Suggestion, ...]
    left: tuple[Left, ...]
    filled: int
    bytes: int
    bytes_each: int
    uncoded: int
    seconds: float


def expand_suggested(
    catalogue: Catalogue,
    n: int,
    *,
    budget_bytes: int | None = None,
    budget_seconds: float | None = None,
    now: float | None = None,
    device: str = "auto",
    encoder: DenseEncoder | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> SuggestedReport:
    """Make interests of the `n` most promising phrases (`InterestGraph.suggest`), with maps in all images.

    The graph is taken as it is: `interest_graph` brings its ties and candidates up to date.

    Interrupt it at any time: phrases that are interests by then get the rest of their maps from `work`, or
    the next expansion.

    Args:
        catalogue: open to write.
        n: how many phrases, at most.
        budget_bytes: bytes of the disk that their maps may take. What a phrase takes is known before: images
            x `map_bytes`.
        budget_seconds: no phrase is begun later than this, and one that is being filled then stops after the
            images that are under way.
        now: in seconds since 1970; the present when None.
        device: where the encoder runs; it is needed for phrases that it has not seen.
        encoder: an encoder that is loaded already.
        on_progress: called after each commit; counts images, those of each phrase anew if there is a
            `budget_seconds`.

    Raises:
        UsageError: `n` is below 1, or a budget is negative or not a number.
        CatalogueError, ReadOnlyError, FingerprintMismatchError, EncoderError, StoreFullError: as
            `expand_interest`.
    """
    started = time.monotonic()
    catalogue.require_writable("index ahead")
    if n < 1:
        raise UsageError(f"at least one phrase is indexed ahead, got n = {n}")
    for name, value in (("budget_bytes", budget_bytes), ("budget_seconds", budget_seconds)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} must be finite and >= 0, got {value}")
    suggestions = suggested(catalogue, n, now=now)
    one = bytes_a_map(catalogue.store)
    each = math.ceil(one * sum(1 for _ in catalogue.store.keys()))
    room = n if budget_bytes is None or each == 0 else int(budget_bytes // each)
    chosen, crowded = suggestions[:room], suggestions[room:]

    def in_time() -> bool:
        return budget_seconds is None or time.monotonic() - started < budget_seconds

    done: list[Suggestion] = []
    left: list[Left] = []
    filled = uncoded = 0
    # Together, phrases share the reading of codes and the writing of records. Against the clock, one comes
    # after the other, so that those which are begun are whole.
    together = [chosen] if budget_seconds is None and chosen else [[suggestion] for suggestion in chosen]
    for batch in together:
        if not in_time():
            left += (Left(suggestion, f"{budget_seconds:g} s were over") for suggestion in batch)
            continue
        report = expand_interest(
            catalogue,
            [suggestion.phrase for suggestion in batch],
            device=device,
            encoder=encoder,
            pace=Pace(go_on=in_time),
            on_progress=on_progress,
        )
        filled += report.filled
        uncoded = max(uncoded, report.uncoded)
        if report.stopped:
            reason = f"{budget_seconds:g} s were over after {report.filled:,} of its maps"
            left += (Left(suggestion, reason) for suggestion in batch)
        else:
            done += batch
    left += (Left(suggestion, f"no room for its {each:,} bytes") for suggestion in crowded)
    return SuggestedReport(
        tuple(done), tuple(left), filled, math.ceil(one * filled), each, uncoded, time.monotonic() - started
    )


def suggested(catalogue: Catalogue, n: int, *, now: float | None = None) -> list[Suggestion]:
    """The `n` most promising phrases that are no interests, or archived ones: `InterestGraph.suggest`."""
    moment = time.time() if now is None else now
    with Memory.of(catalogue, read_only=True) as memory:
        graph = InterestGraph.load(
            memory, catalogue.settings, now=moment, half_life=catalogue.settings.half_life
        )
    return graph.suggest(n)


def bytes_a_map(store: TextureStore) -> float:
    """Bytes of the disk that one map of an interest takes; 0 while no image has a code."""
    code = next((code for _, code in islice(store.codes(), 1)), None)
    return 0.0 if code is None else map_bytes(map_side(code))
