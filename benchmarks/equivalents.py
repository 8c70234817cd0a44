"""How close the high-dimensional equivalents are to the exact kernels, and what they cost.

  python benchmarks/equivalents.py                    everything (25 minutes on two cores)
  python benchmarks/equivalents.py --quick            everything small, to see that it runs
  python benchmarks/equivalents.py --only cost real   some sections; the others keep their earlier results
  python benchmarks/equivalents.py --data-dir FOLDER  with MNIST and Fashion-MNIST (or set NOTSODEEP_DATA)

Sections
  mixture  the papers' two classes, σ_a² = 0.2, p = 0.8 n, five seeds (fewer at the largest), n = 500 … 8000:
           relative errors in operator norm, and the slope of log error against log n with its 95 % interval
  classes  three classes with full random covariances and unequal weights: exact and estimated statistics
  real     MNIST and Fashion-MNIST 6 against 8 (n = 6000), digits, statistics estimated: all forms
  sphere   √2·ReLU and others on the unit sphere, not centred: ||K - K̄||
  cost     n = 20 000, p = 400: all eigenvalues of the equivalent against dense eigvalsh, extrapolated from
           n = 5000 by n³; matrix-vector product against the two products it needs; memory

Results: equivalents.json and equivalents.md in --out.
"""

from __future__ import annotations

import argparse
import json
import os
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    RESULTS,
    Provenance,
    Row,
    clock,
    interleave,
    markdown_provenance,
    markdown_table,
    write_atomically,
    write_json,
)
from rich.console import Console
from rich.progress import Progress
from scipy import linalg, stats
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing, UnitSphere, load
from notsodeep.equivalents import equivalent, sphere_equivalent
from notsodeep.equivalents.error import operator_norm
from notsodeep.errors import InputError
from notsodeep.gaussian import activation
from notsodeep.kernels import both_kernels, exact_kernel
from notsodeep.models import DEQ, Explicit

CONSOLE = Console(highlight=False, width=140)
SIGMA_A2 = 0.2

Array = np.ndarray[Any, np.dtype[np.float64]]
Step = Callable[[str], None]
Found = dict[tuple[str, ...], list[tuple[int, float]]]

FORMS: dict[str, dict[str, Any]] = {
    "asymptotic": {"form": "asymptotic"},
    "refined": {"form": "refined"},
    "order 3": {"form": "refined", "order": 3},
    "sketch": {"form": "refined", "square": "sketch"},
    "sketch, order 3": {"form": "refined", "order": 3, "square": "sketch"},
    "exact": {"form": "refined", "square": "exact"},
    "exact, order 3": {"form": "refined", "order": 3, "square": "exact"},
}
KERNELS = ("ck", "ntk")
# Beyond this size the exact entrywise powers are left out: they show nothing new and take n × n each.
EXACT_POWERS = 2000


@dataclass(frozen=True)
class Size:
    """How much is computed: in full, or enough to see that it runs."""

    mixture: dict[int, int]  # n: seeds
    classes: dict[int, int]
    real: int
    sphere: tuple[int, ...]
    cost: int
    dense: int


FULL = Size(
    mixture={500: 5, 1000: 5, 2000: 5, 4000: 3, 8000: 2},
    classes={500: 3, 1000: 3, 2000: 3, 4000: 2},
    real=6000,
    sphere=(500, 1000, 2000),
    cost=20_000,
    dense=5000,
)
QUICK = Size({200: 2, 400: 2}, {200: 2, 400: 2}, 300, (100, 200), 2000, 500)


def relative_errors(
    model: DEQ, X: Array, statistics: MixtureStatistics, forms: Iterable[str]
) -> dict[str, dict[str, float]]:
    """||K - K̄||/||K|| by kernel and form; CK and NTK come from one pass over the pairs."""
    found: dict[str, dict[str, float]] = {}
    for kernel, exact in zip(KERNELS, both_kernels(model, X)[:2], strict=True):
        whole = operator_norm(aslinearoperator(exact))
        found[kernel] = {
            form: distance(exact, equivalent(model, X, statistics, kernel, **FORMS[form])) / whole
            for form in forms
        }
    return found


