"""What a hook's end means: its exit code decides whether it runs again, its last record decides what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.hooks.records import status_of, text_in

#: Exit code by which a hook says that it has nothing to do here.
SKIPPED = 10
#: Exit codes of a shell that could not start a program.
NOT_STARTED = frozenset({126, 127})


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a hook's process ended."""

    #: None where it was killed by a signal or is gone without a trace.
    code: int | None = None
    signal: int | None = None
    #: Seconds after which it was told to end for taking too long; None = it was not.
    timed_out: float | None = None
    #: It was ended because everything it served was over.
    dismissed: bool = False
    #: It could not be started.
    unlaunched: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is recorded. ``again``: a hard failure, to be tried again as long as attempts are left."""

    status: str
    again: bool = False
    error: str = ""


def judge(end: End, last: Mapping[str, Any] | None, *, produced: bool) -> Verdict:
    """The verdict on a run; ``last`` is its last ArchiveResult, ``produced`` says that there are files or records."""
    claimed = None if last is None else status_of(last)
    said = "" if last is None else text_in(last, "output_str")
    if end.unlaunched:
        return Verdict(status="failed", again=True, error=end.unlaunched)
    if claimed in ("noresults", "skipped"):
        return Verdict(status=claimed)
    if end.code == 0:
        if claimed == "failed":
            return Verdict(status="failed", error=said or "the hook says that it failed")
        if claimed is not None:
            return Verdict(status=claimed)
        if end.timed_out is None:
            return Verdict(status="succeeded" if produced or end.dismissed else "noresults")
    if end.dismissed:
        return Verdict(status=claimed or "succeeded", error=said if claimed == "failed" else "")
    if end.code == SKIPPED and claimed is None:
        return Verdict(status="skipped")
    return Verdict(status="failed", again=True, error=_reason(end, said))


def _reason(end: End, said: str) -> str:
    if end.timed_out is not None:
        why = f"timed out after {end.timed_out:g}s"
    elif end.signal is not None:
        why = f"ended by signal {end.signal}"
    elif end.code in NOT_STARTED:
        why = f"could not be started (exit code {end.code})"
    elif end.code is None:
        why = "ended without a trace"
    else:
        why = f"exit code {end.code}"
    return f"{why}: {said}" if said else why
