"""Whatever scripts, ops and databases do wrong ends in one clear error, and the worker goes on (JS-18 to JS-29)."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from cli.main import run
from engine.app import WorkerOptions, WorkerReport, run_worker
from engine.config import JsLimits
from engine.errors import DatabaseRefused
from engine.model import NewOp, Op
from engine.store.store import Store
from engine.worker.options import Silent
from tests.worker.lab import COUNTERS, MANIFEST, Lab, js
from tests.worker.test_trouble import spoil

BUMP = "require('site-db').exec('UPDATE counter SET n = n + 1');"
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n"


def lab_of(lab: Lab, bodies: dict[str, str], manifest: str = "") -> list[NewOp]:
    """Scripts with these bodies, each bumping a counter first; after each of their ops, one that counts and is fine."""
    lab.write("site.yaml", MANIFEST + manifest)
    lab.write("migrations/001_c.sql", COUNTERS)
    lab.write("scripts/fine.js", f"module.exports = () => {{ {BUMP} }}")
    for name, body in bodies.items():
        lab.write(f"scripts/{name}.js", f"module.exports = (ctx) => {{ {BUMP} {body} }}")
    return [op for name in bodies for op in (js(name, name), js(f"fine-{name}", "fine"))]


def work(lab: Lab, resident_mb: int = 512, children: int = 2) -> WorkerReport:
    """Work until idle in so many children of that size."""
    settings = replace(lab.settings, js=JsLimits(resident_mb=resident_mb))
    options = WorkerOptions(until_idle=True, machine_id="m1", js_processes=children)
    return run_worker(settings, lab.registry, options, Silent())


WRONG = {
    "rejects": ("return Promise.reject(new Error('late'))", "runner_error", "late"),
    "rejects_text": ("return Promise.reject('late')", "runner_error", "late"),
    "rejects_later": (
        "return new Promise((_, no) => setTimeout(() => no(new Error('late')), 1))",
        "runner_error",
        "late",
    ),
    "throws_null": ("throw null", "runner_error", "null"),
    "throws_trap": ("throw new Proxy({}, {get() { throw new Error('trap') }})", "runner_error", "trap"),
    "timer_throws": ("return new Promise(() => setTimeout(() => { throw new Error('tick') }))", "runner_error", "tick"),
    "thenable": ("return {then() {}}", "js_never_settled", "never settle"),
    "spins": ("for (;;) {}", "js_timeout", "longer than 0.4 s"),
    "microtasks": ("const f = () => void Promise.resolve().then(f); f()", "js_timeout", "longer than 0.4 s"),
    "calls": ("for (;;) ctx.dep('x')", "js_timeout", "longer than 0.4 s"),
    "sql": (f"require('site-db').query('{ENDLESS}')", "js_timeout", "longer than 0.4 s"),
    "cycle": ("const o = {}; o.o = [o]; return o", "invalid_result", "result.o[0] is a cycle"),
    "cycle_emitted": (
        "const o = {}; o.o = o; ctx.emit({kind: 'js', input: o})",
        "invalid_result",
        "emit.input.o is a cycle",
    ),
    "bigint": ("return {data: [1n]}", "invalid_result", "result.data[0] is a BigInt"),
    "deep": ("let o = 1; for (let i = 0; i < 5000; i++) o = [o]; return o", "invalid_result", "500 levels"),
    "recursion": ("const f = () => f() + 1; return f()", "runner_error", "Maximum call stack"),
    "no_body": ("ctx.writeArtifact({name: 'page'})", "runner_error", "the artifact has no body"),
    "no_spec": ("ctx.writeArtifact('page')", "runner_error", "writeArtifact expects an object"),
    "sql_large": ("require('site-db').query('SELECT ?', 2n ** 80n)", "runner_error", "too large"),
    "sql_zero": ("require('site-db').exec('SELECT 1\\0')", "runner_error", "null character"),
    "late_instant": ("ctx.emit({kind: 'js', notBefore: 1e17})", "runner_error", "notBefore"),
    "endless_retry": ("ctx.emit({kind: 'js', retry: {maxAttempts: 'Infinity'}})", "runner_error", "retry.maxAttempts"),
    "exits": ("process.exit(1)", "runner_error", "process is not defined"),
}


def test_each_bad_script_fails_once_by_itself_and_its_neighbours_succeed(lab: Lab) -> None:
    """JS-16, JS-20 to JS-29: nothing of it stands in the site DB."""
    ops = lab_of(lab, {name: body for name, (body, _, _) in WRONG.items()})
    slow = {name for name, (_, code, _) in WRONG.items() if code == "js_timeout"}
    lab.submit(*(replace(op, metadata={**op.metadata, "timeout": "400ms"}) if op.id in slow else op for op in ops))
    report = work(lab)
    assert (report.succeeded, report.failed) == (len(WRONG), len(WRONG))
    errors = {name: lab.error(name) for name in WRONG}
    assert {name: error["code"] for name, error in errors.items()} == {
        name: code for name, (_, code, _) in WRONG.items()
    }
    assert {name: error["message"] for name, error in errors.items() if WRONG[name][2] not in error["message"]} == {}
    # one that waited too long for its neighbour's lock on the site DB is given back first
    tried = {name: [state for state in lab.attempts(name) if state != "interrupted"] for name in WRONG}
    assert tried == {name: ["failed"] for name in WRONG}
    assert lab.site("SELECT n FROM counter") == [(len(WRONG),)]


GREEDY = {
    "heap": "const all = []; for (;;) all.push('x'.repeat(1000) + all.length)",
    "buffers": "const all = []; for (;;) all.push(new Uint8Array(8 << 20).fill(1))",
    "array": "const all = []; for (;;) all.push(all.length)",
    "sized": "return new Array(2 ** 27).fill(0.5).map((x, i) => x + i).length",
    "texts": "const all = []; for (;;) all.push(('x'.repeat(1e6) + all.length).split('').reverse().join(''))",
}


def test_scripts_that_use_up_memory_fail_whichever_way_and_the_worker_goes_on(lab: Lab) -> None:
    """JS-20 to JS-29: the heap's limit, the process's, or V8's own end of its process."""
    lab.submit(*lab_of(lab, GREEDY, "js: {timeout: 20s, heapMB: 32}\n"))
    report = work(lab, resident_mb=256)
    assert (report.succeeded, report.failed) == (len(GREEDY), len(GREEDY))
    codes = {name: lab.error(name)["code"] for name in GREEDY}
    assert {name: code for name, code in codes.items() if code not in ("js_memory", "js_crashed")} == {}
    assert codes["heap"] == codes["buffers"] == "js_memory"
    assert {name: lab.attempts(name) for name in GREEDY} == {name: ["failed"] for name in GREEDY}
    assert lab.site("SELECT n FROM counter") == [(len(GREEDY),)]


