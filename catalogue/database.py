"""The database behind the registry: SQLite or PostgreSQL, with one behaviour.

Writers take turns: a write transaction starts with the lock, waits `LOCK_SECONDS` for it, and sees all that
was committed before. An error of the database leaves here as one of texcat's own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote_to_bytes

from sqlalchemy import URL, Connection, Engine, QueuePool, Table, create_engine, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError

from . import migrations
from .errors import (
    CatalogueExistsError,
    FormatVersionError,
    ReadOnlyError,
    RegistryError,
    StoreFullError,
    TexcatError,
    UsageError,
)

LOCK_SECONDS = 30.0
"""How long a writer waits for the writer before it."""

_SQLITE = "sqlite:///"
_REACH_SECONDS = "10"
_LOCK_ID = int.from_bytes(b"texcat")
_DISK_FULL = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100")  # the second: its -shm file cannot grow
_UNREACHABLE = "check that the server runs, and the host, port, user, password and database of the URL"
_ADVICE = (
    (("SQLITE_BUSY", "55P03"), "another process is writing; wait until it ends, and run the command again"),
    (("SQLITE_NOTADB", "SQLITE_CORRUPT"), "restore the file from a copy, or make a new catalogue"),
    (
        ("SQLITE_CANTOPEN", "SQLITE_READONLY"),
        "check the rights of the file and its folder, or copy the whole folder to where it can be written",
    ),
    (
        ("SQLITE_CONSTRAINT_FOREIGNKEY", "23503"),
        "an interest or image that the registry does not hold is referred to (another process may have "
        "removed it); run the command again",
    ),
    (("08", "28", "3D", "57P"), _UNREACHABLE),
)
_OTHERWISE = "check the database and its disk, and run the command again"


def sqlite_url(path: Path) -> str:
    """URL of the SQLite database in the file `path`, whatever bytes its name has."""
    return _SQLITE + quote(os.fsencode(path.absolute()))


class Database:
    """A pool of connections to a registry's tables. May be shared by threads, not across a fork.

    Attributes:
        url: as messages show it, with any password hidden.
        read_only: whether `writing` is refused.
    """

    url: str
    read_only: bool

    def __init__(self, url: str, *, read_only: bool, make: bool) -> None:
        self.url, self._engine = _engine(url, read_only=read_only, make=make)
        self.read_only = read_only
        self._closed = False

    @classmethod
    def create(cls, url: str) -> Self:
        """Make the tables in a database that has none; a SQLite file is made if it is missing.

        Raises:
            CatalogueExistsError: the database holds a registry.
            RegistryError: `url` names no database that can be used.
        """
        database = cls(url, read_only=False, make=True)
        with database._closed_on_error(), database.writing("make the registry") as connection:
            if _revision(connection) is not None:
                raise CatalogueExistsError(database.url, "a registry")
            migrations.upgrade(connection)
        return database

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Self:
        """Open a database that holds the tables; tables of an older version are brought up to date.

        Raises:
            RegistryError: the database cannot be read, holds no registry, or is of an older version and
                `read_only`.
            FormatVersionError: a newer version made the tables.
        """
        database = cls(url, read_only=read_only, make=False)
        with database._closed_on_error():
            with database.reading() as connection:
                found = _revision(connection)
            if found is None:
                raise RegistryError(database.url, "holds no registry; `texcat init` makes a catalogue")
            if found not in migrations.REVISIONS:
                raise FormatVersionError(f"registry {database.url}", found, migrations.HEAD)
            if found != migrations.HEAD and read_only:
                raise RegistryError(
                    database.url,
                    f"has format {found}; any command that writes to its catalogue, such as `texcat index`, "
                    f"brings it to format {migrations.HEAD}",
                )
            if found != migrations.HEAD:
                with database.writing("bring the registry up to date") as connection:
                    migrations.upgrade(connection)
        return database

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read with."""
        with self._errors_named(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, action: str) -> Iterator[Connection]:
        """A connection that holds the write lock; all is committed at the end, or nothing on an error.

        Raises:
            ReadOnlyError: the database is open to read; the message says that `action` needs more.
            StoreFullError: the disk has no room left.
            RegistryError: another writer kept the lock, or the database failed.
        """
        if self.read_only:
            raise ReadOnlyError(self.url, action)
        with self._errors_named(), self._engine.begin() as connection:
            connection.exec_driver_sql(_begin_write(self.dialect))
            yield connection

    def copy(self, path: Path) -> None:
        """Copy a SQLite database, as of one moment and while others write, to the new file `path`.

        Raises:
            UsageError: the database is in PostgreSQL.
            StoreFullError: there is no room for the copy.
        """
        if self.dialect != "sqlite":
            raise UsageError(f"database {self.url} is no file that can be copied; use pg_dump")
        with self.reading() as connection:
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)
            try:
                with closing(sqlite3.connect(path)) as target:
                    source.backup(target)
            except sqlite3.Error as error:
                raise _named(sqlite_url(path), DBAPIError(None, None, error)) from error

    def compact(self) -> int:
        """Return the free pages of a SQLite file to the disk; how many bytes. Nothing to do in PostgreSQL.

        Raises:
            ReadOnlyError: the database is open to read.
            StoreFullError: there is no room for the copy that is made on the way.
        """
        if self.read_only:
            raise ReadOnlyError(self.url, "compact the registry")
        if self.dialect != "sqlite":
            return 0
        with self._errors_named(), self._engine.connect() as connection:
            before = _sqlite_bytes(connection)
            # In WAL mode the new file is one transaction: readers keep the old pages until they are done, and
            # the file shrinks at a checkpoint that finds none of them.
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
            return before - _sqlite_bytes(connection)

    def close(self) -> None:
        """Give all connections back. May be called twice."""
        self._closed = True
        self._engine.dispose()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        if self._closed:
            raise RegistryError(self.url, "is closed; open it again")
        try:
            yield
        except SQLAlchemyError as error:
            raise _named(self.url, error) from error

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def insert_missing(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """INSERT that leaves a row alone which is there already."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()


def _engine(url: str, *, read_only: bool, make: bool) -> tuple[str, Engine]:
    """The URL to show, and the engine. Nothing is connected yet."""
    if url.startswith(_SQLITE):
        return url, _sqlite_engine(url, read_only=read_only, make=make)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # A URL that cannot be taken apart may hold a password anywhere.
        raise RegistryError("(not shown)", f"is no database URL; {_EXPECTED}") from error
    shown = _without_secrets(parsed).render_as_string()
    if parsed.get_backend_name() != "postgresql":
        raise RegistryError(shown, f"is no database that texcat uses; {_EXPECTED}")
    return shown, _postgres_engine(shown, parsed, read_only=read_only)


_EXPECTED = "expected sqlite:////path/of/a/file or postgresql://user@host/database"


def _without_secrets(url: URL) -> URL:
    return url.update_query_dict({name: "***" for name in url.query if "password" in name})


def _sqlite_engine(url: str, *, read_only: bool, make: bool) -> Engine:
    name = url.removeprefix(_SQLITE)
    if not name or name == ":memory:" or "?" in name:
        raise RegistryError(url, f"names no file; {_EXPECTED}")
    path = Path(os.fsdecode(unquote_to_bytes(name)))
    if not make and not path.is_file():
        raise RegistryError(url, "there is no such file; `texcat init` makes a catalogue")
    return create_engine("sqlite://", creator=_sqlite_connector(path, read_only, make), poolclass=QueuePool)


def _sqlite_connector(path: Path, read_only: bool, make: bool) -> Callable[[], sqlite3.Connection]:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode="

    def connect() -> sqlite3.Connection:
        if read_only:
            return _sqlite_connect(uri + ("ro&immutable=1" if _is_immutable(path) else "ro"))
        # synchronous=FULL: in WAL mode, less may lose committed transactions when power fails.
        return _sqlite_connect(
            uri + ("rwc" if make else "rw"), "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"
        )

    return connect


def _is_immutable(path: Path) -> bool:
    """Whether SQLite must read without locks.

    Where no ``-shm`` file can be made, a WAL database can be read only by saying that nothing changes.
    SQLite then passes over a ``-wal`` file too, so that must not be said where one was left behind.
    """
    return not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists()


def _sqlite_bytes(connection: Connection) -> int:
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def _sqlite_connect(uri: str, *pragmas: str) -> sqlite3.Connection:
    # isolation_level=None: transactions begin where `writing` says so, and tables are made inside them.
    connection = sqlite3.connect(
        uri, uri=True, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _postgres_engine(shown: str, url: URL, *, read_only: bool) -> Engine:
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": _REACH_SECONDS})
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={"client_encoding": "utf8"},
            execution_options={"postgresql_readonly": read_only},
            pool_pre_ping=True,  # the server may have been restarted since the last question
        )
    except ModuleNotFoundError as error:
        raise RegistryError(shown, "needs psycopg; `pip install 'texcat[postgres]'`") from error


def _begin_write(dialect: str) -> str:
    if dialect == "sqlite":
        return "BEGIN IMMEDIATE"
    # One lock for the registry, as SQLite has: two bulk writes cannot deadlock over the order of their rows.
    wait = f"{round(LOCK_SECONDS * 1000)}ms"
    return f"SELECT set_config('lock_timeout', '{wait}', true), pg_advisory_xact_lock({_LOCK_ID})"


def _revision(connection: Connection) -> str | None:
    """Name of the revision that is stored, None where there is no registry."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return migrations.REVISIONS[0] if found is None else str(found)


def _named(url: str, error: SQLAlchemyError) -> TexcatError:
    """The error of texcat for an error of SQLAlchemy or of the driver below it."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    reason = " ".join(str(cause).split())
    code: str | None = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    if code is None:
        # The driver reached no server that could give a code.
        advice = _UNREACHABLE if isinstance(error, OperationalError) else _OTHERWISE
        return RegistryError(url, f"{reason}; {advice}")
    if code.startswith(_DISK_FULL):
        return StoreFullError(url, reason)
    advice = next((advice for codes, advice in _ADVICE if code.startswith(codes)), _OTHERWISE)
    return RegistryError(url, f"{reason}; {advice}")
