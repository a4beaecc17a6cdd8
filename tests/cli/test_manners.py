"""Manners of the command line: help, exit codes, clear messages, pipes, locales."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.main import Root, run, split_manifest_dirs
from engine.errors import UsageError
from tests.cli.console import SCRIPT, clean_env, installed, make_site, scraper


def test_version_prints_the_version_and_a_newline(tmp_path: Path) -> None:
    ran = installed(tmp_path, "version")
    assert (ran.code, ran.out.count("\n"), ran.err) == (0, 1, "")
    assert ran.out[0].isdigit()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("versoin",), 'no such command "scraper versoin"; did you mean "version"?'),
        (("--nope", "version"), "no such option: --nope (see scraper --help)"),
        (("worker", "run", "--max-worker", "3"), "no such option: --max-worker"),
        (("worker", "run", "--max-workers", "many"), "--max-workers: must be a whole number"),
        (("worker", "run", "--max-workers", "0"), "--max-workers: must be >= 1"),
        (("worker", "run", "--lease-duration", "soon"), '--lease-duration: "soon" is not a duration'),
        (("worker", "run", "--worker-id", " "), "--worker-id must not be empty"),
        (("site", "list", "--output", "xml"), "invalid value for '--output'"),
        (("workflow", "show"), "missing argument"),
    ],
)
def test_a_request_that_cannot_be_understood_exits_2_with_one_message(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    ran = scraper(tmp_path, *arguments)
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_an_unusable_configuration_exits_1_and_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("engineDB: x.db\nworker:\n  maxWorker: 3\n")
    ran = scraper(tmp_path, "--config", "c.yaml", "engine", "status")
    message = 'error: c.yaml:3: worker has an unknown key "maxWorker" (did you mean "maxWorkers"?)\n'
    assert (ran.code, ran.out, ran.err) == (1, "", message)
    (tmp_path / "c.yaml").write_text("worker: {\n")
    ran = scraper(tmp_path, "site", "list", SCRAPER_CONFIG="c.yaml")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: c.yaml:2:1: malformed YAML: ")


def test_help_works_beside_an_unusable_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("{")
    assert scraper(tmp_path, "worker", "run", "--help", SCRAPER_CONFIG="c.yaml").code == 0


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-2."""

    def shown(*path: str) -> str:
        assert run([*path, "--help"], {}) == 0
        return capsys.readouterr().out

    def walk(*path: str) -> list[tuple[str, ...]]:
        listed = shown(*path).partition("\nCommands:\n")[2].split("\n\n")[0]
        names = [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "]
        return [leaf for name in names for leaf in walk(*path, name)] or [path]

    leaves = walk()
    assert {path[0] for path in leaves} == set(Root.members)
    assert len(leaves) >= 12
    assert [path for path in leaves if f"Example: scraper {' '.join(path)}" not in shown(*path)] == []


def test_an_internal_error_shows_its_traceback_only_on_demand(tmp_path: Path) -> None:
    script = "import cli.main, cli.version, sys; cli.version.say = lambda text: 1 / 0; sys.exit(cli.main.main())"
    env = clean_env(tmp_path)

    def failing(**more: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", script, "version"], env={**env, **more}, capture_output=True, text=True, check=False
        ).stderr

    message = "error: internal error: ZeroDivisionError: division by zero (--debug shows the traceback)\n"
    assert failing() == message
    assert failing(SCRAPER_DEBUG="1").startswith("Traceback")


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    for number in range(300):
        make_site(tmp_path / f"s/{number:03}", f"a-rather-long-site-name-so-that-the-pipe-fills-{number:03}" * 8)
    command = f"{SCRIPT} site list --output json --sites-manifest-dir s | head -c 1"
    ran = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=clean_env(tmp_path), capture_output=True, check=False
    )
    assert (ran.stdout, ran.stderr) == (b"{", b"")


def test_closed_streams_are_no_obstacle(tmp_path: Path) -> None:
    command = f"{SCRIPT} version >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path, env=clean_env(tmp_path), check=False).returncode == 0


def test_a_pipe_gets_no_control_characters(tmp_path: Path) -> None:
    (make_site(tmp_path / "s/x", "x") / "site.yaml").write_text('name: "x\\e[31m"\ndatabaseFileName: x.db')
    ran = scraper(tmp_path, "site", "check", "--sites-manifest-dir", "s", FORCE_COLOR="1", TERM="xterm-256color")
    assert "\x1b" not in ran.out + ran.err
    assert "\\x1b[31m: 1 fault" in ran.out


def test_a_locale_without_the_characters_does_not_end_the_command(tmp_path: Path) -> None:
    make_site(tmp_path / "s/x", "日本語")
    ran = installed(tmp_path, "site", "list", "--sites-manifest-dir", "s", PYTHONIOENCODING="ascii")
    assert (ran.code, ran.out) == (0, "\\u65e5\\u672c\\u8a9e\n")


def test_a_home_that_cannot_be_read_is_no_obstacle(tmp_path: Path) -> None:
    assert installed(tmp_path, "engine", "status", HOME="/nonexistent").code == 0
    assert scraper(tmp_path, "engine", "status", HOME="").code == 0


def test_the_manifest_flag_is_found_anywhere() -> None:
    arguments = [
        "site",
        "--sites-manifest-dir",
        "a",
        "x",
        "--help",
        "--sites-manifest-dir=b",
        "--",
        "--sites-manifest-dir",
    ]
    assert split_manifest_dirs(arguments) == (["site", "x", "--help", "--", "--sites-manifest-dir"], ["a", "b"])
    with pytest.raises(UsageError, match="needs a value"):
        split_manifest_dirs(["site", "--sites-manifest-dir"])


def test_help_imports_neither_the_engine_nor_rich(tmp_path: Path) -> None:
    """CLI-1: what makes start-up slow stays out of the way until a command needs it."""
    script = (
        "import sys, cli.main\n"
        "try: cli.main.run(['--help'], {})\n"
        "finally: print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.partition("LOADED")[2].split())
    assert "typer" in loaded
    assert not loaded & {"sqlalchemy", "alembic", "httpx", "rich", "yaml", "jsonschema", "py_mini_racer", "structlog"}


def test_help_costs_little_more_than_typer_itself(tmp_path: Path) -> None:
    """CLI-1, with 200 sites configured; a ratio of the same machine in the same minute, and a generous one."""
    for number in range(200):
        make_site(tmp_path / f"s/{number:03}", f"site-{number}")
    env = clean_env(tmp_path, SCRAPER_SITES_MANIFEST_DIRS=str(tmp_path / "s"))

    def seconds(*command: str | Path) -> float:
        began = time.perf_counter()
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began

    ours = [seconds(SCRIPT, "--help") for _ in range(5)]
    theirs = [seconds(sys.executable, "-c", "import typer") for _ in range(5)]
    assert statistics.median(ours) <= 2.5 * statistics.median(theirs)
