"""`fit`: train a network, record what happened in each epoch, and survive interruption and divergence.

The rate of "sgd", "momentum" and "gd" is that of the tangent kernel, whatever the scaling in which weights are stored
(`Net.parameter_groups`); Adam takes the weights as they are stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError
from notsodeep.nets.checkpoints import CheckpointFile, FitCheckpoint, checkpoint_path
from notsodeep.nets.default_learning_rate import MOMENTUM, OPTIMIZERS, default_lr
from notsodeep.nets.history import Epoch, History
from notsodeep.nets.measure import synchronised_time
from notsodeep.nets.modules import Net
from notsodeep.nets.objectives import LOSSES, Objective, Tally, objective_of
from notsodeep.nets.samples import TrainingData
from notsodeep.progress import Report, reported
from notsodeep.validation import as_count, as_number, one_of

# Root mean square norms of the rows between which training needs no warning.
_SMALLEST_NORM, _LARGEST_NORM = 0.3, 30.0
_ROWS_WORDS = ("rows have", "scaling = notsodeep.data.Preprocessing.fit(X); X = scaling.apply(X)")
_IMAGE_WORDS = (
    "images have at their positions",
    "mean = X.mean(axis=0); scale = np.sqrt(np.mean(np.sum((X - mean)**2, axis=1))); X = (X - mean)/scale",
)


@dataclass(frozen=True)
class FitSettings:
    """How a network is trained; the attributes are arguments of `fit`, and are checked here."""

    optimizer: str
    lr: float | None
    epochs: int
    batch_size: int
    loss: str
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        one_of(self.optimizer, OPTIMIZERS, "optimizer")
        one_of(self.loss, tuple(LOSSES), "loss")
        if self.lr is not None:
            as_number(self.lr, "lr", positive=True)
        as_count(self.epochs, "epochs")
        as_count(self.batch_size, "batch_size")
        as_count(self.seed, "seed", least=0)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with; more epochs continue the same training."""
        return {
            "optimizer": self.optimizer,
            "lr": None if self.lr is None else float(self.lr),  # without one, the same default again
            "batch_size": int(self.batch_size),
            "loss": self.loss,
            "seed": int(self.seed),
        }


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
    features: tuple[Any, Any] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = True,
    progress: bool | Report = False,
) -> History:
    """Train a network in place.

    Rows should have norms of about 1 (`notsodeep.data.Preprocessing`), images at their positions, where theory and
    learning rates are at home: a root mean square norm below 0.3 or above 30 is a warning that names the remedy.

    A module made with train="readout" has its features computed once and kept (width × samples numbers); then only
    the readout is trained, by its gradient in closed form. After each step `module.project()` keeps a contractive
    DEQ well-posed.

    Args:
        module: a `DEQNet`, an `ExplicitNet`, or one of their kind for images.
        train: (X, y): samples in rows, or images, and class labels 0, 1, …; or real targets, (n,) or (n, outputs), for
            the squared loss, which takes labels as one-hot rows.
        test: (X, y) on which the network is evaluated after each epoch.
        optimizer: "sgd", "momentum" (0.9), "adam", or "gd": one exact full-batch step per epoch.
        lr: learning rate; if not given, from the largest eigenvalue of the kernel, or for "adam" from the width: 1e-3
            at 256 (`default_lr`).
        epochs: passes over the training samples, counted from the beginning, with a checkpoint too.
        batch_size: samples per step; for "gd" it only bounds memory.
        loss: "cross_entropy", or "squared": half the squared distance. Both are means over samples.
        seed: of the shuffling.
        features: (features of train, features of test or None) for a readout module, as `compute_features` gives
            them, so that several trainings can share them. X is not looked at then and may be None.
        checkpoint: file that holds the training after each epoch.
        resume: continue from the checkpoint if it is there, bit for bit as if there had been no interruption;
            with False the file is replaced.
        progress: True for a bar on stderr, or a function to report to (see `notsodeep.progress`).

    Returns:
        The history. Training that diverges (the loss is not finite, or an equilibrium is not reached) stops with
        the reason in `stopped`, and the module as it was after the last good epoch.

    Raises:
        InputError: before any work, for input that cannot be used or a checkpoint of another training.
        ConvergenceError: if the features of a readout module cannot be computed.
    """
    settings = FitSettings(optimizer, lr, epochs, batch_size, loss, seed)
    path = checkpoint_path(checkpoint)
    data = TrainingData.of(module, train, test, loss, features)
    _warn_of_scale(data, module)
    file = None if path is None else CheckpointFile(path, module, data, settings.identity())
    start = file.load(epochs) if file is not None and resume else None
    with reported(progress, "training") as report:
        return _Training(module, data, settings, start).run(file, report)


