"""Tiles of a matrix through a function, from several threads, and compiled loops that move them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import TextIO

import numpy as np
from numba import njit

from notsodeep.duals.strips import OPTIONS
from notsodeep.progress import Report, silent
from notsodeep.results import KernelInfo

TILE = 256


def announce_compilation(stream: TextIO | None = None) -> bool:
    """Say on the first call ever that the inner loops are compiled: it takes half a minute, once for a machine.

    It is said to people (a terminal or a notebook, unless a stream is given), not into the logs of programs. Returns
    whether it was said.  numba keeps what it compiled in NUMBA_CACHE_DIR or beside the sources.
    """
    if stream is None and not (sys.stderr.isatty() or _in_notebook()):
        return False
    folder = os.environ.get("NUMBA_CACHE_DIR") or str(Path(__file__).parent / "__pycache__")
    if any(Path(folder).rglob("tiling.*.nbi")):
        return False
    print(
        "notsodeep: first call on this machine, compiling the inner loops (10 to 30 s, once) …",
        file=stream or sys.stderr,
        flush=True,
    )
    return True


def _in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this process: that its package was imported does not say so."""
    module = sys.modules.get("ipykernel.kernelapp")
    return module is not None and bool(module.IPKernelApp.initialized())


def threads() -> int:
    """Threads to use: NUMBA_NUM_THREADS or OMP_NUM_THREADS if set, else the cores this process may run on."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tiles(rows: int, columns: int, symmetric: bool, side: int = TILE) -> Iterator[tuple[slice, slice]]:
    """Row and column slices; of a symmetric matrix only those on and below the diagonal."""
    for top in range(0, rows, side):
        right = min(top + side, columns) if symmetric else columns
        for left in range(0, right, side):
            yield slice(top, min(top + side, rows)), slice(left, min(left + side, columns))


def for_each_tile(
    work: Callable[[slice, slice], KernelInfo],
    rows: int,
    columns: int,
    *,
    symmetric: bool,
    report: Report = silent,
    side: int = TILE,
) -> KernelInfo:
    """Run `work` on every tile and merge the evidence; an error in any tile stops the rest and is raised.

    `report` is called by this thread alone, with the tiles done and all tiles.
    """
    jobs = list(tiles(rows, columns, symmetric, side))
    count = min(threads(), len(jobs))
    if count == 1:
        return reduce(KernelInfo.merge, _reported((work(*job) for job in jobs), len(jobs), report))
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work, *job) for job in jobs]
        try:
            results = (future.result() for future in futures)
            return reduce(KernelInfo.merge, _reported(results, len(jobs), report))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _reported(results: Iterable[KernelInfo], total: int, report: Report) -> Iterator[KernelInfo]:
    """The results as they come, with a word on how many there are."""
    report(0, total, lambda: "")
    for done, result in enumerate(results, 1):
        report(done, total, lambda: "")
        yield result


# --- compiled loops: into a matrix and its mirror image ----------------------

# Side of the squares by which a tile is turned: both of its images are in the cache.
SQUARE = 16
# Side of the squares by which a tile is written into its mirror image: one of their lines is one of the cache.
TURNED = 8


@njit(**OPTIONS)
def put_tile(tile, output, top, left, mirrored):  # type: ignore[no-untyped-def]
    """Write a tile whose first entry is (top, left), and, if `mirrored`, its mirror image."""
    rows, columns = tile.shape
    for i in range(rows):
        line = output[top + i, left : left + columns]
        for j in range(columns):
            line[j] = tile[i, j]
    if not mirrored:
        return
    turned = np.empty((TURNED, TURNED))
    for begin in range(0, columns, TURNED):
        width = min(TURNED, columns - begin)
        for first in range(0, rows, TURNED):
            height = min(TURNED, rows - first)
            for i in range(height):
                for j in range(width):
                    turned[j, i] = tile[first + i, begin + j]
            for j in range(width):
                line = output[left + begin + j, top + first : top + first + height]
                for i in range(height):
                    line[i] = turned[j, i]


@njit(**OPTIONS)
def mirror_lower(tile):  # type: ignore[no-untyped-def]
    """Copy what is below the diagonal of a square tile to the other side of it."""
    size = len(tile)
    for begin in range(0, size, SQUARE):
        for first in range(begin, size, SQUARE):
            for i in range(begin, min(begin + SQUARE, size)):
                for j in range(max(first, i + 1), min(first + SQUARE, size)):
                    tile[i, j] = tile[j, i]
