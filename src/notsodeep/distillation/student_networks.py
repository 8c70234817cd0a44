"""The networks that may replace a teacher: its cell cut or accelerated, own steps of a DEQ, and MLPs.

All are ordinary feed-forward modules: features of a sample, and a linear map of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.fixed_point_solvers import SolverOptions, solve
from notsodeep.nets.torch_activation import TorchActivation

# Features up to which a linear map is fitted in closed form: more would take a minute and half a gigabyte. Of own steps
# fewer are read out where the last step alone has fewer.
LARGEST, _MOST_READ = 4096, 3400


class Student(nn.Module):
    """A network with outputs linear(features).

    Attributes:
        linear: the readout.
        sample_shape: the shape of one sample.
        steps: number of steps of the teacher's cell; None for a network without a fixed number.
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


class Drive(nn.Module):
    """d = U x + b of every sample, for rows and images."""

    def __init__(self, connection: Connection, weights: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.connection = connection
        self.weights, self.bias = nn.Parameter(weights.clone()), nn.Parameter(bias.clone())

    def forward(self, X: Tensor) -> Tensor:
        """The drive."""
        return self.connection.image(self.weights, X.flatten(1), self.bias)


class Step(nn.Module):
    """z → φ(W z + d), for rows and images; a state without a shape is zero, and costs no product."""

    def __init__(self, connection: Connection, phi: TorchActivation, weights: Tensor) -> None:
        super().__init__()
        self.connection, self.phi, self.weights = connection, phi, nn.Parameter(weights.clone())

    def forward(self, z: Tensor, drive: Tensor) -> Tensor:
        """The next state."""
        if not z.ndim:
            return self.phi(drive)
        if self.connection.count == 1:
            inner = torch.addmm(drive, z, self.weights.mT)
        else:
            inner = drive + self.connection.image(self.weights, z)
        # Written over its argument where no gradient is recorded.
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.phi(inner)
        return self.phi.write(inner, inner)


def _zero(drive: Tensor) -> Tensor:
    return drive.new_zeros(())


class Cell(nn.Module):
    """A teacher's loop z ← step(z, d) with d = drive(x), and what is read out of a state: one for every teacher.

    Of a readout that is not linear the outputs become features beside the state, so that what is fitted is linear.

    Args:
        step: from a state and d to the next state.
        readout: from a state to outputs.
        z0: the first state: a tensor of the shape of one state, or a function of d; None for zero, where `readout` is a
            `torch.nn.Linear`.
        X: some samples.
        drive: from samples to d; None for the samples themselves.
        read: from a state to the features that a linear readout multiplies; None for its entries.
    """

    z0: Any

    def __init__(
        self,
        step: Callable[[Tensor, Tensor], Tensor],
        readout: Callable[[Tensor], Tensor],
        z0: Any,
        X: Tensor,
        drive: Callable[[Tensor], Tensor] | None = None,
        read: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.step, self.readout, self.sample_shape = step, readout, tuple(X.shape[1:])
        self.drive, self._read = nn.Identity() if drive is None else drive, read
        # The weights of a method are those of its module.
        methods = (getattr(one, "__self__", None) for one in (step, readout, z0))
        self.owners = nn.ModuleList(dict.fromkeys(one for one in methods if isinstance(one, nn.Module)))
        if isinstance(z0, Tensor):
            self.register_buffer("z0", z0.to(X))
        else:
            self.z0 = z0
        if isinstance(readout, nn.Linear):
            bias = X.new_zeros(readout.out_features) if readout.bias is None else readout.bias
            self.linear = linear_layer(readout.weight, bias)
        else:
            state = self.start(X)
            outputs, features = readout(state).shape[1], self.read(state).shape[1]
            self.linear = linear_layer(torch.eye(outputs, features).to(X), X.new_zeros(outputs))

    @classmethod
    def of_network(cls, net: EquilibriumNet) -> Cell:
        """The step of a DEQ, from zero; its drive is computed once."""
        weights, connection = net.plain_weights(), net.connection
        step = Step(connection, TorchActivation(net.spec.activation), weights.recurrent)
        readout = linear_layer(weights.readout, weights.readout_bias)
        X = net.readout.new_zeros(1, *net.sample_shape)
        return cls(step, readout, _zero, X, Drive(connection, weights.inputs, weights.bias), connection.read)

    def start(self, drive: Tensor) -> Tensor:
        """The state before the first step."""
        # Numbers of rows as `shape` has them, which exported files can change.
        if self.z0 is None:
            return drive.new_zeros(drive.shape[0], self.linear.in_features)
        if isinstance(self.z0, Tensor):
            return self.z0.expand(drive.shape[0], *self.z0.shape)
        z: Tensor = self.z0(drive)
        return z

    def forward(self, z: Tensor, drive: Tensor) -> Tensor:
        """The next state."""
        return self.step(z, drive)

    def read(self, z: Tensor) -> Tensor:
        """The features of a linear readout; of another one its outputs, then the state, unless it is too long."""
        if self._read is not None:
            return self._read(z)
        state = z.flatten(1)
        if isinstance(self.readout, nn.Linear):
            return state
        outputs = self.readout(z)
        return torch.cat([outputs, state], dim=1) if state.shape[1] < LARGEST // 2 else outputs


class UnrolledCell(Student):
    """A cell cut after a few steps: z_l = z_(l-1) + α_l (cell(z_(l-1), x) - z_(l-1)), then a linear readout.

    Without relaxation factors α_l it is the cut teacher; values above 1 are over-relaxation.

    Args:
        cell: the cell; all networks cut from it share it.
        steps: number of steps.
    """

    def __init__(self, cell: Cell, steps: int) -> None:
        super().__init__()
        self.cell, self.sample_shape, self.linear = cell, cell.sample_shape, cell.linear
        self.length = self.steps = steps
        self.relaxation: nn.Parameter | None = None

    def features(self, X: Tensor) -> Tensor:
        """The last state, as it is read out."""
        drive = self.cell.drive(X)
        z = self.cell.start(drive)
        for factor in [None] * self.length if self.relaxation is None else self.relaxation.unbind():
            following = self.cell(z, drive)
            z = following if factor is None else z + factor * (following - z)
        return self.cell.read(z)


class AcceleratedCell(Student):
    """A cell taken to its equilibrium by Anderson acceleration, to a loose tolerance; no gradient is recorded.

    Args:
        cell: the cell.
        tolerance: relative change of a state at which its sample is done.
        most: evaluations of the cell at most.
    """

    def __init__(self, cell: Cell, tolerance: float, most: int) -> None:
        super().__init__()
        self.cell, self.sample_shape, self.linear = cell, cell.sample_shape, cell.linear
        self.options = SolverOptions("anderson", tolerance, most)

    @torch.no_grad()
    def features(self, X: Tensor) -> Tensor:
        """The last state, as it is read out."""
        drive = self.cell.drive(X)
        first = self.cell(self.cell.start(drive), drive)
        states, _ = solve(_CellProblem(self.cell, drive, first, first.flatten(1)), self.options)
        return self.cell.read(states.reshape(first.shape))


class _CellProblem:
    """z = cell(z, d) of every sample, for the solver."""

    def __init__(self, cell: Cell, drive: Tensor, first: Tensor, last: Tensor) -> None:
        self.cell, self.drive, self.first, self.last = cell, drive, first, last

    def start(self) -> Tensor:
        return self.first.flatten(1)

    def step(self, x: Tensor, out: Tensor) -> None:
        self.last = out.copy_(self.cell(x.reshape(self.first.shape), self.drive).flatten(1))

    def solution(self, rows: Tensor) -> Tensor:
        return self.last[rows]

    def restrict(self, rows: Tensor) -> _CellProblem:
        return _CellProblem(self.cell, self.drive[rows], self.first[rows], self.last[rows])


class StepsNet(Student):
    """z_1 = φ(d), z_l = φ(W_l z_(l-1) + g_l d + b_l) with d = U x + b; outputs R z_L + S z_(L-1) + T x + r, (12.1).

    With W_l = W, g_l = 1, b_l = 0, S = 0 and T = 0 it is the DEQ z = φ(W z + U x + b) cut after L steps. S and T
    extrapolate the outputs at hardly any cost, (12.2).

    Args:
        teacher: the DEQ, for its activation, its connection and the shape of its samples.
        weights: W, U, b, R and r to start from.
        steps: L.
    """

    def __init__(self, teacher: EquilibriumNet, weights: PlainWeights, steps: int) -> None:
        super().__init__()
        self.length = self.steps = steps
        self.connection, self.sample_shape = teacher.connection, teacher.sample_shape
        self.units, self.phi = len(weights.recurrent), TorchActivation(teacher.spec.activation)
        self.drive, later = Drive(self.connection, weights.inputs, weights.bias), range(steps - 1)
        self.layers = nn.ModuleList(Step(self.connection, self.phi, weights.recurrent) for _ in later)
        self.gains = nn.ParameterList(nn.Parameter(torch.ones_like(weights.bias)) for _ in later)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros_like(weights.bias)) for _ in later)
        # Read out as much as a closed form can be fitted to.
        size, entries = weights.readout.shape[1], prod(self.sample_shape)
        self.direct = size + entries <= _MOST_READ
        self.read = 2 if steps > 1 and 2 * size + self.direct * entries <= _MOST_READ else 1
        self._sizes = [size] * self.read + [entries] * self.direct
        others = weights.readout.new_zeros(len(weights.readout), sum(self._sizes) - size)
        self.linear = linear_layer(torch.cat([weights.readout, others], dim=1), weights.readout_bias)

    def step(self, number: int, z: Tensor, drive: Tensor) -> Tensor:
        """z_l from z_(l-1), for l = 2 and more; z_1 = φ(d)."""
        gain, bias = self.gains[number - 2], self.biases[number - 2]
        # A unit has one gain and one bias for all positions of an image.
        by_unit = drive.reshape(-1, self.units, self.connection.count)
        following: Tensor = self.layers[number - 2](
            z, torch.addcmul(bias[:, None], gain[:, None], by_unit).flatten(1)
        )
        return following

    def blocks(self, X: Tensor) -> list[Tensor]:
        """What is read out: the last step, the one before it, and the sample."""
        drive = self.drive(X)
        states = [self.phi(drive)]
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
