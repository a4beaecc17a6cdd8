"""``scraper site check``: everything that can be said about a site without running one of its ops.

Scripts are compiled, verbs are declared, migrations are tried on an empty database; all faults come at once.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.authoring.bench import Bench
from engine.authoring.requires import missing_modules
from engine.authoring.scheduled import schedule_faults
from engine.documents import Unreadable, read_document
from engine.errors import SiteError
from engine.faults import Fault, did_you_mean
from engine.fields import default_value
from engine.js.jobs import pack_site
from engine.js.modules import ModuleRoots
from engine.lifecycle.catalog import check as check_job
from engine.lifecycle.catalog import discover
from engine.plugins.site import Site
from engine.verbs import VerbSpec, read_declarations

#: The folder of a site's tests.
TESTS = "tests"

_MIGRATION = re.compile(r"(\d+)_")


@dataclass(slots=True)
class _Sources:
    """The site's readable JavaScript: path, text, and how its modules are found."""

    faults: list[Fault] = field(default_factory=list)
    texts: dict[Path, str] = field(default_factory=dict)
    roots: dict[Path, tuple[str, ModuleRoots]] = field(default_factory=dict)


def check_site(site: Site) -> tuple[Fault, ...]:
    """All faults of a site whose manifest is valid, in the order of its files."""
    sources = _read(site)
    with Bench() as bench:
        faults = [*_missing_roots(site), *sources.faults, *_syntax(bench, sources)]
        broken = {fault.file for fault in faults}
        faults += _missing(sources, broken)
        broken = {fault.file for fault in faults}
        faults += _verbs(site, bench, sources, broken)
        faults += _migrations(site, bench, broken)
    for job in discover(site):
        faults += check_job(job)
    return tuple(sorted(dict.fromkeys(faults), key=lambda fault: (str(fault.file), fault.line, fault.column)))


def _missing_roots(site: Site) -> Iterator[Fault]:
    """A folder may be missing, which counts as empty; but not where another one was obviously meant."""
    try:
        document = read_document(site.manifest)
    except Unreadable as unreadable:  # it was readable when the site was loaded
        yield unreadable.fault
        return
    roots = {
        "scriptsRoot": site.scripts_root,
        "verbsRoot": site.verbs_root,
        "sqlMigrationsRoot": site.sql_migrations_root,
        "jsMigrationsRoot": site.js_migrations_root,
        "helpRoot": site.help_root,
    }
    for key, folder in roots.items():
        if folder is None or folder.is_dir():
            continue
        near = set(folder.parent.iterdir() if folder.parent.is_dir() else ()) - set(roots.values())
        hint = did_you_mean(folder.name, [entry.name for entry in near if entry.is_dir()])
        if hint:
            yield document.fault((key,), f'site.{key}: there is no folder "{folder.relative_to(site.root)}"', hint)


def _read(site: Site) -> _Sources:
    sources = _Sources()
    site_first = [("", site.root)]
    for folder, roots in (
        (site.scripts_root, None),
        (site.js_migrations_root, None),
        (site.verbs_root, [*site_first, ("", site.verbs_root)]),
        (site.root / TESTS, site_first),
    ):
        if folder is None or not folder.is_dir():
            continue
        modules = ModuleRoots([("", folder)] if roots is None else [(a, b) for a, b in roots if b is not None])
        for path in sorted((*folder.rglob("*.js"), *folder.rglob("*.json"))):
            name = path.relative_to(folder if roots is None else site.root).as_posix()
            _take(sources, path, (name, modules))
    return sources


def _take(sources: _Sources, path: Path, module: tuple[str, ModuleRoots]) -> None:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        sources.faults.append(Fault(path, 0, f"is not UTF-8 text: {error}", "save the file as UTF-8"))
        return
    except OSError as error:
        sources.faults.append(Fault(path, 0, f"cannot be read: {error.strerror or error}"))
        return
    if path.suffix == ".js":
        sources.texts[path] = text
        sources.roots[path] = module
        return
    try:
        json.loads(text)
    except ValueError as error:
        line, column = (error.lineno, error.colno) if isinstance(error, json.JSONDecodeError) else (0, 0)
        sources.faults.append(Fault(path, line, f"is not JSON: {error}", column=column))


def _syntax(bench: Bench, sources: _Sources) -> list[Fault]:
    named = [[str(path), text] for path, text in sources.texts.items()]
    return [
        Fault(Path(found["name"]), found["line"], found["message"], column=found["column"])
        for found in bench.ask({"do": "compile", "sources": named})["faults"]
    ]


def _missing(sources: _Sources, broken: set[Path]) -> Iterator[Fault]:
    for path, text in sources.texts.items():
        if path not in broken:
            yield from missing_modules(path, *_named(sources.roots[path], text))


def _named(module: tuple[str, ModuleRoots], text: str) -> tuple[str, str, ModuleRoots]:
    return module[0], text, module[1]


