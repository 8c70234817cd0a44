"""How networks of finite width differ from the wide limit: the table behind `nsd.forecast(model, X, width=…)`.

    python -m notsodeep_lab.papers.settling_table src/notsodeep/forecasts/settling_table.json

For each activation, predicted rate and width, networks are drawn and solved from zero; counted are the samples whose
equilibrium the solver reaches. For each size, Gaussian matrices are applied to a vector again and again; recorded is
the median logarithm of its growth. One thread takes about 15 minutes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from notsodeep.errors import ConvergenceError
from notsodeep.files import atomic_write
from notsodeep.gaussian.moments import contraction_rates
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions

ACTIVATIONS, RATES = ("relu", "tanh", "gelu", "softplus"), (0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
# Networks at each width, and matrices of each size.
NETWORKS = {64: 120, 128: 100, 256: 60, 512: 32, 1024: 14, 2048: 6}
MATRICES = {64: 4000, 256: 2000, 1024: 500}
# Numbers of products, divided by the root of the size.
SCALED_STEPS = np.arange(0.0, 10.25, 0.25)
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

    low, high = 0.01, 100.0
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if distance(middle) < 0.0 else (low, middle)
    return low if np.isfinite(distance(high)) else None


def settled(name: str, sigma_a2: float, width: int) -> int:
    """Number of samples whose equilibrium was found."""
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((SAMPLES, DIMENSION))).float()
    rows /= rows.norm(dim=1, keepdim=True)
    options = SolverOptions(tolerance=TOLERANCE, max_steps=MAX_STEPS)
    model, count = DEQ(name, sigma_a2, INJECTION), 0
    for seed in range(NETWORKS[width]):
        net = DEQNet(
            model, DIMENSION, width, 1, seed=seed, solver=options, on_failure="ignore", train="readout"
        )
        with torch.no_grad():
            net.preactivations(rows)
        report = net.last_solve
        count += 0 if report is None else int((report.residuals <= TOLERANCE).sum())
    return count


def growth(size: int) -> list[float]:
    """Median of log ‖Gᵏv‖/‖v‖ at the scaled steps k/√size, G with entries of variance 1/size."""
    generator, steps = torch.Generator().manual_seed(size), np.arange(int(10 * np.sqrt(size)) + 1)
    logs = np.zeros((MATRICES[size], len(steps)))
    for log in logs:
        G = torch.randn(size, size, generator=generator) / np.sqrt(size)
        v = torch.randn(size, generator=generator)
        v /= v.norm()
        for k in steps[1:]:
            v = G @ v
            log[k] = log[k - 1] + float(v.norm().log())
            v /= v.norm()
    return [
        round(each, 3) for each in np.interp(SCALED_STEPS * np.sqrt(size), steps, np.median(logs, axis=0))
    ]


def make_table() -> dict[str, Any]:
    """The whole table as plain values."""
    gains = {name: [gain_of_rate(name, rate) for rate in RATES] for name in ACTIVATIONS}
    counts = {
        name: [
            [None if gain is None else settled(name, gain, width) for width in NETWORKS]
            for gain in gains[name]
        ]
        for name in ACTIVATIONS
    }
    return {
        "tolerance": TOLERANCE, "samples_per_network": SAMPLES, "rates": list(RATES),
        "widths": list(NETWORKS), "networks": list(NETWORKS.values()), "settled": counts,
        "growth": {
            "sizes": list(MATRICES), "draws": list(MATRICES.values()), "scaled_steps": SCALED_STEPS.tolist(),
            "log_growth": [growth(size) for size in MATRICES],
        },
    }  # fmt: skip


if __name__ == "__main__":
    with atomic_write(Path(sys.argv[1])) as path:
        path.write_text(json.dumps(make_table()) + "\n", encoding="utf-8")