def distance(exact: Array, operator: LinearOperator) -> float:
    return operator_norm(aslinearoperator(exact) - operator)


def slope(sizes: Array, errors: Array) -> tuple[float, float]:
    """The exponent of error against n, and half the width of its 95 % interval."""
    fit = stats.linregress(np.log(sizes), np.log(errors))
    freedom = len(sizes) - 2
    return float(fit.slope), float(fit.stderr * stats.t.ppf(0.975, freedom)) if freedom > 0 else float("nan")


# --- sections ---------------------------------------------------------------------------------------------


def mixture(size: Size, step: Step, folder: Path | None) -> dict[str, list[Row]]:
    found: Found = {}
    for n, seeds in size.mixture.items():
        forms = ["asymptotic", "refined", "exact"][: 3 if n <= EXACT_POWERS else 2]
        for seed in range(seeds):
            source = GaussianMixture.paper(int(0.8 * n))
            X, y = source.sample(n, seed=seed)
            statistics = MixtureStatistics.of(source, X, y)
            for name in ("tanh", "relu"):
                step(f"{name} n = {n} seed {seed}")
                model = DEQ(name, SIGMA_A2).centred(statistics.tau0)
                _collect(found, n, (name,), (), relative_errors(model, X, statistics, forms))
    return {"errors": [_error_row(key, values) for key, values in sorted(found.items())]}


def _collect(
    found: Found, n: int, before: tuple[str, ...], after: tuple[str, ...], errors: dict[str, dict[str, float]]
) -> None:
    for kernel, by_form in errors.items():
        for form, error in by_form.items():
            found.setdefault((*before, kernel, form, *after), []).append((n, error))


def _error_row(key: tuple[str, ...], values: list[tuple[int, float]]) -> Row:
    """Mean over seeds at each n, and the slope over all of them."""
    sizes, errors = (np.array(column, dtype=float) for column in zip(*values, strict=True))
    row: Row = dict(zip(("φ", "kernel", "form", "statistics"), key, strict=False))
    for n in np.unique(sizes):
        chosen = errors[sizes == n]
        row[f"n = {n:.0f}"] = float(chosen.mean())
        row.setdefault("sd", []).append(float(chosen.std(ddof=1)) if len(chosen) > 1 else None)
    row["slope"], row["±"] = slope(sizes, errors)
    return row


def random_mixture(p: int, seed: int) -> GaussianMixture:
    """Three classes: full random covariances of traces p + O(√p), means of norms 3 to 5, weights 5:3:2."""
    rng = np.random.default_rng(seed)
    covariances = []
    for a in range(3):
        factor = rng.standard_normal((p, 2 * p)) / np.sqrt(2 * p)
        full = 0.4 * np.eye(p) + 0.6 * factor @ factor.T
        covariances.append(full * (1 + 3 * a / np.sqrt(p)) * p / np.trace(full))
    directions = rng.standard_normal((3, p))
    means = np.array([[3.0], [4.0], [5.0]]) * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return GaussianMixture(means, covariances, [0.5, 0.3, 0.2])


def classes(size: Size, step: Step, folder: Path | None) -> dict[str, list[Row]]:
    found: Found = {}
    for n, seeds in size.classes.items():
        for seed in range(seeds):
            source = random_mixture(int(0.8 * n), seed)
            X, y = source.sample(n, seed=seed)
            known = {
                "exact": MixtureStatistics.of(source, X, y),
                "estimated": MixtureStatistics.estimate(X, y),
            }
            for name in ("tanh", "relu", "swish"):
                step(f"{name} n = {n} seed {seed}")
                for how, statistics in known.items():
                    model = DEQ(name, SIGMA_A2).centred(statistics.tau0)
                    errors = relative_errors(model, X, statistics, ("asymptotic", "refined"))
                    _collect(found, n, (name,), (how,), errors)
    rows = [_error_row(key, values) for key, values in sorted(found.items())]
    return {"errors": rows, "estimated over exact": _ratios(rows)}


