"""The memory of a catalogue: what its user asked, and about what.

The log has one row for each question, and one for each phrase that a question is about. It holds no question
as it was written, and no digest of one, by which a guess could be confirmed: only phrases. It stays in the
registry, on the user's machine, and the methods called ``forget`` erase it.

Weights and sessions are worked out from the log when they are needed, so that there is no count that two
processes could spoil for each other. The log is bounded: it keeps the newest `MAX_OBSERVATIONS` questions.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, case, delete, exists, func, select, update

from . import tables
from .catalogue import REGISTRY_NAME, Catalogue
from .database import Database, insert_missing, sqlite_url
from .errors import RegistryError, UsageError
from .phrases import normalise_phrase
from .weights import CONFIDENT, HALF_LIFE, Use, decayed

MAX_OBSERVATIONS = 100_000
"""How many questions the log keeps: at a hundred a day, those of nearly three years."""

_CHUNK = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mention:
    """A phrase that a question is about.

    Attributes:
        phrase: normalised.
        named: whether it stands in the question.
        weight: its part in the blend if it was matched as an interest, in [0, 1]; 0 if it was not.
    """

    phrase: str
    named: bool
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """A question that was asked.

    Attributes:
        time: in seconds since 1970.
        tier: how its maps were obtained.
        confidence: how well the interests answer it, in [0, 1].
        mentions: what it is about, each phrase once.
        count: of how many images it was asked within one second. It is one question all the same.
        id: place in the log; 0 before it is recorded.
    """

    time: float
    tier: str
    confidence: float
    mentions: tuple[Mention, ...]
    count: int = 1
    id: int = 0

    def amounts(self) -> dict[str, float]:
        """What it counts for each phrase, in [0, 1]: 1 if named, else weight in the blend x confidence."""
        return {m.phrase: 1.0 if m.named else m.weight * self.confidence for m in self.mentions}


@dataclass(frozen=True, slots=True)
class Node:
    """A phrase that the catalogue knows.

    Attributes:
        phrase: normalised.
        weight: the user's own, if it is an interest now, and not archived; otherwise None.
        candidate: whether it belongs to the vocabulary that suggestions are also made from.
    """

    phrase: str
    weight: float | None
    candidate: bool


class Memory:
    """What was asked, in the registry of a catalogue.

    Each method is one transaction, as in `Registry`. Recording needs neither the lock of the catalogue's
    writer nor its shards: any number of processes may record while one indexes. They take turns in the
    database, and wait for each other as long as `database.LOCK_SECONDS`.

    Every method may raise RegistryError; every one that changes something also ReadOnlyError and
    StoreFullError.

    Attributes:
        database: that holds it.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    def of(cls, catalogue: Catalogue, *, read_only: bool = False) -> Self:
        """The memory of `catalogue`, over connections of its own.

        It may be written though the catalogue is open to read, if the rights and the disk let it.

        Raises:
            RegistryError: not `read_only`, and the file of the registry cannot be written.
        """
        file = catalogue.path / REGISTRY_NAME
        url = catalogue.settings.database or sqlite_url(file)
        if not (read_only or catalogue.settings.database):
            _require_writable(file, url)
        return cls(Database.open(url, read_only=read_only))

    def close(self) -> None:
        """Give all connections back. May be called twice."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, observations: Sequence[Observation]) -> None:
        """Add to the log. The oldest go once it holds `MAX_OBSERVATIONS`."""
        if not observations:
            return
        rows = [
            {"time": o.time, "count": o.count, "tier": o.tier, "confidence": o.confidence}
            for o in observations
        ]
        insert = tables.observations.insert().returning(
            tables.observations.c.id, sort_by_parameter_order=True
        )
        with self._erasing("record what was asked") as connection:
            ids = connection.scalars(insert, rows).all()
            phrases = _phrase_ids(connection, (m.phrase for o in observations for m in o.mentions))
            mentions = [
                {
                    "observation_id": number,
                    "phrase_id": phrases[mention.phrase],
                    "named": mention.named,
                    "weight": mention.weight,
                }
                for number, observation in zip(ids, observations, strict=True)
                for mention in observation.mentions
            ]
            if mentions:
                connection.execute(tables.mentions.insert(), mentions)
            _forget_observations(connection, tables.observations.c.id <= ids[-1] - MAX_OBSERVATIONS)

    def feedback(self, weights: Mapping[str, float], useful: bool, time: float) -> None:
        """Note that an answer was useful, or was not.

        Args:
            weights: of the interests it was made from, by phrase: their parts in the blend. Each is
                credited, or debited, with its part.
            useful: which of the two.
            time: now, in seconds since 1970.
        """
        sign = 1.0 if useful else -1.0
        with self.database.writing("note feedback") as connection:
            phrases = _phrase_ids(connection, weights)
            rows = [
                {"time": time, "phrase_id": phrases[phrase], "amount": sign * weight}
                for phrase, weight in weights.items()
            ]
            if rows:
                connection.execute(tables.feedback.insert(), rows)

    def observations(self, after: int = 0) -> Iterator[Observation]:
        """The log from behind the observation `after` on, in the order of recording.

        Mentions are in the order in which their phrases were first seen.
        """
        with self.database.reading() as connection:
            rows = connection.execute(_LOG, {"after": after}).all()
        for _, group in groupby(rows, lambda row: row[0]):
            members = list(group)
            number, time, count, tier, confidence, *_ = members[0]
            mentions = tuple(
                Mention(phrase, named, weight) for *_, phrase, named, weight in members if phrase is not None
            )
            yield Observation(time, tier, confidence, mentions, count, number)

    def last_observation(self) -> int:
        """The id of the newest observation; 0 while there is none."""
        with self.database.reading() as connection:
            return connection.scalar(select(func.max(tables.observations.c.id))) or 0

    def uses(self, now: float, half_life: float = HALF_LIFE) -> dict[str, Use]:
        """What each phrase in the log was used for, at `now`, by `weights`.

        Args:
            now: in seconds since 1970.
            half_life: in seconds.

        Raises:
            UsageError: `half_life` is not finite and above 0.
        """
        asked, said = self._events()
        amounts = asked.sums(decayed(asked.times, now, half_life))
        feedback = said.sums(decayed(said.times, now, half_life))
        last = asked.last()
        return {
            phrase: Use(amounts.get(phrase, 0.0), feedback.get(phrase, 0.0), last.get(phrase))
            for phrase in {**amounts, **feedback}
        }

    def missed(self, now: float, half_life: float = HALF_LIFE) -> dict[str, Use]:
        """Phrases that questions named and that were not answered from what is stored, with how much so.

        A question counts, decayed, with the part that its own words had in the answer:
        ``max(0, 1 - confidence / 0.5)``. `Use.last` is when the last of them was asked, whatever its part.
        What was asked before the user removed an interest does not count for its phrase.

        Args:
            now, half_life: as for `uses`.

        Raises:
            UsageError: as `uses`.
        """
        names = select(tables.phrases.c.id, tables.phrases.c.phrase)
        with self.database.reading() as connection:
            phrases = dict(connection.execute(names).all())
            missed = _Events(phrases, connection.execute(_MISSED).all())
        amounts, last = missed.sums(decayed(missed.times, now, half_life)), missed.last()
        return {phrase: Use(amount, last=last[phrase]) for phrase, amount in amounts.items()}

    def history(self, times: Sequence[float], half_life: float = HALF_LIFE) -> dict[str, list[Use]]:
        """As `uses`, at each of `times`, as it was then: later questions and feedback have no part."""
        asked, said = self._events()
        history: dict[str, list[Use]] = {phrase: [] for phrase in (*asked.phrases, *said.phrases)}
        for now in times:
            # What lies in the future of `now` was not asked yet.
            amounts = asked.sums(np.where(asked.times <= now, decayed(asked.times, now, half_life), 0.0))
            feedback = said.sums(np.where(said.times <= now, decayed(said.times, now, half_life), 0.0))
            last = asked.last(until=now)
            for phrase, uses in history.items():
                uses.append(Use(amounts.get(phrase, 0.0), feedback.get(phrase, 0.0), last.get(phrase)))
        return history

    def nodes(self) -> list[Node]:
        """Every phrase that is known, in the order in which they came to be."""
        statement = (
            select(tables.phrases.c.phrase, tables.interests.c.weight, tables.phrases.c.candidate)
            .outerjoin(
                tables.interests,
                (tables.interests.c.phrase == tables.phrases.c.phrase)
                & tables.interests.c.archived.is_(None),
            )
            .order_by(tables.phrases.c.id)
        )
        with self.database.reading() as connection:
            return [Node(*row) for row in connection.execute(statement)]

    def add_candidates(self, phrases: Iterable[str]) -> None:
        """Make `phrases` members of the vocabulary that suggestions are also made from.

        Raises:
            InvalidPhraseError: as `normalise_phrase`. None is added.
        """
        normal = [normalise_phrase(phrase) for phrase in phrases]
        with self.database.writing("add candidates") as connection:
            for chunk in _chunks(_phrase_ids(connection, normal).values()):
                of_chunk = tables.phrases.c.id.in_(chunk)
                connection.execute(update(tables.phrases).where(of_chunk).values(candidate=True))

    def count(self, phrase: str | None = None, since: float = -math.inf, until: float = math.inf) -> int:
        """How many questions the log has from `since` to before `until`, in seconds since 1970.

        Only those about `phrase`, if it is given.

        Raises:
            InvalidPhraseError: as `normalise_phrase`.
        """
        asked = tables.observations.c
        statement = select(func.count()).select_from(tables.observations)
        statement = statement.where(asked.time >= since, asked.time < until)
        if phrase is not None:
            about = tables.phrases.c.phrase == normalise_phrase(phrase)
            mentions = select(tables.mentions.c.observation_id).join(tables.phrases).where(about)
            statement = statement.where(asked.id.in_(mentions))
        with self.database.reading() as connection:
            return int(connection.execute(statement).scalar_one())

    def forget(self) -> int:
        """Erase the whole log, with all feedback; how many questions it held.

        Interests and candidates stay. This and the others called ``forget`` also erase the vectors that are
        kept of questions, because nothing tells which of them belong to what. SQLite overwrites what is
        erased. An `Observer` of another process may still record what was asked in the last second.
        """
        with self._erasing("forget what was asked") as connection:
            connection.execute(delete(tables.feedback))
            forgotten = connection.execute(delete(tables.observations)).rowcount
            _drop_phrases(connection, connection.scalars(select(tables.phrases.c.id)).all())
            connection.execute(delete(tables.questions))
        self._clean()
        return forgotten

    def forget_phrase(self, phrase: str) -> int:
        """Erase a phrase from the log, with its feedback; from how many questions.

        A question that was about nothing else goes too. If the phrase is an interest or a candidate, it
        stays one, without a history.

        Raises:
            InvalidPhraseError: as `normalise_phrase`.
        """
        normal = normalise_phrase(phrase)
        with self._erasing("forget a phrase") as connection:
            number = connection.scalar(select(tables.phrases.c.id).where(tables.phrases.c.phrase == normal))
            mentions = tables.mentions.c
            statement = delete(tables.mentions).where(mentions.phrase_id == number)
            touched = connection.scalars(statement.returning(mentions.observation_id)).all()
            for chunk in _chunks(touched):
                about_nothing = ~exists().where(mentions.observation_id == tables.observations.c.id)
                connection.execute(
                    delete(tables.observations).where(tables.observations.c.id.in_(chunk), about_nothing)
                )
            connection.execute(delete(tables.feedback).where(tables.feedback.c.phrase_id == number))
            _drop_phrases(connection, [] if number is None else [number])
            connection.execute(delete(tables.questions))
        self._clean()
        return len(touched)

    def forget_between(self, since: float, until: float) -> int:
        """Erase what was asked, and feedback, from `since` to before `until`; how many questions.

        Both are in seconds since 1970.

        Raises:
            UsageError: `since` is not before `until`.
        """
        if not since < until:
            raise UsageError(f"a range of time starts before it ends, got {since} to {until}")
        asked, said = tables.observations.c, tables.feedback.c
        with self._erasing("forget a range of time") as connection:
            statement = delete(tables.feedback).where(said.time >= since, said.time < until)
            phrases = connection.scalars(statement.returning(said.phrase_id)).all()
            forgotten = _forget_observations(connection, (asked.time >= since) & (asked.time < until))
            _drop_phrases(connection, phrases)
            connection.execute(delete(tables.questions))
        self._clean()
        return forgotten

    def _events(self) -> tuple[_Events, _Events]:
        """What was asked, and the feedback, of one moment."""
        names = select(tables.phrases.c.id, tables.phrases.c.phrase)
        with self.database.reading() as connection:
            phrases = dict(connection.execute(names).all())
            asked, said = connection.execute(_ASKED).all(), connection.execute(_SAID).all()
        return _Events(phrases, asked), _Events(phrases, said)

    @contextmanager
    def _erasing(self, action: str) -> Iterator[Connection]:
        """As `Database.writing`; SQLite overwrites what is deleted with zeros."""
        with self.database.writing(action) as connection:
            if self.database.dialect == "sqlite":
                connection.exec_driver_sql("PRAGMA secure_delete = ON").all()
            yield connection

    def _clean(self) -> None:
        """Take what was erased out of SQLite's log of writes too."""
        if self.database.dialect == "sqlite":
            with self.database.reading() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()


