"""The inner loops for images: one pair of samples at a time, in the cache.

A pair of samples has a few thousand covariances, so that everything a solver needs of one pair stays in the first
caches.  Loops over positions are innermost and free of branches.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.polynomial import Chebyshev, Polynomial

from notsodeep.pairs.compiled_powers import power_sums, power_sums_of_pairs
from notsodeep.pairs.compiled_series import FAST
from notsodeep.pairs.field_series import TRUNCATION
from notsodeep.validation import Array

# Newton steps of one pair.
MAX_STEPS = 60
# Positions that are worked on at once.
STRIP = 64
# What a power series may leave out in the first, the second and all later Newton steps: residuals are about 1e-1,
# 1e-4 and 1e-8 before they are zero to rounding.
LEFT_OUT = (1e-5, 1e-9, TRUNCATION)
# Below this residual F and F' follow the last step by their derivatives.
CARRIED = 1e-7
# A Newton step solves its linear equation to this factor, the last one about to rounding, by at most so many sweeps.
SWEEP_GAIN, SOLVED, MOST_SWEEPS = 1e-5, 2e-15, 1200
# Correlations closer to ±1 than this are taken for ±1.
ROUNDING = 4e-15


def _arccos_series(y: Array, integrated: bool) -> Array:
    """arccos(1 - y)/√y = √2 Σ (2n)!/(8ⁿ n!² (2n+1)) yⁿ, or ∫₀ʸ arccos(1 - t) dt/y^{3/2} by the same series."""
    total, factor, power = np.zeros_like(y), 1.0, np.ones_like(y)
    for n in range(120):
        total += factor / (2 * n + 1) / (n + 1.5 if integrated else 1.0) * power
        factor *= (2 * n + 1) * (2 * n + 2) / (8.0 * (n + 1) ** 2)
        power = power * y
    return np.asarray(np.sqrt(2.0) * total)


def _polynomial(degree: int, integrated: bool) -> tuple[float, ...]:
    fit = Chebyshev.interpolate(lambda y: _arccos_series(y, integrated), degree, domain=[0.0, 1.0])
    return tuple(float(c) for c in fit.convert(kind=Polynomial).coef)


# Both are right to 3e-15 on [0, 1].
ANGLE = _polynomial(16, False)
LAG = _polynomial(15, True)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST, inline="always")
def _angle(y):  # type: ignore[no-untyped-def]
    """arccos(1 - y)/√y."""
    p = ANGLE[16]
    p = p * y + ANGLE[15]
    p = p * y + ANGLE[14]
    p = p * y + ANGLE[13]
    p = p * y + ANGLE[12]
    p = p * y + ANGLE[11]
    p = p * y + ANGLE[10]
    p = p * y + ANGLE[9]
    p = p * y + ANGLE[8]
    p = p * y + ANGLE[7]
    p = p * y + ANGLE[6]
    p = p * y + ANGLE[5]
    p = p * y + ANGLE[4]
    p = p * y + ANGLE[3]
    p = p * y + ANGLE[2]
    p = p * y + ANGLE[1]
    return p * y + ANGLE[0]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST, inline="always")
def _lag(y):  # type: ignore[no-untyped-def]
    """(√(1-ρ²) - ρ arccos ρ)/y^{3/2} at ρ = 1 - y."""
    p = LAG[15]
    p = p * y + LAG[14]
    p = p * y + LAG[13]
    p = p * y + LAG[12]
    p = p * y + LAG[11]
    p = p * y + LAG[10]
    p = p * y + LAG[9]
    p = p * y + LAG[8]
    p = p * y + LAG[7]
    p = p * y + LAG[6]
    p = p * y + LAG[5]
    p = p * y + LAG[4]
    p = p * y + LAG[3]
    p = p * y + LAG[2]
    p = p * y + LAG[1]
    return p * y + LAG[0]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _evaluate(covariance, inverse, root, linear, bent, lift, value, slope):  # type: ignore[no-untyped-def]
    """F and F' at every position, (3.20): F is even in ρ but for its linear part, F' odd but for a constant."""
    quarter = 0.5 * np.pi
    for s in range(len(covariance)):
        c = covariance[s]
        rho = c * inverse[s]
        size = min(abs(rho), 1.0)
        # Equal surroundings have ρ = 1 but for rounding, of which the root would make half of the digits.
        size = 1.0 if size > 1.0 - ROUNDING else size
        y = 1.0 - size
        w = np.sqrt(y)
        angle = quarter - w * _angle(y)
        even = quarter * size + y * w * _lag(y)
        value[s] = linear * c + bent * root[s] * even + lift[s]
        slope[s] = linear + bent * np.copysign(angle, rho)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def contracted(rows, columns, series):  # type: ignore[no-untyped-def]
    """The table at the variances of pairs: series[j, p, k] = Σ_r rows[p, k, r] columns[j, p, r], strip p by strip.

    All of them end with the positions of a strip; the rank is a multiple of four.
    """
    strips, orders, rank, _ = rows.shape
    total = np.zeros(STRIP)
    for p in range(strips):
        for j in range(len(columns)):
            for k in range(orders):
                for s in range(STRIP):
                    total[s] = 0.0
                for r in range(0, rank, 4):
                    for s in range(STRIP):
                        total[s] += (
                            rows[p, k, r, s] * columns[j, p, r, s]
                            + rows[p, k, r + 1, s] * columns[j, p, r + 1, s]
                            + rows[p, k, r + 2, s] * columns[j, p, r + 2, s]
                            + rows[p, k, r + 3, s] * columns[j, p, r + 3, s]
                        )
                for s in range(STRIP):
                    series[j, p, k, s] = total[s]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _interpolate(covariance, inverse, energy, steep, lift, series, coordinate, value, slope):  # type: ignore[no-untyped-def]
    """F and F' at every position, from the table: `coordinate` holds ε, the ends of t, and whether φ is odd."""
    epsilon, start, stop, odd = coordinate
    count = series.shape[1] // 2
    square = epsilon * epsilon
    lanes = series.shape[2]
    place, sign, work = np.zeros(lanes), np.zeros(lanes), np.zeros((4, lanes))
    later, latest, second, first = work[0], work[1], work[2], work[3]
    for p in range(len(series)):
        begin = p * lanes
        here = min(lanes, len(covariance) - begin)
        end = begin + here
        entry, over = covariance[begin:end], inverse[begin:end]
        for s in range(here):
            rho = min(max(entry[s] * over[s], -1.0), 1.0)
            sign[s] = np.copysign(1.0, rho) if odd else 1.0
            rho *= sign[s]
            near, far = 0.5 * (1.0 - rho), 0.5 * (1.0 + rho)
            # (3.28): the coordinate in which F is smooth up to both ends.
            t = np.log((np.sqrt(near) + np.sqrt(near + square)) / (np.sqrt(far) + np.sqrt(far + square)))
            place[s] = (2.0 * t - start - stop) / (stop - start)
        for s in range(lanes):
            later[s] = 0.0
            latest[s] = 0.0
            second[s] = 0.0
            first[s] = 0.0
        for k in range(count - 1, 0, -1):
            values, rises = series[p, k], series[p, count + k]
            for s in range(lanes):
                twice = 2.0 * place[s]
                moved = values[s] + twice * later[s] - latest[s]
                latest[s] = later[s]
                later[s] = moved
                turned = rises[s] + twice * second[s] - first[s]
                first[s] = second[s]
                second[s] = turned
        values, rises = series[p, 0], series[p, count]
        found, risen = value[begin:end], slope[begin:end]
        own, steeper, constant = energy[begin:end], steep[begin:end], lift[begin:end]
        for s in range(here):
            z = place[s]
            found[s] = sign[s] * own[s] * (values[s] + z * later[s] - latest[s]) + constant[s]
            risen[s] = steeper[s] * (rises[s] + z * second[s] - first[s])


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _pad(field, height, width, vertical, horizontal, circular, padded):  # type: ignore[no-untyped-def]
    """Copy a field into the middle of `padded`; around it stands the opposite side, or what was there (zeros)."""
    wide = width + 2 * horizontal
    # Views, because loops vectorise where an index is a plain counter.
    for y in range(height):
        start = (y + vertical) * wide + horizontal
        into, line = padded[start : start + width], field[y * width : (y + 1) * width]
        for x in range(width):
            into[x] = line[x]
    if circular:
        for y in range(vertical, height + vertical):
            for x in range(horizontal):
                padded[y * wide + x] = padded[y * wide + x + width]
                padded[y * wide + width + horizontal + x] = padded[y * wide + horizontal + x]
        for y in range(vertical):
            for x in range(wide):
                padded[y * wide + x] = padded[(y + height) * wide + x]
                padded[(y + height + vertical) * wide + x] = padded[(y + vertical) * wide + x]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _mixed(field, height, width, vertical, horizontal, circular, padded, rows, result):  # type: ignore[no-untyped-def]
    """The average over the taps: result = 𝒜 field.  `padded` has the borders, `rows` the sums along columns."""
    wide = width + 2 * horizontal
    taps = 1.0 / ((2 * vertical + 1) * (2 * horizontal + 1))
    _pad(field, height, width, vertical, horizontal, circular, padded)
    for y in range(height):
        line = padded[y * wide : (y + 1) * wide]
        for x in range(wide):
            rows[x] = line[x]
        for shift in range(1, 2 * vertical + 1):
            below = padded[(y + shift) * wide : (y + shift + 1) * wide]
            for x in range(wide):
                rows[x] += below[x]
        found = result[y * width : (y + 1) * width]
        for x in range(width):
            found[x] = rows[x]
        for shift in range(1, 2 * horizontal + 1):
            beside = rows[shift : shift + width]
            for x in range(width):
                found[x] += beside[x]
        for x in range(width):
            found[x] *= taps


