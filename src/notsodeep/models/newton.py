"""Newton's method for the covariances of dense equilibrium models, a tile of pairs at a time, docs/theory.md (3.5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from notsodeep.duals.dual import Dual, Evidence, Side
from notsodeep.duals.strips import OPTIONS
from notsodeep.errors import ConvergenceError
from notsodeep.validation import Array

MAX_STEPS = 60
# Least 1 - σ_a² F' that Newton's method divides by: below it the equation has all but lost its solution.
STEEPEST = 1e-4
# A step this small leaves F' of a kinked activation right; of a smooth one F and F' are carried along the last step,
# which may then be as large as this over the condition of F'.
SETTLED, CARRIED = 2e-15, 1e-7


@dataclass(frozen=True)
class TileSolution:
    """The solution of the equation for all pairs of a tile.

    Attributes:
        value: F.
        slope: F'.
        covariance: Λ.
        steps: Newton steps.
        residual: estimate of the largest error of a correlation.
        evidence: how F was evaluated.
    """

    value: Array
    slope: Array
    covariance: Array
    steps: int
    residual: float
    evidence: Evidence


def solve_tile(
    dual: Dual,
    left: Side,
    right: Side,
    forcing: Array,
    feedback: float,
    *,
    lower: bool,
    condition: float,
    noise: float = 1e-13,
) -> TileSolution:
    """F and F' at the solution of Λ = feedback · F(Λ) + forcing for all pairs of a tile.

    Args:
        dual: F.
        left: the rows.
        right: the columns.
        forcing: what does not depend on Λ, (n, m).
        feedback: σ_a².
        lower: only pairs below the diagonal are needed; the others are taken for independent.
        condition: largest relative change of F' over that of the correlation; infinite for kinked activations.
        noise: how far rounding may move a correlation: steps below it that no longer get shorter are the last.

    Returns:
        The solution.
    """
    form = (1, *forcing.shape)
    value, slope = np.zeros(form), np.zeros(form)
    smooth = np.isfinite(condition)
    bend = np.zeros(form) if smooth else None
    roots = left.root[0], right.root[0]
    if lower:
        forcing = np.tril(forcing, -1)
    if feedback == 0.0:
        evidence = dual.tiles(left, right, forcing[None], value, slope, lower=lower)
        return TileSolution(value[0], slope[0], forcing, 0, 0.0, evidence)
    covariance = np.empty(form)
    _guess(forcing, *roots, left.mean[0], right.mean[0], left.rise[0], right.rise[0], feedback, covariance[0])
    if lower:
        covariance[0] = np.tril(covariance[0], -1)
    enough = CARRIED / max(condition, 1.0) if smooth else SETTLED
    before, evidence = np.inf, Evidence()
    for step in range(1, MAX_STEPS + 1):
        evidence = evidence.merge(dual.tiles(left, right, covariance, value, slope, bend, lower=lower))
        if not np.isfinite(value.sum()):
            # The caller finds it, and computes all pairs again by quadrature.
            return TileSolution(value[0], slope[0], covariance[0], step, np.inf, evidence)
        bends = slope[:0] if bend is None else bend
        largest = _step(value, slope, bends, forcing, *roots, feedback, smooth, lower, covariance)
        if evidence.fallback_pairs:
            # Nothing but F and F' is known of these.
            enough = SETTLED
        # Rounding may stand in the way of more.
        if largest <= enough or (largest <= noise and largest >= 0.5 * before):
            # The step after the last is about its square; the ratio of the last two says how much.
            residual = largest * min(1.0, largest / before) if largest <= enough else largest
            return TileSolution(value[0], slope[0], covariance[0], step, residual, evidence)
        before = largest
    raise ConvergenceError(
        f"The covariances of some pairs did not converge: the last of {MAX_STEPS} Newton steps was {largest:.2g}.",
        "Lower sigma_a2: the map is close to losing its contraction.",
    )


@njit(**OPTIONS)
def _guess(forcing, left, right, mean, means, rise, rises, feedback, covariance):  # type: ignore[no-untyped-def]
    """The solution of the equation cut after its linear term, F = M_0 M_0' + M_1 M_1' Λ, within ±√(q q')."""
    rows, columns = forcing.shape
    for i in range(rows):
        base, tilt = feedback * mean[i], feedback * rise[i]
        entry, into = forcing[i], covariance[i]
        for j in range(columns):
            into[j] = (entry[j] + base * means[j]) / max(1.0 - tilt * rises[j], STEEPEST)
        for j in range(columns):
            bound = left[i] * right[j]
            into[j] = min(max(into[j], -bound), bound)


@njit(**OPTIONS)
def _step(value, slope, bend, forcing, left, right, feedback, carry, lower, covariance):  # type: ignore[no-untyped-def]
    """One Newton step in place.  Returns the largest change of a correlation.

    F is carried along the step, and with `carry` F' as well.
    """
    rows, columns = forcing.shape
    worst = 0.0
    move = np.zeros(columns)
    for i in range(rows):
        stop = i if lower else columns
        f, df, entry, known = value[0, i], slope[0, i], forcing[i], covariance[0, i]
        for j in range(stop):
            bound = left[i] * right[j]
            gap = feedback * f[j] + entry[j] - known[j]
            fresh = known[j] + gap / max(1.0 - feedback * df[j], STEEPEST)
            move[j] = min(max(fresh, -bound), bound) - known[j]
        for j in range(stop):
            known[j] += move[j]
            f[j] += df[j] * move[j]
        if carry:
            ddf = bend[0, i]
            for j in range(stop):
                df[j] += ddf[j] * move[j]
        most = 0.0
        for j in range(stop):
            most = max(most, abs(move[j]) / (left[i] * right[j]))
        worst = max(worst, most)
    return worst


__all__ = ["solve_tile"]
