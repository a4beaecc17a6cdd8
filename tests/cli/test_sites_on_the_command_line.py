"""Sites on the command line: what is listed, what is reported, and what never stands in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.site import app as site_app
from engine.plugins.manifest import RESERVED_NAMES
from tests.cli.console import make_site, scraper


def test_site_list_prints_the_names_sorted(tmp_path: Path) -> None:
    make_site(tmp_path / "a/zz", "zebra")
    make_site(tmp_path / "b/aa", "ant")
    ran = scraper(tmp_path, "--sites-manifest-dir", "a", "site", "list", "--sites-manifest-dir=b")
    assert (ran.code, ran.out, ran.err) == (0, "ant\nzebra\n", "")


def test_a_broken_site_is_reported_once_and_disturbs_no_other(tmp_path: Path) -> None:
    make_site(tmp_path / "s/good", "good")
    make_site(tmp_path / "s/bad", "bad", "scriptRoot: x\nverbsRoot: ../v\n")
    listed = scraper(tmp_path, "site", "list", SCRAPER_SITES_MANIFEST_DIRS="s")
    assert (listed.code, listed.out) == (0, "good\n")
    (line,) = listed.err.splitlines()
    manifest = tmp_path / "s/bad/site.yaml"
    assert line.startswith(f'warning: site "bad" is broken and unavailable: {manifest}:3: ')
    assert line.endswith("(and 1 more)")
    named = scraper(tmp_path, "site", "bad", "run", SCRAPER_SITES_MANIFEST_DIRS="s")
    assert named.code == 1
    assert f'{manifest}:3: site has an unknown key "scriptRoot" (did you mean "scriptsRoot"?)' in named.err
    assert f"{manifest}:4: site.verbsRoot must not escape the site filesystem" in named.err


def test_site_check_reports_every_fault_and_fails(tmp_path: Path) -> None:
    make_site(tmp_path / "s/bad", "bad", "nope: 1\nmodules: [fs]\n")
    ran = scraper(tmp_path, "site", "check", "--output", "json", "--sites-manifest-dir", "s")
    assert ran.code == 1
    (site,) = json.loads(ran.out)["sites"]
    assert (site["name"], site["ok"]) == ("bad", False)
    assert [(fault["line"], fault["message"]) for fault in site["faults"]] == [
        (3, 'site has an unknown key "nope"'),
        (4, 'site.modules contains unsupported module "fs"'),
    ]


def test_two_sites_of_one_name_are_both_unavailable(tmp_path: Path) -> None:
    make_site(tmp_path / "s/one", "twin")
    make_site(tmp_path / "s/two", "twin")
    make_site(tmp_path / "s/three", "three")
    listed = scraper(tmp_path, "site", "list", "--sites-manifest-dir", "s")
    assert (listed.code, listed.out) == (0, "three\n")
    named = scraper(tmp_path, "site", "migrate", "twin", "--sites-manifest-dir", "s")
    assert named.code == 1
    assert str(tmp_path / "s/one/site.yaml") in named.err
    assert str(tmp_path / "s/two/site.yaml") in named.err


def test_a_missing_manifest_directory_is_an_error_from_flag_and_variable(tmp_path: Path) -> None:
    by_flag = scraper(tmp_path, "site", "list", "--sites-manifest-dir", "gone")
    by_variable = scraper(tmp_path, "engine", "status", SCRAPER_SITES_MANIFEST_DIRS="gone")
    for ran, name in ((by_flag, "--sites-manifest-dir"), (by_variable, "SCRAPER_SITES_MANIFEST_DIRS")):
        missing = f"error: the manifest directory {tmp_path / 'gone'} named by {name} does not exist\n"
        assert (ran.code, ran.out, ran.err) == (1, "", missing)


def test_a_missing_manifest_directory_of_the_configuration_is_a_warning(tmp_path: Path) -> None:
    make_site(tmp_path / "s/good", "good")
    (tmp_path / "home/.scraper").mkdir(parents=True)
    (tmp_path / "home/.scraper/config.yaml").write_text(f"sitesManifestDirs: [gone, {tmp_path}/s]\n")
    ran = scraper(tmp_path, "site", "list")
    assert (ran.code, ran.out) == (0, "good\n")
    assert ran.err == f"warning: the manifest directory {tmp_path}/gone of the configuration does not exist\n"


def test_the_manifest_flag_needs_a_value(tmp_path: Path) -> None:
    ran = scraper(tmp_path, "site", "list", "--sites-manifest-dir")
    assert (ran.code, ran.err) == (2, "error: --sites-manifest-dir needs a value\n")


def test_an_unknown_site_is_a_usage_error_with_a_suggestion(tmp_path: Path) -> None:
    make_site(tmp_path / "s/good", "good-site")
    for arguments in (("good-sit", "run", "x"), ("migrate", "good-sit"), ("check", "good-sit")):
        ran = scraper(tmp_path, "--sites-manifest-dir", "s", "site", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == 'error: site "good-sit" is not registered; did you mean "good-site"?\n'


def test_a_site_without_verbs_says_so(tmp_path: Path) -> None:
    make_site(tmp_path / "s/quiet", "quiet")
    ran = scraper(tmp_path, "--sites-manifest-dir", "s", "site", "quiet", "run", "seed")
    assert (ran.code, ran.err) == (2, 'error: site "quiet" has no verbs: its site.yaml sets no verbsRoot\n')


def test_the_help_of_site_lists_the_sites_even_beside_broken_ones(tmp_path: Path) -> None:
    make_site(tmp_path / "s/good", "good")
    make_site(tmp_path / "s/bad", "bad", "x: 1\n")
    ran = scraper(tmp_path, "site", "--help", "--sites-manifest-dir", "s")
    assert ran.code == 0
    assert "good run" in ran.out
    assert "broken" in ran.out
    lost = scraper(tmp_path, "site", "--help", "--sites-manifest-dir", "gone")
    assert (lost.code, "does not exist" in lost.out) == (0, True)


def test_malformed_yaml_names_line_and_column(tmp_path: Path) -> None:
    make_site(tmp_path / "s/bad", "bad", "modules: [a\nx: }\n")
    ran = scraper(tmp_path, "--sites-manifest-dir", "s", "site", "check")
    assert ran.code == 1
    assert f"{tmp_path / 's/bad/site.yaml'}:4:2: malformed YAML" in ran.out


def test_no_site_can_be_called_like_a_subcommand() -> None:
    """A subcommand of ``site`` that is not reserved could hide a site of that name (SITE-3)."""
    group: Any = typer.main.get_command(site_app)
    assert set(group.commands) <= RESERVED_NAMES


@pytest.mark.parametrize("name", ["list", "check", "migrate"])
def test_reserved_names_are_refused(tmp_path: Path, name: str) -> None:
    make_site(tmp_path / "s/x", name)
    ran = scraper(tmp_path, "--sites-manifest-dir", "s", "site", "check")
    assert ran.code == 1
    assert f'site.name must not be "{name}": that is a subcommand of "scraper site"' in ran.out
