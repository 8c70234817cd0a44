"""Injected twins on held-out rows, beside the papers' designs, a plain layer, and the DEQ cut after a few steps.

  python benchmarks/injected.py                             everything that is not done yet (about an hour on one core)
  python benchmarks/injected.py --data mnist --sigma 0.5    some of it
  python benchmarks/injected.py --minutes 3                 as much as fits; the next call goes on
  python benchmarks/injected.py --brief                     three layers for both kernels, the cut DEQ and the plain
                                                            layer alone: what the targets are about
  python benchmarks/injected.py --publish                   only the tables from what is done: results/injected.md and
                                                            the marked part of docs/designs.md
  NOTSODEEP_DATA names the folder with the data sets

A task is a data set, an activation and σ_a²: 150 rows to fit to, 150 others on which all distances are measured, rows
centred and scaled to a mean squared norm of 1. A distance is relative, in the operator norm: plain, with the best
constant factor, and after centring rows and columns of the kernel.

Networks, each with two and three layers, for the conjugate kernel, the tangent kernel, and both:
  injected               designed without data; and "fitted" to the rows (four layers too, where three leave more than
                         5e-4 of one of both kernels)
  cut                    the DEQ stopped after as many steps: what an injected network costs whose layers share their
                         input weights, as those of `explicit_twin` do
  cut, own input         after as many steps as cost the same at width 1024 where layers have input weights of their own
  plain                  one layer of the DEQ's own activation
  papers                 the best of the papers' families for each kernel by itself, of the centred DEQ; beside it
                         "fitted, centred DEQ": one injected network for both
Journal: results/injected.jsonl, one line for each finished task; a task done in full takes the place of a brief one.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from cases import ACTIVATIONS
from harness import RESULTS
from injected_tables import publish, summary
from rich.console import Console
from rich.progress import track

from notsodeep.data import GaussianMixture, Preprocessing, load
from notsodeep.designs import Design, Distance, InjectedFamily, Task, design
from notsodeep.designs.families import Solution
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import atomic_append
from notsodeep.gaussian import activation
from notsodeep.kernels import both_kernels
from notsodeep.models import DEQ, Explicit, Model

CONSOLE = Console(highlight=False, width=150)
DATA = ("mixture", "digits", "mnist", "fashion_mnist", "cifar10", "cifar10_vgg19")
# The most interesting first, so that a part of the table is worth reading.
VARIANCES = (0.5, 0.2, 0.8, 0.1)
KERNELS = ("ck", "ntk")
ROWS, WIDTH, TARGET = 150, 1024, 5e-4

Array = np.ndarray[Any, np.dtype[np.float64]]
Both = dict[str, Array]
# network, layers, what for, kernel, and the distance plain, with a factor and centred; seconds of a design.
Entry = list[Any]


@lru_cache(maxsize=len(DATA))
def samples(name: str) -> tuple[Array, Array]:
    """Rows to fit to and rows to judge by."""
    if name == "mixture":
        p = 240
        means = np.zeros((2, p))
        means[:, 0] = (1.0, -1.0)
        X, _ = GaussianMixture(means, [1.0, 1.0 + 4.0 / math.sqrt(p)], [0.5, 0.5]).sample(2 * ROWS, seed=0)
    else:
        X = np.asarray(load(name, n=2 * ROWS, seed=0).X, dtype=np.float64)
    scaled = np.asarray(Preprocessing.fit(X).apply(X), dtype=np.float64)
    order = np.random.default_rng(0).permutation(len(scaled))
    return scaled[order[:ROWS]], scaled[order[ROWS:]]


def kernels(model: Model, rows: Array) -> Both:
    """Both kernels by name."""
    return dict(zip(KERNELS, both_kernels(model, rows), strict=True))


def model_of(name: str, sigma_a2: float) -> DEQ:
    """The DEQ with the parameters that the benchmarks give this activation."""
    return DEQ(activation(name, **ACTIVATIONS[name]), sigma_a2)


def measured(
    network: str, layers: int, goal: str, target: Both, found: Both, *more: float
) -> Iterator[Entry]:
    """Entries of one network: of both kernels, or of the one that it is for."""
    for kernel in KERNELS if goal in ("both", "") else (goal,):
        distance = Distance.between(target[kernel], found[kernel])
        digits = (float(f"{one:.3g}") for one in (distance.plain, distance.scaled, distance.centred, *more))
        yield [network, layers, goal, kernel, *digits]


def entries(data: str, name: str, sigma_a2: float) -> Iterator[Entry]:
    """All distances of one task."""
    fit_rows, rows = samples(data)
    deq = model_of(name, sigma_a2)
    wanted = kernels(deq, rows)
    yield from measured("plain", 1, "", wanted, kernels(Explicit([deq.activation]), rows))
    found: list[Entry] = []
    for layers in (2, 3):
        yield from measured("cut", layers, "", wanted, kernels(deq.unrolled(layers), rows))
        steps = layers + math.ceil((layers - 1) * rows.shape[1] / WIDTH)
        yield from measured("cut, own input", layers, "", wanted, kernels(deq.unrolled(steps), rows), steps)
        for goal in (*KERNELS, "both"):
            start = time.process_time()
            without, fitted = designed(deq, goal, layers, fit_rows)
            seconds = time.process_time() - start
            yield from measured("injected", layers, goal, wanted, kernels(without.network, rows))
            found = list(measured("fitted", layers, goal, wanted, kernels(fitted.network, rows), seconds))
            yield from found
    if max(entry[4] for entry in found) > TARGET:
        _, fitted = designed(deq, "both", 4, fit_rows)
        yield from measured("fitted", 4, "both", wanted, kernels(fitted.network, rows))
    yield from beside_the_papers(name, sigma_a2, fit_rows, rows)


def brief_entries(data: str, name: str, sigma_a2: float) -> Iterator[Entry]:
    """One network of three layers for both kernels, the DEQ cut after three steps, and a plain layer."""
    fit_rows, rows = samples(data)
    deq = model_of(name, sigma_a2)
    wanted = kernels(deq, rows)
    yield from measured("plain", 1, "", wanted, kernels(Explicit([deq.activation]), rows))
    yield from measured("cut", 3, "", wanted, kernels(deq.unrolled(3), rows))
    start = time.process_time()
    without, fitted = designed(deq, "both", 3, fit_rows)
    seconds = time.process_time() - start
    yield from measured("injected", 3, "both", wanted, kernels(without.network, rows))
    yield from measured("fitted", 3, "both", wanted, kernels(fitted.network, rows), seconds)


def designed(deq: DEQ, goal: str, layers: int, fit_rows: Array) -> tuple[Solution, Solution]:
    """What `design(deq, 1.0, goal, "injected", layers=…)` makes without data, and fitted to rows."""
    task = Task(deq, 1.0, goal, centre=False)
    without = InjectedFamily(layers).solve(task, thorough=False)
    return without, without.fitted_to(task, fit_rows)


def beside_the_papers(name: str, sigma_a2: float, fit_rows: Array, rows: Array) -> Iterator[Entry]:
    """The papers' designs and an injected one, all for the centred DEQ."""
    centred = model_of(name, sigma_a2).centred(1.0)
    target = kernels(centred, rows)
    for goal in KERNELS:
        papers = papers_design(name, sigma_a2, goal)
        yield from measured("papers", len(papers.network.layers), goal, target, kernels(papers.network, rows))
    _, fitted = designed(centred, "both", 3, fit_rows)
    yield from measured("fitted, centred DEQ", 3, "both", target, kernels(fitted.network, rows))


