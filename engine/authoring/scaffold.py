"""``scraper site new``: a site that works, small enough to be read whole and then changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml

from engine.errors import SiteError, UsageError
from engine.plugins.manifest import RESERVED_NAMES
from engine.resources import resource

#: Beside the site folders: types and schema, which editors find there.
SHARED = ("scraper.d.ts", "site.schema.json")

_TEMPLATE = Path(__file__).with_name("template")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_LONGEST = 50


def create_site(name: str, directory: Path) -> tuple[Path, ...]:
    """Write the site ``name`` below ``directory``; the files it consists of.

    Raises UsageError for a bad name or a folder that exists, SiteError where it cannot be written.
    """
    _refuse_name(name)
    folder = directory / name
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} already exists")
    try:
        folder.mkdir(parents=True)
        for shared in SHARED:
            if not (directory / shared).exists():
                shutil.copyfile(resource("sites") / shared, directory / shared)
        return tuple(_write(template, folder, name) for template in _templates())
    except OSError as error:
        raise SiteError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error


def _refuse_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise UsageError(
            f'"{name}" is no name for a site: lower-case letters, digits and single hyphens, beginning with a letter, '
            f"{_LONGEST} at most"
        )
    if name in RESERVED_NAMES:
        raise UsageError(f'a site cannot be called "{name}": that is a subcommand of "scraper site"')
    if yaml.safe_load(name) != name:
        raise UsageError(f'a site cannot be called "{name}": YAML does not read that as a text')


def _templates() -> list[Path]:
    return sorted(path for path in _TEMPLATE.rglob("*") if path.is_file())


def _write(template: Path, folder: Path, name: str) -> Path:
    path = folder / template.relative_to(_TEMPLATE).as_posix().replace("{{name}}", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.read_text("utf-8").replace("{{name}}", name), encoding="utf-8")
    return path
