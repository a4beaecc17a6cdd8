"""The history of claims: an attempt is written once, when it ends. Until then it is what its op's row says."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import BigInteger, Connection, bindparam, cast, func, insert, literal, null, select, union_all, update

from engine.clock import Micros
from engine.dialect import each_pair
from engine.model import AttemptState, JsonText
from engine.store.prepared import Prepared
from engine.store.schema import attempt, op

_COLUMNS = [column.name for column in attempt.c]
#: The columns of ``attempt`` for the claim that an op is under.
_PRESENT = (op.c.pk, op.c.claims, op.c.generation, op.c.token, op.c.worker, op.c.acquired_at)

_began = each_pair("began")

_END = Prepared(
    insert(attempt).from_select(
        _COLUMNS,
        select(
            *_PRESENT,
            func.coalesce(op.c.started_at, cast(_began.c.value, BigInteger)),
            bindparam("now", type_=BigInteger),
            bindparam("state"),
            bindparam("error"),
        )
        .select_from(_began)
        .join(op, op.c.pk == cast(_began.c.key, BigInteger))
        .where(op.c.token.is_not(None)),
    )
)
_noted = each_pair("noted")
_NOTE = Prepared(
    update(op)
    .where(op.c.pk == cast(_noted.c.key, BigInteger), op.c.started_at.is_(None))
    .values(started_at=cast(_noted.c.value, BigInteger))
)

#: Every claim of an op, the present one last: with the columns of ``attempt``.
ALL = union_all(
    select(attempt),
    select(*_PRESENT, op.c.started_at, null(), literal(AttemptState.RUNNING.value), null()).where(
        op.c.token.is_not(None)
    ),
).subquery("attempts")


def end(
    connection: Connection,
    began: Mapping[int, Micros | None],
    state: AttemptState,
    error: JsonText | None,
    now: Micros,
) -> None:
    """Write the present claims of ops into the history, before anything takes their tokens away.

    ``began``: their surrogates, and when their code started where the op's row does not know that yet.
    """
    if began:
        _END.run(connection, began=began, now=now, state=str(state), error=error)


def note_started(connection: Connection, began: Mapping[int, Micros]) -> None:
    """Note when the code of ops started that are under the caller's lease."""
    if began:
        _NOTE.run(connection, noted=began)
