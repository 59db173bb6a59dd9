"""Which interests are pinned, which have been pruned, and when others were removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """From 0004 to 0005."""
    op.add_column("interests", sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("interests", sa.Column("archived", sa.Double))
    op.add_column("phrases", sa.Column("removed", sa.Double))


def downgrade() -> None:
    """From 0005 to 0004."""
    op.drop_column("phrases", "removed")
    op.drop_column("interests", "archived")
    op.drop_column("interests", "pinned")
