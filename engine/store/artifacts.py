"""Artifact rows and their content-addressed, compressed bodies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, insert, select, tuple_, update

from engine.clock import MINUTE, Micros
from engine.dialect import insert_or_ignore
from engine.model import Artifact
from engine.store.batches import batches
from engine.store.compat import encode_body
from engine.store.rows import dumps
from engine.store.schema import artifact, blob

#: How old a stored body may get before a new use of it is noted.
RENEWAL: Micros = 10 * MINUTE
#: A body is kept this long although no artifact names it: its artifact may be about to be committed.
GRACE: Micros = 60 * MINUTE


def write_blobs(connection: Connection, bodies: Iterable[Artifact], now: Micros) -> None:
    """Store every body that is not there yet."""
    wanted = {item.sha256: item.body for item in bodies if item.body is not None}
    if not wanted:
        return
    for batch in batches(sorted(wanted)):
        known = list(connection.scalars(select(blob.c.sha256).where(blob.c.sha256.in_(batch))))
        for sha256 in known:
            del wanted[sha256]
        # a body that nobody named for long may be collected: its age begins anew
        stale = blob.c.sha256.in_(known) & (blob.c.created_at < now - RENEWAL)
        connection.execute(update(blob).where(stale).values(created_at=now))
    rows = [
        {"sha256": sha256, "size": len(body), "body": encode_body(body), "created_at": now}
        for sha256, body in sorted(wanted.items())
    ]
    if rows:
        # two workers may bring the same body at the same time
        connection.execute(insert_or_ignore(connection, blob), rows)


def write_artifacts(connection: Connection, items: Sequence[tuple[int, int, Artifact]], now: Micros) -> None:
    """Artifact rows of (workflow, op, artifact); the same id written again replaces the row."""
    if not items:
        return
    write_blobs(connection, (item for _, _, item in items), now)
    rows = {
        (workflow_pk, item.id): {
            "workflow_pk": workflow_pk,
            "op_pk": op_pk,
            "id": item.id,
            "name": item.name,
            "kind": item.kind,
            "content_type": item.content_type,
            "metadata_json": dumps(dict(item.metadata)),
            "sha256": item.sha256,
            "size": item.size,
            "created_at": now,
        }
        for workflow_pk, op_pk, item in items
    }
    for batch in batches(sorted(rows)):
        connection.execute(delete(artifact).where(tuple_(artifact.c.workflow_pk, artifact.c.id).in_(batch)))
    connection.execute(insert(artifact), [rows[key] for key in sorted(rows)])
