"""`fit`: train a network and record each epoch; training that diverges stops in its last good state.

The rate of "sgd" and "momentum" is that of the tangent kernel, whatever the scaling in which weights are stored
(`Net.parameter_groups`); Adam takes the weights as they are stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from notsodeep.errors import ConvergenceError
from notsodeep.nets.default_learning_rate import MOMENTUM, OPTIMIZERS, default_lr
from notsodeep.nets.fixed_point_solvers import SolveReport
from notsodeep.nets.history import Epoch, History
from notsodeep.nets.measure import synchronised_time
from notsodeep.nets.modules import Net
from notsodeep.nets.samples import (
    LabelledSamples,
    as_samples,
    compute_features,
    evaluation_rows,
    refuse_too_large,
)
from notsodeep.progress import Report, reported
from notsodeep.validation import as_count, as_number, one_of

# Losses summed over the rows of a batch; targets are (rows, outputs).
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda outputs, target: -(functional.log_softmax(outputs, dim=1) * target).sum(),
    "squared": lambda outputs, target: 0.5 * (outputs - target).square().sum(),
}
# Root mean square norms of the samples between which training needs no warning. Measured on 3000 images
# of MNIST (Adam, 1e-3): at norm 0.1 a ReLU DEQ lost its equilibrium, at norm 100 tanh lost five points of accuracy.
_SMALLEST_NORM, _LARGEST_NORM = 0.3, 30.0


@dataclass(frozen=True)
class FitSettings:
    """How a network is trained; the attributes are arguments of `fit`."""

    optimizer: str
    lr: float | None
    epochs: int
    batch_size: int
    loss: str
    seed: int


def fit(
    module: Net,
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    *,
    optimizer: str = "adam",
    lr: float | None = None,
    epochs: int = 10,
    batch_size: int = 128,
    loss: str = "cross_entropy",
    seed: int = 0,
    progress: bool | Report = True,
) -> History:
    """Train a network in place.

    Samples should have norms of about 1 (`notsodeep.data.Preprocessing`), images at each position: a root mean square
    norm below 0.3 or above 30 raises a warning that names the remedy.

    A module built with train="readout" has its features computed once and kept (width × samples numbers); then only
    the readout is trained. After each step `module.project()` keeps a contractive DEQ well-posed.

    Args:
        module: a `DEQNet`, an `ExplicitNet`, or their convolutional counterparts.
        train: (X, y): samples in rows, or images, and class labels 0, 1, …; or real targets, (n,) or (n, outputs), for
            the squared loss, which takes labels as one-hot rows.
        test: (X, y) on which the network is evaluated after each epoch.
        optimizer: "sgd", "momentum" (0.9) or "adam".
        lr: learning rate; if not given, from the largest eigenvalue of the kernel, or for "adam" from the width: 1e-3
            at 256 (`default_lr`).
        epochs: passes over the training samples.
        batch_size: samples per step; len(X) for gradient descent on the whole loss.
        loss: "cross_entropy", or "squared": half the squared distance. Both are means over samples.
        seed: random seed of the shuffling.
        progress: a bar on a terminal after two seconds; False for none,
            or a function to report to (see `notsodeep.progress`).

    Returns:
        The history. Training that diverges (the loss is not finite, or an equilibrium is not reached) stops with
        the reason in `stopped`, and the module as it was after the last good epoch.

    Raises:
        InputError: before any work, for input that cannot be used.
        ConvergenceError: if the features of a readout module cannot be computed.
    """
    settings = FitSettings(
        one_of(optimizer, OPTIMIZERS, "optimizer"),
        None if lr is None else as_number(lr, "lr", positive=True),
        as_count(epochs, "epochs"),
        as_count(batch_size, "batch_size"),
        one_of(loss, tuple(LOSSES), "loss"),
        as_count(seed, "seed", least=0),
    )
    pairs = [("train", train), *([] if test is None else [("test", test)])]
    parts = [as_samples(pair, module, loss, name) for name, pair in pairs]
    if module.train_mode == "readout":
        refuse_too_large(sum(map(len, parts)), module)
    _warn_of_scale(parts[0].inputs, module)
    with reported(progress, "training") as report:
        return _Training(module, parts, settings, report).run()


def _warn_of_scale(X: Tensor, module: Net) -> None:
    """Warn where the samples are so small or so large that networks of this kind train badly."""
    norm = float(X.double().square().sum(dim=1).mean().sqrt())
    if norm and not _SMALLEST_NORM <= norm <= _LARGEST_NORM:
        remedy = "scaling = notsodeep.data.Preprocessing.fit(X); X = scaling.apply(X)"
        where, remedy = (" at each position", f"X = X/{norm:.3g}") if module.takes_images else ("", remedy)
        warnings.warn(
            f"The training samples have a root mean square norm of {norm:.3g}{where}; networks of this kind train "
            f"well between {_SMALLEST_NORM:g} and {_LARGEST_NORM:g}. Scale them: {remedy}, and the same for the test "
            "samples.",
            UserWarning,
            stacklevel=3,
        )


class _Sums:
    """Loss and correct answers summed over samples; tensors, so that the device is not synchronised at each batch."""

    def __init__(self, samples: LabelledSamples) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=samples.target.device)
        self.correct = None if samples.labels is None else self.loss.clone()
        self.count = 0

    def add(self, loss: Tensor, outputs: Tensor, labels: Tensor | None) -> None:
        """Add one batch."""
        self.loss += loss
        self.count += len(outputs)
        if self.correct is not None and labels is not None:
            self.correct += (outputs.argmax(dim=1) == labels).sum()

    @property
    def means(self) -> tuple[float, float | None]:
        """Mean loss, and the share of correct answers where there are classes."""
        right = None if self.correct is None else float(self.correct) / self.count
        return float(self.loss) / self.count, right


class _Diverged(Exception):
    """The reason why training cannot continue."""


class _Training:
    """One run of `fit`.

    A readout module is trained on features that are computed here, once.
    """

    def __init__(
        self,
        module: Net,
        parts: list[LabelledSamples],
        settings: FitSettings,
        report: Report,
    ) -> None:
        self.module, self.settings, self.report = module, settings, report
        self.device, self.loss = module.readout.device, LOSSES[settings.loss]
        # What a network keeps from earlier calls must not influence the result.
        module.clear_cache()
        self.trains_all = module.train_mode == "all"
        self.outputs: Callable[[Tensor], Tensor] = module if self.trains_all else module.outputs
        self.forward: list[SolveReport] = []
        self.adjoint: list[SolveReport] = []
        self.feature_seconds = None
        if not self.trains_all:
            began = synchronised_time(self.device)
            parts = [
                replace(one, inputs=compute_features(module, one.inputs, log=self.forward)) for one in parts
            ]
            self.feature_seconds = synchronised_time(self.device) - began
        self.train, self.test = parts[0], parts[1] if len(parts) > 1 else None
        self.generator = torch.Generator().manual_seed(settings.seed)
        # The default belongs to the initial weights.
        self.lr = settings.lr or (
            default_lr(module, self.train.inputs, settings.optimizer, settings.loss, settings.batch_size)
        )
        self.parameters = [weights for weights in module.parameters() if weights.requires_grad]
        self.optimizer = _optimizer(settings.optimizer, self.lr, module)
        self.rows: list[Epoch] = []
        self.contraction: float | None = None

    def run(self) -> History:
        """Train to the last epoch, or until training diverges."""
        good, stopped = self._copy_of_state(), None
        try:
            while len(self.rows) < self.settings.epochs:
                self.rows.append(self._epoch())
                good = self._copy_of_state()
        except (_Diverged, ConvergenceError) as reason:
            stopped = f"epoch {len(self.rows) + 1}: {reason}"
            self.module.load_state_dict(good)
        except BaseException:
            # Interrupted in the middle of an epoch: the module keeps the weights of the last whole one.
            self.module.load_state_dict(good)
            raise
        return History(tuple(self.rows), self.lr, stopped, self.feature_seconds)

    def _copy_of_state(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    def _epoch(self) -> Epoch:
        # An epoch depends only on the weights it starts from.
        self.module.clear_cache()
        if self.trains_all:
            self.forward, self.adjoint = [], []
        sums, began = _Sums(self.train), synchronised_time(self.device)
        order = torch.randperm(len(self.train), generator=self.generator).to(self.device)
        for rows in order.split(self.settings.batch_size):  # type: ignore[no-untyped-call]
            self._step(rows, sums)
        self._refuse_nonfinite([sums.loss], "the loss is")
        seconds = synchronised_time(self.device) - began
        # The last step of an epoch has no loss after it that would show this.
        self._refuse_nonfinite(self.parameters, "weights are")
        return Epoch(
            len(self.rows) + 1,
            *sums.means,
            *self._evaluate(),
            seconds=seconds,
            forward_steps=_mean_steps(self.forward),
            adjoint_steps=_mean_steps(self.adjoint),
            residual=max((float(solve.residuals.max()) for solve in self.forward), default=None),
            contraction=self._measure_contraction(),
        )

    def _step(self, rows: Tensor, sums: _Sums) -> None:
        """One step of the optimiser."""
        self.optimizer.zero_grad()
        outputs = self.outputs(self.train.inputs.index_select(0, rows))
        value = self.loss(outputs, self.train.target.index_select(0, rows))
        sums.add(value.detach(), outputs.detach(), self.train.labels_of(rows))
        if self.trains_all:
            # A loss that is not finite has no gradient to solve for.
            self._refuse_nonfinite([sums.loss], "the loss is")
        torch.autograd.backward(value / len(rows))
        self.optimizer.step()
        if self.trains_all:
            self.module.project()
            # An explicit network has no solver.
            if self.module.last_solve is not None and self.module.last_adjoint is not None:
                self.forward.append(self.module.last_solve)
                self.adjoint.append(self.module.last_adjoint)
        done = len(self.rows) * len(self.train) + sums.count
        self.report(done, self.settings.epochs * len(self.train), lambda: self._message(sums))

    @torch.no_grad()
    def _evaluate(self) -> tuple[float | None, float | None]:
        """Loss and accuracy on the test samples."""
        if self.test is None:
            return None, None
        sums = _Sums(self.test)
        for batch in self.test.batches(evaluation_rows(self.module)):
            outputs = self.outputs(batch.inputs)
            sums.add(self.loss(outputs, batch.target), outputs, batch.labels)
        return sums.means

    def _measure_contraction(self) -> float | None:
        """The contraction after an epoch; warns when it reaches 1, where the solver may still find equilibria."""
        before = self.contraction
        if before is None or self.trains_all:
            self.contraction = self.module.contraction()
            if self.contraction is not None and self.contraction >= 1.0 > (before or 0.0):
                warnings.warn(
                    f"After epoch {len(self.rows) + 1} the equilibrium map need not contract: its Lipschitz bound "
                    f"is {self.contraction:.3f}. Training continues while the solver converges; contractive=True "
                    "keeps it below one.",
                    RuntimeWarning,
                    stacklevel=5,
                )
        return self.contraction

    def _refuse_nonfinite(self, values: list[Any], what: str) -> None:
        if not all(bool(torch.isfinite(value).all()) for value in values):
            raise _Diverged(f"{what} not finite. Lower the learning rate (lr = {self.lr:g}).")

    def _message(self, sums: _Sums) -> str:
        last = self.rows[-1].test_accuracy if self.rows else None
        now = Epoch(0, *sums.means, None, last, 0.0, _mean_steps(self.forward))
        return f"epoch {len(self.rows) + 1}/{self.settings.epochs}: {now}"


def _mean_steps(solves: list[SolveReport]) -> float | None:
    return fmean(solve.steps for solve in solves) if solves else None


def _optimizer(name: str, lr: float, module: Net) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam([weights for weights in module.parameters() if weights.requires_grad], lr=lr)
    return torch.optim.SGD(
        module.parameter_groups(lr), lr=lr, momentum=MOMENTUM if name == "momentum" else 0.0
    )


__all__ = ["LOSSES", "fit"]
