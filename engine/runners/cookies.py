"""A workflow's cookies, as they travel between the engine DB and its requests."""

from __future__ import annotations

import json
from http.cookiejar import Cookie
from typing import Any

import httpx

from engine.model import JsonText

_FIELDS = (
    "version",
    "name",
    "value",
    "port",
    "port_specified",
    "domain",
    "domain_specified",
    "domain_initial_dot",
    "path",
    "path_specified",
    "secure",
    "expires",
    "discard",
    "comment",
    "comment_url",
)


class CookieJar:
    """One op's copy of its workflow's jar."""

    def __init__(self, stored: JsonText | None) -> None:
        self._cookies = httpx.Cookies()
        for fields in (json.loads(stored) if stored else {}).values():
            self._cookies.jar.set_cookie(Cookie(**fields, rest={}))
        self._before = self._plain()

    def add_to(self, request: httpx.Request) -> None:
        """Give ``request`` the cookies meant for its URL, beside those its op names itself."""
        own = request.headers.pop("Cookie", "")
        request.headers.encoding = "utf-8"
        self._cookies.set_cookie_header(request)
        if own:
            named = {item.partition("=")[0].strip() for item in own.split(";")}
            kept = [
                item for item in request.headers.get("Cookie", "").split("; ") if item.partition("=")[0] not in named
            ]
            request.headers["Cookie"] = "; ".join([own, *filter(None, kept)])

    def take_from(self, response: httpx.Response) -> None:
        """Keep, replace or drop what ``response`` says."""
        self._cookies.extract_cookies(response)

    def changes(self) -> JsonText | None:
        """What the op changed: cookies by their key, null for one that is gone; None where nothing changed."""
        after = self._plain()
        changed: dict[str, Any] = {key: cookie for key, cookie in after.items() if self._before.get(key) != cookie}
        changed.update(dict.fromkeys(self._before.keys() - after.keys()))
        return json.dumps(changed, ensure_ascii=False, sort_keys=True) if changed else None

    def _plain(self) -> dict[str, dict[str, Any]]:
        return {
            f"{cookie.domain};{cookie.path};{cookie.name}": {name: getattr(cookie, name) for name in _FIELDS}
            for cookie in self._cookies.jar
        }