@njit(cache=True, nogil=True)
def _equal(first, second):  # type: ignore[no-untyped-def]
    """Whether two samples are the same."""
    for channel in range(first.shape[0]):
        for s in range(first.shape[1]):
            if first[channel, s] != second[channel, s]:
                return False
    return True


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _mixed_pairs(field, height, width, vertical, horizontal, circular, work, result):  # type: ignore[no-untyped-def]
    """The average over the taps of a field over pairs of positions, both shifted together: result = 𝒜 field.

    Fields are laid out (y, x, x'), y' being y and a fixed distance, so that all sums run along contiguous memory;
    `work` holds twice the square of the padded width, zero where borders are zero.
    """
    wide, area = width + 2 * horizontal, width * width
    padded, total = work[: wide * wide], work[wide * wide :]
    taps = 1.0 / ((2 * vertical + 1) * (2 * horizontal + 1))
    begin, run = horizontal * (wide + 1), width * wide - 2 * horizontal
    middle = padded[begin : begin + run]
    # Views, because loops vectorise where an index is a plain counter.
    for y in range(height):
        block, own = result[y * area : (y + 1) * area], field[y * area : (y + 1) * area]
        for k in range(area):
            block[k] = own[k]
        for shift in range(-vertical, vertical + 1):
            other = (y + shift) % height if circular else y + shift
            if shift != 0 and 0 <= other < height:
                source = field[other * area : (other + 1) * area]
                for k in range(area):
                    block[k] += source[k]
        _pad(block, width, width, horizontal, horizontal, circular, padded)
        for k in range(run):
            total[k] = middle[k]
        for shift in range(1, horizontal + 1):
            step = shift * (wide + 1)
            before, after = (
                padded[begin - step : begin - step + run],
                padded[begin + step : begin + step + run],
            )
            for k in range(run):
                total[k] += before[k] + after[k]
        for x in range(width):
            line, found = block[x * width : (x + 1) * width], total[x * wide : x * wide + width]
            for k in range(width):
                line[k] = taps * found[k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _look_up(covariance, fixed, series, coordinate, grid, lines, value, slope):  # type: ignore[no-untyped-def]
    """F and F' from the table, of the diagonal at once or of pairs strip by strip; `fixed` holds what stays."""
    if not grid[5]:
        _interpolate(covariance, fixed[0], fixed[1], fixed[2], fixed[3], series[0], coordinate, value, slope)
        return
    width, lanes = grid[1], series.shape[3]
    parts = -(-width // lanes)
    for run in range(len(lines) * width * parts):
        part, column, row = run % parts, run // parts % width, run // (parts * width)
        position, strip = lines[row, 0] * width + column, lines[row, 1] * parts + part
        begin = (row * width + column) * width + part * lanes
        end = begin + min(lanes, width - part * lanes)
        _interpolate(
            covariance[begin:end], fixed[0, begin:end], fixed[1, begin:end], fixed[2, begin:end], fixed[3, begin:end],
            series[position, strip : strip + 1], coordinate, value[begin:end], slope[begin:end],
        )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _sum_up(covariance, fixed, powers, grid, lines, truncation, value, slope, bend):  # type: ignore[no-untyped-def]
    """F, F' and F'' from Mehler series, of the diagonal or of pairs; see `equilibrium_images` for `powers`."""
    left, right, orders = powers
    if grid[5]:
        power_sums_of_pairs(
            covariance,
            fixed[0],
            fixed[3],
            left,
            right,
            orders,
            truncation,
            grid[1],
            lines,
            value,
            slope,
            bend,
        )
    else:
        power_sums(covariance, fixed[0], fixed[3], left, right, orders, truncation, value, slope, bend)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _mix(field, grid, padded, rows, result):  # type: ignore[no-untyped-def]
    """𝒜 of a field over the diagonal, or over pairs of positions if `grid` says so."""
    height, width, vertical, horizontal, circular, pairs = grid
    if pairs:
        _mixed_pairs(field, height, width, vertical, horizontal, circular, padded, result)
    else:
        _mixed(field, height, width, vertical, horizontal, circular, padded, rows, result)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _resolve(target, weight, slope, grid, padded, rows, feedback, goal, work, found):  # type: ignore[no-untyped-def]
    """Solve (I - σ_a² 𝒜F') found = target by Chebyshev's iteration, up to a residual of `goal`, weighted.

    With F' ≥ 0 the eigenvalues of σ_a² 𝒜F' are real and between -r/3 and r, r = σ_a² max F': those of the average over
    an odd number of taps are between -1/3 and 1.  Otherwise all that is known is that they are within a circle of
    radius r, and the iteration is the Neumann series.
    """
    count = len(target)
    scaled, mixed, move = work[0], work[1], work[2]
    least, most = 0.0, 0.0
    for s in range(count):
        most = max(most, slope[s])
    for s in range(count):
        least = min(least, slope[s])
    rate = feedback * max(most, -least)
    middle, half = (1.0 - rate / 3.0, 2.0 * rate / 3.0) if least >= 0.0 else (1.0, 0.0)
    last = half / middle
    for s in range(count):
        move[s] = target[s] / middle
        found[s] = move[s]
    for _ in range(MOST_SWEEPS):
        for s in range(count):
            scaled[s] = slope[s] * found[s]
        _mix(scaled, grid, padded, rows, mixed)
        left = 0.0
        for s in range(count):
            mixed[s] = target[s] - found[s] + feedback * mixed[s]
        for s in range(count):
            left = max(left, abs(mixed[s]) * weight[s])
        if left <= goal:
            break
        share = 1.0 / (2.0 * middle - half * last)
        keep = half * share * last
        last = half * share
        for s in range(count):
            move[s] = keep * move[s] + 2.0 * share * mixed[s]
            found[s] += move[s]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _solve(  # type: ignore[no-untyped-def]
    forcing, covariance, scale, fixed, rest, own, grid, lines, padded, rows,
    feedback, slopes, series, coordinate, powers, tolerance, want_tangent,
):  # fmt: skip
    """ΣF and Σ(F + BΛ) over the entries of one field, Newton steps and residual: (10.1) to (10.3) in units of R.

    `fixed` (4, entries) holds 1/√(q q'), √(S S'), √(E1 E1') and the constant part of F; `own` lists entries where a
    position meets itself; `rest` (2, entries) has F and F' of entries without signal, or is empty; `series` is the
    table, one for the diagonal or one for each position of the first sample, or empty; `powers` the Mehler series, or
    empty; `lines` the rows of positions that meet, where the field is over pairs.
    """
    linear, bent = slopes
    count = len(forcing)
    over, energy, steep, lift = fixed[0], fixed[1], fixed[2], fixed[3]
    mixed, value, slope, bend = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    step, gap, work = np.empty(count), np.empty(count), np.empty((3, count))
    residual, steps, carried = np.inf, 0, False
    summed = len(powers[0][0]) > 0
    last = len(LEFT_OUT) - 1 if summed else 0
    for number in range(MAX_STEPS):
        if carried:
            # F along so small a step: what Taylor's formula leaves out is smaller than rounding.
            for s in range(count):
                value[s] += step[s] * (slope[s] + 0.5 * bend[s] * step[s])
                slope[s] += bend[s] * step[s]
        elif len(series):
            _look_up(covariance, fixed, series, coordinate, grid, lines, value, slope)
        elif summed:
            _sum_up(covariance, fixed, powers, grid, lines, LEFT_OUT[min(number, last)], value, slope, bend)
        else:
            _evaluate(covariance, over, scale, linear, bent, lift, value, slope)
        # A position with itself: moments of one variable.  From ρ = 1 to rounding, F' of a kinked activation would have
        # half of the digits.
        for s in own:
            covariance[s] = scale[s]
            value[s] = energy[s] + lift[s]
            slope[s] = steep[s]
        if rest.shape[1]:
            # A position without signal is independent of every other.
            for s in range(count):
                if over[s] == 0.0:
                    value[s] = rest[0, s]
                    slope[s] = rest[1, s]
        _mix(value, grid, padded, rows, mixed)
        for s in range(count):
            gap[s] = feedback * mixed[s] + forcing[s] - covariance[s]
        residual = 0.0
        for s in range(count):
            residual = max(residual, abs(gap[s]) * over[s])
        if (residual <= tolerance and number >= last) or len(own) == count:
            break
        steps = number + 1
        carried = summed and number >= last and residual <= CARRIED and not carried
        goal = SWEEP_GAIN * residual if residual > CARRIED else 10.0 * SOLVED
        _resolve(gap, over, slope, grid, padded, rows, feedback, goal, work, step)
        for s in range(count):
            moved = min(max(covariance[s] + step[s], -scale[s]), scale[s])
            step[s] = moved - covariance[s]
            covariance[s] = moved
    features = 0.0
    for s in range(count):
        features += value[s]
    tangent = features
    if want_tangent:
        # B = F' C with C = 1 + σ_a² 𝒜F'C.
        for s in range(count):
            gap[s] = 1.0
        _resolve(gap, gap, slope, grid, padded, rows, feedback, SOLVED, work, step)
        for s in range(count):
            tangent += slope[s] * step[s] * covariance[s]
    return features, tangent, steps, residual


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def equilibrium_images(  # type: ignore[no-untyped-def]
    first, others, side, sides, grid, equation, slopes, series, coordinate, powers,
    weight, tolerance, want_tangent, features, tangents,
):  # fmt: skip
    """G and Θ with the readout "flatten" of one sample with others, docs/theory.md (10.1) to (10.3).

    `first` (channels, positions) and `others` (samples, channels, positions) are the samples.  `side` and `sides` hold
    for each of their positions √q, 1/√q, the constant part of F, √(q over what the input alone gives), √S, √E1, M_0 and
    M_1 in this order, (8, positions) and (samples, 8, positions).  `grid` holds height, width, taps beyond the middle,
    whether borders wrap, and whether fields are over all pairs of positions; `equation` feedback, gain and constant.
    F is linear · c + bent · √(q q') J(ρ) + constants with (linear, bent) = `slopes`, or, where `series` (samples,
    strips, 2K, STRIP) is not empty, the table, or, where `powers` is not empty, the Mehler series: coefficients, starts
    and tails of the first sample, the same of the others, and the first power with the step to the next (`Strips`).
    Returns Newton steps and the largest residual, which is above the tolerance if some pair did not converge.
    """
    height, width, vertical, horizontal = grid[0], grid[1], grid[2], grid[3]
    feedback, gain, constant = equation
    channels, count = first.shape
    padded = np.zeros((height + 2 * vertical) * (width + 2 * horizontal))
    rows = np.zeros(width + 2 * horizontal)
    forcing, covariance = np.empty(count), np.empty(count)
    scale, fixed, rest = np.empty(count), np.empty((4, count)), np.empty((2, count))
    everywhere = np.arange(count)
    left, right, orders = powers
    nothing = np.zeros((0, 2), dtype=np.int64)
    steps, worst = 0, 0.0
    for j in range(len(others)):
        for s in range(count):
            scale[s] = 0.0
        for channel in range(channels):
            for s in range(count):
                scale[s] += first[channel, s] * others[j, channel, s]
        _mix(scale, grid, padded, rows, forcing)
        still = False
        for s in range(count):
            forcing[s] = gain * forcing[s] + constant
            scale[s] = side[0, s] * sides[j, 0, s]
            fixed[0, s] = side[1, s] * sides[j, 1, s]
            fixed[1, s] = side[4, s] * sides[j, 4, s]
            fixed[2, s] = side[5, s] * sides[j, 5, s]
            fixed[3, s] = side[2, s] + sides[j, 2, s]
            # To begin with, the correlation that the input alone gives.
            begin = forcing[s] * side[3, s] * sides[j, 3, s]
            covariance[s] = min(max(begin, -scale[s]), scale[s])
            still = still or fixed[0, s] == 0.0
            rest[0, s] = side[6, s] * sides[j, 6, s]
            rest[1, s] = side[7, s] * sides[j, 7, s]
        own = everywhere if _equal(first, others[j]) else everywhere[:0]
        theirs = (right[0][j], right[1][j], right[2][j]) if len(left[0]) else left
        total, tangent, taken, residual = _solve(
            forcing, covariance, scale, fixed, rest if still else rest[:, :0], own, grid, nothing, padded, rows,
            feedback, slopes, series[j : j + 1], coordinate, (left, theirs, orders), tolerance, want_tangent,
        )  # fmt: skip
        features[j], tangents[j] = weight * total, weight * tangent
        steps, worst = max(steps, taken), max(worst, residual)
    return steps, worst


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def equilibrium_pooled(  # type: ignore[no-untyped-def]
    first, second, side, other, grid, equation, slopes, series, coordinate, powers,
    weight, tolerance, want_tangent,
):  # fmt: skip
    """G, Θ, Newton steps and residual with the readout "pool" of two samples, over all pairs of their positions.

    𝒜 shifts both positions together, so that y' - y stays what it is: each distance of rows is a system of its own,
    small enough for the cache.  The arguments are those of `equilibrium_images` for one sample instead of others;
    `series` (positions, strips, 2K, lanes) has the table for each position of the first sample with those of the
    second; `powers` the Mehler series of the positions of the first sample and of the strips of the second.
    """
    feedback, gain, constant = equation
    height, width, vertical, horizontal, circular, _ = grid
    channels = len(first)
    same = _equal(first, second)
    work, rows = np.zeros(2 * (width + 2 * horizontal) ** 2), np.empty(0)
    features, tangents, steps, worst = 0.0, 0.0, 0, 0.0
    for distance in range(0 if circular else 1 - height, height):
        top = 0 if circular else max(0, -distance)
        bottom = height if circular else min(height, height - distance)
        lines = np.empty((bottom - top, 2), dtype=np.int64)
        for row in range(bottom - top):
            lines[row, 0], lines[row, 1] = top + row, (top + row + distance) % height
        count = len(lines) * width * width
        part = (len(lines), width, vertical, horizontal, circular, True)
        forcing, covariance, scale = np.empty(count), np.zeros(count), np.empty(count)
        fixed, rest = np.empty((4, count)), np.empty((2, count))
        for row in range(len(lines)):
            for x in range(width):
                s, t, k = lines[row, 0] * width + x, lines[row, 1] * width, (row * width + x) * width
                for channel in range(channels):
                    for z in range(width):
                        covariance[k + z] += first[channel, s] * second[channel, t + z]
                for z in range(width):
                    scale[k + z] = side[0, s] * other[0, t + z]
                    fixed[0, k + z] = side[1, s] * other[1, t + z]
                    fixed[1, k + z] = side[4, s] * other[4, t + z]
                    fixed[2, k + z] = side[5, s] * other[5, t + z]
                    fixed[3, k + z] = side[2, s] + other[2, t + z]
                    rest[0, k + z] = side[6, s] * other[6, t + z]
                    rest[1, k + z] = side[7, s] * other[7, t + z]
        _mix(covariance, part, work, rows, forcing)
        still = False
        for row in range(len(lines)):
            for x in range(width):
                s, t, k = lines[row, 0] * width + x, lines[row, 1] * width, (row * width + x) * width
                for z in range(width):
                    forcing[k + z] = gain * forcing[k + z] + constant
                    begin = forcing[k + z] * side[3, s] * other[3, t + z]
                    covariance[k + z] = min(max(begin, -scale[k + z]), scale[k + z])
                    still = still or fixed[0, k + z] == 0.0
        own = np.arange(len(lines) * width if same and distance == 0 else 0)
        # The places (row, x, x) of the field.
        own = own * width + own % width
        total, tangent, taken, residual = _solve(
            forcing, covariance, scale, fixed, rest if still else rest[:, :0], own, part, lines, work, rows, feedback,
            slopes, series, coordinate, powers, tolerance, want_tangent,
        )  # fmt: skip
        features, tangents = features + total, tangents + tangent
        steps, worst = max(steps, taken), max(worst, residual)
    return weight * features, weight * tangents, steps, worst


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def explicit_images(  # type: ignore[no-untyped-def]
    first, others, side, sides, grid, layers, weight, want_tangent, features, tangents
):
    """G and Θ with the readout "flatten" of one sample with others through explicit layers, (10.5) and (10.6).

    The arguments are those of `equilibrium_images`, `side` (layers, 8, positions) and `sides` (samples, layers, 8,
    positions) for every layer; `layers` has for each the variances of the weights, of the weights that read the input
    again and of the bias, and linear and bent of F.
    """
    height, width, vertical, horizontal = grid[0], grid[1], grid[2], grid[3]
    channels, count = first.shape
    depth = len(layers)
    padded = np.zeros((height + 2 * vertical) * (width + 2 * horizontal))
    rows = np.zeros(width + 2 * horizontal)
    entry, mixed, value = np.empty(count), np.empty(count), np.empty(count)
    over, scale, lift = np.empty(count), np.empty(count), np.empty(count)
    covariances, slopes = np.empty((depth, count)), np.empty((depth, count))
    for j in range(len(others)):
        own = _equal(first, others[j])
        for s in range(count):
            value[s] = 0.0
        for channel in range(channels):
            for s in range(count):
                value[s] += first[channel, s] * others[j, channel, s]
        _mix(value, grid, padded, rows, entry)
        for k in range(depth):
            read, again, constant, linear, bent = layers[k]
            here, there = side[k], sides[j, k]
            covariance = covariances[k]
            _mix(value, grid, padded, rows, mixed)
            for s in range(count):
                scale[s] = here[0, s] * there[0, s]
                over[s] = here[1, s] * there[1, s]
                lift[s] = here[2, s] + there[2, s]
                entering = read * mixed[s] + again * entry[s] + constant
                covariance[s] = min(max(entering, -scale[s]), scale[s])
            _evaluate(covariance, over, scale, linear, bent, lift, value, slopes[k])
            for s in range(count):
                if over[s] == 0.0:
                    value[s] = here[6, s] * there[6, s]
                    slopes[k, s] = here[7, s] * there[7, s]
                elif own:
                    covariance[s] = scale[s]
                    value[s] = here[4, s] * there[4, s] + lift[s]
                    slopes[k, s] = here[5, s] * there[5, s]
        total = 0.0
        for s in range(count):
            total += value[s]
        features[j] = weight * total
        if want_tangent:
            for s in range(count):
                value[s] = slopes[depth - 1, s]
            for k in range(depth - 1, -1, -1):
                for s in range(count):
                    total += value[s] * covariances[k, s]
                if k:
                    _mix(value, grid, padded, rows, mixed)
                    for s in range(count):
                        value[s] = slopes[k - 1, s] * layers[k, 0] * mixed[s]
            tangents[j] = weight * total
