"""Newton steps of Λ = σ_a² 𝒜F(Λ) + b over fields, docs/theory.md (10.1): compiled loops, one system after the other.

`mixing.Systems` cuts a field into systems that 𝒜 does not couple.  Each is gathered into a work array that stays in the
cache while its linear equation is solved.  Fields are flat; few arrays occur in each loop, because the compiler uses
the vector units only where it can check all of them for overlap.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.models.mixing import OPTIONS, average
from notsodeep.models.programs import ROUNDING_OF_ONE

# Rows of the work array behind the two of `average`: right-hand side, weights of the residual, slopes, the solution
# and the last change of it.
RIGHT_SIDE, WEIGHT, GAIN, SOLUTION, MOVE, ROWS = 2, 3, 4, 5, 6, 7
STRIP = 512
MOST_SWEEPS = 1200
# A Newton step solves its linear equation to this times the square of the residual.
SWEEP_GAIN = 0.003
# Steps, relative to √(q q'), below which differences of F say less than differences of F'.
SHORT, SHORTEST = 1e-5, 1e-11


@njit(**OPTIONS)
def _gather(field, places, run, into):  # type: ignore[no-untyped-def]
    for number in range(len(places)):
        part, values = into[number * run : (number + 1) * run], field[places[number] : places[number] + run]
        for k in range(run):
            part[k] = values[k]


@njit(**OPTIONS)
def _scatter(part, places, run, field):  # type: ignore[no-untyped-def]
    for number in range(len(places)):
        own, into = part[number * run : (number + 1) * run], field[places[number] : places[number] + run]
        for k in range(run):
            into[k] = own[k]


@njit(**OPTIONS)
def _sweep(work, row, begin, end, share, before, after):  # type: ignore[no-untyped-def]
    """A strip of one sweep: the residual of the linear equation, its weighted sum of squares, and the next iterate."""
    mixed, target, weight = work[row, begin:end], work[RIGHT_SIDE, begin:end], work[WEIGHT, begin:end]
    solution, move, gain = work[SOLUTION, begin:end], work[MOVE, begin:end], work[GAIN, begin:end]
    entering, total = work[0, begin:end], 0.0
    for k in range(len(mixed)):
        mixed[k] = target[k] - solution[k] + share * mixed[k]
    for k in range(len(mixed)):
        total += (mixed[k] * weight[k]) ** 2
    for k in range(len(mixed)):
        move[k] = before * move[k] + after * mixed[k]
        solution[k] += move[k]
    for k in range(len(mixed)):
        entering[k] = gain[k] * solution[k]
    return total


@njit(**OPTIONS)
def _solve(work, count, shapes, radius, circular, share, feedback, goal):  # type: ignore[no-untyped-def]
    """Solve (I - σ_a² 𝒜F') solution = target until the root mean square of the weighted residual is `goal`.

    With F' ≥ 0 the eigenvalues of σ_a² 𝒜F' are real and between -r/3 and r, r = σ_a² max F': those of the average over
    an odd number of taps are between -1/3 and 1, which Chebyshev's iteration uses.  Otherwise all that is known is
    that they are within a circle of radius r, and the iteration is the Neumann series.
    """
    target, gain, solution, move = work[RIGHT_SIDE], work[GAIN], work[SOLUTION], work[MOVE]
    if radius == 0:
        for k in range(count):
            solution[k] = target[k] / (1.0 - feedback * gain[k])
        return
    steepest, least = 0.0, 0.0
    for k in range(count):
        steepest, least = max(steepest, gain[k]), min(least, gain[k])
    rate = feedback * max(steepest, -least)
    middle, half = (1.0 - rate / 3.0, 2.0 * rate / 3.0) if least == 0.0 else (1.0, 0.0)
    last = half / middle
    for k in range(count):
        move[k] = target[k] / middle
        solution[k] = move[k]
    for k in range(count):
        work[0, k] = gain[k] * solution[k]
    for _ in range(MOST_SWEEPS):
        row = average(work, count, shapes, radius, circular)
        factor = 1.0 / (2.0 * middle - half * last)
        before, after, last = half * factor * last, 2.0 * factor, half * factor
        if half == 0.0:
            after, last = 1.0, rate
        total = 0.0
        for begin in range(0, count, STRIP):
            total += _sweep(work, row, begin, min(begin + STRIP, count), share, before, after)
        # The residual is that before this sweep, which makes it smaller by about `last`.
        if total * last**2 <= goal**2 * count:
            return


@njit(**OPTIONS)
def newton(  # type: ignore[no-untyped-def]
    value, slope, entering, scale, systems, feedback, enough, finest, cautious, covariance, step
):
    """The largest residual, |σ_a² 𝒜F + b - Λ| relative to √(q q'), and Newton's step where it exceeds `enough`.

    Linear equations are solved no further than to `finest`.  Where slopes are so steep that the linear equation is no
    contraction or, if `cautious`, nearly none for so large a residual, the step is one of plain iteration.  No step
    goes beyond |ρ| = 1; `step` becomes what was taken.
    """
    places, begins, runs, shapes, radius, taps, circular = systems
    share, largest = feedback / taps, 0.0
    work = np.empty((ROWS, np.max(np.diff(begins) * runs)))
    for number in range(len(runs)):
        here, run = places[begins[number] : begins[number + 1]], runs[number]
        count = len(here) * run
        target, weight, gain, solution = work[RIGHT_SIDE], work[WEIGHT], work[GAIN], work[SOLUTION]
        _gather(value, here, run, work[0])
        mixed = work[average(work, count, shapes[number], radius, circular)] if radius else work[0]
        _gather(entering, here, run, target)
        _gather(covariance, here, run, solution)
        for k in range(count):
            target[k] += share * mixed[k] - solution[k]
        _gather(scale, here, run, weight)
        for k in range(count):
            weight[k] = 1.0 / weight[k]
        residual = 0.0
        for k in range(count):
            residual = max(residual, abs(target[k]) * weight[k])
        largest = max(largest, residual)
        if residual <= enough:
            for k in range(count):
                solution[k] = 0.0
            _scatter(solution, here, run, step)
            continue
        _gather(slope, here, run, gain)
        rate = 0.0
        for k in range(count):
            rate = max(rate, abs(gain[k]))
        rate *= feedback
        if rate >= 1.0 or (cautious and residual > 0.1 * (1.0 - rate) ** 2):
            for k in range(count):
                solution[k] = target[k]
        else:
            goal = max(SWEEP_GAIN * residual**2, finest)
            _solve(work, count, shapes[number], radius, circular, share, feedback, goal)
        _gather(covariance, here, run, target)
        _gather(scale, here, run, weight)
        _move(solution[:count], target[:count], weight[:count])
        _scatter(target, here, run, covariance)
        _scatter(solution, here, run, step)
    return largest


@njit(**OPTIONS)
def _move(step, covariance, scale):  # type: ignore[no-untyped-def]
    """Add the step to the covariance as far as |ρ| ≤ 1."""
    for k in range(len(step)):
        most, before = scale[k], covariance[k]
        moved = before + step[k]
        near = most * (1.0 - ROUNDING_OF_ONE)
        moved = most if moved > near else (-most if moved < -near else moved)
        step[k] = moved - before
        covariance[k] = moved


@njit(**OPTIONS)
def adjoint(slope, systems, feedback, goal, result):  # type: ignore[no-untyped-def]
    """F' ∘ C with C = 1 + σ_a² 𝒜(F' ∘ C), (10.3) in units of R."""
    places, begins, runs, shapes, radius, taps, circular = systems
    work = np.empty((ROWS, np.max(np.diff(begins) * runs)))
    for number in range(len(runs)):
        here, run = places[begins[number] : begins[number + 1]], runs[number]
        count = len(here) * run
        work[RIGHT_SIDE, :count] = 1.0
        work[WEIGHT, :count] = 1.0
        _gather(slope, here, run, work[GAIN])
        _solve(work, count, shapes[number], radius, circular, feedback / taps, feedback, goal)
        for k in range(count):
            work[SOLUTION, k] *= work[GAIN, k]
        _scatter(work[SOLUTION], here, run, result)


@njit(**OPTIONS)
def carry(value, slope, scale, last_step, step, last_value, last_slope):  # type: ignore[no-untyped-def]
    """What F and F' change by along a small step, from their values at the two ends of the step before it.

    The changes are written to `last_value` and `last_slope`.  F'' is that of the cubic through both ends; how far it is
    from the difference quotient of F' says how well it is known.  Returns the mean of the error of F' that this
    estimates, relative to the mean of |F'|.
    """
    wrong, size = 0.0, 0.0
    for k in range(len(value)):
        h, d, most = last_step[k], step[k], scale[k]
        still = abs(h) <= SHORTEST * most
        over = 0.0 if still else 1.0 / h
        secant = (slope[k] - last_slope[k]) * over
        cubic = (6.0 * (last_value[k] - value[k]) * over + 2.0 * last_slope[k] + 4.0 * slope[k]) * over
        bend = secant if abs(h) <= SHORT * most else cubic
        gap = abs(bend - secant)
        wrong += abs(d) * gap * (gap / (abs(bend) + abs(secant) + 1e-300) + abs(d * over))
        size += abs(slope[k])
        last_value[k] = d * (slope[k] + 0.5 * bend * d)
        last_slope[k] = d * bend
    return wrong / max(size, 1e-300)


__all__ = ["adjoint", "carry", "newton"]
