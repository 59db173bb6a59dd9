"""Exemplars: whether words count beside them, and the mean feature that they are told from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """From 0002 to 0003."""
    op.add_column("interests", sa.Column("with_words", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "corpus_means",
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("images", sa.Integer, nullable=False),
        sa.Column("mean", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name="pk_corpus_means"),
    )


def downgrade() -> None:
    """From 0003 to 0002."""
    op.drop_table("corpus_means")
    op.drop_column("interests", "with_words")