class _Events:
    """Events that count for phrases, as rows of the phrase's id, a time, and an amount."""

    def __init__(self, phrases: Mapping[int, str], rows: Sequence[Any]) -> None:
        # Column by column: NumPy takes each row apart by itself, in ten times the time.
        numbers, times, amounts = zip(*rows, strict=True) if rows else ((), (), ())
        ids, self._places = np.unique(np.array(numbers, np.int64), return_inverse=True)
        self.phrases = [phrases[number] for number in ids.tolist()]
        self.times = np.array(times, np.float64)
        self._amounts = np.array(amounts, np.float64)

    def sums(self, left: NDArray[np.float64]) -> dict[str, float]:
        """By phrase, the sum of the amounts, each times what is `left` of it."""
        sums = np.bincount(self._places, self._amounts * left, len(self.phrases))
        return dict(zip(self.phrases, sums.tolist(), strict=True))

    def last(self, until: float = np.inf) -> dict[str, float]:
        """By phrase, the time of the last event that is not after `until`, where there is one."""
        times = np.full(len(self.phrases), -np.inf)
        np.maximum.at(times, self._places, np.where(self.times <= until, self.times, -np.inf))
        return {p: t for p, t in zip(self.phrases, times.tolist(), strict=True) if t > -np.inf}


