"""The equations of a convolutional equilibrium model over positions, docs/theory.md (10.1) to (10.3)."""

from __future__ import annotations

import math

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.pairs.compiled_mixing import mix
from notsodeep.pairs.compiled_newton import FAST_ROWS, carry, left_out, newton, predict, resolve
from notsodeep.pairs.pair_fields import PairFields
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray

# Residual of a covariance, relative to √(q q'), that is accepted if nothing else is said, and the part of it that is
# aimed at.
TOLERANCE, AIM = 1e-12, 0.3
# A residual that is nothing but rounding.
ROUNDING = 1e-14
MAX_STEPS, CAUTIOUS_STEPS = 60, 2000
# In parts of the tolerance: what F' may leave out, what it may leave out on average where it is carried along a step,
# how well the adjoint, whose entries are about 1, is solved, and the linear equations of Newton's steps.
TRUNCATED, CARRIED, ADJOINT, SWEPT = 0.1, 0.3, 0.1, 0.002
# How much the first guess takes from the distance between its start and its own limit, and in how many sweeps at most.
GUESSED, MOST_GUESSES = 3e-4, 16


def spectrum(rate: float, even: bool) -> tuple[float, float]:
    """Where the eigenvalues of I - σ_a² 𝒜F' are, with |σ_a² F'| ≤ rate: the middle and half of the length.

    If φ is even, slopes have both signs, and nothing is known of them but their size.
    """
    return (1.0, 0.0) if even else (1.0 - rate / 3.0, 2.0 * rate / 3.0)


def not_converged(residual: float, steps: int) -> ConvergenceError:
    """The error of covariances that did not converge."""
    return ConvergenceError(
        f"The covariances of two samples did not converge: residual {residual:.2g} after {steps} steps.",
        "Lower sigma_a2: the map is close to losing its contraction.",
    )


