"""An operator's commands through the installed script, on a crawl that went half well."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from engine.resources import resource
from tests.cli.console import Ran, scraper

FILES = {
    "site.yaml": """\
name: shop
databaseFileName: shop.db
scriptsRoot: scripts
verbsRoot: verbs
helpRoot: help
queuePolicies:
  - {queue: items, maxInFlight: 2, rateLimit: {kind: token_bucket, ratePerSecond: 1000, burst: 1000}}
""",
    "help/usage.md": "# How to shop\n\nRun `seed`.\n",
    "verbs/seed.js": """\
__verb__("seed", {short: "Seed items"});
function seed(ctx) {
  const list = ctx.emit({id: "list", kind: "js", queue: "items", metadata: {script: "list.js"}});
  for (const name of ["a", "b", "broken"])
    ctx.emit({id: name, kind: "js", queue: "items", dependsOn: [{opID: list}],
      metadata: {script: "item.js"}, input: {name}});
  ctx.emit({id: "report", kind: "js", queue: "", dependsOn: [{opID: "a"}, {opID: "broken"}],
    metadata: {script: "list.js"}});
}
""",
    "scripts/list.js": "module.exports = (ctx) => { ctx.log('listing', 3); return {items: 3}; };\n",
    "scripts/item.js": """\
module.exports = function (ctx) {
  const name = ctx.input.name;
  ctx.writeArtifact({name: "page", kind: "html", contentType: "text/html", body: "<h1>" + name + "</h1>"});
  if (name === "broken") throw new Error("no price");
  ctx.writeRecord("items", name, {name, price: name === "a" ? 10 : 9.5, tags: ["x"]});
  return {name};
};
""",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which the crawl ``w`` has run: two items, one failure, one op canceled for it."""
    folder = tmp_path_factory.mktemp("operating")
    for name, text in FILES.items():
        file = folder / "sites/shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    done = run(folder, "site", "shop", "run", "seed", "--workflow-id", "w", "--wait")
    assert done.code == 1, done.err
    return folder


def run(here: Path, *arguments: str) -> Ran:
    return scraper(here, *arguments, **({"SCRAPER_SITES_MANIFEST_DIRS": "sites"} if (here / "sites").exists() else {}))


