"""Run by Alembic for each of its commands; what it needs comes from `migrations.config`."""

from __future__ import annotations

from alembic import context

context.configure(**context.config.attributes)
with context.begin_transaction():
    context.run_migrations()
