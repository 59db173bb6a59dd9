"""Recording what is asked without keeping the one who asks waiting.

A question goes to a queue in memory, which takes less than a microsecond, and a thread writes what has come
together since, twice a second. `Observer.close`, and the end of the interpreter, write the rest.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import time
from types import TracebackType
from typing import Protocol, Self

from .errors import TexcatError, UsageError
from .memory import MAX_OBSERVATIONS, Memory, Mention, Observation
from .phrases import singulars
from .types import Interest

WRITE_SECONDS = 0.5
"""A question is written after so long. With the time that writing takes, kill -9 loses the last second."""

_log = logging.getLogger(__name__)


class Matched(Protocol):
    """An interest that answers a question; `texcat.retrieval.Match` is one."""

    @property
    def interest(self) -> Interest:
        """The interest."""

    @property
    def weight(self) -> float:
        """Its part in the blend, in [0, 1]."""


@dataclass(slots=True)
class _Asked:
    question: str | None
    matches: Sequence[Matched]
    tier: str
    confidence: float
    time: float
    count: int = 1


class Observer:
    """Records what is asked. Use as a context manager, or call `close`. May be shared by threads.

    While the memory cannot be written, because another process keeps the lock or the disk is full, a
    warning says so once, and what is asked waits. In a forked child it records nothing.

    Args:
        memory: open to write; closed with the observer.
        extract: the phrases in a question, normalised, each once. Called by the thread that writes.
    """

    def __init__(self, memory: Memory, extract: Callable[[str], Sequence[str]]) -> None:
        self._memory = memory
        self._extract = extract
        self._queue: deque[tuple[str | None, Sequence[Matched], str, float, float]] = deque()
        self._unwritten: list[Observation] = []
        self._writing = threading.Lock()
        self._idle = True
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._warned = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="texcat-observer", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def observe(
        self,
        question: str | None,
        matches: Sequence[Matched],
        tier: str,
        confidence: float,
        *,
        at: float | None = None,
    ) -> None:
        """Record a question. Nothing is written yet when this returns.

        The same question, asked of many images within one second, is one observation with a count.

        Args:
            question: in words; None if only `matches` are known. Its phrases are kept, not its words.
            matches: interests that answer it.
            tier: how their maps were obtained.
            confidence: how well they answer it, in [0, 1].
            at: when it was asked, in seconds since 1970; now when None.

        Raises:
            UsageError: this is closed.
        """
        self._queue.append((question, matches, tier, confidence, time() if at is None else at))
        if self._idle:
            if self._closing.is_set():
                raise UsageError("this observer is closed, and records nothing any more")
            self._idle = False
            self._wake.set()

    def feedback(self, matches: Iterable[Matched], useful: bool, *, at: float | None = None) -> None:
        """Note, in the memory and at once, that the answer made from `matches` was useful, or was not.

        Raises:
            RegistryError, StoreFullError: it cannot be written.
        """
        weights = {match.interest.phrase: match.weight for match in matches}
        self._memory.feedback(weights, useful, time() if at is None else at)

    def flush(self) -> None:
        """Write what was asked before this call.

        Raises:
            RegistryError, StoreFullError: it cannot be written. It is kept, for the next time.
        """
        with self._writing:
            self._unwritten += map(self._observation, self._asked())
            del self._unwritten[:-MAX_OBSERVATIONS]  # the log would not keep the others either
            self._memory.record(self._unwritten)
            self._unwritten.clear()

    def close(self) -> None:
        """Write what was asked, and stop. May be called twice.

        Raises:
            RegistryError, StoreFullError: what was asked last cannot be written, and is lost.
        """
        if self._closing.is_set() or os.getpid() != self._process:
            return
        atexit.unregister(self.end)
        self._closing.set()
        self._wake.set()
        self._thread.join()
        self._idle = True
        try:
            self.flush()
        finally:
            self._memory.close()

    def end(self) -> None:
        """As `close`; what cannot be written is lost with a warning, and no error.

        For the end of the interpreter, and for whoever has an answer that was right all the same.
        """
        try:
            self.close()
        except TexcatError as error:
            _log.warning("what was asked last is not recorded: %s", error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._closing.wait(WRITE_SECONDS)
            self._wake.clear()
            self._idle = True  # before the queue is emptied: what comes later wakes the thread again
            try:
                self.flush()
            except TexcatError as error:
                self._wake.set()
                if not self._warned:
                    _log.warning("what is asked waits to be recorded: %s", error)
                self._warned = True
            else:
                self._warned = False

    def _asked(self) -> Iterable[_Asked]:
        """What is in the queue, each question of one second once."""
        found: dict[tuple[object, str, float], _Asked] = {}
        while self._queue:
            question, matches, tier, confidence, at = self._queue.popleft()
            # At first by identity, which is quick: `found` holds the matches, so no other can have their id.
            key = (id(matches) if question is None else question, tier, at // 1)
            if (held := found.get(key)) is None:
                found[key] = _Asked(question, matches, tier, confidence, at)
            else:
                held.count += 1
        once: dict[object, _Asked] = {}
        for (_, tier, second), asked in found.items():
            content = tuple((match.interest.phrase, match.weight) for match in asked.matches)
            held = once.setdefault(
                (content if asked.question is None else asked.question, tier, second), asked
            )
            if held is not asked:
                held.count += asked.count
        return once.values()

    def _observation(self, asked: _Asked) -> Observation:
        mentions = {
            match.interest.phrase: Mention(match.interest.phrase, False, match.weight)
            for match in asked.matches
        }
        for phrase in () if asked.question is None else self._extract(asked.question):
            # Who asks how many dogs there are has asked about the interest "dog", and the other way round.
            same = (p for p in mentions if p == phrase or p in singulars(phrase) or phrase in singulars(p))
            held = mentions.get(next(same, phrase), Mention(phrase, True))
            mentions[held.phrase] = replace(held, named=True)
        return Observation(
            asked.time, str(asked.tier), asked.confidence, tuple(mentions.values()), asked.count
        )
