"""`fit`: train a network, tell what happened in each epoch, and survive interruption and divergence.

Networks are in NTK scaling, docs/theory.md (1.1) and (1.4): features have norm about one and every weight is of order
one, so that one learning rate serves all widths.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.fingerprint import describe
from notsodeep.nets.checkpoints import Checkpoint, checkpoint_path, fingerprint, snapshot
from notsodeep.nets.history import Epoch, History
from notsodeep.nets.learning_rates import MOMENTUM, OPTIMIZERS, default_lr
from notsodeep.nets.modules import DEQNet, ExplicitNet, Net
from notsodeep.nets.objectives import LOSSES, Readout, Tally, Whole
from notsodeep.nets.samples import Samples, SolverLog, as_samples, compute_features, refuse_too_large
from notsodeep.nets.timing import synchronised_time
from notsodeep.progress import Report, reported
from notsodeep.validation import one_of


@dataclass(frozen=True)
class Plan:
    """The checked settings of a training."""

    optimizer: str
    lr: float | None
    epochs: int
    batch_size: int
    loss: str
    seed: int
    checkpoint: Path | None
    resume: bool

    def same_training(self) -> dict[str, str]:
        """What a checkpoint must agree with; more epochs continue the same training."""
        names = ("optimizer", "lr", "batch_size", "loss", "seed")  # no lr: the same default again
        return {name: repr(getattr(self, name)) for name in names}


def fit(
    module: Net,
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    *,
    optimizer: str = "sgd",
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

    A module made with train="readout" has its features computed once and kept (width × samples numbers); then only
    the readout is trained, by its gradient in closed form. After each step `module.project()` keeps a contractive
    DEQ well-posed.

    Args:
        module: a `DEQNet` or an `ExplicitNet`.
        train: (X, y): samples in rows, and class labels 0, 1, …; or real targets, (n,) or (n, outputs), for the
            squared loss, which takes labels as one-hot rows.
        test: the same, evaluated after each epoch.
        optimizer: "sgd", "momentum" (0.9), "adam", or "gd": one exact full-batch step per epoch.
        lr: learning rate; if not given, from the largest eigenvalue of the kernel (`default_lr`).
        epochs: passes over the training samples, counted from the beginning, with a checkpoint too.
        batch_size: samples per step; for "gd" it only bounds memory.
        loss: "cross_entropy", or "squared": half the squared distance. Both are means over samples.
        seed: of the shuffling.
        features: (features of train, features of test or None) for a readout module, as `compute_features` gives
            them, so that several trainings can share them. X is not looked at then and may be None.
        checkpoint: file that holds the training after each epoch.
        resume: continue from the checkpoint if it is there, bit for bit as if there had been no interruption;
            otherwise it is replaced.
        progress: True for a bar on stderr, or a function to report to (see `notsodeep.progress`).

    Returns:
        The history. Training that diverges (the loss is not finite, or an equilibrium is not reached) stops with
        the reason in `stopped`, and the module as it was after the last good epoch.

    Raises:
        InputError: before any work, for input that cannot be used or a checkpoint of another training.
        ConvergenceError: if the features of a readout module cannot be computed.
    """
    plan = checked_plan(optimizer, lr, epochs, batch_size, loss, seed, checkpoint, resume)
    parts = _Parts(module, train, test, loss, features)
    training = _Training(module, parts, plan)
    with reported(progress, "training") as report:
        return training.run(report)


