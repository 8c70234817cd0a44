"""The networks that may replace a teacher: a cell cut after a few steps, own steps of a DEQ, and MLPs.

All are ordinary feed-forward modules: features of a sample and a linear map of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.torch_activation import TorchActivation


class Student(nn.Module):
    """A network with outputs linear(features), plus `base_outputs` where a teacher's own readout is kept.

    Attributes:
        linear: the linear readout; None while only `base_outputs` are used.
        sample_shape: the shape of one sample.
        steps: number of steps of the teacher's cell; None for a network without steps.
        operations: multiplications with weights for one sample; None where they are not known.
    """

    linear: nn.Linear | None
    sample_shape: tuple[int, ...]
    steps: int | None = None

    def features(self, X: Tensor) -> Tensor:
        """What the linear readout sees, (rows, features)."""
        raise NotImplementedError

    def base_outputs(self, X: Tensor) -> Tensor | None:
        """The outputs of the teacher's own readout, to which linear(features) is added; None if there is none."""
        return None

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs)."""
        if self.linear is None:
            raise InputError("This network has no readout yet.")
        outputs: Tensor = self.linear(self.features(X))
        return outputs

    @property
    def operations(self) -> int | None:
        return None


def linear_layer(weights: Tensor, bias: Tensor) -> nn.Linear:
    """A `torch.nn.Linear` with copies of these weights."""
    layer = nn.Linear(weights.shape[1], weights.shape[0], device=weights.device, dtype=weights.dtype)
    with torch.no_grad():
        layer.weight.copy_(weights)
        layer.bias.copy_(bias)
    return layer


def _records_gradients() -> bool:
    """Whether memory must not be overwritten."""
    return torch.is_grad_enabled() or torch.compiler.is_compiling()


class DEQCell(nn.Module):
    """The step z → φ(W z + d) of a DEQ with drive d = U x + b, for rows and images."""

    def __init__(self, teacher: EquilibriumNet) -> None:
        super().__init__()
        weights = teacher.plain_weights()
        self.connection, self.sample_shape = teacher.connection, teacher.sample_shape
        self.recurrent, self.inputs = nn.Parameter(weights.recurrent), nn.Parameter(weights.inputs)
        self.bias, self._phi = nn.Parameter(weights.bias), TorchActivation(teacher.spec.activation)
        self.readout: Callable[[Tensor], Tensor] | None = linear_layer(weights.readout, weights.readout_bias)

    def inject(self, X: Tensor) -> Tensor:
        """The drive d."""
        return self.connection.image(self.inputs, X.flatten(1), self.bias)

    def start(self, drive: Tensor) -> Tensor | None:
        """The state 0, which costs no product."""
        return None

    def forward(self, z: Tensor | None, drive: Tensor) -> Tensor:
        """The next state."""
        if z is None:
            return self._phi(drive)
        if self.connection.count == 1:
            inner = torch.addmm(drive, z, self.recurrent.mT)
        else:
            inner = drive + self.connection.image(self.recurrent, z)
        return self._phi(inner) if _records_gradients() else self._phi.write(inner, inner)

    def read(self, z: Tensor) -> Tensor:
        """The features that are read out."""
        return self.connection.read(z)

    def operations(self, steps: int) -> int | None:
        """Multiplications with weights of so many steps."""
        numbers = self.inputs.numel() + (steps - 1) * self.recurrent.numel()
        return numbers * self.connection.count


class ModuleCell(nn.Module):
    """The cell z → cell(z, x) of any torch module, with its readout and its first state z0."""

    def __init__(
        self, cell: Callable[[Tensor, Tensor], Tensor], readout: Any, z0: Any, sample_shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.cell, self.readout, self.z0, self.sample_shape = cell, readout, z0, sample_shape

    def inject(self, X: Tensor) -> Tensor:
        """The sample itself."""
        return X

    def start(self, X: Tensor) -> Tensor | None:
        """The first state of every sample."""
        if isinstance(self.z0, Tensor):
            return self.z0.to(X).expand(len(X), *self.z0.shape)
        if callable(self.z0):
            first: Tensor = self.z0(X)
            return first
        return X.new_zeros(len(X), self.readout.in_features)

    def forward(self, z: Tensor | None, X: Tensor) -> Tensor:
        """The next state."""
        return self.cell(z, X)  # type: ignore[arg-type]

    def read(self, z: Tensor) -> Tensor:
        """The state as a row of numbers."""
        return z.flatten(1)

    def operations(self, steps: int) -> int | None:
        """Not known."""
        return None


class UnrolledCell(Student):
    """A cell cut after a few steps: z_l = z_(l-1) + α_l (cell(z_(l-1), x) - z_(l-1)), then a readout.

    With all α_l = 1 it is the cut teacher; values above 1 are over-relaxation. A linear readout is copied, so that it
    can be refitted; of any other readout the outputs are kept and a linear map of the state is added.

    Args:
        cell: the cell, shared by all networks that are made of it.
        steps: number of steps.
    """

    def __init__(self, cell: DEQCell | ModuleCell, steps: int) -> None:
        super().__init__()
        self.cell, self.sample_shape = cell, cell.sample_shape
        self.length = self.steps = steps
        self.relaxation: nn.Parameter | None = None
        own = cell.readout if isinstance(cell.readout, nn.Linear) else None
        self.linear = None if own is None else linear_layer(own.weight, _bias(own))
        self._has_base = own is None and cell.readout is not None

    def state(self, X: Tensor) -> Tensor:
        """The state after the last step."""
        drive = self.cell.inject(X)
        z = self.cell.start(drive)
        for number in range(self.length):
            following = self.cell(z, drive)
            if self.relaxation is not None:
                factor = self.relaxation[number]
                following = factor * following if z is None else torch.lerp(z, following, factor)
            z = following
        if z is None:
            raise InputError("A cut cell needs at least one step.")
        return z

    def features(self, X: Tensor) -> Tensor:
        """The last state, as it is read out."""
        return self.cell.read(self.state(X))

    def base_outputs(self, X: Tensor) -> Tensor | None:
        """The outputs of a readout that is not linear."""
        return self.cell.readout(self.state(X)) if self._has_base and self.cell.readout else None

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs)."""
        z = self.state(X)
        outputs = self.cell.readout(z) if self._has_base and self.cell.readout else None
        if self.linear is None:
            if outputs is None:
                raise InputError("This network has no readout yet.")
            return outputs
        added: Tensor = self.linear(self.cell.read(z))
        return added if outputs is None else outputs + added

    @property
    def operations(self) -> int | None:
        known = self.cell.operations(self.length)
        return None if known is None or self.linear is None else known + self.linear.weight.numel()


