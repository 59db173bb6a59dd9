"""The tables of the registry, the same on SQLite and on PostgreSQL.

Vectors are float32 little-endian bytes; paths are bytes, because file names need not be UTF-8; exemplars are
JSON. `migrations` makes these tables: a change here needs a migration there.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
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
