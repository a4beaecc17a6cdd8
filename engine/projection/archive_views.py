"""Crawls, snapshots and results, read from outside for people."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from engine.errors import UsageError
from engine.projection.records import RecordsReader

_CRAWL = "id, label, status, urls, max_depth, created_by, output_dir, created_at, started_at, sealed_at"
_SNAPSHOT = "id, crawl_id, parent_snapshot_id, url, depth, title, status, output_dir, created_at, started_at, sealed_at"
_RESULT = (
    "id, plugin, hook_name, event, step, background, status, attempts, retry_at, start_ts, end_ts, exit_code, error,"
    " cmd, pwd, machine, iface, output_str, output_json, output_files, output_count, output_size, output_mimetypes,"
    " warnings"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlView:
    """A crawl."""

    id: str
    label: str
    status: str
    urls: list[str]
    max_depth: int
    created_by: str
    output_dir: str
    created: str
    started: str | None
    sealed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotView:
    """A snapshot."""

    id: str
    crawl_id: str
    parent_snapshot_id: str | None
    url: str
    depth: int
    title: str
    status: str
    output_dir: str
    created: str
    started: str | None
    sealed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """What became of one hook."""

    id: str
    plugin: str
    hook: str
    event: str
    step: int
    background: bool
    status: str
    attempts: int
    retry_at: str | None
    start: str | None
    end: str | None
    exit_code: int | None
    error: str
    command: list[str]
    directory: str
    machine: str
    iface: str
    output: str
    output_json: Any
    files: dict[str, Any]
    file_count: int
    size: int
    mimetypes: list[str]
    warnings: list[str]


class ArchiveReader(RecordsReader):
    """The crawls of one site."""

    def crawls(self, status: str | None = None, limit: int = 50, offset: int = 0) -> list[CrawlView]:
        """Crawls, the youngest first."""
        where, parameters = ("WHERE status = ? ", (status,)) if status else ("", ())
        sql = f"SELECT {_CRAWL} FROM crawls {where}ORDER BY created_at DESC, id LIMIT {limit:d} OFFSET {offset:d}"
        return [_crawl(row) for row in self._rows(sql, parameters)]

    def crawl(self, crawl_id: str) -> CrawlView:
        """One crawl. Raises UsageError."""
        found = list(self._rows(f"SELECT {_CRAWL} FROM crawls WHERE id = ?", (crawl_id,)))
        if not found:
            raise UsageError(f'there is no crawl "{crawl_id}"')
        return _crawl(found[0])

    def counts(self, crawl_id: str) -> dict[str, dict[str, int]]:
        """How many snapshots and results of a crawl are in which state."""
        return {
            name: {
                str(row[0]): int(row[1])
                for row in self._rows(
                    f"SELECT status, count(*) FROM {table} WHERE crawl_id = ? GROUP BY status ORDER BY status",
                    (crawl_id,),
                )
            }
            for name, table in (("snapshots", "snapshots"), ("results", "archive_results"))
        }

    def snapshots(
        self, crawl_id: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[SnapshotView]:
        """Snapshots in the order in which they came."""
        chosen = [(column, value) for column, value in (("crawl_id", crawl_id), ("status", status)) if value]
        where = " AND ".join(f"{column} = ?" for column, _ in chosen)
        sql = f"SELECT {_SNAPSHOT} FROM snapshots {where and f'WHERE {where} '}ORDER BY created_at, depth, url"
        parameters = tuple(str(value) for _, value in chosen)
        return [_snapshot(row) for row in self._rows(f"{sql} LIMIT {limit:d} OFFSET {offset:d}", parameters)]

    def snapshot(self, name: str) -> SnapshotView:
        """One snapshot, by its id, the beginning of it, or its URL (the youngest one). Raises UsageError."""
        for column, value in (("id = ?", name), ("url = ?", name), ("id LIKE ?", f"{name}%")):
            sql = f"SELECT {_SNAPSHOT} FROM snapshots WHERE {column} ORDER BY created_at DESC LIMIT 2"
            found = list(self._rows(sql, (value,)))
            if len(found) > 1 and "LIKE" in column:
                raise UsageError(f'several snapshots begin with "{name}"')
            if found:
                return _snapshot(found[0])
        raise UsageError(f'there is no snapshot "{name}"')

    def results(self, *, snapshot_id: str | None = None, crawl_id: str | None = None) -> list[ResultView]:
        """The results of a snapshot, or those of a crawl's own hooks, in the order of their hooks."""
        if snapshot_id is not None:
            where, value = "snapshot_id = ?", snapshot_id
        else:
            where, value = "crawl_id = ? AND snapshot_id IS NULL", str(crawl_id)
        sql = f"SELECT {_RESULT} FROM archive_results WHERE {where} ORDER BY position, id"
        return [_result(row) for row in self._rows(sql, (value,))]

    def tags(self, snapshot_id: str) -> list[str]:
        """The tags of a snapshot."""
        sql = "SELECT tag FROM snapshot_tags WHERE snapshot_id = ? ORDER BY tag"
        return [str(row[0]) for row in self._rows(sql, (snapshot_id,))]

    def search(self, words: str, limit: int = 20) -> list[SnapshotView]:
        """Snapshots whose text has all the words, best first."""
        columns = ", ".join(f"s.{name}" for name in _SNAPSHOT.split(", "))
        if self._url is None:
            query = " ".join('"' + word.replace('"', '""') + '"' for word in words.split())
            sql = (
                f"SELECT {columns} FROM snapshot_texts t JOIN snapshots s ON s.id = t.snapshot_id"
                f" WHERE snapshot_texts MATCH ? ORDER BY t.rank LIMIT {limit:d}"
            )
            return [_snapshot(row) for row in self._rows(sql, (query,))] if query else []
        sql = (
            f"SELECT {columns} FROM snapshot_texts t JOIN snapshots s ON s.id = t.snapshot_id,"
            " plainto_tsquery('simple', ?) query"
            f" WHERE t.words @@ query ORDER BY ts_rank(t.words, query) DESC LIMIT {limit:d}"
        )
        return [_snapshot(row) for row in self._rows(sql, (words,))]

    def waiting(self, crawl_id: str) -> int:
        """How many hooks of a crawl wait for a retry."""
        sql = "SELECT count(*) FROM archive_results WHERE crawl_id = ? AND status = 'backoff'"
        return next((int(row[0]) for row in self._rows(sql, (crawl_id,))), 0)

    def status(self, crawl_id: str) -> str | None:
        """The state of a crawl; None while it has no row, or the database cannot be read for the moment."""
        try:
            return next(
                (str(row[0]) for row in self._rows("SELECT status FROM crawls WHERE id = ?", (crawl_id,))), None
            )
        except sqlite3.Error:
            return None


