"""The engine DB behind one door: every method is one transaction. Its method list is the engine's contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from engine.clock import Clock, Micros
from engine.dialect import Database, database_url, insert_or_ignore, shown
from engine.errors import LeaseLost, OpError
from engine.model import (
    UNLIMITED,
    Artifact,
    Binary,
    JsonText,
    Lease,
    MachineFacts,
    NewOp,
    NewWorkflow,
    QueuePolicy,
    Validators,
    WorkflowStatus,
)
from engine.store import (
    changes,
    claim,
    fork,
    homes,
    kv,
    leases,
    machines,
    migrate,
    operate,
    retention,
    submit,
    turns,
    validators,
)
from engine.store.artifacts import write_blobs
from engine.store.graph import GraphPlan
from engine.store.propagate import Consequences
from engine.store.schedules import Schedules
from engine.store.schema import cookie_jar, op, site, workflow
from engine.store.settle import Settling
from engine.store.types import (
    Claim,
    ClaimRequest,
    Forked,
    Refused,
    Settlement,
    SettleReport,
    Submitted,
    Verdict,
    WorkerInfo,
)

T = TypeVar("T")

#: Two emitters may bring the same id at the same instant: the loser sees the winner's row when it tries again.
_TRIES = 3

#: What a driver raises for a value that its database cannot hold: an integer too large, a character it does not know.
_UNSTORABLE = (DBAPIError, ValueError, OverflowError)


class Store:
    """The durable state of all workflows. Synchronous; safe to use from several threads."""

    def __init__(self, database: Database, clock: Clock, uuid: str, default_policy: QueuePolicy, max_lost: int) -> None:
        self.database = database
        self.clock = clock
        self.uuid = uuid
        self._default_policy = default_policy
        self._max_lost = max_lost
        self._lanes: dict[tuple[str, str, str], tuple[int, int]] = {}
        #: What is to be run when.
        self.schedules = Schedules(database, clock, self._know_lanes, self._lane)

    @classmethod
    def open(
        cls,
        target: str | Path,
        *,
        clock: Clock | None = None,
        default_policy: QueuePolicy = UNLIMITED,
        max_lost: int = 5,
    ) -> Store:
        """Open the engine DB at a path or URL, creating and migrating it where needed.

        Raises ConfigError, DatabaseRefused, DatabaseUnavailable.
        """
        database = Database(database_url(target))
        try:
            uuid = migrate.upgrade(database, clock or database.clock())
            return cls(database, clock or database.clock(), uuid, default_policy, max_lost)
        except BaseException:
            database.close()
            raise

    @property
    def url(self) -> str:
        """The database's URL, password included: what a child process needs to open it."""
        return self.database.url.render_as_string(hide_password=False)

    @property
    def name(self) -> str:
        """The database for people: a path, or a URL without its password."""
        return shown(self.database.url)

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def put_policies(
        self, site_name: str, policies: Mapping[str, QueuePolicy], default: QueuePolicy | None = None
    ) -> None:
        """Bring a site's queues in line with its manifest."""
        with self.database.write() as connection:
            fallback = default or self._default_policy
            operate.put_policies(connection, site_name, policies, fallback, self.clock.now())

    def home_of(self, site_name: str, machine: str) -> str:
        """The machine that holds the site's DB: the first to ask."""
        query = select(site.c.home).where(site.c.name == site_name)
        with self.database.read() as connection:
            home = connection.scalar(query)
        if home is not None:
            return str(home)
        with self.database.write() as connection:
            connection.execute(insert_or_ignore(connection, site), {"name": site_name, "home": machine})
            return str(connection.execute(query).scalar_one())

    def rehome(self, site_name: str, machine: str, *, force: bool) -> homes.Rehomed:
        """Make ``machine`` the home of the site's DB. Raises UsageError while ops of the site run elsewhere."""
        with self.database.write() as connection:
            rehomed = homes.rehome(connection, site_name, machine, force=force)
            self._announce(connection, 1)
            return rehomed

    def submit(self, new: NewWorkflow) -> Submitted:
        """Store a workflow with its ops. Raises SubmissionRefused."""
        self._know_lanes(new.ops)
        with self.database.write() as connection:
            submitted, ready = submit.submit(connection, new, self._lane, self.clock.now())
            self._announce(connection, ready)
            return submitted

    def refuse_taken(self, workflow_id: str) -> None:
        """Raise SubmissionRefused where the workflow id is taken."""
        with self.database.read() as connection:
            submit.refuse_taken(connection, workflow_id)

    def look(self, request: ClaimRequest) -> Claim:
        """:meth:`claim` for when probably nothing is due: in that case nothing is locked or written."""
        with self.database.read() as connection:
            if (nothing := claim.look(connection, request, self.clock.now())) is not None:
                return nothing
        return self.claim(request)

    def claim(self, request: ClaimRequest) -> Claim:
        """Lease due ops under their queues' policies."""
        with self.database.write() as connection:
            return claim.claim(connection, request, self.clock.now())

    def settle(
        self,
        settlements: Sequence[Settlement],
        started: Sequence[tuple[str, Micros]] = (),
        request: ClaimRequest | None = None,
    ) -> SettleReport:
        """Commit outcomes and start marks; one verdict per settlement. A bad outcome alone is refused.

        With a ``request`` the same transaction leases the ops that come next, unless an outcome had to be refused.
        """
        for _ in range(_TRIES - 1):
            try:
                return self._settle(settlements, started, request)
            except IntegrityError:
                continue
            except _UNSTORABLE:
                break
        try:
            return self._settle(settlements, started, None)
        except _UNSTORABLE as error:
            return self._isolate(settlements, started, error)

    def _settle(
        self,
        settlements: Sequence[Settlement],
        started: Sequence[tuple[str, Micros]],
        request: ClaimRequest | None,
    ) -> SettleReport:
        self._know_lanes([spec for item in settlements for spec in _emitted(item)])
        with self.database.write() as connection:
            now = self.clock.now()
            settling = Settling(connection, now, self._lane, dict(started))
            verdicts = settling.run(settlements)
            leases.mark_started(connection, sorted(settling.started.items()))
            claimed = None if request is None else claim.claim(connection, request, now)
            ready = settling.consequences.made_ready
            self._announce(connection, ready)
        return SettleReport(tuple(verdicts), ready, claimed)

    def _isolate(
        self, settlements: Sequence[Settlement], started: Sequence[tuple[str, Micros]], error: Exception
    ) -> SettleReport:
        """Halve a group that the database refuses until the one outcome at fault stands alone."""
        if len(settlements) <= 1:
            if not settlements:
                raise error
            refusal = OpError("internal_error", f"the outcome could not be stored: {getattr(error, 'orig', error)}")
            return SettleReport((Refused(refusal),), 0)
        middle = len(settlements) // 2
        verdicts: list[Verdict] = []
        ready = 0
        for half in (settlements[:middle], settlements[middle:]):
            report = self.settle(half, started)
            started = ()
            verdicts.extend(report.verdicts)
            ready += report.made_ready
        return SettleReport(tuple(verdicts), ready)

    def reserve(self, lease: Lease, specs: Sequence[NewOp]) -> None:
        """Hold the ids of ``specs`` for the op under ``lease`` before its site DB commits.

        Raises OpError (``duplicate_op_id``, ``dependency_cycle``) and LeaseLost.
        """
        own = [spec for spec in specs if not spec.workflow_id]
        self._know_lanes(own)
        with self.database.write() as connection:
            row = connection.execute(select(op.c.token, op.c.workflow_pk).where(op.c.pk == lease.op_pk)).one_or_none()
            if row is None or row.token != lease.token:
                raise LeaseLost(lease.token)
            plan = GraphPlan(connection, self._lane, self.clock.now())
            plan.load((row.workflow_pk, spec) for spec in own)
            plan.check(row.workflow_pk, own, lease.op_pk)
            plan.accept(row.workflow_pk, [spec for spec in own if spec.explicit_id])
            plan.reserve(lease.op_pk)

    def emit(self, lease: Lease, specs: Sequence[NewOp]) -> None:
        """Store ops while their emitter runs; they stay whatever becomes of it. Raises OpError and LeaseLost."""
        self._know_lanes(specs)
        with self.database.write() as connection:
            workflow_pk = self._held(connection, lease)
            plan = GraphPlan(connection, self._lane, self.clock.now())
            plan.load((workflow_pk, spec) for spec in specs)
            plan.check(workflow_pk, specs, lease.op_pk)
            plan.accept(workflow_pk, specs)
            consequences = Consequences(connection, self.clock.now())
            consequences.inserted(plan.write())
            consequences.finish()
            self._announce(connection, consequences.made_ready)

    def begun(self, lease: Lease) -> None:
        """Let go on what waits for the beginning of the leased op only. Raises LeaseLost."""
        with self.database.write() as connection:
            self._held(connection, lease)
            consequences = Consequences(connection, self.clock.now())
            consequences.begun(lease.op_pk)
            consequences.finish()
            self._announce(connection, consequences.made_ready)

    def _held(self, connection: Connection, lease: Lease) -> int:
        """The workflow of the leased op. Raises LeaseLost."""
        query = select(op.c.token, op.c.workflow_pk).where(op.c.pk == lease.op_pk).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None or row.token != lease.token:
            raise LeaseLost(lease.token)
        return int(row.workflow_pk)

    def put_blobs(self, bodies: Sequence[Artifact]) -> None:
        """Store artifact bodies ahead of the artifacts that will name them."""
        with self.database.write() as connection:
            write_blobs(connection, bodies, self.clock.now())

    def cookies(self, workflow_id: str) -> JsonText | None:
        """The workflow's cookie jar, if it has one."""
        query = (
            select(cookie_jar.c.jar_json)
            .join(workflow, workflow.c.pk == cookie_jar.c.workflow_pk)
            .where(workflow.c.id == workflow_id)
        )
        with self.database.read() as connection:
            return connection.scalar(query)

    def turn(self, lease: Lease, name: str, request: int) -> int:
        """The place in the round ``name`` of the leased op's ``request``-th request, taken once. Raises LeaseLost."""
        with self.database.write() as connection:
            self._held(connection, lease)
            return turns.take(connection, lease.op_pk, name, request)

    def validators(self, scope: str, variant: str) -> Validators | None:
        """What a page is recognised by, if it was seen before."""
        with self.database.read() as connection:
            return validators.find(connection, scope, variant)

    def kv(self, name: str, arguments: Mapping[str, Any], lease: Lease | None = None) -> Any:
        """Answer a call about the texts that all jobs share; a change that was made before is not made again.

        With ``lease`` only while that is held: what was made before is forgotten with its cycle. Raises LeaseLost.
        """
        with self.database.write() as connection:
            if lease is not None:
                self._held(connection, lease)
            return kv.answer(connection, name, arguments, self.clock.now())

    def meet(self, machine: str, hostname: str, system: str, address: str) -> None:
        """Remember a machine that runs hooks."""
        with self.database.write() as connection:
            machines.meet(connection, machine, hostname, system, address, self.clock.now())

    def put_binary(self, machine: str, found: Binary) -> None:
        """Remember what is known about a program on a machine."""
        with self.database.write() as connection:
            machines.put_binary(connection, machine, found, self.clock.now())

    def binaries(self, machine: str) -> dict[str, Binary]:
        """The programs known on a machine, by name."""
        with self.database.read() as connection:
            return machines.binaries(connection, machine)

    def configure_machine(self, machine: str, values: Mapping[str, Any]) -> None:
        """Set configuration of all hooks of a machine; None takes a key away."""
        with self.database.write() as connection:
            machines.configure(connection, machine, values)

    def machine_facts(self, machine: str) -> MachineFacts:
        """All that hooks have found out about a machine."""
        with self.database.read() as connection:
            return machines.facts(connection, machine)

    def forgive(self, token: str) -> None:
        """The last loss of a leased op does not count: what it had started went on without its worker."""
        with self.database.write() as connection:
            leases.forgive(connection, token)

    def heartbeat(self, worker_id: str, tokens: Sequence[str], duration: Micros) -> frozenset[str]:
        """Extend the leases that are still current; the tokens of those that are not."""
        with self.database.write() as connection:
            return leases.heartbeat(connection, worker_id, tokens, duration, self.clock.now())

    def lost(self, tokens: Sequence[str]) -> frozenset[str]:
        """The tokens that are no longer current; reads only."""
        with self.database.read() as connection:
            return leases.lost(connection, tokens)

    def sweep(self) -> int:
        """Take back expired leases; how many."""
        with self.database.write() as connection:
            taken = leases.sweep(connection, self._max_lost, self.clock.now())
            self._announce(connection, taken)
            return taken

    def abandon(self, token: str, reason: str) -> None:
        """Let a lease lapse now: what ran its op is gone. The op runs again, and the loss is counted."""
        with self.database.write() as connection:
            taken = leases.abandon(connection, token, self._max_lost, reason, self.clock.now())
            self._announce(connection, taken)

    def register_worker(self, info: WorkerInfo) -> None:
        """Make a worker known."""
        with self.database.write() as connection:
            leases.register(connection, info)

    def retire_worker(self, worker_id: str) -> None:
        """Forget a worker that ended in good order."""
        with self.database.write() as connection:
            leases.retire(connection, worker_id)

    def workers(self, machine: str) -> tuple[WorkerInfo, ...]:
        """The workers registered on a machine."""
        with self.database.read() as connection:
            return leases.workers(connection, machine)

    def bury_worker(self, worker_id: str) -> None:
        """Expire the leases of a worker that is certainly dead."""
        with self.database.write() as connection:
            leases.bury(connection, worker_id, self.clock.now())

    def cancel(self, workflow_id: str) -> int:
        """Cancel what has not ended of a workflow; how many ops. Raises UsageError."""
        with self.database.write() as connection:
            canceled = operate.cancel(connection, workflow_id, self.clock.now())
            self._announce(connection, canceled)
            return canceled

    def retry(self, op_id: str, workflow_id: str | None = None) -> int:
        """Run a failed op again and revive its dependents; how many ops. Raises UsageError."""
        with self.database.write() as connection:
            revived = operate.retry(connection, op_id, workflow_id, self.clock.now())
            self._announce(connection, revived)
            return revived

    def retry_workflow(self, workflow_id: str) -> int:
        """Run every failed op of a workflow again; how many ops. Raises UsageError where none has failed."""
        with self.database.write() as connection:
            revived = operate.retry_workflow(connection, workflow_id, self.clock.now())
            self._announce(connection, revived)
            return revived

    def hurry(self, workflow_id: str) -> int:
        """Let what waits for its retry run now; how many ops. Raises UsageError."""
        with self.database.write() as connection:
            hurried = operate.hurry(connection, workflow_id, self.clock.now())
            self._announce(connection, hurried)
            return hurried

    def delete_workflow(self, workflow_id: str) -> int:
        """Forget a workflow that has ended; how many ops. Raises UsageError."""
        with self.database.write() as connection:
            return retention.delete_workflow(connection, workflow_id)

    def prune(self, cutoffs: retention.Cutoffs) -> retention.Pruned:
        """Forget one bounded slice of what is old; an empty answer means that nothing is left."""
        with self.database.write() as connection:
            return retention.prune(connection, cutoffs, self.clock.now())

    def oldest_live(self, site_name: str) -> Micros | None:
        """When the oldest claim was made that the site's inbox may still be asked about."""
        with self.database.read() as connection:
            return retention.oldest_live(connection, site_name)

    def shrink(self) -> int:
        """Give a slice of free pages back to the file system; how many are left. PostgreSQL does so by itself."""
        if not self.database.is_sqlite:
            return 0
        with self.database.write() as connection:
            return retention.shrink(connection)

    def size(self) -> int:
        """The bytes the engine DB occupies."""
        with self.database.read() as connection:
            return retention.size(connection, sqlite=self.database.is_sqlite)

    def fork(self, workflow_id: str, from_ops: Sequence[str], new_id: str) -> Forked:
        """A new workflow that keeps the outcomes of an ended one, except of ``from_ops`` and what follows from them.

        Raises UsageError.
        """
        with self.database.write() as connection:
            forked, ready = fork.fork(connection, workflow_id, from_ops, new_id, self.clock.now())
            self._announce(connection, ready)
            return forked

    def pause(self, site_name: str, key: str) -> None:
        """Stop claims from a queue. Raises UsageError."""
        with self.database.write() as connection:
            operate.pause(connection, site_name, key)

    def resume(self, site_name: str, key: str) -> None:
        """Allow claims from a queue again. Raises UsageError."""
        with self.database.write() as connection:
            operate.resume(connection, site_name, key, self.clock.now())
            self._announce(connection, 1)

    def idle(self, machine: str, sites: frozenset[str] | None = None) -> bool:
        """Whether nothing is running, ready or delayed for this machine."""
        with self.database.read() as connection:
            return operate.is_idle(connection, machine, sites)

    def workflow_status(self, workflow_id: str) -> WorkflowStatus | None:
        """The state of a workflow; None where there is none."""
        with self.database.read() as connection:
            status = connection.scalar(select(workflow.c.status).where(workflow.c.id == workflow_id))
        return None if status is None else WorkflowStatus(status)

    def changes(self) -> changes.ChangeSource:
        """A listener for commits of other processes, for one thread."""
        return changes.listen(self.database)

    def _announce(self, connection: Connection, count: int) -> None:
        if count:
            changes.announce(connection, self.database)

    def _know_lanes(self, specs: Sequence[NewOp]) -> None:
        missing = {_domain(spec) for spec in specs} - self._lanes.keys()
        if not missing:
            return
        with self.database.write() as connection:
            found = {
                domain: operate.ensure_lane(connection, *domain, self._default_policy) for domain in sorted(missing)
            }
        self._lanes.update(found)

    def _lane(self, spec: NewOp) -> tuple[int, int]:
        return self._lanes[_domain(spec)]


def _domain(spec: NewOp) -> tuple[str, str, str]:
    return spec.site, spec.queue, spec.machine


def _emitted(settlement: Settlement) -> tuple[NewOp, ...]:
    produced = getattr(settlement.outcome, "result", None)
    return () if produced is None else tuple(produced.emitted)
