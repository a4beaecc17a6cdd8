"""turns of proxies, and what pages are recognised by"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "turn_round",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("taken", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_turn_round")),
    )
    op.create_table(
        "turn",
        sa.Column("op_pk", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("round", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("request", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("op_pk", "round", "attempt", "request", name=op.f("pk_turn")),
    )
    op.create_table(
        "validator",
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("variant", sa.String(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("last_modified", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "variant", name=op.f("pk_validator")),
    )


def downgrade() -> None:
    op.drop_table("validator")
    op.drop_table("turn")
    op.drop_table("turn_round")
