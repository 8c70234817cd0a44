"""Which DEQs have an exact explicit twin, in which family, and how close the exact kernels are.

  python benchmarks/designs.py                    everything (about 20 minutes on two cores)
  python benchmarks/designs.py --quick            everything small, to see that it runs; writes no documentation
  python benchmarks/designs.py --only table       some sections; the others keep their earlier results

Sections
  table    13 activations × σ_a² × τ0 × CK and NTK, without injection: family, residual, drift, seconds
  mixture  ||G - Σ||/||G|| on two classes with ||μ|| = 1, C_2 = (1 + 4/√p) I, p = 0.8 n: designed and undesigned

Results: designs.json in --out, and the tables of docs/designs.md between its markers.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, Provenance, Row, write_atomically, write_json
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from notsodeep.data import GaussianMixture, MixtureStatistics
from notsodeep.designs import design
from notsodeep.equivalents.error import operator_norm
from notsodeep.errors import ConvergenceError
from notsodeep.kernels import conjugate_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit

CONSOLE = Console(highlight=False, width=130)
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "designs.md"
ODD = ("tanh", "erf", "arctan", "sigmoid", "softsign", "sin")
ACTIVATIONS = ("relu", "leaky_relu", "swish", "gelu", "elu", "softplus", "cos", *ODD)
VARIANCES = (0.05, 0.1, 0.2, 0.5, 0.8)
NORMS = (0.5, 1.0, 2.0)
KERNELS = {"ck": conjugate_kernel, "ntk": tangent_kernel}
SIGMA_A2 = 0.2

Array = np.ndarray[Any, np.dtype[np.float64]]
Step = Callable[[str], None]


# --- sections -----------------------------------------------------------------------------------------------------


def table(quick: bool, step: Step) -> list[Row]:
    variances, norms = ((0.2,), (1.0,)) if quick else (VARIANCES, NORMS)
    # What is compiled or imported on first use is not the cost of a design.
    design(DEQ("swish", 0.3), 1.0, "ntk")
    rows = []
    for kernel in KERNELS:
        for name in ACTIVATIONS:
            for sigma_a2 in variances:
                rows += [_table_row(name, sigma_a2, tau0, kernel) for tau0 in norms]
            step(f"{kernel} of {name}")
    return rows


def _table_row(name: str, sigma_a2: float, tau0: float, kernel: str) -> Row:
    row: Row = {"activation": name, "sigma_a2": sigma_a2, "tau0": tau0, "kernel": kernel}
    start = time.process_time()
    try:
        found = design(DEQ(name, sigma_a2), tau0, kernel, "papers")
    except ConvergenceError as error:
        return {**row, "family": None, "verdict": str(error)}
    seconds = time.process_time() - start
    return {
        **row,
        "family": found.family,
        "exact": found.exact,
        "residual": found.residual,
        "drift": found.drift,
        "seconds": seconds,
        "verdict": found.explain(),
    }


def mixture(quick: bool, step: Step) -> list[Row]:
    rows = []
    for n in (200,) if quick else (500, 1000, 2000):
        X, tau0 = _mixture(n)
        for name in ACTIVATIONS:
            rows += [{"n": n, **_distances(name, kernel, X, tau0)} for kernel in KERNELS]
            step(f"mixture, n = {n}, {name}")
    return rows


def _mixture(n: int) -> tuple[Array, float]:
    p = int(0.8 * n)
    means = np.zeros((2, p))
    means[:, 0] = (1.0, -1.0)
    gmm = GaussianMixture(means, [1.0, 1.0 + 4.0 / math.sqrt(p)], [0.5, 0.5])
    X, y = gmm.sample(n, seed=0)
    return X, MixtureStatistics.of(gmm, X, y).tau0


def _distances(name: str, kernel: str, X: Array, tau0: float) -> Row:
    deq = DEQ(name, SIGMA_A2).centred(tau0)
    found = design(deq, tau0, kernel)
    exact = KERNELS[kernel]
    wanted = exact(deq, X)
    return {
        "activation": name,
        "kernel": kernel,
        "family": found.family,
        "designed": _distance(wanted, exact(found.network, X)),
        "undesigned": _distance(wanted, exact(Explicit([name]).centred(tau0), X)),
    }


def _distance(wanted: Array, found: Array) -> float:
    """||wanted - found||₂/||wanted||₂."""
    return operator_norm(wanted - found) / operator_norm(wanted)


SECTIONS: dict[str, Callable[[bool, Step], list[Row]]] = {
    "table": table,
    "mixture": mixture,
}
STEPS = {"table": 26, "mixture": 39}


# --- tables -------------------------------------------------------------------------------------------------------


def _families(rows: list[Row]) -> list[Row]:
    """One row for each activation and kernel: the family at each σ_a² and τ0."""
    lines = []
    for kernel in KERNELS:
        for name in ACTIVATIONS:
            here = [row for row in rows if (row["kernel"], row["activation"]) == (kernel, name)]
            line: Row = {"kernel": kernel.upper(), "activation": name}
            for sigma_a2 in sorted({row["sigma_a2"] for row in here}):
                line[f"σ_a² = {sigma_a2}"] = _cell([row for row in here if row["sigma_a2"] == sigma_a2])
            done = [row for row in here if row["family"]]
            line["worst residual"] = f"{max(row['residual'] for row in done):.0e}"
            line["worst drift"] = f"{max(row['drift'] for row in done):.3f}"
            lines.append(line)
    return lines


def _cell(rows: list[Row]) -> str:
    """The families over τ0, once where they agree; what is not exact shows its residual."""
    cells = []
    for row in rows:
        if row["family"] is None:
            cells.append("no fixed point")
        else:
            name = row["family"].replace(" × ", "×")
            cells.append(name if row["exact"] else f"{name} ({row['residual']:.0e} off)")
    return cells[0] if len(set(cells)) == 1 else " / ".join(cells)


def _mixture_table(rows: list[Row]) -> list[Row]:
    lines = []
    for kernel in KERNELS:
        for name in ACTIVATIONS:
            here = [row for row in rows if (row["kernel"], row["activation"]) == (kernel, name)]
            line: Row = {"kernel": kernel.upper(), "activation": name, "family": here[-1]["family"]}
            for row in here:
                line[f"n = {row['n']}"] = f"{row['designed']:.1e} ({row['undesigned']:.1e})"
            lines.append(line)
    return lines


TABLES: dict[str, Callable[[list[Row]], list[Row]]] = {
    "table": _families,
    "mixture": _mixture_table,
}


def markdown(rows: list[Row]) -> str:
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(row.get(head, "")) for head in heads) + " |" for row in rows]
    return "\n".join(lines)


def show(title: str, rows: list[Row]) -> None:
    shown = Table(*rows[0], title=title)
    for row in rows:
        shown.add_row(*(str(value) for value in row.values()))
    CONSOLE.print(shown)


def summary(rows: list[Row]) -> str:
    """One sentence for each kernel: how many are exact, and how long the slowest took."""
    parts = []
    for kernel in KERNELS:
        here = [row for row in rows if row["kernel"] == kernel and row["family"]]
        exact = sum(row["exact"] for row in here)
        slowest = max(row["seconds"] for row in here)
        parts.append(
            f"{kernel.upper()}: {exact} of {len(here)} exact, slowest {slowest:.2f} s of processor time"
        )
    return "; ".join(parts) + "."


def write_document(results: dict[str, list[Row]]) -> None:
    """Put the tables between the markers of docs/designs.md; the prose stays."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, rows in results.items():
        body = markdown(TABLES[name](rows))
        if name == "table":
            body = f"{summary(rows)}\n\n{body}"
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text = pattern.sub(lambda match, body=body: f"{match[1]}\n{body}\n\n{match[2]}", text)
    write_atomically(DOCUMENT, text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, no documentation")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    provenance = Provenance()
    path = options.out / ("designs-quick.json" if options.quick else "designs.json")
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=CONSOLE) as progress:
        task = progress.add_task("designs", total=sum(STEPS[name] for name in options.only))
        for name in options.only:
            results[name] = SECTIONS[name](
                options.quick, lambda text: progress.update(task, advance=1, description=text)
            )
            write_json(path, {"provenance": provenance.record(), "results": results})
    for name in options.only:
        show(name, TABLES[name](results[name]))
    if not options.quick:
        write_document({name: results[name] for name in SECTIONS if name in results})


if __name__ == "__main__":
    main()
