"""A few steps of an equilibrium, each with weights of its own: the networks that replace a trained DEQ.

docs/theory.md (12.1).  They are ordinary feed-forward modules: no solver, and nothing that ONNX does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.validation import as_count

# Relative to the mean square of a unit: what keeps the fit of units to others from following noise.
_RIDGE = 1e-6


class Feedback(nn.Module):
    """W z of one step: a matrix (or filters) W, or W = A B with few rows in B, which is cheaper.

    Args:
        connection: matrices or filters.
        weights: W, (units, units), followed by taps for filters.
        rank: number of rows of B; None for W as it is. Then `set_weights` has to be called before use.
    """

    def __init__(self, connection: Connection, weights: Tensor, rank: int | None) -> None:
        super().__init__()
        self.connection, self.rank = connection, rank
        units = len(weights)
        self.wide: nn.Parameter | None = None
        if rank is None:
            self.narrow = nn.Parameter(weights.detach().clone())
        else:
            self.narrow = nn.Parameter(weights.new_zeros(rank, *weights.shape[1:]))
            self.wide = nn.Parameter(weights.new_zeros(units, rank))

    def forward(self, start: Tensor, z: Tensor) -> Tensor:
        """The rows start + W z."""
        dense = self.connection.count == 1
        if self.wide is None:
            return (
                torch.addmm(start, z, self.narrow.mT)
                if dense
                else start + self.connection.image(self.narrow, z)
            )
        inner = self.connection.image(self.narrow, z)
        if dense:
            return torch.addmm(start, inner, self.wide.mT)
        by_unit = inner.reshape(-1, self.wide.shape[1], self.connection.count)
        return start + (self.wide @ by_unit).flatten(1)

    def add_to(self, start: Tensor, z: Tensor) -> Tensor:
        """The same of matrices, written over start; where no gradient is recorded."""
        if self.wide is None:
            return start.addmm_(z, self.narrow.mT)
        return start.addmm_(z @ self.narrow.mT, self.wide.mT)

    @torch.no_grad()
    def set_weights(self, weights: Tensor, directions: Tensor | None = None) -> None:
        """Take W, or of a W of low rank its part V Vᵀ W along some directions V (units, rank) of its image."""
        if self.wide is None:
            self.narrow.copy_(weights)
        elif directions is None:
            raise InputError("Weights of low rank need the directions that they are to keep.")
        else:
            self.wide.copy_(directions)
            self.narrow.copy_(torch.einsum("ur,u...->r...", directions.to(weights), weights))

    @property
    def operations(self) -> int:
        """Multiplications for one sample."""
        wide = 0 if self.wide is None else self.wide.numel()
        return (self.narrow.numel() + wide) * self.connection.count


class FeedbackList(nn.ModuleList):
    """W_l z of several steps."""

    def steps(self) -> list[Feedback]:
        """All of them, as what they are."""
        return [one for one in self if isinstance(one, Feedback)]


class StepsNet(nn.Module):
    """z_0 = d, z_l = φ(W_l z_(l-1) + g_l d + b_l) with d = U x + b; outputs R z_L + S z_(L-1) + T x + r, (12.1).

    With W_1 = 0, W_l = W, g_l = 1, b_l = 0, S = 0 and T = 0 it is the DEQ z = φ(W z + U x + b) cut after L steps.  U x
    is computed once, so that it costs what the cut DEQ costs, or less where W_l have low rank.  What R z_L leaves, S
    and T find at hardly any cost: the outputs that the steps head for, (12.2).

    Args:
        weights: W, U, b, R and r to start from.
        activation: φ.
        connection: what W and U do to a layer: matrices or filters.
        sample_shape: the shape of one sample.
        steps: L.
        rank: of W_2, …, W_L; None for whole ones.
        guess: rank of W_1, which guesses the feedback from d; 0 for none.
        read: how many of the last steps are read out: 1, or 2 for S.
        direct: whether the outputs have T.

    Attributes:
        sample_shape: the shape of one sample.
        units: number of units of a layer; for images channels.
        width: number of features that are read out.
        steps: L.
        rank, guess, read, direct: as given.
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
        self.steps, self.rank, self.guess = as_count(steps, "steps"), rank, guess
        self.read, self.direct = min(read, self.steps), direct
        self.connection, self.sample_shape = connection, tuple(sample_shape)
        self.activation = activation
        self.units = len(weights.recurrent)
        self._phi = TorchActivation(activation)
        self.inputs = nn.Parameter(weights.inputs.detach().clone())
        self.bias = nn.Parameter(weights.bias.detach().clone())
        # Of the steps with feedback: all of them, or all but the first.
        ranks: list[int | None] = [*([guess] if guess else []), *[rank] * (self.steps - 1)]
        self.feedback = FeedbackList(Feedback(connection, weights.recurrent, number) for number in ranks)
        ones, zeros = torch.ones_like(weights.bias), torch.zeros_like(weights.bias)
        self.gains = nn.ParameterList(nn.Parameter(ones.clone()) for _ in ranks)
        self.biases = nn.ParameterList(nn.Parameter(zeros.clone()) for _ in ranks)
        size = weights.readout.shape[1]
        self._blocks = [size] * self.read + [prod(self.sample_shape)] * direct
        others = weights.readout.new_zeros(len(weights.readout), sum(self._blocks) - size)
        self.readout = nn.Parameter(torch.cat([weights.readout.detach(), others], dim=1))
        self.readout_bias = nn.Parameter(weights.readout_bias.detach().clone())
        self.width, self.out_features = self.readout.shape[1], self.readout.shape[0]

    def drive(self, X: Tensor) -> Tensor:
        """The drive d = U x + b of every sample."""
        return self.connection.image(self.inputs, X.flatten(1), self.bias)

    def first_feedback(self) -> int:
        """The number of the first step that has weights W_l."""
        return self.steps + 1 - len(self.feedback)

    def step(self, number: int, z: Tensor, drive: Tensor) -> Tensor:
        """z_l from z_(l-1), where z_0 is the drive itself."""
        place = number - self.first_feedback()
        if place < 0:
            return self._phi(drive)
        # Units and their positions apart: gains and biases are those of units.
        by_unit = drive.reshape(-1, self.units, self.connection.count)
        start = torch.addcmul(self.biases[place][:, None], self.gains[place][:, None], by_unit).flatten(1)
        return self._phi(self.feedback.steps()[place](start, z))

    def features(self, X: Tensor) -> Tensor:
        """What is read out of every sample, (rows, width): the last step, the one before it, and the sample."""
        drive = z = self.drive(X)
        kept = [X.flatten(1)] if self.direct else []
        for number in range(1, self.steps + 1):
            z = self.step(number, z, drive)
            if self.steps - number < self.read:
                kept.insert(0, self.connection.read(z))
        return kept[0] if len(kept) == 1 else torch.cat(kept, dim=1)

    def outputs(self, features: Tensor) -> Tensor:
        """The readout of given features, (rows, out_features)."""
        return torch.addmm(self.readout_bias, features, self.readout.mT)

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, out_features)."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or self.connection.count > 1:
            return self.outputs(self.features(X))
        return self._outputs_in_place(X)

    def _outputs_in_place(self, X: Tensor) -> Tensor:
        """The same of rows where no gradient is recorded: layers are written over, nothing is copied or joined."""
        parts = torch.split(self.readout, self._blocks, dim=1)
        outputs = (
            torch.addmm(self.readout_bias, X, parts[-1].mT)
            if self.direct
            else self.readout_bias.repeat(len(X), 1)
        )
        drive = z = self.drive(X)
        for number in range(1, self.steps + 1):
            place, last = number - self.first_feedback(), number == self.steps
            over = drive if last and z is not drive else torch.empty_like(drive)
            if place < 0:
                inner, over = drive, drive if last else over
            else:
                torch.addcmul(self.biases[place], self.gains[place], drive, out=over)
                inner = self.feedback.steps()[place].add_to(over, z)
            z = self._phi.write(inner, over)
            if self.steps - number < self.read:
                outputs.addmm_(z, parts[self.steps - number].mT)
        return outputs

    @property
    def operations(self) -> int:
        """Multiplications with weights for one sample: what it costs on any machine."""
        feedback = sum(one.operations for one in self.feedback.steps())
        return self.inputs.numel() * self.connection.count + feedback + self.readout.numel()

    @torch.no_grad()
    def rescale(self, recurrent: Sequence[float], gains: Sequence[float]) -> None:
        """Multiply W_2, …, W_L and set the gains g_1, …, g_L."""
        own = self.feedback.steps()
        for feedback, factor in zip(own[len(own) - len(recurrent) :], recurrent, strict=True):
            feedback.narrow.mul_(factor)
        if len(self.gains) < self.steps:  # the first step has none: it is that of the drive
            first, *gains = gains
            self.inputs.mul_(first)
            self.bias.mul_(first)
            gains = [gain / first for gain in gains]
        for gain, value in zip(self.gains, gains, strict=True):
            gain.fill_(value)

    @torch.no_grad()
    def set_readout(self, weights: Tensor, bias: Tensor) -> None:
        """Replace the readout and its bias."""
        self.readout.copy_(weights)
        self.readout_bias.copy_(bias)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        shape = "×".join(map(str, self.sample_shape))
        rank = "" if self.rank is None or self.steps == 1 else f", rank={self.rank}"
        return (
            f"{self.activation}, steps={self.steps}, inputs={shape}, units={self.units}{rank}, "
            f"out_features={self.out_features}"
        )


