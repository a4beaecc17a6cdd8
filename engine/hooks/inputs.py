"""What a hook is told: its flags, and an environment that holds no secret of the worker's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.hooks.config import Resolved, text_of

#: Variables of the worker that every hook sees.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL")
#: Marks every process a hook starts, so that it can be found whatever became of its parents.
MARK = "SCRAPER_HOOK"
_KEY = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def flags(values: Mapping[str, Any]) -> list[str]:
    """Values as ``--key=value``, one word each.

    >>> flags({"url": "http://a/", "skip_js": True, "headers": {"A": 1}, "depth": 0, "empty": "", "_own": 1})
    ['--url=http://a/', '--skip-js', '--headers={"A": 1}', '--depth=0']
    """
    words = []
    for key, value in values.items():
        if key.startswith("_") or value is None or value is False or value == "":
            continue
        name = f"--{key.lower().replace('_', '-')}"
        if value is True:
            words.append(name)
        elif isinstance(value, dict | list):
            words.append(f"{name}={json.dumps(value, ensure_ascii=False)}")
        else:
            text = str(value).strip()
            if text:
                words.append(f"{name}={text}")
    return [word.replace("\0", "") for word in words]


def inherited(environment: Mapping[str, str], allowed: Iterable[str] = ()) -> dict[str, str]:
    """The part of the worker's environment that hooks may see."""
    names = {*INHERITED, *allowed}
    return {name: value for name, value in environment.items() if name in names}


def environment(
    base: Mapping[str, str],
    explicit: Mapping[str, Any],
    resolved: Resolved,
    told: Mapping[str, str],
) -> dict[str, str]:
    """The environment of one hook; what is told by the engine wins over what is configured."""
    merged: dict[str, str] = dict(base)
    for values in (explicit, resolved.values):
        for key, value in values.items():
            if value is not None and _KEY.match(key):
                merged[key] = text_of(value).replace("\0", "")
    merged.update(told)
    merged["PATH"] = _path(merged)
    return merged


def _path(merged: Mapping[str, str]) -> str:
    """``PATH`` with the directories of the configured programs first."""
    path = merged.get("PATH", os.defpath)
    known = path.split(os.pathsep)
    first: list[str] = []
    for key, value in sorted(merged.items()):
        directory = str(Path(value).parent) if key.endswith("_BINARY") and os.path.isabs(value) else ""
        if directory and directory not in first and directory not in known:
            first.append(directory)
    return os.pathsep.join([*first, path])
