"""Storing a new workflow: all of it in one transaction, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from engine.clock import Micros
from engine.dialect import Among
from engine.errors import OpError, SubmissionRefused
from engine.model import NewOp, NewWorkflow, Workflow, WorkflowStatus
from engine.store.graph import GraphPlan
from engine.store.prepared import Prepared
from engine.store.propagate import Consequences
from engine.store.rows import dumps
from engine.store.schema import workflow
from engine.store.types import Submitted


def submit(
    connection: Connection, new: NewWorkflow, lanes: Callable[[NewOp], tuple[int, int]], now: Micros
) -> tuple[Submitted, int]:
    """Insert the workflow with its ops; also how many are ready. Raises SubmissionRefused."""
    refuse_taken(connection, new.id)
    ready = submit_all(connection, [new], lanes, now)
    own = any(not spec.workflow_id for spec in new.ops)
    warning = None if own else f'workflow "{new.id}" has no ops: there is nothing to do'
    status = _STATUS.scalar(connection, id=new.id)
    stored = Workflow(
        id=new.id,
        site=new.site,
        name=new.name,
        status=WorkflowStatus(str(status)),
        input=new.input,
        metadata=dict(new.metadata),
    )
    return Submitted(stored, tuple(spec.id for spec in new.ops), warning), ready


def submit_all(
    connection: Connection, news: Sequence[NewWorkflow], lanes: Callable[[NewOp], tuple[int, int]], now: Micros
) -> int:
    """Insert workflows, whose ids are free, with their ops; how many are ready. Raises SubmissionRefused for any."""
    for new in news:
        _refuse_repeated(new)
    _INSERT.many(connection, [_row(new, now) for new in news])
    pks = {row.id: row.pk for row in _PKS.rows(connection, ids=[new.id for new in news])}
    own = [(pks[new.id], [spec for spec in new.ops if not spec.workflow_id]) for new in news if new.ops]
    elsewhere = [group for new in news for group in _elsewhere(connection, new.ops).items()]
    consequences = Consequences(connection, now)
    plan = GraphPlan(connection, lanes, now)
    # of the new workflows nothing is stored yet
    plan.load((workflow_pk, spec) for workflow_pk, specs in elsewhere for spec in specs)
    for workflow_pk, specs in (*own, *elsewhere):
        try:
            plan.check(workflow_pk, specs, None)
        except OpError as error:
            raise SubmissionRefused(error.code, error.message) from error
        plan.accept(workflow_pk, specs)
    consequences.inserted(plan.write())
    consequences.finish()
    return consequences.made_ready


def _refuse_repeated(new: NewWorkflow) -> None:
    repeated = sorted(
        key for key, count in Counter((spec.workflow_id, spec.id) for spec in new.ops).items() if count > 1
    )
    if repeated:
        _, op_id = repeated[0]
        raise SubmissionRefused("duplicate_op_id", f'op id "{op_id}" is used more than once in this submission')


def _row(new: NewWorkflow, now: Micros) -> dict[str, Any]:
    own = any(not spec.workflow_id for spec in new.ops)
    return {
        "id": new.id,
        "site": new.site,
        "name": new.name,
        "status": WorkflowStatus.PENDING.value if own else WorkflowStatus.SUCCEEDED.value,
        "input_json": new.input,
        "metadata_json": dumps(dict(new.metadata)),
        "created_at": now,
        "updated_at": now,
    }


def _elsewhere(connection: Connection, ops: Sequence[NewOp]) -> dict[int, list[NewOp]]:
    """The ops meant for workflows that are there already. Raises SubmissionRefused where one is not."""
    groups: dict[int, list[NewOp]] = {}
    for spec in ops:
        if spec.workflow_id:
            pk = _PK.scalar(connection, id=spec.workflow_id)
            if pk is None:
                raise SubmissionRefused(
                    "unknown_workflow", f'op "{spec.id}" was emitted into the unknown workflow "{spec.workflow_id}"'
                )
            groups.setdefault(pk, []).append(spec)
    return groups


def refuse_taken(connection: Connection, workflow_id: str) -> None:
    """Raise SubmissionRefused where a workflow of that id exists."""
    if _PK.scalar(connection, id=workflow_id) is not None:
        raise SubmissionRefused(
            "workflow_exists", f'workflow "{workflow_id}" exists already: choose another --workflow-id'
        )


_INSERT = Prepared(insert(workflow))
_PK = Prepared(select(workflow.c.pk).where(workflow.c.id == bindparam("id")))
_PKS = Prepared(select(workflow.c.id, workflow.c.pk).where(Among(workflow.c.id, "ids")))
_STATUS = Prepared(select(workflow.c.status).where(workflow.c.id == bindparam("id")))
