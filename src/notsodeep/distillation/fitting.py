"""Fits of students to a teacher's outputs: the readout in closed form, relaxation factors, all weights.

Own steps of a DEQ are fitted one after the other to its equilibria in closed form, docs/theory.md (12.4).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from notsodeep.distillation.certainty import relative_error
from notsodeep.distillation.student_networks import LARGEST, StepsNet, Student, UnrolledCell, linear_layer
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.progress import Report

# Ridges to choose from, relative to the mean square of a feature; fewer of them where each one costs seconds.
RIDGES = tuple(10.0**power for power in range(-9, 1))
_FEW_RIDGES, _MANY_FEATURES = RIDGES[1::2], 300
# Adam's largest learning rate for this many units, falling with their root; the share of the steps in which it rises.
_RATE, _RATE_UNITS, _WARM_UP = 2e-3, 256, 0.05
# An epoch has at least so many steps, as long as they have so many rows.
_LEAST_BATCHES, _SMALLEST_BATCH = 40, 16
# Rows per product of features, rows that relaxation factors are fitted to, and iterations of that fit.
_BLOCK, _RELAXATION_ROWS, _ITERATIONS = 2048, 512, 12
# Rows per forward pass where no gradient is recorded.
BATCH = 256

# Samples and outputs; features and targets of some observations, block by block.
Part = tuple[Tensor, Tensor]
Blocks = Iterable[Part]


@torch.no_grad()
def in_batches(function: Callable[[Tensor], Tensor], X: Tensor, batch: int = BATCH) -> Tensor:
    """The outputs for all samples."""
    return torch.cat([function(part) for part in torch.split(X, batch)])


class LinearFit(NamedTuple):
    """Targets ≈ weights · features + bias, in double precision: (targets, features) and (targets,)."""

    weights: Tensor
    bias: Tensor


@torch.no_grad()
def fit_linear(
    blocks: Blocks, validation: Blocks, ridges: Sequence[float] | None = None, toward: Tensor | None = None
) -> LinearFit | None:
    """Ridge regression with an intercept that is not penalised; None if there are too many features.

    Args:
        blocks: features and targets to fit to.
        validation: features and targets by which the ridge is chosen.
        ridges: ridges to choose from, relative to the mean square of a feature; ten powers of ten if None.
        toward: weights, the distance to which is penalised; zero if None.
    """
    count, sums = 0, None
    for features, targets in blocks:
        if features.shape[1] > LARGEST:
            return None
        # Products in the precision of the features, which have no more digits; sums in double precision.
        targets = targets.to(features)
        parts = (
            features.mT @ features,
            features.mT @ targets,
            features.double().sum(0),
            targets.double().sum(0),
        )
        sums = [part.double() + (0.0 if sums is None else sums[i]) for i, part in enumerate(parts)]
        count += len(features)
    if sums is None or not count:
        return None
    mean, goal = sums[2] / count, sums[3] / count
    second = sums[0] - count * torch.outer(mean, mean)
    cross = sums[1] - count * torch.outer(mean, goal)
    known = 0.0 if toward is None else toward.to(second).mT
    if toward is not None:
        cross = cross - second @ known
    fits: list[LinearFit] = []
    for ridge in ridges or (RIDGES if len(mean) <= _MANY_FEATURES else _FEW_RIDGES):
        shifted = second.clone()
        shifted.diagonal().add_(ridge * second.diagonal().mean().clamp(min=1e-300))
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            weights = (torch.cholesky_solve(cross, factor) + known).mT
            fits.append(LinearFit(weights, goal - weights @ mean))
    errors = torch.zeros(len(fits), dtype=torch.float64)
    for features, targets in validation:
        for number, (weights, bias) in enumerate(fits):
            outputs = torch.addmm(bias.to(features), features, weights.to(features).mT)
            errors[number] += float((outputs - targets).double().square().sum())
    if not fits or not bool(torch.isfinite(errors).any()):
        return None
    return fits[int(errors.nan_to_num(torch.inf).argmin())]


@dataclass
class Fitter:
    """Fits students to the teacher's outputs.

    Attributes:
        train: samples and the teacher's outputs to fit to.
        validation: samples and outputs that choose ridges and stop descents.
        seed: seed of the shuffling.
        report: progress callback.
    """

    train: Part
    validation: Part
    seed: int
    report: Report

    def error(self, student: nn.Module) -> float:
        """Relative error of the outputs on the validation rows; infinite if an output is not finite."""
        X, Y = self.validation
        error = relative_error(in_batches(student, X), Y)
        return error if math.isfinite(error) else math.inf

    def readout(self, student: Student) -> bool:
        """Refit the readout in closed form; False if it has too many features, or nothing was gained."""
        old, before = student.linear, self.error(student)
        if old.in_features > LARGEST:
            return False
        train, validation = (self._blocks(student, *part) for part in (self.train, self.validation))
        fit = fit_linear(train, validation, toward=old.weight)
        if fit is None:
            return False
        student.linear = linear_layer(*(one.to(old.weight) for one in fit))
        if self.error(student) < before:
            return True
        student.linear = old
        return False

    def _blocks(self, student: Student, X: Tensor, Y: Tensor) -> Blocks:
        for rows, target in zip(torch.split(X, _BLOCK), torch.split(Y, _BLOCK), strict=True):
            yield in_batches(student.features, rows), target

    def relaxation(self, student: UnrolledCell, start: Tensor | None = None) -> None:
        """Fit one relaxation factor for each step to the outputs, by L-BFGS; factors that do not help are undone.

        Args:
            student: the cut cell, with a readout.
            start: factors of the first steps to start from; 1 for the others.
        """
        X, Y = (part[:_RELAXATION_ROWS] for part in self.train)
        factors = torch.ones(student.length, dtype=X.dtype, device=X.device)
        before, error = student.relaxation, self.error(student)
        if start is not None:
            factors[: len(start)] = start.detach()
        student.relaxation = relaxation = nn.Parameter(factors)
        scale = float((Y - Y.mean(0)).square().mean().clamp(min=1e-30))
        optimizer = torch.optim.LBFGS(
            [student.relaxation], max_iter=_ITERATIONS, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            value: Tensor = (student(X) - Y).square().mean() / scale
            (relaxation.grad,) = torch.autograd.grad(value, relaxation)
            return value

        with torch.enable_grad():
            optimizer.step(loss)  # type: ignore[no-untyped-call]
        relaxation.grad = None
        if not self.error(student) < error:
            student.relaxation = before

    def all_weights(self, student: Student, epochs: int, name: str, units: int) -> None:
        """Adam on the squared distance of the outputs; the weights with the least validation error are kept.

        Args:
            student: the network.
            epochs: passes over the rows.
            name: what progress reports call it.
            units: units of a layer, by which the learning rate is scaled.
        """
        X, Y = self.train
        scale = float((Y - Y.mean(0)).square().mean().clamp(min=1e-30))
        rate = _RATE * math.sqrt(_RATE_UNITS / units)
        optimizer = torch.optim.Adam(student.parameters(), lr=rate, fused=True)
        generator = torch.Generator().manual_seed(self.seed)
        best, state = self.error(student), copy.deepcopy(student.state_dict())
        batch = min(BATCH, max(_SMALLEST_BATCH, len(X) // _LEAST_BATCHES))
        batches = math.ceil(len(X) / batch)
        total = epochs * batches
        for epoch in range(epochs):
            order = torch.randperm(len(X), generator=generator).to(X.device)
            for number, part in enumerate(torch.split(order, batch)):
                done = epoch * batches + number
                for group in optimizer.param_groups:
                    group["lr"] = rate * _schedule((done + 0.5) / total)
                optimizer.zero_grad()
                with torch.enable_grad():
                    loss = (student(X[part]) - Y[part]).square().mean() / scale
                    loss.backward()
                optimizer.step()
                self.report(done + 1, total, partial(str, name))
            error = self.error(student)
            if error < best:
                best, state = error, copy.deepcopy(student.state_dict())
        student.load_state_dict(state)
        student.zero_grad()
        # Features have moved: the best readout for them is again a closed form.
        self.readout(student)


def _schedule(progress: float) -> float:
    """The factor on the learning rate: a short rise, then a cosine to zero."""
    return min(1.0, progress / _WARM_UP) * 0.5 * (1.0 + math.cos(math.pi * progress))


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
