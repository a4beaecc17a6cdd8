"""The protocol between the worker and the runners.

A runner turns a leased op into a :class:`~engine.model.Result` or raises :class:`~engine.errors.OpError`
(or :class:`Refund`, :class:`Vanished`). It never sees the store, never renews a lease and never writes engine state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.clock import Micros
from engine.errors import OpError
from engine.model import EMPTY_RESULT, Binary, JsonText, Lease, MachineFacts, NewOp, Op, Result, Validators
from engine.plugins.site import Site


async def _unavailable(*_: object) -> None:
    raise OpError("runner_error", "there is no worker behind this run")


async def _no_turn(_name: str, _request: int) -> int:
    raise OpError("runner_error", "there is no worker behind this run")


async def _nothing_known() -> MachineFacts:
    return MachineFacts()


async def _unnoticed() -> None:
    return


async def _never_seen(_scope: str, _variant: str) -> Validators | None:
    return None


class Refund(Exception):
    """The op did not run to an end through no fault of its own: give it back with its attempt refunded."""

    def __init__(self, reason: str, pause: Micros = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pause = pause


class Vanished(Exception):
    """What ran the op is gone without a word: the op runs again, as if its worker had died."""


class RunFailed(Exception):
    """An op failed after it had logged or stored something: the error together with that evidence."""

    def __init__(self, error: OpError, evidence: Result = EMPTY_RESULT) -> None:
        super().__init__(str(error))
        self.error = error
        self.evidence = evidence


@dataclass(slots=True, kw_only=True)
class RunContext:
    """Everything a runner may know and do about one claim."""

    op: Op
    lease: Lease
    site: Site
    engine_uuid: str
    #: Generations of this op whose inbox keys must be closed before anything runs.
    fence: tuple[int, ...] = ()
    #: Call once when the op really begins: until then a lost claim counts as nothing.
    started: Callable[[], None]
    #: Validate a result against the engine DB and make what it needs durable (blobs, explicit op ids), before the
    #: site DB commits. Raises OpError (the op fails) or LeaseLost.
    prepare: Callable[[Result], Awaitable[None]]
    #: The workflow's cookie jar (a JSON object), None where there is none yet.
    cookies: Callable[[], Awaitable[JsonText | None]]
    #: The place in a round, from 0, of the op's n-th request of this attempt: taken once, whichever workers die.
    #: Raises LeaseLost.
    turn: Callable[[str, int], Awaitable[int]] = _no_turn
    #: What a page of a scope is recognised by.
    validators: Callable[[str, str], Awaitable[Validators | None]] = _never_seen
    #: The machine of this worker.
    machine: str = ""
    #: What hooks have found out about this machine.
    machine_facts: Callable[[], Awaitable[MachineFacts]] = _nothing_known
    #: Remember what is known about a program on this machine.
    put_binary: Callable[[Binary], Awaitable[None]] = _unavailable
    #: Set configuration of all hooks of this machine; None takes a key away.
    configure_machine: Callable[[Mapping[str, Any]], Awaitable[None]] = _unavailable
    #: What the op had started went on without its worker: losing that one does not count against it.
    survived: Callable[[], Awaitable[None]] = _unnoticed
    #: Store ops now; they stay whatever becomes of this one. Raises OpError or LeaseLost.
    emit: Callable[[Sequence[NewOp]], Awaitable[None]] = _unavailable
    #: The texts all jobs share, by name of the call. Raises OpError.
    kv: Callable[[str, Mapping[str, Any]], Awaitable[Any]] = _unavailable
    #: The op goes on without a slot of the worker, and edges of kind ``begun`` to it are met. Raises LeaseLost.
    background: Callable[[], Awaitable[None]] = _unavailable


class Runner(Protocol):
    """Executes ops of one kind. Cancellation of the task means: lease lost, op canceled or worker stopping."""

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op. Raises OpError, RunFailed, Refund or Vanished."""
        ...

    async def resolve(self, ctx: RunContext) -> Result | None:
        """The outcome an earlier claim left in the inbox; else close the inbox key and return None.

        For ops that end without running (canceled, too many lost leases). Kinds without site writes return None.
        """
        ...

    async def aclose(self) -> None: ...
