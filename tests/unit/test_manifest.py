"""site.yaml: what is accepted, what it means, and every refusal with its text and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clock import SECOND
from engine.model import QueuePolicy
from engine.plugins.manifest import InvalidManifest, load_site
from engine.plugins.site import HttpSettings, JsSettings, Site
from engine.schedules import Every, NewSchedule, Origin, VerbTarget

FULL = """\
name: nereval
databaseFileName: nereval.db
scriptsRoot: scripts
verbsRoot: verbs
sqlMigrationsRoot: migrations/sql
jsMigrationsRoot: migrations/js
helpRoot: help
modules: [default-registry]
queuePolicies:
  - queue: site:nereval
    maxInFlight: 3
    rateLimit: {kind: token_bucket, ratePerSecond: 0.5, burst: 2}
  - queue: plain
  - queue: zero
    maxInFlight: 0
    rateLimit: {ratePerSecond: 10, burst: 1}
js: {timeout: 90s, heapMB: 512, isolation: frozen}
http: {cookies: workflow, userAgent: me/1, timeout: 2000, maxBytes: 1000, proxy: "http://127.0.0.1:3128"}
database: {dialect: postgresql}
hookDirs: [hooks, /opt/hooks]
interpreters: {py: /usr/bin/python3}
jobsRoot: jobs
schedules: [{verb: seed, every: 1h}]
defaults:
  queue: {maxInFlight: 2}
