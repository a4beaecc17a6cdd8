"""The tables of the engine DB. Names are ours and singular; what scripts see are the plural views of ``compat``.

Instants are BIGINT microseconds, JSON is TEXT exactly as it was produced. Surrogate keys are never used twice.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    literal_column,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Surrogate = BigInteger().with_variant(Integer(), "sqlite")


def _surrogate() -> Column[int]:
    return Column("pk", Surrogate, primary_key=True, autoincrement=True)


meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", Text, nullable=False))

migration = Table(
    "migration",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("applied_at", BigInteger, nullable=False),
)

workflow = Table(
    "workflow",
    metadata,
    _surrogate(),
    Column("id", String, nullable=False, unique=True),
    Column("site", String, nullable=False),
    Column("name", String, nullable=False),
    Column("status", String, nullable=False),
    Column("input_json", Text, nullable=False),
    Column("metadata_json", Text, nullable=False),
    Column("canceled", Boolean, nullable=False, server_default=false()),
    Column("pending", Integer, nullable=False, server_default=text("0")),
    # ready, delayed and running together: a claim then need not touch this row
    Column("active", Integer, nullable=False, server_default=text("0")),
    Column("succeeded", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("dropped", Integer, nullable=False, server_default=text("0")),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("ix_workflow_status_updated_at", "status", "updated_at"),
    sqlite_autoincrement=True,
)

queue = Table(
    "queue",
    metadata,
    _surrogate(),
    Column("site", String, nullable=False),
    Column("key", String, nullable=False),
    Column("max_in_flight", Integer),
    Column("rate", Float),
    Column("burst", Float, nullable=False, server_default=text("1")),
    Column("tokens", Float),
    Column("refilled_at", BigInteger),
    Column("paused", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("site", "key"),
    sqlite_autoincrement=True,
)

lane = Table(
    "lane",
    metadata,
    _surrogate(),
    Column("queue_pk", BigInteger, nullable=False),
    Column("machine", String, nullable=False),
    # the earliest instant at which a visit can be of use; least recently served first
    Column("eligible_at", BigInteger, nullable=False),
    UniqueConstraint("queue_pk", "machine"),
    Index("ix_lane_eligible", "eligible_at", "pk"),
    sqlite_autoincrement=True,
)

op = Table(
    "op",
    metadata,
    _surrogate(),
    Column("workflow_pk", BigInteger, nullable=False),
    Column("id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("site", String, nullable=False),
    Column("queue_pk", BigInteger),
    Column("lane_pk", BigInteger),
    Column("dedup_key", String, nullable=False, server_default=""),
    Column("parent_id", String),
    Column("input_json", Text, nullable=False),
    Column("metadata_json", Text, nullable=False),
    Column("retry_json", Text, nullable=False),
    Column("spec_hash", String, nullable=False),
    # the running op that announced an id before its site DB committed; only on unborn rows
    Column("reserved_by", BigInteger),
    Column("status", String, nullable=False),
    Column("unmet", Integer, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("ready_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("claims", Integer, nullable=False, server_default=text("0")),
    Column("lost", Integer, nullable=False, server_default=text("0")),
    Column("token", String),
    Column("worker", String),
    Column("acquired_at", BigInteger),
    # when the op's code began under the present lease, once that is noted
    Column("started_at", BigInteger),
    Column("expires_at", BigInteger),
    # how a resolve-only claim will end, unless the inbox knows better
    Column("planned_json", Text),
    # the generation whose inbox key must be closed before anything else
    Column("fence", Integer),
    Column("canceled_because", BigInteger),
    UniqueConstraint("workflow_pk", "id"),
    Index(
        "ix_op_lane_ready",
        "lane_pk",
        "ready_at",
        "pk",
        sqlite_where=text("status = 'ready'"),
        postgresql_where=text("status = 'ready'"),
    ),
    # what runs: few rows, whose leases a sweep looks through
    Index(
        "ix_op_queue_running",
        "queue_pk",
        sqlite_where=text("status = 'running'"),
        postgresql_where=text("status = 'running'"),
    ),
    Index(
        "ix_op_reserved",
        "reserved_by",
        sqlite_where=text("reserved_by IS NOT NULL"),
        postgresql_where=text("reserved_by IS NOT NULL"),
    ),
    Index(
        "ix_op_fence",
        "pk",
        sqlite_where=text("status = 'canceled' AND fence IS NOT NULL"),
        postgresql_where=text("status = 'canceled' AND fence IS NOT NULL"),
    ),
    Index(
        "ix_op_failed",
        "workflow_pk",
        sqlite_where=text("status = 'failed'"),
        postgresql_where=text("status = 'failed'"),
    ),
    Index(
        "ix_op_canceled_because",
        "canceled_because",
        sqlite_where=text("canceled_because IS NOT NULL"),
        postgresql_where=text("canceled_because IS NOT NULL"),
    ),
    Index(
        "uq_op_dedup",
        "workflow_pk",
        "kind",
        "dedup_key",
        unique=True,
        sqlite_where=text("dedup_key <> ''"),
        postgresql_where=text("dedup_key <> ''"),
    ),
    sqlite_autoincrement=True,
)


def op_is(status: str) -> ColumnElement[bool]:
    """The state as a literal, for statements that are prepared.

    Where a parameter decides whether a partial index serves, SQLite plans anew at each execution, and a plan of
    PostgreSQL that is made once for all values leaves the index out.
    """
    return op.c.status == literal_column(f"'{status}'")


edge = Table(
    "edge",
    metadata,
    Column("op_pk", BigInteger, primary_key=True, autoincrement=False),
    Column("target_pk", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("satisfied", Boolean, nullable=False),
    Index("ix_edge_target", "target_pk"),
)

# claims that ended; the one that lasts is in its op's row
attempt = Table(
    "attempt",
    metadata,
    Column("op_pk", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("generation", Integer, nullable=False),
    Column("token", String, nullable=False),
    Column("worker", String, nullable=False),
    Column("claimed_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger, nullable=False),
    Column("state", String, nullable=False),
    Column("error_json", Text),
    sqlite_with_rowid=False,
)

result = Table(
    "result",
    metadata,
    Column("op_pk", BigInteger, primary_key=True, autoincrement=False),
    Column("data_json", Text, nullable=False),
    Column("records_json", Text, nullable=False),
    Column("emitted_ids_json", Text, nullable=False),
    Column("error_json", Text),
    Column("completed_at", BigInteger, nullable=False),
)

blob = Table(
    "blob",
    metadata,
    Column("sha256", String, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

artifact = Table(
    "artifact",
    metadata,
    _surrogate(),
    Column("workflow_pk", BigInteger, nullable=False),
    Column("op_pk", BigInteger, nullable=False, index=True),
    Column("id", String, nullable=False),
    Column("name", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("content_type", String, nullable=False),
    Column("metadata_json", Text, nullable=False),
    Column("sha256", String, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("workflow_pk", "id"),
    sqlite_autoincrement=True,
)

log_line = Table(
    "log_line",
    metadata,
    _surrogate(),
    Column("op_pk", BigInteger, nullable=False, index=True),
    Column("token", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("level", String, nullable=False),
    Column("message", Text, nullable=False),
    sqlite_autoincrement=True,
)

op_alias = Table(
    "op_alias",
    metadata,
    Column("workflow_pk", BigInteger, primary_key=True, autoincrement=False),
    Column("alias", String, primary_key=True),
    Column("op_pk", BigInteger, nullable=False, index=True),
)

cookie_jar = Table(
    "cookie_jar",
    metadata,
    Column("workflow_pk", BigInteger, primary_key=True, autoincrement=False),
    Column("jar_json", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

schedule = Table(
    "schedule",
    metadata,
    _surrogate(),
    Column("site", String, nullable=False),
    Column("name", String, nullable=False),
    Column("origin", String, nullable=False),
    # null where the target is a list of ops
    Column("verb", String),
    Column("rule_json", Text, nullable=False),
    Column("target_json", Text, nullable=False),
    Column("overlap", String, nullable=False),
    Column("missed", String, nullable=False),
    Column("paused", Boolean, nullable=False, server_default=false()),
    # the delay of a rule that counts from the end of the run
    Column("delay", BigInteger),
    Column("due_at", BigInteger),
    # due times that wait for the end of a run
    Column("queued_json", Text, nullable=False, server_default=text("'[]'")),
    # when a worker has to look at the row; null while only the end of a run can change anything
    Column("look_at", BigInteger),
    # the due time under way to its workflow, the fencing token and the worker that brings it there
    Column("firing", BigInteger),
    Column("token", String),
    Column("worker", String),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    # the workflow whose end is waited for
    Column("running_pk", BigInteger),
    Column("runs", Integer, nullable=False, server_default=text("0")),
    Column("skipped", Integer, nullable=False, server_default=text("0")),
    Column("last_due_at", BigInteger),
    Column("last_workflow", String),
    Column("error", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("site", "name"),
    Index("ix_schedule_look_at", "look_at"),
    Index("ix_schedule_running_pk", "running_pk"),
    sqlite_autoincrement=True,
)

site = Table("site", metadata, Column("name", String, primary_key=True), Column("home", String, nullable=False))

worker = Table(
    "worker",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("machine", String, nullable=False, index=True),
    Column("process", String, nullable=False),
    Column("hostname", String, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

machine = Table(
    "machine",
    metadata,
    Column("id", String, primary_key=True),
    Column("hostname", String, nullable=False),
    Column("system", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

network_interface = Table(
    "network_interface",
    metadata,
    Column("machine", String, primary_key=True),
    Column("address", String, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

# what all lifecycle jobs share
kv = Table(
    "kv",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# changes of it that were made, and what they gave: a repeated hook makes none of them again
kv_call = Table(
    "kv_call",
    metadata,
    Column("scope", String, primary_key=True),
    Column("call", String, primary_key=True),
    Column("result_json", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)

# one row per machine and program, whoever asked for it
binary = Table(
    "binary",
    metadata,
    Column("machine", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("status", String, nullable=False),
    Column("abspath", String, nullable=False),
    Column("version", String, nullable=False),
    Column("sha256", String, nullable=False),
    Column("provider", String, nullable=False),
    Column("error", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# how many turns of a round were taken
turn_round = Table(
    "turn_round",
    metadata,
    Column("name", String, primary_key=True),
    Column("taken", BigInteger, nullable=False),
)

# the turns of ops: one for each request of each attempt
turn = Table(
    "turn",
    metadata,
    Column("op_pk", BigInteger, primary_key=True, autoincrement=False),
    Column("round", String, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("request", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
)

validator = Table(
    "validator",
    metadata,
    Column("scope", String, primary_key=True),
    Column("variant", String, primary_key=True),
    Column("url", Text, nullable=False),
    Column("etag", Text, nullable=False),
    Column("last_modified", Text, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)