def _bias(layer: nn.Linear) -> Tensor:
    bias: Tensor | None = layer.bias
    return layer.weight.new_zeros(len(layer.weight)) if bias is None else bias


class Feedback(nn.Module):
    """W z of one step: a matrix (or filters) W, or W = A B with few rows in B, which is cheaper.

    Args:
        connection: matrices or filters.
        weights: W, (units, units), followed by taps for filters; of a W of low rank only its shape is used.
        rank: number of rows of B; None for W as it is.
    """

    def __init__(self, connection: Connection, weights: Tensor, rank: int | None) -> None:
        super().__init__()
        self.connection, self.rank = connection, rank
        narrow = weights.detach() if rank is None else weights.new_zeros(rank, *weights.shape[1:])
        self.narrow = nn.Parameter(narrow.clone())
        self.wide = None if rank is None else nn.Parameter(weights.new_zeros(len(weights), rank))

    def forward(self, start: Tensor, z: Tensor) -> Tensor:
        """The rows start + W z; `start` is overwritten where no gradient is recorded."""
        if self.connection.count == 1:
            add = torch.addmm if _records_gradients() else Tensor.addmm_
            if self.wide is None:
                return add(start, z, self.narrow.mT)
            return add(start, z @ self.narrow.mT, self.wide.mT)
        inner = self.connection.image(self.narrow, z)
        if self.wide is not None:
            by_unit = inner.reshape(-1, self.wide.shape[1], self.connection.count)
            inner = (self.wide @ by_unit).flatten(1)
        return start + inner

    @torch.no_grad()
    def set_weights(self, weights: Tensor, directions: Tensor | None) -> None:
        """Take W, or of a W of low rank its part V Vᵀ W along directions V (units, rank) of its image."""
        if self.wide is None or directions is None:
            self.narrow.copy_(weights)
        else:
            self.wide.copy_(directions)
            self.narrow.copy_(torch.einsum("ur,u...->r...", directions.to(weights), weights))

    @property
    def operations(self) -> int:
        """Multiplications for one sample."""
        wide = 0 if self.wide is None else self.wide.numel()
        return (self.narrow.numel() + wide) * self.connection.count


