"""Steps fitted one after the other to a teacher's equilibria, in closed form: where the fit of all weights starts.

docs/theory.md (12.4): each step is to predict, from the step before it, the feedback W z that the equilibrium has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.readout_fit import Blocks, LinearFit, fit_linear
from notsodeep.nets.students import StepsNet

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


@torch.no_grad()
def fit_steps(student: StepsNet, equilibria: Equilibria, batch: int) -> bool:
    """Fit the steps of a student, which has the teacher's U and b; False if its layers are too large for that.

    With one step there is no feedback: then U and b are fitted to the equilibria themselves.
    """
    if student.steps == 1 and not student.guess:
        fit = _regression(student, equilibria, batch, lambda X: X.flatten(1), lambda X, inner: inner)
        if fit is None:
            return False
        student.inputs.copy_(fit.weights.reshape(student.inputs.shape))
        student.bias.copy_(fit.bias)
        return True
    for place, feedback in enumerate(student.feedback.steps()):

        def before(X: Tensor, last: int = place + student.first_feedback() - 1) -> Tensor:
            return _state(student, X, last)

        fit = _regression(student, equilibria, batch, before, lambda X, inner: inner - student.drive(X))
        if fit is None:
            return False
        weights, bias = fit.weights, fit.bias
        directions = None
        if feedback.rank is not None:
            directions = principal_directions(weights @ fit.covariance @ weights.mT, feedback.rank)
            kept = directions @ (directions.mT @ weights)
            bias = bias + (weights - kept) @ fit.mean
        shape = (student.units, *student.connection.filter_shape)
        feedback.set_weights(weights.reshape(len(weights), *shape).to(student.inputs), directions)
        student.gains[place].fill_(1.0)
        student.biases[place].copy_(bias)
    return True


def _state(student: StepsNet, X: Tensor, last: int) -> Tensor:
    drive = z = student.drive(X)
    for number in range(1, last + 1):
        z = student.step(number, z, drive)
    return z


def _regression(
    student: StepsNet,
    equilibria: Equilibria,
    batch: int,
    states: Callable[[Tensor], Tensor],
    wanted: Callable[[Tensor, Tensor], Tensor],
) -> LinearFit | None:
    """What a step's weights see, against what they are to give, at every position."""
    judges = max(1, round(_JUDGES * len(equilibria.X)))

    def blocks(first: int, last: int) -> Blocks:
        for start in range(first, last, batch):
            part = slice(start, min(start + batch, last))
            X = equilibria.X[part]
            yield (
                student.connection.seen(states(X)),
                equilibria.by_position(wanted(X, equilibria.inner[part])),
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


__all__ = ["Equilibria", "feedback_directions", "fit_steps", "principal_directions"]
