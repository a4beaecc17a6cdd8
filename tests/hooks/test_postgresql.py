"""Crawls on PostgreSQL: the engine DB, the site DB, and two machines that share both (HOOK-78, HOOK-79)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.clock import SECOND
from engine.projection.archive_views import ArchiveReader
from tests.hooks.crashing import await_file, living, start_worker
from tests.hooks.lab import Lab, record


class SharedLab(Lab):
    """Both databases in one PostgreSQL database."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, "database: {dialect: postgresql}\n", engine_db=url)
        self.settings = replace(self.settings, site_database_url=url)
        self._url = url.replace("postgresql+psycopg://", "postgresql://", 1)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        with contextlib.closing(psycopg.connect(self._url)) as database:
            found = database.execute(sql.encode(), list(parameters))
            names = [column.name for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.fixture
def lab(tmp_path: Path, pg_url: str) -> SharedLab:
    return SharedLab(tmp_path, pg_url)


def test_a_crawl_with_children_retries_and_background_hooks(lab: SharedLab) -> None:
    lab.hook("d/on_Snapshot__00_d.daemon.bg.sh", "echo up; sleep 600")
    lab.hook("links/on_Snapshot__10_links.sh", record(type="Snapshot", url="http://a.test/1", tags="x"))
    lab.hook("flaky/on_Snapshot__20_flaky.sh", "[ -e second ] || { touch second; exit 1; }; echo fox jumps > t.txt")
    lab.hook("bg/on_Snapshot__30_bg.bg.sh", f"sleep 0.2; {record(type='Tag', name='y')}")
    lab.crawl("http://a.test/", max_depth=1)
    assert lab.statuses() == ["sealed", "sealed", "sealed"]
    counted = lab.rows(
        "SELECT plugin, status, attempts, count(*) AS n FROM archive_results GROUP BY 1, 2, 3 ORDER BY 1"
    )
    assert [tuple(row.values()) for row in counted] == [
        ("bg", "succeeded", 1, 2),
        ("d", "succeeded", 1, 2),
        ("flaky", "succeeded", 2, 2),
        ("links", "succeeded", 1, 2),
    ]
    reader = ArchiveReader(lab.site, lab.settings.sites_dir, lab.settings.site_database_url)
    assert {one.url for one in reader.search("fox jumps")} == {"http://a.test/", "http://a.test/1"}
    assert reader.tags(reader.snapshot("http://a.test/1").id) == ["x", "y"]
    assert reader.counts("c1")["snapshots"] == {"sealed": 2}


def test_long_urls_and_many_words_fit(lab: SharedLab) -> None:
    lab.hook("text/on_Snapshot__10_text.sh", "seq 100000 400000 | tr '\\n' ' ' > t.txt")
    url = f"http://a.test/?q={'x%20y' * 2_000}"
    lab.crawl(url)
    assert lab.statuses() == ["sealed", "sealed"]
    reader = ArchiveReader(lab.site, lab.settings.sites_dir, lab.settings.site_database_url)
    assert [one.url for one in reader.search("100042")] == [url]


def test_the_hooks_of_a_snapshot_stay_on_the_machine_that_began_it(lab: SharedLab) -> None:
    for number in range(4):
        lab.hook(f"p{number}/on_Snapshot__{number}0_p.sh", "sleep 0.05; exit 10")
    lab.add(*(f"http://a.test/{number}" for number in range(8)))
    # the first one leaves the crawl when it has begun three of its snapshots
    while len(lab.rows("SELECT id FROM snapshots WHERE status <> 'queued'")) < 3:
        lab.work(machine_id="one", max_workers=1, max_cycles=1)
    lab.work(machine_id="two")
    lab.work(machine_id="one")
    machines = lab.rows("SELECT snapshot_id, count(DISTINCT machine) AS n FROM archive_results GROUP BY snapshot_id")
    assert [row["n"] for row in machines] == [1] * 8
    assert {row["machine"] for row in lab.rows("SELECT DISTINCT machine FROM archive_results")} == {"one", "two"}
    lab.work(machine_id="two")
    assert lab.statuses() == ["sealed"] * 9


@pytest.mark.parametrize("shared", [True, False])
def test_a_dead_machines_snapshots_go_on_elsewhere_from_where_their_directory_allows(
    lab: SharedLab, shared: bool
) -> None:
    """Two machines share a crawl; the one that is killed leaves its directories, or takes them along."""
    folder, urls = lab.folder, [f"http://a.test/{number}" for number in range(8)]
    say = f'echo "$0 $SNAPSHOT_ID" | sed "s/.*__.._//; s/\\.sh//" >> {folder}/log'
    lab.hook("a/on_Snapshot__10_a.sh", f"{say}; exit 10")
    lab.hook(
        "b/on_Snapshot__20_b.sh",
        f"[ $MACHINE_ID = two ] || {{ touch {folder}/up; [ -e {folder}/go ] || sleep 600; }}; {say}; exit 10",
    )
    lab.hook("c/on_Snapshot__30_c.sh", f"{say}; exit 10")
    lab.add(*urls)
    over = "SELECT 1 FROM archive_results WHERE end_ts IS NOT NULL"
    lab.work(machine_id="two", max_workers=1, until_idle=False, until=lambda: bool(lab.rows(over)))
    url = f"{lab.settings.site_database_url}&application_name={{site}}"
    worker = start_worker(lab, "--machine-id", "one", "--lease-duration", "500ms", SCRAPER_SITE_DATABASE_URL=url)
    await_file(folder / "up")
    worker.kill()
    worker.wait()
    for pid in living(lab):
        os.kill(pid, signal.SIGKILL)
    (folder / "go").touch()
    ran = lab.rows("SELECT snapshot_id, plugin, machine FROM archive_results WHERE machine <> '' ORDER BY plugin")
    orphans = {row["snapshot_id"] for row in ran if row["machine"] == "one"}
    ended = {row["snapshot_id"] for row in lab.rows("SELECT snapshot_id FROM archive_results WHERE end_ts IS NOT NULL")}
    assert orphans
    assert {row["machine"] for row in ran} == {"one", "two"}
    if not shared:
        for row in lab.rows("SELECT id, output_dir FROM snapshots WHERE output_dir <> ''"):
            if row["id"] in orphans:
                shutil.rmtree(row["output_dir"])
    sealed = ["sealed"] * (1 + len(urls))
    lab.work(
        machine_id="two",
        lease_duration=2 * SECOND,
        until_idle=False,
        until=lambda: lab.statuses() == sealed,
    )
    runs = Counter((folder / "log").read_text().splitlines())
    first = {snapshot: runs.pop(f"a {snapshot}") for snapshot in {row["snapshot_id"] for row in ran} | orphans}
    assert set(runs.values()) == {1}, "nothing else runs twice"
    assert {first[snapshot] for snapshot in first.keys() - orphans} <= {1}
    # one that the kill caught between its line and its end may have run twice in any case
    assert all(first[snapshot] == (1 if shared else 2) for snapshot in orphans & ended)
    rows = lab.rows("SELECT plugin, status, machine, snapshot_id FROM archive_results")
    assert Counter((row["plugin"], row["status"]) for row in rows) == {(name, "skipped"): len(urls) for name in "abc"}
    assert {row["machine"] for row in rows if row["plugin"] == "c" or not shared} == {"two"}
    assert living(lab) == []
