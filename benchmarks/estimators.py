"""Kernel ridge with kernels of DEQs, compared with the Gaussian kernel and with cheaper estimators.

  python benchmarks/estimators.py                       everything (under 15 minutes on two cores)
  python benchmarks/estimators.py --quick               everything small, to see that it runs
  python benchmarks/estimators.py --only digits mnist   some sections; the others keep their earlier results
  python benchmarks/estimators.py --data-dir FOLDER     with MNIST and Fashion-MNIST (or set NOTSODEEP_DATA)

Sections
  digits         scikit-learn's digits, 1437 rows to train and 360 to test, every estimator with its default parameters
  mnist          10 000 rows to train and 10 000 to test
  fashion_mnist  the same

On MNIST and Fashion-MNIST each estimator is chosen among 20 candidates, 5 kernels × 4 ridges, by cross-validation in
3 parts on 3000 of the training rows: the same budget for the Gaussian kernel (5 widths) and for the kernels of DEQs
(ReLU with σ_a² = 0.05, 0.2, 0.5, 0.8, tanh with 0.2). Then it is fitted once on all 10 000. All use the same rows
(centred, mean squared norm one) and the same targets ±1, the exact kernels also the same solver. Times are seconds of
the wall clock, one call each: fit and predict on all rows, and the search.

Results: estimators.json and estimators.csv in --out.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from harness import (
    RESULTS,
    Provenance,
    Row,
    markdown_provenance,
    markdown_table,
    write_json,
    write_rows,
)
from rich.console import Console
from rich.progress import Progress
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline

import notsodeep as nsd
from notsodeep.data import Preprocessing
from notsodeep.errors import InputError
from notsodeep.estimators import DEQKernelClassifier
from notsodeep.nets.modules import network_of
from notsodeep_lab.papers.data_files import load

CONSOLE = Console(highlight=False, width=140)
Array = np.ndarray[Any, np.dtype[np.float64]]
Step = Callable[[str], None]

RIDGES = [1e-4, 1e-3, 1e-2, 1e-1]
WIDTHS = [0.5, 1.0, 2.0, 4.0, 8.0]
RELU = [0.05, 0.2, 0.5, 0.8]
TANH = [0.2]


class GaussianClassifier(DEQKernelClassifier):
    """The same machine with exp(-gamma ||x - y||²) on the scaled rows."""

    def __init__(self, *, gamma: float = 1.0, alpha: float = 1e-2) -> None:
        super().__init__(alpha=alpha)
        self.gamma = gamma

    def _between(self, X: Array, Y: Array | None = None) -> Array:
        return np.asarray(rbf_kernel(X, Y, gamma=self.gamma))


@dataclass(frozen=True)
class Candidate:
    """An estimator, the grid it is chosen from, and by title what changes when it is fitted on all rows."""

    estimator: Any
    grid: list[dict[str, list[Any]]]
    final: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """Number of rows for training, testing and model selection, and number of random features."""

    train: int
    test: int
    choose: int
    features: tuple[int, ...]


FULL = Size(10_000, 10_000, 3000, (1000, 4000))
QUICK = Size(600, 500, 300, (200,))


def deq_grid(prefix: str = "", ridge: str = "alpha") -> list[dict[str, list[Any]]]:
    """5 kernels × 4 ridges."""
    return [
        {f"{prefix}activation": ["relu"], f"{prefix}sigma_a2": RELU, ridge: RIDGES},
        {f"{prefix}activation": ["tanh"], f"{prefix}sigma_a2": TANH, ridge: RIDGES},
    ]


class TwinFeatures(TransformerMixin, BaseEstimator):
    """Features of the explicit network that shares the kernel of a DEQ, with random weights."""

    def __init__(
        self, n_components: int = 1000, activation: str = "relu", sigma_a2: float = 0.2, scale: str = "auto"
    ):
        self.n_components, self.activation, self.sigma_a2 = n_components, activation, sigma_a2
        self.scale = scale

    def fit(self, X: Array, y: Any = None) -> TwinFeatures:
        self.scaling_ = Preprocessing.fit(X, self.scale)
        self.model_ = nsd.DEQ(self.activation, self.sigma_a2).centred(1.0)
        twin = nsd.design(self.model_, 1.0).network
        self.network_ = network_of(twin, X.shape[1:], self.n_components, 1, seed=0)
        return self

    def transform(self, X: Array) -> Array:
        with torch.no_grad():
            return np.asarray(
                self.network_.features(torch.as_tensor(self.scaling_.apply(X), dtype=torch.float32))
            )


def candidates(size: Size) -> list[Candidate]:
    exact = [
        Candidate(DEQKernelClassifier(kernel=kernel), deq_grid(), {f"exact {kernel.upper()}": {}})
        for kernel in ("ntk", "ck")
    ]
    gaussian = Candidate(
        GaussianClassifier(), [{"gamma": WIDTHS, "alpha": RIDGES}], {"exact Gaussian kernel": {}}
    )
    features = Candidate(
        make_pipeline(TwinFeatures(min(size.features)), RidgeClassifier()),
        deq_grid("twinfeatures__", "ridgeclassifier__alpha"),
        {f"{count} features of the CK": {"twinfeatures__n_components": count} for count in size.features},
    )
    return [*exact, gaussian, features]


# --- sections ---------------------------------------------------------------------------------------------


def digits(size: Size, data_dir: Path | None, step: Step) -> list[Row]:
    train, test = load("digits", split="train"), load("digits", split="test")
    made: dict[str, Any] = {
        "DEQKernelClassifier()": DEQKernelClassifier(),
        'DEQKernelClassifier(kernel="ck")': DEQKernelClassifier(kernel="ck"),
        "GaussianClassifier()": GaussianClassifier(),
        "1000 features of the twin and RidgeClassifier(alpha=0.01)": make_pipeline(
            TwinFeatures(), RidgeClassifier(alpha=0.01)
        ),
    }
    rows = []
    for title, model in made.items():
        rows.append({"estimator": title, **measured(model, train, test)})
        step(f"digits, {title}")
    return rows


def images(name: str) -> Callable[[Size, Path | None, Step], list[Row]]:
    def section(size: Size, data_dir: Path | None, step: Step) -> list[Row]:
        parts = []
        for split, n in (("train", size.train), ("test", size.test)):
            parts.append(load(name, split=split, n=n, seed=0, data_dir=data_dir))  # type: ignore[arg-type]
        train, test = parts
        rows = []
        for candidate in candidates(size):
            rows += chosen_and_measured(candidate, train, test, size.choose)
            step(f"{name}, {next(iter(candidate.final))}")
        return rows

    return section


def chosen_and_measured(candidate: Candidate, train: Any, test: Any, choose: int) -> list[Row]:
    model, found = chosen(candidate, train, choose)
    return [
        {"estimator": title, **measured(clone(model).set_params(**changes), train, test), **found}
        for title, changes in candidate.final.items()
    ]


def chosen(candidate: Candidate, train: Any, choose: int) -> tuple[Any, Row]:
    """Select the best parameters on `choose` of the training rows."""
    # `load` keeps the published order, in which neighbouring rows may be alike.
    part = np.random.default_rng(0).permutation(len(train.X))[:choose]
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(candidate.estimator, candidate.grid, cv=folds, refit=False, error_score="raise")
    start = perf_counter()
    search.fit(train.X[part], train.y[part])
    seconds = perf_counter() - start
    best = {key.split("__")[-1]: value for key, value in search.best_params_.items()}
    return clone(candidate.estimator).set_params(**search.best_params_), {
        "chosen": ", ".join(f"{key}={value}" for key, value in best.items()),
        "accuracy in the search": float(search.best_score_),
        "search, s": seconds,
    }


def measured(model: Any, train: Any, test: Any) -> Row:
    """Accuracy and seconds of one fit and one prediction."""
    start = perf_counter()
    model.fit(train.X, train.y)
    fitted = perf_counter()
    accuracy = float(np.mean(model.predict(test.X) == test.y))
    return {
        "rows": len(train.X),
        "test accuracy": accuracy,
        "fit, s": fitted - start,
        "predict, s": perf_counter() - fitted,
    }


SECTIONS: dict[str, Callable[[Size, Path | None, Step], list[Row]]] = {
    "digits": digits,
    "mnist": images("mnist"),
    "fashion_mnist": images("fashion_mnist"),
}


def steps_of(name: str, size: Size) -> int:
    return 5 if name == "digits" else len(candidates(size))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("NOTSODEEP_DATA"))
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    provenance = Provenance()
    stem = "estimators-quick" if options.quick else "estimators"
    path = options.out / f"{stem}.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else {}
    # What is compiled or imported on first use is the price of no estimator.
    DEQKernelClassifier().fit(np.eye(4), [0, 1, 0, 1])
    with Progress(console=CONSOLE) as progress:
        task = progress.add_task("estimators", total=sum(steps_of(name, size) for name in options.only))
        for name in options.only:
            try:
                results[name] = SECTIONS[name](
                    size, options.data_dir, lambda text: progress.update(task, advance=1, description=text)
                )
            except (InputError, OSError) as error:
                CONSOLE.print(f"{name} left out: {error}")
                continue
            record = provenance.record()
            write_json(path, {"provenance": record, "results": results})
            rows = [{"data": data, **row} for data, part in results.items() for row in part]
            write_rows(path.with_suffix(".csv"), rows, markdown_provenance(record))
            CONSOLE.print(markdown_table(rows), soft_wrap=True)


if __name__ == "__main__":
    main()
