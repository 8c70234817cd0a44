"""How fast the error of injected networks falls with their layers, and what limits it: docs/derivations.md, section 6.

python benchmarks/injected_rates.py              the table (two minutes)
python benchmarks/injected_rates.py --publish    and into its marked place in docs/derivations.md

Kernels are compared where designs without data compare them, at several spreads of squared norms.  For each pair, and
for each sample with itself, the loop gain r follows from the DEQ's kernels; beside the networks stand the best
polynomials of (D.25) for these gains, with coefficients of any sign and with positive ones, as products of variances
are.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import ROOT, Row, filled, markdown_table, write_atomically
from injected import model_of
from rich.console import Console
from rich.progress import track
from scipy.optimize import nnls

from notsodeep.designs import InjectedFamily, Task, injected
from notsodeep.gaussian.moments import second_moment
from notsodeep.models import DEQ

CONSOLE = Console(highlight=False, width=170)
PAGE = ROOT / "docs" / "derivations.md"
MARKS = "<!-- rates of injected networks -->", "<!-- end of the rates -->"
# Squared norms, relative to τ0²: one, those of a design without data, and a wide spread.
SPREADS = {"1": (1.0,), "0.7–1.4": (0.7, 1.0, 1.4), "0.2–5": (0.2, 0.5, 1.0, 2.0, 5.0)}
CASES = (("relu", 0.2), ("relu", 0.5), ("relu", 0.8), ("tanh", 0.5), ("tanh", 0.8), ("erf", 0.8))
LAYERS = (1, 2, 3, 4)

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Pairs:
    """The DEQ at pairs and samples with themselves, linearised: F(Λ + δ) = u + F'Λ + F'δ."""

    inputs: Array
    covariance: Array
    gain: Array
    slope: Array
    offset: Array
    weight: Array

    @classmethod
    def of(cls, deq: DEQ) -> Pairs:
        target = injected.reference_target(deq, 1.0, "both")
        features, tangent = target.wanted
        inputs = np.concatenate([target.pairs.cross, target.pairs.squares])
        covariance = deq.sigma_a2 * features + deq.sigma_b2 * inputs
        # (3.8) solved for F'; at an inner product of zero both kernels of odd activations are zero.
        through = deq.sigma_a2 * (tangent - features)
        sound = np.abs(covariance) > 1e-9
        slope = through[sound] / (covariance[sound] + through[sound]) / deq.sigma_a2
        alone, step = len(target.pairs.squares), 1e-4
        variance = covariance[-alone:]
        sides = [np.asarray(second_moment(deq.activation, variance * (1.0 + move))) for move in (step, -step)]
        # A variance is passed on by dS/dq, not by F'.
        slope[-alone:] = (sides[0] - sides[1]) / (2.0 * step * variance)
        size = np.linalg.norm(np.sqrt(target.shares) * features)
        features, inputs, covariance = features[sound], inputs[sound], covariance[sound]
        weight = np.sqrt(target.shares[sound]) * slope / size
        return cls(inputs, covariance, deq.sigma_a2 * slope, slope, features - slope * covariance, weight)

    @property
    def rate(self) -> float:
        """1/ρ of (D.26) for the interval of the gains."""
        low, high = float(self.gain.min()), float(self.gain.max())
        z = (2.0 - low - high) / (high - low)
        return z - math.sqrt(z * z - 1.0)

    def best_polynomials(self, layers: int, *, positive: bool) -> float:
        """Distance of the conjugate kernel for the best c p(r) + u q(r) of (D.25)."""
        columns = [self.inputs * self.gain**power for power in range(layers)]
        columns += [self.offset * self.gain**power for power in range(layers - 1)]
        matrix, wanted = np.stack(columns, axis=1) * self.weight[:, None], self.covariance * self.weight
        found = nnls(matrix, wanted)[0] if positive else np.linalg.lstsq(matrix, wanted, rcond=None)[0]
        return float(np.linalg.norm(matrix @ found - wanted))


def row(name: str, sigma_a2: float, spread: str) -> Row:
    injected.NORMS = SPREADS[spread]
    deq = model_of(name, sigma_a2)
    pairs, only = Pairs.of(deq), injected.reference_target(deq, 1.0, "ck")

    def of_network(goal: str) -> list[float]:
        task = Task(deq, 1.0, goal, centre=False)
        return [InjectedFamily(layers).solve(task, thorough=False).residual for layers in LAYERS]

    def shown(values: list[float]) -> str:
        # A fit stops near 1e-7.
        return ", ".join("<1e-6" if value < 1e-6 else f"{value:.0e}" for value in values)

    network = of_network("ck")
    cut = [only.distance([injected.values_at(deq.unrolled(layers), only.pairs, "ck")]) for layers in LAYERS]
    return {
        "φ, σ_a², squared norms": f"{name} {sigma_a2}, {spread}",
        "gains $r$": f"{pairs.gain.min():.2f}–{pairs.gain.max():.2f}",
        "$1/\\rho$": f"{pairs.rate:.3f}",
        "polynomials": shown([pairs.best_polynomials(layers, positive=False) for layers in LAYERS]),
        "positive ones": shown([pairs.best_polynomials(layers, positive=True) for layers in LAYERS]),
        "injected, CK": shown(network),
        "a layer gains": "–" if network[-1] < 1e-6 else f"{(network[-1] / network[0]) ** (1 / 3):.2f}",
        "cut, CK": shown(cut),
        "injected, both": shown(of_network("both")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--publish", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    cases = [(name, sigma, spread) for name, sigma in CASES for spread in SPREADS]
    table = markdown_table([row(*case) for case in track(cases, "rates", console=CONSOLE)])
    CONSOLE.print(table)
    if options.publish:
        write_atomically(PAGE, filled(PAGE.read_text("utf-8"), *MARKS, table))


if __name__ == "__main__":
    main()
