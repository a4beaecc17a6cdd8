"""``scraper site NAME job``, on the site that ships."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from engine.demo_shop import PERIOD, Shop
from engine.resources import resource
from tests.cli.console import Ran, scraper


@pytest.fixture
def watch(tmp_path: Path) -> Path:
    """The site that ships, on a port of its own, so that tests beside this one may use the usual one."""
    folder = tmp_path / "sites" / "watch-demo"
    shutil.copytree(resource("sites") / "watch-demo", folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for file in folder.glob("jobs/*/job.yaml"):
        file.write_text(file.read_text().replace("8642", str(port)))
    return tmp_path


def job(cwd: Path, *arguments: str) -> Ran:
    return scraper(cwd, "--sites-manifest-dir", "sites", "site", "watch-demo", "job", *arguments)


def ok(cwd: Path, *arguments: str) -> Any:
    ran = job(cwd, *arguments, "--output", "json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_a_job_is_checked_tried_run_and_looked_at(watch: Path) -> None:
    """JOB-111, JOB-1511, JOB-1512, JOB-709, JOB-820"""
    checked = {one["job"]: one["hooks"] for one in ok(watch, "check")}
    assert checked == {
        "deals": ["after_extract", "filter_item", "on_error", "on_finished", "on_success"],
        "prices": [],
    }
    tried = ok(watch, "debug", "deals")
    assert (tried["status"], bool(tried["items"])) == ("success", True)
    stages = {stage["name"]: stage["status"] for stage in tried["stages"]}
    assert (stages["after_extract"], stages["store"], stages["before_fetch"]) == ("success", "inactive", "inactive")
    folder = watch / "sites" / "watch-demo" / "jobs" / "deals"
    assert "Deals" in (folder / "deals-response.html").read_text()
    assert json.loads((folder / "deals-fields.json").read_text()) == tried["items"]
    assert not (watch / "state" / "sites").exists()

    first = ok(watch, "run", "prices", "--wait")
    assert (first["status"], first["iteration"], len(first["new"])) == ("succeeded", "prices/1", 6)
    second = ok(watch, "run", "prices", "--wait")
    known = {json.dumps(item["fields"]) for item in first["new"]}
    assert known.isdisjoint(json.dumps(item["fields"]) for item in second["new"])
    stored = ok(watch, "records", "prices", "--limit", "100")
    assert len(stored) == 6 + len(second["new"])
    (notice,) = [row for row in ok(watch, "deliveries", "prices") if row["id"] == "prices/1/1/notification"]
    assert (notice["status"], notice["payload"]["title"]) == ("sent", "6 new prices")

    listed = {one["job"]: one for one in ok(watch, "list")}
    assert (listed["prices"]["state"], listed["prices"]["last"]["cycles"]) == ("stopped", {"success": 1})


def test_a_job_is_started_and_stopped(watch: Path) -> None:
    """JOB-1510, JOB-113, JOB-110"""
    assert job(watch, "start", "Prices").out == "prices: started\n"
    assert job(watch, "start", "prices").out == "prices: is started already\n"
    assert {one["job"]: one["state"] for one in ok(watch, "list")} == {"deals": "stopped", "prices": "waiting"}
    assert job(watch, "stop", "prices").out == "prices: stopped\n"
    assert "is not started" in job(watch, "stop", "prices").err
    file = watch / "sites" / "watch-demo" / "jobs" / "prices" / "job.yaml"
    file.write_text(file.read_text() + "enabled: false\n")
    refused = job(watch, "start", "prices")
    assert (refused.code, "is disabled" in refused.err) == (2, True)
    unknown = job(watch, "run", "price")
    assert (unknown.code, 'did you mean "prices"?' in unknown.err) == (2, True)


def test_faults_are_told_with_their_lines_and_tests_that_fail_end_with_1(watch: Path) -> None:
    """JOB-111, JOB-116, JOB-1503"""
    jobs = watch / "sites" / "watch-demo" / "jobs"
    deals = jobs / "deals"
    passed = job(watch, "test", "deals", "small")
    assert (passed.code, passed.out.splitlines()[-1]) == (0, "1 tests, 0 failed")
    (deals / "tests.js").write_text("function test_no() { spyweb.assert_eq(1, 2, 'of course') }")
    failed = job(watch, "test", "deals")
    assert (failed.code, "of course" in failed.out) == (1, True)
    nothing = job(watch, "test", "prices")
    assert (nothing.code, nothing.out) == (0, "no tests\n")
    (deals / "hooks.js").write_text("function before_fetch( {")
    refused = job(watch, "start", "deals")
    assert (refused.code, "jobs/deals/hooks.js:" in refused.err, "SyntaxError" in refused.err) == (1, True, True)
    prices = jobs / "prices" / "job.yaml"
    text = prices.read_text().replace("selector: .good", "selector: 'li['").replace("price:.price", "price:::")
    prices.write_text(text)
    ran = job(watch, "check")
    assert ran.code == 1
    assert "prices: 2 faults" in ran.out
    line = text.splitlines().index("selector: 'li['") + 1
    assert f"job.yaml:{line}: job.selector: bad CSS selector" in ran.out
    assert "jobs/deals/hooks.js:" in ran.out
    assert "SyntaxError" in ran.out
    prices.write_text(text + "colour: red\n")
    broken = job(watch, "run", "prices")
    assert (broken.code, f"job.yaml:{len(text.splitlines()) + 1}: job has an unknown key" in broken.err) == (1, True)


def test_of_the_shops_pages_one_thing_changes_at_a_time() -> None:
    def lines(path: str, tick: int) -> set[str]:
        page = Shop(lambda: float(tick * PERIOD)).render(path)
        assert page is not None
        return {line for line in page.decode().splitlines() if line.startswith("<li")}

    for tick in range(100, 112):
        assert len(lines("/shop/prices.html", tick) - lines("/shop/prices.html", tick - 1)) == 1
        assert len(lines("/shop/deals.html", tick) - lines("/shop/deals.html", tick - 1)) == 1
