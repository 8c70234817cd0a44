"""Training of wide DEQs: the population Gram matrix, what certificates say, and how gradient descent behaves.

  python benchmarks/convergence.py                      everything (about 15 minutes on two cores)
  python benchmarks/convergence.py --quick              everything small, to see that it runs; writes nothing
  python benchmarks/convergence.py --only gram ceiling  some sections; the others keep their earlier results

The paper's Figure 1 is an experiment: notsodeep reproduce aistats-1 --size full

Sections
  gram           K against the recursion by hand and the conjugate kernel; depth errors beside their bounds
  concentration  ||ZᵀZ/m - K|| for widths up to 8000: fitted exponent with its 95 % interval, split in depth and width
  ceiling        inequality (9) of the paper at growing width: as assumed, and with smaller readouts
  certified      how large labels may be for a certificate, by n and width; memory
  trained        a certified network trained: every conclusion of the theorem at every step
  practical      λ_min(H) beside λ_0, the certified step beside the one that works

Results: convergence.json and convergence.md in --out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import (
    RESULTS,
    Provenance,
    Row,
    markdown_provenance,
    markdown_table,
    memory_bytes,
    write_atomically,
    write_json,
)
from rich.console import Console
from rich.progress import Progress

from notsodeep.convergence import (
    Certificate,
    DescentSettings,
    PaperNetwork,
    certificate,
    concentration,
    gradient_descent,
    population_gram,
)
from notsodeep.convergence.certify import measure
from notsodeep.convergence.condition import Start, best_delta, smallest_ratio
from notsodeep.data import UnitSphere
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ

CONSOLE = Console(highlight=False, width=150)

Array = np.ndarray[Any, np.dtype[np.float64]]
Step = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    widths: tuple[int, ...]
    seeds: int
    certified_widths: tuple[int, ...]
    trained_steps: int


FULL = Size((250, 500, 1000, 2000, 4000, 8000), 5, (500, 1000, 2000, 4000, 8000), 3000)
QUICK = Size((100, 200, 400), 3, (200, 400), 20)


def sphere(n: int, d: int, seed: int = 0) -> Array:
    return np.sqrt(d) * UnitSphere(d).sample(n, seed=seed)


# --- sections ---------------------------------------------------------------------------------------------------------


def arc_cosine(x: Array) -> Array:
    x = np.clip(x, -1.0, 1.0)
    return np.asarray((np.sqrt(1.0 - x**2) + (np.pi - np.arccos(x)) * x) / np.pi)


def recursion(X: Array, sigma_w2: float, depth: int) -> Array:
    """Definition 1 of the paper, layer by layer."""
    cosines = X @ X.T / X.shape[1]
    np.fill_diagonal(cosines, 1.0)
    K = np.zeros_like(cosines)
    for _ in range(depth):
        inner, outer = sigma_w2 * K + cosines, sigma_w2 * np.diag(K) + 1.0
        scale = np.sqrt(np.outer(outer, outer))
        K = scale * arc_cosine(inner / scale)
    return K


def gram(size: Size, step: Step) -> list[Row]:
    X = sphere(200, 50)
    rows = []
    for sigma_w2 in (0.01, 0.05, 0.08, 0.12):
        K = population_gram(X, sigma_w2)
        other = conjugate_kernel(DEQ("relu", 2.0 * sigma_w2, 2.0), X / np.sqrt(50.0))
        row: Row = {
            "σ_w²": sigma_w2,
            "from the recursion": float(np.abs(K.matrix - recursion(X, sigma_w2, 60)).max()),
            "from the conjugate kernel": float(np.abs(K.matrix - other).max()),
            "λ_*": K.least.estimate,
            "error of λ_* below": K.least.error,
        }
        for depth in (1, 2, 4, 8):
            apart = float(np.linalg.norm(K.matrix - population_gram(X, sigma_w2, depth).matrix))
            row[f"depth {depth}: error"] = apart
            bound = len(X) * sigma_w2**depth / (1.0 - sigma_w2)
            # Below that a difference of two kernels is rounding.
            row[f"depth {depth}: share of the bound"] = apart / bound if bound > 1e-11 else None
        rows.append(row)
        step(f"K at σ_w² = {sigma_w2}")
    return rows


def concentration_rows(size: Size, step: Step) -> list[Row]:
    X = sphere(20, 30)
    rows = []
    for sigma_w2 in (0.02, 0.08):
        found = concentration(X, size.widths, sigma_w2, seeds=range(size.seeds))
        for norm in ("frobenius", "operator"):
            fit = found.exponent(norm)
            errors = {
                width: float(np.mean([getattr(d, norm) for d in found.deviations if d.width == width]))
                for width in size.widths
            }
            row: Row = {"σ_w²": sigma_w2, "norm": norm, "exponent of m": fit.value}
            row["95 %"] = f"[{fit.low:.3f}, {fit.high:.3f}]"
            row |= {f"m = {width}": error for width, error in errors.items()}
            row |= {
                "tied, per layer": found.tied_rate(),
                "proved": found.proved_tied_rate,
                "untied, per layer": found.untied_rate(),
                "proved (8.25)": found.proved_untied_rate,
            }
            row["draws"] = [[d.width, d.seed, d.frobenius, d.operator, d.least] for d in found.deviations]
            row["splits"] = [
                [s.depth, s.tied, s.width, s.untied, s.tied_bound, s.untied_bound]
                for s in found.deviations[-1].splits
            ]
            rows.append(row)
        step(f"concentration at σ_w² = {sigma_w2}")
    return rows


def ceiling(size: Size, step: Step) -> list[Row]:
    """(8.19), left over right at the best δ for it (δ → 0), beside the ceiling (8.29) and the limit (8.24)."""
    X, y = sphere(4, 50), np.array([1.0, -1.0, 1.0, -1.0])
    rows = []
    for scale in (1.0, 0.3, 0.1):
        row: Row = {"readout scale": scale}
        # The widest for the paper's initialisation alone: verifying a norm costs m³.
        for width in size.widths if scale == 1.0 else size.widths[:-2]:
            found = certificate(X, y, width, 0.01, readout_scale=scale, delta=1e-6)
            row[f"m = {width}"] = found.inequalities[2].ratio
            step(f"ceiling at m = {width}")
        row["m → ∞"] = found.remedy.limit
        row["no width above (8.29)"] = 1.0 / (4.0 * len(X) * found.measured.readout.lower**2)
        rows.append(row)
    return rows


def largest_labels(start: Start) -> float:
    """The largest ||y|| for which all inequalities hold, with a readout that starts at zero: then r(0) = -y."""
    low, high = 1e-12, 1e12
    while high > low * 1.0001:
        middle = float(np.sqrt(low * high))
        fresh = Start(start.least, start.recurrent, start.inputs, start.readout, start.data, middle)
        low, high = (middle, high) if smallest_ratio(fresh, best_delta(fresh)) > 1.0 else (low, middle)
    return low


def certified(size: Size, step: Step) -> list[Row]:
    rows = []
    for n in (1, 2, 4, 8):
        X = sphere(n, 50)
        gram_ = population_gram(X, 0.0025)
        row: Row = {"n": n, "λ_*": gram_.least.estimate}
        for width in size.certified_widths if n == 2 else size.certified_widths[:-2]:
            network = PaperNetwork.draw(width, 50, 0.0025, seed=0, readout_scale=0.0)
            start = measure(network, X, np.ones(n)).start()
            row[f"labels up to, m = {width}"] = largest_labels(start) / np.sqrt(n)
            step(f"certified, n = {n}, m = {width}")
        rows.append(row)
    peak = memory_bytes("VmHWM")
    rows[-1]["peak memory, GB"] = None if peak is None else round(peak / 1e9, 2)
    return rows


def certified_case(width: int = 500) -> tuple[Array, Array, Certificate]:
    X, y = sphere(3, 50), np.array([0.01, -0.01, 0.01])
    return X, y, certificate(X, y, width, 0.0025, readout_scale=0.001)


def trained(size: Size, step: Step) -> list[Row]:
    X, y, proof = certified_case()
    found = gradient_descent(
        X, y, 500, 0.0025, DescentSettings(size.trained_steps, lr=proof.step, every=1), readout_scale=0.001,
        progress=lambda done, total, news: step(f"trained: step {done}, {news()}") if done % 100 == 0 else None,
    )  # fmt: skip
    least = proof.measured.least.lower
    return [
        {
            "certified": proof.certified,
            **{f"({i.number})": i.ratio for i in proof.inequalities},
            "δ": proof.delta,
            "η": proof.step,
            "steps": len(found.losses) - 1,
            "largest ||W||₂": max(row.recurrent_norm for row in found.rows),
            "least λ_τ/λ_0": min(row.least for row in found.rows) / least,
            "least PL ratio": min(row.pl_ratio for row in found.rows),
            "largest loss/bound": max(row.loss / (proof.rate**row.step * found.losses[0]) for row in found.rows[1:]),
            "largest way/δ": max(
                max(row.moved_recurrent, row.moved_inputs, row.moved_readout) for row in found.rows
            ) / proof.delta,
            "loss, last/first": float(found.losses[-1] / found.losses[0]),
            "bound, last/first": proof.rate ** (len(found.losses) - 1),
        }
    ]  # fmt: skip


def practical(size: Size, step: Step) -> list[Row]:
    rows = []
    cases = [("certified case", *certified_case()[:2], 500, 0.0025, 0.001)]
    X = sphere(100, 50)
    y = np.random.default_rng(0).standard_normal(100)
    cases += [(f"sphere, n = 100, m = {m}", X, y, m, 0.08, 1.0) for m in size.widths if m <= 1000]
    for name, samples, labels, width, sigma_w2, scale in cases:
        found = certificate(samples, labels, width, sigma_w2, readout_scale=scale)
        tangent = found.tangent
        descent = gradient_descent(
            samples, labels, width, sigma_w2, DescentSettings(50, every=50), readout_scale=scale
        )
        rows.append(
            {
                "case": name,
                "λ_0": found.measured.least.estimate,
                "λ_min(H)": tangent.least,
                "given away": tangent.gain_over_bound if tangent.features > 1e-9 * tangent.largest else None,
                "certified step": found.step or None,
                "paper's step (8.20)": found.printed_step or None,
                "1/λ_max(H)": tangent.step,
                "loss, step 50/0": float(descent.losses[-1] / descent.losses[0]),
                "halvings": descent.halvings,
                "||W||₂ then": descent.rows[-1].recurrent_norm,
            }
        )
        step(f"practical: {name}")
    return rows


SECTIONS: dict[str, Callable[[Size, Step], list[Row]]] = {
    "gram": gram,
    "concentration": concentration_rows,
    "ceiling": ceiling,
    "certified": certified,
    "trained": trained,
    "practical": practical,
}


# --- command line -----------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    text = "# Training of wide DEQs\n\nWritten by `python benchmarks/convergence.py`; its text says what is measured.\n"
    for name, part in results.items():
        text += f"\n## {name}\n\n{markdown_table(part['rows'])}\n{markdown_provenance(part['provenance'])}"
    return text


def run(names: list[str], size: Size) -> dict[str, Any]:
    results = {}
    with Progress(console=CONSOLE, transient=True) as progress:
        task = progress.add_task("", total=None)

        def step(text: str) -> None:
            progress.update(task, advance=1, description=text)

        for name in names:
            provenance = Provenance()
            rows = SECTIONS[name](size, step)
            results[name] = {"provenance": provenance.record(), "rows": rows}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see that it runs; nothing is written"
    )
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--threads", type=int, default=None, help="of torch; all cores if not given")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    size = QUICK if arguments.quick else FULL
    for name in arguments.only:
        results = run([name], size)
        CONSOLE.print(report(results), markup=False)
        if not arguments.quick:
            keep(arguments.out, results)


def keep(out: Path, fresh: dict[str, Any]) -> None:
    """Beside the earlier results of the other sections."""
    stored = out / "convergence.json"
    earlier = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    found = {**earlier, **fresh}
    whole = {name: found[name] for name in SECTIONS if name in found}
    write_json(stored, whole)
    write_atomically(out / "convergence.md", report(whole))


if __name__ == "__main__":
    main()
