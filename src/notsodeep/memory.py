"""How much memory is available, and how much of it a run may use."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from notsodeep.errors import InputError

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
# Fraction of the available memory that a run takes where the user sets no limit.
SHARE = 0.5
# Bytes for what is loaded or grows beside the blocks: compiled code, thread stacks, buffers of the libraries.
RESERVE = 120 * 1000**2
_PROCESSES, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# Names in the two versions of Linux' control groups: the file with the limit, the file with the use, and the entry of
# memory.stat for pages of files that were not read lately, which the system frees when memory is needed.
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")


def as_bytes(size: str | int, name: str = "max_memory") -> int:
    """A number of bytes from 4000000000, "4GB", "4 GiB", "500 MB"."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    written = size.lower() if isinstance(size, str) else ""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", written)
    if not match or float(match[1]) == 0:
        raise InputError(f"{name} = {size!r} is not an amount of memory. Write '4GB', '500MB' or '2GiB'.")
    return int(float(match[1]) * {**_UNITS, **_BINARY}[match[2] or ""])


def in_words(size: float) -> str:
    """A number of bytes as text: 7.2 GB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def resident_bytes() -> int:
    """Memory that this process holds now; where the system does not give that, the most it has held."""
    try:
        return int((_PROCESSES / "self" / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, ValueError, IndexError):
        return _highest_resident()


def _highest_resident() -> int:
    if sys.platform == "win32":
        return 300 * 1000**2
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available_bytes() -> int:
    """Memory that is free on this machine, or within the limit of the container."""
    found = [size for size in (_of_machine(), _of_container()) if size is not None]
    return max(min(found), 0) if found else 2 * 1000**3


def _of_machine() -> int | None:
    try:
        lines = (_PROCESSES / "meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        # The system does not give what is free: half of what is installed.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _of_container() -> int | None:
    """Bytes that the control groups of this process leave: the least over its own group and all that contain it."""
    found = [left for group, names in _groups() if (left := _left_in(group, names)) is not None]
    return min(found, default=None)


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The folders of the groups that limit the memory of this process, with the names of their files."""
    try:
        lines = (_PROCESSES / "self" / "cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    # In a container the path may be that of the host; what is mounted is then the container's group itself.
    for line in [*lines, "0::/", "0:memory:/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, names = (_GROUPS / "memory", _VERSION_1) if controllers else (_GROUPS, _VERSION_2)
        own = top / path.lstrip("/")
        yield from ((group, names) for group in (own, *own.parents) if group.is_relative_to(top))


def _left_in(group: Path, names: tuple[str, str, str]) -> int | None:
    """Bytes that a control group leaves to its processes; None where it sets no limit."""
    limit, used, reclaimable = names
    try:
        left = int((group / limit).read_text(encoding="ascii")) - int(
            (group / used).read_text(encoding="ascii")
        )
    except (OSError, ValueError):
        return None
    try:
        statistics = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        return left + next(int(line.split()[1]) for line in statistics if line.startswith(f"{reclaimable} "))
    except (OSError, ValueError, StopIteration):
        return left


def budget(max_memory: str | int | None) -> int:
    """Bytes that blocks may take: the limit less what the process holds already, the data included.

    Without a limit, half of what the machine has left.
    """
    if max_memory is None:
        return int(SHARE * available_bytes()) - RESERVE
    limit, held = as_bytes(max_memory), resident_bytes()
    if limit <= held + RESERVE:
        raise InputError(
            f"max_memory = {in_words(limit)} is less than what the process needs before any block: it holds "
            f"{in_words(held)} (data, libraries), and {in_words(RESERVE)} are for what loads beside. Allow at "
            f"least {in_words(held + 2 * RESERVE)}, or give the rows as an np.memmap or a zarr array."
        )
    return limit - held - RESERVE


__all__ = ["RESERVE", "as_bytes", "available_bytes", "budget", "in_words", "resident_bytes"]
