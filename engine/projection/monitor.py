"""The tables of lifecycle jobs in a site DB: what was seen and found, what is to be announced, and how far hooks got.

They are the engine's own and made where a job first needs them. ``cycle_id`` is ``job/iteration/slot…`` as the pipeline
forms it; rows of a whole iteration carry ``job/iteration`` there.
"""

from __future__ import annotations

from engine.projection.archive import transaction
from engine.projection.session import Database

_LAST = "hook_journal"


def create_tables(database: Database) -> None:
    """Make the tables of lifecycle jobs where they are missing. Raises DatabaseBusy."""
    if database.has_table(_LAST):
        return
    integer, serial = ("INTEGER", "INTEGER PRIMARY KEY AUTOINCREMENT")
    if not database.is_sqlite:
        integer, serial = ("BIGINT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    with transaction(database):
        for statement in _TABLES:
            database.run(statement.replace("BIG", integer).replace("SERIAL", serial))


#: Instants (``…_at``) are microseconds as everywhere in the engine; texts ending in ``_json`` are JSON.
_TABLES = (
    # what a job has seen: an item is in here if and only if its record is there
    """CREATE TABLE IF NOT EXISTS monitor_seen (job_id TEXT NOT NULL, hash TEXT NOT NULL, cycle_id TEXT NOT NULL,
    PRIMARY KEY (job_id, hash))""",
    """CREATE TABLE IF NOT EXISTS monitor_records (id SERIAL, job_id TEXT NOT NULL, hash TEXT NOT NULL,
    fields_json TEXT NOT NULL, matches_json TEXT NOT NULL, cycle_id TEXT NOT NULL, created_at BIG NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS monitor_records_job ON monitor_records (job_id, id)",
    "CREATE INDEX IF NOT EXISTS monitor_records_cycle ON monitor_records (cycle_id)",
    # a cycle's store transaction happened, and these record ids were new, in input order
    """CREATE TABLE IF NOT EXISTS monitor_commits (cycle_id TEXT PRIMARY KEY, job_id TEXT NOT NULL,
    new_ids_json TEXT NOT NULL, committed_at BIG NOT NULL)""",
    # one row an announcement; id is what the sink sees as X-Delivery-Id
    """CREATE TABLE IF NOT EXISTS monitor_outbox (id TEXT PRIMARY KEY, job_id TEXT NOT NULL, cycle_id TEXT NOT NULL,
    channel TEXT NOT NULL, target TEXT NOT NULL, headers_json TEXT NOT NULL, payload_json TEXT, status TEXT NOT NULL,
    attempts INTEGER NOT NULL, next_attempt_at BIG, last_error TEXT NOT NULL, created_at BIG NOT NULL,
    updated_at BIG NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS monitor_outbox_job ON monitor_outbox (job_id, created_at)",
    "CREATE INDEX IF NOT EXISTS monitor_outbox_cycle ON monitor_outbox (cycle_id)",
    """CREATE TABLE IF NOT EXISTS monitor_kv (job_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (job_id, key))""",
    """CREATE TABLE IF NOT EXISTS monitor_batch (iteration_id TEXT NOT NULL, key TEXT NOT NULL,
    value_json TEXT NOT NULL, PRIMARY KEY (iteration_id, key))""",
    """CREATE TABLE IF NOT EXISTS monitor_iterations (iteration_id TEXT PRIMARY KEY, job_id TEXT NOT NULL,
    number BIG NOT NULL, engine TEXT NOT NULL, workflow_id TEXT NOT NULL, version TEXT NOT NULL,
    urls_json TEXT NOT NULL, next_url INTEGER NOT NULL, status TEXT NOT NULL, started_at BIG NOT NULL,
    finished_at BIG)""",
    "CREATE INDEX IF NOT EXISTS monitor_iterations_job ON monitor_iterations (job_id, number)",
    "CREATE UNIQUE INDEX IF NOT EXISTS monitor_iterations_workflow ON monitor_iterations (engine, workflow_id)",
    # after_cycle: the cycle of a queue whose worker went on with this one, "" = it was begun with the iteration
    """CREATE TABLE IF NOT EXISTS monitor_cycles (cycle_id TEXT PRIMARY KEY, iteration_id TEXT NOT NULL,
    job_id TEXT NOT NULL, worker_id INTEGER NOT NULL, url TEXT NOT NULL, after_cycle TEXT NOT NULL,
    status TEXT NOT NULL, error TEXT NOT NULL, telemetry_json TEXT, started_at BIG NOT NULL, finished_at BIG)""",
    "CREATE INDEX IF NOT EXISTS monitor_cycles_iteration ON monitor_cycles (iteration_id)",
    """CREATE TABLE IF NOT EXISTS monitor_versions (job_id TEXT NOT NULL, version TEXT NOT NULL,
    files_json TEXT NOT NULL, used_at BIG NOT NULL, PRIMARY KEY (job_id, version))""",
    # calls of hooks whose effect is kept at once: a repeated hook gets the result of the first time
    """CREATE TABLE IF NOT EXISTS monitor_calls (cycle_id TEXT NOT NULL, stage TEXT NOT NULL, seq INTEGER NOT NULL,
    call INTEGER NOT NULL, hash TEXT NOT NULL, result_json TEXT NOT NULL, PRIMARY KEY (cycle_id, stage, seq, call))""",
    # hooks that ended: number counts them within the cycle, result_json is engine.lifecycle.journal's
    """CREATE TABLE IF NOT EXISTS hook_journal (cycle_id TEXT NOT NULL, stage TEXT NOT NULL, seq INTEGER NOT NULL,
    number INTEGER NOT NULL, result_json TEXT NOT NULL, ctx_json TEXT NOT NULL, PRIMARY KEY (cycle_id, stage, seq))""",
)
