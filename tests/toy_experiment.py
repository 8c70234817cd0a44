"""An experiment of known rows, for the tests of the machinery; other processes find it by this module's name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from notsodeep.errors import ConvergenceError, InputError
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Size, Spec, Task

# "size=2 seed=0:bug": the task that does not end well, and how. Not a setting: a run that goes on after the trouble
# must be a run of the same settings; and processes inherit it.
TROUBLE = "TOY_TROUBLE"


@dataclass(frozen=True)
class ToySpec(Spec):
    """Draws of `length` numbers, each after a pause."""

    sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    seeds: int = 2
    pause: float = 0.0
    length: int = 3


def rows_of(spec: ToySpec, size: int, seed: int) -> list[Row]:
    """The rows without times: two, so that a task is more than a row."""
    draws = np.random.default_rng([size, seed]).standard_normal(spec.length)
    first = {"kind": "mean", "size": size, "seed": seed, "mean": float(draws.mean()), "name": "µ|ü\n\"'<b>"}
    return [first, {"kind": "draws", "size": size, "seed": seed, "draws": draws.tolist()}]


class Toy(Experiment[ToySpec]):
    """Means of a few draws."""

    name = "toy"
    paper = "none"
    summary = "means of a few draws"
    minutes: ClassVar[dict[Size, float]] = {"quick": 0.1, "full": 1.0}
    cut = "nothing but the sample size"
    spec_type = ToySpec

    def spec(self, size: Size, seeds: int | None = None) -> ToySpec:
        return ToySpec(sizes=(1, 2, 3) if size == "quick" else (1, 2, 3, 4, 5, 6), seeds=seeds or 2)

    def tasks(self, spec: ToySpec) -> Sequence[Task]:
        return [
            Task(f"size={size} seed={seed}", {"size": size, "seed": seed}, cost=size)
            for size in spec.sizes
            for seed in range(spec.seeds)
        ]

    def run(self, spec: ToySpec, task: Task, data_dir: Path | None) -> list[Row]:
        start = time.perf_counter()
        time.sleep(spec.pause)
        trouble, _, kind = os.environ.get(TROUBLE, "").partition(":")
        if task.key == trouble:
            stumble(kind)
        rows = rows_of(spec, int(task.parameters["size"]), int(task.parameters["seed"]))
        return [row | {"run_seconds": time.perf_counter() - start} for row in rows]

    def expectations(self, spec: ToySpec, rows: Sequence[Row]) -> list[Expectation]:
        count = sum(row["kind"] == "mean" for row in rows)
        wanted = len(spec.sizes) * spec.seeds
        return [
            Expectation("means", wanted, count, count == wanted, "all of them"),
            Expectation("largest size", None, max(spec.sizes)),
        ]


def stumble(kind: str) -> None:
    if kind == "input":
        raise InputError("The input is odd.")
    if kind == "convergence":
        raise ConvergenceError("It diverged.", "Take smaller steps.")
    if kind == "bug":
        raise ZeroDivisionError("a bug")
    if kind == "torch":
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "asleep":
        time.sleep(600.0)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError(kind)


class Places(Toy):
    """Where its tasks run."""

    name = "places"

    def run(self, spec: ToySpec, task: Task, data_dir: Path | None) -> list[Row]:
        time.sleep(spec.pause)
        threads = os.environ.get("OMP_NUM_THREADS"), os.environ.get("NUMBA_NUM_THREADS")
        return [{"kind": "mean", "process": os.getpid(), "threads": threads}]


class Timed(Places):
    """The same, but its tasks must not run beside each other."""

    name = "timed"
    timed = True


class Hungry(Toy):
    """The same, but it wants data."""

    name = "hungry"

    def data_needed(self, spec: ToySpec) -> tuple[str, ...]:
        return ("cifar10_vgg19",)


def without_seconds(rows: Sequence[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if not name.endswith("_seconds")} for row in rows]


def expected_rows(spec: ToySpec) -> list[Row]:
    """What a run must end with, without the machinery."""
    return [row for size in spec.sizes for seed in range(spec.seeds) for row in rows_of(spec, size, seed)]
