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
LINE_SECONDS = 10.0
_HEAP_BYTES = 256 << 20

_MORE = r"""
function $more(job, found) {
  const parser = $html();
  const { html, url } = job;
  const page = parser.parse(html);
  const named = { html, url, page, $: (selector) => page.first(selector), $$: (selector) => page.css(selector) };
  for (const name of $keys(named)) $hide(globalThis, name, named[name]);
  $hide(globalThis, "require", $requireFrom("page"));

  const isNode = (value) => value !== null && typeof value === "object" && typeof value.css === "function";
  const plain = (name, value) => (isNode(value) ? value.html() : typeof value === "bigint" ? $String(value) : value);
  const cut = (text) => (text.length > 200 ? text.slice(0, 200) + "…" : text);
  const isPlain = (value) => $isArray(value) || [Object.prototype, null].includes(Object.getPrototypeOf(value));
  const whole = (value, indent) => {
    if (isNode(value)) return value.html();
    if (value instanceof $Error || value instanceof RegExp || typeof value === "function") return $String(value);
    if (value instanceof Map || value instanceof $Set) return value.constructor.name + " " + whole([...value], indent);
    if (typeof value !== "object" || value === null) return $String(value);
    if (value instanceof Promise) return "a promise: what it will be is not waited for";
    return isPlain(value) || typeof value.toJSON === "function"
      ? $JSON.stringify(value, plain, indent)
      : value.constructor.name + " " + $JSON.stringify(value, plain, indent);
  };
  const line = (value) => cut(typeof value === "string" ? $JSON.stringify(value) : whole(value).replace(/\s+/g, " "));
  const display = (value, asJson) => {
    if (asJson) return $JSON.stringify(value === undefined ? null : value, plain) ?? "null";
    if (value === undefined) return "";
    if ($isArray(value) && value.length > 0) return value.map((item, at) => at + ": " + line(item)).join("\n");
    return whole(value, 2);
  };
  const global = eval;
  globalThis.$prompt = {
    display,
    isExpression(source) {
      if (/^\s*(async\s+)?(function|class)\b/.test(source)) return false;
      try {
        return !!new Function("return (" + source + "\n)");
      } catch {
        return false;
      }
    },
    evaluate: (source, asJson) => display(global("(" + source + "\n)"), asJson),
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
        prompt: Any = self._racer.eval("(function (it) { delete globalThis.$prompt; return it; })(globalThis.$prompt)")
        self._display, self._evaluate = prompt["display"], prompt["evaluate"]
        self._is_expression = prompt["isExpression"]

    def _answer(self, name: str, payload: str) -> str:
        return self._job if name == "job" else self._host.call(name, payload)

    def evaluate(self, source: str, *, as_json: bool) -> dict[str, Any]:
        """``{text, logs}`` of a line, or ``{error, logs}``; declarations stay for the lines that follow."""
        answer: dict[str, Any]
        try:
            answer = {"text": self._shown(source, as_json)}
        except JSTimeoutException:
            answer = {"error": f"stopped after {LINE_SECONDS:g} s"}
        except JSOOMException:
            answer = {"error": "out of memory"}
        except JSParseException as error:
            answer = {"error": _parse_error(str(error))}
        except JSEvalException as error:
            answer = {"error": _eval_error(str(error))}
        finally:
            self._call.release()
        answer["logs"] = [line.message for line in self._host.effects.logs]
        self._host.effects.logs.clear()
        return answer

    def _shown(self, source: str, as_json: bool) -> Any:
        """An expression's value never leaves V8; statements are a script, so that what they declare stays."""
        if self._is_expression(source):
            return self._evaluate(source, as_json, timeout_sec=LINE_SECONDS)
        return self._display(self._racer.eval(source, timeout_sec=LINE_SECONDS), as_json, timeout_sec=LINE_SECONDS)

    def close(self) -> None:
        """End the isolate."""
        self._racer.close()


def _parse_error(text: str) -> str:
    """Without the position, which every line repeats: the caret says where."""
    first, *rest = text.strip().splitlines()
    return "\n".join([first.partition(": ")[2], *rest[:2]])


def _eval_error(text: str) -> str:
    """The error itself, which comes after its line and before its stack."""
    _, _, rest = text.partition("\n\n")
    return (rest or text).partition("\n    at ")[0].strip()
