"""Programs that hooks need: found, installed with consent, one row per machine (HOOK-120 to HOOK-123)."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

import pytest

from engine.app import open_store
from engine.crawls import add_installation
from engine.hooks.binaries import Need
from engine.hooks.graph import CrawlSpec
from engine.machine import machine_id
from engine.model import Binary
from engine.store.store import Store
from tests.hooks.lab import Lab, record
from tests.hooks.plugins import write_config, write_hook


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def known(lab: Lab, machine: str = "") -> dict[str, Binary]:
    with contextlib.closing(open_store(lab.settings)) as store:
        return store.binaries(machine or machine_id(lab.settings.sites_dir))


def install(lab: Lab, *needs: Need, machine: str = "") -> None:
    spec = CrawlSpec(urls=(), data_dir=str(lab.settings.data_dir), install=True, attempts=1)
    with contextlib.closing(open_store(lab.settings)) as store:
        add_installation(lab.settings, store, lab.site, spec, needs)
    lab.work(machine_id=machine)


def need(name: str, **values: str) -> Need:
    return Need(name=name, key=f"{name.upper()}_BINARY", **values)  # type: ignore[arg-type]


def installer(lab: Lab, number: int, provider: str, script: str, event: str = "Binary") -> None:
    lab.hook(
        f"{provider}/on_{event}__{number:02d}_{provider}_install.sh",
        f'echo {provider} >> {lab.folder}/log; case "$*" in *--bin-providers=*{provider}*|*--bin-providers=\\**) ;; '
        f"*) exit 0;; esac\n{script}",
    )


def program(lab: Lab, name: str) -> Path:
    path = write_hook(lab.folder / "bin", f"{name}.sh", "echo tool 3.2.1").with_suffix("")
    path.with_suffix(".sh").rename(path)
    return path


def test_a_crawl_looks_on_path_and_tells_its_hooks_where_programs_are(lab: Lab) -> None:
    properties = {"SHELL_BINARY": {"type": "string", "default": "sh"}}
    write_config(lab.hooks, "p", properties, required_binaries=[{"name": "{SHELL_BINARY}", "binproviders": "env,apt"}])
    lab.hook("p/on_Snapshot__10_p.sh", 'echo "$SHELL_BINARY" > which.txt')
    lab.crawl()
    found = known(lab)["sh"]
    assert (found.status, found.provider) == ("succeeded", "env")
    assert found.sha256 == hashlib.sha256(Path(found.abspath).read_bytes()).hexdigest()
    (row,) = lab.results("pwd").values()
    assert Path(row["pwd"], "which.txt").read_text().strip() == found.abspath


def test_nothing_is_installed_unless_the_operator_says_so(lab: Lab) -> None:
    write_config(lab.hooks, "p", {}, required_binaries=[{"name": "no-such-tool"}])
    lab.hook("p/on_Snapshot__10_p.sh", "exit 10")
    installer(lab, 10, "pip", f"{record(type='Binary', name='no-such-tool', abspath=str(program(lab, 'tool')))}")
    lab.crawl(crawl_id="without")
    assert not (lab.folder / "log").exists()
    assert known(lab)["no-such-tool"].status == "failed"
    assert lab.statuses()[0] == "sealed"
    lab.crawl(crawl_id="with", install=True)
    assert known(lab)["no-such-tool"].status == "succeeded"


def test_installers_run_in_order_and_the_first_success_wins(lab: Lab) -> None:
    tool = program(lab, "tool")
    installer(lab, 10, "apt", "exit 1")
    installer(lab, 20, "brew", record(type="Binary", name="tool", abspath="/nowhere/tool"))
    installer(lab, 30, "pip", record(type="Binary", name="tool", abspath=str(tool), version="9.9", binprovider="pip"))
    installer(lab, 40, "npm", record(type="Binary", name="tool", abspath=str(tool), binprovider="npm"))
    install(lab, need("tool"))
    assert (lab.folder / "log").read_text().split() == ["apt", "brew", "pip"]
    found = known(lab)["tool"]
    assert (found.abspath, found.provider, found.version) == (str(tool), "pip", "3.2.1")
    install(lab, need("tool"))
    assert (lab.folder / "log").read_text().split() == ["apt", "brew", "pip"]


def test_each_installer_decides_by_the_providers_it_is_told(lab: Lab) -> None:
    tool = program(lab, "sh2")
    installer(lab, 10, "apt", record(type="Binary", name="sh2", abspath=str(tool)))
    installer(lab, 20, "pip", record(type="Binary", name="sh2", abspath=str(tool)))
    install(lab, need("sh2", providers="pip"))
    assert (lab.folder / "log").read_text().split() == ["apt", "pip"]
    assert known(lab)["sh2"].provider == "pip"


def test_in_a_crawl_every_hook_that_was_run_to_install_has_a_row(lab: Lab) -> None:
    write_config(lab.hooks, "p", {}, required_binaries=[{"name": "tool", "binproviders": "brew,pip,npm"}])
    lab.hook("p/on_Snapshot__10_p.sh", "exit 10")
    tool = program(lab, "tool")
    installer(lab, 10, "apt", "exit 1")
    said = record(type="ArchiveResult", status="failed", output_str="no such formula")
    installer(lab, 20, "brew", f"{said}; exit 3", event="BinaryRequest")
    found = record(type="Binary", name="tool", abspath=str(tool))
    installer(lab, 10, "pip", f"echo x > x.txt; {found}", event="Dependency")
    installer(lab, 40, "npm", found, event="Dependency")
    # whoever installs is not asked whether it is switched on
    lab.crawl(install=True, config={"PIP_ENABLED": False}, plugins=("p",))
    rows = lab.rows(
        "SELECT plugin, event, snapshot_id, status, exit_code, error, output_str, output_count, start_ts, end_ts, cmd,"
        " pwd FROM archive_results WHERE event <> 'Snapshot' ORDER BY position"
    )
    assert [row["event"] for row in rows] == ["Binary", "BinaryRequest", "Dependency"]
    assert [(row["plugin"], row["status"], row["exit_code"], row["output_str"]) for row in rows] == [
        ("apt", "noresults", 0, ""),
        ("brew", "failed", 3, "no such formula"),
        ("pip", "succeeded", 0, ""),
    ]
    assert [row["output_count"] for row in rows] == [0, 0, 1]
    assert all("--name=tool" in json.loads(row["cmd"]) for row in rows)
    assert all(row["snapshot_id"] is None and row["start_ts"] < row["end_ts"] for row in rows)
    assert "/binaries/tool/" in rows[0]["pwd"]
    assert lab.statuses() == ["sealed", "sealed"]


def test_a_program_that_cannot_be_installed_is_remembered_as_failed(lab: Lab) -> None:
    installer(lab, 10, "apt", "exit 1")
    install(lab, need("tool"))
    assert (known(lab)["tool"].status, known(lab)["tool"].error) == ("failed", "no hook could install it")


def test_two_machines_have_a_row_each(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in ("one", "two"):
        monkeypatch.setenv("SCRAPER_MACHINE_ID", machine)
        tool = program(lab, f"tool-{machine}")
        installer(lab, 10, "pip", record(type="Binary", name="tool", abspath=str(tool)))
        install(lab, need("tool"), machine=machine)
    assert known(lab, "one")["tool"].abspath.endswith("tool-one")
    assert known(lab, "two")["tool"].abspath.endswith("tool-two")


def test_machines_and_their_addresses_are_remembered(engine_url: str) -> None:
    with contextlib.closing(Store.open(engine_url)) as store:
        for address in ("192.0.2.1", "192.0.2.1", "", "192.0.2.2"):
            store.meet("m", "host", "Linux", address)
        store.put_binary("m", Binary(name="wget", abspath="/bin/wget"))
        store.put_binary("m", Binary(name="wget", status="failed", error="gone"))
        with store.database.read() as connection:
            assert connection.exec_driver_sql("SELECT id, hostname FROM machine").all() == [("m", "host")]
            rows = connection.exec_driver_sql("SELECT address FROM network_interface ORDER BY address").all()
        assert [row[0] for row in rows] == ["192.0.2.1", "192.0.2.2"]
        assert store.binaries("m") == {"wget": Binary(name="wget", status="failed", error="gone")}


def test_binaries_on_the_command_line(lab: Lab) -> None:
    from tests.hooks.test_archive_site import here

    lab.hook("p/on_Snapshot__10_p.sh", "exit 0")
    write_config(lab.hooks, "p", {}, required_binaries=[{"name": "sh"}, {"name": "no-such-tool"}])
    flags = ["--sites-manifest-dir", str(lab.folder / "sites"), "--output", "json"]
    listed = here(lab.folder, "binary", "list", *flags, site="lab")
    assert [one["status"] for one in json.loads(listed.out)["binaries"]] == ["unknown", "unknown"]
    ran = here(lab.folder, "binary", "install", *flags, site="lab")
    assert (ran.code, {one["name"]: one["status"] for one in json.loads(ran.out)["binaries"]}) == (
        1,
        {"no-such-tool": "failed", "sh": "succeeded"},
    )
    assert here(lab.folder, "binary", "install", "sh", *flags, site="lab").code == 0
    assert here(lab.folder, "binary", "install", "wget", *flags, site="lab").code == 2
    assert known_here(lab)["sh"].provider == "env"


def test_what_hooks_have_set_for_the_machine_is_listed_but_for_secrets(lab: Lab) -> None:
    from tests.hooks.test_archive_site import here

    write_config(lab.hooks, "p", {"P_TOKEN": {"type": "string", "x-sensitive": True}})
    lab.hook("p/on_Snapshot__10_p.sh", "exit 0")
    with contextlib.closing(Store.open(lab.folder / "state/engine.db")) as store:
        store.configure_machine(machine_id(lab.folder / "state/sites"), {"P_TOKEN": "hunter2", "P_WORD": "seen"})
    flags = ["--sites-manifest-dir", str(lab.folder / "sites")]
    assert here(lab.folder, "binary", "list", *flags, site="lab").out.splitlines()[-2:] == [
        "P_TOKEN       ***",
        "P_WORD        seen",
    ]
    told = json.loads(here(lab.folder, "binary", "list", *flags, "--output", "json", site="lab").out)
    assert told == {"binaries": [], "config": {"P_TOKEN": "***", "P_WORD": "seen"}}


def known_here(lab: Lab) -> dict[str, Binary]:
    with contextlib.closing(Store.open(lab.folder / "state/engine.db")) as store:
        return store.binaries(machine_id(lab.folder / "state/sites"))
