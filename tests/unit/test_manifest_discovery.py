"""Discovery: which folders are sites, and how a bad one leaves the others alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import JsLimits, ManifestDirectory, Settings
from engine.errors import ConfigError, SiteError, UsageError
from engine.plugins.registry import Registry, discover
from engine.resources import resource


def site(directory: Path, name: str, extra: str = "") -> Path:
    directory.mkdir(parents=True)
    (directory / "site.yaml").write_text(f"name: {name}\ndatabaseFileName: {name}.db\n{extra}")
    return directory


def found(*directories: Path) -> Registry:
    return discover(Settings(manifest_dirs=tuple(ManifestDirectory(path, "flag") for path in directories)))


def test_direct_subdirectories_with_a_manifest_are_sites(tmp_path: Path) -> None:
    site(tmp_path / "a/jsdemo", "js-demo")
    site(tmp_path / "a/nested/deep", "deep")
    (tmp_path / "a/notes").mkdir()
    (tmp_path / "a/site.txt").write_text("")
    (tmp_path / "a/link").symlink_to(site(tmp_path / "b/other", "other"))
    registry = found(tmp_path / "a")
    assert list(registry.sites) == ["js-demo"]
    assert registry.sites["js-demo"].root == tmp_path / "a/jsdemo"
    assert (registry.broken, registry.warnings) == ({}, ())


def test_several_directories_are_merged_by_name(tmp_path: Path) -> None:
    site(tmp_path / "a/z", "z")
    site(tmp_path / "b/y", "y")
    assert list(found(tmp_path / "a", tmp_path / "b").sites) == ["y", "z"]


def test_a_broken_site_is_set_apart_and_the_others_stand(tmp_path: Path) -> None:
    site(tmp_path / "good", "good")
    site(tmp_path / "bad", "bad", "nope: 1\nscriptsRoot: ../x\n")
    (tmp_path / "mangled").mkdir()
    (tmp_path / "mangled/site.yaml").write_text("name: [")
    registry = found(tmp_path)
    assert list(registry.sites) == ["good"]
    assert {name: len(broken.faults) for name, broken in registry.broken.items()} == {"bad": 2, "mangled": 1}
    with pytest.raises(SiteError, match=r'(?s)site "bad" is broken:.*unknown key "nope".*must not escape'):
        registry.site("bad")


def test_two_sites_of_one_name_are_both_reported_and_neither_is_loaded(tmp_path: Path) -> None:
    site(tmp_path / "a/one", "twin")
    site(tmp_path / "b/two", "twin")
    site(tmp_path / "b/three", "three")
    registry = found(tmp_path / "a", tmp_path / "b")
    assert list(registry.sites) == ["three"]
    assert [fault.file.parent.name for fault in registry.broken["twin"].faults] == ["one", "two"]


def test_a_mangled_folder_takes_no_name_away_from_a_site(tmp_path: Path) -> None:
    site(tmp_path / "other", "mangled")
    (tmp_path / "mangled").mkdir()
    (tmp_path / "mangled/site.yaml").write_text("name: [")
    registry = found(tmp_path)
    assert list(registry.sites) == ["mangled"]
    assert list(registry.broken) == [str(tmp_path / "mangled")]


@pytest.mark.parametrize("name", ["list", "check", "migrate", "new"])
def test_a_site_cannot_be_called_like_a_subcommand(tmp_path: Path, name: str) -> None:
    site(tmp_path / "s", name)
    assert list(found(tmp_path).broken) == [name]


def test_a_missing_directory_is_an_error_unless_only_configured(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone named by --sites-manifest-dir does not exist"):
        found(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"gone named by SCRAPER_SITES_MANIFEST_DIRS does not exist"):
        discover(Settings(manifest_dirs=(ManifestDirectory(tmp_path / "gone", "environment"),)))
    registry = discover(Settings(manifest_dirs=(ManifestDirectory(tmp_path / "gone", "config"),)))
    assert registry.sites == {}
    assert registry.warnings == (f"the manifest directory {tmp_path / 'gone'} of the configuration does not exist",)


def test_a_directory_that_is_itself_a_site_is_pointed_out(tmp_path: Path) -> None:
    (warning,) = found(site(tmp_path / "mine", "mine")).warnings
    assert warning.endswith(f"name {tmp_path}")


def test_sites_that_share_a_database_file_are_pointed_out(tmp_path: Path) -> None:
    site(tmp_path / "a", "a")
    (site(tmp_path / "b", "b") / "site.yaml").write_text("name: b\ndatabaseFileName: a.db\n")
    assert found(tmp_path).warnings == ("the sites a, b share the database file a.db",)


def test_an_unknown_site_gets_the_nearest_name(tmp_path: Path) -> None:
    site(tmp_path / "h", "hackernews")
    with pytest.raises(UsageError, match=r'^site "hackernew" is not registered; did you mean "hackernews"\?$'):
        found(tmp_path).site("hackernew")
    with pytest.raises(UsageError, match=r'^site "x" is not registered$'):
        found(tmp_path).site("x")


def test_the_shipped_sites_are_offered_where_nothing_is_configured() -> None:
    registry = discover(Settings())
    shipped = {folder.name for folder in resource("sites").iterdir() if (folder / "site.yaml").exists()}
    assert registry.broken == {}
    assert {site.root.name for site in registry.sites.values()} == shipped


def test_configured_script_limits_reach_the_sites(tmp_path: Path) -> None:
    site(tmp_path / "s", "s")
    settings = Settings(manifest_dirs=(ManifestDirectory(tmp_path, "flag"),), js=JsLimits(timeout=5, heap_mb=64))
    assert (discover(settings).sites["s"].js.timeout, discover(settings).sites["s"].js.heap_mb) == (5, 64)
