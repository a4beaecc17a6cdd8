"""The parent's side of one authoring child: a blocking conversation, and a firm end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from engine.errors import ScraperError
from engine.js.wire import ChildChannel

#: Answers what a running job asks: the name of the question and its argument.
Answers = Callable[[str, Any], Any]

_MODULE = "engine.authoring.child"


class ChildEnded(ScraperError):
    """The child is gone: out of memory, or a crash of V8."""


class Refused(Exception):
    """Why a question of the child is not answered: thrown into its JavaScript."""


class Bench:
    """One child process that runs V8; started when first needed, and again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: ChildChannel | None = None

    def ask(self, job: dict[str, Any], answers: Answers | None = None) -> dict[str, Any]:
        """The child's answer to ``job``; whatever it asks meanwhile goes to ``answers``. Raises ChildEnded."""
        channel = self._open()
        try:
            channel.send(job)
            while True:
                said = channel.receive().header
                if said.pop("say") != "ask":
                    return said
                channel.send(_answered(answers, said))
        except (EOFError, OSError) as error:
            raise ChildEnded(self._ending()) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> ChildChannel:
        if self._channel is None:
            mine, theirs = socket.socketpair()
            with mine, theirs:
                descriptor = theirs.fileno()
                self._process = subprocess.Popen(
                    [sys.executable, "-m", _MODULE, str(descriptor), str(os.getpid())],
                    pass_fds=(descriptor,),
                    stdin=subprocess.DEVNULL,
                )
                self._channel = ChildChannel(mine)
        return self._channel

    def _ending(self) -> str:
        process = self._process
        self._channel = self._process = None
        assert process is not None
        status = process.wait()
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"the process that runs JavaScript {how} (out of memory?)"

    def close(self) -> None:
        """End the child."""
        process, self._channel, self._process = self._process, None, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _answered(answers: Answers | None, asked: dict[str, Any]) -> dict[str, Any]:
    if answers is None:
        return {"error": f"nobody answers {asked['name']}"}
    try:
        return {"value": answers(asked["name"], asked["argument"])}
    except Refused as refused:
        return {"error": str(refused)}
