"""robots.txt (docs/reference/http-fetch.md)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SECOND
from engine.errors import OpError
from engine.model import NewOp, Result
from engine.plugins.site import HttpSettings, Proxies
from engine.runners.base import Refund
from engine.runners.http import HttpRunner
from engine.runners.http_robots import AGE, LONGEST_DELAY, PAUSE
from tests.fakes import FakeClock
from tests.migrated import engine_db
from tests.runners.ops import Context, fetch, fetch_failing, fetch_op, get, with_runner
from tests.servers import Route, hangs_up, in_turn, page, redirect, refused, serve, status
from tests.worker.lab import MANIFEST, SITE, Lab

OBEYING = HttpSettings(robots="obey")
PRIVATE = page("User-agent: *\nDisallow: /private\n", content_type="text/plain")


def denied(url: str, http: HttpSettings = OBEYING, **more: Any) -> OpError:
    """How a fetch of ``url`` fails."""
    with pytest.raises(OpError) as caught:
        fetch(get(url, **more), http=http)
    return caught.value


def test_a_disallowed_url_is_never_requested(tmp_path: Path) -> None:
    """HTTP-90, HTTP-91: nor does it take a turn of the proxies; what is allowed goes on beside it."""
    lab = Lab(engine_db(tmp_path), tmp_path)
    with serve({"/robots.txt": PRIVATE, "*": page("page")}) as proxy:
        urls = json.dumps([proxy.url])
        lab.write("site.yaml", f"{MANIFEST}http: {{robots: obey, proxies: {{urls: {urls}}}}}\n")
        names = ("open", "private", "private/deep", "privateer", "public")
        lab.run(
            *(
                NewOp(id=name, kind="http/fetch", site=SITE, input=json.dumps(get(f"http://shop.example/{name}")))
                for name in names
            )
        )
        assert sorted(proxy.paths()) == ["/open", "/public", "/robots.txt"]
    failed = {name for name, ended in lab.statuses().items() if ended == "failed"}
    assert failed == {"private", "private/deep", "privateer"}
    assert lab.error("private")["code"] == "robots_disallowed"
    assert lab.attempts("private") == ["failed"]
    store = lab.store()
    with store.database.read() as connection:
        assert connection.exec_driver_sql("SELECT taken FROM turn_round").scalar_one() == 2
    store.close()


def test_the_error_is_final_and_says_whose_rule_it_is() -> None:
    """HTTP-91."""
    with serve({"/robots.txt": PRIVATE}) as server:
        error = denied(f"{server.url}/private")
        assert (error.code, error.retryable) == ("robots_disallowed", False)
        assert error.message == (
            f'{server.url}/private: {server.url}/robots.txt does not let "scraper/worker" fetch it'
        )


def test_a_redirect_leads_nowhere_where_a_request_could_not_go() -> None:
    """HTTP-91: also to another host, whose own file counts."""
    with (
        serve({"/robots.txt": PRIVATE, "*": page("page")}) as other,
        serve({"/robots.txt": PRIVATE, "/near": redirect("/private"), "/far": redirect(f"{other.url}/private")}) as one,
    ):
        assert denied(f"{one.url}/near").code == "robots_disallowed"
        assert denied(f"{one.url}/far").code == "robots_disallowed"
        assert "/private" not in one.paths() + other.paths()
        assert other.paths() == ["/robots.txt"]


def test_the_site_decides_else_the_configuration_and_by_default_nobody_asks() -> None:
    """HTTP-90."""
    for http, obey, asked in (
        (HttpSettings(), False, False),
        (HttpSettings(), True, True),
        (HttpSettings(robots="ignore"), True, False),
        (OBEYING, False, True),
    ):
        with serve({"*": page("")}) as server:
            fetch(get(f"{server.url}/x"), http=http, obey_robots=obey)
            assert server.paths() == (["/robots.txt", "/x"] if asked else ["/x"])


def test_a_worker_asks_a_host_once_however_many_fetches_wait_for_the_answer() -> None:
    """HTTP-92: hosts are told apart by scheme, name and port."""

    async def work(runner: HttpRunner) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                host = "127.0.0.1" if number % 2 else "localhost"
                url = f"{server.url.replace('127.0.0.1', host)}/{number}"
                group.create_task(runner.run(Context(fetch_op(get(url)), OBEYING).run))

    with serve({"/robots.txt": PRIVATE, "*": page("page")}) as server:
        with_runner(work)
        assert sorted(server.paths()) == ["/0", "/1", "/2", "/3", "/4", "/5", "/robots.txt", "/robots.txt"]


def test_an_answer_holds_for_an_hour_and_no_answer_for_a_while(clock: FakeClock) -> None:
    """HTTP-92, HTTP-93."""

    async def work(runner: HttpRunner) -> list[str]:
        seen: list[str] = []
        for pause in (0, PAUSE - 1, 1, AGE - 1, 1):
            clock.advance(pause)
            try:
                await runner.run(Context(fetch_op(get(f"{server.url}/x")), OBEYING).run)
                seen.append("fetched")
            except OpError as error:
                seen.append(error.code)
        return seen

    closed = page("User-agent: *\nDisallow: /")
    with serve({"/robots.txt": in_turn(status(500), PRIVATE, closed), "*": page("page")}) as server:
        seen = with_runner(work, clock)
        assert server.paths() == ["/robots.txt", "/robots.txt", "/x", "/x", "/robots.txt"]
    assert seen == ["robots_unavailable", "robots_unavailable", "fetched", "fetched", "robots_disallowed"]


@pytest.mark.parametrize(
    "answer", [status(404), status(403), page("<h1>Hello</h1>"), page(b"\xff\xfe\0D\0i\0s"), page("")]
)
def test_a_host_without_rules_allows_everything(answer: Route) -> None:
    """HTTP-93."""
    with serve({"/robots.txt": answer, "*": page("page")}) as server:
        fetch(get(f"{server.url}/private"), http=OBEYING)
        assert server.paths() == ["/robots.txt", "/private"]


@pytest.mark.parametrize(
    ("answer", "pause"), [(status(503), 30), (status(429, Retry_After="120"), 120), (hangs_up, 30), (status(500), 30)]
)
def test_a_host_that_does_not_answer_allows_nothing_for_now(answer: Route, pause: int, clock: FakeClock) -> None:
    """HTTP-93: the fetch is tried again under its policy."""

    async def work(runner: HttpRunner) -> OpError:
        with pytest.raises(OpError) as caught:
            await runner.run(Context(fetch_op(get(f"{server.url}/x")), OBEYING).run)
        return caught.value

    with serve({"/robots.txt": answer, "*": page("page")}) as server:
        error = with_runner(work, clock)
        assert "/x" not in server.paths()
    assert (error.code, error.retryable, error.retry_after) == ("robots_unavailable", True, pause * SECOND)
    assert "robots.txt cannot be read" in error.message


def test_a_host_that_is_not_there_is_said_to_be_unavailable() -> None:
    """HTTP-93."""
    with refused() as gone:
        assert denied(f"{gone}/x").code == "robots_unavailable"


GROUPS = page("User-agent: nicebot\nDisallow: /nice\n\nUser-agent: *\nDisallow: /other\n")


@pytest.mark.parametrize(
    ("agent", "header", "allowed"),
    [("NiceBot/2.0 (+http://me)", None, "/other"), ("x/1", None, "/nice"), ("x/1", "NiceBot/1", "/other")],
)
def test_the_rules_are_those_for_the_user_agent_that_is_sent(agent: str, header: str | None, allowed: str) -> None:
    """HTTP-94: the op's header, else the site's; the file is asked for under the same name."""
    more = {} if header is None else {"headers": {"user-agent": header}}
    http = HttpSettings(robots="obey", user_agent=agent)
    with serve({"/robots.txt": GROUPS, "*": page("page")}) as server:
        fetch(get(f"{server.url}{allowed}", **more), http=http)
        forbidden = ({"/nice", "/other"} - {allowed}).pop()
        assert denied(f"{server.url}{forbidden}", http, **more).code == "robots_disallowed"
        assert {request.headers["user-agent"] for request in server.requests} == {header or agent}


def test_the_most_specific_rule_counts_and_the_file_itself_is_always_allowed() -> None:
    """HTTP-94."""
    rules = page("User-agent: *\nDisallow: /\nAllow: /open/*.html$\n")
    with serve({"/robots.txt": rules, "*": page("page")}) as server:
        fetch(get(f"{server.url}/open/a.html"), http=OBEYING)
        fetch(get(f"{server.url}/robots.txt"), http=OBEYING)
        assert denied(f"{server.url}/open/a.html?x=1").code == "robots_disallowed"


def test_a_file_that_moved_is_followed_and_a_long_one_read_in_part() -> None:
    """HTTP-93."""
    padding = "# " + "x" * 998 + "\n"
    long = "User-agent: *\nDisallow: /early\n" + padding * 600 + "Disallow: /late\n"
    with serve({"/robots.txt": redirect("/rules"), "/rules": page(long), "*": page("page")}) as server:
        assert denied(f"{server.url}/early").code == "robots_disallowed"
        fetch(get(f"{server.url}/late"), http=OBEYING)


def test_the_file_comes_through_the_proxies_without_taking_a_turn() -> None:
    """HTTP-95."""
    with serve({"/robots.txt": PRIVATE, "*": page("page")}) as proxy:
        http = HttpSettings(robots="obey", proxies=Proxies((proxy.url,)))
        context = Context(fetch_op(get("http://shop.example/private")), http)
        with pytest.raises(OpError):
            with_runner(lambda runner: runner.run(context.run))
        assert [request.target for request in proxy.requests] == ["http://shop.example/robots.txt"]
        assert context.turns == 0


def test_pauses_a_host_wants_are_spent_outside_of_the_worker(clock: FakeClock) -> None:
    """HTTP-96: each attempt gets its place in line once, and none is counted for waiting."""

    async def run(runner: HttpRunner, pk: int, path: str = "/x") -> int | Result:
        context = Context(fetch_op(get(server.url + path), pk=pk, id=f"op-{pk}"), OBEYING)
        try:
            return await runner.run(context.run)
        except Refund as refund:
            assert context.starts == 0
            return refund.pause // SECOND

    async def work(runner: HttpRunner) -> None:
        assert isinstance(await run(runner, 1), Result)
        assert [await run(runner, 2), await run(runner, 3), await run(runner, 2)] == [10, 20, 10]
        clock.advance(10 * SECOND)
        assert isinstance(await run(runner, 2), Result)
        assert [await run(runner, 3), await run(runner, 2), await run(runner, 4)] == [10, 20, 30]
        clock.advance(60 * SECOND)
        assert isinstance(await run(runner, 4), Result)
        assert isinstance(await run(runner, 3), Result)
        with pytest.raises(OpError, match="robots_disallowed"):
            await run(runner, 5, "/private")
        assert isinstance(await run(runner, 6), Result)

    rules = page("User-agent: *\nCrawl-delay: 10\nDisallow: /private\n")
    with serve({"/robots.txt": rules, "*": page("page")}) as server:
        with_runner(work, clock)
        assert server.paths() == ["/robots.txt", *["/x"] * 5]


@pytest.mark.parametrize(
    ("wanted", "pause"), [("-1", None), ("soon", None), ("nan", None), ("inf", None), ("86400", LONGEST_DELAY)]
)
def test_a_strange_pause_is_none_and_a_long_one_cut(wanted: str, pause: int | None, clock: FakeClock) -> None:
    """HTTP-96."""

    async def work(runner: HttpRunner) -> int | None:
        await runner.run(Context(fetch_op(get(server.url), pk=1), OBEYING).run)
        try:
            await runner.run(Context(fetch_op(get(server.url), pk=2), OBEYING).run)
        except Refund as refund:
            return refund.pause
        return None

    with serve({"/robots.txt": page(f"User-agent: *\nCrawl-delay: {wanted}\n"), "*": page("page")}) as server:
        assert with_runner(work, clock) == pause


def test_errors_of_the_page_are_the_pages() -> None:
    """HTTP-91."""
    with serve({"/robots.txt": PRIVATE, "*": status(404)}) as server:
        error, _ = fetch_failing(get(f"{server.url}/x"), obey_robots=True)
    assert error.code == "http_status_404"
