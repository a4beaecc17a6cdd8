"""What a cycle's stages took and how they ended: ``ctx.telemetry``, complete when the lifecycle hooks see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

#: In pipeline order; the hooks among them.
STAGES = (
    "before_fetch",
    "override_fetch",
    "fetch",
    "after_fetch",
    "override_extract",
    "extract",
    "after_extract",
    "filter",
    "before_store",
    "store",
    "before_notify",
    "notify",
    "before_webhook",
    "webhook",
)
INTERNAL = frozenset({"fetch", "extract", "filter", "store", "notify", "webhook"})

Status = Literal["success", "error", "inactive"]


def _blank(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "status": "inactive",
        "type": "internal" if name in INTERNAL else "hook",
        "duration_ms": 0.0,
        "heap_bytes": 0,
        "lua_mem_bytes": 0,
        "mem_delta_bytes": 0,
        "browsers": 0,
    }


@dataclass(slots=True)
class Telemetry:
    """The stage records of one cycle."""

    job_name: str
    start_time: float
    total_duration_ms: float = 0.0
    stages: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: _blank(name) for name in STAGES})

    @classmethod
    def load(cls, plain: dict[str, Any]) -> Telemetry:
        """The inverse of :meth:`dump`."""
        stages = {stage["name"]: dict(stage) for stage in plain["stages"]}
        return cls(plain["job_name"], plain["start_time"], plain["total_duration_ms"], stages)

    def record(self, name: str, status: Status, duration_ms: float = 0.0, error: str = "", heap_bytes: int = 0) -> None:
        """Note how a stage went. A stage that runs more than once adds up, and one error makes it an error."""
        stage = self.stages[name]
        delta = heap_bytes - stage["heap_bytes"] if heap_bytes else 0
        stage["duration_ms"] += duration_ms
        if stage["status"] != "error":
            stage["status"] = status
        if error and "error" not in stage:
            stage["error"] = error
        if heap_bytes:
            stage.update(heap_bytes=heap_bytes, lua_mem_bytes=heap_bytes, mem_delta_bytes=delta)

    def replace(self, name: str, status: Status, duration_ms: float = 0.0, error: str = "") -> None:
        """Note how a stage went, whatever was noted before: a delivery that is tried again."""
        self.stages[name] = _blank(name)
        self.record(name, status, duration_ms, error)

    def dump(self) -> dict[str, Any]:
        """As the database keeps it; ``ctx.telemetry`` has ``map`` besides."""
        return {
            "job_name": self.job_name,
            "start_time": self.start_time,
            "total_duration_ms": self.total_duration_ms,
            "stages": list(self.stages.values()),
        }

    def shown(self) -> dict[str, Any]:
        """As hooks see it: ``map.<name>`` is the record of that name in ``stages``."""
        stages = list(self.stages.values())
        return {**self.dump(), "stages": stages, "map": {stage["name"]: stage for stage in stages}}
