"""Injected twins on held-out rows, beside the papers' designs, a plain layer, and the DEQ cut after a few steps.

  python benchmarks/injected.py                             everything that is not done yet (about an hour on one core)
  python benchmarks/injected.py --data mnist --sigma 0.5    some of it
  python benchmarks/injected.py --minutes 3                 as much as fits; the next call goes on
  python benchmarks/injected.py --brief --out FOLDER        three layers for both kernels, and the cut (20 minutes)
  python benchmarks/injected.py --summary                   the tables from what is done: worst rows and medians
  python benchmarks/injected.py --rates                     the error by the number of layers beside 1/ρ of (D.26)
  NOTSODEEP_DATA names the folder with the data sets

A task is a data set, an activation and σ_a²: 150 rows to fit to, 150 others on which all distances are measured, rows
centred and scaled to a mean squared norm of 1. A distance is relative, in the operator norm: plain, with the best
constant factor, and after centring rows and columns of the kernel.

Networks: "injected" without data and "fitted"; the DEQ "cut" after as many steps, and after as many as cost the same at
width 1024; "plain", one layer of the DEQ's own activation. On the centred DEQ: the "papers" design, and "fitted".
Results: injected.jsonl in --out, one line for each distance, finished tasks in one piece; injected.md, for each
activation and σ_a² the worst of the data sets.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from cases import ACTIVATIONS
from harness import RESULTS, Row, markdown_table, write_atomically
from rich.console import Console
from rich.progress import track
from rich.table import Table

from notsodeep.data import GaussianMixture, Preprocessing, load
from notsodeep.designs import Design, Distance, design, injected
from notsodeep.designs.families import Task
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import atomic_append
from notsodeep.gaussian import activation
from notsodeep.kernels import both_kernels
from notsodeep.models import DEQ, Explicit, Model

CONSOLE = Console(highlight=False, width=150)
DATA = ("mixture", "digits", "mnist", "fashion_mnist", "cifar10", "cifar10_vgg19")
VARIANCES = (0.1, 0.2, 0.5, 0.8)
KERNELS = ("ck", "ntk")
ROWS, WIDTH = 150, 1024

Array = np.ndarray[Any, np.dtype[np.float64]]
Both = dict[str, Array]


@lru_cache(maxsize=1)
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


def task_rows(data: str, name: str, sigma_a2: float, brief: bool) -> Iterator[Row]:
    """All distances of one task; in brief only those of three layers for both kernels, and of cutting."""
    fit_rows, rows = samples(data)
    # `design` splits what it is given into rows to fit to and others: these are its first half.
    given = np.empty((2 * ROWS, rows.shape[1]))
    order = np.argsort(np.modf(np.arange(2 * ROWS) * 0.6180339887498949)[0], kind="stable")
    given[order[:ROWS]], given[order[ROWS:]] = fit_rows, rows
    deq = model_of(name, sigma_a2)
    wanted = kernels(deq, rows)

    def measured(
        network: str, layers: int, found: Both, goal: str, target: Both = wanted, **more: Any
    ) -> Iterator[Row]:
        for kernel in KERNELS if goal in ("both", "") else (goal,):
            distance = Distance.between(target[kernel], found[kernel])
            yield {
                "network": network,
                "layers": layers,
                "for": goal,
                "kernel": kernel,
                **vars(distance),
                **more,
            }

    yield from measured("plain", 1, kernels(Explicit([deq.activation]), rows), "")
    for layers in (3,) if brief else (2, 3):
        yield from measured("cut", layers, kernels(deq.unrolled(layers), rows), "")
        steps = layers + math.ceil((layers - 1) * rows.shape[1] / WIDTH)
        yield from measured("cut, same cost", layers, kernels(deq.unrolled(steps), rows), "", steps=steps)
        for goal in ("both",) if brief else (*KERNELS, "both"):
            for label, X in (("injected", None), ("fitted", given)):
                start = time.process_time()
                made = design(deq, 1.0, goal, "injected", layers=layers, X=X, samples=ROWS)
                seconds = time.process_time() - start
                yield from measured(label, layers, kernels(made.network, rows), goal, seconds=seconds)
    if brief:
        return
    centred = deq.centred(1.0)
    target = kernels(centred, rows)
    for goal in KERNELS:
        papers = papers_design(name, sigma_a2, goal)
        found, layers = kernels(papers.network, rows), len(papers.network.layers)
        yield from measured("papers", layers, found, goal, target, family=papers.family)
    made = design(centred, 1.0, "both", "injected", layers=3, X=given, samples=ROWS)
    yield from measured("fitted, centred DEQ", 3, kernels(made.network, rows), "both", target)


@cache
def papers_design(name: str, sigma_a2: float, kernel: str) -> Design:
    """The best of the papers' families: the first that matches, or the closest."""
    return design(model_of(name, sigma_a2), 1.0, kernel, "papers")


