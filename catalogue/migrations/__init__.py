"""Migrations of the registry, run by Alembic over a connection that is already open.

A change of `tables` comes with a module in `versions`, and with its name at the end of `REVISIONS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

REVISIONS = ("base", "0001", "0002", "0003", "0004", "0005", "0006")
"""Every revision that this version can bring up to date, oldest first. ``base`` has no tables."""

HEAD = REVISIONS[-1]
"""The revision that this version reads and writes."""


def config(connection: Connection) -> Config:
    """Configuration with which the commands of Alembic work on `connection`, in its transaction."""
    # Here, because a registry that is up to date is opened without Alembic.
    from alembic.config import Config

    result = Config()
    result.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    result.attributes.update(connection=connection, target_metadata=metadata)
    return result


def upgrade(connection: Connection) -> None:
    """Bring the tables behind `connection` to `HEAD`, in its transaction."""
    from alembic import command

    command.upgrade(config(connection), HEAD)
