"""The owner's side of a browser: starts its host process, asks it for things, and ends it with everything it started.

Owners are the worker (for an op of kind ``browser/fetch``) and the JS child (for hooks). Nothing here is asynchronous:
an answer is a future of :mod:`concurrent.futures`, closing is a plain call.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from engine.browser.failures import told_failure
from engine.browser.scratch import MARK, end_browser, mark, new_scratch
from engine.browser.settings import BrowserSettings, require_browser
from engine.errors import OpError
from engine.js.wire import ChildChannel, Frame

#: Raises the OpError with which an address is refused.
Judge: TypeAlias = Callable[[str], Future[None]]

#: Variables of the owner that a browser sees: no secret is among them.
_INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "PYTHONPATH", "VIRTUAL_ENV"),
    *("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
#: A host that was told to end and is still there after so many seconds is killed.
_PATIENCE = 5.0
_LOG_TAIL = 2_000


class Browser:
    """One Chromium, with a profile of its own that is gone when it is closed."""

    def __init__(self, settings: BrowserSettings, judge: Judge | None = None) -> None:
        """Start the host; Chromium itself starts with the question ``launch``. Raises OpError ``browser_missing``.

        ``judge`` is asked before a page that is fetched goes on to another address.
        """
        self._judge = judge
        self._program, self._sandbox = require_browser(settings), settings.sandboxed
        self._scratch = new_scratch()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Frame]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._open = True
        ours, theirs = socket.socketpair()
        try:
            self._process = self._start(theirs)
        except OSError as error:
            ours.close()
            end_browser(self._scratch)
            raise OpError("browser_failed", f"the browser's host could not be started: {error}", True) from error
        finally:
            theirs.close()
        self._end = ours
        self._channel = ChildChannel(ours)
        threading.Thread(target=self._listen, name="scraper-browser", daemon=True).start()

    @property
    def scratch(self) -> Path:
        """The directory by which its processes are found."""
        return self._scratch

    def launch(self, *, headless: bool = True, proxy: str | None = None) -> Future[Frame]:
        """Start Chromium."""
        return self.ask(
            "launch", {"program": self._program, "sandbox": self._sandbox, "headless": headless, "proxy": proxy}
        )

    def ask(self, do: str, arguments: Mapping[str, Any]) -> Future[Frame]:
        """Have something done; the future raises the OpError the host answers with."""
        future: Future[Frame] = Future()
        number = next(self._numbers)
        with self._lock:
            if not self._open:
                future.set_exception(OpError("browser_closed", "the browser is closed"))
                return future
            self._waiting[number] = future
            try:
                self._channel.send({"id": number, "do": do, "with": dict(arguments)})
            except (OSError, ValueError):
                del self._waiting[number]
                future.set_exception(self._gone())
        return future

    def close(self) -> None:
        """End the browser and everything it started; returns when nothing of it is left. Any number of times."""
        with self._closing:
            if not self._open:
                return
            with self._lock:
                self._open = False
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            end_browser(self._scratch)
            self._end.close()

    def _start(self, end: socket.socket) -> subprocess.Popen[bytes]:
        scratch = self._scratch
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment |= {MARK: mark(scratch), "TMPDIR": str(scratch), "CHROME_CONFIG_HOME": str(scratch / "config")}
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "engine.browser.host", str(end.fileno()), str(scratch)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(end.fileno(),),
                start_new_session=True,
            )

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._channel.receive())
        except (EOFError, OSError, ValueError):
            gone = self._gone()
            with self._lock:
                left, self._waiting = self._waiting, {}
            for future in left.values():
                if future.set_running_or_notify_cancel():
                    future.set_exception(gone)

    def _take(self, frame: Frame) -> None:
        if "judge" not in frame.header:
            self._settle(frame)
        elif self._judge is not None:
            self._judge(frame.header["judge"]).add_done_callback(partial(self._pronounce, frame.header["case"]))

    def _pronounce(self, case: int, judged: Future[None]) -> None:
        if judged.cancelled():
            return
        error = judged.exception()
        refused = None if error is None else told_failure(error)
        self.ask("verdict", {"case": case, "refused": refused})

    def _settle(self, frame: Frame) -> None:
        with self._lock:
            future = self._waiting.pop(frame.header["id"], None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        failed = frame.header.get("failed")
        if failed is None:
            future.set_result(frame)
        else:
            future.set_exception(OpError(**failed))

    @property
    def _log(self) -> Path:
        return self._scratch / "host.log"

    def _gone(self) -> OpError:
        if not self._open:
            return OpError("browser_closed", "the browser was closed")
        with contextlib.suppress(OSError):
            said = self._log.read_text(errors="replace").strip()[-_LOG_TAIL:]
            if said:
                return OpError("browser_failed", f"the browser's host ended: {said}", retryable=True)
        return OpError("browser_failed", "the browser's host ended", retryable=True)
