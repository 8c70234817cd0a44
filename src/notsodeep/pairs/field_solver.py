"""The equations of a convolutional equilibrium model over positions, docs/theory.md (10.1) to (10.3)."""

from __future__ import annotations

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.pairs.compiled_mixing import advance, carry, gaps, left_out, mix, resolve
from notsodeep.pairs.pair_fields import PairFields
from notsodeep.validation import Array, IntArray

# Residual of a covariance, relative to √(q q'), that is accepted, and at which the solver stops.
TOLERANCE, AIM = 1e-12, 3e-13
MAX_STEPS, CAUTIOUS_STEPS = 60, 2000
# F and F' are carried along a step where that leaves out no more of F' than this, on average.
CARRIED = 2e-14
# A Newton step solves its linear equation to this times the square of the residual, but not beyond rounding.
SWEEP_GAIN, ROUNDING = 0.003, 1e-14
# The adjoint, whose entries are about 1, is solved to this.
ADJOINT = 1e-13


class FieldSolver:
    """Solves Λ = 𝒜(σ_a² F(Λ) + σ_b² x·x') + σ_c² for one sample with others.

    Args:
        fields: the fields; the solver keeps their memory.
        feedback: σ_a².
        cautious: the map may not be a contraction everywhere; steps are plain iteration until they are small.
    """

    def __init__(self, fields: PairFields, feedback: float, *, cautious: bool = False) -> None:
        self.fields, self.feedback, self.cautious = fields, feedback, cautious
        self.most = CAUTIOUS_STEPS if cautious else MAX_STEPS
        self.memory = np.zeros((4, fields.memory.shape[1]))
        self.work, self.fast = fields.layout.workspace(), fields.layout.workspace(7, np.float32)
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

    def start(self, left: Array, right: Array) -> None:
        """To begin with, the correlations that the input alone gives; the factors of both sides make them so."""
        self.fields.layout.combine(left, right, self.covariance)
        self.covariance *= self.entering
        np.clip(self.covariance, -self.fields.scale, self.fields.scale, out=self.covariance)
        for places, *_ in self.fields.own:
            self.covariance[places] = self.fields.scale[places]

    def solve(self) -> tuple[int, float]:
        """Newton steps of the slowest system, and the largest residual."""
        fields = self.fields
        starts, geometry = fields.starts, fields.layout.geometry
        accuracies = fields.method.accuracies
        last = len(accuracies) - 1
        residuals = np.zeros(len(starts) - 1)
        active = carried = np.arange(len(starts) - 1)
        carried = carried[:0]
        for number in range(self.most + 1):
            fresh = np.setdiff1d(active, carried, assume_unique=True) if len(carried) else active
            if len(fresh):
                fields.evaluate(fresh, self.covariance, accuracies[min(number, last)])
            if len(carried):
                carry(self.step, fields.over, fields.bend, starts, carried, fields.slope, fields.value)
            gaps(
                fields.value, self.covariance, self.entering, fields.over, starts, active, geometry, self.feedback,
                self.work, self.gap, residuals,
            )  # fmt: skip
            if number >= last:
                active = active[residuals[active] > AIM]
            if not len(active) or number == self.most:
                break
            if number > last + 3 and residuals.max() <= TOLERANCE:
                # Rounding stands in the way of more.
                break
            goals = np.maximum(SWEEP_GAIN * residuals**2, ROUNDING)
            resolve(
                self.gap, fields.over, fields.slope, starts, active, geometry, self.feedback, residuals, goals,
                self.cautious, self.work, self.fast, self.step,
            )  # fmt: skip
            for places, *_ in fields.fixed:
                self.step[places] = 0.0
            advance(self.covariance, fields.scale, starts, active, self.step)
            carried = self._carried(active, carried) if number >= last else carried
        residual = float(residuals.max())
        if residual > TOLERANCE:
            raise ConvergenceError(
                f"The covariances of two samples did not converge: residual {residual:.2g} after {number} steps.",
                "Lower sigma_a2: the map is close to losing its contraction.",
            )
        return number, residual

    def _carried(self, active: IntArray, before: IntArray) -> IntArray:
        """Systems whose F and F' are carried along the step that was taken, instead of being evaluated again."""
        fields, errors = self.fields, np.full(len(self.fields.starts) - 1, np.inf)
        if fields.method.carries:
            fresh = np.setdiff1d(active, before, assume_unique=True)
            left_out(self.step, fields.over, self.covariance, fields.starts, fresh, self.gap, errors)
        return np.flatnonzero(errors <= CARRIED)

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
        self.gap[:] = self.valid[: len(self.gap)]
        goals = np.full(len(fields.starts) - 1, ADJOINT)
        resolve(
            self.gap, self.gap, fields.slope, fields.starts, np.arange(len(goals)), fields.layout.geometry,
            self.feedback, goals, goals, False, self.work, self.fast, self.step,
        )  # fmt: skip
        self.step *= fields.slope
        return self.features() + fields.inner_products(self.step, self.covariance)


__all__ = ["TOLERANCE", "FieldSolver"]
