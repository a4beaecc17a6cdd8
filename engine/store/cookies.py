"""Cookie jars of workflows: one JSON object each, whose members ops replace or remove one by one.

Ops of a workflow run at the same time: a jar written whole would lose what the others had put into it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select, update

from engine.clock import Micros
from engine.dialect import insert_or_ignore
from engine.model import JsonText
from engine.store.rows import dumps
from engine.store.schema import cookie_jar


def change_jars(connection: Connection, changes: Mapping[int, Sequence[JsonText]], now: Micros) -> None:
    """Apply to each workflow's jar the changes of its ops, in order; a member that is null goes."""
    for workflow_pk in sorted(changes):
        mine = cookie_jar.c.workflow_pk == workflow_pk
        connection.execute(
            insert_or_ignore(connection, cookie_jar), {"workflow_pk": workflow_pk, "jar_json": "{}", "updated_at": now}
        )
        jar = json.loads(connection.execute(select(cookie_jar.c.jar_json).where(mine).with_for_update()).scalar_one())
        for change in changes[workflow_pk]:
            jar |= json.loads(change)
        kept = {key: cookie for key, cookie in jar.items() if cookie is not None}
        connection.execute(update(cookie_jar).where(mine).values(jar_json=dumps(kept), updated_at=now))