@cache
def papers_design(name: str, sigma_a2: float, kernel: str) -> Design:
    """The best of the papers' families: the first that matches, or the closest."""
    return design(model_of(name, sigma_a2), 1.0, kernel, "papers")


def done(path: Path) -> list[dict[str, Any]]:
    """The finished tasks, in full where there are both."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    tasks = sorted(map(json.loads, lines), key=lambda task: not task.get("brief", False))
    found = {_key(task): task for task in tasks if not task.get("rates", False)}
    for task in tasks:
        if task.get("rates", False) and _key(task) in found:
            found[_key(task)]["rows"] += task["rows"]
    return list(found.values())


def _key(task: dict[str, Any]) -> tuple[str, str, float]:
    return task["data"], task["activation"], task["sigma_a2"]


def run(options: argparse.Namespace, path: Path) -> None:
    """Measure what is not done yet."""
    finished = {_key(task) for task in done(path) if options.brief or not task.get("brief", False)}
    measure = brief_entries if options.brief else entries
    # Data sets inside, so that a design of the papers serves all of them.
    tasks = [
        (data, name, sigma)
        for sigma in options.sigma
        for name in options.activation
        for data in options.data
        if (data, name, sigma) not in finished
    ]
    limit = time.monotonic() + 60.0 * options.minutes
    for data, name, sigma in track(tasks, "injected twins", console=CONSOLE):
        if time.monotonic() > limit:
            break
        task: dict[str, Any] = {"data": data, "activation": name, "sigma_a2": sigma}
        if options.brief:
            task["brief"] = True
        try:
            task["rows"] = list(measure(data, name, sigma))
        except (ConvergenceError, InputError) as error:
            task |= {"rows": [], "verdict": str(error)}
        atomic_append(path, (json.dumps(task, separators=(",", ":")) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--activation", nargs="+", choices=list(ACTIVATIONS), default=list(ACTIVATIONS))
    parser.add_argument("--sigma", nargs="+", type=float, choices=VARIANCES, default=VARIANCES)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--brief", action="store_true", help="three layers for both kernels alone")
    parser.add_argument("--publish", action="store_true", help="only write the tables from what is done")
    parser.add_argument("--journal", type=Path, default=RESULTS / "injected.jsonl")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.publish:
        publish(done(options.journal))
        return
    run(options, options.journal)
    CONSOLE.print(summary(done(options.journal)))


if __name__ == "__main__":
    main()
