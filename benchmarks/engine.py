"""Times of exact kernels in this checkout beside those of version 0.3.0, in one run.

    python benchmarks/engine.py [--quick] [--only TEXT]

Each version has a process of its own, which reads jobs as lines of JSON and answers with seconds; the two take turns at
every job, so that a ratio is one under the same load. The rows go to benchmarks/results/engine.csv, those
of an interrupted run, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, ROOT, Provenance, markdown_provenance, write_rows

import notsodeep as nsd
from notsodeep import cells

BASE, COMMIT, TURNS = "0.3.0", "ddd4962", 4
ACTIVATIONS = ("relu", "tanh", "gelu", "erf", "leaky_relu", "softplus")
CELLS = ("residual", "gated, SwiGLU", "normalised", "two layers", "loop of 4 steps")
Job = tuple[str, str, str, int, str]


def jobs(sizes: tuple[int, ...]) -> Iterator[Job]:
    """What is timed: the kind of model, its activation or cell, the samples, their number, and the kernel."""
    few, some = sizes[:2]
    cases = [("DEQ", phi, "mixture", n) for n in sizes[:3] for phi in ACTIVATIONS]
    cases += [("DEQ", phi, data, some) for phi in ACTIVATIONS for data in ("digits", "table")]
    for phi in ("relu", "tanh"):
        cases += [("Explicit, 3 layers", phi, "mixture", n) for n in sizes[1:3]]
        cases += [(f"ConvDEQ, {readout}", phi, "images", 20) for readout in ("flatten", "pool")]
        cases += [("GraphDEQ", phi, "ring", 40), ("NeuralODE", phi, "mixture", few)]
    cases += [("cell", cell, "mixture", n) for cell in CELLS for n in (few, some)]
    cases += [("DEQ", phi, "mixture", sizes[3]) for phi in ACTIVATIONS]
    return ((*case, kernel) for case in cases for kernel in ("ck", "ntk"))


def model(kind: str, what: str) -> Any:
    """The model of a job, by names that both versions have."""
    if kind == "cell":
        return nsd.Loop(step(what), 4) if "loop" in what else nsd.Equilibrium(step(what))
    if kind.startswith("ConvDEQ"):
        return nsd.ConvDEQ(what, 0.3, readout=kind.split(", ")[1])
    if kind == "GraphDEQ":
        ring = np.roll(np.eye(40), 1, axis=0)
        return nsd.GraphDEQ(nsd.models.normalised_adjacency(ring + ring.T), what, 0.3)
    if kind == "Explicit, 3 layers":
        return nsd.Explicit([what] * 3)
    return getattr(nsd, kind)(what, 0.3)


def step(name: str) -> Any:
    """The cell of this name."""
    z, x = cells.state(), cells.input()
    if name == "gated, SwiGLU":
        y = z + cells.dense(x, 20.0)
        gate = cells.activation(cells.dense(y, 1.0), "silu")
        return cells.norm(y + cells.dense(gate * cells.dense(y, 1.0), 1.0))
    inner = cells.activation(cells.dense(z, 0.4) + cells.dense(x, 0.7), "tanh")
    if name == "two layers":
        return cells.activation(cells.dense(inner, 0.8) + cells.dense(x, 0.3), "tanh")
    if name == "normalised":
        return cells.norm(cells.dense(inner, 0.8) + cells.dense(x, 2.0), "layer")
    return (1.0 if "loop" in name else 0.5) * z + cells.dense(inner, 0.6) + cells.dense(x, 0.5)


@cache
def samples(data: str, n: int) -> np.ndarray:
    """Samples of a kind, the same in both processes."""
    if data == "mixture":
        return nsd.GaussianMixture.paper(int(0.8 * n)).sample(n, seed=0)[0]
    if data in ("table", "ring"):
        return np.random.default_rng(0).standard_normal((n, 8)) / np.sqrt(8.0)
    from sklearn.datasets import load_digits

    rows = load_digits().data[:n] / 40.0
    return rows.reshape(-1, 1, 8, 8) if data == "images" else rows


def work() -> None:
    """Answer jobs from the standard input until it ends."""
    for line in sys.stdin:
        kind, what, data, n, kernel = json.loads(line)
        X, made = samples(data, n), model(kind, what)
        function = nsd.conjugate_kernel if kernel == "ck" else nsd.tangent_kernel
        begin = time.perf_counter()
        function(made, X, progress=False)
        print(time.perf_counter() - begin, flush=True)


class Worker:
    """A process that computes kernels with the package in a folder."""

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join([str(folder / "src"), str(Path(__file__).parent)])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker"], env=os.environ | {"PYTHONPATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def seconds(self, job: Job) -> float:
        """The time that a job takes."""
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())  # type: ignore[union-attr]


def main() -> None:
    """Time all jobs, and write the rows."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; writes nothing")
    parser.add_argument("--only", default="", help="jobs whose names contain this text; writes nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work()
    # The folder of the old version stays, so that its compiled loops are found again.
    folder = Path(tempfile.gettempdir()) / f"notsodeep-{COMMIT}"
    folder.mkdir(exist_ok=True)
    subprocess.run(f"git -C '{ROOT}' archive {COMMIT} src | tar -xC '{folder}'", shell=True, check=True)
    provenance, now, base, rows = Provenance(), Worker(ROOT), Worker(folder), []
    for job in jobs((20, 60, 100, 200) if arguments.quick else (100, 500, 2000, 4000)):
        name = " | ".join(map(str, job))
        if arguments.only not in name:
            continue
        # The first turn compiles.
        turns = [(now.seconds(job), base.seconds(job)) for _ in range(TURNS + 1)][1:]
        seconds, before = map(min, zip(*turns, strict=True))
        row = dict(zip(("model", "of", "data", "n", "kernel"), job, strict=True))
        rows.append(row | {"seconds": seconds, f"seconds, {BASE}": before, "ratio": seconds / before})
        print(f"{seconds:9.4f} s {before:9.4f} s {seconds / before:6.2f}   {name}", flush=True)
        if not arguments.quick and not arguments.only:
            note = f"Best of {TURNS} turns, beside {BASE}. {markdown_provenance(provenance.record())}"
            write_rows(RESULTS / "engine.csv", rows, note)


if __name__ == "__main__":
    main()
