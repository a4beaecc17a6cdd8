"""What a browser op says and does where there is no Chromium, or before one is started (docs/reference/browser.md)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.browser import scratch, settings
from engine.browser.client import Browser
from engine.browser.failures import classified, unstarted
from engine.browser.scratch import MARK, PREFIX, end_forgotten, new_scratch, processes_of
from engine.browser.settings import BrowserSettings, missing, require_browser
from engine.clock import SystemClock
from engine.config import BrowserLimits, Settings
from engine.doctor import Health, examine
from engine.errors import OpError
from engine.lifecycle.browser import browser_extension
from engine.liveness import own_identity, start_time
from engine.model import Result
from engine.plugins.registry import discover
from engine.runners.browser import BrowserRunner, BrowserRunnerSettings
from engine.runners.browser_cookies import BrowserCookies
from engine.runners.http_client import HttpClient, HttpRunnerSettings
from engine.runners.http_wire import Wire
from tests.lifecycle.rig import Rig
from tests.runners.ops import Context, fetch_op

GIVEN = {"request": {"url": "http://127.0.0.1:9/"}}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with Playwright and without any Chromium."""
    monkeypatch.setattr(settings, "playwright_version", lambda: "1.0")
    monkeypatch.setattr(settings, "_ELSEWHERE", ())
    monkeypatch.setenv("PATH", str(tmp_path))


def run(given: Any, browser: BrowserSettings | None = None) -> tuple[OpError, int]:
    """The error of one op, and how often it began."""
    context = Context(fetch_op(given, kind="browser/fetch"))

    async def work() -> Result:
        client = HttpClient(HttpRunnerSettings(), SystemClock(), Wire())
        try:
            runner = BrowserRunner(BrowserRunnerSettings(browser=browser or BrowserSettings()), client)
            return await runner.run(context.run)
        finally:
            await client.aclose()

    with pytest.raises(OpError) as failed:
        asyncio.run(work())
    return failed.value, context.starts


@pytest.mark.usefixtures("bare")
def test_an_op_says_what_to_install() -> None:
    """BRW-31: before it began, and for good."""
    error, starts = run(GIVEN)
    assert (error.code, error.retryable, starts) == ("browser_missing", False, 0)
    assert "no Chromium is found" in error.message
    assert "pip install 'scraper[browser]'" in error.message
    assert "apt-get install chromium" in error.message
    named, _ = run(GIVEN, BrowserSettings(executable="no-such-browser"))
    assert 'browser.executable "no-such-browser" is no program' in named.message


@pytest.mark.usefixtures("bare")
def test_a_hook_is_told_the_same(tmp_path: Path) -> None:
    """BRW-31, BRW-50."""
    rig = Rig(tmp_path)
    rig.extensions = (browser_extension(BrowserSettings()),)
    try:
        hook = """async function before_fetch(r) {
          try { await cdp.launch() } catch (error) { return { kind: error.kind, message: error.message } }
        }"""
        told = rig.run(hook, "before_fetch", {}).value
    finally:
        rig.close()
    assert told["kind"] == "browser_missing"
    assert "apt-get install chromium" in told["message"]


