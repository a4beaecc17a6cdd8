"""schedules: what is to be run when"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SURROGATE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "schedule",
        sa.Column("pk", _SURROGATE, autoincrement=True, nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("verb", sa.String()),
        sa.Column("rule_json", sa.Text(), nullable=False),
        sa.Column("target_json", sa.Text(), nullable=False),
        sa.Column("overlap", sa.String(), nullable=False),
        sa.Column("missed", sa.String(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("delay", sa.BigInteger()),
        sa.Column("due_at", sa.BigInteger()),
        sa.Column("queued_json", sa.Text(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("look_at", sa.BigInteger()),
        sa.Column("firing", sa.BigInteger()),
        sa.Column("token", sa.String()),
        sa.Column("worker", sa.String()),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("running_pk", sa.BigInteger()),
        sa.Column("runs", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_due_at", sa.BigInteger()),
        sa.Column("last_workflow", sa.String()),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_schedule")),
        sa.UniqueConstraint("site", "name", name=op.f("uq_schedule_site_name")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_schedule_look_at", "schedule", ["look_at"])
    op.create_index("ix_schedule_running_pk", "schedule", ["running_pk"])


def downgrade() -> None:
    op.drop_table("schedule")