def _warn_of_scale(data: TrainingData, module: Net) -> None:
    """Say so where the rows are so small or so large that networks of this kind train badly.

    Measured on MNIST at norms 0.1, 1, 3, 10, 30 and 100 (docs/networks.md): at 0.1 a ReLU network lost its equilibrium,
    at 100 tanh lost five points of accuracy. The bounds are round numbers between; the loss above 3 is gradual.
    """
    if data.has_features:
        return
    # Of images at their positions.
    norm = float(data.train.inputs.double().square().sum(dim=1).mean().sqrt())
    if norm and not _SMALLEST_NORM <= norm <= _LARGEST_NORM:
        what, remedy = _ROWS_WORDS if not module.takes_images else _IMAGE_WORDS
        warnings.warn(
            f"The training {what} a root mean square norm of {norm:.3g}; networks of this kind train well between "
            f"{_SMALLEST_NORM:g} and {_LARGEST_NORM:g}. Scale them: {remedy}, and the same for the test part.",
            UserWarning,
            stacklevel=3,
        )


class _ContractionMonitor:
    """Measures the contraction of a network after each epoch, and warns once when it is no longer below one.

    Args:
        module: the network.
        known: its contraction, if it was measured before; while the readout alone is trained, it stays the same.
    """

    def __init__(self, module: Net, known: float | None) -> None:
        self._module, self._known, self._warned = module, known, False

    def after_epoch(self, epoch: int) -> float | None:
        """The contraction after this epoch; a warning, since the solver may still find equilibria above one."""
        if self._known is None or self._module.train_mode == "all":
            self._known = self._module.contraction()
            if self._known is not None and self._known >= 1.0 and not self._warned:
                self._warned = True
                warnings.warn(
                    f"After epoch {epoch} the equilibrium map need not contract: its Lipschitz bound is "
                    f"{self._known:.3f}. Training goes on as long as the solver converges; contractive=True keeps it "
                    "below one.",
                    RuntimeWarning,
                    stacklevel=5,
                )
        return self._known


class _Diverged(Exception):
    """The reason why training cannot go on."""