def _ratios(rows: list[Row]) -> list[Row]:
    same = ("φ", "kernel", "form")
    exact = {tuple(row[k] for k in same): row for row in rows if row["statistics"] == "exact"}
    found = []
    for row in rows:
        if row["statistics"] == "estimated":
            other = exact[tuple(row[k] for k in same)]
            found.append(
                {
                    k: row[k] / other[k] if k.startswith("n =") else row[k]
                    for k in row
                    if k in same or "n =" in k
                }
            )
    return found


def real(size: Size, step: Step, folder: Path | None) -> dict[str, list[Row]]:
    rows: list[Row] = []
    for name in ("mnist", "fashion_mnist", "digits"):
        for X, y in _real_data(name, size.real, folder):
            statistics = MixtureStatistics.estimate(X, y)
            for phi in ("tanh", "swish", "relu"):
                step(f"{name} {phi}")
                model = DEQ(phi, SIGMA_A2).centred(statistics.tau0)
                for kernel, errors in relative_errors(model, X, statistics, FORMS).items():
                    rows.append({"data": name, "n": len(X), "φ": phi, "kernel": kernel, **errors})
    return {"errors": rows, "asymptotic over refined": [_gains(row) for row in rows]}


def _gains(row: Row) -> Row:
    return {k: v if k not in FORMS else row["asymptotic"] / v for k, v in row.items() if k != "asymptotic"}


def _real_data(name: str, n: int, folder: Path | None) -> Iterator[tuple[Array, Array]]:
    if folder is None and name != "digits":
        CONSOLE.print(f"{name} skipped: no data folder (NOTSODEEP_DATA or --data-dir).")
        return
    try:
        data = load(name, classes=(6, 8), n=None if name == "digits" else n, data_dir=folder)
    except InputError as reason:
        CONSOLE.print(f"{name} skipped: {reason}")
        return
    yield Preprocessing.fit(data.X, norm="mean").apply(data.X), data.y


def sphere(size: Size, step: Step, folder: Path | None) -> dict[str, list[Row]]:
    relu = activation("relu").scaled(np.sqrt(2.0))
    cases = [
        ("√2·ReLU DEQ", DEQ(relu, SIGMA_A2), "ck_preactivations"),
        ("√2·ReLU DEQ", DEQ(relu, SIGMA_A2), "ntk_preactivations"),
        ("softplus DEQ", DEQ("softplus", SIGMA_A2), "ck"),
        ("softplus DEQ", DEQ("softplus", SIGMA_A2), "ntk"),
        ("ReLU, sigmoid", Explicit(["relu", "sigmoid"]), "ck"),
        ("ReLU, sigmoid", Explicit(["relu", "sigmoid"]), "ntk"),
    ]
    rows = []
    for name, model, kernel in cases:
        row: Row = {"model": name, "kernel": kernel}
        for n in size.sphere:
            step(f"{name} {kernel} n = {n}")
            X = UnitSphere(int(1.2 * n)).sample(n, seed=0)
            exact = exact_kernel(model, X, kernel=kernel)
            row[f"‖K - K̄‖, n = {n}"] = distance(exact, sphere_equivalent(model, X, kernel))
        rows.append(row)
    return {"distances": rows}


