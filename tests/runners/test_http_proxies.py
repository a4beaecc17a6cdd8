"""Proxies that take turns (docs/reference/http-fetch.md)."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.machine import machine_id
from engine.model import Dependency, NewOp, RetryPolicy
from engine.plugins.manifest import InvalidManifest, load_site
from engine.plugins.site import HttpSettings, Proxies
from tests import warm
from tests.migrated import engine_db
from tests.runners.ops import Context, body_of, data_of, fetch, fetch_failing, fetch_op, get, with_runner
from tests.runners.socks import serve_socks
from tests.servers import Call, in_turn, page, refused, serve, status
from tests.worker.lab import MANIFEST, SITE, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A site with a real engine DB and worker."""
    return Lab(engine_db(tmp_path), tmp_path)


def rotating(lab: Lab, *urls: str) -> None:
    """The site's manifest with these proxies."""
    lab.write("site.yaml", f"{MANIFEST}http: {{proxies: {{rotate: RoundRobin, urls: {json.dumps(urls)}}}}}\n")


def crawl(*names: str, base: str = "http://shop.example", **values: Any) -> list[NewOp]:
    """Fetches one after the other."""
    return [
        NewOp(
            id=name,
            kind="http/fetch",
            site=SITE,
            input=json.dumps({"request": {"url": f"{base}/{name}"}}),
            depends_on=(Dependency(names[number - 1]),) if number else (),
            **values,
        )
        for number, name in enumerate(names)
    ]


def taken(lab: Lab) -> list[tuple[str, int]]:
    """Every round and how far it went."""
    store = lab.store()
    try:
        with store.database.read() as connection:
            rows = connection.exec_driver_sql("SELECT name, taken FROM turn_round ORDER BY name").all()
            return [(str(row[0]), int(row[1])) for row in rows]
    finally:
        store.close()


def test_proxies_of_either_kind_take_turns_and_go_on_where_the_last_worker_stopped(lab: Lab) -> None:
    """HTTP-71: three proxies, one of them SOCKS, and two workers one after the other."""
    with serve(page("page")) as a, serve_socks() as b, serve(page("page")) as c, serve(page("page")) as shop:
        rotating(lab, a.url, b.url, c.url)
        lab.run(*crawl("1", "2", base=shop.url), workflow_id="first")
        lab.run(*crawl("3", "4", "5", base=shop.url), workflow_id="second")
        assert set(lab.statuses().values()) == {"succeeded"}
        assert (a.paths(), shop.paths(), c.paths()) == (["/1", "/4"], ["/2", "/5"], ["/3"])
        assert {f"http://{host}:{port}" for host, port in b.targets} == {shop.url}
    assert taken(lab) == [(f"site/{SITE}", 5)]


def test_the_cursor_is_exact_after_the_worker_is_killed(lab: Lab, tmp_path: Path) -> None:
    """HTTP-72: the killed request is made again through the same proxy; nobody is passed over."""
    released = threading.Event()

    def hold(call: Call) -> None:
        released.wait(60)
        call.reply(b"too late")

    sites = lab.settings.sites_dir
    with serve(page("page")) as a, serve(in_turn(hold, page("page"))) as b:
        rotating(lab, a.url, b.url)
        lab.submit(*crawl("1", "2", "3", "4"))
        words = (lab.engine_db, sites, tmp_path / "plugins", tmp_path / "marker", "none")
        worker = warm.start("tests.crash.worker_main:main", words)
        try:
            b.wait(lambda seen: seen.paths() == ["/2"])
        finally:
            worker.kill()
            worker.wait()
        released.set()
        lab.work(machine_id=machine_id(sites))
        assert (a.paths(), b.paths()) == (["/1", "/3"], ["/2", "/2", "/4"])
    assert lab.attempts("2") == ["lease_lost", "succeeded"]
    assert taken(lab) == [(f"site/{SITE}", 4)]


def test_an_attempt_that_failed_takes_the_next_proxy(lab: Lab) -> None:
    """HTTP-72: a dead proxy costs one attempt of each fetch that meets it."""
    with refused() as gone, serve(page("page")) as alive:
        rotating(lab, gone, alive.url)
        lab.run(*crawl("1", "2", retry=RetryPolicy(max_attempts=2, initial=1)))
        assert alive.paths() == ["/1", "/2"]
    assert [lab.attempts("1"), lab.attempts("2")] == [["retried", "succeeded"]] * 2
    assert taken(lab) == [(f"site/{SITE}", 4)]