def checked_plan(
    optimizer: str, lr: float | None, epochs: int, batch_size: int, loss: str, seed: int = 0,
    checkpoint: str | Path | None = None, resume: bool = True,
) -> Plan:  # fmt: skip
    """The settings of `fit`, if they can be used."""
    one_of(optimizer, OPTIMIZERS, "optimizer")
    one_of(loss, tuple(LOSSES), "loss")
    if lr is not None and not (math.isfinite(lr) and lr > 0.0):
        raise InputError(
            f"lr={lr} cannot be used: a learning rate is positive and finite. Leave it out for one that works."
        )
    for name, value, least in (("epochs", epochs, 1), ("batch_size", batch_size, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or int(value) != value or value < least:
            raise InputError(f"{name}={value!r} must be a whole number, {least} or more.")
    return Plan(
        optimizer,
        None if lr is None else float(lr),
        int(epochs),
        int(batch_size),
        loss,
        int(seed),
        checkpoint_path(checkpoint),
        bool(resume),
    )


# --- data --------------------------------------------------------------------------------------------
@dataclass
class _Parts:
    """The data of a training, checked; features are computed when the weights are known."""

    module: Net
    train_pair: tuple[Any, Any]
    test_pair: tuple[Any, Any] | None
    loss: str
    features: tuple[Any, Any] | None
    train: Samples = field(init=False)
    test: Samples | None = field(init=False)
    log: SolverLog = field(default_factory=SolverLog)
    feature_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.features is not None and self.module.train_mode != "readout":
            raise InputError(
                "features= is for modules made with train='readout'; this one trains all its weights."
            )
        given = (None, None) if self.features is None else self.features
        columns = self.module.in_features if self.features is None else self.module.width
        self.train = self._samples(self.train_pair, given[0], columns, "train")
        self.test = (
            None if self.test_pair is None else self._samples(self.test_pair, given[1], columns, "test")
        )
        if self._must_compute:
            refuse_too_large([len(self.train), 0 if self.test is None else len(self.test)], self.module)

    def _samples(self, pair: tuple[Any, Any], features: Any, columns: int, name: str) -> Samples:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InputError(f"{name} must be a pair (X, y); got {type(pair).__name__}.")
        if self.features is not None and features is None:
            raise InputError(f"features= lacks those of {name}: give both, or leave {name} out.")
        return as_samples(
            pair[0] if features is None else features, pair[1], columns, self.module, self.loss, name
        )

    @property
    def _must_compute(self) -> bool:
        return self.module.train_mode == "readout" and self.features is None

    def fingerprints(self) -> dict[str, str]:
        """Hashes of the data as given."""
        parts = {"train": self.train, "test": self.test}
        return {
            f"{name} data": "none" if part is None else fingerprint({"X": part.inputs, "y": part.target})
            for name, part in parts.items()
        }

    def objective(self) -> Whole | Readout:
        """The function to minimise; computes the features if there are none."""
        loss = LOSSES[self.loss]
        if self.module.train_mode != "readout":
            return Whole(self.module, self.train, self.test, loss)
        if self._must_compute:
            start = synchronised_time(self.train.inputs.device)
            train = self._with_features(self.train)
            test = None if self.test is None else self._with_features(self.test)
            self.feature_seconds = synchronised_time(self.train.inputs.device) - start
        else:
            train, test = self.train, self.test
        return Readout(self.module, train, test, loss, self.log)

    def _with_features(self, part: Samples) -> Samples:
        return Samples(compute_features(self.module, part.inputs, log=self.log), part.target, part.labels)


# --- the loop ----------------------------------------------------------------------------------------
class _Diverged(Exception):
    """The reason why training cannot go on."""


class _Training:
    """One run of `fit`."""

    objective: Whole | Readout
    optimizer: torch.optim.Optimizer
    lr: float

    def __init__(self, module: Net, parts: _Parts, plan: Plan) -> None:
        self.module, self.parts, self.plan = module, parts, plan
        self.parameters = [weights for weights in module.parameters() if weights.requires_grad]
        self.generator = torch.Generator().manual_seed(plan.seed)
        self.rows: list[Epoch] = []
        self.warned = False

    def run(self, report: Report) -> History:
        """Train, from the beginning or the checkpoint."""
        settings, start, found = self._identify()
        if found is not None:
            self.module.load_state_dict(found.module)
        _forget(self.module)
        self.objective = self.parts.objective()
        self._prepare(found)
        resumed = len(self.rows)
        good = snapshot(self.module.state_dict())
        stopped = None
        try:
            while len(self.rows) < self.plan.epochs:
                self.rows.append(self._epoch(report))
                self._save(settings, start)
                good = snapshot(self.module.state_dict())
        except (_Diverged, ConvergenceError) as reason:
            stopped = f"epoch {len(self.rows) + 1}: {reason}"
            self.module.load_state_dict(good)
        except BaseException:
            # Interrupted in the middle of an epoch: leave a state that the checkpoint knows.
            self.module.load_state_dict(good)
            raise
        return History(tuple(self.rows), self.lr, stopped, self.parts.feature_seconds, resumed)

    def _epoch(self, report: Report) -> Epoch:
        _forget(self.module)
        self.objective.start_epoch()
        device = self.module.readout.device
        tally, start = Tally.empty(self.module), synchronised_time(device)
        for step in self._steps():
            self._step(step, tally, report)
        self._refuse_nonfinite(tally)
        seconds = synchronised_time(device) - start
        self._refuse_nonfinite_weights()
        tested = self.objective.evaluate()
        log = self.objective.log
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
            contraction=self._contraction(),
        )

    def _steps(self) -> Iterator[list[Tensor]]:
        """The batches of each step: one, or for full-batch descent all of them."""
        count, device = len(self.parts.train), self.module.readout.device
        full = self.plan.optimizer == "gd"
        order = torch.arange(count) if full else torch.randperm(count, generator=self.generator)
        size = self.plan.batch_size
        batches = [
            rows.to(device) for rows in (order[first : first + size] for first in range(0, count, size))
        ]
        yield from [batches] if full else ([rows] for rows in batches)

    def _step(self, batches: list[Tensor], tally: Tally, report: Report) -> None:
        count = len(self.parts.train)
        weight = 1.0 / sum(len(rows) for rows in batches)
        self.optimizer.zero_grad()
        for rows in batches:
            self.objective.add_gradient(rows, weight, tally)
            if isinstance(self.objective, Whole):
                self._refuse_nonfinite(tally)
            report(len(self.rows) * count + tally.count, self.plan.epochs * count, lambda: self._news(tally))
        self.optimizer.step()
        self._project()

    def _project(self) -> None:
        project = getattr(self.module, "project", None)
        if project is not None and isinstance(self.objective, Whole):
            project()

    def _refuse_nonfinite(self, tally: Tally) -> None:
        if not math.isfinite(float(tally.loss)):
            raise _Diverged(f"the loss is not finite. Lower the learning rate (lr = {self.lr:g}).")

    def _refuse_nonfinite_weights(self) -> None:
        """The last step of an epoch has no loss after it that would tell."""
        if not all(bool(torch.isfinite(weights).all()) for weights in self.parameters):
            raise _Diverged(f"weights are not finite. Lower the learning rate (lr = {self.lr:g}).")

    def _contraction(self) -> float | None:
        """The current bound; its loss is said once, since the solver may still find equilibria."""
        measure = getattr(self.module, "contraction", None)
        if measure is None:
            return None
        if self.rows and isinstance(self.objective, Readout):
            return self.rows[-1].contraction
        bound = float(measure())
        if bound >= 1.0 and not self.warned:
            self.warned = True
            warnings.warn(
                f"After epoch {len(self.rows) + 1} the equilibrium map need not contract: its Lipschitz bound is "
                f"{bound:.3f}. Training goes on as long as the solver converges; contractive=True keeps it below one.",
                RuntimeWarning,
                stacklevel=5,
            )
        return bound

    def _news(self, tally: Tally) -> str:
        log = self.objective.log
        last = self.rows[-1].test_accuracy if self.rows else None
        now = Epoch(0, tally.mean_loss, tally.accuracy, None, last, 0.0, log.forward_steps)
        return f"epoch {len(self.rows) + 1}/{self.plan.epochs}: {now}"

    # --- checkpoints ---------------------------------------------------------------------------------
    def _identify(self) -> tuple[dict[str, Any], str, Checkpoint | None]:
        """What makes this training the one it is, a hash of its initial weights, and the checkpoint to go on from."""
        path = self.plan.checkpoint
        if path is None:
            return {}, "", None
        settings = self.plan.same_training() | self._network() | self.parts.fingerprints()
        weights = fingerprint(self.module.state_dict())
        if not (self.plan.resume and path.exists()):
            return settings, weights, None
        found = Checkpoint.load(path, self.module.readout.device)
        found.refuse_other(settings, weights, path)
        if len(found.rows) > self.plan.epochs:
            raise InputError(
                f"{path} is already {len(found.rows)} epochs on; {self.plan.epochs} were asked for. Ask for more, name "
                "another file, or pass resume=False to start anew."
            )
        return settings, found.start, found

    def _prepare(self, found: Checkpoint | None) -> None:
        """The optimiser, at its beginning or as the checkpoint left it."""
        plan = self.plan
        if found is None:
            self.lr = plan.lr or default_lr(
                self.module, self.objective.train.inputs, plan.optimizer, plan.loss, plan.batch_size
            )
            self.optimizer = _optimizer(plan.optimizer, self.lr, self.parameters)
            return
        self.optimizer = _optimizer(plan.optimizer, 1.0, self.parameters)
        self.optimizer.load_state_dict(found.optimizer)
        self.lr = self.optimizer.param_groups[0]["lr"]
        self.generator.set_state(found.generator)
        self.rows = [Epoch(**row) for row in found.rows]

    def _network(self) -> dict[str, Any]:
        module = self.module
        sizes = f"{module.in_features}-{module.width}-{module.out_features}"
        # Features may come without the rows they were computed from; then nothing is known of these.
        known = [] if self.parts.features is not None else [self.parts.train, self.parts.test]
        norms = [float(part.inputs.norm(dim=1).max()) for part in known if part is not None]
        return {
            "network": f"{type(module).__name__} {sizes}, train={module.train_mode}",
            "model": describe(module.spec, max(norms, default=0.0)),
            "factors": list(module.factors) if isinstance(module, ExplicitNet) else None,
            "precision": str(module.readout.dtype),
            "solver": module.solver_settings if isinstance(module, DEQNet) else "none",
        }

    def _save(self, settings: dict[str, Any], start: str) -> None:
        if self.plan.checkpoint is not None:
            rows = [asdict(row) for row in self.rows]
            state = self.module.state_dict()
            Checkpoint(
                settings, start, dict(state), self.optimizer.state_dict(), self.generator.get_state(), rows
            ).save(self.plan.checkpoint)


def _forget(module: Net) -> None:
    """Drop what a DEQ keeps from earlier batches, so that an epoch depends on the weights it starts from alone.

    Otherwise the second half of a training would differ in its last bits with whether there was a first.
    """
    if isinstance(module, DEQNet):
        module.forget()


def _optimizer(name: str, lr: float, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr)
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM if name == "momentum" else 0.0)


__all__ = ["Epoch", "History", "checked_plan", "compute_features", "default_lr", "fit"]
