"""Sites made of nothing but a folder."""

from __future__ import annotations

from pathlib import Path

from engine.plugins.site import Site


def site_at(folder: Path) -> Site:
    """A site whose scripts are the folder's files."""
    return Site(name="shop", root=folder, manifest=folder / "site.yaml", database_file="shop.db", scripts_root=folder)
