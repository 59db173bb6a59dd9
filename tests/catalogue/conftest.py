from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from texcat.catalogue.registry import Registry, sqlite_url

from ..postgres import postgres_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a PostgreSQL server that runs until the tests end."""
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def new_postgres_database(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Makes an empty database at each call; gives its URL."""
    server = create_engine(
        make_url(postgres_url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    numbers = itertools.count()

    def make() -> str:
        name = f"test{next(numbers)}"
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        return make_url(postgres_url).set(database=name).render_as_string()

    yield make
    server.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, once on each kind of server."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "registry.sqlite")
    make: Callable[[], str] = request.getfixturevalue("new_postgres_database")
    return make()


@pytest.fixture
def registry(empty_url: str) -> Iterator[Registry]:
    """An empty registry, once on each kind of server."""
    with Registry.create(empty_url) as made:
        yield made
