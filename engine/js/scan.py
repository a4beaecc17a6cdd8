"""What a site's verb files declare, read by evaluating them with recording stubs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.clock import Clock
from engine.errors import OpError
from engine.js.host import Host
from engine.js.isolate import Limits, execute
from engine.js.jobs import error_to_dict
from engine.js.modules import ModuleRoots
from engine.plugins.site import Site

_LIMITS = Limits(seconds=5.0, heap_bytes=64 << 20)


def scan_verbs(site: Site, clock: Clock) -> list[dict[str, Any]]:
    """Per file: its path below the verbs root, and ``said`` (declarations in order) or ``error``."""
    root = site.verbs_root
    if root is None or not root.is_dir():
        return []
    return [_scan(site, root, path, clock) for path in sorted(root.rglob("*.js"))]


def _scan(site: Site, root: Path, path: Path, clock: Clock) -> dict[str, Any]:
    relative = path.relative_to(root).as_posix()
    shown = str(root.relative_to(site.root)) if root.is_relative_to(site.root) else root.name
    host = Host(ModuleRoots([("", site.root), (shown, root)]), clock)
    entry = path.relative_to(site.root).as_posix() if path.is_relative_to(site.root) else relative
    try:
        said = json.loads(execute(host, {"mode": "scan", "entry": entry}, _LIMITS))
    except OpError as error:
        return {"file": relative, "said": [], "error": error_to_dict(error)}
    return {"file": relative, "said": said, "error": None}
