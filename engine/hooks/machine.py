"""What a ``Machine`` record sets: configuration that holds for every hook of the machine from then on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from engine.hooks.inputs import INHERITED, MARK

_KEY = re.compile(r"^[A-Z][A-Z0-9_]{0,99}$")
_PREFIX = "config/"
#: Longest value, as JSON: it goes into the environment of every hook.
_LONGEST = 16_384


def machine_config(data: Mapping[str, Any]) -> dict[str, Any]:
    """The keys a record sets, ``config/KEY`` with its ``value`` or a whole ``config``; null takes a key away.

    Keys that hooks inherit from the worker are not a hook's to set, nor is anything that is no name of a variable.

    >>> machine_config({"type": "Machine", "_method": "update", "key": "config/CHROME_BINARY", "value": "/bin/chrome"})
    {'CHROME_BINARY': '/bin/chrome'}
    """
    given: dict[str, Any] = {}
    whole, key = data.get("config"), data.get("key")
    if isinstance(whole, dict):
        given.update(whole)
    if isinstance(key, str) and key.startswith(_PREFIX) and "value" in data:
        given[key.removeprefix(_PREFIX)] = data["value"]
    return {name: value for name, value in given.items() if _may_be_set(name, value)}


def _may_be_set(name: str, value: Any) -> bool:
    return (
        _KEY.match(name) is not None
        and name not in INHERITED
        and name != MARK
        and not name.startswith("LD_")
        and len(json.dumps(value)) <= _LONGEST
    )
