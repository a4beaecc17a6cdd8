"""The catalogue of the demo: invented books, rendered on request, served over real HTTP on loopback."""

from __future__ import annotations

import contextlib
import html
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

from engine.demo_shop import Shop

_SUBJECTS = (
    "Lantern",
    "Harbour",
    "Orchard",
    "Compass",
    "Winter",
    "Cartographer",
    "Échelle",
    "Night Train",
    "Salt & Iron",
)
_MANNERS = ("The Last", "A Short History of the", "Notes from the", "Beyond the", "Under the", "The Clockmaker's")
_CATEGORIES = ("Fiction", "Travel", "History", "Science", "Poetry", "Children's", "Crime")

_ROUTE = re.compile(r"/catalogue/(?:page-(?P<page>\d+)|book-(?P<book>\d+))\.html")


@dataclass(frozen=True, slots=True)
class Book:
    """One invented book."""

    number: int
    title: str
    category: str
    price: float
    stock: int
    rating: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A catalogue of ``pages`` list pages with ``per_page`` books each; the same every time."""

    pages: int = 50
    per_page: int = 20

    def book(self, number: int) -> Book:
        """The book of that number, from 1."""
        draw = Random(number)
        title = f"{draw.choice(_MANNERS)} {draw.choice(_SUBJECTS)} No. {number}"
        return Book(
            number,
            title,
            draw.choice(_CATEGORIES),
            draw.randrange(500, 6000) / 100,
            draw.randrange(40),
            draw.randrange(1, 6),
        )

    def render(self, path: str) -> bytes | None:
        """The page at ``path``; None where there is none."""
        route = _ROUTE.fullmatch(path)
        if route is None:
            return None
        if route["page"]:
            number = int(route["page"])
            return self._list(number).encode() if 1 <= number <= self.pages else None
        number = int(route["book"])
        return self._item(self.book(number)).encode() if 1 <= number <= self.pages * self.per_page else None

    def _list(self, page: int) -> str:
        first = (page - 1) * self.per_page + 1
        entries = "\n".join(
            f'<article class="book"><h3><a href="book-{number}.html" data-id="{number}">'
            f"{html.escape(self.book(number).title)}</a></h3></article>"
            for number in range(first, first + self.per_page)
        )
        following = f'<li class="next"><a href="page-{page + 1}.html">next</a></li>' if page < self.pages else ""
        return _PAGE.format(
            title=f"Books, page {page}", body=f'{entries}\n<ul class="pager"><li>Page {page}</li>{following}</ul>'
        )

    def _item(self, book: Book) -> str:
        body = f"""<ul class="breadcrumb"><li><a href="page-1.html">Books</a></li>
<li class="category">{html.escape(book.category)}</li></ul>
<article class="product"><h1>{html.escape(book.title)}</h1>
<ul class="breadcrumb"><li class="category">{html.escape(book.category)}</li></ul>
<p class="price">£{book.price:.2f}</p><p class="stock" data-count="{book.stock}">In stock</p>
<p class="rating" data-stars="{book.rating}"></p></article>"""
        return _PAGE.format(title=html.escape(book.title), body=body)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body>
{body}
</body></html>
"""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextlib.contextmanager
def serve_books(catalogue: Catalogue | None = None, port: int = 0) -> Iterator[str]:
    """Serve the catalogue on a loopback port, 0 = a free one; the base URL. Raises OSError."""
    shown = catalogue or Catalogue()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            page = shown.render(self.path) or Shop().render(self.path)
            body = page if page is not None else b"<h1>not found</h1>"
            self.send_response(200 if page is not None else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """The crawl's own log is enough."""

    with _Server(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="books", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
