"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path


def description() -> dict[str, str]:
    """CPU, memory, system and Python of this machine, and how busy it was when asked."""
    return {
        "CPU": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "RAM": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "load average before": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
        **{name: version(name) for name in ("celery", "kombu", "redis", "psycopg")},
    }


def _first(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _memory() -> str:
    kilobytes = _first("/proc/meminfo", "MemTotal").split()
    return f"{int(kilobytes[0]) / 1024**2:.1f} GiB" if kilobytes else "unknown"
