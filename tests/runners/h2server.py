"""A small HTTP/2 server over TLS, on loopback."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded


@dataclass
class H2Server:
    """Where it is and what it was asked: (method, path, body)."""

    url: str
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    connections: int = 0


@contextlib.contextmanager
def serve_h2(tls: Path) -> Iterator[H2Server]:
    """Serve HTTP/2 with ``cert.pem`` and ``key.pem`` of that folder; every answer is ``x``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = H2Server(f"https://127.0.0.1:{listener.getsockname()[1]}")
        open_ones: list[socket.socket] = []
        threads: list[threading.Thread] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    open_ones.append(plain)
                    thread = threading.Thread(target=_talk, args=(server, context, plain))
                    threads.append(thread)
                    thread.start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for plain in open_ones:
                with contextlib.suppress(OSError):
                    plain.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _talk(server: H2Server, context: ssl.SSLContext, plain: socket.socket) -> None:
    with plain, contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as secure:
        server.connections += 1
        protocol = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        protocol.initiate_connection()
        secure.sendall(protocol.data_to_send())
        asked: dict[int, tuple[str, str]] = {}
        bodies: dict[int, bytes] = {}
        while data := secure.recv(65536):
            for event in protocol.receive_data(data):
                if isinstance(event, RequestReceived):
                    headers = {str(name): str(value) for name, value in event.headers or ()}
                    asked[event.stream_id] = (headers[":method"], headers[":path"])
                    bodies[event.stream_id] = b""
                elif isinstance(event, DataReceived):
                    bodies[event.stream_id] += event.data or b""
                elif isinstance(event, StreamEnded):
                    server.requests.append((*asked[event.stream_id], bodies[event.stream_id]))
                    protocol.send_headers(event.stream_id, [(":status", "200"), ("x-protocol", "h2")])
                    protocol.send_data(event.stream_id, b"x", end_stream=True)
            secure.sendall(protocol.data_to_send())
