"""Newton's method for the equations over positions, docs/theory.md (10.1): compiled loops, system by system.

`compiled_mixing` says how fields are laid out.  A system goes through all loops of a step before the next one comes, so
that it stays in the cache.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_mixing import (
    OPTIONS,
    along_rows,
    average,
    clear,
    largest,
    outer,
    shifted_sum,
    taps,
)

# Sweeps of one linear equation, at most.
MOST_SWEEPS = 1200
# Linear equations are solved to this part of their residual at a time, at most so often.
QUICK, ROUNDS = 3e-7, 8
# A Newton step solves its linear equation to this times the square of the residual.
SWEEP_GAIN = 0.003
# Closer to ±1 than this, a correlation of the first guess is ±1.
ROUNDING_OF_ONE = 1e-14
# Numbers of the first guess, which is in single precision, are kept within this.
VAST = 1e18
# Rows of single precision that the loops need.
FAST_ROWS = 17


@njit(**OPTIONS)
def _polynomial(rho, terms, odd, x, found):  # type: ignore[no-untyped-def]
    """Σ terms x^k, times ρ if odd; an odd number of terms, two at a time."""
    last, count = len(terms) - 1, len(found)
    top = terms[last, :count]
    for k in range(count):
        found[k] = top[k]
    for t in range(last - 2, -1, -2):
        one, two = terms[t, :count], terms[t + 1, :count]
        for k in range(count):
            found[k] = one[k] + x[k] * (two[k] + x[k] * found[k])
    if odd:
        for k in range(count):
            found[k] *= rho[k]


@njit(**OPTIONS)
def predict(  # type: ignore[no-untyped-def]
    left,
    right,
    entering,
    over,
    scale,
    lines,
    starts,
    geometry,
    feedback,
    powers,
    spectrum,
    sweeps,
    fast,
    covariance,
):
    """A first guess of Λ: (10.1) with a polynomial in ρ in the place of F, by a few sweeps of Chebyshev's iteration.

    `left` and `right` (samples, terms, positions) have the factors of its coefficients, `powers` the first power of ρ
    and the step to the next, `spectrum` the middle of the eigenvalues of I - σ_a² 𝒜F' and half of the length of their
    interval; `covariance` comes with the factors by which `entering` is to be multiplied to begin with.
    """
    line, step, vertical, horizontal, pairs = geometry[2], geometry[3], geometry[4], geometry[5], geometry[7]
    guard, factors = vertical * line + horizontal * step, np.empty(3, dtype=fast.dtype)
    middle, half = spectrum
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        enters, inverse, most, known = (
            entering[begin:end],
            over[begin:end],
            scale[begin:end],
            covariance[begin:end],
        )
        for k in range(count):
            known[k] = min(max(known[k] * enters[k], -most[k]), most[k])
        if sweeps == 0:
            continue
        mixed, source, size, guess, move, rho, x = (
            fast[0, guard : guard + count], fast[2, :count], fast[3, :count], fast[4, :count], fast[5, :count],
            fast[6, :count], fast[7, :count],
        )  # fmt: skip
        terms = fast[8 : 8 + left.shape[1]]
        for k in range(count):
            source[k] = min(max(enters[k], -VAST), VAST)
            guess[k] = min(max(known[k], -VAST), VAST)
        for k in range(count):
            size[k] = min(inverse[k], VAST)
        i, j = (0, 0) if pairs else (number % len(left), number // len(left))
        met = lines[begin // line : end // line] if pairs else lines
        for t in range(len(terms)):
            outer(left[i, t : t + 1], right[j, t : t + 1], met, geometry, terms[t, :count])
        clear(fast, count, guard)
        last = half / middle
        factors[0], factors[1], factors[2] = 0.0, 1.0 / middle, feedback / taps(geometry)
        for k in range(count):
            move[k] = 0.0
        for _ in range(sweeps):
            for k in range(count):
                rho[k] = guess[k] * size[k]
            if powers[1] == 1:
                for k in range(count):
                    x[k] = rho[k]
            else:
                for k in range(count):
                    x[k] = rho[k] * rho[k]
            _polynomial(rho, terms, powers[0] == 1, x, mixed)
            average(fast, count, geometry)
            for k in range(count):
                mixed[k] = source[k] + factors[2] * mixed[k] - guess[k]
            for k in range(count):
                moved = factors[0] * move[k] + factors[1] * mixed[k]
                move[k] = moved
                guess[k] += moved
            factor = 1.0 / (2.0 * middle - half * last)
            factors[0], factors[1] = half * factor * last, 2.0 * factor
            last = half * factor
        for k in range(count):
            # Equal surroundings stay at ρ = ±1, where single precision would not find them.
            moves = abs(known[k]) < most[k] * (1.0 - ROUNDING_OF_ONE)
            known[k] = min(max(guess[k], -most[k]), most[k]) if moves else known[k]


@njit(**OPTIONS)
def sweep(count, middle, half, share, goal, geometry, fast):  # type: ignore[no-untyped-def]
    """Chebyshev's iteration in the precision of `fast`, until the mean square of the weighted residual is `goal`².

    In `fast` stand, after the two rows of `average`, slopes, what is wanted, weights, the solution and the last move.
    """
    line, vertical = geometry[2], geometry[4]
    guard = vertical * line + geometry[5] * geometry[3]
    mixed, gains, wanted, size = (
        fast[0, guard : guard + count],
        fast[2, :count],
        fast[3, :count],
        fast[4, :count],
    )
    result, move = fast[5, :count], fast[6, :count]
    # Numbers of this precision: others would make double precision of every product.
    factors = np.empty(4, dtype=fast.dtype)
    factors[0], factors[1] = 1.0 / middle, share
    last = half / middle
    for k in range(count):
        move[k] = factors[0] * wanted[k]
        result[k] = move[k]
    for k in range(count):
        mixed[k] = gains[k] * result[k]
    clear(fast, count, guard)
    for _ in range(MOST_SWEEPS):
        along_rows(fast, count, geometry)
        if vertical == 1:
            summed, above, below = (
                fast[1, guard : guard + count],
                fast[1, guard - line : guard - line + count],
                fast[1, guard + line : guard + line + count],
            )
            for k in range(count):
                mixed[k] = wanted[k] - result[k] + factors[1] * (above[k] + summed[k] + below[k])
        else:
            shifted_sum(fast[1], guard, count, line, vertical, fast[0])
            for k in range(count):
                mixed[k] = wanted[k] - result[k] + factors[1] * mixed[k]
        total = factors[1] - factors[1]
        for k in range(count):
            weighted = mixed[k] * size[k]
            total += weighted * weighted
        if total <= goal * goal * count:
            break
        factor = 1.0 / (2.0 * middle - half * last)
        factors[2], factors[3] = half * factor * last, 2.0 * factor
        last = half * factor
        for k in range(count):
            moved = factors[2] * move[k] + factors[3] * mixed[k]
            found = result[k] + moved
            move[k] = moved
            result[k] = found
            mixed[k] = gains[k] * found


@njit(**OPTIONS)
def _resolve(wanted, size, gains, result, geometry, feedback, residual, goal, cautious, work, fast):  # type: ignore[no-untyped-def]
    """Solve (I - σ_a² 𝒜F') result = wanted in one system; see `resolve`."""
    guard, share, count = (
        geometry[4] * geometry[2] + geometry[5] * geometry[3],
        feedback / taps(geometry),
        len(wanted),
    )
    mixed = work[0, guard : guard + count]
    quick, remaining, weights, correction = fast[2, :count], fast[3, :count], fast[4, :count], fast[5, :count]
    for k in range(count):
        mixed[k] = abs(gains[k])
    rate, negative = feedback * largest(mixed), 0.0
    for k in range(count):
        negative += mixed[k] - gains[k]
    middle, half = (1.0 - rate / 3.0, 2.0 * rate / 3.0) if negative == 0.0 else (1.0, 0.0)
    if rate >= 1.0 or (cautious and residual > 0.1 * (1.0 - rate) ** 2):
        # Newton's step could go anywhere: that of plain iteration.
        for k in range(count):
            result[k] = wanted[k]
        return
    for k in range(count):
        quick[k] = gains[k]
    for k in range(count):
        weights[k] = size[k]
    for k in range(count):
        result[k] = 0.0
    for k in range(count):
        mixed[k] = wanted[k]
    clear(work, count, guard)
    for _ in range(ROUNDS):
        total = 0.0
        for k in range(count):
            total += (mixed[k] * size[k]) ** 2
        left = np.sqrt(total / count)
        if left <= goal:
            break
        for k in range(count):
            remaining[k] = mixed[k]
        sweep(count, middle, half, share, max(goal, QUICK * left), geometry, fast)
        for k in range(count):
            result[k] += correction[k]
        if goal >= QUICK * left:
            break
        for k in range(count):
            mixed[k] = gains[k] * result[k]
        average(work, count, geometry)
        for k in range(count):
            mixed[k] = wanted[k] - result[k] + share * mixed[k]


@njit(**OPTIONS)
def resolve(target, weight, slope, starts, geometry, feedback, goal, work, fast, found):  # type: ignore[no-untyped-def]
    """Solve (I - σ_a² 𝒜F') found = target in every system, until the mean square of the weighted residual is `goal`².

    The sweeps are in the precision of `fast`; residuals are taken in double precision and what is left is solved for
    again.  With F' ≥ 0 the eigenvalues of σ_a² 𝒜F' are real and between -r/3 and r, r = σ_a² max F': those of the
    average over an odd number of taps are between -1/3 and 1, which Chebyshev's iteration uses.  Otherwise all that is
    known is that they are within a circle of radius r, and the iteration is the Neumann series.
    """
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        _resolve(
            target[begin:end], weight[begin:end], slope[begin:end], found[begin:end], geometry, feedback, 0.0, goal,
            False, work, fast,
        )  # fmt: skip


@njit(**OPTIONS)
def newton(  # type: ignore[no-untyped-def]
    value, slope, entering, over, scale, held, starts, systems, geometry, feedback, enough, finest, cautious, work,
    fast, covariance, step, residuals,
):  # fmt: skip
    """The residual of each system, its largest gap relative to √(q q'), and Newton's step where it is above `enough`.

    The gap is σ_a² 𝒜F + entering - Λ; linear equations are solved no further than to `finest`.  Where the slopes are so
    steep that the linear equation is no contraction, or, if `cautious`, nearly none for so large a residual, the step
    is that of plain iteration.  No step goes beyond |ρ| = 1 or moves the entries `held`; `step` becomes what was taken.
    """
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], feedback / taps(geometry)
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        own, into, gap = value[begin:end], work[0, guard : guard + count], work[2, :count]
        enters, known, inverse = entering[begin:end], covariance[begin:end], over[begin:end]
        for k in range(count):
            into[k] = own[k]
        clear(work, count, guard)
        average(work, count, geometry)
        for k in range(count):
            gap[k] = share * into[k] + enters[k] - known[k]
        for k in range(count):
            into[k] = abs(gap[k]) * inverse[k]
        residuals[number] = largest(into)
        if residuals[number] <= enough:
            continue
        taken, most = step[begin:end], scale[begin:end]
        goal = max(SWEEP_GAIN * residuals[number] ** 2, finest)
        _resolve(
            gap,
            inverse,
            slope[begin:end],
            taken,
            geometry,
            feedback,
            residuals[number],
            goal,
            cautious,
            work,
            fast,
        )
        for place in held:
            if begin <= place < end:
                step[place] = 0.0
        for k in range(count):
            moved = min(max(known[k] + taken[k], -most[k]), most[k])
            taken[k] = moved - known[k]
            known[k] = moved


