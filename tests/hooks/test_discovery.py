"""Finding hooks, their order and their commands (HOOK-1 to HOOK-8)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.errors import SiteError
from engine.hooks.launch import CannotLaunch, command
from engine.hooks.lint import check
from engine.hooks.naming import Ground, parse_name
from engine.hooks.plugins import discover, hook_directories
from engine.plugins.site import Site
from tests.hooks.plugins import write_config, write_hook

PATH = os.environ["PATH"]


@pytest.mark.parametrize(
    ("file", "ground"),
    [
        ("on_Snapshot__10_a.py", Ground.FOREGROUND),
        ("on_Snapshot__10_a.bg.py", Ground.BACKGROUND),
        ("on_Snapshot__10_a.finite.bg.py", Ground.FINITE),
        ("on_Snapshot__10_a.daemon.bg.js", Ground.DAEMON),
    ],
)
def test_the_words_before_the_extension_say_who_waits(file: str, ground: Ground) -> None:
    name = parse_name(file)
    assert name is not None
    assert (name.ground, name.background) == (ground, ground is not Ground.FOREGROUND)
    assert (name.number, name.step, name.description) == (10, 1, "a")


@pytest.mark.parametrize(
    "file", ["README.md", "helper.py", "on_Snapshot_10_a.py", "on___10_a.py", "test_on_Snapshot__1.py"]
)
def test_other_files_are_no_hooks(file: str) -> None:
    assert parse_name(file) is None


def test_hooks_run_by_file_name_over_all_plugins_and_by_plugin_where_names_are_equal(tmp_path: Path) -> None:
    for label in (
        "zeta/on_Snapshot__05_first.sh",
        "alpha/on_Snapshot__50_late.sh",
        "beta/on_Snapshot__10_same.sh",
        "alpha/on_Snapshot__10_same.sh",
        "alpha/on_Snapshot__early.sh",
        "alpha/on_Crawl__00_other_event.sh",
    ):
        write_hook(tmp_path, label, "")
    plugins = discover([tmp_path])
    assert [hook.label for hook in plugins.hooks("Snapshot")] == [
        "zeta/on_Snapshot__05_first.sh",
        "alpha/on_Snapshot__10_same.sh",
        "beta/on_Snapshot__10_same.sh",
        "alpha/on_Snapshot__50_late.sh",
        "alpha/on_Snapshot__early.sh",
    ]


def test_a_hook_without_a_number_runs_in_step_nine_with_a_warning(tmp_path: Path) -> None:
    path = write_hook(tmp_path, "a/on_Snapshot__title.sh", "")
    write_hook(tmp_path, "a/on_Binary__install.sh", "")
    plugins = discover([tmp_path])
    (hook,) = plugins.hooks("Snapshot")
    assert hook.name.step == 9
    (warning,) = plugins.warnings
    assert str(path) in warning


def test_plugins_that_begin_with_an_underscore_are_not_plugins(tmp_path: Path) -> None:
    write_hook(tmp_path, "_draft/on_Snapshot__10_a.sh", "")
    write_hook(tmp_path, ".git/on_Snapshot__10_a.sh", "")
    assert discover([tmp_path]).by_name == {}


def test_a_later_directory_replaces_a_plugin_of_the_same_name_whole(tmp_path: Path) -> None:
    write_hook(tmp_path / "shipped", "a/on_Snapshot__10_a.sh", "")
    write_hook(tmp_path / "shipped", "a/on_Snapshot__20_gone.sh", "")
    write_hook(tmp_path / "mine", "a/on_Snapshot__10_a.sh", "")
    plugins = discover([tmp_path / "shipped", tmp_path / "mine"])
    assert [hook.path for hook in plugins.hooks("Snapshot")] == [tmp_path / "mine/a/on_Snapshot__10_a.sh"]
    assert any("replaces" in warning for warning in plugins.warnings)


def test_hook_directories_are_the_sites_then_the_operators(tmp_path: Path) -> None:
    for name in ("site/plugins", "more"):
        (tmp_path / name).mkdir(parents=True)
    site = Site(
        name="s",
        root=tmp_path / "site",
        manifest=tmp_path / "site/site.yaml",
        database_file="s.db",
        hook_dirs=("plugins",),
    )
    assert hook_directories(site, [tmp_path / "more"]) == (tmp_path / "site/plugins", tmp_path / "more")
    with pytest.raises(SiteError, match="does not exist"):
        hook_directories(site, [tmp_path / "missing"])


def test_needs_are_read_from_all_three_files(tmp_path: Path) -> None:
    write_config(tmp_path, "a", {}, required_binaries=[{"name": "wget"}])
    (tmp_path / "a/binaries.jsonl").write_text('{"type": "Binary", "name": "git"}\n')
    (tmp_path / "a/dependencies.jsonl").write_text('{"type": "Binary", "name": "curl"}\nnonsense\n')
    plugins = discover([tmp_path])
    assert [need["name"] for need in plugins.by_name["a"].binaries] == ["git", "curl", "wget"]
    assert any("dependencies.jsonl:2" in warning for warning in plugins.warnings)


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"properties": 1}', "[" * 100_000])
def test_a_config_that_is_no_schema_is_a_warning_and_the_hooks_still_run(tmp_path: Path, text: str) -> None:
    write_hook(tmp_path, "a/on_Snapshot__10_a.sh", "")
    (tmp_path / "a/config.json").write_text(text)
    plugins = discover([tmp_path])
    assert len(plugins.hooks("Snapshot")) == 1
    assert any("config.json" in warning for warning in plugins.warnings)


def test_the_sites_interpreter_beats_the_shebang_which_beats_the_usual_one(tmp_path: Path) -> None:
    own = write_hook(tmp_path, "a/on_Snapshot__10_a.py", "#!/bin/cat\n")
    bare = write_hook(tmp_path, "a/on_Snapshot__20_b.py", "")
    foreign = write_hook(tmp_path, "a/on_Snapshot__30_c.py", "#!/nowhere/python\n")
    missing = write_hook(tmp_path, "a/on_Snapshot__40_d.py", "#!/usr/bin/env -S no-such-program run\n")
    plain = write_hook(tmp_path, "a/on_Snapshot__50_e.py", "#!/bin/cat\n", executable=False)
    assert command(own, "py", {"py": "/bin/sh"}, tmp_path, PATH) == ["/bin/sh", str(own)]
    assert command(own, "py", {}, tmp_path, PATH) == [str(own)]
    for path in (bare, foreign, missing, plain):
        assert command(path, "py", {}, tmp_path, PATH) == [sys.executable, str(path)]


def test_what_nothing_can_run_is_said_with_a_shells_exit_code(tmp_path: Path) -> None:
    unknown = write_hook(tmp_path, "a/on_Snapshot__10_a.rb", "")
    lost = write_hook(tmp_path, "a/on_Snapshot__10_b.pl", "#!/nowhere/perl\n")
    for path, interpreters, code in (
        (unknown, {}, 126),
        (lost, {}, 127),
        (tmp_path / "a/gone.sh", {}, 127),
        (unknown, {"rb": "/nowhere/ruby"}, 127),
    ):
        with pytest.raises(CannotLaunch) as raised:
            command(path, path.suffix[1:], interpreters, tmp_path, PATH)
        assert raised.value.code == code


def test_the_lint_names_every_fault_of_a_plugin(tmp_path: Path) -> None:
    write_hook(tmp_path, "a/on_Snapshot__52_pdf.bg.sh", "")
    write_hook(tmp_path, "a/on_Snapshot__63_media.sh", "")
    write_hook(tmp_path, "a/on_Snapshot__nonumber.sh", "")
    write_hook(tmp_path, "a/on_Snapsot__10_typo.sh", "")
    write_hook(tmp_path, "a/on_Snapshot__20_plain.sh", "", executable=False)
    write_hook(tmp_path, "a/on_Snapshot__30_what.xyz", "")
    write_config(tmp_path, "a", {"A_TIMEOUT": {"type": "integer", "default": "soon"}}, required_plugins=["b"])
    found = "\n".join(map(str, check([tmp_path], {}, tmp_path, PATH)))
    for words in (
        "pdf must not run in the background",
        "media must run in the background",
        "no two-digit number",
        '"Snapsot" is no event',
        "not executable",
        "no shebang",
        "'soon' is not of type 'integer'",
        'required plugin "b" is not there',
    ):
        assert words in found


def test_the_lint_finds_nothing_wrong_with_a_good_plugin(tmp_path: Path) -> None:
    write_hook(tmp_path, "a/on_Snapshot__52_pdf.sh", "")
    write_hook(tmp_path, "a/on_Snapshot__63_media.bg.sh", "")
    write_config(tmp_path, "a", {"A_TIMEOUT": {"type": "integer", "default": 3}})
    assert check([tmp_path], {}, tmp_path, PATH) == ()