# --- how fast the error falls -------------------------------------------------------------------------------------

# Squared norms, relative to τ0²: one, those of a design without data, and a wide spread.
SPREADS = {"1": (1.0,), "0.7–1.4": (0.7, 1.0, 1.4), "0.2–5": (0.2, 0.5, 1.0, 2.0, 5.0)}


def gains(target: injected.Target, sigma_a2: float) -> tuple[float, float]:
    """The smallest and the largest σ_a² F'(Λ) of the pairs, from both kernels: (3.8) solved for D."""
    features, tangent = target.wanted
    inputs = np.concatenate([target.pairs.cross, target.pairs.squares])
    entering = sigma_a2 * features + (1.0 - sigma_a2) * inputs
    through = sigma_a2 * (tangent - features)
    found = through / (entering + through)
    # At an inner product of zero both are zero for odd activations.
    sound = found[np.abs(entering) > 1e-9]
    return float(sound.min()), float(sound.max())


def rates() -> Table:
    """Distance by the number of layers, of the DEQ that is cut too, beside the rate of the best polynomials."""
    shown = Table(title="distance by the number of layers, 1 to 4")
    for column in ("φ, σ_a², squared norms", "gains", "1/ρ", "CK", "cut, CK", "both"):
        shown.add_column(column)
    for name, sigma_a2 in (("relu", 0.2), ("relu", 0.5), ("relu", 0.8), ("tanh", 0.5), ("tanh", 0.8)):
        for spread, norms in SPREADS.items():
            injected.NORMS = norms
            deq = model_of(name, sigma_a2)
            target = injected.reference_target(deq, 1.0, "both")
            low, high = gains(target, sigma_a2)
            z = (2.0 - low - high) / (high - low)
            by_goal = {
                goal: [
                    injected.InjectedFamily(layers)
                    .solve(Task(deq, 1.0, goal, centre=False), thorough=False)
                    .residual
                    for layers in (1, 2, 3, 4)
                ]
                for goal in ("ck", "both")
            }
            only = injected.reference_target(deq, 1.0, "ck")
            cut = [
                only.distance([injected.values_at(deq.unrolled(layers), only.pairs, "ck")])
                for layers in (1, 2, 3, 4)
            ]
            cells = (
                ", ".join(f"{one:.0e}" for one in part) for part in (by_goal["ck"], cut, by_goal["both"])
            )
            about = f"{name} {sigma_a2}, {spread}", f"{low:.2f}–{high:.2f}"
            shown.add_row(*about, f"{z - math.sqrt(z * z - 1.0):.3f}", *cells)
    return shown


# --- running and reading ------------------------------------------------------------------------------------------