@njit(**OPTIONS)
def left_out(step, over, covariance, starts, systems, kinked, scratch, result):  # type: ignore[no-untyped-def]
    """What Taylor's formula of first order leaves out of F', on average over a system.

    Δρ²/(1 - |ρ|)^{3/2} with a kink, where F' has a root at ρ = ±1; Δρ²/(1 - |ρ|)^{1/2} if φ' does not jump.
    """
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        moved, inverse, entry, room = (
            step[begin:end],
            over[begin:end],
            covariance[begin:end],
            scratch[begin:end],
        )
        for k in range(count):
            room[k] = max(1.0 - abs(entry[k] * inverse[k]), 1e-14)
        total = 0.0
        for k in range(count):
            change = moved[k] * inverse[k]
            sharp = room[k] if kinked else 1.0
            total += change * change / (sharp * np.sqrt(room[k]))
        result[number] = total / count


@njit(**OPTIONS)
def carry(step, over, bend, starts, systems, slope, value):  # type: ignore[no-untyped-def]
    """F and F' along a step so small that what Taylor's formula leaves out is smaller than rounding."""
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        moved, inverse, bent = step[begin:end], over[begin:end], bend[begin:end]
        rises, found = slope[begin:end], value[begin:end]
        for k in range(end - begin):
            bent[k] *= moved[k] * inverse[k]
        for k in range(end - begin):
            found[k] += moved[k] * (rises[k] + 0.5 * bent[k])
        for k in range(end - begin):
            rises[k] += bent[k]


__all__ = ["FAST_ROWS", "carry", "left_out", "newton", "predict", "resolve", "sweep"]
