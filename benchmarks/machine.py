"""What the figures were measured on: the machine, the versions, and how fast its disk was just then."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_WRITES = 200
_PAGE = b"x" * 4096


def machine() -> dict[str, Any]:
    """The processor, the memory, the system."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """What ours runs on."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in ("scraper", "sqlalchemy", "psycopg", "mini-racer", "httpx", "selectolax")},
    }


def disk_probe(folder: Path) -> dict[str, float]:
    """Milliseconds of an ``fdatasync`` after an appended page, p50 and p90."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "probe"
    took: list[float] = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for _ in range(_WRITES):
            os.write(descriptor, _PAGE)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            took.append((time.perf_counter() - began) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    deciles = statistics.quantiles(took, n=10)
    return {"p50_ms": round(statistics.median(took), 3), "p90_ms": round(deciles[8], 3)}


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
