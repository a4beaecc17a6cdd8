"""What ``ctx.emit`` and ``ctx.writeArtifact`` are given, as the engine's own values."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from engine.clock import MILLISECOND, SECOND, Micros
from engine.durations import LONGEST, parse_duration
from engine.js.hostcall import HostError
from engine.model import NO_RETRY, NULL, Artifact, BackoffKind, Dependency, EdgeKind, NewOp, RetryPolicy

_TRUE = frozenset({"true", "1", "t", "T", "TRUE", "True"})
_EDGES = {kind.value: kind for kind in EdgeKind}


def text_of(value: Any) -> str:
    """A metadata value as the string it is stored as."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")  # PostgreSQL's texts cannot hold it
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def strings(value: Any, what: str) -> dict[str, str]:
    """A map of strings. Raises HostError for anything but an object."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise HostError(f"{what} must be an object")
    return {str(key): text_of(item) for key, item in value.items()}


def new_op(
    spec: Mapping[str, Any], *, default_id: str, site: str, parent_id: str | None, workflow_id: str, now: Micros
) -> NewOp:
    """The op an author asks for. Raises HostError naming what is wrong."""
    kind = text_of(spec.get("kind")).strip()
    if not kind:
        raise HostError("emitted op kind is required", name="TypeError")
    given = text_of(spec.get("id"))
    target = text_of(spec.get("workflowID"))
    return NewOp(
        id=given or default_id,
        explicit_id=bool(given),
        kind=kind,
        site=text_of(spec.get("site")) or site,
        workflow_id="" if target == workflow_id else target,
        queue=text_of(spec.get("queue")),
        dedup_key=text_of(spec.get("dedupKey")),
        parent_id=text_of(spec.get("parentID")) or parent_id,
        input=NULL
        if spec.get("input") is None
        else json.dumps(spec["input"], ensure_ascii=False, separators=(",", ":")),
        metadata=strings(spec.get("metadata"), "metadata"),
        retry=_retry(spec.get("retry")),
        depends_on=_dependencies(spec.get("dependsOn")),
        not_before=_not_before(spec, now),
    )


def _dependencies(value: Any) -> tuple[Dependency, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise HostError("dependsOn must be an array", name="TypeError")
    found: dict[str, Dependency] = {}
    for entry in value:
        if not isinstance(entry, dict):
            raise HostError("dependsOn: every entry must be an object {opID, required}", name="TypeError")
        op_id = text_of(entry.get("opID")).strip()
        if not op_id:
            raise HostError("dependsOn: opID is blank", name="TypeError")
        dependency = Dependency(op_id, _edge(entry))
        known = found.get(op_id)
        if known is None or known.kind is not EdgeKind.SUCCESS:
            found[op_id] = dependency
    return tuple(found.values())


def _edge(entry: Mapping[str, Any]) -> EdgeKind:
    if "on" in entry:
        kind = _EDGES.get(text_of(entry["on"]))
        if kind is None:
            raise HostError(f'dependsOn: "on" must be one of {", ".join(_EDGES)}', name="TypeError")
        return kind
    required = entry.get("required", True)
    if isinstance(required, str):
        required = required in _TRUE
    return EdgeKind.TERMINAL if required is False else EdgeKind.SUCCESS


def _retry(value: Any) -> RetryPolicy:
    if value is None:
        return NO_RETRY
    if not isinstance(value, dict):
        raise HostError("retry must be an object", name="TypeError")
    kind = text_of(value.get("backoffKind")) or "fixed"
    return RetryPolicy(
        max_attempts=int(_number(value.get("maxAttempts", 0), "retry.maxAttempts")),
        backoff=BackoffKind(kind) if kind in set(BackoffKind) else BackoffKind.FIXED,
        initial=_duration(value.get("initialBackoff"), "retry.initialBackoff") or SECOND,
        maximum=_duration(value.get("maxBackoff"), "retry.maxBackoff"),
        multiplier=_number(value.get("multiplier", 0), "retry.multiplier") or 2.0,
        jitter=min(1.0, max(0.0, _number(value.get("jitter", 0), "retry.jitter"))),
    )


def _number(value: Any, what: str) -> float:
    try:
        number = float(0 if value is None else value)
        if math.isfinite(number):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise HostError(f"{what} must be a number, not {text_of(value)}", name="TypeError")


def _duration(value: Any, what: str) -> Micros:
    if value is None:
        return 0
    try:
        return parse_duration(value)
    except ValueError as error:
        raise HostError(f"{what}: {error}", name="TypeError") from None


def _not_before(spec: Mapping[str, Any], now: Micros) -> Micros:
    if spec.get("delay") is not None:
        return now + _duration(spec["delay"], "delay")
    moment = spec.get("notBefore")
    if moment is None:
        return 0
    if isinstance(moment, int | float):
        if abs(moment) * MILLISECOND > LONGEST:
            raise HostError(f"notBefore: {moment} is out of range", name="TypeError")
        return int(moment * MILLISECOND)
    try:
        parsed = datetime.fromisoformat(str(moment))
    except ValueError:
        raise HostError(f'notBefore: "{moment}" is not an RFC3339 time', name="TypeError") from None
    if parsed.tzinfo is None:
        # the zone of whatever machine the script runs on would decide
        raise HostError(f'notBefore: "{moment}" has no zone: end it with Z, or with an offset', name="TypeError")
    return int(parsed.timestamp() * SECOND)


def new_artifact(spec: Any, payload: Mapping[str, str], default_id: str) -> Artifact:
    """The artifact an author writes."""
    if not isinstance(spec, dict):
        raise HostError("writeArtifact expects an object", name="TypeError")
    body = payload["$bytes"].encode("latin-1") if "$bytes" in payload else payload["$text"].encode("utf-8", "replace")
    return Artifact(
        id=text_of(spec.get("id")) or default_id,
        name=text_of(spec.get("name")),
        kind=text_of(spec.get("kind")),
        content_type=text_of(spec.get("contentType")),
        metadata=strings(spec.get("metadata"), "artifact metadata"),
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
        body=body,
    )
