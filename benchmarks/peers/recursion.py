"""The weight-untied recursion in plain NumPy, a direct transcription of the papers.

A third opinion on what neural-tangents and we both claim to compute, and a contestant of its own. Short on purpose, and
independent of both: closed-form duals for relu and erf (Cho & Saul; Williams); for tanh a trapezoidal product rule, or
the Hermite series. What is computed is stated in neural_tangents/peer.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Dual = Callable[[Array, Array, Array], tuple[Array, Array]]


def relu_dual(q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
    """E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for φ = max(0, ·). arccos loses half its digits at ρ = 1: ρ_ii is set."""
    scale = np.sqrt(q1 * q2)
    rho = np.clip(c / scale, -1.0, 1.0)
    np.fill_diagonal(rho, 1.0)
    angle = np.pi - np.arccos(rho)
    return scale * (np.sqrt(1.0 - rho**2) + angle * rho) / (2 * np.pi), angle / (2 * np.pi)


def erf_dual(q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
    """The same for φ = erf."""
    product = (1 + 2 * q1) * (1 + 2 * q2)
    return 2 / np.pi * np.arcsin(2 * c / np.sqrt(product)), 4 / np.pi / np.sqrt(product - 4 * c**2)


def tanh_dual(q1: Array, q2: Array, c: Array, step: float = 0.15) -> tuple[Array, Array]:
    """The same for φ = tanh, by a product rule: u = √q1 g, v = √q2 (ρ g + √(1-ρ²) h).

    The trapezoidal rule errs by exp(-2π d/step), d = π/(2√q) the distance of the poles from the real line:
    1e-14 up to q = 4, where a Gauss–Hermite rule of 100 nodes is left with 1e-4.
    """
    points = np.arange(-9.0, 9.0 + step / 2, step)
    weights = np.exp(-(points**2) / 2) * step / np.sqrt(2 * np.pi)
    rho = np.clip(c / np.sqrt(q1 * q2), -1.0, 1.0)
    value, slope = np.zeros_like(c), np.zeros_like(c)
    for g, weight in zip(points, weights, strict=True):
        u = np.tanh(np.sqrt(q1) * g)
        v = (np.sqrt(q2) * rho * g)[..., None] + (np.sqrt(q2) * np.sqrt(1 - rho**2))[..., None] * points
        np.tanh(v, out=v)
        value += weight * u * (v @ weights)
        slope += weight * (1 - u**2) * (weights.sum() - np.square(v, out=v) @ weights)
    return value, slope


def tanh_dual_by_series(q1: Array, q2: Array, c: Array, terms: int = 32) -> tuple[Array, Array]:
    """The same for φ = tanh by F = Σ_k a_k(q1) a_k(q2) ρ^k, where a_k(q) = E[tanh(√q g) h_k(g)] vanishes for even k."""
    first, second = (_odd_coefficients(np.ravel(q), terms) for q in (q1, q2))
    rho = c / np.sqrt(q1 * q2)
    square = rho**2
    value, slope = np.zeros_like(c), np.zeros_like(c)
    for a, b in zip(first[::-1], second[::-1], strict=True):  # Horner in ρ², and its derivative
        slope = slope * square + value
        value = value * square + np.outer(a, b)
    return rho * value, (value + 2 * square * slope) / np.sqrt(q1 * q2)


def _odd_coefficients(q: Array, terms: int, step: float = 0.1) -> Array:
    """a_1, a_3, … of every variance, shape (terms, len(q)): trapezoidal, with orthonormal Hermite polynomials."""
    points = np.arange(-14.0, 14.0 + step / 2, step)
    weights = np.exp(-(points**2) / 2) * step / np.sqrt(2 * np.pi)
    polynomials = [np.ones_like(points), points]
    for k in range(1, 2 * terms - 1):
        polynomials.append((points * polynomials[k] - np.sqrt(k) * polynomials[k - 1]) / np.sqrt(k + 1))
    odd = np.stack(polynomials[1::2]) * weights
    return np.asarray(odd @ np.tanh(np.outer(points, np.sqrt(q))))


DUALS: dict[str, Dual] = {"relu": relu_dual, "erf": erf_dual, "tanh": tanh_dual}


def unrolled_kernels(
    x: Array, dual: Dual, *, depth: int, sigma_a2: float, sigma_b2: float
) -> tuple[Array, Array]:
    """(G^(L), Θ^(L)): the features' CK and the network's NTK after L layers, from Λ^(1) = σ_b² X Xᵀ."""
    injected = sigma_b2 * (x @ x.T)
    preactivations, tangent = injected, injected
    for layer in range(1, depth + 1):
        q = np.diag(preactivations)
        features, slope = dual(q[:, None], q[None, :], preactivations)
        if layer < depth:
            preactivations = sigma_a2 * features + injected
            tangent = preactivations + sigma_a2 * slope * tangent
    return features, features + slope * tangent
