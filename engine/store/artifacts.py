"""Artifact rows and their content-addressed, compressed bodies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from engine.clock import MINUTE, Micros
from engine.dialect import Among, ignoring_conflicts
from engine.model import Artifact
from engine.store.compat import encode_body
from engine.store.prepared import Prepared
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
    known = _KNOWN.rows(connection, hashes=sorted(wanted))
    for row in known:
        del wanted[row.sha256]
    # a body that nobody named for long may be collected: its age begins anew
    if stale := [row.sha256 for row in known if row.created_at < now - RENEWAL]:
        _RENEW.run(connection, hashes=stale, now=now)
    rows = [
        {"sha256": sha256, "size": len(body), "body": encode_body(body), "created_at": now}
        for sha256, body in sorted(wanted.items())
    ]
    _STORE.many(connection, rows)


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
    ids: dict[int, list[str]] = defaultdict(list)
    for workflow_pk, name in sorted(rows):
        ids[workflow_pk].append(name)
    for workflow_pk, names in ids.items():
        _FORGET.run(connection, workflow=workflow_pk, ids=names)
    _NAME.many(connection, [rows[key] for key in sorted(rows)])


_KNOWN = Prepared(select(blob.c.sha256, blob.c.created_at).where(Among(blob.c.sha256, "hashes")))
_RENEW = Prepared(update(blob).where(Among(blob.c.sha256, "hashes")).values(created_at=bindparam("now")))
# two workers may bring the same body at the same time
_STORE = Prepared(ignoring_conflicts(blob))
_FORGET = Prepared(delete(artifact).where(artifact.c.workflow_pk == bindparam("workflow"), Among(artifact.c.id, "ids")))
_NAME = Prepared(insert(artifact))
