"""``scraper schedule``: list, add, pause, resume, run, delete (SCHED-50 to SCHED-55)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import Ran, scraper

FILES = {
    "site.yaml": """\
name: shop
databaseFileName: shop.db
scriptsRoot: scripts
verbsRoot: verbs
schedules:
  - {name: nightly, verb: seed, cron: "30 4 * * *", timezone: Europe/Berlin, values: {pages: 2}}
""",
    "verbs/seed.js": """\
__verb__("seed", {fields: {pages: {type: "int", required: true}, tags: {type: "stringList"}}});
function seed(ctx) {
  ctx.emit({id: "told", kind: "js", metadata: {script: "told.js"}, input: ctx.values});
}
""",
    "scripts/told.js": "module.exports = (ctx) => ({data: ctx.input});\n",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a site, and with the engine DB of a worker that had nothing to do."""
    folder = tmp_path_factory.mktemp("schedules")
    for name, text in FILES.items():
        file = folder / "sites/shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert run(folder, "worker", "run", "--until-idle").code == 0
    return folder


def run(here: Path, *arguments: str) -> Ran:
    return scraper(here, *arguments, SCRAPER_SITES_MANIFEST_DIRS="sites")


def shown(here: Path, *arguments: str) -> Any:
    done = run(here, *arguments, "--output", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def listed(here: Path) -> dict[str, Any]:
    return {one["name"]: one for one in shown(here, "schedule", "list", "--site", "shop")["schedules"]}


def test_a_schedule_is_added_run_paused_resumed_and_deleted(here: Path) -> None:
    """SCHED-50 to SCHED-55."""
    added = shown(
        here, *("schedule", "add", "shop", "hourly", "--verb", "seed", "--every", "1h", "--overlap", "queue"),
        *("--value", "pages=3", "--value", "tags=a", "--value", "tags=b"),
    )  # fmt: skip
    assert (added["state"], added["rule"], added["overlap"], added["missed"]) == (
        "waiting",
        {"every": "1h"},
        "queue",
        "once",
    )
    promised = shown(here, "schedule", "run", "shop", "hourly")["workflowID"]
    done = run(here, "worker", "run", "--until-idle", "--fail-on-error")
    assert done.code == 0, done.err
    (told,) = shown(here, "workflow", "ops", promised)["ops"]
    assert told["status"] == "succeeded"
    hourly = listed(here)["hourly"]
    assert (hourly["runs"], hourly["lastWorkflowID"], hourly["running"]) == (1, promised, None)
    assert hourly["dueAt"] == added["dueAt"]
    assert shown(here, "schedule", "pause", "shop", "hourly")["state"] == "paused"
    assert "none: paused" in run(here, "schedule", "list").out
    assert shown(here, "schedule", "resume", "shop", "hourly")["state"] == "waiting"
    assert shown(here, "schedule", "delete", "shop", "hourly")["state"] == "deleted"
    assert set(listed(here)) == {"nightly"}
    assert shown(here, "workflow", "list")["workflows"][0]["id"] == promised


def test_the_schedules_of_manifests_are_listed_and_can_only_be_paused(here: Path) -> None:
    """SCHED-51, SCHED-55."""
    nightly = listed(here)["nightly"]
    assert nightly["rule"] == {"cron": "30 4 * * *", "timezone": "Europe/Berlin"}
    assert (nightly["origin"], nightly["verb"], nightly["values"]) == ("manifest", "seed", {"pages": 2})
    refused = run(here, "schedule", "delete", "shop", "nightly")
    assert (refused.code, "site.yaml" in refused.err) == (2, True)
    out = run(here, "schedule", "list").out
    assert "30 4 * * * Europe/Berlin" in out
    assert "verb seed" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--verb seed --value pages=1", "one of --cron, --every and --after is needed"),
        ("--verb seed --value pages=1 --every 1h --cron @daily", "not several"),
        ("--verb seed --value pages=1 --every soon", '--every: "soon" is not a duration'),
        ("--verb seed --value pages=1 --every 5ms", "--every: must be at least 1s"),
        ("--verb seed --value pages=1 --cron @noon", '--cron: "@noon" is not a cron expression'),
        ("--verb seed --value pages=1 --cron @daily --timezone Berlin", '--timezone: "Berlin" is not a time zone'),
        ("--verb sead --value pages=1 --every 1h", 'did you mean "seed"'),
        ("--verb seed --value pages=many --every 1h", 'pages: "many" is not a whole number'),
        ("--verb seed --value pages --every 1h", '"pages" is not FIELD=VALUE'),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_before_it_is_stored(
    here: Path, arguments: str, message: str
) -> None:
    """SCHED-52."""
    refused = run(here, "schedule", "add", "shop", "new", *arguments.split())
    assert (refused.code, message in refused.err) == (2, True), refused.err
    assert "Traceback" not in refused.err
    assert "new" not in run(here, "schedule", "list").out


def test_names_that_are_taken_wrong_or_unknown_are_refused(here: Path) -> None:
    """SCHED-50, SCHED-52."""
    given = ("--verb", "seed", "--value", "pages=1", "--every", "1h")
    assert "already" in run(here, "schedule", "add", "shop", "nightly", *given).err
    assert "cannot be the name" in run(here, "schedule", "add", "shop", "a/b", *given).err
    assert run(here, "schedule", "add", "shopp", "x", *given).code == 2
    assert 'did you mean "nightly"' in run(here, "schedule", "pause", "shop", "nightli").err
