"""The child process of the authoring tools: ``python -m engine.authoring.child DESCRIPTOR PARENT_PID``.

It compiles and runs JavaScript for its parent, one job at a time; see :class:`Child` for the jobs.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from py_mini_racer import JSEvalException, JSParseException, MiniRacer

from engine.authoring.autocommit import AutocommitSession
from engine.authoring.prompt import Prompt
from engine.authoring.trial import try_migrations
from engine.clock import SystemClock
from engine.errors import OpError
from engine.js.child import die_with_parent
from engine.js.host import Host
from engine.js.hostcall import HostError
from engine.js.isolate import Limits, execute
from engine.js.jobs import error_to_dict, unpack_site
from engine.js.modules import ModuleRoots
from engine.js.positions import parse_error_position
from engine.js.scan import scan_verbs
from engine.js.wire import ChildChannel
from engine.plugins.site import Site

_LOOK = Limits(seconds=10.0, heap_bytes=128 << 20)


@cache
def _modes() -> str:
    return files("engine.authoring").joinpath("modes.js").read_text("utf-8")


class Child:
    """Answers jobs until the channel closes."""

    def __init__(self, channel: ChildChannel) -> None:
        self._channel = channel
        self._prompt: Prompt | None = None
        self._jobs: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "compile": self._compile,
            "scan": self._scan,
            "offered": self._offered,
            "migrations": self._migrations,
            "test": self._test,
            "open": self._open,
            "evaluate": self._evaluate,
        }

    def serve(self) -> None:
        """Work until the parent closes its end."""
        while True:
            try:
                job = self._channel.receive().header
            except EOFError:
                return
            self._channel.send({"say": "answer", **self._jobs[job["do"]](job)})

    def _compile(self, job: dict[str, Any]) -> dict[str, Any]:
        """What V8 says about sources it only compiles: ``faults`` of ``{name, line, column, message}``."""
        racer = MiniRacer()
        try:
            faults = [_syntax_fault(racer, *named) for named in job["sources"]]
        finally:
            racer.close()
        return {"faults": [fault for fault in faults if fault is not None]}

    def _scan(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"files": scan_verbs(unpack_site(job["site"]), SystemClock())}

    def _offered(self, job: dict[str, Any]) -> dict[str, Any]:
        """Which of ``names`` are functions of the file, declared or exported; evaluates it."""
        host = Host(_roots(unpack_site(job["site"]), job["entry"]), SystemClock())
        try:
            names = json.loads(execute(host, _call("offered", job), _LOOK, _modes()))
        except OpError as error:
            return {"error": error_to_dict(error)}
        return {"names": names}

    def _migrations(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"faults": try_migrations(unpack_site(job["site"]), Path(job["database"]))}

    def _test(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run one test function; ``error`` where it failed, and its log lines."""
        site = unpack_site(job["site"])
        session = AutocommitSession(Path(job["database"]), lambda: self._ask("test.migrate", None))
        host = _TestHost(_roots(site, job["entry"]), SystemClock(), session=session)
        host.ask = self._ask
        error: dict[str, Any] | None = None
        try:
            limits = Limits(seconds=job["seconds"], heap_bytes=site.js.heap_mb << 20)
            execute(host, _call("test", job), limits, _modes())
        except OpError as failed:
            error = error_to_dict(failed)
        finally:
            session.close()
        return {"error": error, "logs": [line.message for line in host.effects.logs]}

    def _ask(self, name: str, argument: Any) -> Any:
        self._channel.send({"say": "ask", "name": name, "argument": argument})
        answer = self._channel.receive().header
        if "error" in answer:
            raise HostError(answer["error"])
        return answer["value"]

    def _open(self, job: dict[str, Any]) -> dict[str, Any]:
        """Put a page before the prompt."""
        if self._prompt is not None:
            self._prompt.close()
        self._prompt = Prompt(job["html"], job["url"])
        return {}

    def _evaluate(self, job: dict[str, Any]) -> dict[str, Any]:
        """Evaluate a line at the prompt."""
        assert self._prompt is not None
        return self._prompt.evaluate(job["source"], as_json=job["json"])


class _TestHost(Host):
    """The host of a test: asks the parent for what only the engine can do."""

    ask: Callable[[str, Any], Any]

    def call(self, name: str, payload: str) -> str:
        """Answer one call of the bridge. Raises HostError."""
        if name.startswith("test."):
            return json.dumps(self.ask(name, json.loads(payload)))
        return super().call(name, payload)


def _roots(site: Site, entry: str) -> ModuleRoots:
    """A file's modules: verbs also find what lies below the verbs root, everything else the whole site."""
    verbs = site.verbs_root
    if verbs is not None and (site.root / entry).is_relative_to(verbs):
        return ModuleRoots([("", site.root), (verbs.relative_to(site.root).as_posix(), verbs)])
    return ModuleRoots([("", site.root)])


def _call(mode: str, job: dict[str, Any]) -> dict[str, Any]:
    return {"mode": mode, "entry": job["entry"], "names": job["names"], "function": job.get("function")}


def _syntax_fault(racer: MiniRacer, name: str, source: str) -> dict[str, Any] | None:
    try:
        racer.eval(f"(function (exports, require, module, __filename, __dirname) {{\n{source}\n}})", timeout_sec=10)
    except JSParseException as error:
        text = str(error)
        place = parse_error_position(text, name) or {"line": 0, "column": 0}
        place["line"] = min(place["line"], source.count("\n") + 1)  # V8 may blame the end of our wrapper
        message = next((line for line in text.splitlines() if line.startswith("SyntaxError")), text)
        return {"name": name, "line": place["line"], "column": place["column"], "message": message}
    except JSEvalException as error:  # the text closes our wrapper and goes on: no module does that
        return {"name": name, "line": 0, "column": 0, "message": str(error).splitlines()[0]}
    return None


def main() -> None:
    """Serve the parent until it goes away."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    # Ctrl-C reaches the whole terminal; it is the parent that decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as end:
        Child(ChildChannel(end)).serve()


if __name__ == "__main__":
    main()
