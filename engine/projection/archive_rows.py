"""The rows of crawls, snapshots and results as statements: what a hook does turns into these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.projection.archive import Statement

#: States in which a result is over, or as good as over for the seal: it waits for a retry.
OVER = ("succeeded", "failed", "skipped", "noresults", "backoff", "canceled")


def _json(value: Any) -> str:
    """``value`` as JSON that any database holds: no half surrogates, no numbers that JSON has not."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(str(value), ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def add_crawl(
    crawl_id: str, *, label: str, urls: Sequence[str], max_depth: int, user: str, config: Any, directory: str, at: str
) -> Statement:
    """A crawl that has begun; one that is there already begins again."""
    return (
        "INSERT INTO crawls (id, label, urls, max_depth, status, created_by, config, output_dir, created_at,"
        " started_at, modified_at) VALUES (?, ?, ?, ?, 'started', ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " status = 'started', output_dir = excluded.output_dir, started_at = excluded.started_at,"
        " modified_at = excluded.modified_at",
        (crawl_id, label, _json(list(urls)), max_depth, user, _json(config), directory, at, at, at),
    )


def queue_crawl(
    crawl_id: str, *, label: str, urls: Sequence[str], max_depth: int, user: str, config: Any, at: str
) -> Statement:
    """A crawl that waits for a worker."""
    return (
        "INSERT INTO crawls (id, label, urls, max_depth, status, created_by, config, output_dir, created_at,"
        " modified_at) VALUES (?, ?, ?, ?, 'queued', ?, ?, '', ?, ?) ON CONFLICT (id) DO NOTHING",
        (crawl_id, label, _json(list(urls)), max_depth, user, _json(config), at, at),
    )


def add_snapshot(
    snapshot_id: str, *, crawl_id: str, parent: str | None, url: str, depth: int, title: str, user: str, at: str
) -> Statement:
    """A snapshot that waits; one that is there already stays as it is."""
    return (
        "INSERT INTO snapshots (id, crawl_id, parent_snapshot_id, url, depth, title, status, created_by, output_dir,"
        " created_at, modified_at) VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, '', ?, ?) ON CONFLICT DO NOTHING",
        (snapshot_id, crawl_id, parent, url, depth, title, user, at, at),
    )


def start_snapshot(snapshot_id: str, directory: str, at: str) -> Statement:
    """Its hooks begin."""
    return (
        "UPDATE snapshots SET status = 'started', output_dir = ?, started_at = ?, modified_at = ? WHERE id = ?",
        (directory, at, at, snapshot_id),
    )


def begin_round(snapshot_id: str, number: int) -> Statement:
    """The snapshot is begun again: ops of earlier rounds have nothing to say about it any more."""
    return ("UPDATE snapshots SET round = ? WHERE id = ? AND round < ?", (number, snapshot_id, number))


def requeue(snapshot_id: str, at: str) -> Statement:
    """All its hooks run again."""
    return (
        "UPDATE archive_results SET status = 'queued', modified_at = ? WHERE snapshot_id = ? AND event = 'Snapshot'",
        (at, snapshot_id),
    )


def change_snapshot(snapshot_id: str, *, title: str, at: str) -> Statement:
    """A longer title than the present one."""
    return (
        "UPDATE snapshots SET title = ?, modified_at = ? WHERE id = ? AND length(title) < ?",
        (title, at, snapshot_id, len(title)),
    )


def change_crawl(crawl_id: str, *, label: str, at: str) -> Statement:
    """Another label."""
    return ("UPDATE crawls SET label = ?, modified_at = ? WHERE id = ?", (label, at, crawl_id))


def reopen(crawl_id: str, snapshot_id: str | None, at: str) -> list[Statement]:
    """A retry is due: what was sealed is at work again."""
    statements: list[Statement] = [
        ("UPDATE crawls SET status = 'started', modified_at = ? WHERE id = ? AND status = 'sealed'", (at, crawl_id))
    ]
    if snapshot_id is not None:
        sql = "UPDATE snapshots SET status = 'started', modified_at = ? WHERE id = ? AND status = 'sealed'"
        statements.append((sql, (at, snapshot_id)))
    return statements


def seal_snapshot(snapshot_id: str, at: str) -> list[Statement]:
    """Sealed if every hook is over; the first attempt to seal is remembered in any case."""
    return [
        (
            "UPDATE snapshots SET sealed_at = COALESCE(sealed_at, ?), modified_at = ? WHERE id = ?",
            (at, at, snapshot_id),
        ),
        (
            "UPDATE snapshots SET status = 'sealed' WHERE id = ? AND status <> 'canceled' AND NOT EXISTS (SELECT 1 FROM"
            " archive_results WHERE snapshot_id = snapshots.id AND status IN ('queued', 'started'))",
            (snapshot_id,),
        ),
    ]


def seal_crawl(crawl_id: str, at: str) -> list[Statement]:
    """Sealed if all of it is."""
    return [
        (
            "UPDATE crawls SET sealed_at = COALESCE(sealed_at, ?), modified_at = ? WHERE id = ?",
            (at, at, crawl_id),
        ),
        (
            "UPDATE crawls SET status = 'sealed' WHERE id = ? AND status <> 'canceled'"
            " AND NOT EXISTS (SELECT 1 FROM snapshots WHERE crawl_id = crawls.id AND status IN ('queued', 'started'))"
            " AND NOT EXISTS (SELECT 1 FROM archive_results WHERE crawl_id = crawls.id AND snapshot_id IS NULL"
            " AND status IN ('queued', 'started'))",
            (crawl_id,),
        ),
    ]


