"""What a child is asked to do, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.clock import SECOND, Micros
from engine.errors import OpError
from engine.js.ports import SessionSpec
from engine.model import QueuePolicy, Result
from engine.plugins.site import HttpSettings, JsSettings, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """One execution of one op's script."""

    site: Site
    spec: SessionSpec
    entry: str
    #: What the author sees as ``ctx``, without its methods.
    ctx: Mapping[str, Any]
    earlier_claims: int
    fence: tuple[int, ...] = ()
    timeout: Micros = 60 * SECOND
    heap_mb: int = 256
    #: A text to run in place of the entry's.
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbJob:
    """One run of a submit verb."""

    site: Site
    spec: SessionSpec
    function: str
    entry: str
    ctx: Mapping[str, Any]
    timeout: Micros = 30 * SECOND
    heap_mb: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbOutcome:
    """A verb's ops and log lines in ``result``, what it returned in ``result.data``, and what it set."""

    result: Result
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleJob:
    """One step of a lifecycle job."""

    site: Site
    spec: SessionSpec
    task: Mapping[str, Any]
    #: How long the child may be silent: no call of a hook takes longer.
    timeout: Micros = 60 * SECOND
    #: Whether it needs the site DB.
    migrate: bool = True


class ChildBusy(Exception):
    """The site DB's lock could not be had in time: run the op again later."""


#: Sites as text, by identity: they never change, and a worker sends one with every job.
_packed: dict[int, tuple[Site, str]] = {}


def pack_site(site: Site) -> str:
    """A site as text: what a child needs to know of it."""
    known = _packed.get(id(site))
    if known is None or known[0] is not site:
        plain = asdict(replace(site, schedules=()))
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}
        known = _packed[id(site)] = (site, json.dumps(plain, separators=(",", ":")))
    return known[1]


@lru_cache(maxsize=64)
def unpack_site(text: str) -> Site:
    """The inverse of :func:`pack_site`."""
    values = json.loads(text)
    for name in _PATHS:
        values[name] = None if values[name] is None else Path(values[name])
    values["queue_policies"] = {key: QueuePolicy(**policy) for key, policy in values["queue_policies"].items()}
    values["default_policy"] = None if values["default_policy"] is None else QueuePolicy(**values["default_policy"])
    values["js"] = JsSettings(**values["js"])
    values["http"] = HttpSettings(**values["http"])
    values["hook_dirs"] = tuple(values["hook_dirs"])
    values["schedules"] = ()
    return Site(**values)


_PATHS = (
    "root",
    "manifest",
    "scripts_root",
    "verbs_root",
    "sql_migrations_root",
    "js_migrations_root",
    "help_root",
    "jobs_root",
)


def spec_to_dict(spec: SessionSpec) -> dict[str, Any]:
    """A session's key as plain values."""
    return {name: getattr(spec, name) for name in SessionSpec.__slots__}


def error_to_dict(error: OpError) -> dict[str, Any]:
    """An error as plain values."""
    return {"code": error.code, "message": error.message, "retryable": error.retryable, "details": error.details}


def error_from_dict(plain: Mapping[str, Any]) -> OpError:
    """The inverse of :func:`error_to_dict`."""
    return OpError(plain["code"], plain["message"], plain["retryable"], details=plain["details"])


def stands_alone(result: Result) -> bool:
    """Whether the engine DB needs to know nothing of a result before the site DB commits: no bodies, no ids to take.

    Those are what :attr:`engine.runners.base.RunContext.prepare` is for.
    """
    return not result.artifacts and not any(op.explicit_id for op in result.emitted)


def outcome_data(returned: str) -> tuple[str, OpError | None]:
    """What a script's return value means: its data, or the error its envelope carries.

    An object with a ``data`` or ``error`` key is an envelope; everything else is the data itself.
    """
    value = json.loads(returned)
    if not isinstance(value, dict) or not ({"data", "error"} & value.keys()):
        return returned, None
    error = value.get("error")
    data = json.dumps(value.get("data"), ensure_ascii=False, separators=(",", ":"))
    if error is None:
        return data, None
    if not isinstance(error, dict):
        return "null", OpError("runner_error", f"the returned error must be an object, not {json.dumps(error)}")
    retryable = error.get("retryable")
    return "null", OpError(
        str(error.get("code") or ""),
        str(error.get("message") or ""),
        retryable is True or retryable in ("true", "1"),
        details=error.get("details"),
    )
