"""Where one test takes place: the real engine on databases of its own, in a temporary folder, without the network."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.app import WorkerOptions, migrate_site, run_worker, submit_verb
from engine.authoring.bench import Refused
from engine.authoring.pages import FOLDER, Pages, RecordedWire
from engine.clock import MILLISECOND
from engine.config import Settings
from engine.errors import ScraperError
from engine.faults import did_you_mean
from engine.fields import default_value, flag_name, read_value
from engine.model import QueuePolicy
from engine.plugins.registry import Registry
from engine.plugins.site import Site
from engine.runners.http_wire import Wire
from engine.verbs import VerbField, VerbSpec
from engine.views.reader import Views
from engine.views.types import WorkflowView
from engine.worker.options import Silent


class TooLong(Exception):
    """The test's time is over."""


@dataclass(slots=True)
class Stage:
    """Answers what a test asks: see :mod:`engine.authoring.testing` for what that is."""

    site: Site
    verbs: tuple[VerbSpec, ...]
    pages: Pages
    settings: Settings
    record: bool
    #: On the monotonic clock.
    deadline: float

    @classmethod
    def in_folder(
        cls, folder: Path, site: Site, verbs: tuple[VerbSpec, ...], settings: Settings, *, record: bool, seconds: float
    ) -> Stage:
        """A stage with fresh databases in ``folder``. Rate limits of queues are lifted: nobody is asked too often."""
        unhurried = {queue: _without_rate(policy) for queue, policy in site.queue_policies.items()}
        default = None if site.default_policy is None else _without_rate(site.default_policy)
        return cls(
            site=replace(site, queue_policies=unhurried, default_policy=default),
            verbs=verbs,
            pages=Pages(site.root / FOLDER),
            settings=replace(settings, engine_db=str(folder / "engine.db"), sites_dir=folder / "sites"),
            record=record,
            deadline=time.monotonic() + seconds,
        )

    @property
    def database(self) -> Path:
        """The site DB."""
        return self.settings.sites_dir / self.site.database_file

    def answer(self, name: str, argument: Any) -> Any:
        """What the test asked for. Raises Refused, which the test sees as an error, TooLong and KeyboardInterrupt."""
        try:
            match name:
                case "test.run":
                    return self._run(*argument)
                case "test.fixture":
                    return self.pages.read(str(argument)).decode("utf-8", "replace")
                case "test.migrate":
                    return migrate_site(self.settings, self.site).version
        except ScraperError as error:
            raise Refused(str(error)) from error
        raise Refused(f"a test cannot ask for {name}")

    def _run(self, name: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        verb = self._verb(str(name))
        values = read_flags(verb, given, self.site.root)
        registry = Registry({self.site.name: self.site})
        with _until(self.deadline):
            submitted = submit_verb(self.settings, registry, self.site.name, verb, values, None)
            worker = WorkerOptions(
                worker_id="test",
                poll_interval=20 * MILLISECOND,
                drain_timeout=0,
                max_workers=8,
                js_processes=1,
                until_idle=True,
            )
            wire: Wire = RecordedWire(self.pages, record=self.record)
            run_worker(self.settings, registry, worker, Silent(), wire=wire)
        view = self._view(submitted.workflow_id)
        if view.status in ("pending", "running"):
            raise KeyboardInterrupt  # the worker takes Ctrl-C for itself and ends early
        self._refuse_missing()
        if view.status != "succeeded" and options.get("mayFail") is not True:
            raise Refused(_failure(name, view))
        return _told(view, submitted.verb_data_json)

    def _refuse_missing(self) -> None:
        if self.pages.missing:
            wanted = ", ".join(dict.fromkeys(self.pages.missing))
            raise Refused(f"there is no recorded page for {wanted} (--record fetches and keeps it)")

    def _verb(self, name: str) -> VerbSpec:
        known = {verb.name: verb for verb in self.verbs}
        if name not in known:
            hint = did_you_mean(name, known)
            raise Refused(f'the site has no verb "{name}"' + (f"; {hint}" if hint else ""))
        return known[name]

    def _view(self, workflow_id: str) -> WorkflowView:
        views = Views(self.settings.engine_db)
        try:
            return views.workflow(workflow_id)
        finally:
            views.close()


def _without_rate(policy: QueuePolicy) -> QueuePolicy:
    return QueuePolicy(max_in_flight=policy.max_in_flight)


def read_flags(verb: VerbSpec, given: Mapping[str, Any], root: Path) -> dict[str, dict[str, Any]]:
    """The values of a verb by section, as the command line would read ``given``. Raises Refused."""
    fields = {one.name for section in verb.sections for one in section.fields}
    for name in given:
        if name not in fields:
            hint = did_you_mean(name, fields)
            raise Refused(f'verb "{verb.name}" has no field "{name}"' + (f"; {hint}" if hint else ""))
    values: dict[str, dict[str, Any]] = {}
    for section in verb.sections:
        inner = values[section.slug] = {}
        for one in section.fields:
            value = _value(verb, one, given.get(one.name), root)
            if value is not None:
                inner[one.name] = value
    return values


def _value(verb: VerbSpec, one: VerbField, raw: Any, root: Path) -> Any:
    try:
        if raw is None:
            value = default_value(one)
        elif one.type == "file":
            value = read_value(one, str(root / str(raw)))
        else:
            value = read_value(one, raw if isinstance(raw, bool) else _texts(raw))
    except ValueError as error:
        raise Refused(f"--{flag_name(one)}: {error}") from error
    if value is None and one.required:
        raise Refused(f'verb "{verb.name}" needs "{one.name}"')
    return value


def _texts(raw: Any) -> str | list[str]:
    if isinstance(raw, list):
        return [str(_texts(item)) for item in raw]
    if isinstance(raw, float) and math.isfinite(raw) and raw.is_integer():
        return str(int(raw))
    return str(raw)


def _failure(name: str, view: WorkflowView) -> str:
    first = view.failures[0] if view.failures else None
    why = "" if first is None else f": op {first.op_id}: {first.error.summary}"
    return f'the workflow of "{name}" {view.status}{why}'


def _told(view: WorkflowView, data: str) -> dict[str, Any]:
    return {
        "workflowID": view.id,
        "status": view.status,
        "data": json.loads(data),
        "ops": dict(view.ops),
        "failures": [
            {"op": one.op_id, "status": one.status, "code": one.error.code, "message": one.error.message}
            for one in view.failures
        ],
    }


@contextmanager
def _until(deadline: float) -> Iterator[None]:
    """Raise TooLong in the block once the deadline has passed, whatever the block waits for."""

    def over(*_: object) -> None:
        raise TooLong

    left = deadline - time.monotonic()
    if left <= 0:
        raise TooLong
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, left)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