class FieldSolver:
    """Solves Λ = 𝒜(σ_a² F(Λ) + σ_b² x·x') + σ_c² for one sample with others.

    Args:
        fields: the fields; the solver keeps their memory.
        feedback: σ_a².
        rate: bound on σ_a² F'; where it is not below 1, the map may not be a contraction everywhere, and steps are
            plain iteration until they are small.
        tolerance: the largest residual that is accepted.
    """

    def __init__(
        self, fields: PairFields, feedback: float, rate: float, tolerance: float = TOLERANCE
    ) -> None:
        self.fields, self.feedback, self.rate, self.tolerance = fields, feedback, rate, tolerance
        # The first guess is so good that F is evaluated at once at the level that the tolerance asks for, but for the
        # last, before which a step is taken with F at its coarsest level.
        self.level = fields.method.level_for(TRUNCATED * tolerance)
        self.cautious, self.kinked = rate >= 1.0, True
        self.most = CAUTIOUS_STEPS if self.cautious else MAX_STEPS
        self.memory = np.zeros((4, fields.memory.shape[1]))
        self.work = fields.layout.workspace(3)
        self.fast = fields.layout.workspace(FAST_ROWS, np.float32)
        self.valid = np.resize(fields.layout.valid, fields.memory.shape[1])

    def forcing(self, left: Array, right: Array, gain: float, constant: float) -> Array:
        """σ_b² 𝒜(x·x') + σ_c² from the samples as the layout has them, zero at borders."""
        fields, layout = self.fields, self.fields.layout
        end = len(fields.over)
        self.covariance, self.entering, self.gap, self.step = (part[:end] for part in self.memory)
        self.gap[:] = 0.0
        layout.inner(left, right, self.gap)
        mix(self.gap, fields.starts, layout.geometry, self.work, self.entering)
        self.entering *= gain
        self.entering += constant
        self.entering *= self.valid[:end]
        return self.entering

    def start(self, left: Positions, right: Positions) -> None:
        """A first guess: the correlations that the input alone gives, then the first terms of Mehler's series of F.

        The rest of the energy of φ is given to the next power of ρ that φ may have.
        """
        fields, layout, parity = self.fields, self.fields.layout, left.parity
        self.kinked = left.kinked
        layout.combine(left.growth[fields.some], right.growth[fields.others], self.covariance)
        predict(
            left.series[fields.some], right.series[fields.others], self.entering, fields.over, fields.scale,
            layout.lines, fields.starts, layout.geometry, self.feedback, (int(parity == -1), 1 if parity == 0 else 2),
            *self._guessing(parity == 1), self.fast, self.covariance,
        )  # fmt: skip
        for places, *_ in fields.own:
            self.covariance[places] = fields.scale[places]

    def _guessing(self, even: bool) -> tuple[tuple[float, float], int]:
        """Where the eigenvalues of the linear equation are, and how many sweeps the first guess takes."""
        if self.cautious:
            return (1.0, 0.0), 0
        middle, half = spectrum(self.rate, even)
        z = middle / max(half, 1e-9)
        factor = 1.0 / (z + math.sqrt(z * z - 1.0)) if half else self.rate
        sweeps = math.ceil(math.log(GUESSED) / math.log(max(factor, 1e-9)))
        return (middle, half), min(sweeps, MOST_GUESSES)

    def solve(self) -> tuple[int, float]:
        """Newton steps of the slowest system, and the largest residual."""
        fields = self.fields
        starts, geometry = fields.starts, fields.layout.geometry
        last, aim = max(0, self.level - 1), AIM * self.tolerance
        residuals = np.zeros(len(starts) - 1)
        active, carried = np.arange(len(residuals)), np.arange(0)
        held = np.concatenate([np.arange(0), *(places for places, *_ in fields.fixed)])
        for number in range(self.most + 1):
            fresh = np.setdiff1d(active, carried, assume_unique=True) if len(carried) else active
            if len(fresh):
                fields.evaluate(fresh, self.covariance, self.level if number >= last else 0)
            if len(carried):
                carry(self.step, fields.over, fields.bend, starts, carried, fields.slope, fields.value)
            enough = aim if number >= last else 0.0
            if number == last and self.tolerance <= TOLERANCE:
                # The first step with F to its full accuracy is the one that ends in rounding.
                enough = ROUNDING
            newton(
                fields.value, fields.slope, self.entering, fields.over, fields.scale, held, starts, active, geometry,
                self.feedback, enough if number < self.most else np.inf, SWEPT * self.tolerance, self.cautious,
                self.work, self.fast, self.covariance, self.step, residuals,
            )  # fmt: skip
            active = active[residuals[active] > enough]
            # Rounding may stand in the way of more.
            if (
                not len(active)
                or number == self.most
                or (number > last + 3 and residuals.max() <= self.tolerance)
            ):
                break
            carried = self._carried(active, carried) if number >= last else carried
        residual = float(residuals.max())
        if residual > self.tolerance:
            raise not_converged(residual, number)
        return number, residual

    def _carried(self, active: IntArray, before: IntArray) -> IntArray:
        """Systems whose F and F' are carried along the step that was taken, instead of being evaluated again."""
        fields, errors = self.fields, np.full(len(self.fields.starts) - 1, np.inf)
        if fields.method.carries:
            fresh = np.setdiff1d(active, before, assume_unique=True)
            left_out(
                self.step, fields.over, self.covariance, fields.starts, fresh, self.kinked, self.gap, errors
            )
        return np.flatnonzero(errors <= CARRIED * self.tolerance)

    def largest_gain(self) -> float:
        """σ_a² max |F'| over all entries but those where F is fixed."""
        slopes = np.abs(self.fields.slope)
        for places, *_ in self.fields.fixed:
            slopes[places] = 0.0
        return self.feedback * float(slopes.max(initial=0.0))

    def features(self) -> Array:
        """ΣF over positions of every pair, (samples, others)."""
        return self.fields.totals(self.fields.value)

    def tangents(self) -> Array:
        """Σ(F + BΛ): B = F' ∘ C with C = 1 + σ_a² 𝒜(F' ∘ C), (10.3) in units of R."""
        fields = self.fields
        ones = self.valid[: len(self.gap)]
        resolve(
            ones, ones, fields.slope, fields.starts, fields.layout.geometry, self.feedback,
            ADJOINT * self.tolerance, self.work, self.fast, self.step,
        )  # fmt: skip
        self.step *= fields.slope
        return self.features() + fields.inner_products(self.step, self.covariance)


__all__ = ["TOLERANCE", "TRUNCATED", "FieldSolver", "not_converged", "spectrum"]
