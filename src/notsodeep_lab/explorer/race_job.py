"""Races in a thread of their own: the page starts one, shows how far it is, and stops it."""

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
    """A small race on the digits: what is trained, how wide, how long.

    Attributes:
        model: the DEQ that the two others are made from.
        mode: "readout" or "all".
        width: of all three networks.
        epochs: passes over the training samples.
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
    """A DEQ is trained on the digits with all its weights, then a few of its own steps are fitted to its answers.

    Attributes:
        model: the DEQ.
        width: of its network.
        epochs: passes over the training samples, of the training and of each fit.
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
    """One race in a thread of its own.

    The page reads `state`, `share`, `news`, `result` and `problem` whenever it likes; `stop()` makes the race end at
    its next batch. One race computes at a time, so that the times it measures are its own.
    """

    _one_at_a_time = threading.Lock()

    def __init__(self, run: Run) -> None:
        self.share = 0.0
        self.news = "getting ready"
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
        """Wait for the end; False if it did not come in time."""
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
            self.news = "stopped"
        except (InputError, ConvergenceError) as error:
            self.problem = str(error)
        # The thread's last word: whatever else happened is a sentence on the page too.
        except Exception as error:
            name = type(error).__name__
            self.problem = f"The race ended with an error that was not foreseen ({name}). Try other settings."

    def _report(self, done: int, total: int, news: Message) -> None:
        if self._stop.is_set():
            raise Stopped
        self.share, self.news = done / max(total, 1), news()


def epoch_rows(race: Race) -> list[dict[str, Any]]:
    """Test accuracy after each epoch of every model, as rows for `plot_epochs`."""
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
