"""The inner loops for images: one pair of samples at a time, in the cache.

A pair of samples has a few thousand covariances, so that everything a solver needs of one pair stays in the first
caches.  Loops over positions are innermost and free of branches.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.polynomial import Chebyshev, Polynomial

from notsodeep.pairs.compiled_series import FAST
from notsodeep.validation import Array

# Newton steps of one pair.
MAX_STEPS = 60
# Positions that are worked on at once.
STRIP = 64
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
    place, sign = np.zeros(STRIP), np.zeros(STRIP)
    later, latest, second, first = np.zeros(STRIP), np.zeros(STRIP), np.zeros(STRIP), np.zeros(STRIP)
    for p in range(len(series)):
        begin = p * STRIP
        here = min(STRIP, len(covariance) - begin)
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
        # All of a strip, filled up or not: a fixed length vectorises best.
        for s in range(STRIP):
            later[s] = 0.0
            latest[s] = 0.0
            second[s] = 0.0
            first[s] = 0.0
        for k in range(count - 1, 0, -1):
            values, rises = series[p, k], series[p, count + k]
            for s in range(STRIP):
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
    """The average over the taps of a field over all pairs of positions, both shifted together: result = 𝒜 field.

    Fields are laid out (y, y', x, x'), so that all sums run along contiguous memory; `work` holds twice the square of
    the padded width, zero where borders are zero.
    """
    wide, area = width + 2 * horizontal, width * width
    padded, total = work[: wide * wide], work[wide * wide :]
    taps = 1.0 / ((2 * vertical + 1) * (2 * horizontal + 1))
    begin, run = horizontal * (wide + 1), width * wide - 2 * horizontal
    middle = padded[begin : begin + run]
    # Views, because loops vectorise where an index is a plain counter.
    for y in range(height):
        for other in range(height):
            base = (y * height + other) * area
            block, own = result[base : base + area], field[base : base + area]
            for k in range(area):
                block[k] = own[k]
            for shift in range(-vertical, vertical + 1):
                first, second = y + shift, other + shift
                if circular:
                    first, second = first % height, second % height
                inside = min(first, second) >= 0 and max(first, second) < height
                if shift != 0 and inside:
                    start = (first * height + second) * area
                    source = field[start : start + area]
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
def _gathered(field, position, height, width, part):  # type: ignore[no-untyped-def]
    """The entries of one position of the first sample with all of the second, in a row."""
    y, x = position // width, position % width
    for other in range(height):
        base = ((y * height + other) * width + x) * width
        for k in range(width):
            part[other * width + k] = field[base + k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _scattered(part, position, height, width, field):  # type: ignore[no-untyped-def]
    """Put a row of entries back to its place: the inverse of `_gathered`."""
    y, x = position // width, position % width
    for other in range(height):
        base = ((y * height + other) * width + x) * width
        for k in range(width):
            field[base + k] = part[other * width + k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _look_up(covariance, fixed, series, coordinate, grid, value, slope):  # type: ignore[no-untyped-def]
    """F and F' from the table, of the diagonal at once or of all pairs row by row; `fixed` holds what stays."""
    if not grid[5]:
        _interpolate(covariance, fixed[0], fixed[1], fixed[2], fixed[3], series[0], coordinate, value, slope)
        return
    height, width = grid[0], grid[1]
    size = height * width
    rows, found = np.empty((5, size)), np.empty((2, size))
    for position in range(size):
        _gathered(covariance, position, height, width, rows[0])
        for number in range(4):
            _gathered(fixed[number], position, height, width, rows[number + 1])
        _interpolate(
            rows[0], rows[1], rows[2], rows[3], rows[4], series[position], coordinate, found[0], found[1]
        )
        _scattered(found[0], position, height, width, value)
        _scattered(found[1], position, height, width, slope)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _mix(field, grid, padded, rows, result):  # type: ignore[no-untyped-def]
    """𝒜 of a field over the diagonal, or over all pairs of positions if `grid` says so."""
    height, width, vertical, horizontal, circular, pairs = grid
    if pairs:
        _mixed_pairs(field, height, width, vertical, horizontal, circular, padded, result)
    else:
        _mixed(field, height, width, vertical, horizontal, circular, padded, rows, result)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _solve(  # type: ignore[no-untyped-def]
    forcing, covariance, scale, fixed, rest, own, grid, padded, rows,
    feedback, slopes, series, coordinate, rate, sweeps, tolerance, want_tangent,
):  # fmt: skip
    """ΣF and Σ(F + BΛ) over the entries of one field, Newton steps and residual: (10.1) to (10.3) in units of R.

    `fixed` (4, entries) holds 1/√(q q'), √(S S'), √(E1 E1') and the constant part of F; `own` lists entries where a
    position meets itself; `rest` (2, entries) has F and F' of entries without signal, or is empty; `series` is the
    table, one for the diagonal or one for each position of the first sample, or empty.
    """
    linear, bent = slopes
    count = len(forcing)
    over, energy, steep, lift = fixed[0], fixed[1], fixed[2], fixed[3]
    mixed, value, slope = np.empty(count), np.empty(count), np.empty(count)
    step, gap = np.empty(count), np.empty(count)
    residual, steps = np.inf, 0
    for number in range(MAX_STEPS):
        if len(series):
            _look_up(covariance, fixed, series, coordinate, grid, value, slope)
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
        residual = 0.0
        for s in range(count):
            gap[s] = feedback * mixed[s] + forcing[s] - covariance[s]
            residual = max(residual, abs(gap[s]) * over[s])
        if residual <= tolerance or len(own) == count:
            break
        steps = number + 1
        for s in range(count):
            step[s] = gap[s]
        for _ in range(sweeps):
            for s in range(count):
                value[s] = slope[s] * step[s]
            _mix(value, grid, padded, rows, mixed)
            for s in range(count):
                step[s] = gap[s] + feedback * mixed[s]
        for s in range(count):
            covariance[s] = min(max(covariance[s] + step[s], -scale[s]), scale[s])
    features = 0.0
    for s in range(count):
        features += value[s]
    tangent = features
    if want_tangent:
        # B = F' (1 + σ_a² 𝒜B).
        for s in range(count):
            step[s] = slope[s]
        change = 1.0
        while feedback > 0.0 and change * rate > tolerance * (1.0 - rate):
            _mix(step, grid, padded, rows, mixed)
            change = 0.0
            for s in range(count):
                moved = slope[s] * (1.0 + feedback * mixed[s])
                change = max(change, abs(moved - step[s]))
                step[s] = moved
        for s in range(count):
            tangent += step[s] * covariance[s]
    return features, tangent, steps, residual


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def equilibrium_images(  # type: ignore[no-untyped-def]
    first, others, side, sides, grid, equation, slopes, series, coordinate,
    weight, rate, sweeps, tolerance, want_tangent, features, tangents,
):  # fmt: skip
    """G and Θ with the readout "flatten" of one sample with others, docs/theory.md (10.1) to (10.3).

    `first` (channels, positions) and `others` (samples, channels, positions) are the samples.  `side` and `sides` hold
    for each of their positions √q, 1/√q, the constant part of F, √(q over what the input alone gives), √S, √E1, M_0 and
    M_1 in this order, (8, positions) and (samples, 8, positions).  `grid` holds height, width, taps beyond the middle,
    whether borders wrap, and whether fields are over all pairs of positions; `equation` feedback, gain and constant.
    F is linear · c + bent · √(q q') J(ρ) + constants with (linear, bent) = `slopes`, or, where `series` (samples,
    strips, 2K, STRIP) is not empty, the table.  Returns Newton steps and the largest residual, which is above the
    tolerance if some pair did not converge.
    """
    height, width, vertical, horizontal = grid[0], grid[1], grid[2], grid[3]
    feedback, gain, constant = equation
    channels, count = first.shape
    padded = np.zeros((height + 2 * vertical) * (width + 2 * horizontal))
    rows = np.zeros(width + 2 * horizontal)
    forcing, covariance = np.empty(count), np.empty(count)
    scale, fixed, rest = np.empty(count), np.empty((4, count)), np.empty((2, count))
    everywhere = np.arange(count)
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
        total, tangent, taken, residual = _solve(
            forcing, covariance, scale, fixed, rest if still else rest[:, :0], own, grid, padded, rows, feedback,
            slopes, series[j : j + 1], coordinate, rate, sweeps, tolerance, want_tangent,
        )  # fmt: skip
        features[j], tangents[j] = weight * total, weight * tangent
        steps, worst = max(steps, taken), max(worst, residual)
    return steps, worst


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def equilibrium_pooled(  # type: ignore[no-untyped-def]
    first, second, side, other, grid, equation, slopes, series, coordinate,
    weight, rate, sweeps, tolerance, want_tangent,
):  # fmt: skip
    """G, Θ, Newton steps and residual with the readout "pool" of two samples, over all pairs of their positions.

    The arguments are those of `equilibrium_images` for one sample instead of others; `series` (positions, strips, 2K,
    STRIP) has the table for each position of the first sample with those of the second.
    """
    feedback, gain, constant = equation
    channels, positions = first.shape
    count = positions * positions
    height, width = grid[0], grid[1]
    forcing, covariance, scale = np.empty(count), np.zeros(count), np.empty(count)
    fixed, rest = np.empty((4, count)), np.empty((2, count))
    work, rows = np.zeros(2 * (width + 2 * grid[3]) ** 2), np.empty(0)
    own = np.empty(positions, dtype=np.int64)
    for s in range(positions):
        for t in range(positions):
            k = ((s // width * height + t // width) * width + s % width) * width + t % width
            for channel in range(channels):
                covariance[k] += first[channel, s] * second[channel, t]
            scale[k] = side[0, s] * other[0, t]
            fixed[0, k] = side[1, s] * other[1, t]
            fixed[1, k] = side[4, s] * other[4, t]
            fixed[2, k] = side[5, s] * other[5, t]
            fixed[3, k] = side[2, s] + other[2, t]
            rest[0, k] = side[6, s] * other[6, t]
            rest[1, k] = side[7, s] * other[7, t]
            if s == t:
                own[s] = k
    _mix(covariance, grid, work, rows, forcing)
    still = False
    for s in range(positions):
        for t in range(positions):
            k = ((s // width * height + t // width) * width + s % width) * width + t % width
            forcing[k] = gain * forcing[k] + constant
            begin = forcing[k] * side[3, s] * other[3, t]
            covariance[k] = min(max(begin, -scale[k]), scale[k])
            still = still or fixed[0, k] == 0.0
    total, tangent, steps, residual = _solve(
        forcing, covariance, scale, fixed, rest if still else rest[:, :0],
        own if _equal(first, second) else own[:0], grid, work, rows, feedback, slopes, series, coordinate, rate, sweeps,
        tolerance, want_tangent,
    )  # fmt: skip
    return weight * total, weight * tangent, steps, residual


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
