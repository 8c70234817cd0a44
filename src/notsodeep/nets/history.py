"""The record of a training: one row for each epoch, with what the solvers did, and why training ended."""

from __future__ import annotations

from dataclasses import dataclass

from notsodeep.display import Shown


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
    """

    rows: tuple[Epoch, ...]
    lr: float
    stopped: str | None = None
    feature_seconds: float | None = None

    @property
    def last(self) -> Epoch | None:
        """The last finished epoch."""
        return self.rows[-1] if self.rows else None
