"""Price's integral for piecewise-linear shapes, compiled (docs/theory.md, section 3)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from notsodeep.gaussian.quadrature import legendre

Array = NDArray[np.float64]


def price_integral(
    knots: Array, jumps: Array, q1: Array, q2: Array, c: Array, means: list[Array]
) -> tuple[Array, Array]:
    """F and F' of a piecewise-linear function, elementwise on flat arrays, (3.17) and (3.18).

    Args:
        knots: where the slope jumps.
        jumps: by how much.
        q1: the variance of the first variable of each pair.
        q2: the variance of the second.
        c: their covariance.
        means: M_0(q1), M_0(q2), M_1(q1), M_1(q2).
    """
    nodes, weights = legendre()
    value, slope = np.empty_like(c), np.empty_like(c)
    arguments = (knots, jumps, np.sqrt(q1), np.sqrt(q2), c, *means, nodes, weights, value, slope)
    _integrate(*arguments)
    return value, slope


@njit(cache=True, nogil=True, error_model="numpy")
def _integrate(knots, jumps, s1, s2, c, mean1, mean2, rise1, rise2, nodes, weights, value, slope):  # type: ignore[no-untyped-def]
    total = jumps.sum()
    reach = np.abs(knots).max() if len(knots) else 0.0
    for i in range(len(c)):
        bound = s1[i] * s2[i]
        rho = min(max(c[i] / bound, -1.0), 1.0) if bound > 0.0 else 0.0
        area = 0.0
        lever = 0.0
        # Under a wide bell every e_kl is nearly 1 and a bounded φ has Σ w = 0: the ones are summed by hand and only
        # e_kl - 1 goes through the quadrature, or terms of size q would cancel down to F of size 1.
        wide = reach < 0.5 * min(s1[i], s2[i])
        if wide:
            angle = math.asin(rho)
            area = total * total * angle
            lever = total * total * (rho * angle + math.sqrt((1.0 - rho) * (1.0 + rho)) - 1.0)
        for k in range(len(knots)):
            for l in range(len(knots)):  # noqa: E741
                part_area, part_lever = _arc(knots[k] / s1[i], knots[l] / s2[i], rho, nodes, weights, wide)
                area += jumps[k] * jumps[l] * part_area
                lever += jumps[k] * jumps[l] * part_lever
        value[i] = mean1[i] * mean2[i] + c[i] * rise1[i] * rise2[i] + bound * lever / (2.0 * math.pi)
        slope[i] = rise1[i] * rise2[i] + area / (2.0 * math.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def _arc(alpha, beta, rho, nodes, weights, less_one):  # type: ignore[no-untyped-def]
    """∫ e(θ) dθ and ∫ (ρ - sin θ) e(θ) dθ from 0 to asin ρ; of e - 1 if `less_one`.

    In δ = π/2 - |θ|, the distance to the point where e may have an essential singularity; panels halve towards it.
    A negative ρ is a positive one with the sign of one variable exchanged.
    """
    if rho == 0.0 or abs(alpha) > 40.0 or abs(beta) > 40.0:
        return 0.0, 0.0
    sign = 1.0
    if rho < 0.0:
        sign, rho, beta = -1.0, -rho, -beta
    end = math.acos(rho)
    gap = (alpha - beta) ** 2
    area = 0.0
    lever = 0.0
    near = 0.5 * math.pi
    while near > end:
        # The last panel is the one that reaches the end, or one so narrow that it cannot matter.
        far = near
        near = 0.5 * far
        if near <= 1.5 * end or near < 1e-17:
            near = end
        for k in range(len(nodes)):
            delta = near + (far - near) * nodes[k]
            lift = 2.0 * math.sin(0.5 * delta) ** 2
            exponent = -(gap + 2.0 * alpha * beta * lift) / (2.0 * math.sin(delta) ** 2)
            height = math.expm1(exponent) if less_one else math.exp(exponent)
            area += (far - near) * weights[k] * height
            lever += (far - near) * weights[k] * height * (rho - 1.0 + lift)
        if near == end:
            break
    return sign * area, lever
