"""Settings: precedence, origins, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clock import SECOND
from engine.config import KEYS, SCHEMA, ManifestDirectory, Settings, load_settings, variable
from engine.documents import load_schema
from engine.errors import ConfigError, UsageError


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def refusal(tmp_path: Path, text: str) -> list[str]:
    file = write(tmp_path / "config.yaml", text)
    with pytest.raises(ConfigError) as refused:
        load_settings({}, config=file)
    return [line.removeprefix(str(file)) for line in str(refused.value).splitlines()]


def test_without_any_source_the_defaults_hold() -> None:
    assert load_settings({}) == (Settings(), ())


def test_flags_beat_variables_beat_the_file_beats_defaults(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", "engineDB: file.db\nsitesDir: from-file\nworker:\n  maxWorkers: 9\n")
    settings, _ = load_settings({"SCRAPER_ENGINE_DB": "env.db", "SCRAPER_SITES_DIR": "from-env"}, config=file)
    settings = settings.with_flags(
        {"engineDB": ("--engine-db", "flag.db"), "sitesDir": ("--sites-dir", None), "http.timeout": ("--t", "2s")}
    )
    assert (settings.engine_db, settings.sites_dir) == ("flag.db", Path("from-env"))
    assert (settings.worker.max_workers, settings.http.timeout) == (9, 2 * SECOND)
    assert settings.origins == {
        "engineDB": "flag --engine-db",
        "sitesDir": "environment SCRAPER_SITES_DIR",
        "worker.maxWorkers": f"{file}:4",
        "http.timeout": "flag --t",
    }


def test_the_first_of_the_usual_files_is_read(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    write(tmp_path / ".scraper/config.yaml", "engineDB: dot.db")
    assert load_settings(env)[0].engine_db == "dot.db"
    write(tmp_path / ".config/scraper/config.yaml", "engineDB: xdg.db")
    assert load_settings(env)[0].engine_db == "xdg.db"
    write(tmp_path / "elsewhere/scraper/config.yaml", "engineDB: moved.db")
    assert load_settings({**env, "XDG_CONFIG_HOME": str(tmp_path / "elsewhere")})[0].engine_db == "moved.db"
    asked = write(tmp_path / "asked.yaml", "engineDB: asked.db")
    assert load_settings({**env, "SCRAPER_CONFIG": str(asked)})[0].engine_db == "asked.db"
    assert load_settings(env, config=asked)[0].engine_db == "asked.db"


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_settings({}, config=tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("engineDb: x", [':1: unknown key "engineDb" (did you mean "engineDB"?)']),
        ("\nleases:\n  maxlost: 3\n", [':3: leases has an unknown key "maxlost" (did you mean "maxLost"?)']),
        ("worker: {maxWorkers: 0}", [":1: worker.maxWorkers must be >= 1"]),
        ("worker: {maxWorkers: many}", [":1: worker.maxWorkers must be a whole number"]),
        ("http: {timeout: 15}\nleases: {duration: 1 minute}", [
            ':2: leases.duration: "1 minute" is not a duration: write it like "500ms", "1.5s" or "2m30s", '
            "or as a number of milliseconds",
        ]),
        ("js: {timeout: 0s}", [":1: js.timeout: must be > 0"]),
        ("siteDatabaseURL: postgresql://h/db", [":1: siteDatabaseURL: must be a database URL that contains {site}"]),
        ("http: {proxy: localhost}", [':1: http.proxy: must be a URL such as "http://127.0.0.1:3128"']),
        ("sitesManifestDirs: sites", [":1: sitesManifestDirs must be a list"]),
        ("[1, 2]", [":1: the file must be a mapping"]),
        ("a: [", [":2:1: malformed YAML: did not find expected node content while parsing a flow node"]),
        ("nope: 1\nworker: {maxWorkers: -1}\njs: {timeout: x}", [
            ':1: unknown key "nope"',
            ":2: worker.maxWorkers must be >= 1",
            ':3: js.timeout: "x" is not a duration: write it like "500ms", "1.5s" or "2m30s", '
            "or as a number of milliseconds",
        ]),
    ],
)  # fmt: skip
def test_faults_of_the_file_are_told_all_at_once_with_their_lines(tmp_path: Path, text: str, faults: list[str]) -> None:
    assert refusal(tmp_path, text) == faults


def test_a_bad_variable_or_flag_is_named() -> None:
    with pytest.raises(ConfigError, match=r'^SCRAPER_WORKER_MAX_WORKERS: must be a whole number, not "x"$'):
        load_settings({"SCRAPER_WORKER_MAX_WORKERS": "x"})
    with pytest.raises(UsageError, match=r"^--lease-duration: "):
        Settings().with_flags({"leases.duration": ("--lease-duration", "never")})


def test_a_variable_that_looks_like_a_misspelt_setting_is_warned_about() -> None:
    _, warnings = load_settings(
        {"SCRAPER_ENIGNE_DB": "x", "SCRAPER_PORT_8080_TCP": "tcp://10.0.0.1", "SCRAPER_DEBUG": "1"}
    )
    assert warnings == ('the variable SCRAPER_ENIGNE_DB is not a setting (did you mean "SCRAPER_ENGINE_DB"?)',)


def test_every_key_of_the_schema_is_a_setting_with_a_variable() -> None:
    def leaves(schema: dict[str, object], prefix: str) -> list[str]:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return [prefix]
        return [leaf for key, inner in properties.items() for leaf in leaves(inner, f"{prefix}.{key}".lstrip("."))]

    assert set(leaves(load_schema(SCHEMA), "")) == {*KEYS, "sitesManifestDirs"}
    assert len({variable(key) for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_can_be_set_by_its_variable(key: str) -> None:
    samples = {
        "siteDatabaseURL": "postgresql://h/{site}",
        "http.proxy": "http://h:1",
        "browser.sandbox": "never",
        "http.robots": "obey",
    }
    durations = ("duration", "Interval", "Timeout", "timeout", "grace")
    sample = samples.get(key, "77s" if key.endswith(durations) or key.startswith("retention.") else "777")
    settings, _ = load_settings({variable(key): sample})
    assert settings != Settings(origins=settings.origins)
    assert settings.origins == {key: f"environment {variable(key)}"}


def test_manifest_directories_are_merged_over_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "c.yaml", "sitesManifestDirs: [' one/ ', '', '$ROOT/two', '~/three', '$NOTHING']")
    env = {"ROOT": "/r", "HOME": "/h", "SCRAPER_SITES_MANIFEST_DIRS": "/r/x/../two: :${ROOT}/four"}
    settings, _ = load_settings(env, config=file, manifest_dirs=["five/.", "one"])
    assert settings.manifest_dirs == (
        ManifestDirectory(tmp_path / "one", "config"),
        ManifestDirectory(Path("/r/two"), "config"),
        ManifestDirectory(Path("/h/three"), "config"),
        ManifestDirectory(Path("/r/four"), "environment"),
        ManifestDirectory(tmp_path / "five", "flag"),
    )
