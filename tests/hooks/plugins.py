"""Plugins that tests write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_hook(root: Path, label: str, script: str, *, executable: bool = True) -> Path:
    """The hook ``plugin/file`` below ``root``; a ``.sh`` hook gets a shebang of its own."""
    path = root / label
    path.parent.mkdir(parents=True, exist_ok=True)
    shebang = "#!/bin/sh\n" if label.endswith(".sh") and not script.startswith("#!") else ""
    path.write_text(shebang + script)
    path.chmod(0o755 if executable else 0o644)
    return path


def write_config(root: Path, plugin: str, properties: dict[str, Any], **more: Any) -> None:
    """The configuration schema of a plugin."""
    directory = root / plugin
    directory.mkdir(parents=True, exist_ok=True)
    schema = {"type": "object", "properties": properties, **more}
    (directory / "config.json").write_text(json.dumps(schema))
