"""ArchiveBox's published plugins, unmodified, in a virtual environment of their own, against a loopback site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.browser.scratch import processes_of
from tests.cli.console import scraper
from tests.hooks.test_archive_site import serving

pytestmark = pytest.mark.external

#: The newest that installs on Python 3.11, and what it leaves to whoever installs it: jambo later than 0.1.7 refuses
#: the titles of its schemas, and the RSS parser is not among its requirements.
PACKAGES = ("abx-plugins==1.11.86", "jambo==0.1.7", "feedparser")
PLUGINS = (
    *("wget", "favicon", "htmltotext", "parse_html_urls", "parse_txt_urls", "parse_rss_urls"),
    *("parse_netscape_urls", "hashes", "git"),
)
#: What the plugins that drive Chromium load from NODE_MODULES_DIR, and would install from there themselves.
MODULES = ("puppeteer-core@24.8.2", "abxbus@2.5.43")
BROWSED = ("title", "dom", "screenshot", "pdf", "headers")
SCRIPTED = """<!doctype html><title>before</title><p id="text">loading</p><script>
document.title = "after " + 6 * 7; document.getElementById("text").textContent = "ready " + 6 * 7;</script>"""
FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>t</title>
<item><title>x</title><link>{base}/b.html</link></item></channel></rss>"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the plugins; the interpreter is beside it."""
    home = tmp_path_factory.mktemp("abx")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    subprocess.run([home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
    (found,) = home.glob("lib/python*/site-packages/abx_plugins/plugins")
    return found


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of node modules."""
    home = tmp_path_factory.mktemp("npm")
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    subprocess.run(["npm", "install", *quiet, *MODULES], cwd=home, check=True)
    return home / "node_modules"


def site_of(tmp_path: Path, plugins: Path, more: str = "") -> Path:
    """A site whose hooks are the plugins."""
    site = tmp_path / "sites/abx"
    site.mkdir(parents=True)
    python = plugins.parents[4] / "bin/python"
    (site / "site.yaml").write_text(
        f"name: abx\ndatabaseFileName: abx.db\nhookDirs: [{plugins}]\ninterpreters: {{py: {python}}}\n{more}"
    )
    return site


@pytest.mark.timeout(600)
def test_nine_plugins_run_unmodified(plugins: Path, tmp_path: Path) -> None:
    site_of(tmp_path, plugins)
    www = tmp_path / "www"
    www.mkdir()
    with serving(www) as base:
        (www / "index.html").write_text(f"<title>T</title><p>quick fox <a href='/b.html'>b</a> {base}/c.html</p>")
        (www / "b.html").write_text("<title>B</title>b")
        (www / "c.html").write_text("<title>C</title>c")
        (www / "feed.rss").write_text(FEED.format(base=base))
        (www / "favicon.ico").write_bytes(b"\0\0\1\0")
        common = ("--sites-manifest-dir", "sites", "--output", "json")
        words = ("site", "abx", "crawl", "add", f"{base}/index.html", f"{base}/feed.rss", "--depth", "1", "--wait")
        ran = scraper(tmp_path, *words, "--attempts", "1", "--plugins", ",".join(PLUGINS), *common)
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert said["crawl"]["status"] == "sealed"
    assert "failed" not in said["results"], said
    shown = scraper(tmp_path, "site", "abx", "snapshot", "show", f"{base}/index.html", *common)
    hooks = {hook["plugin"]: hook for hook in json.loads(shown.out)["hooks"]}
    assert hooks.keys() == set(PLUGINS)
    succeeded = {name for name, hook in hooks.items() if hook["status"] == "succeeded"}
    assert succeeded >= {"wget", "favicon", "htmltotext", "parse_html_urls", "parse_txt_urls", "hashes"}
    assert hooks["git"]["status"] == "noresults"
    listed = scraper(tmp_path, "site", "abx", "snapshot", "list", *common)
    found = {one["url"].removeprefix(base): one["depth"] for one in json.loads(listed.out)["snapshots"]}
    assert found == {"/index.html": 0, "/feed.rss": 0, "/b.html": 1, "/c.html": 1}
    known = scraper(tmp_path, "site", "abx", "binary", "list", "--plugins", "wget", *common)
    (wget,) = [one for one in json.loads(known.out)["binaries"] if one["name"] == "wget"]
    assert (wget["status"], wget["provider"]) == ("succeeded", "env")


@pytest.mark.timeout(600)
def test_five_plugins_that_drive_chromium_run_unmodified(plugins: Path, modules: Path, tmp_path: Path) -> None:
    site_of(tmp_path, plugins, "" if os.geteuid() else "hookConfig: {CHROME_SANDBOX: false}\n")
    library = tmp_path / "state/archive/lib"
    library.mkdir(parents=True)
    (library / "node_modules").symlink_to(modules)
    www = tmp_path / "www"
    www.mkdir()
    (www / "index.html").write_text(SCRIPTED)
    with serving(www) as base:
        common = ("--sites-manifest-dir", "sites", "--output", "json")
        words = ("site", "abx", "crawl", "add", f"{base}/index.html", "--wait", "--attempts", "1")
        ran = scraper(tmp_path, *words, "--plugins", ",".join(BROWSED), *common)
    assert ran.code == 0, ran.err
    shown = scraper(tmp_path, "site", "abx", "snapshot", "show", f"{base}/index.html", *common)
    snapshot = json.loads(shown.out)
    ended = {
        hook["plugin"]: (hook["status"], hook["output"]) for hook in snapshot["hooks"] if hook["plugin"] != "chrome"
    }
    assert ended == {
        "title": ("succeeded", "after 42"),
        "dom": ("succeeded", "dom/output.html"),
        "screenshot": ("succeeded", "screenshot/screenshot.png"),
        "pdf": ("succeeded", "pdf/output.pdf"),
        "headers": ("succeeded", "headers/headers.json"),
    }
    (output,) = tmp_path.glob("state/archive/users/*/snapshots/*/*/*/dom/output.html")
    assert "ready 42" in output.read_text()
    folder = output.parents[1]
    assert (folder / "screenshot/screenshot.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "pdf/output.pdf").read_bytes().startswith(b"%PDF")
    headers = json.loads((folder / "headers/headers.json").read_text())
    assert headers["status"] == 200
    assert processes_of(tmp_path) == [], "Chromium ends with its crawl"
