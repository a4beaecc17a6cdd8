"""attempts that ended apart from the one that lasts; fewer indexes on ops"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_RUNNING = sa.text("status = 'running'")
_FAILED = sa.text("status = 'failed'")


def upgrade() -> None:
    op.add_column("op", sa.Column("started_at", sa.BigInteger()))
    op.execute(
        "UPDATE op SET started_at = (SELECT a.started_at FROM attempt a WHERE a.token = op.token)"
        " WHERE token IS NOT NULL"
    )
    op.create_table(
        "ended_attempt",
        sa.Column("op_pk", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("error_json", sa.Text()),
        sa.PrimaryKeyConstraint("op_pk", "number", name=op.f("pk_attempt_ended")),
        sqlite_with_rowid=False,
    )
    columns = "op_pk, number, generation, token, worker, claimed_at, started_at"
    op.execute(
        f"INSERT INTO ended_attempt ({columns}, ended_at, state, error_json)"
        f" SELECT {columns}, coalesce(ended_at, claimed_at), state, error_json FROM attempt"
        " WHERE token NOT IN (SELECT token FROM op WHERE token IS NOT NULL)"
    )
    op.drop_table("attempt")
    op.rename_table("ended_attempt", "attempt")
    op.drop_index("ix_op_workflow_status", "op")
    op.drop_index("ix_op_expiry", "op")
    op.create_index("ix_op_failed", "op", ["workflow_pk"], sqlite_where=_FAILED, postgresql_where=_FAILED)


def downgrade() -> None:
    op.drop_index("ix_op_failed", "op")
    op.create_index("ix_op_expiry", "op", ["expires_at"], sqlite_where=_RUNNING, postgresql_where=_RUNNING)
    op.create_index("ix_op_workflow_status", "op", ["workflow_pk", "status"])
    op.create_table(
        "all_attempt",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("op_pk", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("error_json", sa.Text()),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_attempt_all")),
        sa.UniqueConstraint("token", name=op.f("uq_attempt_token")),
        sqlite_autoincrement=True,
    )
    columns = "op_pk, number, generation, token, worker, claimed_at, started_at, ended_at, state, error_json"
    op.execute("DROP VIEW IF EXISTS attempts")
    op.execute(f"INSERT INTO all_attempt ({columns}) SELECT {columns} FROM attempt ORDER BY claimed_at, op_pk, number")
    op.execute(
        f"INSERT INTO all_attempt ({columns}) SELECT pk, claims, generation, token, worker, acquired_at, started_at,"
        " NULL, 'running', NULL FROM op WHERE token IS NOT NULL ORDER BY pk"
    )
    op.drop_table("attempt")
    op.rename_table("all_attempt", "attempt")
    op.create_index("ix_attempt_op_pk", "attempt", ["op_pk"])
    # not by way of a copy of the table, which views stand upon
    op.execute("ALTER TABLE op DROP COLUMN started_at")
