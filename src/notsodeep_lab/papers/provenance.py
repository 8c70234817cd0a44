"""How rows were computed: versions, commit, machine, and times of the sessions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PACKAGES = ("notsodeep", "numpy", "scipy", "numba", "scikit-learn", "torch")
_SOURCE_FOLDER = Path(__file__).resolve().parents[2]


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_session(jobs: int) -> dict[str, Any]:
    """Create the record of a run that starts; `ended` stays None if the run is killed."""
    return {
        "started": now(),
        "ended": None,
        "jobs": jobs,
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
    }


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str | None]:
    """Return the versions of Python and of each package; None if not installed."""
    installed: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            installed[package] = None
    return installed


def machine() -> dict[str, Any]:
    """Describe this machine: processor, cores, memory, system."""
    memory = _from_proc("meminfo", "MemTotal")
    return {
        "processor": _from_proc("cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": None if memory is None else round(int(memory.split()[0]) / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def commit() -> str | None:
    """Return the commit of the checkout, marked if files differ from it; None outside of a checkout."""
    try:
        top = Path(_git("rev-parse", "--show-toplevel"))
        # An environment may be inside a checkout of another project.
        if top / "src" != _SOURCE_FOLDER:
            return None
        return _git("rev-parse", "HEAD") + (
            " with changes" if _git("status", "--porcelain", "--", ".") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_SOURCE_FOLDER), *arguments]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout.strip()


def _from_proc(file: str, key: str) -> str | None:
    try:
        lines = Path("/proc", file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), None)
