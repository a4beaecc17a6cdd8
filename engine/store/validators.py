"""What servers said to recognise their pages by: kept from one crawl to the next, for conditional requests."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, delete, select, update

from engine.clock import Micros
from engine.dialect import ignoring_conflicts
from engine.model import Validators
from engine.store.prepared import Prepared
from engine.store.schema import validator


def find(connection: Connection, scope: str, variant: str) -> Validators | None:
    """What is known of a page."""
    row = connection.execute(
        select(validator).where(validator.c.scope == scope, validator.c.variant == variant)
    ).one_or_none()
    if row is None:
        return None
    return Validators(scope=row.scope, variant=row.variant, url=row.url, etag=row.etag, last_modified=row.last_modified)


def keep(connection: Connection, learned: Iterable[Validators], now: Micros) -> None:
    """Replace what is known of each page, the last word counting; a page without validators is forgotten."""
    # in one order everywhere, so that two groups cannot wait for each other
    last = sorted({(item.scope, item.variant): item for item in learned}.items())
    kept = [item for _, item in last if item.etag or item.last_modified]
    gone = [{"_scope": scope, "_variant": variant} for (scope, variant), item in last if item not in kept]
    keys = [{"scope": item.scope, "variant": item.variant} for item in kept]
    blank = {"url": "", "etag": "", "last_modified": "", "seen_at": now}
    _FORGET.many(connection, gone)
    _NAME.many(connection, [key | blank for key in keys])
    _REPLACE.many(
        connection,
        [
            {
                "_scope": item.scope,
                "_variant": item.variant,
                "at": item.url,
                "tag": item.etag,
                "modified": item.last_modified,
                "now": now,
            }
            for item in kept
        ],
    )


def prune(connection: Connection, before: Micros, limit: int) -> int:
    """Forget pages nobody has asked for since ``before``; how many."""
    old = select(validator.c.scope, validator.c.variant).where(validator.c.seen_at < before).limit(limit)
    rows = [{"_scope": row.scope, "_variant": row.variant} for row in connection.execute(old)]
    _FORGET.many(connection, rows)
    return len(rows)


_ONE = (validator.c.scope == bindparam("_scope")) & (validator.c.variant == bindparam("_variant"))
_FORGET = Prepared(delete(validator).where(_ONE))
_NAME = Prepared(ignoring_conflicts(validator))
_REPLACE = Prepared(
    update(validator)
    .where(_ONE)
    .values(url=bindparam("at"), etag=bindparam("tag"), last_modified=bindparam("modified"), seen_at=bindparam("now"))
)
