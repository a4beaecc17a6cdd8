"""The peers: each in a virtual environment of its own below ``.bench/``, installed when it is first needed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import Ran, run_measured

HERE = Path(__file__).resolve().parent


class NotInstalled(Exception):
    """A peer that is not to be had here: reported as such, and not measured."""


@dataclass(slots=True)
class Peers:
    """Installs peers and runs their programs (``benchmarks/peers/<peer>_app.py``)."""

    folder: Path
    _ready: dict[str, str] = field(default_factory=dict)

    def python(self, peer: str) -> str:
        """The peer's interpreter. Raises NotInstalled."""
        if peer not in self._ready:
            self._ready[peer] = self._install(peer)
        if not self._ready[peer]:
            raise NotInstalled(f"{peer} could not be installed, see {self.folder / peer}.log")
        return self._ready[peer]

    def _install(self, peer: str) -> str:
        pins = HERE / f"{peer}.txt"
        folder = self.folder / peer
        stamp = folder / ".installed"
        wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
        python = folder / "bin" / "python"
        if stamp.exists() and stamp.read_text() == wanted:
            return str(python)
        print(f"  installing {peer} …", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(pins)]
        with (self.folder / f"{peer}.log").open("w") as log:
            for command in ([sys.executable, "-m", "venv", str(folder)], pip):
                if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
                    return ""
        stamp.write_text(wanted)
        return str(python)

    def run(self, peer: str, command: str, told: Mapping[str, Any], timeout: float = 600.0) -> Ran:
        """Run one command of the peer's program and measure its processes. Raises NotInstalled."""
        program = [self.python(peer), str(HERE / f"{peer}_app.py"), command, json.dumps(told)]
        return run_measured(program, timeout=timeout)

    def versions(self) -> dict[str, str]:
        """The pinned version of every peer."""
        first = {pins.stem: pins.read_text().split()[0] for pins in sorted(HERE.glob("*.txt"))}
        return {peer: pin.partition("==")[2] for peer, pin in first.items()}
