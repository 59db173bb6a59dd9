"""Which archives were listed, and how many images each held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """From 0005 to 0006."""
    op.create_table(
        "archives",
        sa.Column("path", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
        sa.Column("members", sa.Integer, nullable=False),
        sa.Column("damage", sa.Text),
        sa.PrimaryKeyConstraint("path", name="pk_archives"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """From 0006 to 0005."""
    op.drop_table("archives")
