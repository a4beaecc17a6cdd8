"""``scraper shell``: a page in a file or on a server, and what is typed about it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import warm
from tests.cli.console import SCRIPT, Ran, clean_env, scraper
from tests.servers import page, redirect, serve

HTML = """<!doctype html><html><head><title>Shelf</title></head><body>
<ul><li class="book" data-id="7"><a href="/b/7">Dune</a></li><li class="book"><a href="/b/8">Emma</a></li></ul>
</body></html>"""
PATIENCE = 60.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(HTML)
    return path


def typed(cwd: Path, text: str, *arguments: str) -> Ran:
    """Run the shell with ``text`` on a standard input that is no terminal."""
    return Ran(*warm.run("cli.main:main", ("shell", *arguments), cwd=cwd, env=clean_env(cwd / "home"), text=text))


def test_expressions_are_evaluated_on_the_page_and_printed(tmp_path: Path, file: Path) -> None:
    ran = scraper(
        tmp_path,
        *("shell", file.name, "-c", 'page.first("title").text()', "-c", '$$("li").length', "-c", "html.length"),
        *("-c", '$("li").attr("data-id")', "-c", '$("table")', "-c", "url"),
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == ["Shelf", "2", str(len(HTML)), "7", "null", file.as_uri()]


def test_lists_are_numbered_and_nodes_shown_as_html(tmp_path: Path, file: Path) -> None:
    ran = scraper(tmp_path, "shell", file.name, "-c", '$$("a")', "-c", '$$("a").map((link) => link.text())')
    assert ran.out.splitlines() == [
        '0: <a href="/b/7">Dune</a>',
        '1: <a href="/b/8">Emma</a>',
        '0: "Dune"',
        '1: "Emma"',
    ]


def test_lines_of_a_pipe_share_one_isolate(tmp_path: Path, file: Path) -> None:
    text = (
        'const titles = $$("a").map((a) => a.text());\n'
        "function twice(n) {\n  return 2 * n;\n}\n"
        "\ntwice(titles.length)\n"
        'let url2 = require("html").resolve("https://x.example/a/", "b"); url2\n'
        "{ n: titles.length }\n"
        'console.log("seen", titles)\n'
        "12345678901234567890n"
    )
    ran = typed(tmp_path, text, file.name)
    assert (ran.code, ran.err) == (0, 'seen ["Dune","Emma"]\n')
    assert ran.out.splitlines() == ["4", "https://x.example/a/b", "{", '  "n": 2', "}", "12345678901234567890"]


def test_an_error_is_said_and_the_next_line_still_runs(tmp_path: Path, file: Path) -> None:
    ran = typed(tmp_path, 'nothing\n$$("a:(")\nlet x = ;\nthrow new TypeError("mine")\n1 + 1\n', file.name)
    assert (ran.code, ran.out) == (1, "2\n")
    for part in ("nothing is not defined", 'bad CSS selector "a:("', "Unexpected token ';'", "TypeError: mine"):
        assert part in ran.err
    assert "prelude" not in ran.err
    assert "Traceback" not in ran.err


def test_json_output_is_one_value_a_line(tmp_path: Path, file: Path) -> None:
    ran = scraper(
        tmp_path,
        *("shell", file.name, "--output", "json", "-c", '$$("a")', "-c", "undefined", "-c", "({ a: [1, 'x'] })"),
    )
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        ['<a href="/b/7">Dune</a>', '<a href="/b/8">Emma</a>'],
        None,
        {"a": [1, "x"]},
    ]


def test_a_line_that_does_not_end_or_eats_the_memory_is_stopped(tmp_path: Path, file: Path) -> None:
    eats = 'const all = []; for (;;) all.push(new Array(1000).fill("x" + all.length))'
    ran = scraper(tmp_path, "shell", file.name, "-c", "for (;;);", "-c", "1", "-c", eats)
    assert (ran.code, ran.out) == (1, "1\n")
    assert "stopped after" in ran.err
    assert "out of memory" in ran.err


def test_a_page_is_fetched_with_its_redirects_and_its_charset(tmp_path: Path) -> None:
    latin = page("<h1>Café</h1>".encode("latin-1"), content_type="text/html; charset=iso-8859-1")
    with serve({"/old": redirect("/new"), "/new": latin}) as server:
        ran = scraper(tmp_path, "shell", f"{server.url}/old", "-c", '$("h1").text()', "-c", "url")
        assert (ran.code, ran.out) == (0, f"Café\n{server.url}/new\n")


def test_an_error_page_is_a_page_too(tmp_path: Path) -> None:
    with serve(page("<p>gone</p>", status=404)) as server:
        ran = scraper(tmp_path, "shell", f"{server.url}/x", "-c", '$("p").text()')
    assert (ran.code, ran.out) == (0, "gone\n")
    assert ran.err.startswith(f"{server.url}/x: 404")


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("nowhere.html", 2, "there is no file nowhere.html"),
        (".", 2, "cannot be read: Is a directory"),
        ("http://", 2, "is not a URL"),
        ("http://127.0.0.1:1/", 1, "http://127.0.0.1:1/: "),
    ],
)
def test_a_page_that_cannot_be_had_is_an_error(tmp_path: Path, target: str, code: int, message: str) -> None:
    ran = scraper(tmp_path, "shell", target, "-c", "1")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err


class Terminal:
    """The shell on a terminal of its own."""

    def __init__(self, cwd: Path, *arguments: str) -> None:
        self._end, slave = pty.openpty()
        self.process = subprocess.Popen(
            [SCRIPT, "shell", *arguments],
            cwd=cwd,
            env=clean_env(cwd / "home", TERM="dumb"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
        )
        os.close(slave)
        self._seen = ""

    def until(self, text: str) -> str:
        """What was printed up to ``text``, which must come."""
        while text not in self._seen:
            ready, _, _ = select.select([self._end], [], [], PATIENCE)
            assert ready, f"{text!r} did not come after {self._seen!r}"
            self._seen += os.read(self._end, 4096).decode()
        before, _, self._seen = self._seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


@contextmanager
def terminal(cwd: Path, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(cwd, *arguments)
    try:
        yield opened
    finally:
        opened.close()


def test_the_prompt_survives_errors_and_ctrl_c_and_keeps_its_history(tmp_path: Path, file: Path) -> None:
    with terminal(tmp_path, file.name) as shell:
        shell.until("> ")
        shell.type("const n = [\n")
        shell.until("... ")
        shell.type("6, 7]; n[0] * n[1]\n")
        shell.until("42\r\n")
        shell.until("> ")
        shell.type("nonsense\n")
        shell.until("nonsense is not defined")
        shell.until("> ")
        shell.type("for (;;);\n")
        shell.until("for (;;);\r\n")
        shell.type("\x03")
        assert "stopped after" not in shell.until("> ")
        shell.type('$("title").text() + "!"\n')
        shell.until("Shelf!\r\n")
        shell.until("> ")
        shell.type("\x04")
        assert shell.process.wait(PATIENCE) == 0
    history = (tmp_path / "home/.local/state/scraper/shell_history").read_text()
    assert "nonsense" in history
    with terminal(tmp_path, file.name) as again:
        again.until("> ")
        again.type("\x1b[A\n")  # the line before
        again.until("Shelf!\r\n")


def test_shell_has_help_with_an_example(tmp_path: Path) -> None:
    ran = scraper(tmp_path, "shell", "--help")
    assert (ran.code, "Example: scraper shell " in ran.out) == (0, True)
