"""A lifecycle job whose pages are fetched by Chromium, through the command line (docs/reference/browser.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.browser.scratch import PREFIX
from tests.cli.console import make_site, scraper
from tests.external.browsing import PATIENCE, html
from tests.external.test_browser_deaths import asked, commands, eventually, temporary, worker_of
from tests.external.test_browser_hooks import OVERRIDE
from tests.servers import Call, serve

__all__ = ["temporary"]

pytestmark = pytest.mark.external

#: Rows that no server has sent.
ROWS = """<body><script>for (const name of ["kettle", "lamp"]) {
  const row = document.createElement("li");
  row.className = "row";
  row.innerHTML = `<a href="/${name}">${name}</a>`;
  document.body.append(row);
}</script>"""
JOB = """name: Watch
url: {url}
selector: .row
fields: ["name:a", "link:a@href"]
"""
SITES = ("--sites-manifest-dir", "plugins", "--engine-db", "engine.db", "--sites-dir", "state")


def make_job(folder: Path, url: str) -> None:
    """A site with one job."""
    job = make_site(folder / "plugins/shop", "shop") / "jobs/watch"
    job.mkdir(parents=True)
    (job / "job.yaml").write_text(JOB.format(url=url))
    (job / "hooks.js").write_text(OVERRIDE)


def records(folder: Path) -> list[dict[str, Any]]:
    """What the job has stored."""
    told = scraper(folder, "site", "shop", "job", "records", "watch", "--output", "json", *SITES)
    assert told.code == 0, told.err
    found: list[dict[str, Any]] = json.loads(told.out)
    return found


def test_a_job_finds_what_a_script_has_written_and_outlives_its_worker(tmp_path: Path, temporary: Path) -> None:
    """BRW-41, BRW-50: killed with kill -9 in the middle of a page, no browser is left, and no item is doubled."""
    answers: list[Callable[[Call], None]] = [Call.wait_for_client_to_leave]
    with serve({"/never": lambda call: answers[-1](call)}) as server:
        make_job(tmp_path, f"{server.url}/never")
        submitted = scraper(tmp_path, "site", "shop", "job", "run", "watch", *SITES)
        assert submitted.code == 0, submitted.err
        with worker_of(tmp_path):
            assert eventually(lambda: asked(server)), (tmp_path / "worker.log").read_text()
            assert any("--type=renderer" in words for words in commands(temporary).values())
        assert eventually(lambda: commands(temporary) == {}), commands(temporary)
        assert eventually(lambda: not list(temporary.glob(f"{PREFIX}*")))
        answers.append(html(ROWS))
        with worker_of(tmp_path) as worker:
            assert worker.wait(PATIENCE) == 0
        assert {one["fields"]["name"]: one["fields"]["link"] for one in records(tmp_path)} == {
            name: f"{server.url}/{name}" for name in ("kettle", "lamp")
        }
        again = scraper(tmp_path, "site", "shop", "job", "run", "watch", "--wait", *SITES)
        assert again.code == 0, again.err
    assert len(records(tmp_path)) == 2
    assert commands(temporary) == {}
