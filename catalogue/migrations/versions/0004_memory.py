"""What is remembered of questions, and the relations between phrases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """From 0003 to 0004."""
    op.create_table(
        "phrases",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("phrase", sa.Text, nullable=False),
        sa.Column("candidate", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("id", name="pk_phrases"),
        sa.UniqueConstraint("phrase", name="uq_phrases_phrase"),
    )
    op.execute("INSERT INTO phrases (phrase) SELECT phrase FROM interests ORDER BY id")
    op.create_table(
        "observations",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_observations"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "mentions",
        sa.Column("observation_id", sa.Integer, nullable=False),
        sa.Column("phrase_id", sa.Integer, nullable=False),
        sa.Column("named", sa.Boolean, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("observation_id", "phrase_id", name="pk_mentions"),
        _reference("mentions", "observation_id", "observations.id"),
        _reference("mentions", "phrase_id", "phrases.id"),
    )
    op.create_index("ix_mentions_phrase_id", "mentions", ["phrase_id"])
    op.create_table(
        "feedback",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("phrase_id", sa.Integer, nullable=False),
        sa.Column("amount", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_feedback"),
        _reference("feedback", "phrase_id", "phrases.id"),
    )
    op.create_index("ix_feedback_phrase_id", "feedback", ["phrase_id"])
    op.create_table(
        "phrase_vectors",
        sa.Column("phrase_id", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("text", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("phrase_id", "fingerprint", name="pk_phrase_vectors"),
        _reference("phrase_vectors", "phrase_id", "phrases.id"),
    )
    op.create_table(
        "relations",
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("source_id", sa.Integer, nullable=False),
        sa.Column("target_id", sa.Integer, nullable=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", "kind", "source_id", "target_id", name="pk_relations"),
        _reference("relations", "source_id", "phrases.id"),
        _reference("relations", "target_id", "phrases.id"),
    )
    op.create_index("ix_relations_source_id", "relations", ["source_id"])
    op.create_index("ix_relations_target_id", "relations", ["target_id"])


def downgrade() -> None:
    """From 0004 to 0003."""
    for table in ("relations", "phrase_vectors", "feedback", "mentions", "observations", "phrases"):
        op.drop_table(table)


def _reference(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [to], name=f"fk_{table}_{column}", ondelete="CASCADE")