ODD = {
    "logged": "ctx.log('$'); ctx.writeArtifact({id: 'i$', name: '$', kind: '$', body: '$'}); return 1",
    "returned": "return {data: {'$': ['$']}}",
    "recorded": "ctx.writeRecord('c$', 'k$', '$')",
    "emitted": "ctx.emit({id: 'e$', kind: 'js', queue: '$', dedupKey: '$', input: '$',"
    " metadata: {script: 'fine', '$': '$'}})",
    "named": "throw Object.assign(new Error('$'), {code: '$'})",
    "told": "return {error: {code: '$', message: '$', details: {'$': '$'}}}",
}


@pytest.mark.parametrize("text", ["\\ud800", "\\0"], ids=["half-pair", "nul"])
def test_text_that_no_database_holds_stops_neither_the_op_nor_the_worker(either_lab: Lab, text: str) -> None:
    """Half of a surrogate pair is no UTF-8, and PostgreSQL knows no NUL: both become the replacement character."""
    lab = either_lab
    lab.submit(*lab_of(lab, {name: body.replace("$", text) for name, body in ODD.items()}))
    work(lab, children=1)
    statuses = lab.statuses()
    assert {statuses[name] for name in ("logged", "returned", "recorded", "emitted", "e\ufffd")} == {"succeeded"}
    assert {statuses[name] for name in ("named", "told")} == {"failed"}
    assert lab.result("logged")["artifacts"][0]["id"] == "i\ufffd"
    shown = "\ufffd" if text == "\\ud800" else "\0"
    assert lab.result("returned")["data"] == {shown: [shown]}
    assert (lab.error("told")["code"], lab.error("told")["message"]) == (shown, shown)


@pytest.mark.parametrize("kind", ["newer", "corrupt", "garbled", "foreign", "directory"])
def test_a_worker_refuses_an_engine_db_it_cannot_use_with_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """CLI-3, CLI-4: exit code 1, the reason on stderr, no traceback, the file as it was."""
    path = tmp_path / "engine.db"
    if kind == "garbled":
        Store.open(path).close()
        pages = path.read_bytes()
        path.write_bytes(pages[:100] + b"\xff" * (len(pages) - 100))
        words = "malformed"
    else:
        words = spoil(path, kind)
    before = path.read_bytes() if path.is_file() else b""
    code = run(("worker", "run", "--until-idle", "--engine-db", str(path)), {"HOME": str(tmp_path)})
    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    (error,) = (line for line in said.err.splitlines() if " level=info " not in line)
    assert error.startswith("error: ")
    assert words in error
    assert str(path) in error
    assert not path.is_file() or path.read_bytes() == before


