"""Modules are read again when their file has changed, and only then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.js import modules
from engine.js.modules import ModuleRoots


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as unlikely to change as soon as they are written."""
    monkeypatch.setattr(modules, "_SETTLED_NS", -(10**12))


def test_an_unchanged_file_is_read_once(tmp_path: Path, settled: None) -> None:
    (tmp_path / "a.js").write_text("1")
    first = ModuleRoots([("scripts", tmp_path)]).entry("a")
    assert ModuleRoots([("scripts", tmp_path)]).require("./a.js", "scripts/b.js") is first


def test_an_edit_counts_even_where_size_and_time_stay(tmp_path: Path, settled: None) -> None:
    path = tmp_path / "a.js"
    path.write_text("1")
    times = path.stat()
    first = ModuleRoots([("scripts", tmp_path)]).entry("a")
    (tmp_path / "new").write_text("2")
    os.utime(tmp_path / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
    (tmp_path / "new").replace(path)
    again = ModuleRoots([("scripts", tmp_path)]).entry("a")
    assert (first.source, again.source) == ("1", "2")
    assert first.number != again.number


def test_a_file_that_was_just_written_is_not_trusted_to_stay(tmp_path: Path) -> None:
    """Its times cannot tell two edits within one tick of the clock apart."""
    (tmp_path / "a.js").write_text("1")
    roots = ModuleRoots([("scripts", tmp_path)])
    assert roots.entry("a") is not roots.entry("a")


def test_another_folder_behind_the_same_link_is_noticed(tmp_path: Path, settled: None) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.js").write_text(name)
    link = tmp_path / "scripts"
    link.symlink_to("old")
    roots = ModuleRoots([("scripts", link)])
    assert roots.entry("a").source == "old"
    link.unlink()
    link.symlink_to("new")
    assert roots.entry("a").source == "new"
