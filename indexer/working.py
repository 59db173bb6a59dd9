"""Filling the corpus in the background with the maps that look-ups missed.

What is to be done is kept nowhere: it follows from the interests, the maps that are held, and the log of what
was asked (`queue`). So it is never out of date, an interruption loses nothing, and what is forgotten is not
worked on.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event, get_native_id

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import CatalogueLockedError, EncoderError, ImageReadError, UsageError
from ..catalogue.memory import Memory
from ..catalogue.types import Interest
from ..catalogue.weights import Use
from .encoders import DenseEncoder, load_encoder
from .expanding import Pace, expand_interest
from .passes import Progress

BATCH = 32
"""Images that are filled between two pauses."""

REST = 1.0
"""After each batch, so many times as long as it took is rested."""

POLL_SECONDS = 5.0
"""How often a worker that has nothing to do looks for something."""

RETRY_SECONDS = 0.1
"""How often a worker that gave way looks whether it may go on."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A phrase whose maps are to be made.

    Attributes:
        phrase: an interest, or what is going to be one.
        expected: questions about it that look-ups could not answer from the store, decayed; for an interest,
            all questions about it, and its own weight.
        lacking: images that have a code and lack its map.
    """

    phrase: str
    expected: float
    lacking: int


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What a worker did.

    Attributes:
        done: phrases that have all their maps now, in the order in which they were filled.
        filled: maps that were made.
        refused: phrases that could not be filled, each with the reason.
        left: tasks that are left.
        gave_way: how often another process was let go first.
        seconds: duration.
    """

    done: tuple[str, ...]
    filled: int
    refused: tuple[tuple[str, str], ...]
    left: int
    gave_way: int
    seconds: float


def queue(catalogue: Catalogue, memory: Memory, now: float) -> list[Task]:
    """What is to be done, the most promising first.

    - An interest that some image with a code lacks the map of, unless it is archived.
    - A phrase that is no interest, and that a question named whose answer took its own words.
    - An archived interest that a question has named since, when that was not answered from the store.

    A map takes the same room for every phrase, and what a phrase lacks is in proportion to the questions that
    miss it: so the order by expected use is the order by expected use per byte, too.

    Args:
        catalogue: open to read.
        memory: of the catalogue.
        now: in seconds since 1970.

    Raises:
        RegistryError: the database failed.
    """
    if not catalogue.settings.codebook:
        return []  # nothing is made without codes
    interests = {interest.phrase: interest for interest in catalogue.interests()}
    lacking = _lacking(catalogue, list(interests.values()))
    uses = memory.uses(now, catalogue.settings.half_life)
    tasks = [
        Task(phrase, interest.weight + uses.get(phrase, Use()).amount, lacking[interest.id])
        for phrase, interest in interests.items()
        if interest.archived is None and lacking[interest.id]
    ]
    images = catalogue.registry.counts().images
    for phrase, use in memory.missed(now, catalogue.settings.half_life).items():
        interest = interests.get(phrase)
        if interest is None:
            if use.amount > 0:
                tasks.append(Task(phrase, use.amount, images))
        elif interest.archived is not None and use.last is not None and use.last > interest.archived:
            tasks.append(Task(phrase, uses[phrase].amount, lacking[interest.id]))
    return sorted(tasks, key=lambda task: (-task.expected, task.phrase))


