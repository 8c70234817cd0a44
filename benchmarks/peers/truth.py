"""Reference kernels of a few rows at infinite depth.

relu and erf: the closed forms and both fixed points in mpmath, 30 digits, from inner products taken exactly; nothing is
shared with any contestant. tanh has no closed form: the NumPy recursion with a rule that is exact to rounding (121 ×
121 nodes or more where the contestant has 25 × 25), 30 layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import acos, asin, fdot, mp, mpf, pi, sqrt
from recursion import tanh_dual, unrolled_kernels

Array = np.ndarray
DIGITS = 30
LAYERS = 30  # 0.2^30 is nothing


def kernels(x: Array, activation: str, sigma_a2: float) -> tuple[Array, Array]:
    """(CK of the features, NTK of the network) of a DEQ with sigma_b2 = 1 - sigma_a2."""
    if activation == "tanh":
        sigma_b2 = 1 - sigma_a2
        # The rule errs by exp(-2π d/step) times some powers of 1/step, d = π/(2√q) the distance of the poles.
        largest = sigma_b2 * float(np.max(np.sum(x**2, axis=1))) + sigma_a2
        step = min(0.15, np.pi**2 / np.sqrt(largest) / 55)
        dual = functools.partial(tanh_dual, step=step)
        return unrolled_kernels(x, dual, depth=LAYERS, sigma_a2=sigma_a2, sigma_b2=sigma_b2)
    with mp.workdps(DIGITS):
        return _solved(x, DUALS[activation], mpf(sigma_a2))


def _solved(x: Array, dual: Callable[..., tuple[Any, Any]], sigma_a2: Any) -> tuple[Array, Array]:
    rows = [[mpf(value) for value in row] for row in x.tolist()]
    injected = [
        [(1 - sigma_a2) * fdot(a, b) for b in rows[: number + 1]] for number, a in enumerate(rows)
    ]  # the lower half
    q = [_fixed(lambda v: dual(v, v, v), injected[i][i], sigma_a2) for i in range(len(rows))]
    ck, ntk = np.zeros((len(x), len(x))), np.zeros((len(x), len(x)))
    for i, row in enumerate(injected):
        for j, given in enumerate(row):
            of_pair = functools.partial(dual, q[i], q[j])
            preactivation = q[i] if i == j else _fixed(of_pair, given, sigma_a2)
            feature, slope = of_pair(preactivation)
            ck[i, j] = ck[j, i] = feature
            ntk[i, j] = ntk[j, i] = feature + slope * preactivation / (1 - sigma_a2 * slope)
    return ck, ntk


def _fixed(expectations: Callable[[Any], tuple[Any, Any]], injected: Any, sigma_a2: Any) -> Any:
    """v = σ_a² F(v) + injected, iterated until nothing moves."""
    value = injected
    for _ in range(1000):
        value, before = sigma_a2 * expectations(value)[0] + injected, value
        if abs(value - before) <= mpf(10) ** (3 - DIGITS) * (abs(value) + mpf(10) ** -DIGITS):
            return value
    raise RuntimeError("the reference did not converge: sigma_a2 is too large for it")


def _relu(q1: Any, q2: Any, c: Any) -> tuple[Any, Any]:
    scale = sqrt(q1 * q2)
    rho = max(min(c / scale, mpf(1)), mpf(-1))
    angle = pi - acos(rho)
    return scale * (sqrt(1 - rho**2) + angle * rho) / (2 * pi), angle / (2 * pi)


def _erf(q1: Any, q2: Any, c: Any) -> tuple[Any, Any]:
    product = (1 + 2 * q1) * (1 + 2 * q2)
    return 2 / pi * asin(2 * c / sqrt(product)), 4 / pi / sqrt(product - 4 * c**2)


DUALS = {"relu": _relu, "erf": _erf}


def errors(found: tuple[Array, Array], exact: tuple[Array, Array]) -> dict[str, float]:
    """Largest |found - exact| / √(K_ii K_jj): of each kernel, and of the NTK off its diagonal."""
    relative = []
    for matrix, truth in zip(found, exact, strict=True):
        scale = np.sqrt(np.diag(truth))
        relative.append(np.abs(matrix - truth) / np.outer(scale, scale))
    ck, ntk = relative
    apart = ntk - np.diag(np.diag(ntk))
    return {
        "CK error": float(ck.max()),
        "NTK error": float(ntk.max()),
        "NTK error off the diagonal": float(apart.max()),
    }
