"""Real HTTP servers on loopback, well-behaved and not.

>>> with serve({"/": page("hello")}) as server:
...     httpx.get(server.url)
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

#: Nothing here waits longer than this for the other side.
PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived."""

    method: str
    #: Path and query.
    target: str
    #: Names in lower case; of a repeated one the last.
    headers: Mapping[str, str]
    body: bytes
    #: Counts the connections of the server, from 1: equal numbers travelled over the same one.
    connection: int

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The query's fields."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form-encoded body."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and the connection to answer it on as well or as badly as wanted."""

    request: Received
    socket: socket.socket

    def reply(
        self,
        body: bytes = b"",
        status: int = 200,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        reason: str = "OK",
    ) -> None:
        """A complete answer."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in pairs)]
        if "content-length" not in {name.lower() for name, _ in pairs}:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        self.send(head if self.request.method == "HEAD" else head + body)

    def send(self, data: bytes) -> None:
        """Bytes as they are. Raises OSError when the client is gone."""
        self.socket.sendall(data)

    def wait_for_client_to_leave(self) -> None:
        """Until the client hangs up, or the server stops."""
        with contextlib.suppress(OSError):
            while self.socket.recv(65536):
                pass


Route: TypeAlias = Callable[[Call], None]


@dataclass
class Server:
    """A running server: where it is and what it was asked."""

    url: str
    requests: list[Received] = field(default_factory=list)
    #: Clients that hung up while their request was being answered.
    left: int = 0
    #: The most requests that were being answered at once.
    peak: int = 0
    _busy: int = 0
    _news: threading.Condition = field(default_factory=threading.Condition)

    def paths(self) -> list[str]:
        """The paths asked for, in order."""
        return [request.path for request in self.requests]

    def wait(self, until: Callable[[Server], bool]) -> None:
        """Block until ``until(self)`` holds; it is looked at after each event."""
        with self._news:
            assert self._news.wait_for(lambda: until(self), PATIENCE), (
                f"the server saw {self.paths()}, {self.left} left"
            )

    def _note(self, change: Callable[[], None]) -> None:
        with self._news:
            change()
            self.peak = max(self.peak, self._busy)
            self._news.notify_all()

    def _answer(self, route: Route, call: Call) -> None:
        def begin() -> None:
            self.requests.append(call.request)
            self._busy += 1

        def end() -> None:
            self._busy -= 1

        def leave() -> None:
            self.left += 1

        self._note(begin)
        try:
            route(call)
        except OSError:
            self._note(leave)
            raise
        finally:
            self._note(end)


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), BaseHTTPRequestHandler)
        self.connections: list[socket.socket] = []
        self._tls = tls

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._tls is not None:
            request = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what these servers are for."""


@contextlib.contextmanager
def serve(routes: Route | Mapping[str, Route], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Serve ``routes`` (by path; ``*`` for every other one) on a free loopback port, one thread a connection."""
    table = routes if isinstance(routes, Mapping) else {"*": routes}
    with _Listener(tls) as listener:
        server = Server(f"{'https' if tls else 'http'}://127.0.0.1:{listener.server_address[1]}")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            timeout = PATIENCE

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self._take
                raise AttributeError(name)

            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                received = Received(
                    method=self.command,
                    target=self.path,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=body,
                    connection=listener.connections.index(self.connection) + 1,
                )
                route = table.get(received.path) or table.get("*") or status(404)
                try:
                    server._answer(route, Call(received, self.connection))
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """What was asked is in ``Server.requests``."""

        listener.RequestHandlerClass = Handler
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, name="test server")
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
            for connection in listener.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


# ---- good answers


def page(body: str | bytes, status: int = 200, **headers: str) -> Route:
    """A page; ``content_type="text/plain"`` and the like set headers."""
    raw = body.encode() if isinstance(body, str) else body
    named = {
        name.replace("_", "-"): value for name, value in {"content_type": "text/html; charset=utf-8", **headers}.items()
    }
    return lambda call: call.reply(raw, status, named)


def status(code: int, body: bytes = b"", reason: str = "", **headers: str) -> Route:
    """An answer of that status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda call: call.reply(body, code, named, reason)


def redirect(to: str, code: int = 302, body: bytes = b"") -> Route:
    """A redirect to a path or URL."""
    return lambda call: call.reply(body, code, {"Location": to}, "Found")


def in_turn(*routes: Route) -> Route:
    """Another answer to each request; the last one from there on."""
    left = list(routes)
    lock = threading.Lock()

    def answer(call: Call) -> None:
        with lock:
            route = left.pop(0) if len(left) > 1 else left[0]
        route(call)

    return answer


# ---- bad answers


@contextlib.contextmanager
def refused() -> Iterator[str]:
    """The URL of a port where nobody listens, and nobody else will."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def redirect_loop(call: Call) -> None:
    """Each answer sends back here, with another query."""
    turn = int(call.request.query.get("turn", "0")) + 1
    call.reply(b"round", 302, {"Location": f"{call.request.path}?turn={turn}"}, "Found")


def hangs_up(call: Call) -> None:
    """Closes the connection without a word."""
    call.socket.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def resets(call: Call) -> None:
    """Closes the connection with a reset in the middle of the body."""
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
    call.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raise ConnectionResetError


def half_closed(call: Call) -> None:
    """Announces 100 bytes, sends 10, ends its side of the connection and goes on listening."""
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
    call.socket.shutdown(socket.SHUT_WR)
    call.wait_for_client_to_leave()
    raise ConnectionResetError


def never_answers(call: Call) -> None:
    """Takes the request and says nothing."""
    call.wait_for_client_to_leave()
    raise ConnectionResetError


def stalls(call: Call) -> None:
    """Begins a body and never goes on."""
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
    call.wait_for_client_to_leave()
    raise ConnectionResetError


def raw(answer: bytes) -> Route:
    """Exactly these bytes, then the end of the connection."""

    def send(call: Call) -> None:
        call.send(answer)
        call.socket.shutdown(socket.SHUT_WR)
        raise ConnectionResetError

    return send


def malformed_headers(call: Call) -> None:
    """A head that is not HTTP."""
    raw(b"HTTP/1.1 200 OK\r\nthis line has no colon\r\n\r\nbody")(call)


def huge(size: int, chunk: int = 1 << 20, announced: bool = False) -> Route:
    """A body of ``size`` bytes made as it is sent, in HTTP chunks or with its length announced."""

    def send(call: Call) -> None:
        framing = f"Content-Length: {size}" if announced else "Transfer-Encoding: chunked"
        call.send(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{framing}\r\n\r\n".encode())
        piece = b"x" * chunk
        for start in range(0, size, chunk):
            part = piece[: size - start]
            call.send(part if announced else b"%x\r\n%b\r\n" % (len(part), part))
        if not announced:
            call.send(b"0\r\n\r\n")

    return send


def gzip_bomb(size: int) -> Route:
    """``size`` zero bytes in a body a thousand times smaller."""
    writer = zlib.compressobj(1, wbits=31)
    step = 1 << 20
    packed = b"".join(writer.compress(bytes(min(step, size - start))) for start in range(0, size, step))
    return page(packed + writer.flush(), content_encoding="gzip")
