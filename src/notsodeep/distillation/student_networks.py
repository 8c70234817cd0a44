"""The networks that may replace a teacher: a cell cut after a few steps, own steps of a DEQ, and MLPs.

All are ordinary feed-forward modules: features of a sample, and a linear map of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.torch_activation import TorchActivation

# Features up to which a linear map is fitted in closed form: more would take a minute and half a gigabyte. Of own steps
# fewer are read out where the last step alone has fewer.
LARGEST, _MOST_READ = 4096, 3400


class Student(nn.Module):
    """A network with outputs linear(features).

    Attributes:
        linear: the readout.
        sample_shape: the shape of one sample.
        steps: number of steps of the teacher's cell; None for a network without steps.
    """

    linear: nn.Linear
    sample_shape: tuple[int, ...]
    steps: int | None = None

    def features(self, X: Tensor) -> Tensor:
        """What the readout sees, (rows, features)."""
        raise NotImplementedError

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs)."""
        outputs: Tensor = self.linear(self.features(X))
        return outputs


def linear_layer(weights: Tensor, bias: Tensor) -> nn.Linear:
    """A `torch.nn.Linear` with copies of these weights."""
    layer = nn.Linear(weights.shape[1], weights.shape[0], device=weights.device, dtype=weights.dtype)
    with torch.no_grad():
        layer.weight.copy_(weights)
        layer.bias.copy_(bias)
    return layer