class Worker:
    """Drains the queue of a catalogue, a small batch at a time, with one thread and pauses between.

    Args:
        stop: ends the work after the batch that is under way, once it is set.
        device: where the encoder runs; it is loaded for phrases that it has not seen.
        encoder: an encoder that is loaded already.
        on_progress: called after each batch, with the phrase, and with the images it has gone through.
        on_waiting: called with the reason when another process has to be waited for.
    """

    def __init__(
        self,
        *,
        stop: Event | None = None,
        device: str = "auto",
        encoder: DenseEncoder | None = None,
        on_progress: Callable[[str, Progress], None] = lambda phrase, progress: None,
        on_waiting: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._stop = Event() if stop is None else stop
        self._until = float("inf")
        self._device = device
        self._encoder = encoder
        self._on_progress = on_progress
        self._on_waiting = on_waiting
        self._done: list[str] = []
        self._filled = 0
        self._refused: dict[str, str] = {}
        self._left = 0
        self._gave_way = 0
        self._started = time.monotonic()

    def drain(self, catalogue: Catalogue) -> bool:
        """Fill what the queue names, the most promising first; whether nothing is left.

        The queue is looked at anew after each phrase. It ends before that when `stop` is set, or another
        process waits to write.

        Args:
            catalogue: open to write.

        Raises:
            ReadOnlyError, StoreFullError, CatalogueError: as their names say. What was filled is kept.
        """
        catalogue.require_writable("fill maps in the background")
        with Memory.of(catalogue, read_only=True) as memory:
            while True:
                tasks = [t for t in queue(catalogue, memory, time.time()) if t.phrase not in self._refused]
                self._left = len(tasks)
                if not tasks:
                    return True
                if not self._may_go_on(catalogue):
                    return False
                self._fill(catalogue, tasks[0].phrase)

    def run(
        self,
        path: str | os.PathLike[str],
        *,
        once: bool = False,
        seconds: float | None = None,
        allow_network: bool = False,
    ) -> WorkReport:
        """Open the catalogue at `path` and drain its queue, again and again, at the lowest priority.

        While there is nothing to do, nothing is locked. A process that wants to write is let go first, after
        the batch that is under way.

        Args:
            path: folder of the catalogue.
            once: end when nothing is left.
            seconds: end after so long.
            allow_network: as for `Catalogue.open`.

        Raises:
            CatalogueMissingError, CatalogueError, StoreFullError, RegistryError: as their names say.
        """
        self._started = time.monotonic()
        self._until = self._started + (float("inf") if seconds is None else seconds)
        # In a thread of its own: the priority of one that was lowered cannot be raised again.
        with ThreadPoolExecutor(1, "texcat-work", _lower_priority) as pool:
            pool.submit(self._run, Path(path), once, allow_network).result()
        return self.report()

    def report(self) -> WorkReport:
        """What was done until now."""
        return WorkReport(
            tuple(self._done),
            self._filled,
            tuple(self._refused.items()),
            self._left,
            self._gave_way,
            time.monotonic() - self._started,
        )

    def _run(self, path: Path, once: bool, allow_network: bool) -> None:
        seen: object = None
        while not self._is_over():
            with Catalogue.open(path) as reading:
                state = _state(reading)
            empty = state == seen
            if not empty:
                empty = self._drain_at(path, allow_network)
                seen = state if empty else None
            if empty and once:
                break
            self._stop.wait(min(POLL_SECONDS if empty else RETRY_SECONDS, self._remaining()))

    def _drain_at(self, path: Path, allow_network: bool) -> bool:
        try:
            with Catalogue.open(path, "w", allow_network=allow_network, gives_way=True) as catalogue:
                return self.drain(catalogue)
        except CatalogueLockedError as error:
            self._on_waiting(str(error))
            return False

    def _fill(self, catalogue: Catalogue, phrase: str) -> None:
        resumed = time.monotonic()

        def go_on() -> bool:
            nonlocal resumed
            self._stop.wait(min(REST * (time.monotonic() - resumed), self._remaining()))
            resumed = time.monotonic()
            return self._may_go_on(catalogue)

        try:
            encoder = self._encoder_for(catalogue, phrase)
            report = expand_interest(
                catalogue,
                [phrase],
                encoder=encoder,
                pace=Pace(images=BATCH, gentle=True, go_on=go_on),
                on_progress=lambda progress: self._on_progress(phrase, progress),
            )
        except (EncoderError, ImageReadError, UsageError) as error:
            _log.warning("%r gets no maps: %s", phrase, error)
            self._refused[phrase] = str(error)
            return
        self._filled += report.filled
        if not report.stopped:
            self._done.append(phrase)

    def _encoder_for(self, catalogue: Catalogue, phrase: str) -> DenseEncoder | None:
        """The encoder, if the direction of `phrase` is not known; loaded once."""
        interest = catalogue.registry.find_interest(phrase)
        vectors = catalogue.registry.vectors(catalogue.settings.fingerprint)
        if self._encoder is None and (interest is None or interest.id not in vectors):
            self._encoder = load_encoder(catalogue.settings.encoder, self._device)
        return self._encoder

    def _may_go_on(self, catalogue: Catalogue) -> bool:
        if catalogue.is_wanted():
            self._gave_way += 1
            return False
        return not self._is_over()

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._remaining() <= 0

    def _remaining(self) -> float:
        return max(0.0, self._until - time.monotonic())


def _lacking(catalogue: Catalogue, interests: list[Interest]) -> Counter[int]:
    """By interest id, how many images have a code and lack its map."""
    ids = {interest.id for interest in interests}
    found = Counter[int]()
    for key in catalogue.store.keys():
        missing = ids - (catalogue.store.held(key) or frozenset())
        if missing and catalogue.store.has_code(key):
            found.update(missing)
    return found


def _state(catalogue: Catalogue) -> object:
    """What the queue follows from: it is the same as long as this is."""
    with Memory.of(catalogue, read_only=True) as memory:
        last = memory.last_observation()
    interests = tuple((interest.id, interest.archived) for interest in catalogue.interests())
    return catalogue.registry.counts().images, interests, last


def _lower_priority() -> None:
    """Let everything else go first: the work of this thread, and of those that it starts, can wait."""
    os.setpriority(os.PRIO_PROCESS, get_native_id(), 19)  # of a thread, on Linux
