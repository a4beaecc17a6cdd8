"""Turns in a round, such as that of a site's proxies: a counter that advances once for each request, whoever dies.

A turn belongs to the n-th request of one attempt of an op. A claim whose worker died is no attempt of its own: the op's
next claim makes the same request again, and finds the turn that was taken for it.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select, update

from engine.dialect import insert_or_ignore
from engine.model import AttemptState
from engine.store.schema import attempt, turn, turn_round

#: Claims that say nothing about the request: it is still to be made.
_NO_END = [AttemptState.RUNNING.value, AttemptState.LEASE_LOST.value, AttemptState.INTERRUPTED.value]


def take(connection: Connection, op_pk: int, name: str, request: int) -> int:
    """The place in the round ``name`` of the op's ``request``-th request, from 0. The caller holds the op's row."""
    ended = connection.execute(
        select(func.count()).where(attempt.c.op_pk == op_pk, attempt.c.state.not_in(_NO_END))
    ).scalar_one()
    mine = (turn.c.op_pk == op_pk) & (turn.c.round == name)
    if ended:
        connection.execute(delete(turn).where(mine, turn.c.attempt != ended))
    taken = connection.scalar(select(turn.c.position).where(mine, turn.c.attempt == ended, turn.c.request == request))
    if taken is not None:
        return int(taken)
    connection.execute(insert_or_ignore(connection, turn_round), {"name": name, "taken": 0})
    advance = update(turn_round).where(turn_round.c.name == name).values(taken=turn_round.c.taken + 1)
    position = int(connection.execute(advance.returning(turn_round.c.taken)).scalar_one()) - 1
    connection.execute(insert(turn).values(op_pk=op_pk, round=name, attempt=ended, request=request, position=position))
    return position
