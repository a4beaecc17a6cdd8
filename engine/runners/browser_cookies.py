"""A workflow's cookies in a browser: the jar that its ``http/fetch`` ops use, told to Chromium and read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from engine.model import JsonText

#: What decides whether a cookie is another one now.
_TELLING = ("value", "secure", "expires")
#: How :mod:`http.cookiejar` writes a host without a dot.
_LOCAL = ".local"


class BrowserCookies:
    """One op's copy of its workflow's jar."""

    def __init__(self, stored: JsonText | None) -> None:
        self._before: dict[str, dict[str, Any]] = json.loads(stored) if stored else {}

    def told(self) -> list[dict[str, Any]]:
        """The cookies as Playwright takes them."""
        return [_told(fields) for fields in self._before.values()]

    def changes(self, found: Iterable[Mapping[str, Any]]) -> JsonText | None:
        """What differs by now: cookies by their key, null for one that is gone; None where nothing does."""
        after = {f"{fields['domain']};{fields['path']};{fields['name']}": fields for fields in map(_stored, found)}
        changed: dict[str, Any] = {
            key: fields for key, fields in after.items() if _differs(self._before.get(key), fields)
        }
        changed.update(dict.fromkeys(self._before.keys() - after.keys()))
        return json.dumps(changed, ensure_ascii=False, sort_keys=True) if changed else None


def _differs(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    return before is None or any(before.get(name) != after[name] for name in _TELLING)


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    domain = str(fields["domain"])
    if domain.endswith(_LOCAL) and "." not in domain.removesuffix(_LOCAL):
        domain = domain.removesuffix(_LOCAL)
    return {
        "name": fields["name"],
        "value": fields["value"] or "",
        "domain": domain,
        "path": fields["path"],
        "secure": bool(fields["secure"]),
        "expires": -1 if fields["expires"] is None else fields["expires"],
    }


def _stored(cookie: Mapping[str, Any]) -> dict[str, Any]:
    domain, expires = str(cookie["domain"]), round(cookie["expires"])
    shared = domain.startswith(".")
    return {
        "version": 0,
        "name": cookie["name"],
        "value": cookie["value"],
        "port": None,
        "port_specified": False,
        "domain": domain if "." in domain else f"{domain}{_LOCAL}",
        "domain_specified": shared,
        "domain_initial_dot": shared,
        "path": cookie["path"],
        "path_specified": True,
        "secure": cookie["secure"],
        "expires": None if expires < 0 else expires,
        "discard": expires < 0,
        "comment": None,
        "comment_url": None,
    }