def cost(size: Size, step: Step, folder: Path | None) -> dict[str, list[Row]]:
    large, small = (_relu_case(n, 400) for n in (size.cost, size.dense))
    step("dense eigenvalues")
    dense = equivalent(*small).to_dense()
    seconds = clock(lambda: linalg.eigvalsh(dense, check_finite=False))
    apart = float(np.abs(linalg.eigvalsh(dense) - equivalent(*small).eigvalsh()).max())
    step("structured eigenvalues")
    operator = equivalent(*large)
    taken = interleave({"eigvalsh": operator.eigvalsh}, 3)["eigvalsh"].median
    extrapolated = seconds * (size.cost / size.dense) ** 3
    eigenvalues = {
        "n": size.cost,
        "p": 400,
        "all eigenvalues, s": taken,
        f"dense at n = {size.dense}, s": seconds,
        "dense extrapolated, s": extrapolated,
        "speed-up": extrapolated / taken,
        "at least 50": extrapolated / taken >= 50,
        f"error at n = {size.dense}": apart,
        "peak memory / data": _peak_memory(operator.eigvalsh) / large[1].nbytes,
    }
    products = [_product(large, form, step) for form in ("asymptotic", "refined")]
    return {"eigenvalues": [eigenvalues], "products": products}


def _relu_case(n: int, p: int) -> tuple[DEQ, Array, MixtureStatistics]:
    source = GaussianMixture.paper(p)
    X, y = source.sample(n, seed=0)
    statistics = MixtureStatistics.of(source, X, y)
    return DEQ("relu", SIGMA_A2).centred(statistics.tau0), X, statistics


def _product(case: tuple[DEQ, Array, MixtureStatistics], form: str, step: Step) -> Row:
    """The operator times a vector, against X (Xᵀ v) with as many columns v as it has Gram terms."""
    step(f"product, {form}")
    X = case[1]
    seconds = clock(lambda: equivalent(*case, form=form))
    operator = equivalent(*case, form=form)
    width = max(len(term.scales) for term in operator.terms if hasattr(term, "scales"))
    block = np.random.default_rng(0).standard_normal((len(X), width))
    vector = block[:, 0].copy()
    needed = vector if width == 1 else block
    tasks = {"operator": lambda: operator @ vector, "needed": lambda: X @ (X.T @ needed)}
    taken = interleave(tasks, 15)
    ratio = taken["operator"].median / taken["needed"].median
    return {
        "form": form,
        "made in, s": seconds,
        "Gram terms": width,
        "product, ms": 1e3 * taken["operator"].median,
        "X (Xᵀ v), ms": 1e3 * taken["needed"].median,
        "ratio": ratio,
        "at most 3": ratio <= 3,
    }


def _peak_memory(task: Callable[[], Any]) -> int:
    tracemalloc.start()
    task()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


SECTIONS: dict[str, Callable[[Size, Step, Path | None], dict[str, list[Row]]]] = {
    "cost": cost,
    "sphere": sphere,
    "real": real,
    "classes": classes,
    "mixture": mixture,
}


# --- command line -----------------------------------------------------------------------------------------


def run(names: list[str], size: Size, folder: Path | None) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with Progress(console=CONSOLE, transient=True) as progress:
        for name in names:
            task = progress.add_task(name, total=None)
            provenance = Provenance()

            def step(text: str, task: Any = task, name: str = name) -> None:
                progress.update(task, description=f"{name}: {text}", advance=1)

            tables = SECTIONS[name](size, step, folder)
            results[name] = {"provenance": provenance.record(), "tables": tables}
            progress.remove_task(task)
    return results


def report(results: dict[str, Any]) -> str:
    lines = ["# Equivalents\n", "Made by `benchmarks/equivalents.py`; `--help` says what is measured.\n"]
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
    arguments = parser.parse_args()
    stored = arguments.out / "equivalents.json"
    earlier = (
        json.loads(stored.read_text(encoding="utf-8")) if stored.exists() and not arguments.quick else {}
    )
    results = run(arguments.only, QUICK if arguments.quick else FULL, arguments.data_dir)
    results = {name: {**earlier, **results}[name] for name in SECTIONS if name in {**earlier, **results}}
    CONSOLE.print(report(results))
    if not arguments.quick or arguments.out != RESULTS:
        write_json(stored, results)
        write_atomically(arguments.out / "equivalents.md", report(results))


if __name__ == "__main__":
    main()