class Vandal(Silent):
    """Overwrites the engine DB while the first op runs."""

    def __init__(self, path: Path) -> None:
        self._files = [path, path.with_name(f"{path.name}-wal")]

    def op_started(self, op: Op) -> None:
        for file in self._files:
            file.write_bytes(b"\xff" * file.stat().st_size)


def test_a_worker_ends_when_its_engine_db_turns_out_corrupt(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither spins nor waits for ops whose outcome nobody can store; the error is all there is to say."""
    monkeypatch.setattr("engine.worker.worker._LAST_WORDS", 0.5)
    lab.submit(*lab_of(lab, {"slow": "return new Promise((done) => setTimeout(done, 50))"}))
    with pytest.raises(DatabaseRefused, match=r"engine\.db: .*(malformed|not a database)"):
        lab.watch(Vandal(Path(lab.engine_db)), max_workers=2, js_processes=2)
    gc.collect()
    assert caplog.records == []


class FullDisk(Silent):
    """Fills the disk when the first op starts, frees it when the worker has said that it waits."""

    def __init__(self, fill: Callable[[], None], free: Callable[[], None]) -> None:
        self._fill = fill
        self._free = free
        self.seen: list[str] = []

    def op_started(self, op: Op) -> None:
        self.seen.append("started")
        if self.seen == ["started"]:
            self._fill()

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        self.seen.append(ending)
        if ending == "interrupted":
            self._free()

    def notice(self, message: str) -> None:
        self.seen.append(message)
        if "unavailable" in message:
            self._free()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not permitted here; the test with a page limit stands in")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(ballast: Path) -> None:
    """Take all the room there is."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


BULKY = """const words = [];
for (let i = 0; i < 4000; i++) words.push(Math.random().toString(36));
return words"""


def assert_nothing_lost(lab: Lab, watcher: FullDisk, report: WorkerReport) -> None:
    """Four ops, each done once; none was claimed while the disk was full."""
    assert report.succeeded == 4
    assert set(lab.statuses().values()) == {"succeeded"}
    assert {op_id: lab.attempts(op_id) for op_id in lab.statuses()} == {f"op{n}": ["succeeded"] for n in range(4)}
    assert lab.site("SELECT n FROM counter") == [(4,)]
    full = next(at for at, what in enumerate(watcher.seen) if "unavailable" in what and "full" in what)
    again = next(at for at, what in enumerate(watcher.seen) if "available again" in what)
    assert (watcher.seen[:full], watcher.seen[full + 1 : again]) == (["started"], [])


def test_a_full_disk_stops_claiming_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """The engine DB's file system is full from the first op on; the worker says so, waits, and resumes."""
    lab = Lab(str(small_disk / "engine.db"), tmp_path)
    lab_of(lab, {"bulky": BULKY})
    lab.submit(*(js(f"op{n}", "bulky") for n in range(4)))
    ballast = small_disk / "ballast"
    watcher = FullDisk(lambda: fill(ballast), lambda: ballast.unlink(missing_ok=True))
    assert_nothing_lost(lab, watcher, lab.watch(watcher, max_workers=1))


def test_a_database_at_its_page_limit_is_waited_for_like_a_full_disk(lab: Lab) -> None:
    """The same where SQLite itself refuses to grow."""
    lab_of(lab, {"bulky": BULKY})
    lab.submit(*(js(f"op{n}", "bulky") for n in range(4)))
    store = lab.store()
    pages = {"limit": 1 << 30}

    @event.listens_for(store.database.engine, "checkout")
    def limit(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages['limit']}").fetchone()

    watcher = FullDisk(lambda: pages.update(limit=1), lambda: pages.update(limit=1 << 30))
    assert_nothing_lost(lab, watcher, lab.watch(watcher, store=store, max_workers=1))


def test_an_op_whose_site_db_has_no_room_is_given_back_until_there_is(small_disk: Path, tmp_path: Path) -> None:
    """DB-12: no attempt is counted, nothing is written twice."""
    (tmp_path / "sites").symlink_to(small_disk)
    lab = Lab(str(tmp_path / "engine.db"), tmp_path)
    rows = "require('site-db').exec('INSERT INTO counter SELECT hex(randomblob(100000)), 0');"
    lab_of(lab, {"bulky": rows})
    lab.submit(js("first", "fine"))
    lab.work()
    lab.submit(js("op", "bulky"), workflow_id="v")
    ballast = small_disk / "ballast"
    watcher = FullDisk(lambda: fill(ballast), lambda: ballast.unlink(missing_ok=True))
    report = lab.watch(watcher, max_workers=1)
    assert watcher.seen[:2] == ["started", "interrupted"]
    assert (report.succeeded, report.failed) == (1, 0)
    assert lab.site("SELECT sum(n), count(*) FROM counter") == [(2, 2)]
