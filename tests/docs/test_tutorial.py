"""What the README and the tutorial tell people to type, typed."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.resources import resource
from tests.cli.console import SCRIPT, clean_env, scraper
from tests.sites.pages import serve
from tests.sites.test_hackernews import PAGES

pytestmark = pytest.mark.tutorial

ROOT = Path(__file__).parents[2]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_tutorial_followed_to_the_letter_ends_with_rows(tmp_path: Path) -> None:
    port = free_port()
    typed = "\n".join(blocks((resource("docs") / "write-a-site.md").read_text("utf-8"), "sh"))
    script = "set -e\n" + typed.replace("8765", str(port))
    # whoever follows the tutorial has seen the server's first page before the crawl asks for it
    started = f"until curl -s http://127.0.0.1:{port}/ >/dev/null 2>&1 || python3 -c 'import socket; " + (
        f'socket.create_connection(("127.0.0.1", {port}))\' 2>/dev/null; do :; done\n'
    )
    script = script.replace("server.log 2>&1 &\n", "server.log 2>&1 &\n" + started)
    env = clean_env(tmp_path / "home", PATH=f"{SCRIPT.parent}:/usr/local/bin:/usr/bin:/bin")
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(sqlite3.connect(tmp_path / "tutorial/state/sites/lamps.db")) as database:
        assert database.execute("SELECT name FROM dear").fetchall() == [("Réverbère",), ("Lighthouse",)]
        assert database.execute("SELECT count(*) FROM lamps").fetchone() == (4,)


@contextlib.contextmanager
def in_background(cwd: Path, *arguments: str) -> Iterator[None]:
    """A command that was typed with ``&``: as long as the person sits there; it has said its first line."""
    child = subprocess.Popen(
        [SCRIPT, *arguments], cwd=cwd, env=clean_env(cwd / "home"), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() != b""
        yield
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()


def test_the_commands_of_the_readme_work_in_their_order(tmp_path: Path) -> None:
    """The pages come from loopback servers; ``make demo`` and ``make test`` are run as a whole elsewhere."""
    port = free_port()
    lines = [
        line.removeprefix("$ ").partition("  #")[0]
        for block in blocks((ROOT / "README.md").read_text("utf-8"), "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith(".venv/bin/scraper")]
    assert len(commands) >= 8
    with serve(PAGES) as served, contextlib.ExitStack() as stack:
        for command in commands:
            words = [word.replace("8642", str(port)) for word in command]
            if words[-1] == "&":
                stack.enter_context(in_background(tmp_path, *words[:-1], "--port", str(port)))
                continue
            more = ["--base-url", served.url] if command[:2] == ["site", "hackernews"] else []
            done = scraper(tmp_path, *words, *more)
            assert done.code == 0, (command, done.err)
            if words[:4] == ["site", "archive", "snapshot", "show"]:
                told = scraper(tmp_path, *words, "--output", "json").out
    with closing(sqlite3.connect(tmp_path / "state/sites/hackernews.db")) as database:
        assert database.execute("SELECT count(*) FROM stories").fetchone() == (90,)
    with closing(sqlite3.connect(tmp_path / "state/sites/archive.db")) as database:
        assert database.execute("SELECT status, count(*) FROM snapshots GROUP BY 1").fetchall() == [("sealed", 10)]
    ends = {hook["plugin"]: (hook["status"], hook["exitCode"]) for hook in json.loads(told)["hooks"]}
    fine = ("watch", "headers", "title", "text", "outlinks", "links")
    assert ends == {"favicon": ("noresults", 0), **dict.fromkeys(fine, ("succeeded", 0))}
