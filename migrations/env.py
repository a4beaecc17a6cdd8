"""Runs migrations on the connection the engine hands over, or on ``-x url=…`` for developers."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from engine.store.schema import metadata


def migrate(connection: Connection) -> None:
    """Apply what is pending, telling the engine of each version."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=True,
        on_version_apply=context.config.attributes.get("on_version_apply"),
    )
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    migrate(handed_over)
else:
    arguments = context.get_x_argument(as_dictionary=True)
    with create_engine(arguments["url"]).connect() as own:
        migrate(own)
