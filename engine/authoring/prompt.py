"""A page before a prompt: one V8 isolate that lives as long as the page, and what it says in return."""

from __future__ import annotations

import json
from typing import Any

from py_mini_racer import JSEvalException, JSOOMException, JSParseException, JSTimeoutException, MiniRacer

from engine.clock import SystemClock
from engine.js.host import Host
from engine.js.hostcall import HostCall
from engine.js.isolate import prelude
from engine.js.modules import ModuleRoots

#: Seconds one line may run.
LINE_SECONDS = 30.0
_HEAP_BYTES = 256 << 20

_MORE = """
function $more(job, found) {
  const parser = $html();
  $hide(globalThis, "html", job.html);
  $hide(globalThis, "url", job.url);
  $hide(globalThis, "page", parser.parse(job.html));
  $hide(globalThis, "$", (selector) => page.first(selector));
  $hide(globalThis, "$$", (selector) => page.css(selector));
  $hide(globalThis, "require", $requireFrom("page"));
  const isNode = (value) => value !== null && typeof value === "object" && typeof value.css === "function";
  const plain = (name, value) => (isNode(value) ? value.html() : typeof value === "bigint" ? $String(value) : value);
  const cut = (text) => (text.length > 200 ? text.slice(0, 200) + "…" : text);
  const line = (value) => (isNode(value) ? cut(value.html().replace(/\\s+/g, " ")) : cut($shownPlain(value)));
  const $shownPlain = (value) => {
    if (typeof value === "string") return $JSON.stringify(value);
    if (value === undefined || typeof value === "function" || typeof value === "symbol") return $String(value);
    return $JSON.stringify(value, plain);
  };
  globalThis.$display = (value, asJson) => {
    if (asJson) return $JSON.stringify(value === undefined ? null : value, plain);
    if (value === undefined) return "";
    if (typeof value === "string") return value;
    if (isNode(value)) return value.html();
    if (value instanceof $Error) return $String(value);
    if ($isArray(value)) return value.length === 0 ? "[]" : value.map((item, at) => at + ": " + line(item)).join("\\n");
    if (typeof value === "object" && value !== null) return $JSON.stringify(value, plain, 2);
    return $String(value);
  };
}
"""


class _PageHost(Host):
    """The host of the prompt: there are no files, and the only job is the page."""

    def call(self, name: str, payload: str) -> str:
        """Answer one call of the bridge. Raises HostError."""
        return "null" if name in ("entry", "done") else super().call(name, payload)


class Prompt:
    """One page: ``html``, ``url``, ``page``, ``$`` and ``$$`` in an isolate of its own."""

    def __init__(self, html: str, url: str) -> None:
        self._host = _PageHost(ModuleRoots([]), SystemClock())
        self._job = json.dumps({"mode": "page", "entry": "", "html": html, "url": url})
        self._racer = MiniRacer()
        self._racer.set_hard_memory_limit(_HEAP_BYTES)
        self._call = HostCall(self._racer, self._answer)
        boot: Any = self._racer.eval(prelude(_MORE))
        drive: Any = boot(self._call.function)
        drive("start", timeout_sec=LINE_SECONDS)
        self._display: Any = self._racer.eval("const $taken = globalThis.$display; delete globalThis.$display; $taken")

    def _answer(self, name: str, payload: str) -> str:
        return self._job if name == "job" else self._host.call(name, payload)

    def evaluate(self, source: str, *, as_json: bool) -> dict[str, Any]:
        """``{text, logs}`` of a line, or ``{error, logs}``; declarations stay for the lines that follow."""
        answer: dict[str, Any]
        try:
            answer = {"text": self._display(self._value(source), as_json, timeout_sec=LINE_SECONDS)}
        except JSTimeoutException:
            answer = {"error": f"stopped after {LINE_SECONDS:g} s"}
        except JSOOMException:
            answer = {"error": "out of memory"}
        except JSParseException as error:
            answer = {"error": _parse_error(str(error))}
        except JSEvalException as error:
            answer = {"error": str(error).partition("\n    at ")[0].strip()}
        finally:
            self._call.release()
        answer["logs"] = [line.message for line in self._host.effects.logs]
        self._host.effects.logs.clear()
        return answer

    def _value(self, source: str) -> Any:
        """A line that begins like an object is one, as at every prompt; else it is a script."""
        if source.lstrip().startswith("{"):
            try:
                return self._racer.eval(f"({source}\n)", timeout_sec=LINE_SECONDS)
            except JSParseException:
                pass
        return self._racer.eval(source, timeout_sec=LINE_SECONDS)

    def close(self) -> None:
        """End the isolate."""
        self._racer.close()


def _parse_error(text: str) -> str:
    """Without the position, which every line repeats: the caret says where."""
    first, *rest = text.strip().splitlines()
    return "\n".join([first.partition(": ")[2], *rest[:2]])
