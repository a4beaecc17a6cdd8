"""Forgetting old snapshots: their rows and the directories their hooks wrote, but never the last good one of a URL."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from engine.clock import Clock, Micros, rfc3339
from engine.config import Settings
from engine.crawls import site_database
from engine.hooks.layout import safe
from engine.plugins.site import Site
from engine.projection import archive
from engine.projection.session import Database

_SLICE = 200
_OLD = """
WITH good AS (
    SELECT id, ROW_NUMBER() OVER (PARTITION BY url ORDER BY sealed_at DESC, id DESC) AS place FROM snapshots
    WHERE sealed_at IS NOT NULL AND EXISTS (
        SELECT 1 FROM archive_results r WHERE r.snapshot_id = snapshots.id AND r.status = 'succeeded'
    )
)
SELECT id, output_dir FROM snapshots WHERE status IN ('sealed', 'canceled') AND modified_at < ?
AND id NOT IN (SELECT id FROM good WHERE place = 1)
AND NOT EXISTS (SELECT 1 FROM archive_results r WHERE r.snapshot_id = snapshots.id AND r.status = 'backoff')
ORDER BY id LIMIT ?"""
_OLD_CRAWLS = """
SELECT id, output_dir FROM crawls WHERE status IN ('sealed', 'canceled') AND modified_at < ?
AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.crawl_id = crawls.id) ORDER BY id LIMIT ?"""


def forget_snapshots(settings: Settings, clock: Clock, site: Site, before: Micros) -> int:
    """Forget what was sealed before that instant; how many snapshots. A site DB that does not exist stays so."""
    if not site.hook_dirs:
        return 0
    if site.dialect == "sqlite" and not (settings.sites_dir / site.database_file).is_file():
        return 0
    count = 0
    with site_database(settings, clock, site) as database:
        while found := _places(database, _OLD, before):
            _forget(database, found, ("archive_results", "snapshot_tags", "snapshot_texts"), "snapshots", "snapshot_id")
            count += len(found)
        while found := _places(database, _OLD_CRAWLS, before):
            _forget(database, found, ("archive_results",), "crawls", "crawl_id")
    return count


def _places(database: Database, query: str, before: Micros) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in database.run(query, (rfc3339(before), _SLICE))]


def _forget(
    database: Database, found: Sequence[tuple[str, str]], dependents: Sequence[str], table: str, column: str
) -> None:
    """The directories first: what is interrupted in between is found again by its rows."""
    for name, directory in found:
        # the path is a text in a database that others may write: it must end as our own paths do
        if directory and Path(directory).name == safe(name):
            shutil.rmtree(directory, ignore_errors=True)
    with archive.transaction(database):
        for name, _ in found:
            for dependent in dependents:
                database.run(f"DELETE FROM {dependent} WHERE {column} = ?", (name,))
            database.run(f"DELETE FROM {table} WHERE id = ?", (name,))
