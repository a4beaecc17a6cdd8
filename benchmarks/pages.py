"""The pages that every crawler fetches, from one server process: ``python benchmarks/pages.py`` prints its address.

Pages are made up front and served from memory, so that the server is never what is measured.
"""

from __future__ import annotations

import asyncio
import sys

#: Items of a page, and its size in bytes.
ITEMS = 30
SIZE = 50_000


def page(number: int) -> bytes:
    """One page: its items, and text around them up to :data:`SIZE`."""
    items = "".join(
        f'<article class="item" data-id="{number}-{item}"><h3><a href="/item/{number}/{item}">Item {item} of page '
        f'{number}</a></h3><p class="price">£{item}.{number % 100:02d}</p></article>\n'
        for item in range(ITEMS)
    )
    start = f"<!doctype html><html><head><title>Page {number}</title></head><body><main>\n{items}</main><footer>\n"
    end = "</footer></body></html>\n"
    line = '<p class="text"><span>Lorem ipsum dolor sit amet, <b>consectetur</b> adipisici elit.</span></p>\n'
    filler = line * ((SIZE - len(start) - len(end)) // len(line))
    return (start + filler + end).encode()


class Pages(asyncio.Protocol):
    """Answers ``GET /page/N``, connection kept alive."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            number = head.split(b" ", 2)[1].rpartition(b"/")[2]
            self._transport.write(self._answers[int(number)] if number.isdigit() else _MISSING)


_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def _answer(number: int) -> bytes:
    body = page(number)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _serve(count: int) -> None:
    answers = [_answer(number) for number in range(count)]
    server = await asyncio.get_running_loop().create_server(lambda: Pages(answers), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