def done(path: Path) -> list[Row]:
    """The rows of finished tasks."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(options: argparse.Namespace, path: Path) -> None:
    finished = {(row["data"], row["activation"], row["sigma_a2"]) for row in done(path)}
    # Activations outside, so that a design of the papers serves all data sets.
    tasks = [
        (data, name, sigma)
        for name in options.activation
        for sigma in options.sigma
        for data in options.data
        if (data, name, sigma) not in finished
    ]
    limit = time.monotonic() + 60.0 * options.minutes
    for data, name, sigma in track(tasks, "injected twins", console=CONSOLE):
        if time.monotonic() > limit:
            break
        about = {"data": data, "activation": name, "sigma_a2": sigma}
        try:
            rows = [{**about, **row} for row in task_rows(data, name, sigma, options.brief)]
        except (ConvergenceError, InputError) as error:
            rows = [{**about, "network": "none", "verdict": str(error)}]
        atomic_append(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def worst(rows: list[Row], network: str, layers: int, goal: str, field: str, **limits: Any) -> str:
    """The largest distance with its task, and the median."""
    chosen = [
        row for row in rows
        if row["network"] == network and row["layers"] == layers and row["for"] == goal
        and all(row[key] in allowed for key, allowed in limits.items())
    ]  # fmt: skip
    if not chosen:
        return ""
    top = max(chosen, key=lambda row: row[field])
    where = f"{top['activation']} {top['sigma_a2']} {top['data']}"
    return f"{statistics.median(row[field] for row in chosen):.1e}, worst {top[field]:.1e} ({where})"


def summary(rows: list[Row]) -> None:
    CONSOLE.print(f"{len({(r['data'], r['activation'], r['sigma_a2']) for r in rows})} tasks")
    for row in (row for row in rows if row["network"] == "none"):
        CONSOLE.print(f"{row['activation']} {row['sigma_a2']} {row['data']}: {row['verdict']}")
    rows = [row for row in rows if row["network"] != "none"]
    cases = [("plain", 1, "")]
    cases += [(network, layers, "") for layers in (2, 3) for network in ("cut", "cut, same cost")]
    cases += [
        (network, layers, goal)
        for layers in (2, 3)
        for goal in (*KERNELS, "both")
        for network in ("injected", "fitted")
    ]
    cases += [("papers", layers, goal) for layers in (1, 2, 3) for goal in KERNELS]
    cases += [("fitted, centred DEQ", 3, "both")]
    for sigmas in ((0.1, 0.2), (0.5,), (0.8,)):
        for field in ("plain", "scaled", "centred"):
            shown = Table(title=f"σ_a² in {sigmas}, distance {field}: median, worst row")
            for column in ("network", "layers", "for", "CK", "NTK"):
                shown.add_column(column)
            for network, layers, goal in cases:
                cells = [
                    worst(rows, network, layers, goal, field, kernel=(kernel,), sigma_a2=sigmas)
                    for kernel in KERNELS
                ]
                if any(cells):
                    shown.add_row(network, str(layers), goal, *cells)
            CONSOLE.print(shown)
    worse_than_cutting(rows)


def written(rows: list[Row]) -> str:
    """For each activation and σ_a² the worst data set, three layers for both kernels, beside cutting and one layer."""
    rows = [row for row in rows if row["network"] != "none"]
    cases = {
        "one plain layer × best factor": ("plain", 1, "", "scaled"),
        "DEQ cut after 3": ("cut", 3, "", "plain"),
        "without data": ("injected", 3, "both", "plain"),
        "fitted": ("fitted", 3, "both", "plain"),
        "fitted, centred": ("fitted", 3, "both", "centred"),
    }
    lines: list[Row] = []
    for name in ACTIVATIONS:
        for sigma in VARIANCES:
            found = [row for row in rows if row["activation"] == name and row["sigma_a2"] == sigma]
            if not found:
                continue
            line: Row = {"φ": name, "σ_a²": sigma, "data sets": len({row["data"] for row in found})}
            for words, (network, layers, goal, field) in cases.items():
                cells = []
                for kernel in KERNELS:
                    chosen = [
                        row
                        for row in found
                        if (row["network"], row["layers"], row["for"], row["kernel"])
                        == (network, layers, goal, kernel)
                    ]
                    top = max(chosen, key=lambda row: row[field])
                    cells.append(f"{top[field]:.0e}")
                line[words] = ", ".join(cells)
                line["worst on"] = top["data"]
            lines.append(line)
    return (
        "# Injected twins\n\nRelative distance in the operator norm of CK, NTK of one network of three layers for "
        f"both kernels, on {ROWS} rows that it has not seen: the worst of the data sets (mixture, digits, MNIST, "
        "Fashion-MNIST, CIFAR-10, VGG-19 features of it). 'worst on' is that of the last column's NTK. 'centred': "
        "after centring rows "
        f"and columns of the kernels.\n\n{markdown_table(lines)}"
    )


def worse_than_cutting(rows: list[Row]) -> None:
    """Rows in which a designed network is further from the DEQ than the DEQ cut after as many steps."""
    key = ("data", "activation", "sigma_a2", "layers", "kernel")
    cuts = {tuple(row[name] for name in key): row["plain"] for row in rows if row["network"] == "cut"}
    for label in ("injected", "fitted"):
        ours = [row for row in rows if row["network"] == label]
        bad = [row for row in ours if row["plain"] > cuts[tuple(row[name] for name in key)]]
        CONSOLE.print(f"{label}: further from the DEQ than the cut in {len(bad)} of {len(ours)} rows")
        for row in bad:
            CONSOLE.print("  ", *(row[name] for name in key), row["for"], f"{row['plain']:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--activation", nargs="+", choices=list(ACTIVATIONS), default=list(ACTIVATIONS))
    parser.add_argument("--sigma", nargs="+", type=float, choices=VARIANCES, default=VARIANCES)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--brief", action="store_true", help="three layers for both kernels, and cutting")
    parser.add_argument("--summary", action="store_true", help="only show what is done")
    parser.add_argument("--rates", action="store_true", help="only the error by the number of layers")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.out / "injected.jsonl"
    warnings.simplefilter("ignore")
    if options.rates:
        CONSOLE.print(rates())
        return
    if not options.summary:
        run(options, path)
    found = done(path)
    summary(found)
    write_atomically(options.out / "injected.md", written(found))


if __name__ == "__main__":
    main()