class _Training:
    """One run of `fit`, from the initial weights or from a checkpoint."""

    def __init__(
        self, module: Net, data: TrainingData, settings: FitSettings, start: FitCheckpoint | None
    ) -> None:
        self.module, self.settings, self.device = module, settings, module.readout.device
        if start is not None:
            module.load_state_dict(start.module)
        # What a network keeps from earlier batches must not show: see `_epoch`.
        module.clear_cache()
        began = synchronised_time(self.device)
        self.objective: Objective = objective_of(module, data, settings.loss)
        computed = module.train_mode == "readout" and not data.has_features
        self.feature_seconds = synchronised_time(self.device) - began if computed else None
        self.parameters = [weights for weights in module.parameters() if weights.requires_grad]
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.rows: list[Epoch] = []
        rest = (settings.optimizer, settings.loss, settings.batch_size)
        inputs = self.objective.train.inputs
        self.lr = settings.lr or (1.0 if start is not None else default_lr(module, inputs, *rest))
        self.optimizer = _optimizer(settings.optimizer, self.lr, module)
        if start is not None:
            self._resume(start)
        self.resumed = len(self.rows)
        self.monitor = _ContractionMonitor(module, self.rows[-1].contraction if self.rows else None)

    def _resume(self, start: FitCheckpoint) -> None:
        """Optimiser, generator and finished epochs as the checkpoint left them."""
        self.optimizer.load_state_dict(start.optimizer)
        first = self.optimizer.param_groups[0]
        self.lr = first.get("kernel_lr", first["lr"])
        self.generator.set_state(start.generator.cpu())
        self.rows = [Epoch(**row) for row in start.rows]

    def run(self, file: CheckpointFile | None, report: Report) -> History:
        """Train to the last epoch, or until training diverges."""
        good, stopped = self._copy_of_state(), None
        try:
            while len(self.rows) < self.settings.epochs:
                self.rows.append(self._epoch(report))
                if file is not None:
                    file.save(self.optimizer, self.generator, self.rows)
                good = self._copy_of_state()
        except (_Diverged, ConvergenceError) as reason:
            stopped = f"epoch {len(self.rows) + 1}: {reason}"
            self.module.load_state_dict(good)
        except BaseException:
            # Interrupted in the middle of an epoch: leave a state that the checkpoint knows.
            self.module.load_state_dict(good)
            raise
        return History(tuple(self.rows), self.lr, stopped, self.feature_seconds, self.resumed)

    def _copy_of_state(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    def _epoch(self, report: Report) -> Epoch:
        # An epoch depends on the weights it starts from alone. Otherwise the second half of a training would differ in
        # its last bits with whether there was a first.
        self.module.clear_cache()
        self.objective.start_epoch()
        tally, began = Tally.empty(self.module), synchronised_time(self.device)
        for step in self._steps():
            self._step(step, tally, report)
        self._refuse_nonfinite([tally.loss], "the loss is")
        seconds = synchronised_time(self.device) - began
        # The last step of an epoch has no loss after it that would show this.
        self._refuse_nonfinite(self.parameters, "weights are")
        tested, log = self.objective.evaluate(), self.objective.log
        return Epoch(
            epoch=len(self.rows) + 1,
            loss=tally.mean_loss,
            accuracy=tally.accuracy,
            test_loss=None if tested is None else tested.mean_loss,
            test_accuracy=None if tested is None else tested.accuracy,
            seconds=seconds,
            forward_steps=log.forward_steps,
            adjoint_steps=log.adjoint_steps,
            residual=log.residual,
            contraction=self.monitor.after_epoch(len(self.rows) + 1),
        )

    def _steps(self) -> Iterator[list[Tensor]]:
        """The batches of each step: one, or for full-batch descent all of them."""
        count, full = len(self.objective.train), self.settings.optimizer == "gd"
        order = torch.arange(count) if full else torch.randperm(count, generator=self.generator)
        batches = list(order.to(self.device).split(self.settings.batch_size))  # type: ignore[no-untyped-call]
        yield from [batches] if full else ([rows] for rows in batches)

    def _step(self, batches: list[Tensor], tally: Tally, report: Report) -> None:
        count, trains_all = len(self.objective.train), self.module.train_mode == "all"
        weight = 1.0 / sum(len(rows) for rows in batches)
        self.optimizer.zero_grad()
        for rows in batches:
            self.objective.add_gradient(rows, weight, tally)
            if trains_all:
                self._refuse_nonfinite([tally.loss], "the loss is")
            done, total = len(self.rows) * count + tally.count, self.settings.epochs * count
            report(done, total, lambda: self._news(tally))
        self.optimizer.step()
        if trains_all:
            self.module.project()

    def _refuse_nonfinite(self, values: list[Any], what: str) -> None:
        if not all(bool(torch.isfinite(value).all()) for value in values):
            raise _Diverged(f"{what} not finite. Lower the learning rate (lr = {self.lr:g}).")

    def _news(self, tally: Tally) -> str:
        last = self.rows[-1].test_accuracy if self.rows else None
        steps = self.objective.log.forward_steps
        now = Epoch(0, tally.mean_loss, tally.accuracy, None, last, 0.0, steps)
        return f"epoch {len(self.rows) + 1}/{self.settings.epochs}: {now}"


def _optimizer(name: str, lr: float, module: Net) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam([weights for weights in module.parameters() if weights.requires_grad], lr=lr)
    return torch.optim.SGD(
        module.parameter_groups(lr), lr=lr, momentum=MOMENTUM if name == "momentum" else 0.0
    )
