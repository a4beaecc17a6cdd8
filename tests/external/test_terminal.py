"""What a person sees of a worker in a terminal of 80 columns, looked at with tmux while it works."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.demo import Catalogue, serve_books
from tests.cli.console import SCRIPT, clean_env
from tests.crash.crawl import Crawl

pytestmark = pytest.mark.external

COLUMNS, ROWS = 80, 24


class Screen:
    """A tmux server of its own with one window."""

    def __init__(self, folder: Path, command: str) -> None:
        self._tmux = [str(shutil.which("tmux")), "-S", str(folder / "tmux")]
        self._run("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), f"{command}; echo ended; cat")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout

    def lines(self) -> list[str]:
        """What is on the screen now."""
        return self._run("capture-pane", "-p").splitlines()

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    for name, value in clean_env(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    crawl = Crawl(str(tmp_path / "engine.db"), tmp_path)
    with serve_books(Catalogue(pages=6, per_page=20)) as base_url:
        crawl.submit(base_url)
        where = f"--engine-db {crawl.engine_db} --sites-dir {crawl.sites_dir}"
        shown = Screen(tmp_path, f"{SCRIPT} worker run --until-idle {where}")
        try:
            yield shown
        finally:
            shown.close()


def test_the_live_table_neither_wraps_nor_leaves_pieces_of_itself(screen: Screen) -> None:
    frames: list[list[str]] = []
    while not frames or "ended" not in frames[-1]:
        frames.append(screen.lines())
    live = [frame for frame in frames if any(line.startswith("queue ") for line in frame)]
    assert live, frames[-1]
    for frame in live:
        heads = [line for line in frame if line.startswith("queue ")]
        assert [head.split() for head in heads] == [["queue", "ready", "running", "delayed", "done", "failed"]]
        below = frame[frame.index(heads[0]) + 1 :]
        rows = [line for line in below if line.startswith("books ")]
        assert rows == below[: len(rows)]
        assert all(len(line) <= COLUMNS for line in frame)
        assert all(len(row.split()) == 7 for row in rows), rows
    assert any("ops/s" in line for frame in live for line in frame)
    last = frames[-1]
    assert not any(line.startswith("queue ") for line in last), "the table is gone when the worker has ended"
    assert "Succeeded: 252" in last
