"""The tables that the code uses, and the tables that the migrations make."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text
from texcat.catalogue import migrations
from texcat.catalogue.errors import FormatVersionError, RegistryError
from texcat.catalogue.registry import Registry
from texcat.catalogue.tables import metadata
from texcat.catalogue.types import InterestVectors


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    """Access to the database that goes past the registry."""
    engine = create_engine(re.sub("^postgresql:", "postgresql+psycopg:", empty_url))
    yield engine
    engine.dispose()


def _constraints(engine: Engine) -> dict[str, tuple[object, ...]]:
    """By table: what `compare_metadata` does not look at."""
    inspector = inspect(engine)
    return {
        name: (
            inspector.get_pk_constraint(name),
            inspector.get_foreign_keys(name),
            inspector.get_unique_constraints(name),
            inspector.get_check_constraints(name),
        )
        for name in metadata.tables
    }


def _set_revision(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": revision})


def test_migrations_make_the_tables_of_the_metadata(registry: Registry, engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        assert set(inspect(connection).get_table_names()) == {*metadata.tables, "alembic_version"}


def test_constraints_are_those_of_the_metadata(registry: Registry, engine: Engine) -> None:
    by_migrations = _constraints(engine)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    assert by_migrations == _constraints(engine)
    assert by_migrations["files"][-1]  # the check that a file has either a key or a reason


def test_down_and_up_again(empty_url: str, engine: Engine) -> None:
    Registry.create(empty_url).close()
    with engine.begin() as connection:
        command.downgrade(migrations.config(connection), "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    with Registry.open(empty_url) as registry:  # older: brought up to date
        registry.add_interest("cat")
    with Registry.open(empty_url, read_only=True) as registry:
        assert [interest.phrase for interest in registry.interests()] == ["cat"]


@pytest.mark.parametrize("older", migrations.REVISIONS[1:-1])
def test_what_an_older_registry_holds_is_there_after_it_was_brought_up_to_date(
    empty_url: str, engine: Engine, older: str
) -> None:
    vectors = InterestVectors(np.ones(2, np.float32), np.ones(3, np.float32))
    with Registry.create(empty_url) as registry:
        cat = registry.add_interest("cat", weight=2.5)
        registry.put_vectors("e", {cat.id: vectors})
    with engine.begin() as connection:
        command.downgrade(migrations.config(connection), older)
    with Registry.open(empty_url) as registry:
        assert registry.interests() == [cat]
        assert registry.vectors("e").keys() == {cat.id}
        assert registry.distributions("e") == {}


def test_an_older_registry_opened_to_read_is_refused(empty_url: str, engine: Engine) -> None:
    Registry.create(empty_url).close()
    with engine.begin() as connection:
        command.downgrade(migrations.config(connection), "base")
    told = f"has format base; any command .* brings it to format {migrations.HEAD}"
    with pytest.raises(RegistryError, match=told):
        Registry.open(empty_url, read_only=True)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_registry_is_refused(empty_url: str, engine: Engine, read_only: bool) -> None:
    Registry.create(empty_url).close()
    _set_revision(engine, "9999")
    with pytest.raises(FormatVersionError, match="has format 9999, this version of texcat reads"):
        Registry.open(empty_url, read_only=read_only)


def test_a_database_without_a_registry_is_refused(empty_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE cooking (recipe TEXT)"))
    with pytest.raises(RegistryError, match=r"holds no registry; `texcat init`"):
        Registry.open(empty_url)


def test_a_table_that_is_in_the_way_leaves_nothing_half_made(empty_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE files (name TEXT)"))
    with pytest.raises(RegistryError, match=r"files.* already exists"):
        Registry.create(empty_url)
    assert inspect(engine).get_table_names() == ["files"]


def test_the_named_revisions_are_the_scripts() -> None:
    with create_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(migrations.config(connection))
        assert ("base", *(script.revision for script in reversed(list(scripts.walk_revisions())))) == (
            migrations.REVISIONS
        )
        assert scripts.get_heads() == [migrations.HEAD]
    connection.engine.dispose()
