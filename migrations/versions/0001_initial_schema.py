"""initial schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "artifact",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("workflow_pk", sa.BigInteger(), nullable=False),
        sa.Column("op_pk", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("content_type", sa.String(), nullable=False),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_artifact")),
        sa.UniqueConstraint("workflow_pk", "id", name=op.f("uq_artifact_workflow_pk_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("artifact", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_artifact_op_pk"), ["op_pk"], unique=False)

    op.create_table(
        "attempt",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("op_pk", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("error_json", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_attempt")),
        sa.UniqueConstraint("token", name=op.f("uq_attempt_token")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_attempt_op_pk"), ["op_pk"], unique=False)

    op.create_table(
        "blob",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blob")),
    )
    op.create_table(
        "cookie_jar",
        sa.Column("workflow_pk", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("jar_json", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workflow_pk", name=op.f("pk_cookie_jar")),
    )
    op.create_table(
        "edge",
        sa.Column("op_pk", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("target_pk", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("satisfied", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("op_pk", "target_pk", name=op.f("pk_edge")),
    )
    with op.batch_alter_table("edge", schema=None) as batch_op:
        batch_op.create_index("ix_edge_target", ["target_pk"], unique=False)

    op.create_table(
        "lane",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("queue_pk", sa.BigInteger(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("eligible_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_lane")),
        sa.UniqueConstraint("queue_pk", "machine", name=op.f("uq_lane_queue_pk_machine")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("lane", schema=None) as batch_op:
        batch_op.create_index("ix_lane_eligible", ["eligible_at", "pk"], unique=False)

    op.create_table(
        "log_line",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("op_pk", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_log_line")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("log_line", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_log_line_op_pk"), ["op_pk"], unique=False)

    op.create_table(
        "meta",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "migration",
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("applied_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_migration")),
    )
    op.create_table(
        "op",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("workflow_pk", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("queue_pk", sa.BigInteger(), nullable=True),
        sa.Column("lane_pk", sa.BigInteger(), nullable=True),
        sa.Column("dedup_key", sa.String(), server_default="", nullable=False),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("input_json", sa.Text(), nullable=False),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("retry_json", sa.Text(), nullable=False),
        sa.Column("spec_hash", sa.String(), nullable=False),
        sa.Column("reserved_by", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("unmet", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("ready_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("claims", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lost", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("token", sa.String(), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("acquired_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("planned_json", sa.Text(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("canceled_because", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_op")),
        sa.UniqueConstraint("workflow_pk", "id", name=op.f("uq_op_workflow_pk_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("op", schema=None) as batch_op:
        batch_op.create_index(
            "ix_op_canceled_because",
            ["canceled_because"],
            unique=False,
            sqlite_where=sa.text("canceled_because IS NOT NULL"),
            postgresql_where=sa.text("canceled_because IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_op_expiry",
            ["expires_at"],
            unique=False,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )
        batch_op.create_index(
            "ix_op_fence",
            ["pk"],
            unique=False,
            sqlite_where=sa.text("status = 'canceled' AND fence IS NOT NULL"),
            postgresql_where=sa.text("status = 'canceled' AND fence IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_op_lane_ready",
            ["lane_pk", "ready_at", "pk"],
            unique=False,
            sqlite_where=sa.text("status = 'ready'"),
            postgresql_where=sa.text("status = 'ready'"),
        )
        batch_op.create_index(
            "ix_op_queue_running",
            ["queue_pk"],
            unique=False,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )
        batch_op.create_index("ix_op_workflow_status", ["workflow_pk", "status"], unique=False)
        batch_op.create_index(
            "uq_op_dedup",
            ["workflow_pk", "kind", "dedup_key"],
            unique=True,
            sqlite_where=sa.text("dedup_key <> ''"),
            postgresql_where=sa.text("dedup_key <> ''"),
        )

    op.create_table(
        "op_alias",
        sa.Column("workflow_pk", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("op_pk", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workflow_pk", "alias", name=op.f("pk_op_alias")),
    )
    op.create_table(
        "queue",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("max_in_flight", sa.Integer(), nullable=True),
        sa.Column("rate", sa.Float(), nullable=True),
        sa.Column("burst", sa.Float(), server_default=sa.text("1"), nullable=False),
        sa.Column("tokens", sa.Float(), nullable=True),
        sa.Column("refilled_at", sa.BigInteger(), nullable=True),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_queue")),
        sa.UniqueConstraint("site", "key", name=op.f("uq_queue_site_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "result",
        sa.Column("op_pk", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data_json", sa.Text(), nullable=False),
        sa.Column("records_json", sa.Text(), nullable=False),
        sa.Column("emitted_ids_json", sa.Text(), nullable=False),
        sa.Column("error_json", sa.Text(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("op_pk", name=op.f("pk_result")),
    )
    op.create_table(
        "site",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("home", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_site")),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("hostname", sa.String(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
    )
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_worker_machine"), ["machine"], unique=False)

    op.create_table(
        "workflow",
        sa.Column("pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("input_json", sa.Text(), nullable=False),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("canceled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("pending", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("active", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("succeeded", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("dropped", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name=op.f("pk_workflow")),
        sa.UniqueConstraint("id", name=op.f("uq_workflow_id")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:

    op.drop_table("workflow")
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_worker_machine"))

    op.drop_table("worker")
    op.drop_table("site")
    op.drop_table("result")
    op.drop_table("queue")
    op.drop_table("op_alias")
    with op.batch_alter_table("op", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_op_dedup", sqlite_where=sa.text("dedup_key <> ''"), postgresql_where=sa.text("dedup_key <> ''")
        )
        batch_op.drop_index("ix_op_workflow_status")
        batch_op.drop_index(
            "ix_op_queue_running",
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )
        batch_op.drop_index(
            "ix_op_lane_ready", sqlite_where=sa.text("status = 'ready'"), postgresql_where=sa.text("status = 'ready'")
        )
        batch_op.drop_index(
            "ix_op_fence",
            sqlite_where=sa.text("status = 'canceled' AND fence IS NOT NULL"),
            postgresql_where=sa.text("status = 'canceled' AND fence IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_op_expiry", sqlite_where=sa.text("status = 'running'"), postgresql_where=sa.text("status = 'running'")
        )
        batch_op.drop_index(
            "ix_op_canceled_because",
            sqlite_where=sa.text("canceled_because IS NOT NULL"),
            postgresql_where=sa.text("canceled_because IS NOT NULL"),
        )

    op.drop_table("op")
    op.drop_table("migration")
    op.drop_table("meta")
    with op.batch_alter_table("log_line", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_log_line_op_pk"))

    op.drop_table("log_line")
    with op.batch_alter_table("lane", schema=None) as batch_op:
        batch_op.drop_index("ix_lane_eligible")

    op.drop_table("lane")
    with op.batch_alter_table("edge", schema=None) as batch_op:
        batch_op.drop_index("ix_edge_target")

    op.drop_table("edge")
    op.drop_table("cookie_jar")
    op.drop_table("blob")
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_attempt_op_pk"))

    op.drop_table("attempt")
    with op.batch_alter_table("artifact", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_artifact_op_pk"))

    op.drop_table("artifact")
