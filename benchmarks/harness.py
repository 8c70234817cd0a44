"""Common parts of the benchmarks: interleaved timing, state of the machine, memory, atomic writing of results."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import gc
import importlib.metadata
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"

Row = dict[str, Any]


# --- timing ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Times:
    """Wall-clock seconds of one task, in the order they were taken."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median: above ~0.2 the machine was not quiet."""
        return (max(self.seconds) - self.best) / self.median


def interleave(
    tasks: Mapping[str, Callable[[], Any]], repeats: int, *, warm_up: bool = True
) -> dict[str, Times]:
    """Time every task `repeats` times, alternating, each round starting with the next task in turn.

    A ratio of two medians is then a ratio under the same load, temperature and clock, whatever these were.
    Results are dropped between calls, outside the clock, so that no task pays for the memory of another.
    """
    names = list(tasks)
    if warm_up:
        for name in names:
            tasks[name]()
    taken: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(repeats):
        shift = round_ % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name].append(clock(tasks[name]))
    return {name: Times(tuple(values)) for name, values in taken.items()}


def clock(task: Callable[[], Any]) -> float:
    """Seconds of one call; the garbage of earlier calls is collected first."""
    gc.collect()
    start = time.perf_counter()
    result = task()
    seconds = time.perf_counter() - start
    del result
    return seconds


# --- memory ------------------------------------------------------------------------------------------
def memory_bytes(field: str) -> int | None:
    """VmRSS (resident now) or VmHWM (highest resident so far) of this process; None where /proc is absent."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)


def reset_peak() -> bool:
    """Reset VmHWM to the resident size, to exclude imports and compilation."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return True
    return False


def resident_now() -> int | None:
    """Bytes resident after giving back what earlier calls left; the peak starts here."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    reset_peak()
    return memory_bytes("VmRSS")


def extra_megabytes(task: Callable[[], Any]) -> float | None:
    """Peak resident memory of a call minus that before it; None if the system does not report it."""
    before = resident_now()
    result = task()
    peak = memory_bytes("VmHWM")
    del result
    return None if before is None or peak is None else (peak - before) / 1e6


# --- machine -----------------------------------------------------------------------------------------
PACKAGES = ("notsodeep", "numpy", "scipy", "numba", "llvmlite")


def machine() -> Row:
    """Describe the machine: processor, cores, memory, system."""
    return {
        "processor": _from_proc("cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _from_proc(file: str, key: str) -> str | None:
    try:
        for line in Path("/proc", file).read_text().splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return None


def _memory_gb() -> float | None:
    total = _from_proc("meminfo", "MemTotal")
    return None if total is None else round(int(total.split()[0]) / 2**20, 1)


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str:
    """The commit measured, marked when files of the package differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + (" (with changes)" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def threads() -> dict[str, Any]:
    """Threads of BLAS and of numba in this process, as the libraries themselves report them."""
    found: dict[str, Any] = {}
    try:
        from threadpoolctl import threadpool_info

        for pool in threadpool_info():
            found[str(pool["internal_api"])] = pool["num_threads"]
    except ImportError:
        found["blas"] = os.environ.get("OPENBLAS_NUM_THREADS", "default")
    if "numba" in sys.modules:
        found["numba"] = sys.modules["numba"].get_num_threads()
    return found


def load_average() -> list[float] | None:
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


class Provenance:
    """Provenance of a measurement: versions, time, and load of the machine before and after."""

    def __init__(self) -> None:
        self._start = datetime.now(UTC)
        self._load = load_average()

    def record(self) -> Row:
        return {
            "date": self._start.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - self._start).total_seconds(), 1),
            "commit": commit(),
            "machine": machine(),
            "versions": versions(),
            "threads": threads(),
            "load_average_before": self._load,
            "load_average_after": load_average(),
        }


# --- writing -----------------------------------------------------------------------------------------
def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically: an interrupted run keeps the previous result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=2, allow_nan=True) + "\n")


def write_rows(path: Path, rows: Sequence[Row], note: str) -> None:
    """Write rows as a CSV file: the first line is a comment on how they were measured, lists are left out."""
    text = io.StringIO()
    table = csv.DictWriter(text, columns_of(rows), extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(path, f"# {' '.join(note.split())}\n{text.getvalue()}")


def read_rows(path: Path) -> tuple[str, list[Row]]:
    """Read what `write_rows` wrote: the comment, and rows with numbers as numbers and None for empty cells."""
    note, text = path.read_text(encoding="utf-8").split("\n", 1)
    rows = csv.DictReader(io.StringIO(text))
    return note.lstrip("# "), [{name: _value(value) for name, value in row.items()} for row in rows]


def _value(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return float(text)
    return {"": None, "True": True, "False": False}.get(text, text)


def filled(text: str, start: str, end: str, content: str) -> str:
    """Replace the text between two marks by `content`."""
    before, rest = text.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n\n{content.strip()}\n\n{end}{after}"


LIMITS = "limits"  # a row may carry {column: largest value wanted} under this key


def cell(row: Row, column: str) -> str:
    """Format a value for the table, with its limit if it has one."""
    value, limit = row.get(column), row.get(LIMITS, {}).get(column)
    if limit is None or value is None:
        return show(value)
    return f"{show(value)} ≤ {limit:g}" if value <= limit else f"**{show(value)} > {limit:g}**"


def missed(row: Row) -> list[str]:
    """The columns of a row that are above their limits."""
    return [column for column, limit in row.get(LIMITS, {}).items() if not row[column] <= limit]


def show(value: Any) -> str:
    """Yes/no for verdicts, three figures for numbers, a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:.2e}" if value != 0 and abs(value) < 1e-3 else f"{value:.3g}"
    return str(value)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Columns to print, in order of first appearance; lists and dictionaries stay in the JSON."""
    wanted: dict[str, None] = {}
    for row in rows:
        wanted.update(dict.fromkeys(key for key, value in row.items() if not isinstance(value, list | dict)))
    return list(wanted)


def markdown_table(rows: Sequence[Row]) -> str:
    if not rows:
        return "(nothing measured)\n"
    columns = columns_of(rows)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(row, column) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def markdown_provenance(record: Row) -> str:
    """The paragraph under the title: machine, versions, date, load."""
    where = record["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    pools = ", ".join(f"{name} {count}" for name, count in record["threads"].items())
    return (
        f"{record['date']}, commit {record['commit']}, {record['seconds']} s. {where['processor']}, "
        f"{where['cores']} cores, {where['memory_gb']} GB, {where['system']}. {packages}. Threads: {pools}. "
        f"Load average (1, 5, 15 min) before {record['load_average_before']}, "
        f"after {record['load_average_after']}.\n"
    )
