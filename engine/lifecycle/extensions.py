"""Further host functions for hooks, brought by other packages (a browser, say)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.lifecycle.later import Resources

#: Gets the resources of the running hook and the script's argument; gives JSON values. Raises HostError.
HostFunction = Callable[[Resources, Any], Any]


@dataclass(frozen=True, slots=True)
class Extension:
    """Host functions and the JavaScript that offers them.

    ``javascript`` is evaluated before any script, inside the engine's own closure, and must only declare functions and
    push one to run at the installation: ``$extensions.push(() => $offer("cdp", {...}))``. In them
    ``$later(name, value)`` is a Promise of a function of ``later``, which runs on a thread of its own;
    ``$directly(name, value)`` waits for a function of ``directly``, also in a deferred function.
    """

    javascript: str
    later: Mapping[str, HostFunction] = field(default_factory=dict)
    directly: Mapping[str, HostFunction] = field(default_factory=dict)
