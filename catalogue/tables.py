"""The tables of the registry, the same on SQLite and on PostgreSQL.

Vectors are float32 little-endian bytes; paths are bytes, because file names need not be UTF-8; exemplars are
JSON. `migrations` makes these tables: a change here needs a migration there.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    false,
)

_SIGN = 1 << 63


class Unsigned64(TypeDecorator[int]):
    """Whole numbers from 0 to 2**64 - 1, kept as the signed number with the same 64 bits."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        """To two's complement."""
        return None if value is None else (value ^ _SIGN) - _SIGN

    def process_result_value(self, value: int | None, dialect: Dialect) -> int | None:
        """From two's complement."""
        return None if value is None else value % (2 * _SIGN)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

interests = Table(
    "interests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("phrase", Text, nullable=False, unique=True),
    Column("weight", Double, nullable=False),
    Column("exemplars", Text, nullable=False),
    Column("with_words", Boolean, nullable=False, server_default=false()),
    Column("pinned", Boolean, nullable=False, server_default=false()),
    Column("archived", Double),
    sqlite_autoincrement=True,  # maps in the store are named by id, so an id is never given twice
)

interest_vectors = Table(
    "interest_vectors",
    metadata,
    Column("interest_id", Integer, ForeignKey(interests.c.id, ondelete="CASCADE"), primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("text", LargeBinary, nullable=False),
    Column("direction", LargeBinary, nullable=False),
)

distributions = Table(
    "distributions",
    metadata,
    Column("interest_id", Integer, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("images", Integer, nullable=False),
    Column("corpus", BigInteger, nullable=False),
    Column("low", Double, nullable=False),
    Column("high", Double, nullable=False),
    Column("ranks", LargeBinary, nullable=False),
    # To the vectors that the maps were made with: when they go, it describes no map that is to come.
    ForeignKeyConstraint(
        ["interest_id", "fingerprint"],
        [interest_vectors.c.interest_id, interest_vectors.c.fingerprint],
        ondelete="CASCADE",
    ),
)

corpus_means = Table(
    "corpus_means",
    metadata,
    Column("fingerprint", Text, primary_key=True),
    Column("images", Integer, nullable=False),
    Column("mean", LargeBinary, nullable=False),
)

questions = Table(
    "questions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("vector", LargeBinary, nullable=False),
    sqlite_autoincrement=True,  # the order of age
)

images = Table(
    "images",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("width", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    sqlite_with_rowid=False,
)

files = Table(
    "files",
    metadata,
    Column("path", LargeBinary, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("device", Unsigned64, nullable=False),
    Column("key", LargeBinary, ForeignKey(images.c.key), index=True),
    Column("reason", Text),
    Column("missing_since", Double),
    CheckConstraint("(key IS NULL) <> (reason IS NULL)", name="key_or_reason"),
    sqlite_with_rowid=False,
)

archives = Table(
    "archives",
    metadata,
    Column("path", LargeBinary, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("members", Integer, nullable=False),
    Column("damage", Text),
    sqlite_with_rowid=False,
)

phrases = Table(
    "phrases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("phrase", Text, nullable=False, unique=True),
    Column("candidate", Boolean, nullable=False, server_default=false()),
    Column("removed", Double),
)

observations = Table(
    "observations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Double, nullable=False),
    Column("count", Integer, nullable=False),
    Column("tier", Text, nullable=False),
    Column("confidence", Double, nullable=False),
    sqlite_autoincrement=True,  # the order of recording; whoever has read up to an id goes on from there
)

mentions = Table(
    "mentions",
    metadata,
    Column("observation_id", Integer, ForeignKey(observations.c.id, ondelete="CASCADE"), primary_key=True),
    Column("phrase_id", Integer, ForeignKey(phrases.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    Column("named", Boolean, nullable=False),
    Column("weight", Double, nullable=False),
)

feedback = Table(
    "feedback",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Double, nullable=False),
    Column("phrase_id", Integer, ForeignKey(phrases.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("amount", Double, nullable=False),
)

phrase_vectors = Table(
    "phrase_vectors",
    metadata,
    Column("phrase_id", Integer, ForeignKey(phrases.c.id, ondelete="CASCADE"), primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("text", LargeBinary, nullable=False),
)

relations = Table(
    "relations",
    metadata,
    Column("fingerprint", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("source_id", Integer, ForeignKey(phrases.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    Column("target_id", Integer, ForeignKey(phrases.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    Column("value", Double, nullable=False),
)
