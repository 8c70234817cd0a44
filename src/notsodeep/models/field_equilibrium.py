"""The covariances of an equilibrium model over fields: Λ = σ_a² 𝒜F(Λ) + b by Newton's method, docs/theory.md (10.1).

A field is an array (stack, n, m), as `duals.dual` has it, with any mixing 𝒜 that `mixing.Systems` describes: positions
of images, pairs of positions, or none, which is a model of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from notsodeep.duals.dual import Dual, DualEvidence
from notsodeep.duals.sides import Side
from notsodeep.duals.strips import OPTIONS
from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.moments import second_moment
from notsodeep.models.field_newton import adjoint, carry, newton
from notsodeep.models.mixing import Systems
from notsodeep.models.programs import ROUNDING_OF_ONE, guess_terms
from notsodeep.models.variances import moment_at
from notsodeep.validation import Array, IntArray

# Residual of a covariance, relative to √(q q'), that is accepted by default, and the part of it that is aimed at.
TOLERANCE, AIM = 1e-12, 0.02
MAX_STEPS, CAUTIOUS_STEPS = 60, 2000
# In parts of the tolerance: the error of F' where it is carried along a step, how well the adjoint, whose entries are
# about 1, is solved, and the linear equations of Newton's steps.
CARRIED, ADJOINT, SWEPT = 0.1, 0.1, 0.002
# In the same parts: the residual that a step may leave after which F is carried along, which linear equations leave.
ENDED = 0.3
# Steps after which a residual below the tolerance is enough, and residuals after which F may be carried along a step.
EAGER, SMALL = 4, 1e-4
# Residual of the linear equation of the first guess.
GUESSED = 1e-4

# Entries (row, column) of a tile where a variable meets itself, at every place of the stack.
Own = tuple[IntArray, IntArray]


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


@dataclass(frozen=True)
class FieldEquation:
    """Λ = σ_a² 𝒜F(Λ) + b.

    Attributes:
        dual: F and F'.
        feedback: σ_a².
        rate: bound on σ_a² F'; where it is not below 1, the map may not be a contraction everywhere, and steps are
            plain iteration until they are small.
        tolerance: the largest residual that is accepted.
    """

    dual: Dual
    feedback: float
    rate: float
    tolerance: float = TOLERANCE


def evaluate(
    dual: Dual, left: Side, right: Side, covariance: Array, value: Array, slope: Array, own: Own
) -> DualEvidence:
    """F and F' of a field.

    A variable with itself has moments of one variable, because F' of a kinked activation at ρ = 1 keeps half of its
    digits.  A variable of variance zero is independent of every other.
    """
    evidence = dual.tiles(left, right, covariance, value, slope)
    rows, columns = own
    if len(rows):
        # As the variances were solved with: to the last digits also where variances are small.
        value[:, rows, columns] = moment_at(second_moment, dual.phi, left.variances[:, rows])
        slope[:, rows, columns] = left.steep[:, rows]
    for side, other, field in ((left, right, value), (right, left, value.swapaxes(1, 2))):
        if side.silent.any():
            field[side.silent] = side.still * other.mean[np.nonzero(side.silent)[0]]
    return evidence


def set_own(covariance: Array, scale: Array, left: Side, own: Own) -> None:
    """Give a variable with itself its variance, without rounding: |ρ| = 1, or nothing if it has none."""
    rows, columns = own
    covariance[:, rows, columns] = np.where(left.silent[:, rows], 0.0, scale[:, rows, columns])


def solve(
    equation: FieldEquation,
    left: Side,
    right: Side,
    entering: Array,
    guesses: tuple[Array, Array],
    systems: Systems,
    own: Own,
) -> CovarianceSolution:
    """Solve the equation for the pairs of two sides.

    Args:
        equation: the equation.
        left: the variables of the rows.
        right: the variables of the columns.
        entering: b.
        guesses: what `growing_guess` gives for both sides.
        systems: how positions are mixed.
        own: entries where a variable meets itself.
    """
    dual, tolerance, cautious = equation.dual, equation.tolerance, equation.rate >= 1.0
    scale = left.root[:, :, None] * right.root[:, None, :]
    covariance, value, slope, before, rise, step, last = (np.empty_like(scale) for _ in range(7))
    flat = {name: array.reshape(-1) for name, array in (("b", entering), ("scale", scale), ("c", covariance))}

    def advance(enough: float, finest: float) -> float:
        return float(
            newton(
                value.reshape(-1), slope.reshape(-1), flat["b"], flat["scale"], systems.arguments, equation.feedback,
                enough, finest, cautious, flat["c"], step.reshape(-1),
            )
        )  # fmt: skip

    odd = dual.phi.shape.parity == -1
    guess_dual(*guesses, odd, entering, scale, covariance, value, slope)
    if not cautious:
        advance(ROUNDING_OF_ONE, GUESSED)
    set_own(covariance, scale, left, own)
    most, carried = CAUTIOUS_STEPS if cautious else MAX_STEPS, False
    for number in range(most + 1):
        evidence = evaluate(dual, left, right, covariance, value, slope, own)
        # Rounding may prevent residuals below the tolerance.
        enough = AIM * tolerance if number < EAGER else (tolerance if number < most else np.inf)
        residual = advance(enough, SWEPT * tolerance)
        if residual <= enough:
            break
        if number > 0 and residual < SMALL and not carried:
            wrong = carry(*(part.reshape(-1) for part in (value, slope, scale, last, step, before, rise)))
            if wrong <= CARRIED * tolerance:
                value += before
                slope += rise
                residual, number, carried = advance(np.inf, 0.0), number + 1, True
                if residual <= ENDED * tolerance:
                    break
        value, before, slope, rise, step, last = before, value, rise, slope, last, step
    if residual > tolerance:
        raise ConvergenceError(
            f"The covariances of two samples did not converge: residual {residual:.2g} after {number} steps.",
            "Lower sigma_a2: the map is close to losing its contraction.",
        )
    return CovarianceSolution(value, slope, covariance, number, residual, evidence)


def adjoint_products(equation: FieldEquation, solution: CovarianceSolution, systems: Systems) -> Array:
    """B ∘ Λ in units of R, the field whose sum is what the tangent kernel adds to the conjugate kernel, (10.3)."""
    result = np.empty_like(solution.slope)
    goal = ADJOINT * equation.tolerance
    adjoint(solution.slope.reshape(-1), systems.arguments, equation.feedback, goal, result.reshape(-1))
    result *= solution.covariance
    return result


# --- a first guess of the covariances, from moments of one variable ---------------------------------------------------


def growing_guess(side: Side, alone: Array) -> Array:
    """`guess_terms` and √(q/b); `alone` is b of a variable with itself."""
    q = side.variances
    growth = np.sqrt(np.divide(q, alone, out=np.ones_like(q), where=alone > 0.0))
    return np.concatenate([guess_terms(side), growth[None]])


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