_LOG = (
    select(
        tables.observations.c.id,
        tables.observations.c.time,
        tables.observations.c.count,
        tables.observations.c.tier,
        tables.observations.c.confidence,
        tables.phrases.c.phrase,
        tables.mentions.c.named,
        tables.mentions.c.weight,
    )
    .select_from(tables.observations)
    .outerjoin(tables.mentions, tables.mentions.c.observation_id == tables.observations.c.id)
    .outerjoin(tables.phrases, tables.phrases.c.id == tables.mentions.c.phrase_id)
    .where(tables.observations.c.id > bindparam("after"))
    .order_by(tables.observations.c.id, tables.mentions.c.phrase_id)
)
_ASKED = select(
    tables.mentions.c.phrase_id,
    tables.observations.c.time,
    # As `Observation.amounts`.
    case((tables.mentions.c.named, 1.0), else_=tables.mentions.c.weight * tables.observations.c.confidence),
).join_from(tables.mentions, tables.observations)
_MISSED = (
    select(
        tables.mentions.c.phrase_id,
        tables.observations.c.time,
        case(
            (tables.observations.c.confidence < CONFIDENT, 1 - tables.observations.c.confidence / CONFIDENT),
            else_=0.0,
        ),
    )
    .join_from(tables.mentions, tables.observations)
    .join(tables.phrases, tables.phrases.c.id == tables.mentions.c.phrase_id)
    .where(
        tables.mentions.c.named,
        tables.observations.c.tier != "stored",
        tables.phrases.c.removed.is_(None) | (tables.observations.c.time > tables.phrases.c.removed),
    )
)
_SAID = select(tables.feedback.c.phrase_id, tables.feedback.c.time, tables.feedback.c.amount)


