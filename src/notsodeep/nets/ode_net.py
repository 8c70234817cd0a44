"""Neural ODEs of finite width, solved by torchdiffeq (extra `ode`), docs/theory.md (14.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.models import NeuralODE
from notsodeep.models.time_nodes import TimeNodes, euler_nodes, time_nodes
from notsodeep.nets.connections import DenseConnection
from notsodeep.nets.modules import Net, gaussian_draws, network_of
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.nets.weight_groups import WeightGroup
from notsodeep.validation import as_number, one_of

# Solvers of torchdiffeq with steps of their own choice, and relative tolerances by precision.
METHODS = ("dopri5", "dopri8", "bosh3", "adaptive_heun")
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5}
# Nodes in time at which gradients are computed for empirical kernels, and iterations of their equation.
NODES, ROUNDS = 20, 500


class ODENet(Net):
    """A neural ODE of finite width: dh/dt = σ_w W φ(h)/√m + σ_b B x - decay · h, outputs readout · h(T)/√m.

    With `spec.steps` it is Euler's method: a residual network whose layers share their weights.
    The solver chooses one step size for all rows of a batch, so that outputs depend on the other rows by less than
    `tolerance`. Gradients are those of the steps that were taken.

    Args:
        spec: the model.
        in_features: p.
        width: m.
        out_features: number of outputs.
        seed: random seed of the initial weights; None draws from torch's global generator.
        method: solver of torchdiffeq: "dopri5", "dopri8", "bosh3" or "adaptive_heun".
        tolerance: relative tolerance of the solver; 1e-5 in float32 and 1e-8 in float64 if None.
        options: keyword arguments of `Net`: train, scaling, dtype, device, output_scale.
    """

    spec: NeuralODE

    def __init__(
        self,
        spec: NeuralODE,
        in_features: int,
        width: int,
        out_features: int,
        *,
        seed: int | None = None,
        method: str = "dopri5",
        tolerance: float | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(spec, NeuralODE):
            raise InputError(f"ODENet takes a NeuralODE, not {type(spec).__name__}.")
        self._odeint = needed("torchdiffeq", "A neural ODE that trains").odeint
        super().__init__((in_features,), DenseConnection(), width, out_features, **options)
        self.spec, self.method = spec, one_of(method, METHODS, "method")
        self.tolerance = None if tolerance is None else as_number(tolerance, "tolerance", positive=True)
        self._phi = TorchActivation(spec.activation, 1.0 / sqrt(self.width))
        draw = gaussian_draws(seed)
        self._add("recurrent", draw(self.width, self.width))
        for name, variance in (("start", spec.sigma_u2), ("inputs", spec.sigma_b2)):
            if variance:
                self._add(name, draw(self.width, self.in_features))
        self._add("readout", draw(self.out_features, self.width))

    def features(self, X: Tensor) -> Tensor:
        """The state at the end divided by √m, (rows, width)."""
        return self.states(X, [self.spec.duration])[-1] / sqrt(self.width)

    def states(self, X: Tensor, times: Sequence[float]) -> Tensor:
        """The state at ascending times, (times, rows, width); with Euler's method, at the nearest steps."""
        start, derivative = self._equation(X)
        if self.spec.steps is not None:
            length, path = self.spec.duration / self.spec.steps, [start]
            for _ in range(self.spec.steps):
                path.append(path[-1] + length * derivative(start, path[-1]))
            return torch.stack([path[round(time / length)] for time in times])
        tolerance = self.tolerance or TOLERANCE.get(start.dtype, 1e-4)
        points = torch.tensor([0.0, *times], dtype=torch.float64, device=start.device)
        try:
            states: Tensor = self._odeint(
                derivative, start, points, rtol=tolerance, atol=0.1 * tolerance, method=self.method
            )
        except AssertionError as error:
            # The solver asserts that its steps are not too short.
            raise ConvergenceError(
                f"The solver {self.method} did not reach the end of {self.spec}: {error}.",
                "Check that X is finite; shorten the duration, add a decay, or raise the tolerance.",
            ) from None
        return states[1:]

    def _equation(self, X: Tensor) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
        """The initial state, and dh/dt as a function of time and state."""
        rows = self._rows(X)
        forcing = self._injected("inputs", self.spec.sigma_b2, rows)
        weights = self._recurrent()

        def derivative(t: Tensor, h: Tensor) -> Tensor:
            moved = self._phi(h) @ weights.mT + forcing
            return moved - self.spec.decay * h if self.spec.decay else moved

        return self._injected("start", self.spec.sigma_u2, rows), derivative

    @property
    def nodes(self) -> TimeNodes:
        """The nodes over which gradients are integrated."""
        if self.spec.steps is not None:
            return euler_nodes(self.spec.steps, self.spec.duration, self.spec.decay)
        return time_nodes(NODES, self.spec.duration, self.spec.decay)

    def _recurrent(self) -> Tensor:
        """The recurrent weights times their standard deviation, σ_w W."""
        return sqrt(self.spec.sigma_w2) * self.unit_weight("recurrent")

    def _injected(self, name: str, variance: float, rows: Tensor) -> Tensor:
        """σ times weights times the input; zero without such weights."""
        if not variance:
            return rows.new_zeros(len(rows), self.width)
        return rows @ (sqrt(variance) * self.unit_weight(name)).mT

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup]:
        """All weights, by integrals over nodes in time, then the readout."""
        spec, rows, root, nodes = self.spec, self._rows(X), sqrt(self.width), self.nodes
        states = self.states(X, [*nodes.times.tolist(), spec.duration])
        back, first = self._gradients(nodes, states[:-1])
        weights = _tensor(nodes.weights, rows)
        # Signals and gradients at all nodes side by side.
        signal = self._phi(states[:-1]).movedim(0, 1)
        yield TimeGroup(signal, back.movedim(0, 2), spec.sigma_w2, weights)
        if spec.sigma_u2:
            yield WeightGroup(rows, first, spec.sigma_u2)
        if spec.sigma_b2:
            yield WeightGroup(rows, torch.einsum("t,torm->orm", weights, back), spec.sigma_b2)
        yield WeightGroup(states[-1] / root, None, self.output_scale**2)

    def _gradients(self, nodes: TimeNodes, states: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives of the outputs in the state at the nodes (times, outputs, rows, width), and at time 0."""
        weights, slopes = self._recurrent(), self._phi.slope(states)[:, None]
        last = self.factors["readout"] * self.readout[None, :, None] / sqrt(self.width)
        fade = _tensor(nodes.fade, states)
        direct = fade[:-1].flip(0)[:, None, None, None] * last
        matrix, back = _tensor(nodes.backward, states), direct.expand(-1, -1, states.shape[1], -1)
        limit = 10.0 * torch.finfo(states.dtype).eps
        for _ in range(ROUNDS):
            pulled = slopes * (back @ weights)
            moved = direct + torch.tensordot(matrix, pulled, dims=1)
            change = float((moved - back).abs().max() / moved.abs().max())
            back = moved
            if change <= limit:
                break
        first = fade[-1] * last[0] + torch.tensordot(
            _tensor(nodes.start, states), slopes * (back @ weights), dims=1
        )
        return back, first


@dataclass(frozen=True)
class TimeGroup(WeightGroup):
    """Weights that act at all times: the gradient is rate^½ ∫ back(t) ⊗ signal(t) dt.

    Attributes:
        signal: (rows, times, fan_in).
        back: (outputs, rows, times, width).
        weights: weights of the times in the integral.
    """

    weights: Tensor

    def inner_products(self, other: WeightGroup) -> Tensor:
        """⟨gradient of sample i, gradient of sample j of `other`⟩ without the rate, averaged over the outputs."""
        if self.back is None or other.back is None or not isinstance(other, TimeGroup):
            raise ValueError("weights over time need the derivative of the outputs at all times")
        one, two = (self.weights[:, None] * self.back), (other.weights[:, None] * other.back)
        signals = torch.einsum("isf,jtf->sitj", self.signal, other.signal)
        gradients = torch.einsum("kism,kjtm->sitj", one, two)
        return (signals * gradients).sum(dim=(0, 2)) / len(self.back)


def _tensor(values: Any, like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)


@network_of.register
def _(spec: NeuralODE, sample_shape: Sequence[int], width: int, out_features: int, **options: Any) -> Net:
    options = {name: value for name, value in options.items() if name not in ("solver", "contractive")}
    return ODENet(spec, sample_shape[0], width, out_features, **options)


__all__ = ["ODENet"]