def _verbs(site: Site, bench: Bench, sources: _Sources, broken: set[Path]) -> Iterator[Fault]:
    if site.verbs_root is None or not site.verbs_root.is_dir():
        yield from schedule_faults(site, ())
        return
    unread = False
    declared: defaultdict[str, list[tuple[Path, VerbSpec]]] = defaultdict(list)
    for scanned in bench.ask({"do": "scan", "site": pack_site(site)})["files"]:
        path = site.verbs_root / scanned["file"]
        text = sources.texts.get(path, "")
        if scanned["error"] is not None:
            unread = True
            if path not in broken:
                yield _from_error(site, path, scanned["error"])
            continue
        try:
            verbs = read_declarations([scanned], str(site.verbs_root))
        except SiteError as error:
            unread = True
            message = str(error).removeprefix(f"{path}: ")
            quoted = re.findall(r'"([^"]+)"', message)
            yield Fault(path, _line_of(text, *quoted, "__verb__"), message)
            continue
        for verb in verbs:
            declared[verb.name].append((path, verb))
        yield from _verb_functions(site, bench, path, text, verbs)
        yield from _defaults(path, text, verbs)
    for name, claimants in declared.items():
        for path, verb in claimants[1:]:
            line = _line_of(sources.texts.get(path, ""), verb.function)
            other = claimants[0][0].relative_to(site.root)
            yield Fault(path, line, f'verb "{name}" is already declared in {other}', "give one of them another name")
    if not unread:
        yield from schedule_faults(site, [claimants[0][1] for claimants in declared.values()])


def _verb_functions(site: Site, bench: Bench, path: Path, text: str, verbs: Iterable[VerbSpec]) -> Iterator[Fault]:
    names = [verb.function for verb in verbs]
    identifiers = [name for name in names if re.fullmatch(r"[A-Za-z_$][\w$]*", name)]
    entry = path.relative_to(site.root).as_posix()
    job = {"do": "offered", "site": pack_site(site), "entry": entry, "names": identifiers}
    answer = bench.ask(job) if names else {"names": []}
    for name in names:
        if name not in answer.get("names", names):
            functions = re.findall(r"\bfunction\s+([\w$]+)", text)
            hint = did_you_mean(name, functions) or f"declare it in this file: function {name}(ctx) {{ … }}"
            yield Fault(path, _line_of(text, name), f'__verb__ names the function "{name}", which is not here', hint)


def _defaults(path: Path, text: str, verbs: Iterable[VerbSpec]) -> Iterator[Fault]:
    for verb in verbs:
        for one in (one for section in verb.sections for one in section.fields):
            try:
                default_value(one)
            except ValueError as error:
                line = _line_of(text, one.name)
                yield Fault(path, line, f'verb "{verb.name}": the default of field "{one.name}": {error}')


def _from_error(site: Site, path: Path, error: dict[str, Any]) -> Fault:
    """An error of evaluation, placed in the file it names."""
    details = error["details"] if isinstance(error["details"], dict) else {}
    named = site.root / str(details.get("script", ""))
    place = named if "script" in details and named.is_file() else path
    message = error["message"].removeprefix(f"{details.get('script')}:{details.get('line')}:{details.get('column')}: ")
    line, column = (details.get("line", 0), details.get("column", 0)) if place == named else (0, 0)
    return Fault(place, line, message, "verb files are evaluated to read their declarations", column)


def _line_of(text: str, *words: str) -> int:
    """The line where one of the words first stands whole, 0 where none does."""
    for word in words:
        found = re.search(rf"(?<![\w$-]){re.escape(word)}(?![\w$-])", text)
        if found is not None:
            return text.count("\n", 0, found.start()) + 1
    return 0


def _migrations(site: Site, bench: Bench, broken: set[Path]) -> Iterator[Fault]:
    versions: dict[int, Path] = {}
    faulty = False
    for root, suffix in ((site.sql_migrations_root, ".sql"), (site.js_migrations_root, ".js")):
        for path in sorted(root.glob(f"*{suffix}")) if root is not None and root.is_dir() else ():
            faulty |= path in broken
            found = _MIGRATION.match(path.name)
            if found is None:
                faulty = True
                message = f"{path.name}: a migration's name starts with its version and an underscore"
                yield Fault(path, 0, message, f"rename it, like 001_init{suffix}")
                continue
            other = versions.setdefault(int(found[1]), path)
            if other != path:
                faulty = True
                yield Fault(path, 0, f"version {int(found[1])} is already that of {other.relative_to(site.root)}")
    if faulty or not versions or site.dialect != "sqlite":
        return
    with tempfile.TemporaryDirectory(prefix="scraper-check-") as folder:
        job = {"do": "migrations", "site": pack_site(site), "database": f"{folder}/site.db"}
        for one in bench.ask(job)["faults"]:
            hint = "tried on an empty database"
            yield Fault(Path(one["file"]), one["line"], one["message"], hint)