def shown(here: Path, *arguments: str) -> Any:
    done = run(here, *arguments, "--output", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_workflows_are_listed_filtered_and_paged(here: Path) -> None:
    (line,) = shown(here, "workflow", "list", "--site", "shop", "--status", "failed", "--since", "1h")["workflows"]
    assert (line["id"], line["opsDone"], line["opsTotal"], line["failed"]) == ("w", 5, 5, 1)
    assert shown(here, "workflow", "list", "--status", "running") == {"workflows": [], "more": False}
    assert shown(here, "workflow", "list", "--since", "2030-01-01T00:00:00Z")["workflows"] == []
    page = shown(here, "workflow", "ops", "w", "--limit", "2")
    assert ([one["id"] for one in page["ops"]], page["more"]) == (["list", "a"], True)
    rest = shown(here, "workflow", "ops", "w", "--limit", "10", "--offset", "2")
    assert ([one["id"] for one in rest["ops"]], rest["more"]) == (["b", "broken", "report"], False)
    (failed,) = shown(here, "workflow", "ops", "w", "--status", "failed")["ops"]
    assert failed["error"]["message"] == "no price"


def test_a_graph_is_a_tree_a_flowchart_a_picture_or_data(here: Path) -> None:
    tree = run(here, "workflow", "graph", "w").out.splitlines()
    assert tree[0].startswith("w (1 canceled, 1 failed, 3 succeeded)")
    assert [re.sub(r"^[ │├└─]+", "", line).split()[1] for line in tree[1:]] == ["list", "a", "b", "broken", "report"]
    assert "(also after a)" in tree[-1]
    assert "… and 2 more (1 failed, 1 succeeded)" in run(here, "workflow", "graph", "w", "--most", "1").out
    assert run(here, "workflow", "graph", "w", "--mermaid").out.startswith("flowchart TD\n")
    picture = ElementTree.fromstring(run(here, "workflow", "graph", "w", "--svg").out)
    assert len(picture.findall("{http://www.w3.org/2000/svg}g")) == 5
    nodes = shown(here, "workflow", "graph", "w")["ops"]
    assert next(one for one in nodes if one["id"] == "report")["after"] == ["a", "broken"]
    both = run(here, "workflow", "graph", "w", "--svg", "--mermaid")
    assert both.code == 2


def test_watching_an_ended_workflow_ends_at_once(here: Path) -> None:
    watched = run(here, "workflow", "watch", "w", "--log-format", "json")
    assert watched.code == 1
    assert watched.out == "Status: failed\n"
    assert json.loads(watched.err)["failed"] == 1


def test_queues_show_their_policies_and_can_be_paused(here: Path) -> None:
    lines = {one["queue"]: one for one in shown(here, "queue", "list", "--site", "shop")["queues"]}
    assert (lines["items"]["maxInFlight"], lines["items"]["rate"], lines["items"]["paused"]) == (2, 1000.0, False)
    assert shown(here, "queue", "pause", "shop", "items")["state"] == "paused"
    assert "paused" in run(here, "queue", "list").out
    assert "scraper queue resume" in run(here, "engine", "doctor").out
    assert shown(here, "queue", "resume", "shop", "items")["state"] == "open"
    assert run(here, "queue", "pause", "shop", "nowhere").code == 2


def test_artifacts_are_listed_printed_and_saved(here: Path, tmp_path: Path) -> None:
    found = shown(here, "artifact", "list", "w")["artifacts"]
    assert {one["opID"] for one in found} == {"a", "b", "broken"}
    (page,) = shown(here, "artifact", "list", "w", "--op", "broken")["artifacts"]
    assert run(here, "artifact", "cat", page["id"]).out == "<h1>broken</h1>"
    file = tmp_path / "page.html"
    assert shown(here, "artifact", "save", page["id"], str(file))["bytes"] == len("<h1>broken</h1>")
    assert file.read_text() == "<h1>broken</h1>"
    again = run(here, "artifact", "save", page["id"], str(file))
    assert (again.code, "--force" in again.err) == (2, True)
    assert run(here, "artifact", "save", page["id"], str(file), "--force").code == 0
    assert run(here, "artifact", "cat", "nothing").code == 2


def test_records_are_listed_and_exported(here: Path) -> None:
    assert shown(here, "records", "list", "shop") == {"collections": [{"collection": "items", "records": 2}]}
    (cheap,) = shown(here, "records", "list", "shop", "items", "--where", "price<10")["records"]
    assert cheap["key"] == "b"
    lines = run(here, "records", "export", "shop", "--where", "name=a").out.splitlines()
    assert [json.loads(line)["data"] for line in lines] == [{"name": "a", "price": 10, "tags": ["x"]}]
    rows = list(csv.DictReader(io.StringIO(run(here, "records", "export", "shop", "items", "--format", "csv").out)))
    assert [(row["key"], row["price"], row["tags"]) for row in rows] == [("a", "10", '["x"]'), ("b", "9.5", '["x"]')]
    unknown = run(here, "records", "list", "shop", "item")
    assert (unknown.code, 'did you mean "items"?' in unknown.err) == (2, True)
    assert run(here, "records", "export", "shop", "--where", "price is low").code == 2


def test_the_doctor_finds_a_healthy_installation_healthy(here: Path) -> None:
    findings = {one["check"]: one for one in shown(here, "engine", "doctor")["findings"]}
    assert {"versions", "engine db", "leases", "workers", "durability", "integrity", "clock", "sites"} <= set(findings)
    assert {one["health"] for one in findings.values()} == {"ok"}
    assert findings["durability"]["detail"] == "wal, synchronous 2"


def test_the_doctor_names_what_is_broken_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sites/bad").mkdir(parents=True)
    (tmp_path / "sites/bad/site.yaml").write_text("name: bad\n")
    (tmp_path / "not.db").write_text("this is no database, and long enough to be read as one" * 20)
    done = run(tmp_path, "engine", "doctor", "--engine-db", "not.db", "--output", "json")
    assert done.code == 1
    failed = {one["check"]: one for one in json.loads(done.out)["findings"] if one["health"] == "failed"}
    assert set(failed) == {"engine db", "site bad"}
    assert failed["site bad"]["advice"] == "scraper site check bad"


def test_the_configuration_is_shown_with_its_origins(here: Path) -> None:
    file = here / "config.yaml"
    file.write_text("leases:\n  duration: 1m\nengineDB: postgresql://me:secret@db/engine\n")
    settings = shown(here, "--config", str(file), "config", "show")["settings"]
    assert settings["leases.duration"] == {"value": "1m", "from": f"{file}:2"}
    assert settings["engineDB"]["value"] == "postgresql://me:***@db/engine"
    assert settings["leases.maxLost"] == {"value": 5, "from": "default"}
    assert shown(here, "config", "check")["sites"] == 1
    file.write_text("lease: {}\n")
    bad = run(here, "--config", str(file), "config", "check")
    assert (bad.code, 'did you mean "leases"?' in bad.err) == (1, True)


def test_help_shows_every_page_of_the_program_and_of_the_sites(here: Path) -> None:
    told = shown(here, "help")
    topics = {one["topic"] for one in told["topics"]}
    assert {"quickstart", "guarantee", "js-api", "shop/usage"} <= topics
    assert run(here, "help", "shop/usage").out.startswith("# How to shop\n")
    for alias in told["aliases"]:
        assert run(here, "help", alias).code == 0, alias
    unknown = run(here, "help", "quickstrat")
    assert (unknown.code, 'did you mean "quickstart"?' in unknown.err) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts_are_printed(tmp_path: Path, shell: str) -> None:
    assert "_SCRAPER_COMPLETE" in run(tmp_path, "completion", shell).out


def test_a_shell_completes_commands(here: Path) -> None:
    asked = {"COMP_WORDS": "scraper work", "COMP_CWORD": "1", "_SCRAPER_COMPLETE": "complete_bash"}
    assert scraper(here, **asked).out.split() == ["worker", "workflow"]
    asked |= {"COMP_WORDS": "scraper site sh", "COMP_CWORD": "2", "SCRAPER_SITES_MANIFEST_DIRS": "sites"}
    assert scraper(here, **asked).out.split() == ["show", "shop"]
    asked |= {"COMP_WORDS": "scraper site shop run s", "COMP_CWORD": "4"}
    assert scraper(here, **asked).out.split() == ["seed"]


def test_what_a_script_logged_is_printed(here: Path) -> None:
    (line,) = shown(here, "op", "logs", "list")["lines"]
    assert line["message"] == "listing 3"
    assert run(here, "op", "logs", "list").out.endswith(" info listing 3\n")


def test_an_engine_database_is_migrated_and_workers_are_listed(tmp_path: Path) -> None:
    made = shown(tmp_path, "engine", "migrate", "--engine-db", "other.db")
    newest = len(list(resource("migrations/versions").glob("[0-9]*.py")))
    assert made["currentVersion"] == newest
    known = shown(tmp_path, "engine", "migrations", "status", "--engine-db", "other.db")["migrations"]
    assert [one["version"] for one in known if one["appliedAt"]] == list(range(1, newest + 1))
    assert shown(tmp_path, "worker", "list", "--engine-db", "other.db") == {"workers": []}


def test_a_failed_workflow_is_retried_then_deleted_or_forgotten(here: Path) -> None:
    script = here / "sites/shop/scripts/item.js"
    script.write_text(FILES["scripts/item.js"].replace('if (name === "broken")', "if (false)"))
    assert run(here, "workflow", "delete", "other").code == 2
    assert shown(here, "workflow", "retry", "w")["readyAgain"] == 2
    busy = run(here, "workflow", "delete", "w")
    assert (busy.code, "cancel it first" in busy.err) == (2, True)
    assert run(here, "worker", "run", "--until-idle").code == 0
    assert shown(here, "workflow", "show", "w")["status"] == "succeeded"
    assert run(here, "workflow", "retry", "w").code == 2
    assert run(here, "engine", "gc").code == 2
    forgotten = shown(here, "engine", "gc", "--older-than", "0s")
    assert (forgotten["workflows"], forgotten["ops"]) == (1, 5)
    assert shown(here, "workflow", "list")["workflows"] == []
    assert run(here, "site", "shop", "run", "seed", "--workflow-id", "w2", "--wait").code == 0
    assert shown(here, "workflow", "delete", "w2")["deletedOps"] == 5
