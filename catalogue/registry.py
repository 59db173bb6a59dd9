"""The registry: which interests the user has, which files were seen, and which image each of them holds."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from sqlalchemy import (
    Column,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from . import tables
from .database import Database, insert_missing, sqlite_url
from .distribution import Distribution
from .errors import UnknownInterestError, UsageError
from .phrases import check_question, normalise_phrase
from .types import KEY_BYTES, Box, Exemplar, ImageKey, Interest, InterestVectors

__all__ = [
    "MAX_QUESTIONS",
    "CorpusMean",
    "KnownArchive",
    "KnownFile",
    "Registry",
    "RegistryCounts",
    "sqlite_url",
]

MAX_QUESTIONS = 10_000
"""How many questions keep their vector."""

_CHUNK = 1_000
"""Values in one IN (…), well below the number of parameters that either database allows; rows in one page."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file that was seen: its state at that time, and either the image it holds or why it was skipped.

    Attributes:
        path: absolute, as the operating system gives it; or a URL; or ``ARCHIVE::MEMBER`` of a tar archive.
        size: in bytes; of a member, that of its archive.
        mtime_ns: time of the last change, in nanoseconds since 1970; of a member, that of its archive. Of a
            URL, a number that stands for what its server says of its content (`RemoteFile.stamp`).
        device: `st_dev` of the file system that holds it; 0 of a URL.
        key: the image, if the file was indexed.
        reason: why it was not indexed. Exactly one of `key` and `reason` is set.
        missing_since: when it was first not found, in seconds since 1970; None while it is there.

    Raises:
        UsageError: both or neither of `key` and `reason` are set.
    """

    path: bytes
    size: int
    mtime_ns: int
    device: int
    key: ImageKey | None = None
    reason: str | None = None
    missing_since: float | None = None

    def __post_init__(self) -> None:
        if (self.key is None) == (self.reason is None):
            raise UsageError(
                f"file {self.path!r} needs either the key of its image or a reason, "
                f"got key {self.key!r} and reason {self.reason!r}"
            )


@dataclass(frozen=True, slots=True)
class KnownArchive:
    """A tar archive that was listed to its end: if it is as it was then, it holds the same images.

    Attributes:
        path, size, mtime_ns: as of a file.
        members: images that it holds.
        damage: why images may be in it that were not found; None when it was sound.
    """

    path: bytes
    size: int
    mtime_ns: int
    members: int
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class CorpusMean:
    """Mean patch feature of so many `images` of the corpus: float32 [dim]."""

    images: int
    feature: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RegistryCounts:
    """How much a registry holds. `failed` and `missing` are among `files`."""

    images: int
    files: int
    failed: int
    missing: int
    interests: int
    questions: int


class Registry:
    """Interests, files and cached vectors, in SQLite or PostgreSQL.

    Each method is one transaction: when it returns, its change is on disk; when it raises, nothing changed.
    Several processes may write at once: they take turns. May be shared by threads, not across a fork.

    Every method may raise RegistryError (the database failed; the message says how); every method that
    changes something may also raise ReadOnlyError and StoreFullError.

    Attributes:
        url: as messages show it, with any password hidden.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.url = database.url

    @classmethod
    def create(cls, url: str) -> Self:
        """Make an empty registry at `url`: ``sqlite:////path`` (`sqlite_url`) or ``postgresql://…``.

        Raises:
            CatalogueExistsError: there is one already.
        """
        return cls(Database.create(url))

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Self:
        """Open the registry at `url`; one of an older version is brought up to date.

        With `read_only` no record changes, and a SQLite file may lie where nothing can be written.

        Raises:
            FormatVersionError: a newer version wrote it, or an older one and `read_only`.
        """
        return cls(Database.open(url, read_only=read_only))

    def close(self) -> None:
        """Give all connections back. May be called twice."""
        self._database.close()

    def copy(self, path: Path) -> None:
        """Copy a SQLite registry, as of one moment and while others write, to the new file `path`.

        Raises:
            UsageError: the registry is in PostgreSQL, which has tools of its own for that.
        """
        self._database.copy(path)

    def compact(self) -> int:
        """Return the free pages of a SQLite file to the disk; how many bytes. PostgreSQL sees to that itself.

        Readers go on with what they see. When it is interrupted, nothing has changed.
        """
        return self._database.compact()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_interest(
        self,
        phrase: str,
        *,
        weight: float = 1.0,
        exemplars: Sequence[Exemplar] = (),
        with_words: bool = False,
    ) -> Interest:
        """Keep an interest; if there is one of this phrase, it gets this weight, and is archived no more.

        If there is one that other `exemplars` show, it is forgotten with its vectors, and the new one has an
        id of its own: what was made with the old exemplars cannot be taken for what is made with these.
        Without `exemplars`, those that it has stay. It stays pinned if it is.

        Raises:
            InvalidPhraseError: as `normalise_phrase`.
            UsageError: `weight` is negative or not finite.
        """
        normal = normalise_phrase(phrase)
        if not (math.isfinite(weight) and weight >= 0):
            raise UsageError(f"the weight of interest {normal!r} must be finite and >= 0, got {weight}")
        given = Interest(0, normal, float(weight), tuple(exemplars), with_words)
        of_phrase = tables.interests.c.phrase == normal
        statement = self._upsert(tables.interests, tables.interests.c.phrase).returning(tables.interests)
        with self._database.writing(f"add interest {normal!r}") as connection:
            row = connection.execute(select(tables.interests).where(of_phrase)).one_or_none()
            held = None if row is None else _interest(row)
            if held is not None and not exemplars:
                given = dataclasses.replace(held, weight=given.weight, archived=None)
            elif held is not None and _shown_by(held) != _shown_by(given):
                connection.execute(delete(tables.interests).where(of_phrase))
            if held is not None:
                given = dataclasses.replace(given, pinned=held.pinned)
            # Its node in the graph, which stays when the interest goes.
            connection.execute(insert_missing(connection, tables.phrases), {"phrase": normal})
            return _interest(connection.execute(statement, _interest_row(given)).one())

    def remove_interest(self, phrase: str) -> Interest:
        """Forget an interest and its vectors, and return it. Its id is never given again.

        Raises:
            InvalidPhraseError: as `normalise_phrase`.
            UnknownInterestError: there is none of this phrase.
        """
        normal = normalise_phrase(phrase)
        statement = (
            delete(tables.interests).where(tables.interests.c.phrase == normal).returning(tables.interests)
        )
        of_phrase = tables.phrases.c.phrase == normal
        with self._database.writing(f"remove interest {normal!r}") as connection:
            row = connection.execute(statement).one_or_none()
            if row is not None:  # what was asked until now is no reason to bring it back
                connection.execute(update(tables.phrases).where(of_phrase).values(removed=time.time()))
        if row is None:
            raise UnknownInterestError(normal)
        return _interest(row)

    def pin_interest(self, phrase: str, pinned: bool) -> Interest:
        """Let an interest be pinned, and archived no more, or let it be pinned no more; return it.

        Raises:
            InvalidPhraseError: as `normalise_phrase`.
            UnknownInterestError: there is none of this phrase.
        """
        values = {"pinned": True, "archived": None} if pinned else {"pinned": False}
        return self._change_interest(phrase, values)

    def archive_interest(self, phrase: str, at: float | None) -> Interest:
        """Note that the maps of an interest are given up, or, with None, that it is to have them; return it.

        Args:
            phrase: of the interest.
            at: now, in seconds since 1970.

        Raises:
            InvalidPhraseError: as `normalise_phrase`.
            UnknownInterestError: there is none of this phrase.
        """
        return self._change_interest(phrase, {"archived": at})

    def _change_interest(self, phrase: str, values: Mapping[str, object]) -> Interest:
        normal = normalise_phrase(phrase)
        statement = (
            update(tables.interests)
            .where(tables.interests.c.phrase == normal)
            .values(values)
            .returning(tables.interests)
        )
        with self._database.writing(f"change interest {normal!r}") as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise UnknownInterestError(normal)
        return _interest(row)

    def find_interest(self, phrase: str) -> Interest | None:
        """The interest of this phrase, in any of its spellings.

        Raises:
            InvalidPhraseError: as `normalise_phrase`.
        """
        statement = select(tables.interests).where(tables.interests.c.phrase == normalise_phrase(phrase))
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else _interest(row)

    def interests(self) -> list[Interest]:
        """All interests, oldest first: in the order of their ids."""
        with self._database.reading() as connection:
            return [
                _interest(row)
                for row in connection.execute(select(tables.interests).order_by(tables.interests.c.id))
            ]

    def vectors(self, fingerprint: str) -> dict[int, InterestVectors]:
        """By interest id, the vectors that are kept of the encoder with this fingerprint."""
        vectors = tables.interest_vectors.c
        statement = select(vectors.interest_id, vectors.text, vectors.direction).where(
            vectors.fingerprint == fingerprint
        )
        with self._database.reading() as connection:
            return {
                number: InterestVectors(_from_bytes(text), _from_bytes(direction))
                for number, text, direction in connection.execute(statement)
            }

    def put_vectors(self, fingerprint: str, vectors: Mapping[int, InterestVectors]) -> None:
        """Keep, by interest id, what the encoder with this fingerprint made. They go with their interest.

        Vectors that are replaced take the distribution of the maps made with them along.

        Raises:
            UsageError: a vector has not one dimension, or values that are not finite.
            RegistryError: there is no interest of an id.
        """
        rows = [
            {
                "interest_id": number,
                "fingerprint": fingerprint,
                "text": _to_bytes(pair.text),
                "direction": _to_bytes(pair.direction),
            }
            for number, pair in vectors.items()
        ]
        if rows:
            with self._database.writing("keep the vectors of interests") as connection:
                connection.execute(_FORGET_VECTORS, rows)  # an upsert would leave the distribution
                connection.execute(tables.interest_vectors.insert(), rows)

    def distributions(self, fingerprint: str) -> dict[int, Distribution]:
        """By interest id, the distributions of the maps made by the encoder with this fingerprint."""
        statement = select(tables.distributions).where(tables.distributions.c.fingerprint == fingerprint)
        with self._database.reading() as connection:
            return {
                row.interest_id: Distribution(
                    row.low, row.high, _from_bytes(row.ranks), row.images, row.corpus
                )
                for row in connection.execute(statement)
            }

    def put_distributions(self, fingerprint: str, distributions: Mapping[int, Distribution]) -> None:
        """Keep, by interest id, distributions of the maps made by the encoder with this fingerprint.

        They go with the interest, and with its vectors.

        Raises:
            RegistryError: there are no vectors of an id and this fingerprint.
        """
        rows = [
            {
                "interest_id": number,
                "fingerprint": fingerprint,
                "images": distribution.images,
                "corpus": distribution.corpus,
                "low": distribution.low,
                "high": distribution.high,
                "ranks": _to_bytes(distribution.table),
            }
            for number, distribution in distributions.items()
        ]
        if rows:
            statement = self._upsert(tables.distributions, *tables.distributions.primary_key)
            with self._database.writing("keep the distributions of interests") as connection:
                connection.execute(statement, rows)

    def corpus_mean(self, fingerprint: str) -> CorpusMean | None:
        """The mean patch feature that is kept of the encoder with this fingerprint."""
        statement = select(tables.corpus_means).where(tables.corpus_means.c.fingerprint == fingerprint)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else CorpusMean(row.images, _from_bytes(row.mean))

    def put_corpus_mean(self, fingerprint: str, mean: CorpusMean) -> None:
        """Keep the mean patch feature that the encoder with this fingerprint gives.

        Raises:
            UsageError: it has not one dimension, or values that are not finite.
        """
        row = {"fingerprint": fingerprint, "images": mean.images, "mean": _to_bytes(mean.feature)}
        statement = self._upsert(tables.corpus_means, tables.corpus_means.c.fingerprint)
        with self._database.writing("keep the mean feature of the corpus") as connection:
            connection.execute(statement, row)

    def question(self, fingerprint: str, text: str) -> NDArray[np.float32] | None:
        """The vector of a question, float32 [d_text], as the encoder with this fingerprint made it.

        Raises:
            InvalidPhraseError: as `check_question`.
        """
        check_question(text)
        with self._database.reading() as connection:
            vector = connection.scalar(_QUESTION, {"digest": _question_digest(fingerprint, text)})
        return None if vector is None else _from_bytes(vector)

    def put_question(self, fingerprint: str, text: str, vector: NDArray[np.float32]) -> None:
        """Keep the vector of a question; only the newest `MAX_QUESTIONS` are kept.

        Raises:
            InvalidPhraseError: as `check_question`.
            UsageError: `vector` has not one dimension, or values that are not finite.
        """
        check_question(text)
        row = {"digest": _question_digest(fingerprint, text), "vector": _to_bytes(vector)}
        too_old = (
            select(tables.questions.c.id)
            .order_by(tables.questions.c.id.desc())
            .offset(MAX_QUESTIONS)
            .limit(1)
        )
        with self._database.writing("keep the vector of a question") as connection:
            connection.execute(self._upsert(tables.questions, tables.questions.c.digest), row)
            connection.execute(
                delete(tables.questions).where(tables.questions.c.id <= too_old.scalar_subquery())
            )

    def files(self, folders: Sequence[bytes]) -> dict[bytes, KnownFile]:
        """By path, the files that are one of `folders` or lie below one, at any depth.

        Raises:
            UsageError: a folder is neither an absolute path nor a URL.
        """
        return self._files((_FILES_BELOW, _range_below(folder)) for folder in folders)

    def files_at(self, paths: Iterable[bytes]) -> dict[bytes, KnownFile]:
        """By path, those of the files at `paths` that are known."""
        return self._files((_FILES_AT, {"paths": chunk}) for chunk in _chunks(paths))

    def files_in(self, archive: bytes) -> dict[bytes, KnownFile]:
        """By path, the members of `archive` that are known."""
        return self._files([(_FILES_BETWEEN, _range(archive + b"::"))])

    def files_of(self, keys: Iterable[ImageKey]) -> dict[bytes, KnownFile]:
        """By path, the files that hold one of the images `keys`."""
        return self._files((_FILES_OF, {"keys": chunk}) for chunk in _chunks(bytes(key) for key in keys))

    def all_files(self) -> dict[bytes, KnownFile]:
        """By path, every file that is known."""
        return self._files([(select(tables.files), {})])

    def _files(self, queries: Iterable[tuple[Select[Any], Mapping[str, object]]]) -> dict[bytes, KnownFile]:
        found: dict[bytes, KnownFile] = {}
        with self._database.reading() as connection:
            for statement, values in queries:
                for row in connection.execute(statement, values):
                    file = _known_file(row)
                    found[file.path] = file
        return found

    def archive(self, path: bytes) -> KnownArchive | None:
        """The archive at `path`, as it was when it was listed last."""
        statement = select(tables.archives).where(tables.archives.c.path == path)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else KnownArchive(*row)

    def record_archives(self, archives: Iterable[KnownArchive]) -> None:
        """Keep how archives are now, in place of what was. A damage is escaped as a file's reason is."""
        rows = [
            {**dataclasses.asdict(each), "damage": None if each.damage is None else _storable(each.damage)}
            for each in archives
        ]
        if rows:
            with self._database.writing("record archives") as connection:
                connection.execute(self._upsert(tables.archives, tables.archives.c.path), rows)

    def record_files(
        self,
        seen: Iterable[KnownFile],
        images: Mapping[ImageKey, tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        """Keep what is known of files now, in place of what was, with the images that some of them hold.

        Args:
            seen: each path at most once. Characters of a reason that no database can hold are escaped.
            images: width and height, in pixels and upright. An image that is known may be left out.

        Raises:
            RegistryError: the image of a file is neither known nor in `images`.
        """
        image_rows = [
            {"key": bytes(key), "width": size[0], "height": size[1]} for key, size in images.items()
        ]
        file_rows = [_file_row(file) for file in seen]
        with self._database.writing("record files") as connection:
            if image_rows:
                connection.execute(self._upsert(tables.images, tables.images.c.key), image_rows)
            if file_rows:
                connection.execute(self._upsert(tables.files, tables.files.c.path), file_rows)

    def mark_missing(self, paths: Iterable[bytes], since: float) -> None:
        """Note that files were not found at `since`, in seconds since 1970; an earlier time stays."""
        with self._database.writing("mark missing files") as connection:
            for chunk in _chunks(paths):
                connection.execute(
                    update(tables.files)
                    .where(tables.files.c.path.in_(chunk), tables.files.c.missing_since.is_(None))
                    .values(missing_since=since)
                )

    def forget_files(self, paths: Iterable[bytes]) -> list[ImageKey]:
        """Forget files, and return the images that no file holds any more, which are forgotten too."""
        with self._database.writing("forget files") as connection:
            held = set[bytes]()
            for chunk in _chunks(paths):
                statement = (
                    delete(tables.files).where(tables.files.c.path.in_(chunk)).returning(tables.files.c.key)
                )
                held.update(key for key in connection.scalars(statement) if key is not None)
            return _forget_unheld(connection, held)

    def forget_images(self, keys: Iterable[ImageKey]) -> list[ImageKey]:
        """Forget those of `keys` that no file holds, as when a file has new content, and return them."""
        with self._database.writing("forget images") as connection:
            return _forget_unheld(connection, {bytes(key) for key in keys})

    def paths_of(self, key: ImageKey) -> list[bytes]:
        """Paths of the files that hold an image, in order."""
        statement = (
            select(tables.files.c.path).where(tables.files.c.key == bytes(key)).order_by(tables.files.c.path)
        )
        with self._database.reading() as connection:
            return list(connection.scalars(statement))

    def images(self) -> Iterator[ImageKey]:
        """Keys of all images that are known, ascending. The registry may change between one and the next."""
        last = b""
        while True:
            statement = select(tables.images.c.key).where(tables.images.c.key > last)
            with self._database.reading() as connection:
                page = connection.scalars(statement.order_by(tables.images.c.key).limit(_CHUNK)).all()
            yield from map(ImageKey, page)
            if len(page) < _CHUNK:
                return
            last = page[-1]

    def image_size(self, key: ImageKey) -> tuple[int, int] | None:
        """Width and height of an image, in pixels and upright; None if it is not known."""
        statement = select(tables.images.c.width, tables.images.c.height).where(
            tables.images.c.key == bytes(key)
        )
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else (row.width, row.height)

    def failed(self) -> list[KnownFile]:
        """The files that could not be indexed, in the order of their paths."""
        statement = (
            select(tables.files).where(tables.files.c.reason.is_not(None)).order_by(tables.files.c.path)
        )
        with self._database.reading() as connection:
            return [_known_file(row) for row in connection.execute(statement)]

    def counts(self) -> RegistryCounts:
        """How much is held, all at one moment."""
        of_files = select(
            func.count().label("files"),
            func.count(tables.files.c.reason).label("failed"),
            func.count(tables.files.c.missing_since).label("missing"),
        ).select_from(tables.files)
        others = (
            select(func.count()).select_from(table).scalar_subquery().label(table.name)
            for table in (tables.images, tables.interests, tables.questions)
        )
        with self._database.reading() as connection:
            row = connection.execute(of_files.add_columns(*others)).one()
        return RegistryCounts(**row._mapping)

    def _upsert(self, table: Table, *unique: Column[object]) -> sqlite.Insert | postgresql.Insert:
        """INSERT that takes the place of the row with the same `unique` columns, whose primary key stays."""
        insert = postgresql.insert if self._database.dialect == "postgresql" else sqlite.insert
        statement = insert(table)
        rest = {
            column.name: statement.excluded[column.name]
            for column in table.columns
            if not column.primary_key and column not in unique
        }
        return statement.on_conflict_do_update(index_elements=list(unique), set_=rest)


# A range of bytes, because LIKE knows wildcards, and no bytes that are not UTF-8.
_BETWEEN = and_(tables.files.c.path >= bindparam("first"), tables.files.c.path < bindparam("end"))
_FILES_BETWEEN = select(tables.files).where(_BETWEEN)
_FILES_BELOW = select(tables.files).where(or_(tables.files.c.path == bindparam("itself"), _BETWEEN))
_FILES_AT = select(tables.files).where(tables.files.c.path.in_(bindparam("paths", expanding=True)))
_FILES_OF = select(tables.files).where(tables.files.c.key.in_(bindparam("keys", expanding=True)))
_FORGET_VECTORS = delete(tables.interest_vectors).where(
    tables.interest_vectors.c.interest_id == bindparam("interest_id"),
    tables.interest_vectors.c.fingerprint == bindparam("fingerprint"),
)
_QUESTION = select(tables.questions.c.vector).where(tables.questions.c.digest == bindparam("digest"))


def _range_below(folder: bytes) -> dict[str, bytes]:
    if not folder.startswith(b"/") and b"://" not in folder:
        raise UsageError(f"folder {folder!r} is not an absolute path; files are kept by their absolute paths")
    base = folder.rstrip(b"/")
    return {"itself": base, **_range(base + b"/")}


def _range(prefix: bytes) -> dict[str, bytes]:
    """Between which paths those lie that begin with `prefix`."""
    return {"first": prefix, "end": prefix[:-1] + bytes([prefix[-1] + 1])}


def _forget_unheld(connection: Connection, keys: set[bytes]) -> list[ImageKey]:
    image = tables.images.c.key
    forgotten: list[ImageKey] = []
    for chunk in _chunks(keys):
        held = exists().where(tables.files.c.key == image)
        statement = delete(tables.images).where(image.in_(chunk), ~held).returning(image)
        forgotten.extend(ImageKey(key) for key in connection.scalars(statement))
    return sorted(forgotten)


def _file_row(file: KnownFile) -> dict[str, object]:
    return {
        "path": file.path,
        "size": file.size,
        "mtime_ns": file.mtime_ns,
        "device": file.device,
        "key": None if file.key is None else bytes(file.key),
        "reason": None if file.reason is None else _storable(file.reason),
        "missing_since": file.missing_since,
    }


def _known_file(row: Sequence[Any]) -> KnownFile:
    # By position, which is three times as fast as by name: there may be a million of them.
    path, size, mtime_ns, device, key, reason, missing_since = row
    image = None if key is None else ImageKey(key)
    return KnownFile(path, size, mtime_ns, device, image, reason, missing_since)


def _storable(text: str) -> str:
    """`text` with its surrogates (from names that are not UTF-8) and NUL characters escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def _interest(row: Row[Any]) -> Interest:
    exemplars = _exemplars_from_json(row.exemplars)
    return Interest(row.id, row.phrase, row.weight, exemplars, row.with_words, row.pinned, row.archived)


def _interest_row(interest: Interest) -> dict[str, object]:
    return {
        "phrase": interest.phrase,
        "weight": interest.weight,
        "exemplars": _exemplars_to_json(interest.exemplars),
        "with_words": interest.with_words,
        "pinned": interest.pinned,
        "archived": interest.archived,
    }


def _shown_by(interest: Interest) -> tuple[object, ...]:
    """What the vectors of an interest are made from. A path tells only where its image was found."""
    return (interest.with_words, *((e.box, e.key or e.path) for e in interest.exemplars))


def _exemplars_to_json(exemplars: Sequence[Exemplar]) -> str:
    # json escapes what is not ASCII, surrogates in paths among it.
    return json.dumps(
        [
            {"path": e.path, "box": e.box and dataclasses.astuple(e.box), "key": e.key and str(e.key)}
            for e in exemplars
        ]
    )


def _exemplars_from_json(text: str) -> tuple[Exemplar, ...]:
    return tuple(
        Exemplar(e["path"], e["box"] and Box(*e["box"]), e["key"] and ImageKey.parse(e["key"]))
        for e in json.loads(text)
    )


def _to_bytes(vector: NDArray[np.float32]) -> bytes:
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise UsageError(f"a vector has one dimension and finite values, got shape {vector.shape}: {vector}")
    return vector.astype("<f4").tobytes()


def _from_bytes(content: bytes) -> NDArray[np.float32]:
    return np.frombuffer(content, "<f4").astype(np.float32)


def _question_digest(fingerprint: str, text: str) -> bytes:
    # A question may be longer than an index of PostgreSQL takes, and hold characters that its text does not.
    content = json.dumps([fingerprint, text]).encode("ascii")
    return blake3(content).digest(length=KEY_BYTES)


def _chunks(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
