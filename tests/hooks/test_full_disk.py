"""Hooks on a disk that is full (HOOK-50)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import HookSettings
from tests.hooks.lab import Lab, record


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a file system of one's own needs more rights")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_the_hooks_failure_and_not_the_workers(tmp_path: Path, small_disk: Path) -> None:
    lab = Lab(tmp_path / "lab")
    lab.settings = replace(lab.settings, hooks=HookSettings(data_dir=small_disk))
    lab.hook("full/on_Snapshot__10_full.sh", "head -c 1000000 /dev/zero > big.bin || exit 1")
    lab.hook("after/on_Snapshot__20_after.sh", f"{record(type='Tag', name='x')} || exit 1; echo x > x.txt || exit 1")
    lab.hook("rid/on_Snapshot__30_rid.sh", "rm ../full/big.bin; exit 10")
    lab.hook("last/on_Snapshot__40_last.sh", f"echo y > y.txt; {record(type='Tag', name='y')}")
    lab.crawl(attempts=1)
    rows = [row["status"] for row in lab.results("status").values()]
    assert rows == ["failed", "failed", "skipped", "succeeded"]
    assert lab.statuses() == ["sealed", "sealed"]
    # a small file of the first hook may go and leave a page for the line of the second
    assert {row["tag"] for row in lab.rows("SELECT tag FROM snapshot_tags")} - {"x"} == {"y"}