def _crawl(row: Any) -> CrawlView:
    return CrawlView(
        id=row[0],
        label=row[1],
        status=row[2],
        urls=json.loads(row[3]),
        max_depth=row[4],
        created_by=row[5],
        output_dir=row[6],
        created=row[7],
        started=row[8],
        sealed=row[9],
    )


def _snapshot(row: Any) -> SnapshotView:
    return SnapshotView(
        id=row[0],
        crawl_id=row[1],
        parent_snapshot_id=row[2],
        url=row[3],
        depth=row[4],
        title=row[5],
        status=row[6],
        output_dir=row[7],
        created=row[8],
        started=row[9],
        sealed=row[10],
    )


def _result(row: Any) -> ResultView:
    return ResultView(
        id=row[0],
        plugin=row[1],
        hook=row[2],
        event=row[3],
        step=row[4],
        background=bool(row[5]),
        status=row[6],
        attempts=row[7],
        retry_at=row[8],
        start=row[9],
        end=row[10],
        exit_code=row[11],
        error=row[12],
        command=json.loads(row[13]),
        directory=row[14],
        machine=row[15],
        iface=row[16],
        output=row[17],
        output_json=None if row[18] is None else json.loads(row[18]),
        files=json.loads(row[19]),
        file_count=row[20],
        size=row[21],
        mimetypes=[kind for kind in row[22].split(",") if kind],
        warnings=json.loads(row[23]),
    )
