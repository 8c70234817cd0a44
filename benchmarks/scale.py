"""Kernels beyond memory: all of MNIST on disk, two workers, what a preconditioner saves, what a cluster would cost.

  python benchmarks/scale.py --store FOLDER           everything (about an hour on two cores, 16 GB of disk)
  python benchmarks/scale.py --quick                  everything small, to see that it runs
  python benchmarks/scale.py --only cg cost           some sections; the others keep their earlier results
  python benchmarks/scale.py --data-dir FOLDER        with MNIST (or set NOTSODEEP_DATA)

Sections
  mnist    n = 60 000, tanh and ReLU CK, float32 on disk, each in a process of its own: seconds, their ratio to the bare
           products X_i X_jᵀ of the same blocks taken in turn, peak resident memory, 20 leading eigenvalues, trace,
           entries against the kernel in memory. A command that is stopped goes on when it is given again; times are
           added up
  cluster  one process and two workers, n = 10 000: seconds, and whether the numbers are the same
  cg       (K + ridge) x = one-hot labels, MNIST n = 10 000 and 20 000, the papers' mixture n = 10 000, p = 1000:
           iterations and seconds to 1e-6 without a preconditioner, with Nyström's (500 columns), with the
           high-dimensional equivalent (and 100 eigenvectors of what it misses)
  cost     the cost model of docs/scale.md: block times measured here, bandwidths stated

Results: scale.json and scale.md in --out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cluster_cost import Machine, best_block
from harness import (
    RESULTS,
    Provenance,
    Row,
    clock,
    markdown_provenance,
    markdown_table,
    memory_bytes,
    write_atomically,
    write_json,
)
from rich.console import Console
from rich.progress import Progress

from notsodeep.data import GaussianMixture, Preprocessing, load
from notsodeep.errors import ConvergenceError
from notsodeep.kernel_names import Kernel
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ, Samples
from notsodeep.models.evaluation import evaluate_kernels
from notsodeep.operators import KernelOperator
from notsodeep.scale.sample_sources import anchors
from notsodeep.scale.store import BlockArray

CONSOLE = Console(highlight=False, width=140)
SIGMA_A2 = 0.2
ACTIVATIONS = ("tanh", "relu")
# Kernels of the linear systems, and ridges of a useful size, as fractions of the mean diagonal entry.
SOLVED = (("tanh", "ck"), ("relu", "ntk"))
RIDGES = (1e-1, 1e-2)

Array = np.ndarray[Any, np.dtype[np.float64]]
Step = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How much is computed: in full, or enough to see that it runs."""

    mnist: int
    memory: str
    eigenvalues: int
    cluster: int
    cg: tuple[int, ...]
    block: int


FULL = Size(60_000, "6GB", 20, 10_000, (10_000, 20_000), 4096)
QUICK = Size(2000, "1GB", 5, 1000, (1000,), 512)


def mnist(n: int, folder: Path | None) -> tuple[Array, Array]:
    """Rows of mean squared norm one, and one-hot labels less their mean; digits where there is no MNIST."""
    have = folder is not None and (folder / "mnist").is_dir()
    data = load("mnist" if have else "digits", n=None if have and n >= 60_000 else n, data_dir=folder)
    one_hot = np.eye(10)[data.y]
    return np.asarray(Preprocessing.fit(data.X).apply(data.X)), one_hot - one_hot.mean(axis=0)


# --- all of MNIST -----------------------------------------------------------------------------------------


