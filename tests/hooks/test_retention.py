"""Old snapshots are forgotten with their files, but never the last good one of a URL (HOOK-130)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from cli.main import run
from engine.clock import MINUTE, SystemClock, rfc3339
from engine.outputs import forget_snapshots
from tests.cli.console import clean_env
from tests.hooks.lab import SITE, Lab, record

DAY = 24 * 60 * MINUTE


def age(lab: Lab, crawl_id: str, days: int) -> None:
    """Pretend that a crawl was sealed that long ago."""
    then = rfc3339(SystemClock().now() - days * DAY)
    with contextlib.closing(sqlite3.connect(lab.settings.sites_dir / f"{SITE}.db")) as database, database:
        for table, key in (("snapshots", "crawl_id"), ("crawls", "id")):
            database.execute(
                f"UPDATE {table} SET sealed_at = ?, modified_at = ? WHERE {key} = ?", (then, then, crawl_id)
            )


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.hook(
        "p/on_Snapshot__10_p.sh", f"echo text > t.txt; [ -e {tmp_path}/bad ] && exit 10\n{record(type='Tag', name='x')}"
    )
    return lab


def test_old_snapshots_go_with_their_files_and_the_last_good_one_of_each_url_stays(lab: Lab) -> None:
    lab.crawl("http://a.test/1", "http://a.test/2", crawl_id="oldest")
    lab.crawl("http://a.test/1", crawl_id="good")
    (lab.folder / "bad").touch()
    lab.crawl("http://a.test/1", crawl_id="bad")
    lab.crawl("http://a.test/1", crawl_id="young")
    for crawl_id, days in (("oldest", 30), ("good", 20), ("bad", 15)):
        age(lab, crawl_id, days)
    before = SystemClock().now() - 10 * DAY
    assert forget_snapshots(lab.settings, SystemClock(), lab.site, before) == 2
    left = lab.rows("SELECT crawl_id, url, output_dir FROM snapshots ORDER BY crawl_id")
    assert [(row["crawl_id"], row["url"]) for row in left] == [
        ("good", "http://a.test/1"),
        ("oldest", "http://a.test/2"),
        ("young", "http://a.test/1"),
    ]
    there = {str(path.parent.parent) for path in lab.settings.data_dir.rglob("t.txt")}
    assert there == {row["output_dir"] for row in left}
    assert {row["id"] for row in lab.rows("SELECT id FROM crawls")} == {"good", "oldest", "young"}
    assert len(lab.rows("SELECT id FROM archive_results")) == 3
    assert forget_snapshots(lab.settings, SystemClock(), lab.site, before) == 0


def test_a_directory_that_is_not_the_snapshots_own_is_never_removed(lab: Lab, tmp_path: Path) -> None:
    (lab.folder / "bad").touch()
    lab.crawl(crawl_id="c")
    age(lab, "c", 30)
    precious = tmp_path / "precious"
    precious.mkdir()
    with contextlib.closing(sqlite3.connect(lab.settings.sites_dir / f"{SITE}.db")) as database, database:
        database.execute("UPDATE snapshots SET output_dir = ?", (str(precious),))
    assert forget_snapshots(lab.settings, SystemClock(), lab.site, SystemClock().now()) == 1
    assert precious.is_dir()


def test_engine_gc_forgets_snapshots_too(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    (lab.folder / "bad").touch()
    lab.crawl(crawl_id="c")
    age(lab, "c", 30)
    flags = ["--engine-db", lab.settings.engine_db, "--sites-dir", str(lab.settings.sites_dir)]
    words = [
        "engine",
        "gc",
        "--older-than",
        "10d",
        "--sites-manifest-dir",
        str(lab.folder / "sites"),
        "--output",
        "json",
    ]
    assert run([*words, *flags], clean_env(lab.folder / "home")) == 0
    assert json.loads(capsys.readouterr().out)["snapshots"] == 1
