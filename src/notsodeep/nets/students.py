"""A few steps of an equilibrium, each with weights of its own: the networks that replace a trained DEQ.

docs/theory.md (12.1).  They are ordinary feed-forward modules: no solver, and nothing that ONNX does not know.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.modules import gaussian_draws
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.validation import as_count

# Relative to the mean square of a unit: what keeps the fit of units to others from following noise.
_RIDGE = 1e-6


class StepsNet(nn.Module):
    """z_1 = φ(g_1 d), z_l = φ(W_l z_(l-1) + g_l d + b_l) with d = U x + b; outputs R z_L + r.

    With W_l = W, g_l = 1 and b_l = 0 it is the DEQ z = φ(W z + U x + b) cut after L steps.  U x is computed once, so
    that it costs what the cut DEQ costs, whatever W_l and g_l have become.

    Args:
        weights: W, U, b, R and r to start from.
        activation: φ.
        connection: what W and U do to a layer: matrices or filters.
        steps: L.

    Attributes:
        sample_shape: the shape of one sample.
        units: number of units of a layer; for images channels.
        width: number of features that are read out.
        steps: L.
    """

    def __init__(
        self,
        weights: PlainWeights,
        activation: Activation,
        connection: Connection,
        sample_shape: tuple[int, ...],
        steps: int,
    ) -> None:
        super().__init__()
        self.steps = as_count(steps, "steps")
        self.connection, self.sample_shape = connection, tuple(sample_shape)
        self.activation = activation
        self.units = len(weights.recurrent)
        self._phi = TorchActivation(activation)
        self.inputs = nn.Parameter(weights.inputs.detach().clone())
        self.bias = nn.Parameter(weights.bias.detach().clone())
        self.gain1 = nn.Parameter(torch.ones_like(weights.bias))
        for step in range(2, self.steps + 1):
            self.register_parameter(f"recurrent{step}", nn.Parameter(weights.recurrent.detach().clone()))
            self.register_parameter(f"gain{step}", nn.Parameter(torch.ones_like(weights.bias)))
            self.register_parameter(f"bias{step}", nn.Parameter(torch.zeros_like(weights.bias)))
        self.readout = nn.Parameter(weights.readout.detach().clone())
        self.readout_bias = nn.Parameter(weights.readout_bias.detach().clone())
        self.width, self.out_features = self.readout.shape[1], self.readout.shape[0]

    def features(self, X: Tensor) -> Tensor:
        """The last step of every sample, as it is read out, (rows, width)."""
        drive = self.connection.image(self.inputs, X.flatten(1), self.bias)
        # Units and their positions apart: gains and biases are those of units.
        by_unit = drive.reshape(-1, self.units, self.connection.count)
        z = self._phi((self.gain1[:, None] * by_unit).flatten(1))
        for step in range(2, self.steps + 1):
            recurrent, gain, bias = (getattr(self, f"{name}{step}") for name in ("recurrent", "gain", "bias"))
            again = (gain[:, None] * by_unit + bias[:, None]).flatten(1)
            z = self._phi(self.connection.image(recurrent, z) + again)
        return self.connection.read(z)

    def outputs(self, features: Tensor) -> Tensor:
        """The readout of given features, (rows, out_features)."""
        return torch.addmm(self.readout_bias, features, self.readout.mT)

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, out_features)."""
        return self.outputs(self.features(X))

    @torch.no_grad()
    def rescale(self, recurrent: list[float], gains: list[float]) -> None:
        """Multiply W_2, …, W_L and set the gains g_1, …, g_L."""
        for step, factor in enumerate(recurrent, 2):
            getattr(self, f"recurrent{step}").mul_(factor)
        for step, gain in enumerate(gains, 1):
            getattr(self, f"gain{step}").fill_(gain)

    @torch.no_grad()
    def set_readout(self, weights: Tensor, bias: Tensor) -> None:
        """Replace R and r."""
        self.readout.copy_(weights)
        self.readout_bias.copy_(bias)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        shape = "×".join(map(str, self.sample_shape))
        return (
            f"{self.activation}, steps={self.steps}, inputs={shape}, units={self.units}, "
            f"out_features={self.out_features}"
        )


