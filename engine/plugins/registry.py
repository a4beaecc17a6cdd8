"""Which sites there are: every sub-directory with a ``site.yaml`` of every manifest directory.

A site that is broken, or whose name is taken, is set apart with its faults; the others are not disturbed by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.config import Settings
from engine.errors import ConfigError, SiteError, UsageError
from engine.faults import Fault, did_you_mean, report
from engine.plugins.manifest import MANIFEST, InvalidManifest, load_site
from engine.plugins.site import JsSettings, Site
from engine.resources import resource


@dataclass(frozen=True, slots=True)
class BrokenSite:
    """A site that cannot be used. ``guessed``: the manifest tells no name, so it goes by that of its directory."""

    name: str
    directory: Path
    faults: tuple[Fault, ...]
    guessed: bool = False

    def __str__(self) -> str:
        return report(self.faults)


@dataclass(frozen=True, slots=True)
class Registry:
    """The sites by name, those set apart, and what a user should be told besides."""

    sites: Mapping[str, Site] = field(default_factory=dict)
    broken: Mapping[str, BrokenSite] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def site(self, name: str) -> Site:
        """The site of that name. Raises SiteError if it is broken, UsageError if there is none."""
        if name in self.sites:
            return self.sites[name]
        if name in self.broken:
            raise SiteError(f'site "{name}" is broken:\n{self.broken[name]}')
        hint = did_you_mean(name, (*self.sites, *self.broken))
        if (Path("sites") / name / MANIFEST).is_file():
            hint = f"it is in ./sites/{name}: give --sites-manifest-dir sites, or set SCRAPER_SITES_MANIFEST_DIRS"
        raise UsageError(f'site "{name}" is not registered' + (f"; {hint}" if hint else ""))


def discover(settings: Settings) -> Registry:
    """The sites of the configured directories, or those that ship with the package where none is configured.

    Raises ConfigError for a missing directory that a flag or variable names.
    """
    directories, warnings = manifest_directories(settings)
    js = JsSettings(timeout=settings.js.timeout, heap_mb=settings.js.heap_mb)
    found: list[Site | BrokenSite] = []
    for directory in directories:
        warnings.extend(_itself_a_site(directory))
        found.extend(_load(candidate, js) for candidate in candidates(directory))
    return _sorted_out(found, warnings)


def manifest_directories(settings: Settings) -> tuple[list[Path], list[str]]:
    """The directories to look into, and warnings about configured ones that do not exist. Raises ConfigError."""
    if not settings.manifest_dirs:
        return [resource("sites")], []
    present, warnings = [], []
    for named in settings.manifest_dirs:
        if named.path.is_dir():
            present.append(named.path)
        elif named.source == "config":
            warnings.append(f"the manifest directory {named.path} of the configuration does not exist")
        else:
            by = "--sites-manifest-dir" if named.source == "flag" else "SCRAPER_SITES_MANIFEST_DIRS"
            raise ConfigError(f"the manifest directory {named.path} named by {by} does not exist")
    return present, warnings


def candidates(directory: Path) -> list[Path]:
    """The direct sub-directories that have a manifest, by name; symlinks to directories are passed over."""
    try:
        entries = sorted(directory.iterdir())
        return [entry for entry in entries if entry.is_dir() and not entry.is_symlink() and _has_manifest(entry)]
    except OSError as error:
        raise ConfigError(f"the manifest directory {directory} cannot be read: {error.strerror}") from error


def _has_manifest(directory: Path) -> bool:
    try:
        return (directory / MANIFEST).exists()
    except OSError:  # what may not be entered is no site
        return False


def _itself_a_site(directory: Path) -> Iterable[str]:
    if _has_manifest(directory):
        yield f"{directory} is itself a site; sites are looked for below a manifest directory: name {directory.parent}"


def _load(directory: Path, js: JsSettings) -> Site | BrokenSite:
    try:
        return load_site(directory, js)
    except InvalidManifest as invalid:
        return BrokenSite(invalid.name or directory.name, directory, invalid.faults, guessed=invalid.name is None)


def _sorted_out(found: Iterable[Site | BrokenSite], warnings: list[str]) -> Registry:
    by_name: defaultdict[str, list[Site | BrokenSite]] = defaultdict(list)
    guessed: list[BrokenSite] = []
    for one in found:
        if isinstance(one, BrokenSite) and one.guessed:
            guessed.append(one)
        else:
            by_name[one.name].append(one)
    for one in guessed:  # a mere guess takes no name away from anybody
        by_name[str(one.directory) if one.name in by_name else one.name].append(one)
    sites: dict[str, Site] = {}
    broken: dict[str, BrokenSite] = {}
    for name, claimants in sorted(by_name.items()):
        match claimants:
            case [Site() as site]:
                sites[name] = site
            case [BrokenSite() as only]:
                broken[name] = only
            case _:
                broken[name] = _contested(name, claimants)
    return Registry(sites, broken, (*warnings, *_shared_databases(sites.values())))


def _contested(name: str, claimants: list[Site | BrokenSite]) -> BrokenSite:
    """All sites of one name as one broken site: which of them was meant cannot be told."""
    places = [one.root if isinstance(one, Site) else one.directory for one in claimants]
    faults: list[Fault] = []
    for one, place in zip(claimants, places, strict=True):
        others = ", ".join(str(other) for other in places if other != place)
        message = f'the site name "{name}" is also claimed by {others}'
        faults.append(Fault(place / MANIFEST, 0, message, "none of them is loaded; rename all but one"))
        if isinstance(one, BrokenSite):
            faults.extend(one.faults)
    return BrokenSite(name, places[0], tuple(faults))


def _shared_databases(sites: Iterable[Site]) -> Iterable[str]:
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for site in sites:
        if site.dialect == "sqlite":
            owners[site.database_file].append(site.name)
    for file, names in owners.items():
        if len(names) > 1:
            yield f"the sites {', '.join(names)} share the database file {file}"
