"""Storing a new workflow: all of it in one transaction, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sqlalchemy import Connection, insert, select

from engine.clock import Micros
from engine.errors import OpError, SubmissionRefused
from engine.model import NewOp, NewWorkflow, Workflow, WorkflowStatus
from engine.store.graph import GraphPlan
from engine.store.propagate import Consequences
from engine.store.rows import dumps
from engine.store.schema import workflow
from engine.store.types import Submitted


def submit(
    connection: Connection, new: NewWorkflow, lanes: Callable[[NewOp], tuple[int, int]], now: Micros
) -> tuple[Submitted, int]:
    """Insert the workflow with its ops; also how many are ready. Raises SubmissionRefused."""
    refuse_taken(connection, new.id)
    repeated = sorted(op_id for op_id, count in Counter(spec.id for spec in new.ops).items() if count > 1)
    if repeated:
        raise SubmissionRefused("duplicate_op_id", f'op id "{repeated[0]}" is used more than once in this submission')
    key = connection.execute(
        insert(workflow).values(
            id=new.id,
            site=new.site,
            name=new.name,
            status=WorkflowStatus.PENDING.value if new.ops else WorkflowStatus.SUCCEEDED.value,
            input_json=new.input,
            metadata_json=dumps(dict(new.metadata)),
            created_at=now,
            updated_at=now,
        )
    ).inserted_primary_key
    assert key is not None
    pk = int(key[0])
    consequences = Consequences(connection, now)
    if new.ops:
        plan = GraphPlan(connection, lanes, now)
        plan.load((pk, spec) for spec in new.ops)
        try:
            plan.check(pk, new.ops, None)
        except OpError as error:
            raise SubmissionRefused(error.code, error.message) from error
        plan.accept(pk, new.ops)
        consequences.inserted(plan.write())
        consequences.finish()
    warning = None if new.ops else f'workflow "{new.id}" has no ops: there is nothing to do'
    status = connection.scalar(select(workflow.c.status).where(workflow.c.pk == pk))
    stored = Workflow(
        id=new.id,
        site=new.site,
        name=new.name,
        status=WorkflowStatus(str(status)),
        input=new.input,
        metadata=dict(new.metadata),
    )
    return Submitted(stored, tuple(spec.id for spec in new.ops), warning), consequences.made_ready


def refuse_taken(connection: Connection, workflow_id: str) -> None:
    """Raise SubmissionRefused where a workflow of that id exists."""
    if connection.scalar(select(workflow.c.pk).where(workflow.c.id == workflow_id)) is not None:
        raise SubmissionRefused(
            "workflow_exists", f'workflow "{workflow_id}" exists already: choose another --workflow-id'
        )