def first_steps(teacher: EquilibriumNet, steps: int) -> StepsNet:
    """The teacher cut after some steps, with copies of its weights."""
    return StepsNet(
        teacher.plain_weights(), teacher.spec.activation, teacher.connection, teacher.sample_shape, steps
    )


@torch.no_grad()
def chosen_units(states: Tensor, connection: Connection, total: int, units: int) -> tuple[Tensor, Tensor]:
    """Some of the units, and the matrix (total, units) that writes all of them as combinations of these.

    Args:
        states: equilibria of some samples, (samples, total × positions).
        connection: matrices or filters.
        total: number of units.
        units: how many to choose.
    """
    if not 1 <= units <= total:
        raise InputError(f"width={units} is not between 1 and the {total} units of the teacher.")
    values = states.reshape(len(states), total, connection.count).movedim(1, 2).reshape(-1, total).double()
    chosen = _pivots(values, units)
    kept = values[:, chosen]
    gram = kept.mT @ kept
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean().clamp(min=1e-30))
    mix = torch.linalg.solve(gram, kept.mT @ values).mT
    return chosen, mix.to(states.dtype)


@torch.no_grad()
def narrowed(weights: PlainWeights, chosen: Tensor, mix: Tensor) -> PlainWeights:
    """A cell of fewer units: some of the teacher's, and all others written as combinations of these.

    With z ≈ P z_S for the chosen units S, found by least squares on equilibria, W z ≈ (W P) z_S: the recurrent weights
    become (W P)_S and the readout R P.

    Args:
        weights: of the teacher.
        chosen: S.
        mix: P, (units of the teacher, units kept).
    """
    total, units = mix.shape
    flat = weights.recurrent[chosen].reshape(units, total, -1)
    shape = (units, units, *weights.recurrent.shape[2:])
    recurrent = torch.einsum("utk,tv->uvk", flat, mix).reshape(shape)
    by_unit = weights.readout.reshape(len(weights.readout), total, -1)
    readout = torch.einsum("otp,tv->ovp", by_unit, mix).flatten(1)
    return PlainWeights(
        recurrent, weights.inputs[chosen], weights.bias[chosen], readout, weights.readout_bias
    )


def _pivots(values: Tensor, count: int) -> Tensor:
    """Columns chosen in turn, each the one that those before explain least: pivoted Cholesky of the Gram matrix."""
    gram = values.mT @ values
    left = gram.diagonal().clone()
    factors = gram.new_zeros(count, len(gram))
    chosen: list[int] = []
    for number in range(count):
        pivot = int(left.argmax())
        chosen.append(pivot)
        before = factors[:number]
        column = gram[:, pivot] - before[:, pivot] @ before
        factors[number] = column / column[pivot].clamp(min=1e-300).sqrt()
        left -= factors[number].square()
        left[chosen] = -torch.inf
    return torch.tensor(sorted(chosen), device=values.device)


__all__ = [
    "Feedback",
    "StepsNet",
    "chosen_units",
    "first_steps",
    "narrowed",
]
