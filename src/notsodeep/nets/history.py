"""The record of a training: one row for each epoch, what the equilibrium solvers did, and why training ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from notsodeep.display import Shown
from notsodeep.nets.fixed_point_solvers import SolveReport


@dataclass(frozen=True)
class Epoch:
    """One pass over the training samples.

    Attributes:
        epoch: its number, from 1.
        loss: mean over the training samples, each at the weights before the step of its batch.
        accuracy: share of training samples whose largest output was that of their class, at the same weights.
        test_loss: mean over the test samples at the end of the epoch.
        test_accuracy: share of test samples classified correctly at the end of the epoch.
        seconds: time of the training part alone, without the test part.
        forward_steps: steps of the equilibrium solver, mean over batches; in readout training, while
            computing the features.
        adjoint_steps: steps of the backward solver, mean over batches.
        residual: worst relative residual of an equilibrium.
        contraction: bound on the Lipschitz constant of the equilibrium map at the end, docs/theory.md (1.5).
    """

    epoch: int
    loss: float
    accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None
    seconds: float
    forward_steps: float | None = None
    adjoint_steps: float | None = None
    residual: float | None = None
    contraction: float | None = None

    def __str__(self) -> str:
        parts = [f"loss {self.loss:.4f}"]
        parts += [] if self.accuracy is None else [f"accuracy {self.accuracy:.1%}"]
        parts += [] if self.test_accuracy is None else [f"test {self.test_accuracy:.1%}"]
        parts += [] if self.forward_steps is None else [f"solver steps {self.forward_steps:.0f}"]
        return ", ".join(parts)


@dataclass(frozen=True, repr=False)
class History(Shown):
    """All epochs of a training.

    Attributes:
        rows: one record per finished epoch.
        lr: the learning rate.
        stopped: why training ended early, or None; the module is then in its last good state.
        feature_seconds: time to compute the features, for readout training that had to.
        resumed: number of epochs that came from a checkpoint.
    """

    rows: tuple[Epoch, ...]
    lr: float
    stopped: str | None = None
    feature_seconds: float | None = None
    resumed: int = 0

    @property
    def last(self) -> Epoch | None:
        """The last finished epoch."""
        return self.rows[-1] if self.rows else None

    def as_dicts(self) -> list[dict[str, Any]]:
        """The epochs as plain dictionaries."""
        return [asdict(row) for row in self.rows]

    def _facts(self) -> dict[str, Any]:
        return {
            "epochs": len(self.rows),
            "lr": self.lr,
            "last": str(self.last) if self.rows else None,
            "stopped": self.stopped,
            "resumed": self.resumed,
        }


@dataclass
class SolverLog:
    """Steps of the equilibrium solvers, forward and backward, batch by batch, and the worst residual of all."""

    forward: list[int] = field(default_factory=list)
    adjoint: list[int] = field(default_factory=list)
    residual: float | None = None

    def add_forward(self, report: SolveReport | None) -> None:
        """Count a forward solve; an explicit network has no report."""
        if report is not None:
            self.forward.append(report.steps)
            self.residual = max(self.residual or 0.0, float(report.residuals.max()))

    def add_adjoint(self, report: SolveReport | None) -> None:
        """Count a backward solve; an explicit network has no report."""
        if report is not None:
            self.adjoint.append(report.steps)

    @property
    def forward_steps(self) -> float | None:
        """Mean number of forward steps per batch."""
        return fmean(self.forward) if self.forward else None

    @property
    def adjoint_steps(self) -> float | None:
        """Mean number of backward steps per batch."""
        return fmean(self.adjoint) if self.adjoint else None
