"""What training minimises: two losses, and the gradient of a batch.

`FullObjective` differentiates through the network; `ReadoutObjective` knows the gradient of a linear readout in closed
form and works on features computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from notsodeep.nets.history import SolverLog
from notsodeep.nets.modules import Net
from notsodeep.nets.samples import Samples, TrainingData, compute_features, evaluation_rows


@dataclass(frozen=True)
class Loss:
    """A loss summed over the rows of a batch, and its derivative in the outputs; targets are (rows, outputs)."""

    value: Callable[[Tensor, Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]


LOSSES = {
    "cross_entropy": Loss(
        lambda outputs, target: -(functional.log_softmax(outputs, dim=1) * target).sum(),
        # Since the targets of a row sum to one.
        lambda outputs, target: functional.softmax(outputs, dim=1).sub_(target),
    ),
    "squared": Loss(
        lambda outputs, target: 0.5 * (outputs - target).square().sum(),
        lambda outputs, target: outputs - target,
    ),
}


@dataclass
class Tally:
    """Sums over samples; tensors, so that a device is not asked after each batch."""

    loss: Tensor
    correct: Tensor
    count: int = 0
    has_classes: bool = False

    @classmethod
    def empty(cls, module: Net) -> Tally:
        """Sums over no samples yet."""
        zero = torch.zeros((), dtype=torch.float64, device=module.readout.device)
        return cls(zero, zero.clone())

    def add(self, loss: Tensor, outputs: Tensor, labels: Tensor | None) -> None:
        """Add one batch to the sums."""
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


class Objective:
    """The loss of a module on its training samples, with its gradient, and on its test samples, without.

    Args:
        module: the network.
        train: training samples.
        test: test samples, if there are any.
        loss: what is summed over samples.
        log: of the equilibrium solvers.
    """

    def __init__(
        self, module: Net, train: Samples, test: Samples | None, loss: Loss, log: SolverLog | None = None
    ) -> None:
        self.module, self.train, self.test, self.loss = module, train, test, loss
        self.log = log or SolverLog()

    def start_epoch(self) -> None:
        """Called before the first batch of each epoch."""

    def outputs(self, inputs: Tensor) -> Tensor:
        """The outputs of the network for what stands in `Samples.inputs`."""
        outputs: Tensor = self.module(inputs)
        return outputs

    def add_gradient(self, rows: Tensor, weight: float, tally: Tally) -> None:
        """Add weight × the gradient of the loss summed over these rows to what the parameters hold."""
        raise NotImplementedError

    @torch.no_grad()
    def evaluate(self) -> Tally | None:
        """The sums over the test samples."""
        if self.test is None:
            return None
        tally = Tally.empty(self.module)
        for batch in self.test.batches(evaluation_rows(self.module)):
            outputs = self.outputs(batch.inputs)
            tally.add(self.loss.value(outputs, batch.target), outputs, batch.labels)
        return tally


class FullObjective(Objective):
    """The loss as a function of all parameters, by automatic (for a DEQ implicit) differentiation."""

    def start_epoch(self) -> None:
        """Begin a new log of the solvers: each epoch has its own."""
        self.log = SolverLog()

    def add_gradient(self, rows: Tensor, weight: float, tally: Tally) -> None:
        """Add the gradient by automatic differentiation, unless the loss is not finite."""
        outputs = self.outputs(self.train.inputs.index_select(0, rows))
        self.log.add_forward(self.module.last_solve)
        value = self.loss.value(outputs, self.train.target.index_select(0, rows))
        tally.add(value.detach(), outputs.detach(), self.train.labels_of(rows))
        # A loss that is not finite has no gradient to solve for; the caller finds it in the tally.
        if bool(torch.isfinite(value)):
            torch.autograd.backward(weight * value)
            self.log.add_adjoint(self.module.last_adjoint)


class ReadoutObjective(Objective):
    """The loss as a function of the readout alone, on features that never change; the log is that of the features."""

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """The outputs for features."""
        return self.module.outputs(inputs)

    def add_gradient(self, rows: Tensor, weight: float, tally: Tally) -> None:
        """Add the gradient in closed form: slopeᵀ features."""
        features = self.train.inputs.index_select(0, rows)
        target = self.train.target.index_select(0, rows)
        outputs = self.outputs(features)
        slope = self.loss.slope(outputs, target)
        readout = self.module.readout
        if readout.grad is None:
            readout.grad = torch.zeros_like(readout)
        # The readout is stored divided by a factor.
        readout.grad.addmm_(slope.t(), features, alpha=weight * self.module.factors["readout"])
        tally.add(self.loss.value(outputs, target), outputs, self.train.labels_of(rows))


def objective_of(module: Net, data: TrainingData, loss: str) -> Objective:
    """What training minimises for this module; computes the features of a readout module where they are missing."""
    if module.train_mode == "all":
        return FullObjective(module, data.train, data.test, LOSSES[loss])
    log, parts = SolverLog(), data.parts
    if not data.has_features:
        parts = [replace(part, inputs=compute_features(module, part.inputs, log=log)) for part in parts]
    return ReadoutObjective(module, parts[0], parts[1] if data.test else None, LOSSES[loss], log)
