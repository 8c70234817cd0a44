"""Misprints in the formulas of tangent kernels, each with the number that shows it: docs/errata.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from notsodeep.gaussian import activation
from notsodeep.kernels import tangent_kernel
from notsodeep.models import DEQ
from notsodeep_lab.papers.errata_formulas import SIGMA_A2, Array, Size, Tables, scalars_by_differences
from notsodeep_lab.papers.experiment import Row

NORMALISED_RELU = activation("relu").scaled(np.sqrt(2.0))


def arc_cosine(x: float) -> tuple[float, float]:
    """f and f' of (8.1)."""
    slope = (np.pi - np.arccos(x)) / np.pi
    return np.sqrt(1.0 - x**2) / np.pi + slope * x, slope


def sphere_kernel(c: float, sigma_a2: float) -> float:
    """Λ = g(c), the root of (8.2)."""
    return float(
        brentq(lambda x: x - sigma_a2 * arc_cosine(x)[0] - (1.0 - sigma_a2) * c, -1.0, 1.0, xtol=1e-15)
    )


def hld_slopes(sigma_a2: float) -> tuple[float, float]:
    """k'(0) as printed, (1-σ_a²) h'/(σ_a² f' - 1), and by (8.4)."""
    at_zero = sphere_kernel(0.0, sigma_a2)
    slope = arc_cosine(at_zero)[1]
    curvature = 1.0 / (np.pi * np.sqrt(1.0 - at_zero**2))
    remaining = 1.0 - sigma_a2 * slope
    of_h = 1.0 / remaining + at_zero * sigma_a2 * curvature / remaining**2
    return (1.0 - sigma_a2) * of_h / (sigma_a2 * slope - 1.0), (1.0 - sigma_a2) * of_h / remaining


def hld_slope(size: Size) -> Tables:
    rows = []
    for sigma_a2 in (0.1, 0.2, 0.5):
        printed, correct = hld_slopes(sigma_a2)
        model = DEQ(NORMALISED_RELU, sigma_a2)
        exact = scalars_by_differences(model, 1.0, "ntk_preactivations")["linear"]
        rows.append({"σ_a²": sigma_a2, "printed": printed, "right": correct, "of the exact kernel": exact})
    return [rows]


def double_sum(c: float, sigma_a2: float, depth: int, *, last_factor: bool) -> float:
    """Σ_{h=1}^{l+1} G^(h-1) Π_{h'=h}^{l+1} Ġ^(h') on the sphere, with or without the last factor Ġ^(l+1)."""
    kernel, total = c, 0.0
    for layer in range(1, depth + 2):
        value, slope = arc_cosine(kernel)
        factor = 1.0 if layer == depth + 1 and not last_factor else sigma_a2 * slope
        total = (total + kernel) * factor
        kernel = sigma_a2 * value + (1.0 - sigma_a2) * c
    return total


def tangent_sum(size: Size) -> Tables:
    rows = []
    for c in (-0.5, 0.0, 0.5):
        pair = np.array([[1.0, 0.0], [c, np.sqrt(1.0 - c**2)]])
        exact = tangent_kernel(DEQ(NORMALISED_RELU, SIGMA_A2), pair, of="preactivations")[0, 1]
        sums = [double_sum(c, SIGMA_A2, 60, last_factor=last) for last in (True, False)]
        rows.append({"x_i·x_j": c, "printed": sums[0], "without Ġ^(l+1)": sums[1], "Π (3.10)": float(exact)})
    return [rows]


def empirical_tangent(model: DEQ, X: Array, width: int, seed: int) -> Array:
    """∇f·∇f' over all weights of one random network (1.1), (1.2)."""
    rng = np.random.default_rng(seed)
    recurrent = np.sqrt(model.sigma_a2 / width) * rng.standard_normal((width, width))
    drive = np.sqrt(model.sigma_b2) * rng.standard_normal((width, X.shape[1])) @ X.T
    readout, h = rng.standard_normal(width), drive
    for _ in range(60):
        h = recurrent @ model.activation(h) + drive
    z, slopes = model.activation(h) / np.sqrt(width), model.activation.derivative(h)
    adjoint = np.empty_like(h)
    for i, slope in enumerate(slopes.T):
        adjoint[:, i] = slope * np.linalg.solve(np.eye(width) - recurrent.T * slope, readout)
    features = z.T @ z
    inner = model.sigma_a2 * features + model.sigma_b2 * X @ X.T
    tangent: Array = features + (adjoint.T @ adjoint / width) * inner
    return tangent


def tangent_reading(size: Size) -> Tables:
    """Find which of the three kernels is the NTK of the network, by the distance to random networks."""
    X = np.random.default_rng(0).standard_normal((6, 4)) / 2.0
    width, readings = size.widths[min(1, len(size.widths) - 1)], {"network": "Θ (3.8)", "paper": "K (3.9)"}
    readings["preactivations"] = "Π (3.10)"
    rows: list[Row] = [{"kernel": label} for label in readings.values()]
    for name in ("tanh", "relu"):
        model = DEQ(name, SIGMA_A2)
        measured = np.mean([empirical_tangent(model, X, width, seed) for seed in range(8)], axis=0)
        for row, of in zip(rows, readings, strict=True):
            apart = np.linalg.norm(tangent_kernel(model, X, of=of) - measured) / np.linalg.norm(measured)
            row[f"distance to 8 networks of width {width}, {name}"] = float(apart)
    return [rows]


MEASURES: dict[str, Callable[[Size], Tables]] = {
    "tangent-sum": tangent_sum,
    "tangent-reading": tangent_reading,
    "hld-slope": hld_slope,
}
