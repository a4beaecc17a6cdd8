"""The ops of an iteration: which there are, what each waits for, and what travels in their inputs.

``begin`` → for each cycle ``c<k>/fetch`` → ``process`` [→ ``deliver``] → ``conclude`` [→ ``next`` page] → ``finished``.
Everything waits for the end of what is before it, however that ended: a cycle that fails has lifecycle hooks too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.clock import MINUTE, SECOND, Micros
from engine.lifecycle.hooks import CYCLE_HOOKS
from engine.lifecycle.job import Job
from engine.model import BackoffKind, Dependency, EdgeKind, NewOp, RetryPolicy

KIND = "cycle"
QUEUE = "jobs"
BEGIN, FINISHED = "begin", "finished"

#: Trouble of the engine's own; what a hook or a page does wrong is no reason to run an op again.
_RETRY = RetryPolicy(max_attempts=5, backoff=BackoffKind.EXPONENTIAL, initial=SECOND, maximum=MINUTE)
_LONGEST_PAUSE = 60 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the ops of an iteration know about it."""

    site: str
    job_id: str
    iteration_id: str
    #: The hash of the files the iteration is pinned to.
    version: str
    #: The hooks the scripts define.
    hooks: tuple[str, ...]
    #: How many cycles there are in all.
    cycles: int
    workers: int
    #: Whether announcements go anywhere but into the log.
    delivers: bool
    #: Tries of a delivery, and the pause after the first.
    tries: int
    backoff: Micros
    #: From the end of this iteration to the next; None where nothing is scheduled.
    interval: Micros | None
    #: The job's folder below that of all jobs; "" = to be looked for.
    folder: str = ""
    #: How long a hook may take.
    hook_timeout: Micros = MINUTE

    @classmethod
    def of(
        cls,
        site: str,
        job: Job,
        iteration_id: str,
        version: str,
        hooks: Sequence[str],
        *,
        folder: str = "",
        scheduled: bool = False,
    ) -> Plan:
        """The plan of one iteration of ``job``."""
        told = job.notification
        return cls(
            site=site,
            job_id=job.id,
            iteration_id=iteration_id,
            folder=folder,
            version=version,
            hooks=tuple(sorted(hooks)),
            cycles=len(job.pages),
            workers=min(job.workers, len(job.pages)),
            delivers=job.webhook is not None or bool(told is not None and told.command),
            tries=job.webhook_retry.max_attempts,
            backoff=job.webhook_retry.backoff,
            interval=job.interval if scheduled else None,
            hook_timeout=job.hook_timeout,
        )

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> Plan:
        """The inverse of :meth:`dump`, of this version of the engine or of another."""
        known = {name: plain[name] for name in (field.name for field in fields(cls)) if name in plain}
        return cls(**{**known, "hooks": tuple(plain["hooks"])})

    def dump(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @property
    def concludes(self) -> bool:
        """Whether the end of a cycle is an op of its own: there is something to call or to wait for."""
        return self.delivers or any(name in self.hooks for name in CYCLE_HOOKS)

    @property
    def goes_on(self) -> bool:
        """Whether a worker that is done takes another page."""
        return self.cycles > self.workers

    def cycle_id(self, number: int) -> str:
        """The id of a cycle."""
        return f"{self.iteration_id}/{number}"


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle: its number in the iteration, from 1, the worker that runs it, and its page."""

    number: int
    worker: int
    url: str


def begin_op(site: str, job_id: str, *, scheduled: bool = False, debug: bool = False) -> NewOp:
    """The op an iteration starts with; one to ``debug`` stores and sends nothing."""
    return _op(site, BEGIN, {"step": "begin", "job": job_id, "scheduled": scheduled, "debug": debug})


def rehearsal_ops(plan: Plan, cycle: Cycle) -> tuple[NewOp, ...]:
    """The ops of one cycle that ends before it stores anything."""
    common = {"plan": plan.dump(), "cycle": asdict(cycle), "debug": True}
    fetch = _op(plan.site, f"c{cycle.number}/fetch", {"step": "fetch", **common})
    return fetch, _op(plan.site, f"c{cycle.number}/process", {"step": "process", **common}, [_after(fetch)])


def iteration_ops(plan: Plan, cycles: Sequence[Cycle], start: Micros, stagger: Micros) -> tuple[NewOp, ...]:
    """The ops of the first cycle of every worker, and the op that ends the iteration."""
    ops = [op for cycle in cycles for op in cycle_ops(plan, cycle, start + (cycle.worker - 1) * stagger)]
    last = "conclude" if plan.concludes else "process"
    ends = [Dependency(f"c{number}/{last}", EdgeKind.TERMINAL) for number in range(1, plan.cycles + 1)]
    return (*ops, _op(plan.site, FINISHED, {"step": "finished", "plan": plan.dump()}, ends))


def cycle_ops(plan: Plan, cycle: Cycle, not_before: Micros = 0) -> tuple[NewOp, ...]:
    """The ops of one cycle."""
    prefix = f"c{cycle.number}"
    common = {"plan": plan.dump(), "cycle": asdict(cycle)}
    fetch = _op(plan.site, f"{prefix}/fetch", {"step": "fetch", **common}, not_before=not_before)
    process = _op(plan.site, f"{prefix}/process", {"step": "process", **common}, [_after(fetch)])
    ops, last = [fetch, process], process
    if plan.concludes:
        waits = [_after(process)]
        if plan.delivers:
            deliver = delivery_op(plan, f"{prefix}/deliver", plan.cycle_id(cycle.number), after=[_after(process)])
            ops.append(deliver)
            # only the first try counts: an unreachable sink holds nothing up
            waits.append(Dependency(deliver.id, EdgeKind.SETTLED))
        last = _op(plan.site, f"{prefix}/conclude", {"step": "conclude", **common}, waits)
        ops.append(last)
    if plan.goes_on:
        ops.append(_op(plan.site, f"{prefix}/next", {"step": "next", **common}, [_after(last)]))
    return tuple(ops)


def delivery_op(
    plan: Plan, name: str, cycle_id: str, ids: Sequence[str] = (), after: Sequence[Dependency] = ()
) -> NewOp:
    """The op that delivers what a cycle announces; ``ids`` where only some rows are meant."""
    given = {"step": "deliver", "job": plan.job_id, "cycle_id": cycle_id, "ids": list(ids), "version": plan.version}
    retry = RetryPolicy(
        max_attempts=plan.tries,
        backoff=BackoffKind.EXPONENTIAL,
        initial=plan.backoff,
        maximum=max(_LONGEST_PAUSE, plan.backoff),
    )
    return _op(plan.site, name, given, after, retry=retry)


def _after(op: NewOp) -> Dependency:
    return Dependency(op.id, EdgeKind.TERMINAL)


def _op(
    site: str,
    name: str,
    given: Mapping[str, Any],
    after: Sequence[Dependency] = (),
    not_before: Micros = 0,
    retry: RetryPolicy = _RETRY,
) -> NewOp:
    return NewOp(
        id=name,
        kind=KIND,
        site=site,
        queue=QUEUE,
        input=json.dumps(given, ensure_ascii=False),
        metadata={"step": str(given["step"])},
        retry=retry,
        depends_on=tuple(after),
        not_before=not_before,
    )
