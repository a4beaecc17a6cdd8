"""Fetches as ops: what a dependent script sees of them, retries, cookies through the engine DB."""

from __future__ import annotations

import json
from typing import Any

from engine.model import Dependency, EdgeKind, NewOp, RetryPolicy
from tests.servers import Call, in_turn, page, serve, status
from tests.worker.lab import MANIFEST, SITE, Lab, js


def fetching(op_id: str, url: str, **values: Any) -> NewOp:
    """An op that fetches ``url`` and keeps the body."""
    given = {"request": {"url": url}, "persistBody": True}
    return NewOp(id=op_id, kind="http/fetch", site=SITE, input=json.dumps(given), **values)


READ = """module.exports = function (ctx) {
  return ctx.input.map(function (id) {
    var dep = ctx.dep(id);
    var body = dep.artifacts[0];
    return [
      dep.error && dep.error.code ? dep.error.code : dep.data.response.statusCode,
      dep.error && dep.error.details ? dep.error.details.response.statusCode : null,
      body && body.name, body && body.bodyText, body ? Array.from(body.bodyBytes()) : null,
    ];
  });
};"""


def test_scripts_read_bodies_of_any_charset_and_status(lab: Lab) -> None:
    """HTTP-31, HTTP-32, HTTP-41."""
    lab.write("scripts/read.js", READ)
    pages = {
        "/latin": page(b"caf\xe9", content_type="text/html; charset=iso-8859-1"),
        "/utf8": page("café"),
        "/gone": status(410, "weg, für immer".encode(), "Gone"),
        "/empty": page(b""),
    }
    with serve(pages) as server:
        names = [path[1:] for path in pages]
        after = tuple(Dependency(name, EdgeKind.TERMINAL) for name in names)
        lab.run(
            *(fetching(name, f"{server.url}/{name}") for name in names),
            js("read", "read.js", input=names, depends_on=after),
        )
    assert lab.result("read")["data"] == [
        [200, None, "response-body", "café", [99, 97, 102, 233]],
        [200, None, "response-body", "café", [99, 97, 102, 195, 169]],
        ["http_status_410", 410, "response-body", "weg, für immer", list("weg, für immer".encode())],
        [200, None, "response-body", "", []],
    ]


def test_retryable_failures_run_again_and_final_ones_do_not(lab: Lab) -> None:
    """HTTP-40."""
    answers = {
        "/flaky": in_turn(status(503, Retry_After="0"), status(429), page("at last")),
        "/gone": status(404),
    }
    retry = RetryPolicy(max_attempts=3, initial=1)
    with serve(answers) as server:
        ended = lab.run(
            fetching("flaky", f"{server.url}/flaky", retry=retry), fetching("gone", f"{server.url}/gone", retry=retry)
        )
    assert ended == {"flaky": "succeeded", "gone": "failed"}
    assert lab.attempts("flaky") == ["retried", "retried", "succeeded"]
    assert lab.attempts("gone") == ["failed"]


def test_cookies_travel_from_op_to_op_through_the_engine_db(lab: Lab) -> None:
    """HTTP-60, HTTP-61: two logins side by side, both known to the op after them; nothing leaks to another workflow."""

    def login(call: Call) -> None:
        name = call.request.path.rpartition("/")[2]
        call.reply(b"", headers={"Set-Cookie": f"{name}=1; Path=/"})

    lab.write("site.yaml", MANIFEST + "http: {cookies: workflow}\n")
    with serve({"/a": login, "/b": login, "/list": page("")}) as server:
        after = (Dependency("a"), Dependency("b"))
        lab.run(
            fetching("a", f"{server.url}/a"),
            fetching("b", f"{server.url}/b"),
            fetching("list", f"{server.url}/list", depends_on=after),
        )
        lab.submit(fetching("list", f"{server.url}/list"), workflow_id="other")
        lab.work()
        sent = [request.headers.get("cookie", "") for request in server.requests if request.path == "/list"]
    assert [sorted(cookies.split("; ")) for cookies in sent] == [["a=1", "b=1"], [""]]