class StepsNet(Student):
    """z_0 = d, z_l = φ(W_l z_(l-1) + g_l d + b_l) with d = U x + b; outputs R z_L + S z_(L-1) + T x + r, (12.1).

    With W_1 = 0, W_l = W, g_l = 1, b_l = 0, S = 0 and T = 0 it is the DEQ z = φ(W z + U x + b) cut after L steps. S and
    T extrapolate the outputs at hardly any cost, (12.2).

    Args:
        weights: W, U, b, R and r to start from.
        activation: φ.
        connection: what W and U do to a layer: matrices or filters.
        sample_shape: the shape of one sample.
        steps: L.
        rank: rank of W_2, …, W_L; None for full rank.
        guess: rank of W_1, which guesses the feedback from d; 0 for none.
        read: how many of the last steps are read out: 1, or 2 for S.
        direct: whether the outputs have T.
    """

    def __init__(
        self,
        weights: PlainWeights,
        activation: Activation,
        connection: Connection,
        sample_shape: tuple[int, ...],
        steps: int,
        *,
        rank: int | None = None,
        guess: int = 0,
        read: int = 1,
        direct: bool = False,
    ) -> None:
        super().__init__()
        self.length = self.steps = steps
        self.read, self.direct, self.guess = min(read, steps), direct, guess
        self.connection, self.sample_shape = connection, tuple(sample_shape)
        self.activation, self._phi, self.units = activation, TorchActivation(activation), len(weights.recurrent)
        self.inputs = nn.Parameter(weights.inputs.detach().clone())
        self.bias = nn.Parameter(weights.bias.detach().clone())
        # Steps with feedback: all of them, or all but the first.
        ranks: list[int | None] = [*([guess] if guess else []), *[rank] * (steps - 1)]
        self.feedback = nn.ModuleList(Feedback(connection, weights.recurrent, number) for number in ranks)
        ones, zeros = torch.ones_like(weights.bias), torch.zeros_like(weights.bias)
        self.gains = nn.ParameterList(nn.Parameter(ones.clone()) for _ in ranks)
        self.biases = nn.ParameterList(nn.Parameter(zeros.clone()) for _ in ranks)
        size = weights.readout.shape[1]
        self._blocks = [size] * self.read + [prod(self.sample_shape)] * direct
        others = weights.readout.new_zeros(len(weights.readout), sum(self._blocks) - size)
        self.linear = linear_layer(torch.cat([weights.readout, others], dim=1), weights.readout_bias)

    @property
    def first_feedback(self) -> int:
        """The number of the first step that has weights W_l."""
        return self.length + 1 - len(self.feedback)

    def drive(self, X: Tensor) -> Tensor:
        """The drive d = U x + b of every sample."""
        return self.connection.image(self.inputs, X.flatten(1), self.bias)

    def step(self, number: int, z: Tensor, drive: Tensor) -> Tensor:
        """z_l from z_(l-1), where z_0 is the drive itself."""
        place = number - self.first_feedback
        if place < 0:
            return self._phi(drive)
        # Gains and biases are those of units, each of which has several positions in images.
        by_unit = drive.reshape(-1, self.units, self.connection.count)
        start = torch.addcmul(self.biases[place][:, None], self.gains[place][:, None], by_unit).flatten(1)
        inner = self.feedback[place](start, z)
        return self._phi(inner) if _records_gradients() else self._phi.write(inner, inner)

    def blocks(self, X: Tensor) -> list[Tensor]:
        """What is read out: the last step, the one before it, and the sample."""
        drive = z = self.drive(X)
        kept = [X.flatten(1)] if self.direct else []
        for number in range(1, self.length + 1):
            z = self.step(number, z, drive)
            if self.length - number < self.read:
                kept.insert(0, self.connection.read(z))
        return kept

    def features(self, X: Tensor) -> Tensor:
        """What is read out, as one row of numbers for each sample."""
        return torch.cat(self.blocks(X), dim=1)

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs); blocks are not joined, which would copy them."""
        readout, bias = self.linear.weight, self.linear.bias
        blocks = self.blocks(X)
        parts = torch.split(readout, self._blocks, dim=1)
        outputs = torch.addmm(bias, blocks[0], parts[0].mT)
        for block, part in zip(blocks[1:], parts[1:], strict=True):
            outputs = torch.addmm(outputs, block, part.mT)
        return outputs

    @property
    def operations(self) -> int:
        feedback = sum(one.operations for one in self.feedback)
        return self.inputs.numel() * self.connection.count + feedback + self.linear.weight.numel()

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.activation}, steps={self.steps}, units={self.units}"


class PlainMLP(Student):
    """Hidden ReLU layers with biases, and a linear readout; samples are flattened and standardised.

    Args:
        X: samples, whose mean and spread standardise the inputs.
        hidden: units of every hidden layer.
        outputs: number of outputs.
    """

    def __init__(self, X: Tensor, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        rows = X.flatten(1)
        self.sample_shape, self.hidden = tuple(X.shape[1:]), tuple(hidden)
        place: dict[str, Any] = {"device": X.device, "dtype": X.dtype}
        sizes = [rows.shape[1], *hidden]
        self.layers = nn.ModuleList(
            nn.Linear(before, after, **place) for before, after in zip(sizes, sizes[1:], strict=False)
        )
        self.linear = nn.Linear(sizes[-1], outputs, **place)
        # Standardising is a linear map: it becomes part of the first layer. One scale for all inputs, since pixels that
        # hardly ever vary would be blown up.
        first = self.layers[0]
        scale = float(rows.std(dim=0).square().mean().sqrt().clamp(min=1e-30))
        with torch.no_grad():
            nn.init.kaiming_normal_(first.weight)
            first.weight.div_(scale)
            first.bias.sub_(first.weight @ rows.mean(0))

    def features(self, X: Tensor) -> Tensor:
        """The last hidden layer."""
        z = X.flatten(1)
        for layer in self.layers:
            z = torch.relu_(layer(z))
        return z

    @property
    def operations(self) -> int:
        return sum(one.weight.numel() for one in [*self.layers, self.linear])


__all__ = ["DEQCell", "Feedback", "ModuleCell", "PlainMLP", "StepsNet", "Student", "UnrolledCell", "linear_layer"]
