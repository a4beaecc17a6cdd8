"""The process that holds one browser: ``python -m engine.browser.host DESCRIPTOR SCRATCH``.

It outlives its owner by the moment it takes to end the browser: when the owner's end of the channel closes, however
that came about, it kills what it started and everything that started, and goes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from engine.browser.failures import told_failure
from engine.browser.scratch import end_browser
from engine.browser.session import Answer, Session
from engine.js.wire import Frame, ParentChannel


async def serve(end: socket.socket) -> None:
    """Answer the owner's questions until its end closes; those about different pages side by side."""
    channel = ParentChannel(*await asyncio.open_connection(sock=end))
    session = Session(channel)
    running: set[asyncio.Task[None]] = set()
    while True:
        try:
            frame = await channel.receive()
        except EOFError:
            return
        task = asyncio.create_task(_answer(session, channel, frame))
        running.add(task)
        task.add_done_callback(running.discard)


async def _answer(session: Session, channel: ParentChannel, frame: Frame) -> None:
    number = frame.header["id"]
    try:
        answer = await session.do(frame.header["do"], frame.header["with"])
    except Exception as error:
        await channel.send({"id": number, "failed": told_failure(error)})
        return
    if not isinstance(answer, Answer):
        answer = Answer(answer)
    await channel.send({"id": number, "ok": answer.value}, answer.attachments)


def main() -> None:
    """Hold a browser until nobody wants it any more."""
    descriptor, scratch = int(sys.argv[1]), Path(sys.argv[2])
    # Ctrl-C reaches the whole terminal; it is the owner that decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(_until_closed(descriptor, scratch))
    finally:
        end_browser(scratch)
        os._exit(0)


async def _until_closed(descriptor: int, scratch: Path) -> None:
    with socket.socket(fileno=descriptor) as end:
        try:
            await serve(end)
        finally:
            # before asyncio waits for what the browser would still do
            end_browser(scratch)
            os._exit(0)


if __name__ == "__main__":
    main()
