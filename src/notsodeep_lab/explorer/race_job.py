"""Training races in background threads, which the page starts, polls and stops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.models import DEQ
from notsodeep.progress import Message, Report

if TYPE_CHECKING:
    from notsodeep.distillation import Distilled
    from notsodeep.nets.race import Race

MOST_EPOCHS = 50

Run = Callable[[Report], Any]


@dataclass(frozen=True)
class RacePlan:
    """The settings of a small race on the digits.

    Attributes:
        model: the DEQ; the other two networks are derived from it.
        mode: what is trained: "readout" or "all".
        width: width of all three networks.
        epochs: number of passes over the training samples.
    """

    model: DEQ
    mode: str = "readout"
    width: int = 256
    epochs: int = 10

    def run(self, report: Report) -> Race:
        """Train the three networks, reporting after each batch."""
        from notsodeep.data import load
        from notsodeep.nets.race import RaceSettings, race

        parts = [
            load("digits", split="train", dtype="float32"),
            load("digits", split="test", dtype="float32"),
        ]
        train, test = ((part.X, part.y) for part in parts)
        settings = RaceSettings(width=self.width, mode=self.mode, seeds=1, epochs=self.epochs)
        return race(self.model, train, test, settings, progress=report)


@dataclass(frozen=True)
class DistillationPlan:
    """The settings of a distillation: train a DEQ on the digits, then fit a few of its steps to its outputs.

    Attributes:
        model: the DEQ.
        width: width of its network.
        epochs: number of passes over the training samples, for training and for each fit.
    """

    model: DEQ
    width: int = 256
    epochs: int = 5

    def run(self, report: Report) -> Distilled:
        """Train the teacher and distil it, reporting after each batch."""
        from notsodeep.data import Preprocessing, load
        from notsodeep.distillation import distill
        from notsodeep.nets import DEQNet, fit

        digits = load("digits", split="train", dtype="float32")
        rows = Preprocessing.fit(digits.X).apply(digits.X)
        teacher = DEQNet(self.model, rows.shape[1], self.width, 10, seed=0)
        fit(teacher, (rows, digits.y), epochs=self.epochs, progress=report)
        return distill(teacher, rows, epochs=self.epochs, progress=report)


class Stopped(Exception):
    """Raised inside the race when it should stop."""


class RaceJob:
    """A race in a background thread.

    The page reads `state`, `share`, `message`, `result` and `problem` at any time; `stop()` ends the race at its next
    batch. Races run one at a time, which keeps their timings comparable.
    """

    _one_at_a_time = threading.Lock()

    def __init__(self, run: Run) -> None:
        self.share = 0.0
        self.message = "getting ready"
        self.result: Any = None
        self.problem = ""
        self._run = run
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="notsodeep-race", daemon=True)

    def start(self) -> RaceJob:
        """Start the race, and return at once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask the race to end; it does so at its next batch."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the race; False after a timeout."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def state(self) -> str:
        """One of "running", "stopping", "stopped", "failed", "finished"."""
        if self._thread.is_alive() or self._thread.ident is None:
            return "stopping" if self._stop.is_set() else "running"
        if self.problem:
            return "failed"
        return "stopped" if self.result is None else "finished"

    def _work(self) -> None:
        try:
            with self._one_at_a_time:
                self.result = self._run(self._report)
        except Stopped:
            self.message = "stopped"
        except (InputError, ConvergenceError) as error:
            self.problem = str(error)
        # Whatever else happens in the thread becomes a message on the page too.
        except Exception as error:
            name = type(error).__name__
            self.problem = f"The race ended with an unexpected error ({name}). Try other settings."

    def _report(self, done: int, total: int, message: Message) -> None:
        if self._stop.is_set():
            raise Stopped
        self.share, self.message = done / max(total, 1), message()


def epoch_rows(race: Race) -> list[dict[str, Any]]:
    """Return the test accuracy of every model after each epoch, as rows for `plot_epochs`."""
    return [
        {
            "kind": "epoch",
            "model": run.model,
            "epoch": row.epoch,
            "accuracy": row.test_accuracy,
            "loss": row.loss,
        }
        for run in race.runs
        for row in run.history.rows
    ]
