"""F, F' and F'' at the positions of two samples: sums of Mehler series over strips of positions, compiled.

A strip takes as many terms as it needs: what the others would add is at most τ τ' |ρ|^k, where τ and τ' are the tails
of the two strips, (3.15), and |ρ| is the largest of the strip.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_series import FAST
from notsodeep.pairs.field_series import GROUP

# Positions that are worked on at once: of the diagonal, and of pairs of positions.
LANES, FEW_LANES = 32, 16


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _group_count(tails, others, top, powers, truncation):  # type: ignore[no-untyped-def]
    """How many groups of terms leave less than the truncation at correlations up to `top`."""
    first, stride = powers
    # F' has one power less than F.
    least, ratio = top ** max(first - 1, 0), top ** (stride * GROUP)
    least *= ratio if first else ratio / max(top, 1e-30)
    groups = 1
    while groups < len(tails) and tails[groups - 1] * others[groups - 1] * least > truncation:
        least *= ratio
        groups += 1
    return groups


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _prepare(entry, inverse, stride, rho, x, sums, rises, bends):  # type: ignore[no-untyped-def]
    """ρ of a strip, what its powers are taken of, empty sums; returns the largest |ρ|."""
    top = 0.0
    for s in range(len(entry)):
        rho[s] = min(max(entry[s] * inverse[s], -1.0), 1.0)
    for s in range(len(entry)):
        top = max(top, abs(rho[s]))
    for s in range(len(x)):
        x[s] = rho[s] if stride == 1 else rho[s] * rho[s]
        sums[s] = 0.0
        rises[s] = 0.0
        bends[s] = 0.0
    return top


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _finish(rho, x, sums, rises, bends, inverse, lift, powers, value, slope, bend):  # type: ignore[no-untyped-def]
    """F, F' and F'' from g, g' and g''/2, where F = g(ρ), or ρ g(ρ²) if it is odd, or g(ρ²) if it is even."""
    first, stride = powers
    for s in range(len(value)):
        value[s] = sums[s]
        slope[s] = rises[s]
        bend[s] = 2.0 * bends[s]
    if stride == 2 and first == 1:
        for s in range(len(value)):
            value[s] = rho[s] * sums[s]
            slope[s] = sums[s] + 2.0 * x[s] * rises[s]
            bend[s] = rho[s] * (6.0 * rises[s] + 8.0 * x[s] * bends[s])
    elif stride == 2:
        for s in range(len(value)):
            slope[s] = 2.0 * rho[s] * rises[s]
            bend[s] = 2.0 * rises[s] + 8.0 * x[s] * bends[s]
    for s in range(len(value)):
        value[s] += lift[s]
        slope[s] *= inverse[s]
        bend[s] *= inverse[s] * inverse[s]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def power_sums(covariance, over, lift, left, right, powers, truncation, value, slope, bend):  # type: ignore[no-untyped-def]
    """F, F' and F'' where positions of a sample meet the same positions of another.

    `left` and `right` hold coefficients, starts and tails of the strips of LANES positions of one sample each.
    """
    rho, x, bends = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    sums, rises = np.zeros(LANES), np.zeros(LANES)
    for p in range(len(left[1]) - 1):
        begin = p * LANES
        end = min(begin + LANES, len(covariance))
        inverse = over[begin:end]
        top = _prepare(covariance[begin:end], inverse, powers[1], rho, x, sums, rises, bends)
        one, two = left[1][p], right[1][p]
        most = min(left[1][p + 1] - one, right[1][p + 1] - two) // GROUP
        groups = _group_count(left[2][p, :most], right[2][p, :most], top, powers, truncation)
        for group in range(groups - 1, -1, -1):
            # One flat part of each sample and a fixed number of lanes: so the loop is vectorised.
            first, second = (one + GROUP * group) * LANES, (two + GROUP * group) * LANES
            a, b = left[0][first : first + GROUP * LANES], right[0][second : second + GROUP * LANES]
            for s in range(LANES):
                y, f, d, e = x[s], sums[s], rises[s], bends[s]
                e = e * y + d
                d = d * y + f
                f = f * y + a[s + 3 * LANES] * b[s + 3 * LANES]
                e = e * y + d
                d = d * y + f
                f = f * y + a[s + 2 * LANES] * b[s + 2 * LANES]
                e = e * y + d
                d = d * y + f
                f = f * y + a[s + LANES] * b[s + LANES]
                e = e * y + d
                d = d * y + f
                sums[s] = f * y + a[s] * b[s]
                rises[s] = d
                bends[s] = e
        _finish(
            rho, x, sums, rises, bends, inverse, lift[begin:end], powers, value[begin:end], slope[begin:end],
            bend[begin:end],
        )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def power_sums_of_pairs(  # type: ignore[no-untyped-def]
    covariance, over, lift, left, right, powers, truncation, width, lines, value, slope, bend
):  # fmt: skip
    """F, F' and F'' where all positions of a row of one sample meet all of a row of another, laid out (rows, x, x').

    `left` holds coefficients, starts and tails of the positions of the first sample, `right` those of the strips of
    FEW_LANES positions of the second; `lines` (rows, 2) which rows meet.
    """
    parts = -(-width // FEW_LANES)
    rho, x, bends = np.zeros(FEW_LANES), np.zeros(FEW_LANES), np.zeros(FEW_LANES)
    sums, rises = np.zeros(FEW_LANES), np.zeros(FEW_LANES)
    for run in range(len(lines) * width * parts):
        part, column, row = run % parts, run // parts % width, run // (parts * width)
        position, strip = lines[row, 0] * width + column, lines[row, 1] * parts + part
        begin = (row * width + column) * width + part * FEW_LANES
        end = begin + min(FEW_LANES, width - part * FEW_LANES)
        inverse = over[begin:end]
        top = _prepare(covariance[begin:end], inverse, powers[1], rho, x, sums, rises, bends)
        one, two = left[1][position], right[1][strip]
        most = min(left[1][position + 1] - one, right[1][strip + 1] - two) // GROUP
        groups = _group_count(left[2][position, :most], right[2][strip, :most], top, powers, truncation)
        for group in range(groups - 1, -1, -1):
            first, second = one + GROUP * group, (two + GROUP * group) * FEW_LANES
            a0, a1, a2, a3 = left[0][first], left[0][first + 1], left[0][first + 2], left[0][first + 3]
            b = right[0][second : second + GROUP * FEW_LANES]
            for s in range(FEW_LANES):
                z, f, d, e = x[s], sums[s], rises[s], bends[s]
                e = e * z + d
                d = d * z + f
                f = f * z + a3 * b[s + 3 * FEW_LANES]
                e = e * z + d
                d = d * z + f
                f = f * z + a2 * b[s + 2 * FEW_LANES]
                e = e * z + d
                d = d * z + f
                f = f * z + a1 * b[s + FEW_LANES]
                e = e * z + d
                d = d * z + f
                sums[s] = f * z + a0 * b[s]
                rises[s] = d
                bends[s] = e
        _finish(
            rho, x, sums, rises, bends, inverse, lift[begin:end], powers, value[begin:end], slope[begin:end],
            bend[begin:end],
        )  # fmt: skip


__all__ = ["FEW_LANES", "LANES", "power_sums", "power_sums_of_pairs"]
