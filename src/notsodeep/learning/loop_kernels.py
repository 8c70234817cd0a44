"""Inner products of the features of one looped network after k steps and after K steps.

All steps share their weights and start from z = 0, so that h₁ = σ_b B x + bias. Pre-activations of two samples at two
steps have the covariance, docs/theory.md (15.1),

    Λ(a+1, b+1) = σ_a² 𝒜F(q_a, q_b, Λ(a, b)) + b,   Λ(1, b) = Λ(a, 1) = b,   b = σ_b² C + bias.

Λ(k, K) takes min(k, K) steps along a diagonal: an explicit network whose rows and columns have variances of different
steps. Another model registers a function of its own with `step_kernel`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np

from notsodeep.duals.near_parallel import PairEquation
from notsodeep.errors import InputError
from notsodeep.forecasts.covariance_fields import GraphFields
from notsodeep.gaussian.moments import second_moment
from notsodeep.kernel_names import Kernel
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, ConvDEQ, Equilibrium, GraphDEQ, Loop, Program, Samples
from notsodeep.models.cell_models import CellModel
from notsodeep.models.cell_programs import CellProgram
from notsodeep.models.image_programs import ImageFeedforward, SampleSet
from notsodeep.models.mixing import Convolution
from notsodeep.models.programs import Feedforward, LayerInput, PairLayer, RowProgram
from notsodeep.models.variances import moment_at
from notsodeep.validation import Array

# Samples whose squared norms are computed together.
BLOCK = 32


@singledispatch
def step_kernel(model: Any, X: Any, Y: Any, left_steps: int, right_steps: int) -> Array:
    """⟨features of X after `left_steps` steps, features of Y after `right_steps` steps⟩ of one wide network.

    Args:
        model: the model of the step; a model registers its function here.
        X: checked samples of the rows.
        Y: checked samples of the columns.
        left_steps: steps for the rows.
        right_steps: steps for the columns.
    """
    raise InputError(
        f"loop_curve takes a DEQ, ConvDEQ, GraphDEQ, Equilibrium or Loop, or a model that is registered with "
        f"notsodeep.learning.step_kernel; got {type(model).__name__}."
    )


@singledispatch
def step_variances(model: Any, samples: Any, steps: int) -> Array:
    """Squared norms of the features of each sample after this many steps."""
    size = len(samples) if isinstance(model, GraphDEQ) else BLOCK
    parts = [samples[start : start + size] for start in range(0, len(samples), size)]
    return np.concatenate([np.diag(step_kernel(model, part, part, steps, steps)) for part in parts])


@step_variances.register
def _row_squares(model: DEQ, samples: Any, steps: int) -> Array:
    last = preactivation_variances(model, model.squared_norms(samples), steps)[-1]
    return moment_at(second_moment, model.activation, last)


def preactivation_variances(model: DEQ, squares: Array, steps: int) -> list[Array]:
    """Variances of the pre-activations after each step, for rows of these squared norms."""
    forcing = model.sigma_b2 * squares + model.bias2
    variances: list[Array] = []
    for number in range(steps):
        energy = moment_at(second_moment, model.activation, variances[-1]) if number else 0.0
        variances.append(np.asarray(model.sigma_a2 * energy + forcing))
    return variances


def layers_of(model: Any, depth: int) -> tuple[LayerInput, ...]:
    """The step as layers of an explicit network of this depth."""
    first = LayerInput(model.activation, model.sigma_b2, constant=model.bias2)
    later = LayerInput(model.activation, model.sigma_a2, model.sigma_b2, model.bias2)
    return (first, *[later] * (depth - 1))


@dataclass(frozen=True)
class TwoSteps:
    """A model whose rows are read after `left_steps` steps and whose columns after `right_steps`."""

    model: Any
    left_steps: int
    right_steps: int

    def __getattr__(self, name: str) -> Any:
        # Samples are checked and measured as the model of the step does it.
        if name in ("check_samples", "squared_norms", "centred", "to_dict"):
            return getattr(self.model, name)
        raise AttributeError(name)

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> Program:
        """The recursion along the diagonal."""
        ends = self.left_steps, self.right_steps
        if isinstance(self.model, CellModel):
            return CellProgram(self.model.cell, max(ends), left, right or left, kernels, ends)
        program = ImageLoop if isinstance(self.model, ConvDEQ) else RowLoop
        return program(self.model, ends, left, right or left)


class RowLoop(Feedforward):
    """The layers of a DEQ, with rows and columns at different steps."""

    def __init__(self, model: DEQ, steps: tuple[int, int], left: Samples, right: Samples) -> None:
        RowProgram.__init__(self, left, right)
        depth, self.sum_of_features = min(steps), False
        self.layers, self.tangent, self.watch = layers_of(model, depth), False, False
        sides = [
            preactivation_variances(model, np.asarray(part), count)[count - depth :]
            for part, count in zip(self.squares, steps, strict=True)
        ]
        phi, pairs = model.activation, zip(sides[0], sides[1], strict=True)
        self.steps = [PairLayer(phi, PairEquation(), rows, columns, False) for rows, columns in pairs]


class ImageLoop(ImageFeedforward):
    """The layers of a convolutional DEQ, with rows and columns at different steps."""

    def __init__(self, model: ConvDEQ, steps: tuple[int, int], left: Samples, right: Samples) -> None:
        self.loop, self.numbers, self.depth = model, steps, min(steps)
        # `_set` is called for the rows first.
        self._next = iter(steps)
        mixing = Convolution(tuple(left.values.shape[2:]), model.filter_size, model.padding)
        layers = list(layers_of(model, self.depth))
        super().__init__(layers, mixing, model.readout, left, right, (Kernel.CK,))

    def _set(self, samples: Samples) -> SampleSet:
        count, layers = next(self._next), self.layers
        self.layers = list(layers_of(self.loop, count))
        chosen, self.layers = super()._set(samples), layers
        return replace(chosen, variances=chosen.variances[count - self.depth :])

    def _own(self, left: Any, right: Any) -> Any:
        """A position meets itself only at the same step."""
        same: Any = super()._own(left, right)
        return same if self.numbers[0] == self.numbers[1] else (same[0][:0], same[1][:0])


@step_kernel.register(DEQ)
@step_kernel.register(ConvDEQ)
def _samples(model: DEQ | ConvDEQ, X: Any, Y: Any, left_steps: int, right_steps: int) -> Array:
    return exact_kernel(TwoSteps(model, left_steps, right_steps), X, Y)


@step_kernel.register
def _cells(model: CellModel, X: Any, Y: Any, left_steps: int, right_steps: int) -> Array:
    """A cell by its rules between two steps; one that is a named model as such."""
    if model.shorthand is None:
        return exact_kernel(TwoSteps(Loop(model.step, 1), left_steps, right_steps), X, Y)
    named = Equilibrium(model.step).shorthand
    return step_kernel(named, X, Y, left_steps, right_steps)


@step_kernel.register
def _nodes(model: GraphDEQ, X: Any, Y: Any, left_steps: int, right_steps: int) -> Array:
    """All nodes of the graph at both steps; X and Y are the same nodes."""
    S = model.propagation
    forcing = (model.sigma_b2 * (S @ (X @ X.T) @ S.T) + model.bias2)[None]
    fields = GraphFields(model.activation, model.sigma_a2, forcing, S)
    own = [forcing]
    for _ in range(1, max(left_steps, right_steps)):
        own.append(fields.step(fields.own_expectation(own[-1])))
    if left_steps == right_steps:
        return np.asarray(fields.own_expectation(own[left_steps - 1])[0])
    depth, covariance = min(left_steps, right_steps), forcing
    for number in range(1, depth + 1):
        places = left_steps - depth + number - 1, right_steps - depth + number - 1
        left, right = (fields.variances(own[place]) for place in places)
        value = fields.expectations(left, right, covariance)
        covariance = fields.step(value)
    return np.asarray(value[0])


__all__ = ["step_kernel", "step_variances"]
