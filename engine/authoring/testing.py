"""``scraper site test``: the tests of a site, in JavaScript, on the real engine.

A test is a function ``test_something(t)`` of a file ``tests/*.js``, declared at its top level or exported::

    function test_every_item_is_kept(t) {
      t.run("crawl", { max_pages: 2 });
      t.equal(t.query("SELECT count(*) AS n FROM items"), [{ n: 3 }]);
    }

Each test has a V8 isolate and databases of its own, in a temporary folder. ``t`` offers:

``t.run(verb, flags, {mayFail})``
    Submits the verb and works until nothing is left to do. Flags go by the field's name and are read as the command
    line would. Returns ``{workflowID, status, data, ops, failures}``; throws where the workflow did not succeed, unless
    ``mayFail`` is true.
``t.query(sql, ...params)``, ``t.exec(sql, ...params)``
    Read and write the site DB; it is migrated if nothing ran yet.
``t.records(collection)``
    What ``ctx.writeRecord`` wrote: ``[{key, data}]`` by key.
``t.fixture(name)``
    The text of a file of ``fixtures/``.
``t.equal(actual, expected, message)``, ``t.ok(value, message)``, ``t.throws(call, message)``
    Fail the test. ``equal`` compares deeply and names the first place that differs; ``throws`` returns what was thrown.
``t.log(...values)``
    Shown with a failure.

``require`` finds the built-in modules and every file of the site, relative to the test: ``../scripts/lib/cells.js``.
Fetches are answered with the pages that ``fixtures/pages.json`` lists (:mod:`engine.authoring.pages`). A test that asks
for any other URL fails and names it; ``--record`` fetches what is missing, one page at a time, and adds it.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.app import scan_verbs
from engine.authoring.bench import Bench, ChildEnded
from engine.authoring.check import TESTS
from engine.authoring.pages import FOLDER, Pages
from engine.authoring.stage import Stage, TooLong
from engine.config import Settings
from engine.errors import SiteError, UsageError
from engine.js.jobs import pack_site
from engine.plugins.site import Site
from engine.verbs import VerbSpec

#: What a test may take unless told otherwise.
SECONDS = 60.0

#: Between a test's own time limit and the moment its process is given up.
_GRACE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """How one test ended; ``name`` is "" where its file could not even be loaded."""

    __test__ = False  # for pytest, which takes every Test* for its own

    #: Relative to the site.
    file: str
    name: str
    ok: bool
    seconds: float
    message: str = ""
    line: int = 0
    stack: str = ""
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """Which tests to run, and how."""

    #: Part of ``tests/file.js::test_name``; "" = all.
    filter: str = ""
    record: bool = False
    seconds: float = SECONDS


def run_tests(site: Site, settings: Settings, choice: Choice) -> Iterator[TestResult]:
    """Run the chosen tests of a site in order of their files; each result as it comes.

    Raises UsageError where there are none, SiteError where the site or its recorded pages are unusable.
    """
    files = sorted((site.root / TESTS).glob("*.js"))
    if not files:
        raise UsageError(f'site "{site.name}" has no tests: write functions test_something(t) in {site.root / TESTS}/')
    if site.dialect != "sqlite":
        raise SiteError(f'site "{site.name}" has its database in PostgreSQL, and tests make SQLite files only')
    Pages(site.root / FOLDER)
    verbs = scan_verbs(site) if site.verbs_root is not None else ()
    ran = 0
    with Bench() as bench:
        for file in files:
            for result in _file(bench, _Run(site, settings, choice, verbs), file):
                ran += 1
                yield result
    if ran == 0:
        what = f' matches "{choice.filter}"' if choice.filter else " is declared: name functions test_something"
        raise UsageError(f'no test of site "{site.name}"{what}')


@dataclass(frozen=True, slots=True)
class _Run:
    site: Site
    settings: Settings
    choice: Choice
    verbs: tuple[VerbSpec, ...]


def _file(bench: Bench, run: _Run, file: Path) -> Iterator[TestResult]:
    entry = file.relative_to(run.site.root).as_posix()
    source = file.read_text("utf-8", "replace")
    names = list(dict.fromkeys(re.findall(r"\btest_[A-Za-z0-9_$]+", source)))
    job = {"site": pack_site(run.site), "entry": entry, "names": names}
    answer = bench.ask({"do": "offered", **job})
    if "error" in answer:
        if not names or any(run.choice.filter in f"{entry}::{name}" for name in names):
            yield _failed(entry, "", 0.0, answer["error"], ())
        return
    offered = [name for name in answer["names"] if name.startswith("test_")]
    for name in sorted(offered, key=lambda name: names.index(name) if name in names else len(names)):
        if run.choice.filter in f"{entry}::{name}":
            yield _test(bench, run, job, name)


def _test(bench: Bench, run: _Run, job: dict[str, Any], name: str) -> TestResult:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scraper-test-") as folder:
        stage = Stage.in_folder(
            Path(folder), run.site, run.verbs, run.settings, record=run.choice.record, seconds=run.choice.seconds
        )
        limit = run.choice.seconds
        asked = {"do": "test", **job, "function": name, "database": str(stage.database), "seconds": limit}
        error: dict[str, Any] | None
        logs: list[str] = []
        try:
            answer = bench.ask(asked, stage.answer)
            error, logs = answer["error"], answer["logs"]
        except TooLong:
            error = {"code": "js_timeout", "message": f"the test did not end within {limit:g} s", "details": None}
        except ChildEnded as ended:
            error = {"code": "js_crashed", "message": str(ended), "details": None}
        if error is None and stage.pages.missing:
            wanted = ", ".join(dict.fromkeys(stage.pages.missing))
            error = {"code": "page_not_recorded", "message": f"there is no recorded page for {wanted}", "details": None}
        seconds = time.monotonic() - began
        if error is None:
            return TestResult(file=job["entry"], name=name, ok=True, seconds=seconds)
        return _failed(job["entry"], name, seconds, error, tuple(logs))


def _failed(entry: str, name: str, seconds: float, error: dict[str, Any], logs: tuple[str, ...]) -> TestResult:
    details = error["details"] if isinstance(error["details"], dict) else {}
    own = details.get("script") == entry
    message = error["message"].removeprefix("AssertionError: ")
    if own:
        message = message.removeprefix(f"{entry}:{details['line']}:{details['column']}: ")
    return TestResult(
        file=entry,
        name=name,
        ok=False,
        seconds=seconds,
        message=message,
        line=details.get("line", 0) if own else _line_in(entry, details.get("stack", "")),
        stack=details.get("stack", ""),
        logs=logs,
    )


def _line_in(entry: str, stack: str) -> int:
    """The innermost line of the test's own file in a stack."""
    found = re.search(rf"{re.escape(entry)}:(\d+):\d+", stack)
    return int(found[1]) if found else 0
