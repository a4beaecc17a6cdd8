"""What a fork runs again and what it keeps, worked out in temporary tables of the fork's transaction.

An op runs again if it was named, if it depends on one that does, or if one that does created it. Of these, an op that
the submission or an op that stays asked for is put back; every other is dropped, for its creator will create it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Select,
    String,
    Subquery,
    Table,
    case,
    exists,
    func,
    insert,
    literal,
    null,
    select,
    true,
)

from engine.dialect import json_strings
from engine.store.graph import UNBORN
from engine.store.schema import edge, op, op_alias, result


class State(StrEnum):
    """What an op of the old workflow is in the new one. ``blank``: an id that is only waited for."""

    KEPT = "kept"
    AGAIN = "again"
    BLANK = "blank"


_metadata = MetaData()

#: Which op asked for which, and under what id; ``parent``: it is the op's recorded parent and used the op's own id.
asked = Table(
    "fork_asked",
    _metadata,
    Column("emitter_pk", BigInteger, nullable=False, index=True),
    Column("op_pk", BigInteger, nullable=False, index=True),
    Column("said", String, nullable=False, index=True),
    Column("parent", Boolean, nullable=False),
    prefixes=["TEMPORARY"],
)
#: An op and what it follows from: a dependency of a kind, or its creator.
link = Table(
    "fork_link",
    _metadata,
    Column("cause_pk", BigInteger, nullable=False, index=True),
    Column("op_pk", BigInteger, nullable=False, index=True),
    Column("kind", String),
    prefixes=["TEMPORARY"],
)
rerun = Table(
    "fork_rerun",
    _metadata,
    Column("pk", BigInteger, primary_key=True, autoincrement=False),
    prefixes=["TEMPORARY"],
)
#: The rows of the new workflow: whose copy they are, under which id.
copied = Table(
    "fork_copied",
    _metadata,
    Column("pk", BigInteger, primary_key=True, autoincrement=False),
    Column("id", String, nullable=False),
    Column("state", String, nullable=False),
    Column("new_pk", BigInteger, index=True),
    prefixes=["TEMPORARY"],
)


@contextmanager
def scope(connection: Connection, workflow_pk: int, roots: Sequence[int]) -> Iterator[None]:
    """Within the block ``copied`` holds what becomes of each op of the workflow."""
    _metadata.create_all(connection, checkfirst=False)
    _find_who_asked(connection, workflow_pk)
    _find_links(connection, workflow_pk)
    _mark_rerun(connection, roots)
    _choose(connection, workflow_pk)
    yield
    _metadata.drop_all(connection, checkfirst=False)


def _find_who_asked(connection: Connection, workflow_pk: int) -> None:
    emitter, own, holder = op.alias("emitter"), op.alias("own"), op_alias.alias("holder")
    ids = json_strings(connection, result.c.emitted_ids_json)
    meant = func.coalesce(own.c.pk, holder.c.op_pk)
    query = (
        select(emitter.c.pk, meant, ids.c.value, case((own.c.parent_id == emitter.c.id, true()), else_=~true()))
        .select_from(emitter)
        .join(result, result.c.op_pk == emitter.c.pk)
        .join(ids, true())
        .outerjoin(own, (own.c.workflow_pk == workflow_pk) & (own.c.id == ids.c.value) & (own.c.status != UNBORN))
        .outerjoin(holder, (holder.c.workflow_pk == workflow_pk) & (holder.c.alias == ids.c.value))
        .where(emitter.c.workflow_pk == workflow_pk, result.c.emitted_ids_json != "[]", meant.is_not(None))
    )
    connection.execute(insert(asked).from_select(["emitter_pk", "op_pk", "said", "parent"], query))


def _find_links(connection: Connection, workflow_pk: int) -> None:
    owner, unborn = op.alias("owner"), op.alias("unborn")
    # an id that was deduplicated away is an unborn row: whoever waited for it waited for the op that stands
    dependencies = (
        select(func.coalesce(op_alias.c.op_pk, edge.c.target_pk), edge.c.op_pk, func.min(edge.c.kind))
        .select_from(owner)
        .join(edge, edge.c.op_pk == owner.c.pk)
        .outerjoin(unborn, (unborn.c.pk == edge.c.target_pk) & (unborn.c.status == UNBORN))
        .outerjoin(op_alias, (op_alias.c.workflow_pk == workflow_pk) & (op_alias.c.alias == unborn.c.id))
        .where(owner.c.workflow_pk == workflow_pk)
        .group_by(func.coalesce(op_alias.c.op_pk, edge.c.target_pk), edge.c.op_pk)
    )
    connection.execute(insert(link).from_select(["cause_pk", "op_pk", "kind"], dependencies))
    other = asked.alias("other")
    creators = (
        select(asked.c.emitter_pk, asked.c.op_pk, null())
        .join(op, op.c.pk == asked.c.op_pk)
        .where(asked.c.said == op.c.id, op.c.parent_id.is_not(None))
        # an author may name another parent: then whoever used the id is taken for the creator
        .where(asked.c.parent | ~exists().where(other.c.op_pk == asked.c.op_pk, other.c.parent))
    )
    connection.execute(insert(link).from_select(["cause_pk", "op_pk", "kind"], creators))


def _mark_rerun(connection: Connection, roots: Sequence[int]) -> None:
    found = select(op.c.pk).where(op.c.pk.in_(roots)).cte("found", recursive=True)
    found = found.union(select(link.c.op_pk).join(found, link.c.cause_pk == found.c.pk))
    connection.execute(insert(rerun).from_select(["pk"], select(found.c.pk)))


def _choose(connection: Connection, workflow_pk: int) -> None:
    columns = ["pk", "id", "state"]
    ours = (op.c.workflow_pk == workflow_pk) & (op.c.status != UNBORN)
    kept = select(op.c.pk, op.c.id, literal(State.KEPT.value)).where(ours, ~exists().where(rerun.c.pk == op.c.pk))
    connection.execute(insert(copied).from_select(columns, kept))
    connection.execute(insert(copied).from_select(columns, _put_back()))
    there = copied.alias("there")
    blank = (
        select(op.c.pk, op.c.id, literal(State.BLANK.value))
        .distinct()
        .select_from(link)
        .join(copied, copied.c.pk == link.c.op_pk)
        .join(op, op.c.pk == link.c.cause_pk)
        .where(link.c.kind.is_not(None), ~exists().where(there.c.pk == link.c.cause_pk))
    )
    connection.execute(insert(copied).from_select(columns, blank))


def _put_back() -> Select[tuple[int, str, str]]:
    """The ops that run again and are there from the start, under an id by which something that stays knows them.

    Where only an id that was deduplicated away is left, the op goes by that: its own will be used anew by its creator.
    """
    by_anyone = select(asked.c.op_pk).distinct().subquery()
    by_what_stays = (
        select(
            asked.c.op_pk, func.min(asked.c.said).label("said"), func.max(_number(asked.c.said == op.c.id)).label("own")
        )
        .join(op, op.c.pk == asked.c.op_pk)
        .where(~exists().where(rerun.c.pk == asked.c.emitter_pk))
        .group_by(asked.c.op_pk)
        .subquery()
    )
    submitted = op.c.parent_id.is_(None) | by_anyone.c.op_pk.is_(None)
    known_as = case((submitted | (by_what_stays.c.own == 1), op.c.id), else_=by_what_stays.c.said)
    return (
        select(op.c.pk, known_as, literal(State.AGAIN.value))
        .select_from(rerun)
        .join(op, op.c.pk == rerun.c.pk)
        .outerjoin(by_anyone, by_anyone.c.op_pk == op.c.pk)
        .outerjoin(by_what_stays, by_what_stays.c.op_pk == op.c.pk)
        .where(known_as.is_not(None))
    )


def names_in_use() -> Subquery:
    """Every id that was asked for: ``said``, and ``stays`` = 1 where something that stays did."""
    stays = func.max(_number(rerun.c.pk.is_(None))).label("stays")
    query = select(asked.c.said, stays).outerjoin(rerun, rerun.c.pk == asked.c.emitter_pk)
    return query.group_by(asked.c.said).subquery()


def _number(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return case((condition, 1), else_=0)
