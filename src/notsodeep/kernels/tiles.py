"""Tiles of a matrix through a function, from several threads; symmetric matrices by their lower half."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import TextIO

from notsodeep.results import KernelInfo

TILE = 256


def announce_compilation(stream: TextIO | None = None) -> bool:
    """Say on the first call ever that the inner loops are compiled: it takes half a minute, once for a machine.

    Returns whether it was said.  numba keeps what it compiled in NUMBA_CACHE_DIR or beside the sources.
    """
    folder = os.environ.get("NUMBA_CACHE_DIR") or str(Path(__file__).parent / "__pycache__")
    if any(Path(folder).rglob("compiled.*.nbi")):
        return False
    print(
        "notsodeep: first call on this machine, compiling the inner loops (10 to 30 s, once) …",
        file=stream or sys.stderr,
        flush=True,
    )
    return True


def threads() -> int:
    """Threads to use: NUMBA_NUM_THREADS or OMP_NUM_THREADS if set, else the cores this process may run on."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tiles(rows: int, columns: int, symmetric: bool) -> Iterator[tuple[slice, slice]]:
    """Row and column slices; of a symmetric matrix only those on and below the diagonal."""
    for top in range(0, rows, TILE):
        right = min(top + TILE, columns) if symmetric else columns
        for left in range(0, right, TILE):
            yield slice(top, min(top + TILE, rows)), slice(left, min(left + TILE, columns))


def for_each_tile(
    work: Callable[[slice, slice], KernelInfo], rows: int, columns: int, *, symmetric: bool
) -> KernelInfo:
    """Run `work` on every tile and merge the evidence; an error in any tile stops the rest and is raised."""
    jobs = list(tiles(rows, columns, symmetric))
    count = min(threads(), len(jobs))
    if count == 1:
        return reduce(KernelInfo.merge, (work(*job) for job in jobs))
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work, *job) for job in jobs]
        try:
            return reduce(KernelInfo.merge, (future.result() for future in futures))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
