"""Newton's method for the covariances of dense equilibrium models, a tile of pairs at a time, docs/theory.md (3.5).

Most of the time goes into evaluations of F.  The first guess costs none; then F is evaluated roughly until steps are
short, and usually once to all digits: F and F' are carried along the last step to first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from notsodeep.duals.dual import Dual, DualEvidence
from notsodeep.duals.sides import Side
from notsodeep.duals.strips import OPTIONS
from notsodeep.errors import ConvergenceError
from notsodeep.validation import Array

# Closer to ±1 than this, a correlation is ±1: rounding must not move equal positions apart.
ROUNDING_OF_ONE = 1e-14
MAX_STEPS, ROUGH_STEPS = 60, 4
# Least 1 - σ_a² F' that Newton's method divides by: below it the equation has all but lost its solution.
STEEPEST = 1e-4
# Steps below which F is evaluated to all digits, and below which F' need not be carried along a step.
SHORT, SETTLED = 1.5e-3, 2e-15
# After so many steps those below this length that no longer get shorter are the last: near the loss of contraction
# rounding is amplified by 1/(1 - σ_a² F').
PATIENCE, STALLED = 20, 1e-10
# Root of the error of F' that carrying it along the last step may leave.
CARRIED = 1e-6


@dataclass(frozen=True)
class CovarianceSolution:
    """The solution of the equation of the covariances for all pairs of a tile or field.

    Attributes:
        value: F.
        slope: F'.
        covariance: Λ.
        steps: Newton steps.
        residual: bound on what the last step leaves, of a correlation and of F' relative to √(E1 E1'); of a field
            the largest residual relative to √(q q').
        evidence: how F was evaluated.
    """

    value: Array
    slope: Array
    covariance: Array
    steps: int
    residual: float
    evidence: DualEvidence


def solve_tile(
    dual: Dual,
    left: Side,
    right: Side,
    forcing: Array,
    feedback: float,
    guesses: Sequence[Array],
    *,
    lower: bool,
    condition: float,
    noise: float = 1e-13,
) -> CovarianceSolution:
    """F and F' at the solution of Λ = feedback · F(Λ) + forcing for all pairs of a tile.

    Args:
        dual: F.
        left: the rows.
        right: the columns.
        forcing: the term that does not depend on Λ, (n, m).
        feedback: σ_a².
        guesses: `guess_terms` of both sides.
        lower: only pairs below the diagonal are needed; the others are taken for independent.
        condition: largest relative change of F' over that of the correlation; infinite for kinked activations.
        noise: how far rounding may move a correlation: steps below it that no longer get shorter are the last.

    Returns:
        The solution.
    """
    form = (1, *forcing.shape)
    value, slope, covariance = np.zeros(form), np.zeros(form), np.zeros(form)
    if lower:
        forcing = np.tril(forcing, -1)
    if feedback == 0.0:
        evidence = dual.tiles(left, right, forcing[None], value, slope, lower=lower)
        return CovarianceSolution(value[0], slope[0], forcing, 0, 0.0, evidence)
    bend, nothing = np.zeros(form), np.zeros((0, 0, 0))
    roots = left.root[0], right.root[0]
    scale = left.root[:, :, None] * right.root[:, None, :]
    guess_dual(*guesses, dual.phi.shape.parity == -1, forcing[None], scale, covariance, value, slope)
    _step(value, slope, nothing, forcing, *roots, feedback, lower, 1.0, covariance)
    before, evidence, rough, narrowest = np.inf, DualEvidence(), True, 1.0 / max(condition, 1.0)
    for step in range(1, MAX_STEPS + 1):
        seen = dual.tiles(
            left, right, covariance, value, slope, None if rough else bend, lower=lower, rough=rough
        )
        # Nothing but F and F' is known of pairs that are integrated one by one.
        carry = not (rough or seen.fallback_pairs)
        evidence = seen if rough else evidence.merge(seen)
        if not np.isfinite(value.sum()):
            # The caller notices it, and computes all pairs again by quadrature.
            return CovarianceSolution(value[0], slope[0], covariance[0], step, np.inf, evidence)
        largest, error = _step(
            value, slope, bend if carry else nothing, forcing, *roots, feedback, lower, narrowest, covariance
        )  # fmt: skip
        if rough:
            rough, evidence = largest > SHORT and step < ROUGH_STEPS, DualEvidence()
            continue
        # Rounding may prevent shorter steps; the last one is part of the error bound.
        floor = noise if step < PATIENCE else max(noise, STALLED)
        if (
            (carry and error <= CARRIED)
            or largest <= SETTLED
            or (largest <= floor and largest >= 0.5 * before)
        ):
            residual = error**2 if carry and error <= CARRIED else largest
            return CovarianceSolution(value[0], slope[0], covariance[0], step, residual, evidence)
        before = largest
    raise ConvergenceError(
        f"The covariances of some pairs did not converge: the last of {MAX_STEPS} Newton steps was {largest:.2g}.",
        "Lower sigma_a2: the map is close to losing its contraction.",
    )


@njit(**OPTIONS)
def _step(value, slope, bend, forcing, left, right, feedback, lower, narrowest, covariance):  # type: ignore[no-untyped-def]
    """One Newton step in place; `left` and `right` have √q.

    F is carried along the step and, if `bend` is not empty, F' as well.  F' is at most √(E1 E1') in the whole unit
    disc of ρ, so that by Cauchy's estimate the square of step/(1 - |ρ|) bounds what that leaves out of F'; for smooth
    activations the square of step/narrowest does as well.  Returns the largest change of a correlation, and the root
    of this error.
    """
    rows, columns = forcing.shape
    inverse = 1.0 / right
    # The largest of each column: a maximum over a line would not use the vector units.
    move, worst, error = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    for i in range(rows):
        stop, own = i if lower else columns, 1.0 / left[i]
        f, df, entry, known = value[0, i], slope[0, i], forcing[i], covariance[0, i]
        for j in range(stop):
            bound = left[i] * right[j]
            gap = feedback * f[j] + entry[j] - known[j]
            fresh = known[j] + gap / max(1.0 - feedback * df[j], STEEPEST)
            move[j] = min(max(fresh, -bound), bound) - known[j]
        for j in range(stop):
            known[j] += move[j]
            f[j] += df[j] * move[j]
        if bend.size:
            ddf = bend[0, i]
            for j in range(stop):
                df[j] += ddf[j] * move[j]
        for j in range(stop):
            over = own * inverse[j]
            length = abs(move[j]) * over
            worst[j] = max(worst[j], length)
            room = max(1.0 - abs(known[j]) * over, narrowest)
            error[j] = max(error[j], (length if length > SETTLED else 0.0) / max(room, 1e-30))
    return worst.max(), error.max()


# --- a first guess of the covariances, from moments of one variable ---------------------------------------------------


def guess_terms(side: Side, alone: Array) -> Array:
    """M_0, M_1, the roots of what they leave of S and of q E1, and √(q/b); `alone` is b of a variable with itself."""
    q, mean, rise = side.variances, side.mean, side.rise
    rest = np.sqrt(np.maximum(side.energy - mean**2 - q * rise**2, 0.0))
    steep = np.sqrt(np.maximum(side.steep - rise**2, 0.0) * q)
    growth = np.sqrt(np.divide(q, alone, out=np.ones_like(q), where=alone > 0.0))
    return np.stack([mean, rise, rest, steep, growth])


@njit(**OPTIONS)
def guess_dual(left, right, odd, entering, scale, covariance, value, slope):  # type: ignore[no-untyped-def]
    """An approximation of F and F' that is exact at ρ = 0 and, for equal variances, at ρ = 1.

    F ≈ M_0M_0' + M_1M_1'c + (α + β ρ²) ρ^p, p = 2, or 3 for an odd activation, at the correlations of `entering`.
    `left` and `right` (5, stack, n) have M_0, M_1, the roots of what they leave of S and of q E1, from which α and β
    follow, and the factors that turn `entering` into a covariance with its correlation.
    """
    power = 3.0 if odd else 2.0
    for t in range(covariance.shape[0]):
        for i in range(covariance.shape[1]):
            c, most, values, rise = covariance[t, i], scale[t, i], value[t, i], slope[t, i]
            enters, growth, growths = entering[t, i], left[4, t, i], right[4, t]
            means, rises, rests, steeps = right[0, t], right[1, t], right[2, t], right[3, t]
            mean, first, rest, steep = left[0, t, i], left[1, t, i], left[2, t, i], left[3, t, i]
            for j in range(len(c)):
                near, start = most[j] * (1.0 - ROUNDING_OF_ONE), enters[j] * growth * growths[j]
                c[j] = most[j] if start > near else (-most[j] if start < -near else start)
            for j in range(len(c)):
                whole = rest * rests[j]
                beta = min(max(0.5 * (steep * steeps[j] - power * whole), 0.0), whole)
                alpha, rho = whole - beta, c[j] / most[j]
                x = rho * rho
                lead = x if odd else rho
                values[j] = mean * means[j] + first * rises[j] * c[j] + (alpha + beta * x) * lead * rho
                rise[j] = first * rises[j] + (power * alpha + (power + 2.0) * beta * x) * lead / most[j]


__all__ = ["ROUNDING_OF_ONE", "CovarianceSolution", "guess_dual", "guess_terms", "solve_tile"]