def test_sticky_is_always_the_first_and_random_any() -> None:
    """HTTP-70: neither takes turns."""

    async def work(runner: Any) -> int:
        for _ in range(8):
            await runner.run(context.run)
        return context.turns

    with serve(page("a")) as a, serve(page("b")) as b:
        for rotate, counts in (("Sticky", {(8, 0)}), ("Random", {(n, 8 - n) for n in range(1, 8)})):
            random.seed(7)
            before = (len(a.requests), len(b.requests))
            settings = HttpSettings(proxies=Proxies((a.url, b.url), rotate))  # type: ignore[arg-type]
            context = Context(fetch_op(get("http://shop.example/")), settings)
            assert with_runner(work) == 0
            assert (len(a.requests) - before[0], len(b.requests) - before[1]) in counts


def test_a_request_may_name_its_own_proxy_and_takes_no_turn_then() -> None:
    """HTTP-73."""
    with serve(page("in turn")) as listed, serve(page("own")) as own:
        context = Context(
            fetch_op(get("http://shop.example/", proxy=own.url)), HttpSettings(proxies=Proxies((listed.url,)))
        )
        assert body_of(with_runner(lambda runner: runner.run(context.run))) == b"own"
        assert (context.turns, listed.requests) == (0, [])


@pytest.mark.parametrize("proxy", ["127.0.0.1:1", "ftp://host:1", "http://", "http://host:99999999", 5])
def test_a_proxy_that_is_none_is_the_ops_mistake(proxy: Any) -> None:
    """HTTP-73."""
    error, _ = fetch_failing(get("http://shop.example/", proxy=proxy))
    assert (error.code, error.retryable) == ("invalid_input", False)
    assert "input.request.proxy must be a" in error.message


def test_all_requests_of_a_fetch_take_its_one_turn() -> None:
    """HTTP-71: redirects go through the same proxy."""
    moves = in_turn(status(302, Location="http://shop.example/b"), page("there"))
    with serve(moves) as one, serve(page("other")) as other:
        result = fetch(get("http://shop.example/a"), http=HttpSettings(proxies=Proxies((one.url, other.url))))
        assert one.paths() == ["/a", "/b"]
        assert other.requests == []
    assert data_of(result)["response"]["finalURL"] == "http://shop.example/b"


def test_a_message_names_the_proxy_but_not_its_password() -> None:
    """HTTP-74."""
    with refused() as gone:
        proxy = gone.replace("http://", "http://me:secret@")
        error, _ = fetch_failing(get("http://shop.example/"), proxy=proxy)
    assert (error.code, error.retryable) == ("transport_error", True)
    assert f"through the proxy {gone.replace('http://', 'http://me:***@')}" in error.message
    assert "secret" not in error.message
    error, _ = fetch_failing(get("http://shop.example/"), proxy="gopher://me:secret@old.example")
    assert "gopher://***@old.example" in error.message


@pytest.mark.parametrize(
    ("http", "message"),
    [
        ("{proxies: {urls: []}}", "site.http.proxies.urls"),
        ("{proxies: {rotate: RoundRobin}}", "site.http.proxies.urls"),
        ("{proxies: {rotate: roundrobin, urls: ['http://a:1']}}", 'site.http.proxies.rotate must be "RoundRobin"'),
        ("{proxies: {urls: ['http://a:1', 'b:2']}}", "site.http.proxies.urls[1] must be a URL such as"),
        ("{proxies: {urls: ['http://a:1']}, proxy: 'http://b:1'}", "site.http.proxies and site.http.proxy exclude"),
    ],
)
def test_a_manifest_says_what_is_wrong_with_its_proxies(tmp_path: Path, http: str, message: str) -> None:
    """SITE-29."""
    (tmp_path / "site.yaml").write_text(f"name: shop\ndatabaseFileName: shop.db\nhttp: {http}\n")
    with pytest.raises(InvalidManifest) as caught:
        load_site(tmp_path)
    assert message in str(caught.value)
