"""Recorded pages: what tests fetch instead of the network.

``fixtures/pages.json`` says which file answers which request::

    {
      "GET https://shop.example/items": {
        "file": "items.html",
        "status": 200,
        "headers": {"content-type": "text/html; charset=utf-8"}
      }
    }

The file is the decoded body, beside the manifest; without ``file`` the body is empty. ``status`` is 200 and ``headers``
are none where they are left out; a header with several values has a list. Redirects are entries of their own. A request
with a body may have an entry ``POST https://shop.example/search 1f0c9d21a4b7``, the first twelve digits of its SHA-256,
which goes before the entry without them.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import httpx

from engine.errors import OpError, SiteError
from engine.runners.http_body import read_body
from engine.runners.http_wire import Wire

FOLDER = "fixtures"
MANIFEST = "pages.json"

Headers: TypeAlias = Mapping[str, str | list[str]]

_LARGEST = 64 << 20
#: What the recorded body no longer is, and what concerns one connection only.
_DROPPED = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
_SUFFIXES = {
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/rss+xml": ".xml",
    "application/xhtml+xml": ".html",
    "application/xml": ".xml",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/xml": ".xml",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One recorded answer."""

    status: int = 200
    headers: Headers = field(default_factory=dict)
    #: Relative to the folder; None = an empty body.
    file: str | None = None


class Pages:
    """The recorded pages of a site, and the requests for which there was none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missing: list[str] = []
        self._pages = _load(folder / MANIFEST)

    def find(self, request: httpx.Request, body: bytes) -> httpx.Response | None:
        """The recorded answer to a request. Raises SiteError where its file is gone."""
        page = self._pages.get(_key(request, body)) or self._pages.get(_key(request, b""))
        return None if page is None else _response(request, page, self.read(page.file) if page.file else b"")

    def read(self, name: str) -> bytes:
        """The bytes of a file of the folder. Raises SiteError."""
        path = self.folder / name
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise SiteError(f'"{name}" leads out of {self.folder}')
        try:
            return path.read_bytes()
        except OSError as error:
            raise SiteError(f"{path}: cannot be read: {error.strerror or error}") from error

    def add(self, request: httpx.Request, body: bytes, answer: httpx.Response, content: bytes) -> httpx.Response:
        """Record an answer; the same, as it will be found from now on."""
        headers: dict[str, str | list[str]] = {}
        for name in dict.fromkeys(name.lower() for name in answer.headers):
            values = answer.headers.get_list(name)
            if name not in _DROPPED:
                headers[name] = values[0] if len(values) == 1 else values
        file = self._free_name(request, answer) if content else None
        page = Page(answer.status_code, headers, file)
        self.folder.mkdir(parents=True, exist_ok=True)
        if file is not None:
            (self.folder / file).write_bytes(content)
        self._pages[_key(request, body)] = page
        self._save()
        return _response(request, page, content)

    def _free_name(self, request: httpx.Request, answer: httpx.Response) -> str:
        path = unquote(request.url.raw_path.decode("ascii")).strip("/")
        stem = re.sub(r"\.(html?|json|xml|csv|pdf)$", "", re.sub(r"[^A-Za-z0-9._-]+", "-", path)).strip("-.")[:80]
        media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        suffix = _SUFFIXES.get(media_type, ".txt" if media_type.startswith("text/") else ".bin")
        stem = stem or re.sub(r"[^A-Za-z0-9._-]+", "-", request.url.host)
        taken = {page.file for page in self._pages.values()}
        names = (f"{stem}{f'-{number}' if number > 1 else ''}{suffix}" for number in range(1, len(taken) + 3))
        return next(name for name in names if name not in taken)

    def _save(self) -> None:
        shown = {
            key: {"file": page.file, "status": page.status, "headers": page.headers}
            if page.file
            else {"status": page.status, "headers": page.headers}
            for key, page in sorted(self._pages.items())
        }
        (self.folder / MANIFEST).write_text(json.dumps(shown, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class RecordedWire(Wire):
    """Answers fetches from recorded pages; with ``record`` it fetches what is missing, once, and keeps it."""

    def __init__(self, pages: Pages, *, record: bool) -> None:
        super().__init__()
        self._pages = pages
        self._record = record
        self._one_at_a_time = asyncio.Lock()

    async def ready(self) -> None:
        """Only the network needs certificate authorities."""
        if self._record:
            await super().ready()

    async def send(self, request: httpx.Request, proxy: str | None) -> httpx.Response:
        """The recorded answer. Raises OpError ``page_not_recorded``."""
        body = await request.aread()
        async with self._one_at_a_time:
            try:
                found = self._pages.find(request, body)
            except SiteError as error:
                self._pages.missing.append(f"{request.method} {request.url}")
                raise OpError("page_not_recorded", str(error)) from error
            if found is not None:
                return found
            if not self._record:
                wanted = f"{request.method} {request.url}"
                self._pages.missing.append(wanted)
                raise OpError("page_not_recorded", f"there is no recorded page for {wanted}")
            answer, content = await self._fetch(request, proxy)
            return self._pages.add(request, body, answer, content)

    async def _fetch(self, request: httpx.Request, proxy: str | None) -> tuple[httpx.Response, bytes]:
        answer = await super().send(request, proxy)
        content = io.BytesIO()
        try:
            await read_body(answer, _LARGEST, content)
        finally:
            await answer.aclose()
        return answer, content.getvalue()


def _key(request: httpx.Request, body: bytes) -> str:
    url = str(request.url.copy_with(fragment=None))
    digest = f" {hashlib.sha256(body).hexdigest()[:12]}" if body else ""
    return f"{request.method} {url}{digest}"


def _response(request: httpx.Request, page: Page, content: bytes) -> httpx.Response:
    pairs = [
        (name, value) for name, told in page.headers.items() for value in (told if isinstance(told, list) else [told])
    ]
    return httpx.Response(page.status, headers=pairs, stream=httpx.ByteStream(content), request=request)


def _load(file: Path) -> dict[str, Page]:
    try:
        told = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SiteError(f"{file}: {error}") from error
    if not isinstance(told, dict):
        raise SiteError(f"{file}: must be an object of requests")
    return {_normalized(file, key): _page(file, key, value) for key, value in told.items()}


def _normalized(file: Path, key: str) -> str:
    """The key as requests spell it: method in capitals, URL as the client writes it."""
    match key.split():
        case [method, url, *digest] if len(digest) < 2:
            try:
                return " ".join([method.upper(), str(httpx.URL(url).copy_with(fragment=None)), *digest])
            except httpx.InvalidURL as error:
                raise SiteError(f'{file}: "{key}": {error}') from error
    raise SiteError(f'{file}: "{key}" is not a method and a URL, like "GET https://shop.example/"')


def _page(file: Path, key: str, told: Any) -> Page:
    known = {"file", "status", "headers"}
    if not isinstance(told, dict) or not told.keys() <= known:
        raise SiteError(f'{file}: "{key}" must be an object with nothing but {", ".join(sorted(known))}')
    status, headers, name = told.get("status", 200), told.get("headers", {}), told.get("file")
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        raise SiteError(f'{file}: "{key}": status must be a number from 100 to 599')
    if not isinstance(headers, dict) or not all(_is_value(value) for value in headers.values()):
        raise SiteError(f'{file}: "{key}": headers must be texts, or lists of texts')
    if name is not None and not isinstance(name, str):
        raise SiteError(f'{file}: "{key}": file must be a file name')
    return Page(status, headers, name)


def _is_value(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))
