"""Own steps of a DEQ, fitted one after the other to its equilibria in closed form, docs/theory.md (12.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from notsodeep.distillation.fitting import BATCH, Blocks, LinearFit, fit_linear
from notsodeep.distillation.student_networks import StepsNet
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights

# Largest size of the equilibria in bytes; largest number of observations for the fit of a step (each position of a
# sample is one); share of them that chooses the ridge.
_BUDGET, _OBSERVATIONS, _VALIDATION = 2**27, 200_000, 0.1
# Relative to the mean square of a feature.
_RIDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_RIDGE_OF_UNITS = 1e-6


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
    def of(cls, teacher: EquilibriumNet, X: Tensor) -> Equilibria:
        """The equilibria of as many samples as are needed and fit into memory."""
        count = teacher.connection.count
        size = teacher.units * count * X.element_size()
        rows = max(1, min(len(X), _BUDGET // size, -(-_OBSERVATIONS // count)))
        parts = [teacher.preactivations(part) for part in torch.split(X[:rows], BATCH)]
        return cls(X[:rows], torch.cat(parts), count)

    def of_units(self, units: Tensor) -> Equilibria:
        """The same for some of the units."""
        by_unit = self.inner.reshape(len(self.X), -1, self.positions)
        return Equilibria(self.X, by_unit[:, units].flatten(1), self.positions)

    def by_position(self, values: Tensor) -> Tensor:
        """Rows as (samples × positions, units)."""
        return values.reshape(len(values), -1, self.positions).movedim(1, 2).flatten(0, 1)


@torch.no_grad()
def fit_steps(student: StepsNet, equilibria: Equilibria) -> bool:
    """Fit the steps of a student that has the teacher's U and b; False if its layers are too large for that.

    Each step is to predict, from the step before it, the feedback W z of the equilibrium. With one step there is no
    feedback: then U and b are fitted to the pre-activations of the equilibria.
    """
    if student.length == 1:
        fit = _regression(student, equilibria, equilibria.X.flatten(1), lambda X, inner: inner)
        if fit is None:
            return False
        student.inputs.copy_(fit.weights.reshape(student.inputs.shape))
        student.bias.copy_(fit.bias)
        return True
    drives = torch.cat([student.drive(X) for X in torch.split(equilibria.X, BATCH)])
    states = student._phi(drives)
    for number in range(2, student.length + 1):
        fit = _regression(student, equilibria, states, lambda X, inner: inner - student.drive(X))
        if fit is None:
            return False
        weights = student.recurrent[number - 2]
        weights.copy_(fit.weights.reshape(weights.shape))
        student.biases[number - 2].copy_(fit.bias)
        pairs = zip(torch.split(states, BATCH), torch.split(drives, BATCH), strict=True)
        states = torch.cat([student.step(number, z, drive) for z, drive in pairs])
    return True


def _regression(
    student: StepsNet, equilibria: Equilibria, states: Tensor, target: Callable[[Tensor, Tensor], Tensor]
) -> LinearFit | None:
    """Regress the target on what the weights of a step multiply, at every position."""
    first = max(1, round(_VALIDATION * len(equilibria.X)))

    def blocks(start: int, stop: int) -> Blocks:
        for begin in range(start, stop, BATCH):
            part = slice(begin, min(begin + BATCH, stop))
            values = target(equilibria.X[part], equilibria.inner[part])
            yield student.connection.seen(states[part]), equilibria.by_position(values)

    return fit_linear(blocks(first, len(equilibria.X)), blocks(0, first), _RIDGES)


@torch.no_grad()
def representative_units(
    states: Tensor, connection: Connection, total: int, units: int
) -> tuple[Tensor, Tensor]:
    """Some of the units, and the matrix (total, units) that writes all of them as combinations of these.

    Units are chosen by a pivoted Cholesky factorisation of their second moments: each one is the unit that those before
    it explain least.

    Args:
        states: equilibria of some samples, (samples, total × positions).
        connection: matrices or filters.
        total: number of units.
        units: number of units to choose.
    """
    values = states.reshape(len(states), total, connection.count).movedim(1, 2).reshape(-1, total).double()
    gram = values.mT @ values
    left, factors = gram.diagonal().clone(), gram.new_zeros(units, total)
    chosen: list[int] = []
    for number in range(units):
        pivot = int(left.argmax())
        chosen.append(pivot)
        column = gram[:, pivot] - factors[:number, pivot] @ factors[:number]
        factors[number] = column / column[pivot].clamp(min=1e-300).sqrt()
        left -= factors[number].square()
        left[chosen] = -torch.inf
    kept = torch.tensor(sorted(chosen), device=states.device)
    small = gram[kept][:, kept]
    small.diagonal().add_(_RIDGE_OF_UNITS * small.diagonal().mean().clamp(min=1e-30))
    return kept, torch.linalg.solve(small, gram[kept]).mT.to(states.dtype)


@torch.no_grad()
def narrowed(weights: PlainWeights, kept: Tensor, mix: Tensor) -> PlainWeights:
    """A cell of fewer units: with z ≈ P z_S, the recurrent weights become (W P)_S and the readout R P.

    Args:
        weights: weights of the teacher.
        kept: S, the units that stay.
        mix: P, (units of the teacher, units that stay).
    """
    total, units = mix.shape
    flat = weights.recurrent[kept].reshape(units, total, -1)
    recurrent = torch.einsum("utk,tv->uvk", flat, mix).reshape(units, units, *weights.recurrent.shape[2:])
    by_unit = weights.readout.reshape(len(weights.readout), total, -1)
    readout = torch.einsum("otp,tv->ovp", by_unit, mix).flatten(1)
    return PlainWeights(recurrent, weights.inputs[kept], weights.bias[kept], readout, weights.readout_bias)


__all__ = ["Equilibria", "fit_steps", "narrowed", "representative_units"]
