"""The jobs of a site: folders with a ``job.yaml`` and scripts beside it, and the version all of them make up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import SiteError, UsageError
from engine.faults import Fault, did_you_mean
from engine.lifecycle.extract import selector_fault
from engine.lifecycle.job import Job
from engine.lifecycle.manifest import FILE, InvalidJob, load_job, parse_job
from engine.plugins.site import Site

#: The scripts of a job, in the order in which they are evaluated.
SCRIPTS = ("hooks.js", "defer.js")
TESTS = "tests.js"
_LIB = "lib"
_MODULES = frozenset({".js", ".json"})


@dataclass(frozen=True, slots=True)
class Found:
    """A job's folder; ``job`` is None where it is broken, and ``faults`` say why."""

    name: str
    folder: Path
    job: Job | None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """The files that decide what a job does, by name: what an iteration is pinned to."""

    files: Mapping[str, str]

    @property
    def hash(self) -> str:
        """Tells versions apart."""
        return hashlib.sha256(json.dumps(sorted(self.files.items())).encode()).hexdigest()[:16]

    def job(self, folder: Path) -> Job:
        """The job as this version says it. Raises InvalidJob."""
        return parse_job(folder / FILE, self.files[FILE])

    @property
    def has_scripts(self) -> bool:
        """Whether there is anything to look for hooks in."""
        return any(name in self.files for name in SCRIPTS)


def jobs_root(site: Site) -> Path:
    """The folder of the site's jobs."""
    return site.jobs_root or site.root / "jobs"


def shared_root(site: Site) -> Path:
    """The folder that all jobs of the site may read."""
    return site.root / "shared"


def discover(site: Site) -> tuple[Found, ...]:
    """The jobs of the site by folder name; of two with one id the later is broken."""
    root = jobs_root(site)
    folders = sorted(file.parent for file in root.glob(f"*/{FILE}")) if root.is_dir() else []
    found: list[Found] = []
    taken: dict[str, str] = {}
    for folder in folders:
        one = _load(folder)
        if one.job is not None and one.job.id in taken:
            clash = f'the job id "{one.job.id}" (of the name "{one.job.name}") is taken by {taken[one.job.id]}'
            one = Found(one.name, folder, None, (Fault(folder / FILE, 0, clash, "give one of them another name"),))
        elif one.job is not None:
            taken[one.job.id] = f"jobs/{folder.name}"
        found.append(one)
    return tuple(found)


def _load(folder: Path) -> Found:
    try:
        return Found(folder.name, folder, load_job(folder / FILE)[0])
    except InvalidJob as invalid:
        return Found(invalid.name or folder.name, folder, None, invalid.faults)


def find(site: Site, wanted: str) -> Found:
    """The job of that folder, id or name. Raises UsageError where there is none, SiteError where it is broken."""
    found = look_up(site, wanted)
    if found.job is None:
        raise SiteError("\n".join(str(fault) for fault in found.faults))
    return found


def look_up(site: Site, wanted: str) -> Found:
    """As :func:`find`, but a broken job too."""
    known = discover(site)
    for one in known:
        if wanted in (one.folder.name, one.name) or (one.job is not None and wanted in (one.job.id, one.job.name)):
            return one
    names = [one.folder.name for one in known]
    hint = did_you_mean(wanted, names) or (f"there are: {', '.join(names)}" if names else "it has no jobs")
    raise UsageError(f'site "{site.name}" has no job "{wanted}"; {hint}')


def check(found: Found) -> tuple[Fault, ...]:
    """What is wrong with a job's ``job.yaml``, selectors included, which fail a cycle only when they are used."""
    if found.job is None:
        return found.faults
    job, document = load_job(found.folder / FILE)
    faults = []
    message = selector_fault(job.selector)
    if message is not None:
        faults.append(document.fault(("selector",), f"job.selector: {message}"))
    for number, rule in enumerate(job.fields):
        message = selector_fault(rule.selector) if rule.selector else None
        if message is not None:
            faults.append(document.fault(("fields", number), f"job.fields[{number}]: {message}"))
    return tuple(faults)


def read_version(site: Site, folder: Path, *extra: str) -> Version:
    """The files of a job as they are now, and the modules its scripts may require. Raises SiteError."""
    files: dict[str, str] = {}
    for name in (FILE, *SCRIPTS, *extra):
        if (folder / name).is_file():
            files[name] = _text(folder / name)
    for prefix, root in ((_LIB, folder / _LIB), (f"site/{_LIB}", site.root / _LIB)):
        for file in _modules(root):
            files[f"{prefix}/{file.relative_to(root).as_posix()}"] = _text(file)
    return Version(files)


def _modules(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from sorted(file for file in root.rglob("*") if file.suffix in _MODULES and file.is_file())


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SiteError(f"{file} cannot be read: {error}") from error
