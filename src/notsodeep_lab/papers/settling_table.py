"""How often networks of finite width have an equilibrium: the table behind `Forecast.probability`.

    python -m notsodeep_lab.papers.settling_table src/notsodeep/forecasts/settling_table.json

For each activation, predicted rate and width, networks are drawn and solved from zero; counted are the samples whose
equilibrium the solver reaches. One thread takes about ten minutes.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from notsodeep.errors import ConvergenceError
from notsodeep.files import atomic_write
from notsodeep.gaussian.variance import contraction_rates
from notsodeep.models import DEQ

ACTIVATIONS = ("relu", "tanh", "gelu", "softplus")
RATES = (0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
# Networks that are drawn at each width.
NETWORKS = {64: 120, 128: 100, 256: 60, 512: 32, 1024: 14, 2048: 6}
# Variance of the injected input for samples of norm 1, and samples per network.
INJECTION, SAMPLES, DIMENSION = 0.2, 4, 16
# What counts as an equilibrium: residual, and evaluations per stage of the solver.
TOLERANCE, MAX_STEPS = 1e-4, 200


def gain_of_rate(name: str, rate: float) -> float | None:
    """σ_a² at which the predicted rate is `rate` for samples of norm 1; None if no variance has a fixed point there."""
    phi = DEQ(name, 0.5).activation

    def distance(sigma_a2: float) -> float:
        try:
            return float(contraction_rates(phi, sigma_a2, INJECTION).slowest) - rate
        except ConvergenceError:
            return np.inf

    gains = np.geomspace(0.01, 100.0, 60)
    distances = [distance(gain) for gain in gains]
    above = next((i for i, value in enumerate(distances) if value >= 0.0), None)
    if not above:
        return None
    low, high = float(gains[above - 1]), float(gains[above])
    while not np.isfinite(distance(high)) and high - low > 1e-9 * high:
        # The fixed point is lost within the bracket: bisect for an end that has one and is above the rate.
        middle = 0.5 * (low + high)
        low, high = (middle, high) if distance(middle) < 0.0 else (low, middle)
    return float(brentq(distance, low, high, xtol=1e-10)) if np.isfinite(distance(high)) else None


def settled(name: str, sigma_a2: float, width: int, networks: int) -> tuple[int, int]:
    """Number of samples whose equilibrium was found, and number of samples."""
    import torch

    from notsodeep.nets import DEQNet, SolverOptions

    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((SAMPLES, DIMENSION))).float()
    rows /= rows.norm(dim=1, keepdim=True)
    options = SolverOptions(tolerance=TOLERANCE, max_steps=MAX_STEPS)
    model, count = DEQ(name, sigma_a2, INJECTION), 0
    for seed in range(networks):
        net = DEQNet(
            model, DIMENSION, width, 1, seed=seed, solver=options, on_failure="ignore", train="readout"
        )
        with torch.no_grad():
            net.preactivations(rows)
        report = net.last_solve
        count += 0 if report is None else int((report.residuals <= TOLERANCE).sum())
    return count, SAMPLES * networks


def make_table() -> dict[str, Any]:
    """The whole table as plain values."""
    counts: dict[str, list[list[int | None]]] = {}
    for name in ACTIVATIONS:
        gains = [gain_of_rate(name, rate) for rate in RATES]
        counts[name] = [[None] * len(NETWORKS) for _ in RATES]
        for (i, gain), (j, (width, networks)) in product(enumerate(gains), enumerate(NETWORKS.items())):
            if gain is not None:
                counts[name][i][j] = settled(name, gain, width, networks)[0]
        print(name, [gain and round(gain, 4) for gain in gains], counts[name], flush=True)
    return {
        "tolerance": TOLERANCE, "samples_per_network": SAMPLES, "rates": list(RATES),
        "widths": list(NETWORKS), "networks": list(NETWORKS.values()), "settled": counts,
    }  # fmt: skip


def main() -> None:
    """Write the table to the file that is named on the command line."""
    with atomic_write(Path(sys.argv[1])) as path:
        path.write_text(json.dumps(make_table()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