def queue_result(
    result_id: str,
    *,
    crawl_id: str,
    snapshot_id: str | None,
    plugin: str,
    hook: str,
    event: str,
    position: int,
    step: int,
    background: bool,
    directory: str,
    at: str,
) -> Statement:
    """A hook that waits for its turn."""
    return (
        "INSERT INTO archive_results (id, crawl_id, snapshot_id, plugin, hook_name, event, position, step, background,"
        " status, attempts, error, cmd, pwd, machine, iface, output_str, output_files, output_count, output_size,"
        " output_mimetypes, warnings, modified_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', 0, '', '[]', ?, '', '',"
        " '', '{}', 0, 0, '', '[]', ?) ON CONFLICT (id) DO NOTHING",
        (
            *(result_id, crawl_id, snapshot_id, plugin, hook, event, position, step, int(background)),
            *(directory, at),
        ),
    )


def start_result(
    result_id: str, *, attempt: int, command: Sequence[str], machine: str, iface: str, at: str
) -> Statement:
    """Its process is about to run."""
    return (
        "UPDATE archive_results SET status = 'started', attempts = ?, cmd = ?, machine = ?, iface = ?, start_ts = ?,"
        " end_ts = NULL, retry_at = NULL, exit_code = NULL, error = '', modified_at = ? WHERE id = ?",
        (attempt, _json(list(command)), machine, iface, at, at, result_id),
    )


def say_result(result_id: str, *, text: str, value: Any, at: str) -> Statement:
    """What the hook itself has said so far."""
    return (
        "UPDATE archive_results SET output_str = ?, output_json = ?, modified_at = ? WHERE id = ?",
        (text, None if value is None else _json(value), at, result_id),
    )


def end_result(
    result_id: str,
    *,
    status: str,
    exit_code: int | None,
    error: str,
    files: Mapping[str, Any],
    count: int,
    size: int,
    mimetypes: Sequence[str],
    warnings: Sequence[str],
    retry_at: str | None,
    at: str,
) -> Statement:
    """It has ended."""
    return (
        "UPDATE archive_results SET status = ?, exit_code = ?, error = ?, output_files = ?, output_count = ?,"
        " output_size = ?, output_mimetypes = ?, warnings = ?, retry_at = ?, end_ts = ?, modified_at = ? WHERE id = ?"
        " AND status <> 'canceled'",
        (
            *(status, exit_code, error, _json(dict(files)), count, size, ",".join(mimetypes)),
            *(_json(list(warnings)), retry_at, at, at, result_id),
        ),
    )


def abandon_result(result_id: str, error: str, at: str) -> Statement:
    """Nobody will end it."""
    return (
        "UPDATE archive_results SET status = 'failed', error = ?, end_ts = ?, modified_at = ?"
        " WHERE id = ? AND status IN ('queued', 'started')",
        (error, at, at, result_id),
    )


def abandon_results(crawl_id: str, beginning: str, error: str, at: str) -> Statement:
    """Nobody will end those of a crawl whose ids begin so."""
    return (
        "UPDATE archive_results SET status = 'failed', error = ?, end_ts = ?, modified_at = ?"
        " WHERE crawl_id = ? AND substr(id, 1, ?) = ? AND status IN ('queued', 'started')",
        (error, at, at, crawl_id, len(beginning), beginning),
    )


def add_tag(snapshot_id: str, name: str, at: str) -> list[Statement]:
    """A tag on a snapshot; both are made where they are missing."""
    return [
        ("INSERT INTO tags (name, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, at)),
        ("INSERT INTO snapshot_tags (snapshot_id, tag) VALUES (?, ?) ON CONFLICT DO NOTHING", (snapshot_id, name)),
    ]


def index_text(snapshot_id: str, *, url: str, title: str, body: str) -> list[Statement]:
    """What a search finds the snapshot by."""
    return [
        ("DELETE FROM snapshot_texts WHERE snapshot_id = ?", (snapshot_id,)),
        (
            "INSERT INTO snapshot_texts (snapshot_id, url, title, body) VALUES (?, ?, ?, ?)",
            (snapshot_id, url, title, body),
        ),
    ]


def give_up(crawl_id: str, at: str) -> list[Statement]:
    """No retry will come any more: what failed has failed, what is left is sealed."""
    return [
        (
            "UPDATE archive_results SET status = CASE status WHEN 'backoff' THEN 'failed' ELSE 'canceled' END,"
            " retry_at = NULL, modified_at = ? WHERE crawl_id = ? AND status IN ('queued', 'started', 'backoff')",
            (at, crawl_id),
        ),
        *(
            (
                f"UPDATE {table} SET status = 'sealed', sealed_at = COALESCE(sealed_at, ?), modified_at = ?"
                f" WHERE {key} = ? AND status IN ('queued', 'started')",
                (at, at, crawl_id),
            )
            for table, key in (("snapshots", "crawl_id"), ("crawls", "id"))
        ),
    ]


def cancel_crawl(crawl_id: str, at: str) -> list[Statement]:
    """Nothing of it that has not ended will."""
    return [
        (
            f"UPDATE {table} SET status = 'canceled', modified_at = ? WHERE {key} = ?"
            " AND status IN ('queued', 'started', 'backoff')",
            (at, crawl_id),
        )
        for table, key in (("archive_results", "crawl_id"), ("snapshots", "crawl_id"), ("crawls", "id"))
    ]
