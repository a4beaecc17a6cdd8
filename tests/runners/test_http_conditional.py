"""Pages that are asked for only if they have changed (docs/reference/http-fetch.md)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model import Dependency, NewOp, Result, Validators
from engine.plugins.site import HttpSettings
from engine.runners.base import RunFailed
from engine.runners.http_request import read_request
from tests.migrated import engine_db
from tests.runners.ops import Context, data_of, fetch_op, get, with_runner
from tests.servers import Call, Route, Server, in_turn, page, redirect, serve, status
from tests.worker.lab import MANIFEST, SITE, Lab, js

ASKING = HttpSettings(conditional=True)
CONDITIONS = ("if-none-match", "if-modified-since")


def tagged(tag: str, body: str = "page", **headers: str) -> Route:
    """A page with an ETag, which is not sent to whom it is known."""

    def answer(call: Call) -> None:
        if call.request.headers.get("if-none-match") == tag:
            call.reply(b"", 304, {"ETag": tag}, "Not Modified")
        else:
            call.reply(body.encode(), 200, {"ETag": tag, **headers})

    return answer


def asked(server: Server) -> list[tuple[str | None, ...]]:
    """The conditions of each request."""
    return [tuple(request.headers.get(name) for name in CONDITIONS) for request in server.requests]


class Reader:
    """Fetches that remember, one after the other, what they saw."""

    def __init__(self, http: HttpSettings = ASKING) -> None:
        self.http = http
        self.pages: dict[tuple[str, str], Validators] = {}

    def read(self, url: str, **more: Any) -> Result:
        """One fetch, and what the engine DB keeps of it."""
        context = Context(fetch_op(get(url, **more)), self.http, pages=self.pages)
        result = with_runner(lambda runner: runner.run(context.run))
        if (new := result.validators) is not None:
            self.pages[new.scope, new.variant] = new
        return result


def test_a_page_that_has_not_changed_is_not_sent_again_whichever_worker_asks(tmp_path: Path) -> None:
    """HTTP-80, HTTP-81, HTTP-82: three crawls of three workers; scripts see whether there is something new."""
    lab = Lab(engine_db(tmp_path), tmp_path)
    lab.write("site.yaml", f"{MANIFEST}http: {{conditional: true}}\n")
    lab.write(
        "scripts/read.js",
        "module.exports = ctx => { const dep = ctx.dep('get');"
        " return [dep.data.response.statusCode, dep.data.response.notModified === true,"
        " dep.data.response.bodyArtifactID ?? null, dep.artifacts.map(a => a.bodyText)] }",
    )
    seen = []
    with serve(in_turn(tagged('"1"', "old"), tagged('"1"', "old"), tagged('"2"', "new"))) as server:
        for crawl in ("a", "b", "c"):
            fetching = NewOp(id="get", kind="http/fetch", site=SITE, input=json.dumps(get(f"{server.url}/list")))
            reading = [js("read", "read.js", depends_on=(Dependency("get"),))] if crawl == "b" else []
            lab.run(fetching, *reading, workflow_id=crawl)
            seen.append(lab.result("get", crawl)["data"]["response"]["statusCode"])
        assert asked(server) == [(None, None), ('"1"', None), ('"1"', None)]
    assert seen == [200, 304, 200]
    assert lab.result("read", "b")["data"] == [304, True, None, []]


def test_dates_do_as_well_and_travel_as_they_came() -> None:
    """HTTP-34, HTTP-81."""
    date = "Tue, 01 Jan 2030 00:00:00 GMT"
    reader = Reader()
    with serve(in_turn(page("x", Last_Modified=date), status(304))) as server:
        reader.read(server.url)
        result = reader.read(server.url)
        assert asked(server) == [(None, None), (None, date)]
    assert data_of(result)["response"] == {
        "statusCode": 304,
        "status": "304",
        "finalURL": f"{server.url}",
        "headers": {"Content-Length": ["0"]},
        "notModified": True,
        "contentLength": 0,
    }
    assert result.artifacts == ()


def test_what_the_server_no_longer_says_is_forgotten_and_what_it_renews_renewed() -> None:
    """HTTP-82."""
    reader = Reader()
    renewed = status(304, ETag='"2"')
    answers = (page("x", ETag='"1"', Last_Modified="Monday"), renewed, page("y"), page("z"))
    with serve(in_turn(*answers)) as server:
        for _ in answers:
            reader.read(server.url)
        assert asked(server) == [(None, None), ('"1"', "Monday"), ('"2"', "Monday"), (None, None)]


@pytest.mark.parametrize("tag", ['"é"', '"' + "x" * 2000 + '"'])
def test_a_tag_that_could_not_be_sent_back_is_none(tag: str) -> None:
    """HTTP-82."""
    reader = Reader()
    with serve(page("x", ETag=tag)) as server:
        reader.read(server.url)
    assert reader.pages == {}


def test_only_a_page_that_was_seen_whole_is_remembered() -> None:
    """HTTP-82: an error with a tag is not the page."""
    reader = Reader()
    answers = (status(503, ETag='"error"'), status(204, ETag='"none"'), tagged('"1"'))
    with serve(in_turn(*answers)) as server:
        with pytest.raises(RunFailed) as caught:
            reader.read(server.url)
        assert caught.value.evidence.validators is None
        reader.read(server.url)
        assert reader.pages == {}
        reader.read(server.url)
        assert [known.etag for known in reader.pages.values()] == ['"1"']


def test_pages_that_depend_on_headers_are_different_pages() -> None:
    """HTTP-83: so are those of GET and HEAD; a fragment makes no difference."""
    reader = Reader()
    with serve(tagged('"1"')) as server:
        for more in ({}, {"headers": {"Accept-Language": "en"}}, {"method": "HEAD"}):
            reader.read(f"{server.url}/", **more)
        reader.read(f"{server.url}/?page=2")
        assert {tag for tag, _ in asked(server)} == {None}
        for more in ({}, {"headers": {"accept-language": "en"}}, {"method": "HEAD"}):
            reader.read(f"{server.url}/#top", **more)
        assert [tag for tag, _ in asked(server)[4:]] == ['"1"'] * 3


def test_what_is_no_plain_question_is_never_conditional() -> None:
    """HTTP-83: a form, a body, and a request whose op set a condition itself."""
    reader = Reader()
    own = {"headers": {"If-None-Match": '"mine"'}}
    with serve(tagged('"1"')) as server:
        for more in ({"method": "POST"}, {"body": "x"}, own, {"headers": {"Range": "bytes=0-1"}}):
            for _ in range(2):
                reader.read(server.url, **more)
        assert [tag for tag, _ in asked(server)] == [None] * 4 + ['"mine"'] * 2 + [None] * 2
    assert reader.pages == {}


def test_the_site_decides_unless_the_request_does() -> None:
    """HTTP-80: off is the default."""
    for http, more, remembered in (
        (HttpSettings(), {}, 0),
        (HttpSettings(), {"conditional": True}, 1),
        (ASKING, {"conditional": False}, 0),
        (ASKING, {}, 1),
    ):
        reader = Reader(http)
        with serve(tagged('"1"')) as server:
            reader.read(server.url, **more)
            reader.read(server.url, **more)
            assert [tag for tag, _ in asked(server)] == [None, '"1"' if remembered else None]
        assert len(reader.pages) == remembered


def test_conditions_go_to_the_url_that_answered_only() -> None:
    """HTTP-84: not to the redirects before it, nor to where they lead now."""
    reader = Reader()
    moves = in_turn(redirect("/a"), redirect("/a"), redirect("/b"))
    with serve({"/": moves, "/a": tagged('"1"'), "/b": tagged('"1"')}) as server:
        statuses = [data_of(reader.read(f"{server.url}/"))["response"]["statusCode"] for _ in range(3)]
        assert [(request.path, tag) for request, (tag, _) in zip(server.requests, asked(server), strict=True)] == [
            *[("/", None), ("/a", None)],
            *[("/", None), ("/a", '"1"')],
            *[("/", None), ("/b", None)],
        ]
    assert statuses == [200, 304, 200]


def test_sites_and_editions_do_not_know_each_others_pages() -> None:
    """HTTP-83: what one reader has seen, another one has not."""

    async def read(runner: Any) -> list[int]:
        seen: list[int] = []
        pages: dict[tuple[str, str], Validators] = {}
        for scope, edition in (("site/a", ""), ("site/b", ""), ("job/a/x", "1"), ("job/a/x", "2"), ("job/a/x", "2")):
            context = Context(fetch_op(get(server.url)), pages=pages)
            manners = replace(runner.client.manners(context.run.site), conditional=True, scope=scope, edition=edition)
            fetched = await runner.client.fetch(context.run, read_request(context.run.op), manners)
            pages[fetched.validators.scope, fetched.validators.variant] = fetched.validators
            seen.append(fetched.answer.head.status_code)
        return seen

    with serve(tagged('"1"')) as server:
        assert with_runner(read) == [200, 200, 200, 200, 304]


@pytest.mark.parametrize("value", ["yes", 1, []])
def test_a_wish_that_is_neither_true_nor_false_is_the_ops_mistake(value: Any) -> None:
    """HTTP-10."""
    with pytest.raises(Exception, match=r"input\.request\.conditional must be true or false"):
        Reader().read("http://127.0.0.1:1/", conditional=value)