def first_steps(teacher: EquilibriumNet, steps: int) -> StepsNet:
    """The teacher cut after some steps, with copies of its weights."""
    return StepsNet(
        teacher.plain_weights(), teacher.spec.activation, teacher.connection, teacher.sample_shape, steps
    )


def random_steps(
    activation: Activation,
    connection: Connection,
    sample_shape: tuple[int, ...],
    units: int,
    out_features: int,
    steps: int,
    *,
    sigma_a2: float,
    input_square: float,
    seed: int,
    like: Tensor,
) -> StepsNet:
    """Steps with freshly drawn weights, for teachers whose weights cannot be read.

    Args:
        activation: φ.
        connection: matrices or filters.
        sample_shape: the shape of one sample.
        units: of a layer.
        out_features: number of outputs.
        steps: their number.
        sigma_a2: variance of the recurrent weights; that of the input weights is 1 - sigma_a2 for inputs of norm 1.
        input_square: mean squared norm of what a unit sees, by which the input weights are divided.
        seed: of the weights.
        like: a tensor of the wanted precision and device.
    """
    draw, taps = gaussian_draws(seed), connection.filter_shape
    entering = sample_shape[0]
    recurrent = draw(units, units, *taps) * sqrt(sigma_a2 / (units * connection.taps))
    inputs = draw(units, entering, *taps) * sqrt((1.0 - sigma_a2) / (connection.taps * input_square))
    zeros = torch.zeros(units, dtype=torch.float64)
    readout = torch.zeros(out_features, connection.features_of(units), dtype=torch.float64)
    plain = PlainWeights(
        *(part.to(like) for part in (recurrent, inputs, zeros, readout, readout.new_zeros(out_features)))
    )
    return StepsNet(plain, activation, connection, sample_shape, steps)


@torch.no_grad()
def narrowed(weights: PlainWeights, connection: Connection, states: Tensor, units: int) -> PlainWeights:
    """A cell of fewer units: some of the teacher's, and all others written as combinations of these.

    With z ≈ P z_S for the chosen units S, found by least squares on equilibria, W z ≈ (W P) z_S: the recurrent weights
    become (W P)_S and the readout R P.

    Args:
        weights: of the teacher.
        connection: matrices or filters.
        states: equilibria of some samples, (samples, units × positions).
        units: how many to keep.
    """
    total = len(weights.recurrent)
    if not 1 <= units <= total:
        raise InputError(f"width={units} is not between 1 and the {total} units of the teacher.")
    values = states.reshape(len(states), total, connection.count).movedim(1, 2).reshape(-1, total).double()
    chosen = _pivots(values, units)
    kept = values[:, chosen]
    gram = kept.mT @ kept
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
    mix = torch.linalg.solve(gram, kept.mT @ values).mT.to(weights.recurrent)  # (total, units)
    taps = weights.recurrent.shape[2:]
    flat = weights.recurrent[chosen].reshape(units, total, -1)
    recurrent = torch.einsum("utk,tv->uvk", flat, mix).reshape(units, units, *taps)
    by_unit = weights.readout.reshape(len(weights.readout), total, -1)
    readout = torch.einsum("otp,tv->ovp", by_unit, mix).flatten(1)
    return PlainWeights(
        recurrent, weights.inputs[chosen], weights.bias[chosen], readout, weights.readout_bias
    )


def _pivots(values: Tensor, count: int) -> Tensor:
    """Columns chosen in turn, each the one that those before explain least: pivoted Cholesky of the Gram matrix."""
    gram = values.mT @ values
    left = gram.diagonal().clone()
    factors: list[Tensor] = []
    chosen: list[int] = []
    for _ in range(count):
        pivot = int(left.argmax())
        chosen.append(pivot)
        column = gram[:, pivot].clone()
        for factor in factors:
            column -= factor[pivot] * factor
        factors.append(column / column[pivot].clamp(min=1e-300).sqrt())
        left -= factors[-1].square()
        left[chosen] = -torch.inf
    return torch.tensor(sorted(chosen), device=values.device)


__all__ = ["StepsNet", "first_steps", "narrowed", "random_steps"]