def _apply(phi: TorchActivation, inner: Tensor) -> Tensor:
    """φ, written over its argument where no gradient is recorded."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return phi(inner)
    return phi.write(inner, inner)


class DEQCell(nn.Module):
    """The step z → φ(W z + d) of a DEQ with drive d = U x + b, for rows and images, and its readout."""

    def __init__(self, teacher: EquilibriumNet) -> None:
        super().__init__()
        weights = teacher.plain_weights()
        self.connection, self.sample_shape = teacher.connection, teacher.sample_shape
        self.recurrent, self.inputs = nn.Parameter(weights.recurrent), nn.Parameter(weights.inputs)
        self.bias, self._phi = nn.Parameter(weights.bias), TorchActivation(teacher.spec.activation)
        self.linear = linear_layer(weights.readout, weights.readout_bias)

    def inject(self, X: Tensor) -> Tensor:
        """The drive d."""
        return self.connection.image(self.inputs, X.flatten(1), self.bias)

    def first(self, drive: Tensor, factor: Tensor | None) -> Tensor:
        """The first state, from 0."""
        z = self._phi(drive)
        return z if factor is None else factor * z

    def forward(self, z: Tensor, drive: Tensor) -> Tensor:
        """The next state."""
        if self.connection.count == 1:
            inner = torch.addmm(drive, z, self.recurrent.mT)
        else:
            inner = drive + self.connection.image(self.recurrent, z)
        return _apply(self._phi, inner)

    def read(self, z: Tensor) -> Tensor:
        """The features that are read out."""
        return self.connection.read(z)


class ModuleCell(nn.Module):
    """The cell z → cell(z, x) of any torch module, and its readout.

    Of a readout that is not linear the outputs become features beside the state, so that what is fitted is linear.

    Args:
        cell: the cell.
        readout: from a state to outputs.
        z0: the first state: a tensor of the shape of one state, or a function of the samples; None for zero, where
            `readout` is a `torch.nn.Linear`.
        X: some samples.
    """

    def __init__(self, cell: Any, readout: Any, z0: Any, X: Tensor) -> None:
        super().__init__()
        self.cell, self.readout, self.z0, self.sample_shape = cell, readout, z0, tuple(X.shape[1:])
        state = self.start(X)
        if isinstance(readout, nn.Linear):
            bias = readout.bias if readout.bias is not None else X.new_zeros(readout.out_features)
            self.linear = linear_layer(readout.weight, bias)
        else:
            outputs = readout(state).shape[1]
            self.linear = linear_layer(
                torch.eye(outputs, self.read(state).shape[1]).to(X), X.new_zeros(outputs)
            )

    def inject(self, X: Tensor) -> Tensor:
        """The sample itself."""
        return X

    def start(self, X: Tensor) -> Tensor:
        """The state before the first step."""
        if self.z0 is None:
            return X.new_zeros(len(X), self.readout.in_features)
        z: Tensor = (
            self.z0.to(X).expand(len(X), *self.z0.shape) if isinstance(self.z0, Tensor) else self.z0(X)
        )
        return z

    def first(self, X: Tensor, factor: Tensor | None) -> Tensor:
        """The first state."""
        z = self.start(X)
        following = self(z, X)
        return following if factor is None else torch.lerp(z, following, factor)

    def forward(self, z: Tensor, X: Tensor) -> Tensor:
        """The next state."""
        following: Tensor = self.cell(z, X)
        return following

    def read(self, z: Tensor) -> Tensor:
        """The outputs of a readout that is not linear, then the state as a row of numbers, unless it is too long."""
        state = z.flatten(1)
        if isinstance(self.readout, nn.Linear):
            return state
        outputs: Tensor = self.readout(z)
        return torch.cat([outputs, state], dim=1) if state.shape[1] < LARGEST // 2 else outputs


class UnrolledCell(Student):
    """A cell cut after a few steps: z_l = z_(l-1) + α_l (cell(z_(l-1), x) - z_(l-1)), then a linear readout.

    Without relaxation factors α_l it is the cut teacher; values above 1 are over-relaxation.

    Args:
        cell: the cell; all networks cut from it share it.
        steps: number of steps.
    """

    def __init__(self, cell: DEQCell | ModuleCell, steps: int) -> None:
        super().__init__()
        self.cell, self.sample_shape, self.linear = cell, cell.sample_shape, cell.linear
        self.length = self.steps = steps
        self.relaxation: nn.Parameter | None = None

    def features(self, X: Tensor) -> Tensor:
        """The last state, as it is read out."""
        factors = [None] * self.length if self.relaxation is None else self.relaxation.unbind()
        drive = self.cell.inject(X)
        z = self.cell.first(drive, factors[0])
        for factor in factors[1:]:
            following = self.cell(z, drive)
            z = following if factor is None else torch.lerp(z, following, factor)
        return self.cell.read(z)


class StepsNet(Student):
    """z_1 = φ(d), z_l = φ(W_l z_(l-1) + g_l d + b_l) with d = U x + b; outputs R z_L + S z_(L-1) + T x + r, (12.1).

    With W_l = W, g_l = 1, b_l = 0, S = 0 and T = 0 it is the DEQ z = φ(W z + U x + b) cut after L steps. S and T
    extrapolate the outputs at hardly any cost, (12.2).

    Args:
        teacher: the DEQ, for its activation, its connection and the shape of its samples.
        weights: W, U, b, R and r to start from, of all its units or of some.
        steps: L.
    """

    def __init__(self, teacher: EquilibriumNet, weights: PlainWeights, steps: int) -> None:
        super().__init__()
        self.length = self.steps = steps
        self.connection, self.sample_shape = teacher.connection, teacher.sample_shape
        self.units, self._phi = len(weights.recurrent), TorchActivation(teacher.spec.activation)
        self.inputs, self.bias = (nn.Parameter(one.clone()) for one in (weights.inputs, weights.bias))
        later = range(steps - 1)
        self.recurrent = nn.ParameterList(nn.Parameter(weights.recurrent.clone()) for _ in later)
        self.gains = nn.ParameterList(nn.Parameter(torch.ones_like(weights.bias)) for _ in later)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros_like(weights.bias)) for _ in later)
        # Read out as much as a closed form can be fitted to.
        size, entries = weights.readout.shape[1], prod(self.sample_shape)
        self.direct = size + entries <= _MOST_READ
        self.read = 2 if steps > 1 and 2 * size + self.direct * entries <= _MOST_READ else 1
        self._sizes = [size] * self.read + [entries] * self.direct
        others = weights.readout.new_zeros(len(weights.readout), sum(self._sizes) - size)
        self.linear = linear_layer(torch.cat([weights.readout, others], dim=1), weights.readout_bias)

    def drive(self, X: Tensor) -> Tensor:
        """The drive d = U x + b of every sample."""
        return self.connection.image(self.inputs, X.flatten(1), self.bias)

    def step(self, number: int, z: Tensor, drive: Tensor) -> Tensor:
        """z_l from z_(l-1), for l = 2 and more; z_1 = φ(d)."""
        weights, gain, bias = (one[number - 2] for one in (self.recurrent, self.gains, self.biases))
        # A unit has one gain and one bias for all positions of an image.
        by_unit = drive.reshape(-1, self.units, self.connection.count)
        inner = torch.addcmul(bias[:, None], gain[:, None], by_unit).flatten(1)
        if self.connection.count == 1:
            inner = torch.addmm(inner, z, weights.mT)
        else:
            inner = inner + self.connection.image(weights, z)
        return _apply(self._phi, inner)

    def blocks(self, X: Tensor) -> list[Tensor]:
        """What is read out: the last step, the one before it, and the sample."""
        drive = self.drive(X)
        states = [self._phi(drive)]
        for number in range(2, self.length + 1):
            states = [self.step(number, states[0], drive), *states[: self.read - 1]]
        return [*(self.connection.read(z) for z in states), *([X.flatten(1)] if self.direct else [])]

    def features(self, X: Tensor) -> Tensor:
        """What is read out, as one row of numbers for each sample."""
        return torch.cat(self.blocks(X), dim=1)

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs); blocks are not joined, which would copy them."""
        outputs: Tensor = self.linear.bias
        for block, part in zip(
            self.blocks(X), torch.split(self.linear.weight, self._sizes, dim=1), strict=True
        ):
            outputs = torch.addmm(outputs, block, part.mT)
        return outputs


class PlainMLP(Student):
    """Hidden ReLU layers with biases, and a linear readout; samples are flattened.

    Args:
        X: samples, whose mean and spread scale the first weights.
        hidden: units of every hidden layer; empty for a linear map.
        outputs: number of outputs.
    """

    def __init__(self, X: Tensor, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        rows = X.flatten(1)
        self.sample_shape, self.hidden = tuple(X.shape[1:]), tuple(hidden)
        layers = [
            nn.Linear(before, after, device=X.device, dtype=X.dtype)
            for before, after in pairwise([rows.shape[1], *hidden, outputs])
        ]
        self.layers, self.linear = nn.ModuleList(layers[:-1]), layers[-1]
        # Inputs are standardised by the first weights. One scale for all entries: some pixels hardly ever vary.
        scale = float(rows.std(dim=0).square().mean().sqrt().clamp(min=1e-30))
        with torch.no_grad():
            nn.init.kaiming_normal_(layers[0].weight)
            layers[0].weight.div_(scale)
            layers[0].bias.sub_(layers[0].weight @ rows.mean(0))

    def features(self, X: Tensor) -> Tensor:
        """The last hidden layer, or the flattened sample."""
        z = X.flatten(1)
        for layer in self.layers:
            z = torch.relu_(layer(z))
        return z
