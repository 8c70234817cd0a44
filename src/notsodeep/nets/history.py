"""What happened in a training: a record per epoch, and why it ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Epoch:
    """One pass over the training samples.

    Attributes:
        epoch: its number, from 1.
        loss: mean over the training samples, each at the weights its batch found (before their step).
        accuracy: share of training samples whose largest output was that of their class, taken likewise.
        test_loss: mean over the test samples at the end of the epoch.
        test_accuracy: the same for the accuracy.
        seconds: of the training part alone, without the test part.
        forward_steps: steps of the equilibrium solver, mean over batches; in readout training, over
            those of the features.
        adjoint_steps: the same of the backward solver.
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
        said = [f"loss {self.loss:.4f}"]
        said += [] if self.accuracy is None else [f"accuracy {self.accuracy:.1%}"]
        said += [] if self.test_accuracy is None else [f"test {self.test_accuracy:.1%}"]
        said += [] if self.forward_steps is None else [f"solver steps {self.forward_steps:.0f}"]
        return ", ".join(said)


@dataclass(frozen=True)
class History:
    """What happened.

    Attributes:
        rows: one record per finished epoch.
        lr: the learning rate.
        stopped: why training ended early, or None; the module is then in its last good state.
        feature_seconds: time to compute the features, for readout training that had to.
        resumed: epochs that came from a checkpoint.
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
        """The rows as plain dictionaries."""
        return [asdict(row) for row in self.rows]

    def to_json(self) -> str:
        """Everything as JSON."""
        return json.dumps(asdict(self))
