"""Steps fitted one after the other to a teacher's equilibria, in closed form: where the fit of all weights starts.

docs/theory.md (12.4): each step is to predict, from the step before it, the feedback W z that the equilibrium has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.readout_fit import Blocks, LinearFit, fit_linear
from notsodeep.nets.students import Feedback, StepsNet

# Numbers of equilibria that are kept, as bytes; observations that a step is fitted to (a sample has as many as it has
# positions); the share of them that chooses the ridge.
_BUDGET, _OBSERVATIONS, _JUDGES = 2**28, 200_000, 0.1
# Relative to the mean square of a feature.
_RIDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Equilibria:
    """Samples and the teacher's pre-activations at their equilibria.

    Attributes:
        X: the samples.
        inner: h = W z + U x + b, (samples, units × positions).
        positions: number of positions of a unit.
    """

    X: Tensor
    inner: Tensor
    positions: int

    @classmethod
    @torch.no_grad()
    def of(cls, teacher: EquilibriumNet, X: Tensor, batch: int) -> Equilibria:
        """The equilibria of as many samples as are needed, and fit the budget."""
        count = teacher.connection.count
        size = teacher.units * count * X.element_size()
        rows = max(1, min(len(X), _BUDGET // size, -(-_OBSERVATIONS // count)))
        parts = [teacher.preactivations(part) for part in torch.split(X[:rows], batch)]
        return cls(X[:rows], torch.cat(parts), count)

    def of_units(self, chosen: Tensor) -> Equilibria:
        """The same of some of the units."""
        by_unit = self.inner.reshape(len(self.X), -1, self.positions)
        return Equilibria(self.X, by_unit[:, chosen].flatten(1), self.positions)

    def by_position(self, values: Tensor) -> Tensor:
        """Rows as (samples × positions, units)."""
        return values.reshape(len(values), -1, self.positions).movedim(1, 2).flatten(0, 1)


@dataclass
class FittedSteps:
    """Steps that were fitted, for students that begin with the same ones: of these only further ones have to be.

    Attributes:
        fits: weights, bias and, of low rank, the directions of each step with feedback.
        number: the last step whose states are known; 0 is the drive.
        states: of every sample after that step.
    """

    fits: list[tuple[Tensor, Tensor, Tensor | None]] = field(default_factory=list)
    number: int = 0
    states: Tensor | None = None

    def before(self, student: StepsNet, equilibria: Equilibria, number: int, batch: int) -> Tensor:
        """The states that a step sees, of every sample."""
        parts = torch.split(equilibria.X, batch)
        if self.states is None or self.number >= number:
            self.number, self.states = 0, torch.cat([student.drive(X) for X in parts])
        for place in range(self.number + 1, number):
            rows = zip(parts, torch.split(self.states, batch), strict=True)
            self.states = torch.cat([student.step(place, z, student.drive(X)) for X, z in rows])
            self.number = place
        return self.states


@torch.no_grad()
def fit_steps(
    student: StepsNet, equilibria: Equilibria, batch: int, known: FittedSteps | None = None
) -> bool:
    """Fit the steps of a student, which has the teacher's U and b; False if its layers are too large for that.

    With one step there is no feedback: then U and b are fitted to the equilibria themselves.

    Args:
        student: the student.
        equilibria: of the teacher.
        batch: samples at a time.
        known: steps that were fitted before, for a student that differs in their number alone; new ones are added.
    """
    if student.steps == 1 and not student.guess:
        fit = _regression(student, equilibria, batch, equilibria.X.flatten(1), lambda X, inner: inner)
        if fit is None:
            return False
        student.inputs.copy_(fit.weights.reshape(student.inputs.shape))
        student.bias.copy_(fit.bias)
        return True
    known = FittedSteps() if known is None else known
    for place, feedback in enumerate(student.feedback.steps()):
        if place == len(known.fits):
            states = known.before(student, equilibria, place + student.first_feedback(), batch)
            fit = _regression(student, equilibria, batch, states, lambda X, inner: inner - student.drive(X))
            if fit is None:
                return False
            known.fits.append(_weights(student, feedback, fit))
        weights, bias, directions = known.fits[place]
        feedback.set_weights(weights, directions)
        student.gains[place].fill_(1.0)
        student.biases[place].copy_(bias)
    return True


def _weights(student: StepsNet, feedback: Feedback, fit: LinearFit) -> tuple[Tensor, Tensor, Tensor | None]:
    """Weights, bias and directions of a step."""
    weights, bias = fit.weights, fit.bias
    directions = None
    if feedback.rank is not None:
        directions = principal_directions(weights @ fit.covariance @ weights.mT, feedback.rank)
        kept = directions @ (directions.mT @ weights)
        bias = bias + (weights - kept) @ fit.mean
    shape = (student.units, *student.connection.filter_shape)
    return weights.reshape(len(weights), *shape).to(student.inputs), bias, directions


def _regression(
    student: StepsNet,
    equilibria: Equilibria,
    batch: int,
    states: Tensor,
    wanted: Callable[[Tensor, Tensor], Tensor],
) -> LinearFit | None:
    """What a step's weights see, against what they are to give, at every position."""
    judges = max(1, round(_JUDGES * len(equilibria.X)))

    def blocks(first: int, last: int) -> Blocks:
        for start in range(first, last, batch):
            part = slice(start, min(start + batch, last))
            yield (
                student.connection.seen(states[part]),
                equilibria.by_position(wanted(equilibria.X[part], equilibria.inner[part])),
            )

    return fit_linear(blocks(judges, len(equilibria.X)), blocks(0, judges), _RIDGES)


def principal_directions(covariance: Tensor, rank: int) -> Tensor:
    """The directions of largest variance, (units, rank), orthonormal."""
    vectors: Tensor = torch.linalg.eigh(covariance.double()).eigenvectors
    return vectors[:, -rank:]


@torch.no_grad()
def feedback_directions(student: StepsNet, equilibria: Equilibria, rank: int) -> Tensor:
    """The directions in which the feedback W z varies most, (units, rank)."""
    values = equilibria.by_position(equilibria.inner - student.drive(equilibria.X)).double()
    return principal_directions(torch.cov(values.mT), rank)


__all__ = ["Equilibria", "FittedSteps", "feedback_directions", "fit_steps", "principal_directions"]
