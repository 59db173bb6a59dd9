"""Distributions of the values of interest maps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """From 0001 to 0002."""
    op.create_table(
        "distributions",
        sa.Column("interest_id", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("images", sa.Integer, nullable=False),
        sa.Column("corpus", sa.BigInteger, nullable=False),
        sa.Column("low", sa.Double, nullable=False),
        sa.Column("high", sa.Double, nullable=False),
        sa.Column("ranks", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("interest_id", "fingerprint", name="pk_distributions"),
        sa.ForeignKeyConstraint(
            ["interest_id", "fingerprint"],
            ["interest_vectors.interest_id", "interest_vectors.fingerprint"],
            name="fk_distributions_interest_id",
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    """From 0002 to 0001."""
    op.drop_table("distributions")
