"""What training minimises: two losses, and the gradient of a batch.

`Whole` differentiates through the network; `Readout` knows the gradient of a linear readout in closed form and
works on features computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from notsodeep.nets.modules import Net
from notsodeep.nets.samples import EVALUATION_ROWS, Samples, SolverLog


# --- losses ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Loss:
    """A loss summed over the rows of a batch, and its derivative in the outputs; targets are (rows, outputs)."""

    value: Callable[[Tensor, Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]


def _cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    return -(functional.log_softmax(outputs, dim=1) * target).sum()


def _cross_entropy_slope(outputs: Tensor, target: Tensor) -> Tensor:
    """softmax - target, since the targets of a row sum to one."""
    return functional.softmax(outputs, dim=1).sub_(target)


def _squared(outputs: Tensor, target: Tensor) -> Tensor:
    return 0.5 * (outputs - target).square().sum()


def _squared_slope(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs - target


LOSSES = {
    "cross_entropy": Loss(_cross_entropy, _cross_entropy_slope),
    "squared": Loss(_squared, _squared_slope),
}


# --- gradients ---------------------------------------------------------------------------------------
@dataclass
class Tally:
    """Sums over samples; tensors, so that a device is not asked after each batch."""

    loss: Tensor
    correct: Tensor
    count: int = 0
    has_classes: bool = False

    @classmethod
    def empty(cls, module: Net) -> Tally:
        """Nothing seen yet."""
        zero = torch.zeros((), dtype=torch.float64, device=module.readout.device)
        return cls(zero, zero.clone())

    def add(self, loss: Tensor, outputs: Tensor, labels: Tensor | None) -> None:
        """Count one batch."""
        self.loss += loss
        self.count += len(outputs)
        if labels is not None:
            self.has_classes = True
            self.correct += (outputs.argmax(dim=1) == labels).sum()

    @property
    def mean_loss(self) -> float:
        """Loss per sample."""
        return float(self.loss) / self.count

    @property
    def accuracy(self) -> float | None:
        """Share of samples whose largest output is that of their class."""
        return float(self.correct) / self.count if self.has_classes else None


class Whole:
    """The loss as a function of all parameters, by automatic (for a DEQ implicit) differentiation."""

    def __init__(self, module: Net, train: Samples, test: Samples | None, loss: Loss) -> None:
        self.module, self.train, self.test, self.loss = module, train, test, loss
        self.log = SolverLog()

    def add_gradient(self, rows: Tensor, weight: float, tally: Tally) -> None:
        """Add weight × the gradient of the loss summed over these rows to what the parameters hold."""
        outputs = self.module(self.train.inputs.index_select(0, rows))
        self.log.note_forward(self.module)
        value = self.loss.value(outputs, self.train.target.index_select(0, rows))
        tally.add(value.detach(), outputs.detach(), self.train.labels_of(rows))
        # A loss that is not finite has no gradient to solve for; the tally tells.
        if bool(torch.isfinite(value)):
            torch.autograd.backward(weight * value)
            self.log.note_adjoint(self.module)

    def evaluate(self) -> Tally | None:
        """The test part, without gradients."""
        return _evaluate(self.module, self.module, self.test, self.loss)

    def start_epoch(self) -> None:
        """The log of the solvers is one of each epoch."""
        self.log = SolverLog()


class Readout:
    """The loss as a function of the readout alone, on features that never change."""

    def __init__(self, module: Net, train: Samples, test: Samples | None, loss: Loss, log: SolverLog) -> None:
        self.module, self.train, self.test, self.loss, self.log = module, train, test, loss, log
        # An explicit network with learning-rate multipliers keeps its readout divided by a factor.
        self.factor = module.factors[-1]

    def add_gradient(self, rows: Tensor, weight: float, tally: Tally) -> None:
        """The same as `Whole.add_gradient`, in closed form: slopeᵀ features."""
        features = self.train.inputs.index_select(0, rows)
        target = self.train.target.index_select(0, rows)
        outputs = self._outputs(features)
        slope = self.loss.slope(outputs, target)
        readout = self.module.readout
        if readout.grad is None:
            readout.grad = torch.zeros_like(readout)
        readout.grad.addmm_(slope.t(), features, alpha=weight * self.factor)
        tally.add(self.loss.value(outputs, target), outputs, self.train.labels_of(rows))

    @torch.no_grad()
    def _outputs(self, features: Tensor) -> Tensor:
        return self.module.outputs(features)

    def evaluate(self) -> Tally | None:
        """The test part."""
        return _evaluate(self._outputs, self.module, self.test, self.loss)

    def start_epoch(self) -> None:
        """The log is that of the features, the same for every epoch."""


def _evaluate(
    outputs_of: Callable[[Tensor], Tensor], module: Net, test: Samples | None, loss: Loss
) -> Tally | None:
    if test is None:
        return None
    tally = Tally.empty(module)
    with torch.no_grad():
        for batch in test.batches(EVALUATION_ROWS):
            outputs = outputs_of(batch.inputs)
            tally.add(loss.value(outputs, batch.target), outputs, batch.labels)
    return tally
