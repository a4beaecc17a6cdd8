"""A real SOCKS5 proxy on loopback."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Socks:
    """A running proxy: where it is, and where it was asked to connect to."""

    url: str
    targets: list[tuple[str, int]] = field(default_factory=list)


@contextlib.contextmanager
def serve_socks() -> Iterator[Socks]:
    """SOCKS5 without authentication; every connection goes to loopback whatever host it names."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Socks(f"socks5://127.0.0.1:{listener.getsockname()[1]}")
        threads: list[threading.Thread] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threads.append(threading.Thread(target=_connect, args=(client, proxy)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def _connect(client: socket.socket, proxy: Socks) -> None:
    with client, contextlib.suppress(OSError):
        read = client.makefile("rb").read
        _, methods = read(2)
        read(methods)
        client.sendall(b"\5\0")
        *_, kind = read(4)
        host = socket.inet_ntoa(read(4)) if kind == 1 else read(read(1)[0]).decode()
        (port,) = struct.unpack(">H", read(2))
        proxy.targets.append((host, port))
        with socket.create_connection(("127.0.0.1", port)) as server:
            client.sendall(b"\5\0\0\1" + bytes(6))
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    (server if source is client else client).sendall(data)
