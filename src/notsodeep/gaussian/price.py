"""Price's integral for piecewise-linear shapes, compiled and vectorised over pairs (docs/theory.md, section 3).

For each two kinks one integral over the angle δ from arccos ρ to π/2.  Its integrand has a layer at δ = |α - β|, the
gap between the kinks, as wide as that gap and flat below it: in log δ the layer has width one.  Gauss-Legendre rules in
log δ through the layer and beyond it, and in δ from FAR on, serve every pair, (3.32).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

from notsodeep.gaussian.quadrature import legendre
from notsodeep.validation import Array

# Nodes through the layer, between it and FAR, and beyond; the layer begins at gap/DEEP, where e is below 1e-17, and
# ends at gap · OUT.
COUNTS = (36, 24, 20)
# Of a kink beyond so many standard deviations a steep flank is all that counts: twice as many nodes.
STEEP = 3.0
DEEP, OUT, FAR = 9.0, 4.5, 0.35
# A layer below this is too thin to be resolved.
THIN = 1e-7
# Pairs in the innermost loops.
WIDTH = 64
INVERSE_LN2 = 1.0 / math.log(2.0)
# Added to a number, it leaves the nearest whole number in the last bits.
ROUNDING = 6755399441055744.0
FAST = {"contract", "nsz", "nnan", "ninf"}


def price_integral(
    knots: Array, jumps: Array, s1: Array, s2: Array, c: Array, means: Sequence[Array]
) -> tuple[Array, Array]:
    """F and F' of a piecewise-linear function, elementwise on flat arrays, (3.17) and (3.18).

    Args:
        knots: where the pieces of the function meet.
        jumps: how much its slope jumps at each of them.
        s1: the scale √q1 of the first variable of each pair.
        s2: the scale of the second.
        c: their covariance.
        means: M_0(q1), M_0(q2), M_1(q1), M_1(q2).
    """
    value, slope = np.empty_like(c), np.empty_like(c)
    scale = min(float(s1.min(initial=np.inf)), float(s2.min(initial=np.inf)))
    double = 2 if np.abs(knots).max(initial=0.0) > STEEP * scale else 1
    layer, middle, far = (legendre(double * count) for count in COUNTS)
    # The integral of the kinks (-κ, -λ) is that of (κ, λ): where both have the same weight one of them is enough.
    symmetric = bool(np.all(knots == -knots[::-1]) and np.all(np.abs(jumps) == np.abs(jumps[::-1])))
    arguments = (knots, jumps, s1, s2, c, *means, *layer, *middle, *far, symmetric, value, slope)
    _integrate(*arguments)
    return value, slope


@njit(cache=True, nogil=True, error_model="numpy")
def _integrate(  # type: ignore[no-untyped-def]
    knots, jumps, s1, s2, c, mean1, mean2, rise1, rise2, layer, layer_weights, middle, middle_weights, far, far_weights,
    symmetric, value, slope,
):  # fmt: skip
    total = jumps.sum()
    reach = np.abs(knots).max() if len(knots) else 0.0
    size = len(knots)
    rho, area, lever, less = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    alpha, beta, sums, arms = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    work = np.ones((19, WIDTH))
    work[17] = 0.0
    for start in range(0, len(c), WIDTH):
        width = min(WIDTH, len(c) - start)
        for j in range(width):
            i = start + j
            bound = s1[i] * s2[i]
            rho[j] = min(max(c[i] / bound, -1.0), 1.0) if bound > 0.0 else 0.0
            area[j], lever[j] = 0.0, 0.0
            # Under a wide bell every e_kl is nearly 1 and a bounded φ has Σ w = 0: the ones are summed by hand and
            # only e_kl - 1 goes through the quadrature, or terms of size q would cancel down to F of size 1.
            less[j] = 1.0 if reach < 0.5 * min(s1[i], s2[i]) else 0.0
            if less[j] == 1.0:
                angle = math.asin(rho[j])
                area[j] = total * total * angle
                lever[j] = total * total * (rho[j] * angle + math.sqrt((1.0 - rho[j]) * (1.0 + rho[j])) - 1.0)
        for k in range(size):
            for l in range(size):  # noqa: E741
                count = 1.0
                if symmetric:
                    if k * size + l > (size - 1 - k) * size + size - 1 - l:
                        continue
                    if k * size + l < (size - 1 - k) * size + size - 1 - l:
                        count = 2.0
                for j in range(width):
                    alpha[j], beta[j] = knots[k] / s1[start + j], knots[l] / s2[start + j]
                _limits(alpha, beta, rho, less, work, sums, arms, width)
                _add_panel(layer, layer_weights, less, work, 4, sums, arms)
                _add_panel(middle, middle_weights, less, work, 6, sums, arms)
                _add_panel(far, far_weights, less, work, 8, sums, arms)
                product = count * jumps[k] * jumps[l]
                for j in range(width):
                    area[j] += product * sums[j]
                    lever[j] += product * arms[j]
        for j in range(width):
            i = start + j
            scale = s1[i] * s2[i] / (2.0 * math.pi)
            value[i] = mean1[i] * mean2[i] + c[i] * rise1[i] * rise2[i] + scale * lever[j]
            slope[i] = rise1[i] * rise2[i] + area[j] / (2.0 * math.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def _limits(alpha, beta, rho, less, work, sums, arms, width):  # type: ignore[no-untyped-def]
    """Where the three panels begin in log δ, in log δ and in δ, and how long they are, for the pairs of a strip.

    Below the layer e = 0, so that e - 1 contributes what is put into `sums` and `arms` here.
    δ = π/2 - |θ|, so that the integral runs from arccos |ρ| to π/2.  A negative ρ is a positive one with the sign of
    one variable exchanged.
    """
    for j in range(width):
        sign = -1.0 if rho[j] < 0.0 else 1.0
        turned = sign * beta[j]
        apart = min(abs(alpha[j] - turned), 80.0)
        low = 1.0 - abs(rho[j])
        end = 2.0 * math.asin(math.sqrt(0.5 * low))
        begin = min(max(end, apart / DEEP, 1e-300), 0.5 * math.pi)
        middle = min(max(OUT * apart, begin), 0.5 * math.pi)
        work[0, j] = 0.5 * apart * apart
        work[1, j] = max(0.5 * alpha[j] * turned, -800.0)
        work[2, j] = low
        work[3, j] = sign
        work[4, j], work[5, j] = math.log(begin), math.log(middle / begin)
        later = max(middle, FAR)
        unit = max(middle, THIN)
        work[16, j] = middle - unit
        work[6, j], work[7, j] = math.log(unit), math.log((later - middle + unit) / unit)
        work[8, j], work[9, j] = later, 0.5 * math.pi - later
        sums[j] = -sign * less[j] * (begin - end)
        # ∫ (cos α - cos δ) dδ from α to `begin`.
        half = 0.5 * (begin - end)
        arms[j] = -less[j] * (abs(rho[j]) * (begin - end) - 2.0 * math.sin(half) * math.cos(end + half))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _add_panel(nodes, weights, less, work, panel, sums, arms):  # type: ignore[no-untyped-def]
    """Add ∫ e(θ) dθ and ∫ (ρ - sin θ) e(θ) dθ over one panel on a strip; of e - 1 where `less` is 1.

    Panels 4 and 6 are in log δ (the second less an offset), panel 8 in δ: the rows of `work` that hold their
    beginnings and lengths.
    """
    begin, length = work[panel], work[panel + 1]
    longest = 0.0
    for j in range(WIDTH):
        longest = max(longest, length[j])
    if longest <= 0.0:
        return
    gap, both, low, sign = work[0], work[1], work[2], work[3]
    delta, lift, exponent, height = work[10], work[11], work[12], work[13]
    area, arm, rate = work[14], work[15], work[18]
    offset = work[16] if panel == 6 else work[17]
    # Few arrays in each loop: the compiler vectorises only what it can check for overlap.
    for j in range(WIDTH):
        area[j] = 0.0
        arm[j] = 0.0
    for n in range(len(nodes)):
        node, weight = nodes[n], weights[n]
        for j in range(WIDTH):
            exponent[j] = begin[j] + length[j] * node
        if panel == 8:
            for j in range(WIDTH):
                delta[j] = exponent[j]
        else:
            exponential(exponent, rate)
            for j in range(WIDTH):
                delta[j] = rate[j] + offset[j]
        for j in range(WIDTH):
            half = _sine(0.5 * delta[j])
            lift[j] = max(half * half, 1e-290)
        for j in range(WIDTH):
            square = lift[j]
            ratio = (0.25 * gap[j] + square * both[j]) / (square * (1.0 - square))
            exponent[j] = max(-ratio, -700.0)
        exponential_less(exponent, less, height)
        if panel == 8:
            for j in range(WIDTH):
                height[j] *= weight
        else:
            for j in range(WIDTH):
                height[j] *= rate[j] * weight
        for j in range(WIDTH):
            area[j] += height[j]
        for j in range(WIDTH):
            arm[j] += height[j] * 2.0 * lift[j]
    for j in range(WIDTH):
        arms[j] += length[j] * (arm[j] - low[j] * area[j])
    for j in range(WIDTH):
        sums[j] += sign[j] * length[j] * area[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST, inline="always")
def _sine(x):  # type: ignore[no-untyped-def]
    """sin x for 0 ≤ x ≤ π/4."""
    s = x * x
    p = -1.0 / 1307674368000.0
    p = p * s + 1.0 / 6227020800.0
    p = p * s - 1.0 / 39916800.0
    p = p * s + 1.0 / 362880.0
    p = p * s - 1.0 / 5040.0
    p = p * s + 1.0 / 120.0
    p = p * s - 1.0 / 6.0
    return x + x * s * p


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST, inline="always")
def _reduced(r):  # type: ignore[no-untyped-def]
    """e^r - 1 for |r| ≤ ln(2)/2."""
    p = 1.0 / 87178291200.0
    p = p * r + 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    return r + r * r * p


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _powers(x, result):  # type: ignore[no-untyped-def]
    """x becomes r and result 2^k, where x = k ln 2 + r with |r| ≤ ln(2)/2."""
    bits = result.view(np.int64)
    for j in range(WIDTH):
        result[j] = x[j] * INVERSE_LN2 + ROUNDING
    for j in range(WIDTH):
        whole = result[j] - ROUNDING
        x[j] = (x[j] - whole * 0.693145751953125) - whole * 1.42860682030941723212e-6
    for j in range(WIDTH):
        bits[j] = (bits[j] + 1023) << 52


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def exponential(x, result):  # type: ignore[no-untyped-def]
    """e^x on a strip, |x| ≤ 700; x is overwritten."""
    _powers(x, result)
    for j in range(WIDTH):
        result[j] *= 1.0 + _reduced(x[j])


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def exponential_less(x, less, result):  # type: ignore[no-untyped-def]
    """e^x less 1 or 0 on a strip, |x| ≤ 700, with all its digits where it is near zero; x is overwritten."""
    _powers(x, result)
    for j in range(WIDTH):
        power = result[j]
        result[j] = power * _reduced(x[j]) + (power - less[j])