def test_the_first_usual_program_is_taken_unless_one_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """BRW-31, BRW-43."""
    monkeypatch.setattr(settings, "playwright_version", lambda: "1.0")
    for name in ("google-chrome", "chromium", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert require_browser(BrowserSettings()) == str(tmp_path / "chromium")
    assert require_browser(BrowserSettings(executable="mine")) == str(tmp_path / "mine")
    assert missing(BrowserSettings(executable=str(tmp_path / "mine"))) is None
    monkeypatch.setattr(settings, "playwright_version", lambda: None)
    assert missing(BrowserSettings()) == "Playwright is not installed"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [BrowserSettings(sandbox=how).sandboxed for how in ("auto", "always", "never")] == [False, True, False]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert BrowserSettings().sandboxed


@pytest.mark.usefixtures("bare")
def test_the_doctor_tells_about_the_browser(tmp_path: Path) -> None:
    """BRW-31: it is only amiss where somebody asked for one."""

    def finding(limits: BrowserLimits) -> Any:
        chosen = Settings(engine_db=str(tmp_path / "engine.db"), sites_dir=tmp_path, browser=limits)
        return next(one for one in examine(chosen, discover(chosen)) if one.check == "browser")

    none = finding(BrowserLimits())
    assert (none.health, "no Chromium" in none.detail, "apt-get" in none.advice) == (Health.OK, True, True)
    assert finding(BrowserLimits(executable="nowhere")).health is Health.WARNING


@pytest.mark.parametrize(
    ("given", "code", "named"),
    [
        ({"request": {"url": "http://a/", "method": "POST"}}, "invalid_request", "POST"),
        ({"request": {"url": "http://a/", "body": "x"}}, "invalid_request", "without body"),
        ({"request": {"url": "http://a/", "followRedirects": False}}, "invalid_request", "followRedirects"),
        ({"request": {"url": "http://a/", "headers": {"host": "b"}}}, "invalid_request", "Host"),
        ({"request": {"url": "file:///etc/passwd"}}, "invalid_request", "file:///etc/passwd"),
        ({"request": {"url": "{{ .input.page }}"}}, "template_error", "input.page"),
        ({**GIVEN, "browser": 7}, "invalid_input", "input.browser must be an object, not 7"),
        ({**GIVEN, "browser": {"waitfor": "x"}}, "invalid_input", "input.browser.waitfor is not known"),
        ({**GIVEN, "browser": {"waitFor": " "}}, "invalid_input", "input.browser.waitFor must be a selector"),
        ({**GIVEN, "browser": {"waitUntil": "idle"}}, "invalid_input", "must be one of load, domcontentloaded"),
        ({**GIVEN, "browser": {"screenshot": "half"}}, "invalid_input", 'must be true, false or "full", not "half"'),
    ],
)
def test_what_is_wrong_with_an_op_is_found_before_it_begins(given: Any, code: str, named: str) -> None:
    """BRW-10, BRW-11."""
    error, starts = run(given)
    assert (error.code, error.retryable, starts) == (code, False, 0)
    assert named in error.message


@pytest.mark.parametrize(
    ("message", "code", "retryable"),
    [
        ("Page.goto: net::ERR_NAME_NOT_RESOLVED at http://x/\nCall log:\n  - navigating", "transport_error", True),
        ("Page.goto: net::ERR_TOO_MANY_REDIRECTS at http://x/", "too_many_redirects", False),
        ("Page.goto: net::ERR_UNSAFE_PORT at http://x/", "invalid_request", False),
        ("Page.goto: Target page, context or browser has been closed", "browser_failed", True),
        ("Page.evaluate: ReferenceError: x is not defined", "page_error", False),
    ],
)
def test_playwright_s_errors_are_the_op_s(message: str, code: str, retryable: bool) -> None:
    """BRW-30."""
    error = classified(type("Error", (Exception,), {})(message))
    assert (error.code, error.retryable) == (code, retryable)
    assert "Call log" not in error.message
    late = classified(type("TimeoutError", (Exception,), {})("Page.goto: Timeout 50ms exceeded."))
    assert (late.code, late.retryable) == ("transport_error", True)


def test_a_chromium_that_does_not_start_says_why_in_one_line() -> None:
    """BRW-31."""
    account = (
        "BrowserType.launch: Target page, context or browser has been closed\nBrowser logs:\n\n"
        "<launching> /usr/bin/chromium --a --b\n[pid=7][err] a warning\n[pid=7][err] [7:7:FATAL:x.cc] no room\n"
        "Call log:\n  - <launching> /usr/bin/chromium --a --b\n  - [pid=7][err] [7:7:FATAL:x.cc] no room\n"
        "  - [pid=7] <process did exit: exitCode=1, signal=null>"
    )
    assert unstarted("chromium", Exception(account)).message == "chromium did not start: [7:7:FATAL:x.cc] no room"
    silent = "BrowserType.launch: closed\nCall log:\n  - [pid=7] <process did exit: exitCode=3, signal=null>"
    assert unstarted("chromium", Exception(silent)).message == "chromium did not start: exitCode=3, signal=null"
    root = unstarted("chromium", Exception("Chromium sandboxing failed!\n[pid=7][err] Running as root"))
    assert 'browser.sandbox to "never"' in root.message


def test_cookies_go_to_the_browser_and_come_back() -> None:
    """BRW-40: what did not change is not written, names without a dot keep http.cookiejar's spelling."""
    fields = {"name": "a", "value": "1", "domain": "localhost.local", "path": "/", "secure": False, "expires": None}
    shared = {**fields, "name": "b", "domain": ".shop.example", "expires": 2_000_000_000}
    jar = BrowserCookies(json.dumps({"localhost.local;/;a": fields, ".shop.example;/;b": shared}))
    first, second = jar.told()
    assert (first["domain"], first["expires"]) == ("localhost", -1)
    assert (second["domain"], second["expires"]) == (".shop.example", 2_000_000_000)
    assert jar.changes([first, second]) is None
    later = json.loads(jar.changes([{**first, "value": "2"}]) or "")
    assert later["localhost.local;/;a"]["value"] == "2"
    assert later[".shop.example;/;b"] is None
    assert BrowserCookies(None).changes([]) is None


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where browsers work during a test."""
    monkeypatch.setattr(scratch, "_places", lambda: [tmp_path])
    return tmp_path


def sleeper(arguments: list[str], **environment: str) -> subprocess.Popen[bytes]:
    """A process that stays until it is killed."""
    code = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    words = [sys.executable, "-S", "-c", code, *arguments]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    child.stdout.read(1)
    return child


def test_what_dead_owners_left_is_ended_and_nothing_else(temporary: Path) -> None:
    """BRW-42: by the directory in a command line or an environment, or by the mark alone."""
    boot, namespace, _, _ = own_identity().split(" ")
    dead = f"{boot} {namespace} {os.getpid()} 1"
    left, own = new_scratch(), new_scratch()
    (left / "owner").write_text(dead)
    gone = temporary / f"{PREFIX}gone"
    doomed = [
        sleeper([f"--user-data-dir={left}/profile"]),
        sleeper([], TMPDIR=str(left)),
        sleeper([], **{MARK: f"{dead};{gone}"}),
    ]
    spared = [sleeper([f"--user-data-dir={own}/profile"]), sleeper([], **{MARK: f"{own_identity()};{own}"})]
    try:
        end_forgotten()
        assert [start_time(child.pid) for child in doomed] == [None, None, None]
        assert [child.poll() for child in spared] == [None, None]
        assert sorted(processes_of(own)) == sorted(child.pid for child in spared)
        assert (left.exists(), own.exists()) == (False, True)
    finally:
        for child in (*doomed, *spared):
            child.kill()
            child.communicate()


def test_a_browser_works_where_chromium_s_socket_has_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """BRW-42: and is looked for in both places."""
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert scratch._places() == [Path("/tmp").resolve(), long]


def test_a_host_that_can_not_work_is_an_error_with_its_words(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, tmp_path: Path
) -> None:
    """BRW-30, BRW-44: nothing of it is left, and it saw nothing that is not its business."""
    monkeypatch.setattr(settings, "playwright_version", lambda: "1.0")
    program = tmp_path / "chromium"
    program.write_text(f"#!/bin/sh\nenv >{tmp_path}/seen\necho no room at all >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    monkeypatch.setattr(sys, "executable", str(program))
    browser = Browser(BrowserSettings(executable=str(program)))
    with pytest.raises(OpError) as failed:
        browser.launch().result(60)
    browser.close()
    browser.close()
    assert (failed.value.code, failed.value.retryable) == ("browser_failed", True)
    assert "no room at all" in failed.value.message
    assert not browser.scratch.exists()
    seen = (tmp_path / "seen").read_text().splitlines()
    assert f"TMPDIR={browser.scratch}" in seen
    assert "HTTPS_PROXY=http://proxy.invalid" in seen
    assert "secret" not in "".join(seen)
    with pytest.raises(OpError, match="closed"):
        browser.launch().result(60)
