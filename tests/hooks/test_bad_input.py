"""What hooks do wrong with lines, names and links (HOOK-42, HOOK-48, HOOK-55)."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from engine.clock import SECOND
from engine.hooks.config import Layers, launched
from engine.hooks.files import survey
from engine.hooks.layout import Place, crawl_place, snapshot_place
from engine.hooks.outcome import End
from engine.hooks.plugins import discover
from engine.hooks.process import process_of
from engine.runners.hook_files import read_text
from tests.hooks.lab import Lab, record
from tests.hooks.plugins import write_config, write_hook
from tests.hooks.test_supervision import Bench

SECRET = "not yours"
INDEXED = '{"a.txt": {"mimetype": "text/plain"}, "sub/b.txt": {"mimetype": "text/plain"}}'


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that belongs to somebody else."""
    directory = tmp_path / "outside"
    directory.mkdir()
    for name in ("a.txt", "b.txt"):
        (directory / name).write_text(SECRET)
    return directory


@pytest.mark.parametrize("said", ['{"type": "Tag", "name": "', "plain text "])
def test_fifty_megabytes_in_one_line_that_never_ends_are_held_by_nobody(tmp_path: Path, said: str) -> None:
    """HOOK-42, HOOK-48: what may have been a record is told, plain text is not."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bench = Bench(tmp_path, f"printf '%s' '{said}'; head -c 50000000 /dev/zero | tr '\\0' 'x'")
    assert bench.run() == End(code=0)
    assert bench.records == []
    assert len(bench.watch.stream.warnings) == said.startswith("{")
    assert bench.job.traces.stdout.stat().st_size > 50_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000
    bench.job.traces.stdout.unlink()


def test_only_regular_files_of_the_directory_itself_are_its_output(tmp_path: Path, outside: Path) -> None:
    """HOOK-55: links lead nowhere, names are names, and what is no file is none."""
    own = tmp_path / "own"
    (own / "sub").mkdir(parents=True)
    for name in ("..hidden", "a\nb", "sub/..\\..\\x", "%2e%2e%2fx"):
        (own / name).write_text("x")
    (own / os.fsdecode(b"bad\xff")).write_text("x")
    (own / "link.txt").symlink_to(outside / "a.txt")
    (own / "sub" / "up").symlink_to("../..")
    (own / "loop").symlink_to("loop")
    os.mkfifo(own / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(own / "socket"))
        found = survey(own)
    assert {file.path for file in found.files} == {
        "%2e%2e%2fx",
        "..hidden",
        "a\nb",
        "bad\N{REPLACEMENT CHARACTER}",
        "sub/..\\..\\x",
    }
    assert found.count == found.size == 5


def test_a_directory_that_a_hook_replaced_by_a_link_is_empty(tmp_path: Path, outside: Path) -> None:
    """HOOK-55."""
    (tmp_path / "own").symlink_to(outside)
    assert survey(tmp_path / "own").files == ()


@pytest.mark.parametrize("swapped", ["a.txt", "sub", ".", "pipe"])
def test_the_text_of_a_snapshot_is_never_read_through_a_link_that_came_later(
    tmp_path: Path, outside: Path, swapped: str
) -> None:
    """HOOK-55: nor does a pipe in the place of a file hold up the seal."""
    place = Place(tmp_path / "snap")
    own = place.plugin("p")
    if swapped == ".":
        own.parent.mkdir()
        own.symlink_to(outside)
    else:
        own.mkdir(parents=True)
        (own / "sub").mkdir() if swapped != "sub" else (own / "sub").symlink_to(outside)
        (own / "a.txt").symlink_to(outside / "a.txt") if swapped == "a.txt" else None
        if swapped == "pipe":
            os.mkfifo(own / "a.txt")
            (own / "sub" / "b.txt").write_text("mine")
    assert read_text(place, [("p", INDEXED)], 1000) == ("mine" if swapped == "pipe" else "")


def test_names_in_a_row_lead_nowhere_else(tmp_path: Path, outside: Path) -> None:
    """HOOK-55."""
    place = Place(tmp_path / "snap")
    place.plugin("p").mkdir(parents=True)
    for name in ("../../outside/a.txt", str(outside / "a.txt")):
        files = f'{{"{name}": {{"mimetype": "text/plain"}}}}'
        assert read_text(place, [("p", files)], 1000) == ""


@pytest.mark.parametrize("name", ["..", ".", "", "../../x", "/etc", "a/../../b", "-rf", ".ssh", "a\0b", "é" * 300])
def test_no_name_of_a_crawl_user_or_host_leaves_the_data_directory(tmp_path: Path, name: str) -> None:
    """HOOK-70."""
    for place in (
        crawl_place(tmp_path, name, name, SECOND),
        snapshot_place(tmp_path, name, name, f"http://{name.replace('[', '')}/", SECOND),
        snapshot_place(tmp_path, "system", "s", f"file:///{name}", SECOND),
    ):
        root = place.root.resolve()
        assert root.is_relative_to(tmp_path)
        assert len(root.relative_to(tmp_path).parts) == len(place.root.relative_to(tmp_path).parts)
        assert all(len(part.encode()) <= 255 for part in root.parts)


def test_a_plugin_that_requires_a_path_requires_what_is_not_there(tmp_path: Path) -> None:
    """HOOK-24."""
    write_hook(tmp_path / "plugins", "a/on_Snapshot__10_a.sh", "")
    write_hook(tmp_path, "b/on_Snapshot__10_b.sh", "")
    write_config(tmp_path / "plugins", "a", {}, required_plugins=["../../b"])
    plugins = discover([tmp_path / "plugins"])
    assert launched(plugins, Layers()) == launched(plugins, Layers(), ["a"]) == set()


def test_a_pid_file_of_any_size_is_looked_at_and_not_read(tmp_path: Path) -> None:
    """HOOK-72."""
    file = tmp_path / "huge.pid"
    with file.open("wb") as writer:
        writer.truncate(1 << 34)
    assert process_of(file, 0.0) is None


def test_a_record_that_names_somebody_elses_files_changes_no_row_but_its_own(tmp_path: Path) -> None:
    """HOOK-43: the files of a row are those that are there, whatever the record says."""
    lab = Lab(tmp_path)
    said = record(
        type="ArchiveResult",
        status="succeeded",
        id="other",
        snapshot_id="other",
        plugin="other",
        output_str="../../../../etc/passwd",
        output_files={"../../../../etc/passwd": {"size": 1, "mimetype": "text/plain"}},
    )
    lab.hook("liar/on_Snapshot__10_liar.sh", said)
    lab.crawl(attempts=1)
    (row,) = lab.rows("SELECT plugin, status, output_str, output_files, output_count FROM archive_results")
    assert tuple(row.values()) == ("liar", "succeeded", "../../../../etc/passwd", "{}", 0)
    assert lab.rows("SELECT url FROM snapshot_texts WHERE snapshot_texts MATCH 'root'") == []


def test_hooks_run_without_run_bit_or_shebang_and_what_nothing_can_run_fails_alone(tmp_path: Path) -> None:
    """HOOK-6, HOOK-52."""
    lab = Lab(tmp_path)
    lab.hook("a/on_Snapshot__10_a.py", 'print(\'{"type": "Tag", "name": "python"}\')').chmod(0o644)
    shell = lab.hook("b/on_Snapshot__20_b.sh", "")
    shell.write_text(record(type="Tag", name="shell"))
    shell.chmod(0o644)
    lab.hook("c/on_Snapshot__30_c.xyz", "what is this").chmod(0o644)
    lab.hook("d/on_Snapshot__40_d.pl", "#!/nowhere/perl\n")
    lab.hook("e/on_Snapshot__50_e.sh", record(type="Tag", name="last"))
    lab.crawl(attempts=1)
    rows = lab.results("status, exit_code").values()
    assert [(row["status"], row["exit_code"]) for row in rows] == [
        *[("succeeded", 0)] * 2,
        ("failed", 126),
        ("failed", 127),
        ("succeeded", 0),
    ]
    assert {row["tag"] for row in lab.rows("SELECT tag FROM snapshot_tags")} == {"python", "shell", "last"}
