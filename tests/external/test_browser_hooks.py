"""The browser of hooks (docs/reference/browser.md), in real V8 and Debian's Chromium."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.browser.settings import BrowserSettings
from engine.lifecycle.browser import browser_extension
from tests.external.browsing import SCRIPTED, html
from tests.external.test_browser_deaths import commands, temporary
from tests.lifecycle.rig import Rig
from tests.servers import Call, Server, serve

__all__ = ["temporary"]

pytestmark = pytest.mark.external

#: The example of the document this is made after, in JavaScript.
OVERRIDE = """async function override_fetch(request, ctx) {
  const browser = await cdp.launch({ headless: true });
  defer(() => browser.close());
  const page = await browser.attach();
  try {
    await page.open(request.url);
  } catch (error) {
    return { error: "Navigation failed: " + error.message };
  }
  return { status: 200, body: await page.content() };
}"""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.extensions = (browser_extension(BrowserSettings()),)
    yield made
    made.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    form = """<input id=name><button onclick="go()">go</button><script>
      function go() { setTimeout(() => {
        document.body.innerHTML = "<p class=answer>hello " + document.getElementById("name").value + "</p>"; }, 100) }
      </script>"""
    routes = {"/": html(SCRIPTED), "/form": html(form), "/gone": html("gone", 410)}
    with serve({**routes, "/never": Call.wait_for_client_to_leave}) as running:
        yield running


def test_a_page_is_fetched_by_a_browser_that_is_closed_in_a_deferred_function(
    rig: Rig, server: Server, temporary: Path
) -> None:
    """BRW-50, BRW-51."""
    fetched = rig.run(OVERRIDE, "override_fetch", {"url": f"{server.url}/"})
    assert fetched.value["status"] == 200, rig.messages
    assert '<p id="price">EUR 42</p>' in fetched.value["body"]
    assert commands(temporary) == {}
    failed = rig.run(OVERRIDE, "override_fetch", {"url": "http://nowhere.invalid/"})
    assert failed.value["error"].startswith("Navigation failed: ")
    assert "ERR_NAME_NOT_RESOLVED" in failed.value["error"]
    assert rig.messages == []
    assert commands(temporary) == {}


def test_a_page_is_used_as_a_person_would(rig: Rig, server: Server, temporary: Path) -> None:
    """BRW-52 to BRW-55; what the hook leaves open is closed behind it."""
    hook = """async function before_fetch(request) {
      const browser = await cdp.launch();
      const page = await browser.attach({ userAgent: "me/1" });
      const told = await page.open(request.url + "/form", { waitUntil: "domcontentloaded", timeout: 60000 });
      const before = await page.eval("document.querySelectorAll('.answer').length");
      await page.type("#name", "you");
      await page.click("button", { timeout: 60000 });
      await page.wait_for(".answer", { state: "visible" });
      const [answer, agent, sum, picture] = await Promise.all([
        page.eval(() => document.querySelector(".answer").textContent),
        page.eval(() => navigator.userAgent),
        page.eval((pair) => pair[0] + pair[1], [40, 2]),
        page.screenshot({ fullPage: true }),
      ]);
      const other = await browser.attach();
      const gone = await other.open(request.url + "/gone");
      other.close();
      const refused = [];
      for (const attempt of [
        () => other.content(),
        () => page.open("file:///etc/passwd"),
        () => page.wait_for("#never", { timeout: 50 }),
        () => page.eval("nowhere.to.be.found"),
        () => page.open(7),
        () => page.click("p", { force: true }),
        () => page.open(request.url, { waitUntil: "sometime" }),
        () => page.screenshot({ timeout: -1 }),
        () => cdp.launch({ headless: "yes" }),
        () => page.open(request.url + "/never", { timeout: 1000 }),
      ]) await attempt().catch((error) => refused.push((error.kind || error.name) + ": " + error.message));
      return { told, before, answer, agent, sum, picture, gone, refused };
    }"""
    value = rig.run(hook, "before_fetch", {"url": server.url}).value
    assert value is not None, rig.messages
    assert (value["told"]["status"], value["told"]["url"]) == (200, f"{server.url}/form")
    assert (value["before"], value["answer"], value["agent"], value["sum"]) == (0, "hello you", "me/1", 42)
    assert base64.b64decode(value["picture"]).startswith(b"\x89PNG")
    assert value["gone"]["status"] == 410
    closed, file, never, thrown, number, option, until, timeout, headless, late = value["refused"]
    assert closed == "browser_closed: the page is closed"
    assert file.startswith('invalid_request: "file:///etc/passwd" cannot be opened')
    assert never.startswith("transport_error: ")
    assert "50ms" in never
    assert thrown.startswith("page_error: ")
    assert "nowhere is not defined" in thrown
    assert number == "TypeError: page.open: the URL must be a string that is not empty"
    assert option == 'TypeError: page.click: the option "force" is not known: timeout'
    assert until.endswith("page.open: waitUntil must be one of load, domcontentloaded, networkidle, commit")
    assert timeout.endswith("page.screenshot: timeout must be between 0 and 3600000 milliseconds, not -1")
    assert headless.endswith("cdp.launch: headless must be true or false")
    assert late.startswith("transport_error: ")
    assert commands(temporary) == {}


def test_only_close_may_stand_in_a_deferred_function(rig: Rig, server: Server, temporary: Path) -> None:
    """BRW-51: it is synchronous, works twice, and after it nothing does."""
    hook = """async function before_fetch(request) {
      const browser = await cdp.launch();
      const page = await browser.attach();
      defer(() => { browser.close(); page.close(); log("closed twice") });
      defer(() => page.close());
      defer(() => page.content());
      defer(() => cdp.launch());
      defer(() => { if (page.close() !== undefined) log("not synchronous") });
      return { url: request.url };
    }"""
    assert rig.run(hook, "before_fetch", {"url": "u"}).value == {"url": "u"}
    assert rig.messages[-1] == "closed twice"
    refused = [message for message in rig.messages if "cannot be called in a deferred function" in message]
    assert [next(name for name in ("page.content", "cdp.launch") if name in message) for message in refused] == [
        *("cdp.launch", "page.content")
    ]
    assert commands(temporary) == {}


def test_a_hook_that_runs_out_of_time_leaves_no_browser(rig: Rig, server: Server, temporary: Path) -> None:
    """BRW-41."""
    rig.settings = {"hook_seconds": 8.0}
    hook = """async function before_fetch(request) {
      const page = await (await cdp.launch()).attach();
      await page.open(request.url, { timeout: 600000 });
    }"""
    assert rig.run(hook, "before_fetch", {"url": f"{server.url}/never"}).outcome == "threw"
    assert commands(temporary) == {}


def test_a_chromium_that_dies_is_an_error_of_the_hook(rig: Rig, server: Server, temporary: Path) -> None:
    """BRW-41: what is asked of it later is rejected, and nothing is left."""

    def kill(call: Call) -> None:
        for pid, words in commands(temporary).items():
            if "--remote-debugging-pipe" in words:
                os.kill(pid, signal.SIGKILL)
        call.wait_for_client_to_leave()

    hook = """async function before_fetch(request) {
      const page = await (await cdp.launch()).attach();
      const said = await page.open(request.url).catch((error) => error.kind);
      return { said, then: await page.content().catch((error) => error.kind) };
    }"""
    with serve({"/": kill}) as deadly:
        value = rig.run(hook, "before_fetch", {"url": f"{deadly.url}/"}).value
    assert value == {"said": "browser_failed", "then": "browser_failed"}
    assert commands(temporary) == {}