def _require_writable(file: Path, url: str) -> None:
    # SQLite opens a file that it may not write all the same, and fails at the first write.
    if not all(os.access(path, os.W_OK) for path in (file, file.parent)):
        raise RegistryError(
            url,
            "cannot be written, so that nothing that is asked is recorded; check the rights of the file and "
            "its folder, or open its memory to read",
        )


def _phrase_ids(connection: Connection, phrases: Iterable[str]) -> dict[str, int]:
    """Ids of `phrases`; those that are new are added, in the order given."""
    wanted = list(dict.fromkeys(phrases))
    known = _known_ids(connection, wanted)
    missing = [phrase for phrase in wanted if phrase not in known]
    if missing:
        connection.execute(insert_missing(connection, tables.phrases), [{"phrase": p} for p in missing])
        known |= _known_ids(connection, missing)
    return known


def _known_ids(connection: Connection, phrases: Iterable[str]) -> dict[str, int]:
    columns = tables.phrases.c
    return {
        phrase: number
        for chunk in _chunks(phrases)
        for phrase, number in connection.execute(
            select(columns.phrase, columns.id).where(columns.phrase.in_(chunk))
        )
    }


def _forget_observations(connection: Connection, which: Any) -> int:
    """Delete the observations that `which` is true of, and phrases of which nothing is left; how many."""
    statement = select(tables.mentions.c.phrase_id).distinct().join(tables.observations).where(which)
    phrases = connection.scalars(statement).all()
    forgotten = connection.execute(delete(tables.observations).where(which)).rowcount
    _drop_phrases(connection, phrases)
    return forgotten


def _drop_phrases(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete those of the phrases that are no interest and no candidate, and that nobody asked about."""
    phrases = tables.phrases.c
    known = (
        exists().where(tables.interests.c.phrase == phrases.phrase),
        exists().where(tables.mentions.c.phrase_id == phrases.id),
        exists().where(tables.feedback.c.phrase_id == phrases.id),
    )
    for chunk in _chunks(numbers):
        connection.execute(
            delete(tables.phrases).where(
                phrases.id.in_(chunk), phrases.candidate.is_(False), *(~each for each in known)
            )
        )


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
