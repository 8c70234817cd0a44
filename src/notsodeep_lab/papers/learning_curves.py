"""Learning curves predicted before training, compared with trained kernels and networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from notsodeep.data import GaussianMixture, Preprocessing
from notsodeep.kernels import exact_kernel, random_features
from notsodeep.linalg.kernel_ridge import solve_ridge
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array, IntArray
from notsodeep_lab.papers.data_files import load
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec

# Largest median error of a prediction in points of accuracy, inside the pool and beyond it.
_INSIDE, _BEYOND = 1.0, 2.5
# Largest median relative error of a predicted squared error.
_ERROR = 0.1
# Number of widths of the predicted curve and their range m/n; mixture of the double descent.
_WIDTHS, _RANGE = 40, (0.1, 4.0)
_MEAN, _RATIO, _TEST = 1.2, 0.8, 1000


@dataclass(frozen=True)
class LearningCurvesSpec(DEQSpec):
    """Learning curves from a pool of labelled samples, and test error by width on a mixture."""

    data: str  # data set
    pool: int  # number of labelled samples for the prediction
    sizes: tuple[int, ...]  # numbers of training samples
    test: int  # number of test samples
    widths: tuple[int, ...]  # widths of the networks, in addition to the kernel
    ridge: float  # ridge of the learning curves
    n: int  # number of training samples of the double descent
    shares: tuple[float, ...]  # its widths relative to n
    small_ridge: float  # its ridge


class LearningCurves(Experiment[LearningCurvesSpec]):
    """Test error by samples and by width: predicted and measured."""

    name = "learning-curves"
    paper = "ours"
    summary = "Test error by samples and by width, predicted before training and measured after it"
    minutes = MappingProxyType({"quick": 0.3, "full": 1.5})
    quick = LearningCurvesSpec(
        0.2,
        ("relu",),
        4,
        data="digits",
        pool=300,
        sizes=(50, 100, 200, 300, 600),
        test=400,
        widths=(128,),
        ridge=0.03,
        n=200,
        shares=(0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0),
        small_ridge=0.001,
    )
    full = replace(
        quick,
        activations=("relu", "tanh"),
        seeds=5,
        data="mnist",
        pool=1000,
        sizes=(100, 300, 1000, 2000, 4000),
        test=1000,
        widths=(64, 256),
    )

    def tasks(self, spec: LearningCurvesSpec) -> list[Task]:
        curves = grid(
            "curve {activation} width={width}",
            lambda width, **_: 1.0 + width / 500,
            activation=spec.activations,
            width=(0, *spec.widths),
        )
        descents = grid(
            "double descent {activation} {model}",
            lambda **_: 2.0,
            activation=spec.activations,
            model=("deq", "twin"),
        )
        return curves + descents

    def run(self, spec: LearningCurvesSpec, task: Task, data_dir: Path | None) -> list[Row]:
        if "width" in task.parameters:
            return list(_curve_rows(spec, task["activation"], task["width"] or None, data_dir))
        return list(_descent_rows(spec, task["activation"], task["model"]))

    def expectations(self, spec: LearningCurvesSpec, rows: Sequence[Row]) -> list[Expectation]:
        names = spec.activations
        widths = (None, *spec.widths)
        return [
            *claims_by(_close, [r for r in rows if r["kind"] == "learning"], activation=names, width=widths),
            *claims_by(
                _peaks,
                [r for r in rows if r["kind"] == "double-descent"],
                activation=names,
                model=("deq", "twin"),
            ),
        ]


def _curve_rows(
    spec: LearningCurvesSpec, name: str, width: int | None, data_dir: Path | None
) -> Iterator[Row]:
    """Predict the curve from the pool, and measure accuracies after training on other samples."""
    from notsodeep.learning import learning_curve

    total = spec.pool + max(spec.sizes) + spec.test
    loaded = load(spec.data, n=total, seed=0, data_dir=data_dir)
    # Some files are ordered by writer: shuffle, so that pool, training and test samples have one distribution.
    order = np.random.default_rng(0).permutation(len(loaded.X))
    X = np.asarray(Preprocessing.fit(loaded.X).apply(loaded.X)[order], dtype=np.float64)
    y = np.asarray(loaded.y[order], dtype=np.intp)
    model = DEQ(name, spec.sigma_a2)
    curve = learning_curve(model, (X[: spec.pool], y[: spec.pool]), spec.sizes, spec.ridge, width)
    others, labels = X[spec.pool :], y[spec.pool :]
    train = len(others) - spec.test
    for place, n in enumerate(spec.sizes):
        sets = [
            np.random.default_rng([seed, n]).permutation(train)[:n]
            for seed in range(spec.seeds if n < train else 1)
        ]
        reached = [
            _accuracy(model, others, labels, used, spec.test, spec.ridge, width, seed)
            for seed, used in enumerate(sets)
        ]
        yield {
            "kind": "learning",
            "data": spec.data,
            "activation": name,
            "width": width,
            "pool": spec.pool,
            "n": n,
            "ridge": spec.ridge,
            "predicted": float(curve.accuracy[place]),
            "low": float(curve.interval[place, 0]),
            "high": float(curve.interval[place, 1]),
            "extrapolated": bool(curve.extrapolated[place]),
            "measured": float(np.mean(reached)),
            "deviation": _deviation(reached),
            "trained": len(reached),
        }


def _accuracy(
    model: DEQ,
    X: Array,
    y: IntArray,
    used: IntArray,
    test: int,
    ridge: float,
    width: int | None,
    seed: int,
) -> float:
    """Accuracy on the last `test` rows of ridge regression on the rows `used`."""
    if width is None:
        own, cross = exact_kernel(model, X[used]), exact_kernel(model, X[-test:], X[used])
    else:
        rows = np.vstack([X[used], X[-test:]])
        features = random_features(model, rows, width, np.random.default_rng([seed, width]))
        own, cross = (part @ features[: len(used)].T for part in np.split(features, [len(used)]))
    targets = np.eye(int(y.max()) + 1)[y[used]]
    scores = _scores(own, cross, targets, ridge)
    return float(np.mean(scores.argmax(axis=1) == y[-test:]))


def _descent_rows(spec: LearningCurvesSpec, name: str, kind: str) -> Iterator[Row]:
    """Squared error by width on a mixture of two classes: predicted without data, and of trained networks."""
    from notsodeep.designs import design
    from notsodeep.learning import learning_curve

    p = round(_RATIO * spec.n)
    mixture = GaussianMixture(_MEAN * np.eye(2, p), [1.0, 1.0 + 6.0 / np.sqrt(p)])
    model: DEQ | Explicit = DEQ(name, spec.sigma_a2)
    if kind == "twin":
        tau0 = float(np.sqrt(mixture.traces.mean() / p))
        model = design(model, tau0, "ck", family="injected", layers=2).network
    record = {
        "kind": "double-descent",
        "data": "mixture",
        "activation": name,
        "model": kind,
        "n": spec.n,
        "ridge": spec.small_ridge,
    }
    drawn = np.unique(np.round(spec.n * np.geomspace(*_RANGE, _WIDTHS)).astype(int))
    trained = [round(share * spec.n) for share in spec.shares]
    for width in sorted({*drawn.tolist(), *trained}):
        curve = learning_curve(model, mixture, spec.n, spec.small_ridge, width)
        row = {
            **record,
            "width": width,
            "predicted": float(curve.mse[0]),
            "measured": None,
            "deviation": None,
        }
        if width in trained:
            errors = [_mixture_error(model, mixture, spec, width, seed) for seed in range(spec.seeds)]
            row |= {"measured": float(np.mean(errors)), "deviation": _deviation(errors)}
        yield row


def _mixture_error(
    model: DEQ | Explicit, mixture: GaussianMixture, spec: LearningCurvesSpec, width: int, seed: int
) -> float:
    """Mean squared error of one network after one training set, with targets ±1."""
    (X, y), (Z, t) = mixture.sample(spec.n, seed=seed), mixture.sample(_TEST, seed=10_000 + seed)
    rng = np.random.default_rng([seed, width])
    features = random_features(model, np.vstack([X, Z]), width, rng)
    own, cross = (part @ features[: spec.n].T for part in np.split(features, [spec.n]))
    targets = np.array([[-1.0], [1.0]])
    scores = _scores(own, cross, targets[y], spec.small_ridge)
    return float(np.mean((scores - targets[t]) ** 2))


def _scores(own: Array, cross: Array, targets: Array, ridge: float) -> Array:
    """Ridge regression with a bias: K(new, training) dual + intercept."""
    fit = solve_ridge(own, targets, ridge, np.zeros(0, dtype=np.intp))
    return np.asarray(cross @ fit.dual + fit.intercept)


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _close(rows: list[Row], activation: str, width: int | None) -> Iterator[Expectation]:
    what = f"{activation}, {'kernel' if width is None else f'width {width}'}, {rows[0]['data']}"
    for where, limit, beyond in (("inside the pool", _INSIDE, False), ("beyond it", _BEYOND, True)):
        some = [row for row in rows if row["extrapolated"] is beyond]
        if some:
            away = [100.0 * abs(row["predicted"] - row["measured"]) for row in some]
            inside = sum(row["low"] <= row["measured"] <= row["high"] for row in some)
            yield Expectation(
                f"median error in points of accuracy {where}, {what}",
                None,
                float(np.median(away)),
                bool(np.median(away) <= limit),
                f"yes if at most {limit:g}; largest {max(away):.2g}; {inside} of {len(some)} inside the band",
            )


def _peaks(rows: list[Row], activation: str, model: str) -> Iterator[Expectation]:
    trained = [row for row in rows if row["measured"] is not None]
    away = [abs(row["predicted"] / row["measured"] - 1.0) for row in trained]
    predicted = max(trained, key=lambda row: float(row["predicted"]))["width"]
    measured = max(trained, key=lambda row: float(row["measured"]))["width"]
    yield Expectation(
        f"median relative error of the predicted squared error by width, {activation}, {model}",
        None,
        float(np.median(away)),
        bool(np.median(away) <= _ERROR and predicted == measured),
        f"yes if at most {_ERROR:g} and both peak at the same width; peak at {measured} (n = {rows[0]['n']}), "
        f"predicted {predicted}; largest error {max(away):.2g}",
    )
