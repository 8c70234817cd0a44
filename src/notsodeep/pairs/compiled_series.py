"""The inner loops: one tile of pairs at a time, compiled, without the interpreter lock.

Everything is in normalised form: ρ = Λ/(s_i s_j), and P(ρ) = F/(s_i s_j), so that P' = F'.  Columns are taken in
strips of WIDTH; loops over a strip are innermost and free of branches, which is what lets the compiler use the vector
units.
"""

from __future__ import annotations

import numpy as np
from numba import njit

WIDTH = 64
MAX_STEPS = 40
# Ranks of solution tables are multiples of this; loops over it are written out.
RANK_STEP = 8
# Newton steps that are taken with half the terms.
EARLY_STEPS = 2
# Least 1 - σ_a² F' that Newton's method divides by: below it the equation has all but lost its solution.
STEEPEST = 1e-4
# Logarithm of the power of ρ at which series of listed pairs end.
LISTED_PRECISION = np.log(1e-9)
FAST = {"contract", "reassoc", "nsz", "nnan", "ninf"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def mehler_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right, left, right, top, side,
    feedback, levels, limits, parity, want_slope, lower, value, slope, todo,
):  # fmt: skip
    """Solve ρ = feedback · P(ρ) + r for every pair of the tile, P by its Mehler series, docs/theory.md (3.5), (3.13).

    `c` are Gram entries and r = (kappa c + shift_i + shift_j)/(s_i s_j); `left` and `right` hold a_k/s, one row for
    each term kept (all, or only odd or even ones, by parity), of which the tile starts at columns `top` and `side`;
    `levels` are numbers of terms and `limits` says up to which |ρ| each keeps the truncation below the tolerance.
    F, F' and the pairs that no level can bound, or that did not converge, go to `value`, `slope` and `todo`.  With
    `lower` only the pairs below the diagonal of the tile are looked at.
    Returns Newton steps, estimated residual, largest |ρ| and the number of pairs left.
    """
    rows, columns = c.shape
    series = np.zeros((levels[-1], WIDTH))
    r, rho, power = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    p, dp = np.zeros(WIDTH), np.zeros(WIDTH)
    steps, left_over = 0, 0
    residual, highest = 0.0, 0.0
    tolerance = 1e-13 if want_slope else 1e-9
    for i in range(rows):
        if lower:
            columns = i
        for start in range(0, columns, WIDTH):
            width = min(WIDTH, columns - start)
            for j in range(width):
                target = kappa * c[i, start + j] + shift_left[i] + shift_right[start + j]
                r[j] = target / (root_left[i] * root_right[start + j])
                rho[j] = r[j]
            if feedback > 0.0:
                _linear_guess(rho, left, right, top + i, side + start, width, feedback, parity)
            filled, level, stuck = 0, -1, False
            while True:
                needed = _level_for(rho, width, limits)
                if needed <= level:
                    break
                level, terms = needed, levels[needed]
                for k in range(filled, terms):
                    factor = left[k, top + i]
                    for j in range(width):
                        series[k, j] = factor * right[k, side + start + j]
                early = EARLY_STEPS if filled == 0 else 0
                filled = max(filled, terms)
                taken, left_residual = _newton(
                    series, terms, r, rho, power, p, dp, feedback, parity, tolerance, early
                )
                stuck = taken == MAX_STEPS
                steps = max(steps, taken)
                residual = max(residual, 0.0 if stuck else left_residual)
            for j in range(width):
                value[i, start + j] = p[j] * root_left[i] * root_right[start + j]
            if want_slope:
                for j in range(width):
                    slope[i, start + j] = dp[j]
            peak = _largest(rho, width)
            highest = max(highest, peak)
            for j in range(width):
                todo[i, start + j] = stuck
            if peak > limits[level]:
                for j in range(width):
                    todo[i, start + j] = stuck or abs(rho[j]) > limits[level]
            if stuck or peak > limits[level]:
                for j in range(width):
                    left_over += todo[i, start + j]
    return steps, residual, highest, left_over


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _linear_guess(rho, left, right, i, start, width, feedback, parity):  # type: ignore[no-untyped-def]
    """The solution of the equation cut after its linear term; `rho` holds r on entry."""
    for j in range(width):
        first = left[0, i] * right[0, start + j]
        constant = 0.0 if parity == -1 else first
        linear = first if parity == -1 else 0.0
        if parity == 0 and left.shape[0] > 1:
            linear = left[1, i] * right[1, start + j]
        guess = (rho[j] + feedback * constant) / max(1.0 - feedback * linear, STEEPEST)
        rho[j] = min(max(guess, -1.0), 1.0)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _largest(values, width):  # type: ignore[no-untyped-def]
    top = 0.0
    for j in range(width):
        top = max(top, abs(values[j]))
    return top


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _level_for(rho, width, limits):  # type: ignore[no-untyped-def]
    """The first level whose limit covers the strip, or the last one."""
    top = _largest(rho, width)
    needed = 0
    while needed < len(limits) - 1 and limits[needed] < top:
        needed += 1
    return needed


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _newton(series, terms, r, rho, power, p, dp, feedback, parity, tolerance, early_steps):  # type: ignore[no-untyped-def]
    """Newton's method on a strip; leaves P(ρ), carried along the last step, and P'.  Returns steps and residual.

    Half the terms are enough for the first steps, from a guess: what they leave out is the root of what all of them
    leave out.
    """
    before, largest, first = 1.0, 1.0, 1.0
    steps = 0
    while steps < MAX_STEPS:
        steps += 1
        early = steps <= early_steps and terms >= 8 and feedback > 0.0
        _horner(series, terms // 2 if early else terms, rho, power, p, dp, parity)
        if feedback == 0.0:
            return 0, 0.0
        for j in range(WIDTH):
            move = (r[j] + feedback * p[j] - rho[j]) / max(1.0 - feedback * dp[j], STEEPEST)
            fresh = min(max(rho[j] + move, -1.0), 1.0)
            power[j] = fresh - rho[j]
            rho[j] = fresh
        for j in range(WIDTH):
            p[j] += dp[j] * power[j]
        before, largest = largest, _largest(power, WIDTH)
        if steps == 1:
            first = largest
        elif steps == early_steps + 1 and terms >= 8:
            # This step brings in the other half of the terms. How fast steps fall, those of the first half have shown.
            before = max(before, first)
        if largest <= tolerance and not early:
            break
    # The step after the last is about its square; the ratio of the last two says how much.
    return steps, largest * min(1.0, largest / max(before, 1e-300))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _horner(series, terms, rho, power, p, dp, parity):  # type: ignore[no-untyped-def]
    """P and P' on a strip; odd and even series are polynomials in ρ², with half as many terms."""
    for j in range(WIDTH):
        power[j] = rho[j] if parity == 0 else rho[j] * rho[j]
        p[j] = series[terms - 1, j]
        dp[j] = 0.0
    for k in range(terms - 2, -1, -1):
        for j in range(WIDTH):
            dp[j] = dp[j] * power[j] + p[j]
            p[j] = p[j] * power[j] + series[k, j]
    if parity == -1:
        for j in range(WIDTH):
            dp[j] = p[j] + 2.0 * power[j] * dp[j]
            p[j] = p[j] * rho[j]
    elif parity == 1:
        for j in range(WIDTH):
            dp[j] = 2.0 * rho[j] * dp[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def fit_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right,
    highest, middle, lowest, upper_value, lower_value, upper_slope, lower_slope, want_slope, lower, value, slope,
):  # fmt: skip
    """F and F' of a homogeneous activation from polynomials in the root of the distance to ρ = ±1.

    r in [middle, highest] goes through t = √((highest - r)/(highest - middle)), r below it through the distance to
    `lowest`: in t the solution is analytic up to and including ρ = ±1.  With `lower` only the pairs below the diagonal
    of the tile are looked at.
    """
    rows, columns = c.shape
    degree = len(upper_value) - 1
    up = 1.0 / (highest - middle)
    down = 1.0 / (middle - lowest)
    z = np.empty(WIDTH)
    above = np.empty(WIDTH)
    p = np.empty(WIDTH)
    for i in range(rows):
        if lower:
            columns = i
        scale = 1.0 / root_left[i]
        for start in range(0, columns, WIDTH):
            width = min(WIDTH, columns - start)
            for j in range(width):
                target = kappa * c[i, start + j] + shift_left[i] + shift_right[start + j]
                r = target * scale / root_right[start + j]
                above[j] = 1.0 if r >= middle else 0.0
                square = (highest - r) * up if r >= middle else (r - lowest) * down
                z[j] = 2.0 * np.sqrt(max(square, 0.0)) - 1.0
                p[j] = 0.0
            for k in range(degree, -1, -1):
                high, low = upper_value[k], lower_value[k]
                gap = high - low
                for j in range(width):
                    p[j] = p[j] * z[j] + (low + above[j] * gap)
            for j in range(width):
                value[i, start + j] = p[j] * root_left[i] * root_right[start + j]
            if want_slope:
                for j in range(width):
                    p[j] = 0.0
                for k in range(degree, -1, -1):
                    high, low = upper_slope[k], lower_slope[k]
                    gap = high - low
                    for j in range(width):
                        p[j] = p[j] * z[j] + (low + above[j] * gap)
                for j in range(width):
                    slope[i, start + j] = p[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def table_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right, row_tables, lengths, column_vectors, energy_left,
    energy_right, steep_left, steep_right, epsilon, start, stop, floor, odd, want_slope, lower, chosen, value, slope,
    todo,
):  # fmt: skip
    """F and F' of the pairs of a tile from a solution table, docs/theory.md (3.27) to (3.30).

    `row_tables` (rows, 2K + 2, rank) holds for each row the coefficients of F, of the ends of r and of F',
    `column_vectors` (strips, rank, WIDTH) what they are multiplied with, `lengths` how many orders are not zero in each
    RANK_STEP of the rank.  Returns the smallest and the largest d, and the smallest 1 - d, so that the caller sees
    whether the table covered them, and how many pairs have d below `floor`: these are marked in `todo`.  Strips without
    a pair that is `chosen` are left as they are.
    """
    rows, columns = c.shape
    orders = (row_tables.shape[1] - 2) // 2
    z, sign, one, two = np.zeros(WIDTH), np.ones(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    near, far, ratio = np.ones(WIDTH), np.ones(WIDTH), np.ones(WIDTH)
    mantissa, exponent = np.ones(WIDTH), np.zeros(WIDTH)
    ratio_bits, mantissa_bits = ratio.view(np.int64), mantissa.view(np.int64)
    ends, total = np.ones((2, WIDTH)), np.zeros(WIDTH)
    smallest, largest, opposite = 1.0, 0.0, 1.0
    left_over = 0
    scale = 2.0 / (stop - start)
    for i in range(rows):
        if lower:
            columns = i
        for strip in range((columns + WIDTH - 1) // WIDTH):
            first = strip * WIDTH
            width = min(WIDTH, columns - first)
            wanted = 0
            for j in range(width):
                wanted += chosen[i, first + j]
            if wanted == 0:
                continue
            vectors = column_vectors[strip]
            np.dot(row_tables[i, orders : orders + 2], vectors, ends)
            inverse = 1.0 / root_left[i]
            for j in range(width):
                target = kappa * c[i, first + j] + shift_left[i] + shift_right[first + j]
                z[j] = target * inverse / root_right[first + j]
            _distances(z, sign, near, far, ends[0], ends[1], odd)
            for j in range(width):
                smallest = min(smallest, near[j])
            for j in range(width):
                largest = max(largest, near[j])
            for j in range(width):
                opposite = min(opposite, far[j])
            if smallest < floor:
                for j in range(width):
                    todo[i, first + j] = near[j] < floor
                    left_over += near[j] < floor
            for j in range(WIDTH):
                x, y = np.sqrt(near[j]), np.sqrt(far[j])
                above = x + np.sqrt(near[j] + epsilon * epsilon)
                ratio[j] = above / (y + np.sqrt(far[j] + epsilon * epsilon))
            _logarithm(ratio_bits, mantissa_bits, mantissa, exponent, z)
            for j in range(WIDTH):
                z[j] = min(max((z[j] - start) * scale - 1.0, -1.0), 1.0)
            _table_sum(row_tables[i, :orders], lengths, vectors, z, one, two, total)
            for j in range(width):
                value[i, first + j] = sign[j] * total[j] * energy_left[i] * energy_right[first + j]
            if want_slope:
                _table_sum(row_tables[i, orders + 2 :], lengths, vectors, z, one, two, total)
                for j in range(width):
                    slope[i, first + j] = total[j] * steep_left[i] * steep_right[first + j]
    return smallest, largest, opposite, left_over


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _distances(r, sign, near, far, above, below, odd):  # type: ignore[no-untyped-def]
    """d and 1 - d, the relative distances of r to its ends R₊ = 1 - above and R₋ = below - 1.

    Of |r| for an odd function, whose sign is kept apart.
    """
    if odd:
        for j in range(WIDTH):
            sign[j] = -1.0 if r[j] < 0.0 else 1.0
        for j in range(WIDTH):
            inverse = 0.5 / (1.0 - above[j])
            near[j] = min(max(((1.0 - abs(r[j])) - above[j]) * inverse, 0.0), 1.0)
            far[j] = min(max(((1.0 + abs(r[j])) - above[j]) * inverse, 0.0), 1.0)
    else:
        for j in range(WIDTH):
            inverse = 1.0 / (2.0 - above[j] - below[j])
            near[j] = min(max(((1.0 - r[j]) - above[j]) * inverse, 0.0), 1.0)
            far[j] = min(max(((1.0 + r[j]) - below[j]) * inverse, 0.0), 1.0)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _table_sum(table, lengths, columns, z, one, two, total):  # type: ignore[no-untyped-def]
    """total_j = Σ_k (Σ_r table[k, r] columns[r, j]) T_k(z_j), RANK_STEP of the rank at a time."""
    for j in range(WIDTH):
        total[j] = 0.0
    for number in range(len(lengths)):
        start, stop = number * RANK_STEP, (number + 1) * RANK_STEP
        _contracted_clenshaw(table[: lengths[number], start:stop], columns[start:stop], z, one, two)
        for j in range(WIDTH):
            total[j] += one[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _contracted_clenshaw(table, columns, z, one, two):  # type: ignore[no-untyped-def]
    """one_j = Σ_k (Σ_r table[k, r] columns[r, j]) T_k(z_j) for RANK_STEP columns, written out.

    Contraction and Clenshaw's recursion share a loop, so that the coefficients of a pair are never stored.
    """
    c0, c1, c2, c3 = columns[0], columns[1], columns[2], columns[3]
    c4, c5, c6, c7 = columns[4], columns[5], columns[6], columns[7]
    for j in range(WIDTH):
        one[j] = 0.0
        two[j] = 0.0
    for k in range(len(table) - 1, -1, -1):
        a0, a1, a2, a3 = table[k, 0], table[k, 1], table[k, 2], table[k, 3]
        a4, a5, a6, a7 = table[k, 4], table[k, 5], table[k, 6], table[k, 7]
        twice = 2.0 if k > 0 else 1.0
        for j in range(WIDTH):
            fresh = twice * z[j] * one[j] - two[j]
            fresh += a0 * c0[j] + a1 * c1[j] + a2 * c2[j] + a3 * c3[j]
            fresh += a4 * c4[j] + a5 * c5[j] + a6 * c6[j] + a7 * c7[j]
            two[j] = one[j]
            one[j] = fresh


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _logarithm(bits, mantissa_bits, mantissa, exponent, result):  # type: ignore[no-untyped-def]
    """Natural logarithm on a strip, written out so that it is vectorised.

    x = 2^e m with m in [1/√2, √2), and log m = 2 atanh f, f = (m - 1)/(m + 1), |f| < 0.172.
    """
    for j in range(WIDTH):
        exponent[j] = float((bits[j] >> 52) - 1023)
        mantissa_bits[j] = (bits[j] & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
    for j in range(WIDTH):
        m, e = mantissa[j], exponent[j]
        large = m > 1.4142135623730951
        m = 0.5 * m if large else m
        e = e + 1.0 if large else e
        f = (m - 1.0) / (m + 1.0)
        s = f * f
        p = 1.0 / 19.0
        p = p * s + 1.0 / 17.0
        p = p * s + 1.0 / 15.0
        p = p * s + 1.0 / 13.0
        p = p * s + 1.0 / 11.0
        p = p * s + 1.0 / 9.0
        p = p * s + 1.0 / 7.0
        p = p * s + 1.0 / 5.0
        p = p * s + 1.0 / 3.0
        result[j] = e * 0.6931471805599453 + 2.0 * f * (1.0 + s * p)


@njit(cache=True, nogil=True, error_model="numpy")
def wave_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right, feedback, sine, want_slope, lower, value, slope
):  # fmt: skip
    """Newton's method with the closed forms (3.22) of sin and cos.  Returns the most steps and the worst residual."""
    rows, columns = c.shape
    most, residual = 0, 0.0
    for i in range(rows):
        if lower:
            columns = i
        for j in range(columns):
            bound = root_left[i] * root_right[j]
            target = kappa * c[i, j] + shift_left[i] + shift_right[j]
            x = min(max(target, -bound), bound)
            # √q1 √q2 - |x| and (√q1 - √q2)² add up to the exponent without cancelling large numbers.
            apart = -0.5 * (root_left[i] - root_right[j]) ** 2 - bound
            f, df, gap = 0.0, 0.0, 0.0
            for step in range(1, MAX_STEPS + 1):
                size = abs(x)
                height = 0.5 * np.exp(apart + size)
                odd = -height * np.expm1(-2.0 * size)
                if x < 0.0:
                    odd = -odd
                even = height * (1.0 + np.exp(-2.0 * size))
                f, df = (odd, even) if sine else (even, odd)
                gap = feedback * f + target - x
                most = max(most, step)
                if feedback == 0.0 or abs(gap) <= 4e-16 * bound:
                    break
                x = min(max(x + gap / max(1.0 - feedback * df, STEEPEST), -bound), bound)
            if feedback > 0.0:
                residual = max(residual, abs(gap) / bound)
            value[i, j] = f
            if want_slope:
                slope[i, j] = df
    return most, residual


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def series_at_pairs(series, scale, first, second, c):  # type: ignore[no-untyped-def]
    """F and F' of listed pairs by their Mehler series, docs/theory.md (3.13) and (3.14).

    series (samples, terms) has the coefficients a_k, scale the roots of the variances, c the covariances of the pairs.
    """
    value, slope = np.empty(len(c)), np.empty(len(c))
    terms = series.shape[1]
    for p in range(len(c)):
        i, j = first[p], second[p]
        length = scale[i] * scale[j]
        rho = min(max(c[p] / length, -1.0), 1.0)
        f, df = 0.0, 0.0
        # Terms whose power of ρ is nothing beside the others are left out.
        needed = terms
        if abs(rho) < 0.9:
            needed = min(terms, 2 + int(LISTED_PRECISION / np.log(max(abs(rho), 1e-9))))
        for k in range(needed - 1, -1, -1):
            df = df * rho + f
            f = f * rho + series[i, k] * series[j, k]
        value[p] = f
        slope[p] = df / length
    return value, slope