def all_of_mnist(size: Size, step: Step, store: Path, folder: Path | None) -> dict[str, list[Row]]:
    kernels, spectra = [], []
    for name in ACTIVATIONS:
        step(name)
        command = [sys.executable, __file__, "--probe", name, "--store", str(store)]
        command += ["--quick"] if size is QUICK else []
        command += [] if folder is None else ["--data-dir", str(folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = json.loads(done.stdout)
        spectra.append({"kernel": row["kernel"], "eigenvalues": row.pop("eigenvalues")})
        kernels.append(row)
    lines = [
        {"kernel": row["kernel"], **{f"λ{i + 1}": value for i, value in enumerate(row["eigenvalues"])}}
        for row in spectra
    ]
    return {"kernel on disk": kernels, "leading eigenvalues": lines}


def probe(name: str, size: Size, store: Path, folder: Path | None) -> Row:
    """One kernel in this process, which does nothing else, so that its peak memory means something."""
    X, _ = mnist(size.mnist, folder)
    model, path = DEQ(name, SIGMA_A2), store / f"{name}-{len(X)}.zarr"
    watch = Watch(X, path, store / f"{name}-{len(X)}.times.json")
    kernel, info = conjugate_kernel(
        model, X, out=path, storage="float32", max_memory=size.memory, return_info=True, progress=watch
    )
    peak = memory_bytes("VmHWM")
    operator = KernelOperator.stored(kernel, max_memory=size.memory)
    start = time.perf_counter()
    found = operator.eigsh(min(size.eigenvalues, len(X)))
    seconds = time.perf_counter() - start
    times = watch.times
    return {
        "kernel": f"{name} CK",
        "n": len(X),
        "block": kernel.grid.block,
        "blocks": kernel.grid.count,
        "stored, GB": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e9,
        "seconds": times["kernel"],
        "bare products, s": times["bare"],
        "ratio": times["kernel"] / times["bare"],
        "runs": times["runs"],
        "peak memory, GB": None if peak is None else peak / 1e9,
        "error bound": info.error_bound,
        "largest difference": differences(model, X, kernel),
        "trace": operator.trace(),
        "eigsh, s": seconds,
        "sweeps": found.sweeps,
        "residual/λ1": float(found.residuals.max() / found.values[0]),
        "peak with eigsh, GB": (memory_bytes("VmHWM") or 0) / 1e9,
        "eigenvalues": [float(value) for value in found.values],
    }


class Watch:
    """Times of blocks and of their bare products, taken in turn, added up over runs in a file."""

    def __init__(self, X: Array, path: Path, file: Path) -> None:
        self.X, self.path, self.file = X, path, file
        fresh = {"kernel": 0.0, "bare": 0.0, "runs": 0}
        self.times = json.loads(file.read_text()) if file.exists() and path.exists() else fresh
        self.times["runs"] += 1
        self._last: float | None = None

    def __call__(self, done: int, total: int, news: Any) -> None:
        now = time.perf_counter()
        if self._last is not None:
            self.times["kernel"] += now - self._last
            write_json(self.file, self.times)
        if done < total:
            grid = BlockArray(self.path).grid
            rows, columns = grid.slices(list(grid.cells())[done])
            self.times["bare"] += clock(lambda: self.X[rows] @ self.X[columns].T)
        self._last = time.perf_counter()


def differences(model: DEQ, X: Array, kernel: Any, count: int = 6, side: int = 300) -> float:
    """The largest |stored - in memory|/√(K_ii K_jj) over random windows."""
    rng, worst = np.random.default_rng(0), 0.0
    side = min(side, len(X))
    roots = np.sqrt(kernel.diagonal().astype(np.float64))
    for _ in range(count):
        top, left = rng.integers(0, len(X) - side + 1, 2)
        rows, columns = slice(top, top + side), slice(left, left + side)
        exact = conjugate_kernel(model, X[rows], X[columns])
        gap = np.abs(kernel[rows, columns] - exact) / np.outer(roots[rows], roots[columns])
        worst = max(worst, float(gap.max()))
    return worst


# --- two workers ------------------------------------------------------------------------------------------


def two_workers(size: Size, step: Step, store: Path, folder: Path | None) -> dict[str, list[Row]]:
    from distributed import Client, LocalCluster

    X, _ = mnist(size.cluster, folder)
    model, rows = DEQ("tanh", SIGMA_A2), []
    expected = conjugate_kernel(model, X)
    block = max(size.block // 4, 128)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for title, who in (("this process, two threads", None), ("two workers, one thread each", client)):
            path = store / "cluster.zarr"
            # Code is loaded and compiled before the clock runs.
            for part in (X[:block], X):
                step(f"{title}, n = {len(part)}")
                shutil.rmtree(path, ignore_errors=True)
                start = time.perf_counter()
                kernel = conjugate_kernel(model, part, out=path, client=who, block=block)
                seconds = time.perf_counter() - start
            gap = float(np.abs(np.asarray(kernel) - expected).max())
            row = {
                "who": title,
                "n": len(X),
                "blocks": kernel.grid.count,
                "seconds": seconds,
                "difference": gap,
            }
            rows.append({**row, "at most 1e-12": gap <= 1e-12})
            shutil.rmtree(path)
    return {"one process and two": rows}


# --- conjugate gradients ----------------------------------------------------------------------------------


def problems(size: Size, folder: Path | None) -> Iterator[tuple[str, Array, Array]]:
    """Data sets with their right sides: real data, and the papers' mixture in 1000 dimensions."""
    for n in size.cg:
        yield "MNIST", *mnist(n, folder)
    n, source = size.cg[0], GaussianMixture.paper(size.cg[0] // 10)
    X, labels = source.sample(n, seed=0)
    yield "mixture", X, np.eye(2)[labels] - 0.5


def gradients(size: Size, step: Step, store: Path, folder: Path | None) -> dict[str, list[Row]]:
    # A command that was stopped goes on with the kernels that it has not finished.
    file = store / "cg.json"
    finished: dict[str, list[Row]] = json.loads(file.read_text()) if file.exists() else {}
    rows: list[Row] = []
    for data, X, right in problems(size, folder):
        for name, kernel in SOLVED:
            title = f"{data}, {kernel} of {name}, n = {len(X)}"
            if title in finished:
                rows += finished[title]
                continue
            step(f"{title}: the kernel")
            operator = KernelOperator.of(DEQ(name, SIGMA_A2), X, kernel, block=min(size.block, 2048))
            # Blocks are kept from here on: the times are those of conjugate gradients alone.
            operator @ np.ones(len(X))
            start = {"data": data, "kernel": f"{name} {kernel.upper()}", "n": len(X), "p": X.shape[1]}
            found = solved(operator, right, lambda text, title=title: step(title + text))
            finished[title] = [{**start, **row} for row in found]
            rows += finished[title]
            write_json(file, finished)
            del operator
    file.unlink(missing_ok=True)
    return {"iterations to 1e-6, all right sides at once": rows}


def solved(operator: KernelOperator, right: Array, step: Step) -> Iterator[Row]:
    """Iterations and seconds, those of making the preconditioner included."""
    scale = operator.trace() / operator.n
    for ridge in RIDGES:
        for preconditioner in (None, "nystrom", "equivalent"):
            step(f", ridge {ridge:g}, {preconditioner}")
            start = time.perf_counter()
            row: Row = {"ridge/mean diagonal": ridge, "preconditioner": preconditioner or "none"}
            try:
                found = operator.solve(
                    right, ridge * scale, preconditioner=preconditioner, max_iterations=1500
                )
                row |= {"iterations": found.iterations, "residual": found.residual}
            except ConvergenceError:
                row |= {"iterations": None, "residual": None}
            yield {**row, "seconds": time.perf_counter() - start}


# --- cost model -------------------------------------------------------------------------------------------


def measured_machine(block: int, p: int, name: str) -> tuple[Machine, Row]:
    """The times of one block, on this machine with its threads."""
    rng = np.random.default_rng(0)
    panels = [rng.standard_normal((block, p)) / np.sqrt(p) for _ in range(2)]
    model = DEQ(name, SIGMA_A2)
    squares = [model.squared_norms(rows) for rows in panels]
    sides = [Samples(rows, own, anchors(*squares)) for rows, own in zip(panels, squares, strict=True)]

    def whole() -> Any:
        return evaluate_kernels(model, (Kernel.CK,), sides[0], sides[1])

    def bare() -> Any:
        return panels[0] @ panels[1].T

    whole(), bare()
    seconds, product = min(clock(whole) for _ in range(3)), min(clock(bare) for _ in range(3))
    machine = Machine((seconds - product) / block**2, product / (block**2 * p))
    row = {"block": block, "p": p, "kernel": f"{name} CK", "block, s": seconds, "product, s": product}
    return machine, row


def cost(size: Size, step: Step, store: Path, folder: Path | None) -> dict[str, list[Row]]:
    p, measured, rows = 784, [], []
    for name in ACTIVATIONS:
        step(name)
        machine, row = measured_machine(min(size.block, 2048), p, name)
        measured.append(row)
        for n in (60_000, 100_000, 300_000, 1_000_000):
            for workers in (1, 10, 100, 1000):
                found = best_block(n, p, workers, machine)
                rows.append(
                    {
                        "kernel": f"{name} CK",
                        "n": n,
                        "workers": workers,
                        "block": found.block,
                        "blocks": found.blocks,
                        "in per block, MB": found.bytes_in / 1e6,
                        "out per block, MB": found.bytes_out / 1e6,
                        "stored, GB": found.stored / 1e9,
                        "time, s": found.seconds,
                        "efficiency": found.efficiency,
                        "largest loss": found.limit,
                    }
                )
    return {"measured blocks": measured, "expected on a cluster": rows}


SECTIONS: dict[str, Callable[[Size, Step, Path, Path | None], dict[str, list[Row]]]] = {
    "mnist": all_of_mnist,
    "cluster": two_workers,
    "cg": gradients,
    "cost": cost,
}


# --- command line -----------------------------------------------------------------------------------------


def run(names: list[str], size: Size, store: Path, folder: Path | None) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with Progress(console=CONSOLE, transient=True) as progress:
        for name in names:
            task = progress.add_task(name, total=None)
            provenance = Provenance()

            def step(text: str, task: Any = task, name: str = name) -> None:
                progress.update(task, description=f"{name}: {text}", advance=1)

            tables = SECTIONS[name](size, step, store, folder)
            results[name] = {"provenance": provenance.record(), "tables": tables}
            progress.remove_task(task)
    return results


def report(results: dict[str, Any]) -> str:
    lines = ["# Scale\n", "Made by `benchmarks/scale.py`; `--help` says what is measured.\n"]
    for name, section in results.items():
        lines += [f"## {name}\n", markdown_provenance(section["provenance"])]
        for title, rows in section["tables"].items():
            lines += [f"### {title}\n", markdown_table(rows)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("NOTSODEEP_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(tempfile.gettempdir()) / "notsodeep-scale",
        help="folder of the kernels; they stay there, and a run that was stopped goes on from them",
    )
    parser.add_argument("--probe", choices=ACTIVATIONS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    folder = None if arguments.data_dir is None else Path(arguments.data_dir)
    arguments.store.mkdir(parents=True, exist_ok=True)
    if arguments.probe:
        print(json.dumps(probe(arguments.probe, size, arguments.store, folder)))
        return
    stored = arguments.out / "scale.json"
    earlier = (
        json.loads(stored.read_text(encoding="utf-8")) if stored.exists() and not arguments.quick else {}
    )
    # Written after each section: hours of work do not wait for the last one.
    results: dict[str, Any] = {}
    for section in arguments.only:
        results |= run([section], size, arguments.store, folder)
        everything = {**earlier, **results}
        ordered = {name: everything[name] for name in SECTIONS if name in everything}
        if not arguments.quick or arguments.out != RESULTS:
            write_json(stored, ordered)
            write_atomically(arguments.out / "scale.md", report(ordered))
    CONSOLE.print(report(results))


if __name__ == "__main__":
    main()