"""


def load(directory: Path, text: str) -> Site:
    (directory / "site.yaml").write_text(text)
    return load_site(directory)


def faults(directory: Path, text: str) -> list[tuple[int, str]]:
    with pytest.raises(InvalidManifest) as invalid:
        load(directory, text)
    return sorted((fault.line, fault.message) for fault in invalid.value.faults)


def with_line(line: str) -> str:
    return f"name: x\ndatabaseFileName: x.db\n{line}\n"


def test_every_key_reaches_the_site(tmp_path: Path) -> None:
    assert load(tmp_path, FULL) == Site(
        name="nereval",
        root=tmp_path,
        manifest=tmp_path / "site.yaml",
        database_file="nereval.db",
        dialect="postgresql",
        scripts_root=tmp_path / "scripts",
        verbs_root=tmp_path / "verbs",
        sql_migrations_root=tmp_path / "migrations/sql",
        js_migrations_root=tmp_path / "migrations/js",
        help_root=tmp_path / "help",
        queue_policies={
            "site:nereval": QueuePolicy(max_in_flight=3, rate=0.5, burst=2),
            "plain": QueuePolicy(max_in_flight=1),
            "zero": QueuePolicy(max_in_flight=1, rate=10, burst=1),
        },
        default_policy=QueuePolicy(max_in_flight=2),
        js=JsSettings(timeout=90 * SECOND, heap_mb=512, isolation="frozen"),
        http=HttpSettings(
            cookies="workflow", user_agent="me/1", timeout=2 * SECOND, max_bytes=1000, proxy="http://127.0.0.1:3128"
        ),
        hook_dirs=("hooks", "/opt/hooks"),
        interpreters={"py": "/usr/bin/python3"},
        jobs_root=tmp_path / "jobs",
        schedules=(
            NewSchedule(
                site="nereval",
                name="seed",
                rule=Every(3600 * SECOND),
                target=VerbTarget("seed"),
                origin=Origin.MANIFEST,
            ),
        ),
    )


def test_an_absent_root_switches_the_feature_off(tmp_path: Path) -> None:
    site = load(tmp_path, "name: x\ndatabaseFileName: x.db\nscriptsRoot:\nverbsRoot: ''\n")
    assert (site.scripts_root, site.verbs_root, site.default_policy) == (None, None, None)


def test_configured_script_limits_hold_where_the_manifest_sets_none(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(with_line("js: {heapMB: 99}"))
    site = load_site(tmp_path, JsSettings(timeout=7, heap_mb=300))
    assert site.js == JsSettings(timeout=7, heap_mb=99)


def test_plain_scalars_are_texts_where_texts_are_wanted(tmp_path: Path) -> None:
    site = load(tmp_path, "name: 2048\ndatabaseFileName: 1.5\nhttp: {cookies: off}\nqueuePolicies: [{queue: 7}]\n")
    assert (site.name, site.database_file, site.http.cookies) == ("2048", "1.5", "off")
    assert list(site.queue_policies) == ["7"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("modules: [unknown]", 'site.modules contains unsupported module "unknown"'),
        ("modules: [default-registry, default-registry]", 'site.modules contains duplicate module "default-registry"'),
        ('modules: [""]', 'site.modules contains unsupported module ""'),
        ("scriptsRoot: ../x", "site.scriptsRoot must not escape the site filesystem"),
        ("verbsRoot: a/../../x", "site.verbsRoot must not escape the site filesystem"),
        ("helpRoot: ..", "site.helpRoot must not escape the site filesystem"),
        ("jobsRoot: /etc", "site.jobsRoot must be relative to the site"),
        ("scriptsRoot: \\x", "site.scriptsRoot must be relative to the site"),
        ("scriptsRoot: scripts/", 'site.scriptsRoot must be normalized: "scripts"'),
        ("scriptsRoot: a/../b", 'site.scriptsRoot must be normalized: "b"'),
        ("scriptsRoot: .", 'site.scriptsRoot must not be "."'),
        ('scriptsRoot: " s"', "site.scriptsRoot must not have leading or trailing blanks"),
        ("scriptsRoot: [s]", "site.scriptsRoot must be a string"),
        ('queuePolicies: [{queue: ""}]', 'site.queuePolicies[""].queue must not be empty'),
        ('queuePolicies: [{queue: " "}]', 'site.queuePolicies[" "].queue must not be blank'),
        ("queuePolicies: [{maxInFlight: 1}]", "site.queuePolicies[0].queue is required"),
        ("queuePolicies: [{queue: q}, {queue: q}]", 'site.queuePolicies contains duplicate queue "q"'),
        ("queuePolicies: [{queue: q, maxInFlight: -1}]", 'site.queuePolicies["q"].maxInFlight must be >= 0'),
        ("queuePolicies: [{queue: q, maxInFlight: 1.5}]", 'site.queuePolicies["q"].maxInFlight must be a whole number'),
        (
            "queuePolicies: [{queue: q, rateLimit: {ratePerSecond: 0, burst: 1}}]",
            'site.queuePolicies["q"].rateLimit.ratePerSecond must be > 0',
        ),
        (
            "queuePolicies: [{queue: q, rateLimit: {burst: 1}}]",
            'site.queuePolicies["q"].rateLimit.ratePerSecond must be > 0',
        ),
        (
            "queuePolicies: [{queue: q, rateLimit: {ratePerSecond: .nan, burst: 1}}]",
            'site.queuePolicies["q"].rateLimit.ratePerSecond must be a finite number',
        ),
        (
            "queuePolicies: [{queue: q, rateLimit: {ratePerSecond: 1, burst: 0}}]",
            'site.queuePolicies["q"].rateLimit.burst must be > 0',
        ),
        (
            "queuePolicies: [{queue: q, rateLimit: {ratePerSecond: 1, burst: 0.5}}]",
            'site.queuePolicies["q"].rateLimit.burst must be >= 1: an op costs one token',
        ),
        (
            "queuePolicies: [{queue: q, rateLimit: {kind: leaky, ratePerSecond: 1, burst: 1}}]",
            'site.queuePolicies["q"].rateLimit.kind must be "" or "token_bucket", not "leaky"',
        ),
        ("http: {cookies: always}", 'site.http.cookies must be "off" or "workflow", not "always"'),
        ("http: {proxy: nonsense}", "site.http.proxy must be a URL such as"),
        ("http: {maxBytes: 0}", "site.http.maxBytes must be >= 1"),
        ("js: {timeout: soon}", 'site.js.timeout: "soon" is not a duration'),
        ("js: {timeout: 0}", "site.js.timeout must be > 0"),
        ("js: {timeout: -5}", "site.js.timeout: -5 is not a duration"),
        ("js: {heapMB: big}", "site.js.heapMB must be a whole number"),
        ("js: {isolation: none}", 'site.js.isolation must be "fresh" or "frozen", not "none"'),
        ("database: {dialect: mysql}", 'site.database.dialect must be "sqlite" or "postgresql", not "mysql"'),
        ("database: postgresql", "site.database must be a mapping"),
        ("hookDirs: hooks", "site.hookDirs must be a list"),
        ("interpreters: {py: [x]}", "site.interpreters.py must be a string"),
        ("scriptRoot: x", 'site has an unknown key "scriptRoot"'),
        ("js: {timeOut: 1s}", 'site.js has an unknown key "timeOut"'),
        ("queuePolicies: [{queue: q, max: 1}]", 'site.queuePolicies["q"] has an unknown key "max"'),
        ("name: y", 'key "name" is already given in line 1'),
        ("js: !!python/object:os.system x", "malformed YAML: could not determine a constructor"),
        ("js: &a {timeout: *a}", "an alias contains itself"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    (found,) = faults(tmp_path, with_line(line))
    assert found[0] == 3
    assert found[1].startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("databaseFileName: x.db", "site.name is required"),
        ("name: ''\ndatabaseFileName: x.db", "site.name must not be empty"),
        ("name: ' x'\ndatabaseFileName: x.db", "site.name must not have leading or trailing blanks"),
        ('name: "a\\u0007"\ndatabaseFileName: x.db', "site.name must not contain control characters"),
        ("name: list\ndatabaseFileName: x.db", 'site.name must not be "list": that is a subcommand of "scraper site"'),
        ("name: x", "site.databaseFileName is required"),
        ("name: x\ndatabaseFileName: a/b", "site.databaseFileName must be a file name without path separators"),
        ("name: x\ndatabaseFileName: a\\b", "site.databaseFileName must be a file name without path separators"),
        ("name: x\ndatabaseFileName: .", 'site.databaseFileName must not contain ".." or be "."'),
        ("name: x\ndatabaseFileName: a..b", 'site.databaseFileName must not contain ".." or be "."'),
        ("- name: x", "site must be a mapping"),
        ("just text", "site must be a mapping"),
    ],
)
def test_name_and_database_file_are_checked(tmp_path: Path, text: str, message: str) -> None:
    assert message in [found for _, found in faults(tmp_path, text)]


def test_an_empty_manifest_lacks_its_required_keys(tmp_path: Path) -> None:
    assert [message for _, message in faults(tmp_path, "")] == [
        "site.databaseFileName is required",
        "site.name is required",
    ]


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        "name: x\ndatabaseFileName: a/b\nscriptsRoot: ../s\nverbRoot: v\nmodules: [a, b]\njs: {timeout: x, heap: 1}\n"
    )
    assert [line for line, _ in faults(tmp_path, text)] == [2, 3, 4, 5, 5, 6, 6]


def test_the_nearest_known_key_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest) as invalid:
        load(tmp_path, with_line("scriptRoot: scripts"))
    assert [fault.hint for fault in invalid.value.faults] == ['did you mean "scriptsRoot"?']
    assert invalid.value.name == "x"


def test_malformed_yaml_is_reported_with_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match=r"site\.yaml:4:3: malformed YAML: .+"):
        load(tmp_path, "name: x\ndatabaseFileName: x.db\nmodules: [a, b\njs: {")
    with pytest.raises(InvalidManifest, match=r"site\.yaml:2:1: malformed YAML"):
        load(tmp_path, "js:\n\ttimeout: 1s\n")


def test_a_manifest_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_bytes("name: x\ndatabaseFileName: é\n".encode("latin-1"))
    with pytest.raises(InvalidManifest, match=r"site\.yaml:2: is not UTF-8 text"):
        load_site(tmp_path)


def test_aliases_cannot_blow_the_manifest_up(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases make the document too large" in [message for _, message in faults(tmp_path, "\n".join(lines))]


def test_deep_nesting_is_a_fault_not_a_crash(tmp_path: Path) -> None:
    assert faults(tmp_path, "hookDirs: " + "[" * 200_000) == [(1, "is nested too deeply")]


def test_merge_keys_and_anchors_work(tmp_path: Path) -> None:
    text = with_line(
        "queuePolicies:\n"
        "  - &base {queue: a, maxInFlight: 2, rateLimit: {ratePerSecond: 1, burst: 1}}\n"
        "  - {<<: *base, queue: b}\n"
    )
    site = load(tmp_path, text)
    assert site.queue_policies["a"] == site.queue_policies["b"] == QueuePolicy(max_in_flight=2, rate=1, burst=1)
