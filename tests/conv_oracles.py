"""Brute force for convolutional models: all pairs of positions, shifts as matrices, plain iteration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import notsodeep as nsd
from notsodeep.gaussian.bivariate import dual

FEEDBACK = 0.3
Dual = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def relu_dual(q: np.ndarray, r: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The arc-cosine kernel; without any signal F = 0 and F' = φ'(0)² = 1/4."""
    scale = np.sqrt(q * r)
    with np.errstate(all="ignore"):
        rho = np.where(scale > 0, np.clip(c / scale, -1, 1), 0.0)
    theta = np.arccos(rho)
    slope = np.where(scale > 0, (np.pi - theta) / (2 * np.pi), 0.25)
    return scale * (np.sin(theta) + (np.pi - theta) * rho) / (2 * np.pi), slope


def erf_dual(q: np.ndarray, r: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F and F' of erf: an arcsine, and its derivative (Williams 1997)."""
    inside = (1 + 2 * q) * (1 + 2 * r)
    return 2 / np.pi * np.arcsin(2 * c / np.sqrt(inside)), 4 / np.pi / np.sqrt(inside - 4 * c**2)


def erf_pairs(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F and F' of erf for all pairs, variances on the diagonal."""
    q = np.diag(covariance)
    return erf_dual(q[:, None], q, covariance)


def careful_dual(name: str) -> Dual:
    """Quadrature in two dimensions, or the integral of a kinked function, which have tests of their own."""

    def found(q: np.ndarray, r: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # ρ = 1 but for rounding leaves half of the digits of F' of a kinked function.
        most = np.sqrt(q) * np.sqrt(r)
        return dual(
            nsd.activation(name), q, r, np.where(np.abs(c) > (1 - 1e-14) * most, np.sign(c) * most, c)
        )

    return found


def shifted_dual(q: np.ndarray, r: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """That of 0.8 relu(x) - 0.2, from the mean √(q/2π) of relu."""
    value, slope = relu_dual(q, r, c)
    means = (np.sqrt(q) + np.sqrt(r)) / np.sqrt(2 * np.pi)
    return 0.64 * value - 0.16 * means + 0.04, 0.64 * slope


DUALS: dict[str, Dual] = {
    "relu": relu_dual,
    "erf": erf_dual,
    "shifted": shifted_dual,
    **{name: careful_dual(name) for name in ("tanh", "hard_tanh")},
}


def shifts(positions: tuple[int, ...], filter_size: int, padding: str) -> list[np.ndarray]:
    """For every tap the matrix that reads a neighbour, or zero beyond the border."""
    places = list(np.ndindex(*positions))
    number = {place: k for k, place in enumerate(places)}
    found = []
    half = filter_size // 2
    for tap in itertools.product(range(-half, half + 1), repeat=len(positions)):
        matrix = np.zeros((len(places), len(places)))
        for place in places:
            other = tuple(a + b for a, b in zip(place, tap, strict=True))
            if padding == "circular":
                other = tuple(a % b for a, b in zip(other, positions, strict=True))
            if other in number:
                matrix[number[place], number[other]] = 1.0
        found.append(matrix)
    return found


def brute(model: Any, images: np.ndarray, name: str, steps: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """(10.1) to (10.3) as they are written, over all pairs of positions."""
    both, taps = DUALS[name], shifts(images.shape[2:], model.filter_size, model.padding)
    values = images.reshape(*images.shape[:2], -1).transpose(0, 2, 1)
    n, count = values.shape[:2]

    def mix(field: np.ndarray) -> np.ndarray:
        return sum(tap @ field @ tap.T for tap in taps) / len(taps)

    def unmix(field: np.ndarray) -> np.ndarray:
        return sum(tap.T @ field @ tap for tap in taps) / len(taps)

    def solved(i: int, j: int, q: np.ndarray | None, r: np.ndarray | None) -> np.ndarray:
        forcing = model.sigma_b2 * mix(values[i] @ values[j].T) + model.bias2
        covariance = forcing
        for _ in range(steps):
            left = np.diag(covariance) if q is None else q
            right = np.diag(covariance) if r is None else r
            covariance = model.sigma_a2 * mix(both(left[:, None], right[None], covariance)[0]) + forcing
        return covariance

    variances = [np.diag(solved(i, i, None, None)).copy() for i in range(n)]
    readout = np.eye(count) / count if model.readout == "flatten" else np.full((count, count), count**-2.0)
    features, tangent = np.zeros((n, n)), np.zeros((n, n))
    for i, j in itertools.product(range(n), repeat=2):
        q, r = variances[i], variances[j]
        covariance = solved(i, j, q, r)
        if i == j:
            # Not to lose half of the digits of arccos at 1.
            np.fill_diagonal(covariance, q)
        value, slope = both(q[:, None], r[None], covariance)
        adjoint = slope * readout
        for _ in range(steps):
            adjoint = slope * (readout + model.sigma_a2 * unmix(adjoint))
        features[i, j] = np.sum(readout * value)
        tangent[i, j] = features[i, j] + np.sum(adjoint * covariance)
    return features, tangent


def images(*shape: int, dead: bool = False, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) / math.sqrt(shape[1])
    if dead:
        # Nothing at all within reach of the first positions of the first image, nor of the last of the second.
        values[0, :, : shape[2] // 2 + 1] = 0.0
        values[1, :, shape[2] // 2 :] = 0.0
    return values
