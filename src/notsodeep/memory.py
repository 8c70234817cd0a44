"""How much memory is available, and how much of it a run may use."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from notsodeep.errors import InputError

_UNITS = {
    "": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
# Fraction of the available memory that a run takes where the user sets no limit.
SHARE = 0.5
# Bytes for what is loaded or grows beside the blocks: compiled code, thread stacks, buffers of the libraries.
RESERVE = 120 * 1000**2
_GROUP = Path("/sys/fs/cgroup")


def as_bytes(size: str | int, name: str = "max_memory") -> int:
    """Convert 4000000000, "4GB", "4 GiB" or "500 MB" to a number of bytes."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    text = size.lower() if isinstance(size, str) else ""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text)
    if not match or float(match[1]) == 0:
        raise InputError(f"{name} = {size!r} is not an amount of memory. Write '4GB', '500MB' or '2GiB'.")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def in_words(size: float) -> str:
    """Format a number of bytes: 7.2 GB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(psutil.Process().memory_info().rss)


def available_bytes() -> int:
    """Return the memory that is free on this machine, or within the limit of the container."""
    limit, free = _of_container(), int(psutil.virtual_memory().available)
    return max(free if limit is None else min(free, limit), 0)


def _of_container() -> int | None:
    """Bytes that the control group (version 2) of this container leaves; None if it sets no limit."""
    try:
        limit, used = (
            int((_GROUP / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current")
        )
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        stat = dict(line.split() for line in lines)
        # Pages of files that were not read lately are freed when memory is needed.
        return limit - used + int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):
        return None


def budget(max_memory: str | int | None) -> int:
    """Return the bytes that blocks may take: the limit less what the process holds already, the data included.

    Without a limit, half of what the machine has left.
    """
    if max_memory is None:
        return int(SHARE * available_bytes()) - RESERVE
    limit, held = as_bytes(max_memory), resident_bytes()
    if limit <= held + RESERVE:
        raise InputError(
            f"max_memory = {in_words(limit)} is too small: the process holds {in_words(held)} before any block, and "
            f"{in_words(RESERVE)} is reserved. Allow at least {in_words(held + 2 * RESERVE)}, or give the rows as an "
            "np.memmap or a zarr array."
        )
    return limit - held - RESERVE


__all__ = ["RESERVE", "as_bytes", "available_bytes", "budget", "in_words", "resident_bytes"]
