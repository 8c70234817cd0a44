"""Exact kernels of a few pairs, by a path that shares nothing with the compiled solver.

The compiled solver tabulates and batches; here each pair is one scalar equation (docs/theory.md, section 3)
whose every step is a two-dimensional Gaussian expectation from `notsodeep.gaussian.bivariate`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.gaussian.bivariate import dual

Array = np.ndarray
CONVERGED = 1e-14


def kernels(model: Any, x: Array) -> tuple[Array, Array]:
    """(CK of the features, NTK of the network) of a DEQ without bias, for the few rows of x."""
    phi, sigma_a2, sigma_b2 = model.activation, model.sigma_a2, model.sigma_b2
    gram = x @ x.T
    q = variances(phi, np.diag(gram), sigma_a2, sigma_b2)
    upper = np.triu_indices(len(x))
    left, right = q[upper[0]], q[upper[1]]
    cross = covariances(phi, left, right, gram[upper], sigma_a2, sigma_b2)
    same = upper[0] == upper[1]
    cross = np.where(same, left, cross)
    # F' has a root singularity at ρ = 1, where rounding in c would cost half the digits; dual takes a
    # covariance beyond the bound as the bound, so that 2q says "exactly 1".
    features, slope = dual(phi, left, right, np.where(same, 2.0 * left, cross))
    tangent = features + slope * cross / (1.0 - sigma_a2 * slope)
    return symmetric(features, upper), symmetric(tangent, upper)


def variances(phi: Any, norms: Array, sigma_a2: float, sigma_b2: float) -> Array:
    """q = σ_a² F(q, q, q) + σ_b² ||x||², by plain iteration."""
    q = sigma_b2 * norms
    for _ in range(1000):
        new = sigma_a2 * dual(phi, q, q, q)[0] + sigma_b2 * norms
        if np.all(np.abs(new - q) <= CONVERGED * new):
            return np.asarray(new)
        q = new
    raise RuntimeError("the reference variances did not converge: this activation needs a smaller sigma_a2")


def covariances(phi: Any, q1: Array, q2: Array, c: Array, sigma_a2: float, sigma_b2: float) -> Array:
    """Λ = σ_a² F(q1, q2, Λ) + σ_b² c, by Newton's method from σ_b² c; the residual, not the step, ends it."""
    value = sigma_b2 * c
    bound = np.sqrt(q1 * q2)
    for _ in range(50):
        expectation, slope = dual(phi, q1, q2, value)
        residual = value - sigma_a2 * expectation - sigma_b2 * c
        if np.all(np.abs(residual) <= CONVERGED * bound):
            return value
        value = np.clip(value - residual / (1.0 - sigma_a2 * slope), -bound, bound)
    raise RuntimeError("the reference covariances did not converge: this activation needs a smaller sigma_a2")


def nearly_parallel_error(name: str, parameters: Any, model: Any, rows: Array, found: Array) -> float:
    """Relative error of the NTK entry `found` (2, 2) of two nearly parallel rows, for a piecewise-linear activation.

    Its slope F' falls like the angle of the rows, which their inner product in float64 does not know: the oracle of the
    tests works with 34 digits from the rows on.
    """
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    oracles = importlib.import_module("oracles")
    if name == "piecewise_linear":
        phi = oracles.piecewise(name, **parameters)
    else:
        phi = next(each for each in oracles.ALL if each.name == name and each.parameters == parameters)
    variances = model.sigma_b2, model.bias2
    exact = oracles.mp_pair(phi, model.sigma_a2, variances, rows).network
    return float(abs(found[0, 1] - exact) / np.sqrt(found[0, 0] * found[1, 1]))


def symmetric(values: Array, upper: tuple[Array, Array]) -> Array:
    n = int(upper[0].max()) + 1
    matrix = np.zeros((n, n))
    matrix[upper] = values
    return matrix + np.triu(matrix, 1).T


def largest_error(found: Array, truth: Array) -> float:
    """max |found - truth| / √(K_ii K_jj): what an entry can be trusted to, on the scale of its rows."""
    scale = np.sqrt(np.abs(np.diag(truth)))
    return float(np.max(np.abs(found - truth) / np.outer(scale, scale)))
