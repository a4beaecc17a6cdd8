"""One cycle where its site DB and its hooks are: the stages after the fetch, in order, each of them once.

Everything here may be done again after a crash: hooks that ended are journaled, the store transaction left its row,
frozen texts stay. What is computed from those is the same each time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.clock import MILLISECOND, SECOND, Clock, rfc3339
from engine.errors import OpError
from engine.js.ports import Ask
from engine.lifecycle import verdicts
from engine.lifecycle.chain import Cycle, Plan
from engine.lifecycle.extract import extract
from engine.lifecycle.hooks import Hooks
from engine.lifecycle.identity import identity
from engine.lifecycle.job import Job
from engine.lifecycle.journal import Journal
from engine.lifecycle.keywords import keeps, matches
from engine.lifecycle.ledger import Draft, Frozen, Ledger, State
from engine.lifecycle.messages import notification, payload
from engine.lifecycle.scripts import Called, CycleContext, scope_of
from engine.lifecycle.telemetry import Telemetry
from engine.lifecycle.verdicts import Item
from engine.model import LogLine

_ITEM = "filter_item"
_NOT_MODIFIED = 304


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the pipeline ended: ``success``, ``skipped`` (by a hook: a success too), or ``error`` with its text."""

    status: str
    error: str = ""


SUCCESS, SKIPPED = Outcome("success"), Outcome("skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What the fetch op left: an envelope without its body, or the reason why there is none."""

    envelope: dict[str, Any] | None
    body: Callable[[], str]
    skip: bool = False
    #: The op itself came to nothing.
    lost: str = ""
    duration_ms: float = 0.0
    validators: Mapping[str, Any] | None = None

    def full(self) -> dict[str, Any] | None:
        """The envelope with its body."""
        if self.envelope is None or "response" not in self.envelope:
            return self.envelope
        return {**self.envelope, "response": {**self.envelope["response"], "body": self.body()}}


@dataclass(slots=True, kw_only=True)
class CycleRun:
    """One op's work on one cycle."""

    job: Job
    plan: Plan
    cycle: Cycle
    ledger: Ledger
    clock: Clock
    #: Makes the hooks; an isolate only starts where one is called.
    open_hooks: Callable[[], Hooks]
    ask: Ask
    folder: Path
    logs: list[LogLine] = field(default_factory=list)
    telemetry: Telemetry = field(init=False)
    context: CycleContext = field(init=False)
    state: State = field(init=False)
    started_at: int = field(init=False)
    _hooks: Hooks | None = None

    def __post_init__(self) -> None:
        journal = Journal(self.ledger.database, self.cycle_id)
        self.state = self.ledger.state(self.cycle_id)
        self.started_at, told = self.state.started_at, self.state.told
        self.telemetry = (
            Telemetry(self.job.name, self.started_at / SECOND) if told is None else Telemetry.load(told["telemetry"])
        )
        self.context = CycleContext(
            cycle_id=self.cycle_id,
            iteration_id=self.plan.iteration_id,
            worker_id=self.cycle.worker,
            journal=journal,
            selector_matches=None if told is None else told["selector_matches"],
        )
        if self.plan.hooks and (kept := journal.latest_ctx()) is not None:
            self.context.kept = json.loads(kept)

    @property
    def cycle_id(self) -> str:
        """The id of the cycle."""
        return self.plan.cycle_id(self.cycle.number)

    def note(self, outcome: Outcome | None = None) -> None:
        """Keep the telemetry, and how the pipeline ended."""
        status, error = ("running", "") if outcome is None else (outcome.status, outcome.error)
        self.ledger.note(self.cycle_id, self.told(), self.started_at, status, error)

    def told(self) -> dict[str, Any]:
        """What the next op of the cycle needs to know besides the journal."""
        return {"telemetry": self.telemetry.dump(), "selector_matches": self.context.selector_matches}

    def say(self, level: str, message: str) -> None:
        """A line for the op's log."""
        self.logs.append(LogLine(at=self.clock.now(), level=level, message=message))

    def close(self) -> None:
        """End the hooks."""
        if self._hooks is not None:
            self.logs += self._hooks.take_logs()
            self._hooks.close()
            self._hooks = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage of the engine's own; an error it raises is the stage's."""
        began = time.monotonic()
        try:
            yield
        except OpError as error:
            self.telemetry.record(name, "error", _since(began), error.message)
            raise
        self.telemetry.record(name, "success", _since(began))

    def has(self, hook: str) -> bool:
        """Whether the scripts define the hook."""
        return hook in self.plan.hooks

    def hook(self, name: str, *arguments: Any, stage: str = "") -> Called:
        """Call a hook once in the life of the cycle."""
        if not self.has(name):
            return Called(outcome="absent")
        self._show_telemetry()
        called = self._opened().call(name, list(arguments), self.context)
        self._measure(stage or name, called)
        return called

    def hook_each(self, name: str, arguments: Sequence[list[Any]], stage: str) -> list[Called]:
        """Call a hook for one after another."""
        self._show_telemetry()
        called = self._opened().call_each(name, arguments, self.context)
        for one in called:
            self._measure(stage, one)
        return called

    def _opened(self) -> Hooks:
        if self._hooks is None:
            self._hooks = self.open_hooks()
        return self._hooks

    def _show_telemetry(self) -> None:
        self.context.telemetry = self.telemetry.shown()

    def _measure(self, stage: str, called: Called) -> None:
        if stage in self.telemetry.stages:
            status = "error" if called.outcome == "threw" else "success"
            self.telemetry.record(stage, status, called.duration_ms, called.error, called.heap_bytes)  # type: ignore[arg-type]

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        """What goes out: ``{"request"}``, ``{"skip"}``, or ``{"envelope"}`` where a hook fetched the page itself."""
        called = self.hook("before_fetch", request)
        chosen = verdicts.request_after(called, request)
        if chosen is None:
            return {"skip": True}
        if not self.has("override_fetch"):
            return {"request": chosen}
        called = self.hook("override_fetch", chosen)
        envelope = verdicts.fetched(called, chosen)
        self.telemetry.record("fetch", "success" if envelope["ok"] else "error", called.duration_ms, _said(envelope))
        if not envelope["ok"]:
            self.telemetry.replace("override_fetch", "error", called.duration_ms, called.error or _said(envelope))
        return {"request": chosen, "envelope": envelope}

    def process(self, fetched: Fetched) -> Outcome:
        """The pipeline from the fetch to the promise of its announcements."""
        try:
            items = self.items(fetched)
            if isinstance(items, Outcome):
                return items
            if not items:
                return SUCCESS
            chosen = verdicts.items_after(self.hook("before_store", items), items)
            if chosen is None:
                return SKIPPED
            self._store(chosen)
        except OpError as error:
            return Outcome("error", error.message)
        return SUCCESS

    def rehearse(self, fetched: Fetched) -> tuple[Outcome, list[Item]]:
        """What would be stored: the pipeline up to before_store, its page and items left beside the job."""
        self.job = replace(self.job, debug=True)
        try:
            items = self.items(fetched)
            if isinstance(items, Outcome):
                return items, []
            chosen = verdicts.items_after(self.hook("before_store", items), items) if items else []
        except OpError as error:
            return Outcome("error", error.message), []
        return (SKIPPED, []) if chosen is None else (SUCCESS, chosen)

    def items(self, fetched: Fetched) -> list[Item] | Outcome:
        """The pipeline up to the filter: what before_store gets."""
        if fetched.lost:
            self.telemetry.record("fetch", "error", error=fetched.lost)
            return Outcome("error", fetched.lost)
        if fetched.skip or fetched.envelope is None:
            return SKIPPED
        if self.telemetry.stages["fetch"]["status"] == "inactive":
            status = "success" if fetched.envelope["ok"] or _not_modified(fetched.envelope) else "error"
            self.telemetry.record("fetch", status, fetched.duration_ms, _said(fetched.envelope))  # type: ignore[arg-type]
        self.context.last_fetch = fetched.full
        if _not_modified(fetched.envelope):
            return SKIPPED
        full = fetched.full() or {}
        verdict = verdicts.after_fetch(self.hook("after_fetch", full), full)
        if verdict.state == "skip":
            return SKIPPED
        if verdict.state == "failed":
            return Outcome("error", verdict.error)
        response = verdict.envelope["response"]
        if self.job.debug:
            self.write_beside("response.html", str(response.get("body", "")))
        items = self._extracted(response)
        chosen = verdicts.items_after(self.hook("after_extract", items), items)
        if chosen is None:
            return SKIPPED
        items = self._filtered(chosen)
        if self.job.debug:
            self.write_beside("fields.json", json.dumps(items, ensure_ascii=False, indent=2))
        return items

    def _extracted(self, response: Mapping[str, Any]) -> list[Item]:
        items = verdicts.extracted(self.hook("override_extract", dict(response)))
        if items is None:
            with self.stage("extract"):
                base = str(response.get("url") or self.cycle.url)
                found = extract(str(response.get("body", "")), self.job.selector, self.job.fields, base)
            items = [{"fields": fields, "matches": []} for fields in found]
        self.context.selector_matches = len(items)
        return self._tagged(items)

    def _tagged(self, items: Sequence[Item]) -> list[Item]:
        job = self.job
        return [
            {"fields": item["fields"], "matches": matches(item["fields"], job.keywords, job.search_fields)}
            for item in items
        ]

    def _filtered(self, items: Sequence[Item]) -> list[Item]:
        if self.has(_ITEM):
            called = self.hook_each(_ITEM, [[item] for item in items], "filter")
            chosen = [verdicts.kept(one, item) for one, item in zip(called, items, strict=True)]
            return self._tagged([item for item in chosen if item is not None])
        with self.stage("filter"):
            return [item for item in self._tagged(items) if keeps(item["matches"], self.job.keywords)]

    def _store(self, items: Sequence[Item]) -> None:
        if not items:
            return
        identities = [identity(item["fields"], self.job.hash_fields) for item in items]
        for warning in dict.fromkeys(one.warning for one in identities if one.warning):
            self.say("warning", warning)
        announced: list[str] = []

        def announce(new: Sequence[Item]) -> list[Frozen]:
            announced.append(self.cycle_id)
            return self._texts(new)

        hooked = self.has("before_notify") or self.has("before_webhook")
        with self.stage("store"):
            # what no hook wants to see is frozen in the same transaction
            new = self.ledger.store(self.cycle_id, items, identities, self._drafts(), None if hooked else announce)
        self.say("info", f"{len(items)} items, {len(new)} new")
        if new and not announced:
            self.announce()

    def _drafts(self) -> list[Draft]:
        """What will be said of new items; the webhook goes by the cycle's own id."""
        drafts = []
        if self.job.notification is not None:
            drafts.append(Draft(self.notification_id, "notification", "", {}))
        if self.job.webhook is not None:
            drafts.append(Draft(self.cycle_id, "webhook", self.job.webhook.url, self.job.webhook.headers))
        return drafts

    def announce(self) -> None:
        """Let the hooks see what was stored as new, and freeze what is to be said of it."""
        new = self.ledger.committed(self.cycle_id)
        if not new:
            return
        texts = self._texts(new)
        if self.ledger.drafts(self.cycle_id):
            self.ledger.freeze(texts)

    def _texts(self, new: Sequence[Item]) -> list[Frozen]:
        """The announcements of new items as they are sent, None where a hook called one off."""
        texts: list[Frozen] = []
        told = self.job.notification
        notified = Called(outcome="absent") if told is None else self.hook("before_notify", list(new))
        if self.job.webhook is not None:
            default = payload(self.job, new)
            sent = verdicts.payload_after(self.hook("before_webhook", default), default)
            texts.append(Frozen(self.cycle_id, None if sent is None else _compact(sent), "pending"))
        if told is not None:
            text = self._notice(notified, new)
            texts.append(Frozen(self.notification_id, text, "pending" if told.command else "sent"))
        return texts

    @property
    def notification_id(self) -> str:
        """The id of what is said about the cycle's new items."""
        return f"{self.cycle_id}/notification"

    def _notice(self, called: Called, new: Sequence[Item]) -> str | None:
        told = self.job.notification
        items = verdicts.items_after(called, list(new))
        if told is None or not items:
            return None
        with self.stage("notify"):
            message = notification(self.job, told, items, rfc3339(self.clock.now()))
        self.say("info", f"notification: {message['title']}\n{message['body']}")
        return _compact(message)

    def write_beside(self, what: str, text: str) -> None:
        """Leave a file beside the job, for its author."""
        try:
            (self.folder / f"{self.job.id}-{what}").write_text(text, "utf-8", errors="replace")
        except OSError as error:
            self.say("warning", f"{self.folder / f'{self.job.id}-{what}'} cannot be written: {error.strerror}")

    def conclude(self, outcome: Outcome) -> None:
        """The lifecycle hooks of a cycle whose pipeline ended, and its end."""
        self.telemetry.total_duration_ms = max(self.clock.now() - self.started_at, 0) / MILLISECOND
        if outcome.status == "error":
            self.say("error", f"{self.job.name}: {outcome.error}")
            self.hook("on_error", outcome.error)
        else:
            self.hook("on_success")
        self.hook("on_finally")
        self.ledger.conclude(self.cycle_id, outcome.status, outcome.error, self.told())
        self.wipe()

    def wipe(self) -> None:
        """Forget what only the hooks of this cycle shared: they are not called again."""
        if self.plan.hooks:
            self.context.journal.forget()
            self.ask("kv.forget", {"scope": scope_of(self.plan.site, self.cycle_id)})


def _said(envelope: Mapping[str, Any]) -> str:
    error = envelope.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _not_modified(envelope: Mapping[str, Any]) -> bool:
    response = envelope.get("response")
    return isinstance(response, dict) and response.get("status") == _NOT_MODIFIED


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def _since(began: float) -> float:
    return (time.monotonic() - began) * 1000
