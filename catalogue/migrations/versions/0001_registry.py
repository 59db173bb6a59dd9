"""The registry: interests and their vectors, questions, images and files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """From an empty database to 0001."""
    op.create_table(
        "interests",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("phrase", sa.Text, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("exemplars", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_interests"),
        sa.UniqueConstraint("phrase", name="uq_interests_phrase"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "interest_vectors",
        sa.Column("interest_id", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("text", sa.LargeBinary, nullable=False),
        sa.Column("direction", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("interest_id", "fingerprint", name="pk_interest_vectors"),
        sa.ForeignKeyConstraint(
            ["interest_id"], ["interests.id"], name="fk_interest_vectors_interest_id", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "questions",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_questions"),
        sa.UniqueConstraint("digest", name="uq_questions_digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "images",
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_images"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "files",
        sa.Column("path", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
        sa.Column("device", sa.BigInteger, nullable=False),
        sa.Column("key", sa.LargeBinary),
        sa.Column("reason", sa.Text),
        sa.Column("missing_since", sa.Double),
        sa.PrimaryKeyConstraint("path", name="pk_files"),
        sa.ForeignKeyConstraint(["key"], ["images.key"], name="fk_files_key"),
        sa.CheckConstraint("(key IS NULL) <> (reason IS NULL)", name=op.f("ck_files_key_or_reason")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_files_key", "files", ["key"])


def downgrade() -> None:
    """From 0001 to an empty database."""
    for table in ("files", "images", "questions", "interest_vectors", "interests"):
        op.drop_table(table)
