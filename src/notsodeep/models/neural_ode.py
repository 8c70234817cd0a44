"""Neural ordinary differential equations (docs/theory.md, section 14).

NeuralODE("tanh", sigma_w2=1.0, duration=1.0)                   # dh/dt = σ_w W φ(h)/√m, h(0) = σ_u U x
NeuralODE("tanh", 1.0, duration=3.0, sigma_b2=0.5, decay=1.0)   # reads the input all the time, and forgets
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.activations import activation as as_activation
from notsodeep.gaussian.moments import mean_derivative
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping, number
from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import RowModel, Samples, WriteActivation, as_tau
from notsodeep.models.time_nodes import time_nodes
from notsodeep.models.time_programs import TimeProgram, own_states
from notsodeep.validation import Array, as_count, as_number, as_variance

_NUMBERS = ("sigma_w2", "duration", "sigma_u2", "sigma_b2", "decay")
# Nodes on which variances of single samples are computed, and rounds of centring.
NODES, ROUNDS, CENTRED = 20, 50, 1e-13


@dataclass(frozen=True, init=False)
class NeuralODE(RowModel):
    """A neural ODE dh/dt = σ_w W φ(h)/√m + σ_b B x - decay · h, h(0) = σ_u U x, with weights constant in time.

    The conjugate kernel is the covariance of the state h(duration); the tangent kernel has a readout of unit variance
    on that state and gradients of all weights, (14.1)–(14.4). For large decay · duration the state is the
    pre-activation of `DEQ(activation, sigma_w2/decay**2, sigma_b2/decay**2)`.

    Args:
        activation: φ, by name, as an Activation, or as a function that `notsodeep.activation` knows.
        sigma_w2: width times the variance of a recurrent weight.
        duration: T, the time at which the state is read.
        sigma_u2: variance of a weight of the initial state.
        sigma_b2: variance of a weight by which the derivative reads the input.
        decay: rate at which the state decays.
        steps: Euler's method with this many steps in the place of the solution: a residual network whose layers share
            their weights; see `unrolled`.
    """

    activation: Activation
    sigma_w2: float
    duration: float
    sigma_u2: float
    sigma_b2: float
    decay: float
    steps: int | None

    def __init__(
        self,
        activation: Any,
        sigma_w2: float = 1.0,
        duration: float = 1.0,
        sigma_u2: float = 1.0,
        sigma_b2: float = 0.0,
        decay: float = 0.0,
        steps: int | None = None,
    ) -> None:
        variances = {"sigma_w2": sigma_w2, "sigma_u2": sigma_u2, "sigma_b2": sigma_b2}
        numbers = {name: as_variance(value, name) for name, value in variances.items()}
        numbers["duration"] = as_number(duration, "duration", positive=True)
        numbers["decay"] = as_number(decay, "decay")
        if numbers["sigma_u2"] == numbers["sigma_b2"] == 0.0:
            raise InputError(
                "sigma_u2 and sigma_b2 are both 0, so that the state does not depend on the input. Give one of them."
            )
        object.__setattr__(self, "activation", as_activation(activation))
        object.__setattr__(self, "steps", None if steps is None else as_count(steps, "steps"))
        for name, value in numbers.items():
            object.__setattr__(self, name, value)

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> TimeProgram:
        """One integral equation for each pair of samples, (14.1)."""
        if Kernel.NTK_PAPER in kernels:
            raise InputError(
                "The papers' tangent kernel 'ntk_paper' is not defined for a neural ODE. Use 'ntk'."
            )
        return TimeProgram(self, left, right, any(kernel.is_tangent for kernel in kernels))

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activation φ."""
        return (self.activation,)

    def variances(self, squares: Array, nodes: int = NODES) -> Array:
        """Variances of the state at Legendre nodes in time, (samples, nodes), for samples with these squared norms."""
        exact = replace(self, steps=None)
        return own_states(exact, time_nodes(nodes, self.duration, self.decay), squares)[0]

    def preactivation_variance(self, tau0: float) -> float:
        """The variance of the state at the end, for inputs of norm tau0."""
        nodes = time_nodes(NODES, self.duration, self.decay)
        values = self.variances(np.array([as_tau(tau0) ** 2]))[0]
        return float((nodes.interpolation(np.array([self.duration])) @ values)[0])

    def preactivation_variances(self, tau0: float) -> list[float]:
        """The same in a list, as explicit networks have it for their layers."""
        return [self.preactivation_variance(tau0)]

    def unrolled(self, depth: int) -> NeuralODE:
        """Euler's method with `depth` steps, whose weights are shared as in the model itself."""
        return replace(self, steps=depth)

    def largest_variance(self, norm: float) -> float:
        """The largest variance of the state over time, for inputs of norms up to `norm`."""
        squares = norm**2 * np.concatenate([[0.0], np.geomspace(1e-8, 1.0, 5)])
        return float(self.variances(squares).max())

    def centred(self, tau0: float) -> NeuralODE:
        """The same model with φ shifted so that the mean of φ(h(t)), as it reaches the end, is zero.

        The variance of h changes with time, and the mean of φ with it: only its integral ∫ e^{-decay (T - t)} E[φ] dt
        is zero for inputs of norm tau0, not E[φ] at every time. Odd activations are centred as they are.
        """
        square, nodes = np.array([as_tau(tau0) ** 2]), time_nodes(NODES, self.duration, self.decay)
        weights, model = nodes.end / nodes.end.sum(), self
        for _ in range(ROUNDS):
            mean = float(weights @ mean_derivative(model.activation, model.variances(square)[0], 0))
            if abs(mean) <= CENTRED:
                break
            model = replace(model, activation=model.activation.shifted(-mean))
        return model

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole model as plain JSON values, from which `model_from_dict` makes it again."""
        numbers = {name: getattr(self, name) + 0.0 for name in _NUMBERS}
        return {"kind": "neural_ode", "activation": write(self.activation), **numbers, "steps": self.steps}

    @classmethod
    def from_dict(cls, data: Any) -> NeuralODE:
        """The model that `to_dict` wrote down."""
        entry = mapping(data, "a model", ("kind", "activation", *_NUMBERS, "steps"))
        numbers: dict[str, Any] = {key: number(entry[key], key) for key in _NUMBERS}
        return cls(activation_from_dict(entry["activation"]), **numbers, steps=entry["steps"])

    def __str__(self) -> str:
        parts = [f"{self.activation}", f"sigma_w2={self.sigma_w2:g}", f"duration={self.duration:g}"]
        defaults = (("sigma_u2", 1.0), ("sigma_b2", 0.0), ("decay", 0.0))
        parts += [
            f"{name}={getattr(self, name):g}" for name, usual in defaults if getattr(self, name) != usual
        ]
        return f"NeuralODE({', '.join(parts)})" + (f" by {self.steps} Euler steps" if self.steps else "")


__all__ = ["NeuralODE"]
