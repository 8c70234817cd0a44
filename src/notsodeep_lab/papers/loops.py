"""Looped networks: readouts trained after K steps, run with k, predicted and measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from notsodeep.data import Preprocessing
from notsodeep.errors import InputError
from notsodeep.learning import LoopCurve, loop_curve
from notsodeep.models import DEQ, Model
from notsodeep.validation import Array, IntArray
from notsodeep_lab.papers.data_files import load
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.settling_table import INJECTION, gain_of_rate

# Largest relative error of a predicted squared error at which a prediction is called close.
CLOSE = 0.05
Features = NDArray[np.float32]


@dataclass(frozen=True)
class LoopsSpec(Spec):
    """Networks of several widths on several data sets, at several rates."""

    activation: str  # activation of the step
    rates: tuple[float, ...]  # predicted contraction rates at the equilibrium
    data: tuple[str, ...]  # data sets
    n: int  # number of training samples, and of test samples
    ridge: float  # ridge of the readout
    train_steps: tuple[int, ...]  # numbers of steps K
    steps: tuple[int, ...]  # numbers of steps k at run time
    widths: tuple[int, ...]  # widths of the networks
    seeds: int  # networks for each width; wider ones are fewer, see `networks`


def networks(spec: LoopsSpec, width: int) -> int:
    """Number of networks of a width: as many as cost about the same, at least one."""
    return max(1, min(spec.seeds, spec.seeds * min(spec.widths) * 4 // width))


class Loops(Experiment[LoopsSpec]):
    """Test error of looped networks by number of steps: predicted and measured."""

    name = "loops"
    paper = "ours"
    summary = (
        "Networks whose readout is trained after K steps and which run with k: error predicted and measured"
    )
    minutes = MappingProxyType({"quick": 0.5, "full": 45.0})
    quick = LoopsSpec(
        activation="tanh",
        rates=(0.5, 0.9, 1.2),
        data=("digits",),
        n=200,
        ridge=0.05,
        train_steps=(2, 4, 8),
        steps=(1, 2, 3, 4, 6, 8, 12, 16, 32),
        widths=(512, 1024),
        seeds=2,
    )
    full = replace(
        quick,
        data=("mnist", "fashion_mnist"),
        steps=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        widths=(512, 1024, 2048, 4096, 8192),
        seeds=4,
    )

    def models(self, spec: LoopsSpec) -> list[Model]:
        return [model_of(spec, rate) for rate in spec.rates]

    def tasks(self, spec: LoopsSpec) -> list[Task]:
        tasks = []
        for width in spec.widths:
            tasks += grid(
                "{data} rate={rate} width={width} seed={seed}",
                lambda width, **_: (width / 512) ** 2,
                data=spec.data,
                rate=spec.rates,
                width=(width,),
                seed=range(networks(spec, width)),
            )
        return tasks

    def run(self, spec: LoopsSpec, task: Task, data_dir: Path | None) -> list[Row]:
        return list(_rows(spec, task, data_dir))

    def expectations(self, spec: LoopsSpec, rows: Sequence[Row]) -> list[Expectation]:
        return claims_by(_close, rows, rate=spec.rates, width=spec.widths)


def model_of(spec: LoopsSpec, rate: float) -> DEQ:
    """The DEQ whose predicted rate is `rate` for samples of norm 1."""
    gain = gain_of_rate(spec.activation, rate)
    if gain is None:
        raise InputError(f"No {spec.activation} DEQ has the rate {rate}. Use a smaller rate, or tanh.")
    return DEQ(spec.activation, gain, INJECTION)


def shuffled(data: str, count: int, data_dir: Path | None) -> tuple[Array, IntArray]:
    """Rows of mean squared norm 1 in random order, and their labels."""
    loaded = load(data, n=count, seed=0, data_dir=data_dir)
    order = np.random.default_rng(0).permutation(len(loaded.X))
    X = np.asarray(Preprocessing.fit(loaded.X).apply(loaded.X)[order], dtype=np.float64)
    return X, np.asarray(loaded.y[order], dtype=np.intp)


def samples_of(spec: LoopsSpec, data: str, data_dir: Path | None) -> tuple[Array, IntArray]:
    """Rows, the first half for training; labels are 0 for even and 1 for odd classes."""
    X, y = shuffled(data, 2 * spec.n, data_dir)
    return X, y % 2


def loop_features(model: DEQ, X: Array, width: int, steps: Collection[int], seed: int) -> dict[int, Features]:
    """Features of one random network after each number of steps, (samples, width)."""
    rng = np.random.default_rng([seed, width])
    A = rng.standard_normal((width, width), dtype=np.float32) * np.float32(np.sqrt(model.sigma_a2 / width))
    B = rng.standard_normal((X.shape[1], width), dtype=np.float32) * np.float32(np.sqrt(model.sigma_b2))
    forcing = X.astype(np.float32) @ B
    features: dict[int, Features] = {}
    state = np.zeros_like(forcing)
    for step in range(1, max(steps) + 1):
        state = np.asarray(model.activation(state @ A + forcing if step > 1 else forcing), dtype=np.float32)
        if step in steps:
            features[step] = np.asarray(state / np.float32(np.sqrt(width)), dtype=np.float32)
    return features


@lru_cache(maxsize=256)
def predicted(
    spec: LoopsSpec, data: str, rate: float, trained: int, width: int | None, data_dir: Path | None
) -> LoopCurve:
    """The curve that `loop_curve` predicts; networks of several seeds share it."""
    X, y = samples_of(spec, data, data_dir)
    parts = [(X[part], y[part]) for part in (slice(0, spec.n), slice(spec.n, 2 * spec.n))]
    return loop_curve(
        model_of(spec, rate), parts[0], test=parts[1], train_steps=trained, steps=spec.steps,
        ridge=spec.ridge, intercept=False, width=width,
    )  # fmt: skip


def _rows(spec: LoopsSpec, task: Task, data_dir: Path | None) -> Iterator[Row]:
    model, width = model_of(spec, task["rate"]), task["width"]
    X, y = samples_of(spec, task["data"], data_dir)
    train, test = slice(0, spec.n), slice(spec.n, 2 * spec.n)
    features = loop_features(model, X, width, {*spec.steps, *spec.train_steps}, task["seed"])
    goals = 2.0 * y - 1.0
    for trained in spec.train_steps:
        part = features[trained][train].astype(np.float64)
        weights = np.linalg.solve(part @ part.T + spec.ridge * np.eye(spec.n), goals[train])
        readout = part.T @ weights
        limit = predicted(spec, task["data"], task["rate"], trained, None, data_dir)
        finite = predicted(spec, task["data"], task["rate"], trained, width, data_dir)
        for place, steps in enumerate(spec.steps):
            outputs = features[steps][test] @ readout
            yield {
                "kind": "loop",
                **task.parameters,
                "train_steps": trained,
                "steps": steps,
                "measured": float(np.mean((outputs - goals[test]) ** 2)),
                "predicted": float(limit.mse[place]),
                "predicted_at_width": float(finite.mse[place]),
            }


def _close(rows: list[Row], rate: float, width: int) -> Iterator[Expectation]:
    points: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        points.setdefault((row["data"], row["train_steps"], row["steps"]), []).append(row)
    means = [float(np.mean([row["measured"] for row in group])) for group in points.values()]
    for name, words in (("predicted", "limit"), ("predicted_at_width", "finite width")):
        away = [abs(group[0][name] / mean - 1.0) for group, mean in zip(points.values(), means, strict=True)]
        yield Expectation(
            f"largest relative error of the predicted squared error, {words}, rate {rate:g}, width {width}",
            None,
            max(away),
            bool(max(away) <= CLOSE),
            f"yes if at most {CLOSE:g}; median {np.median(away):.2g}; {len(away)} points",
        )
