"""Contestants of side_by_side.py that do not compute all of a DEQ's kernel: approximations, and classifiers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/: cases and estimators

import estimators
from cases import SIGMA_A2, mixture
from harness import Row
from turns import Parts, Task

import notsodeep as nsd
from notsodeep.data import Preprocessing, load
from notsodeep.equivalents.equivalent import distance_to_exact, operator_norm
from notsodeep.estimators import RowScaler

Array = np.ndarray

LANDMARKS = 500
GAMMA = 0.5  # of the Gaussian kernel where nothing is chosen: exp(-||x - y||²/2), rows of norm about one


# --- approximations of a kernel ------------------------------------------------------------------------
def approximation(order: Row) -> Parts:
    x, labels = approximated_rows(order)
    statistics = nsd.MixtureStatistics.estimate(x, labels)
    # The asymptotic equivalent is about a centred activation; all are given the same one.
    model = nsd.DEQ(order["activation"], sigma_a2=SIGMA_A2).centred(statistics.tau0)
    build, distance = approximations(model, x, labels)[order["way"]]

    def prepare() -> Task:
        if "RBF" not in order["way"]:
            nsd.conjugate_kernel(model, x[:64])  # compiles
        return build

    def finish(result: Any) -> Row:
        return {} if distance is None else {"error": distance(result)}

    return prepare, finish


def approximated_rows(order: Row) -> tuple[Array, Array]:
    n = order["n"]
    if order["data"] == "mixture":
        return mixture(n, int(0.8 * n)), np.repeat([0, 1], [n // 2, n - n // 2])
    found = load(order["data"], split="train", n=n, seed=0)
    return np.asarray(Preprocessing.fit(found.X).apply(found.X)), np.asarray(found.y)


def approximations(
    model: Any, x: Array, labels: Array
) -> dict[str, tuple[Task, Callable[[Any], float] | None]]:
    """By name: how it is built, and ||K̂ - K||₂/||K||₂ for the kernel it stands for (None: it is a kernel itself)."""
    nystroem = Nystroem(kernel="rbf", gamma=GAMMA, n_components=min(LANDMARKS, len(x)), random_state=0)
    features = estimators.TwinFeatures(LANDMARKS, sigma_a2=SIGMA_A2, scale="none")

    def to_exact(operator: Any) -> float:
        return float(distance_to_exact(model, x, operator))

    return {
        "exact CK": (lambda: nsd.conjugate_kernel(model, x), None),
        "RBF kernel": (lambda: rbf_kernel(x, gamma=GAMMA), None),
        "asymptotic equivalent": (
            lambda: nsd.equivalent(model, x, nsd.MixtureStatistics.estimate(x, labels)),
            to_exact,
        ),
        "refined equivalent": (lambda: nsd.equivalent(model, x, form="refined"), to_exact),
        "Nyström of the CK": (
            lambda: DEQNystroem(LANDMARKS, kernel="ck").fit_whole(model, x),
            lambda result: to_exact(gram(result)),
        ),
        "Nyström of RBF": (
            lambda: nystroem.fit_transform(x),
            lambda result: relative_distance(rbf_kernel(x, gamma=GAMMA), result),
        ),
        "random features of the CK": (
            lambda: features.fit_transform(x),
            lambda result: float(distance_to_exact(features.model_, x, gram(result))),
        ),
    }


def gram(features: Array) -> LinearOperator:
    """Z Zᵀ as an operator."""
    factor = aslinearoperator(features)
    return factor @ factor.T


def relative_distance(kernel: Array, features: Array) -> float:
    whole = aslinearoperator(kernel)
    return operator_norm(whole - gram(features)) / operator_norm(whole)


class DEQNystroem(TransformerMixin, BaseEstimator):
    """scikit-learn's `Nystroem` around a DEQ's kernel in blocks.

    Given a callable, `Nystroem` would call it once for every pair of rows; here one call makes the whole block.
    """

    def __init__(
        self,
        n_components: int = LANDMARKS,
        *,
        kernel: str = "ntk",
        activation: str = "relu",
        sigma_a2: float = SIGMA_A2,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.activation = activation
        self.sigma_a2 = sigma_a2

    def fit(self, X: Array, y: Any = None) -> Self:
        return self._fit(nsd.DEQ(self.activation, sigma_a2=self.sigma_a2), X)

    def fit_whole(self, model: Any, X: Array) -> Array:
        """The features of the rows it is fitted on, for a model that is there already."""
        return self._fit(model, X).transform(X)

    def _fit(self, model: Any, X: Array) -> Self:
        self.model_ = model
        chosen = np.random.default_rng(0).permutation(len(X))[: self.n_components]
        self.landmarks_ = X[chosen]
        values, vectors = np.linalg.eigh(self._between(self.landmarks_))
        # As scikit-learn does: directions below 1e-12 are kept at 1e-12.
        self.normalization_ = vectors / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T
        return self

    def transform(self, X: Array) -> Array:
        return np.asarray(self._between(X, self.landmarks_) @ self.normalization_)

    def _between(self, X: Array, Y: Array | None = None) -> Array:
        between = nsd.conjugate_kernel if self.kernel == "ck" else nsd.tangent_kernel
        return np.asarray(between(self.model_, X, Y))


# --- estimators ----------------------------------------------------------------------------------------
def estimator(order: Row) -> Parts:
    size = estimators.Size(order["train"], order["test"], order["choose"], (order["features"],))
    train, test = (load(order["data"], split=split, n=order[split], seed=0) for split in ("train", "test"))
    candidate = ways_to_classify(size)[order["way"]]
    chosen: Row = {}

    def prepare() -> Task:
        model, found = estimators.chosen(candidate, train, size.choose)
        chosen.update(found)
        changes = next(iter(candidate.final.values()))
        return lambda: estimators.measured(model.set_params(**changes), train, test)

    return prepare, lambda row: {**row, **chosen, "test rows": len(test.X)}


def ways_to_classify(size: estimators.Size) -> dict[str, estimators.Candidate]:
    """Ours and the Gaussian kernel as benchmarks/estimators.py has them, and Nyström's approximations of both."""
    ways = {title: each for each in estimators.candidates(size) for title in each.final}
    fewer = min(
        LANDMARKS, size.choose // 2
    )  # a fold has two thirds of the rows that parameters are chosen on
    gaussian, deq = (
        make_pipeline(RowScaler(), step, RidgeClassifier())
        for step in (Nystroem(kernel="rbf", n_components=fewer, random_state=0), DEQNystroem(fewer))
    )
    widths = [{"nystroem__gamma": estimators.WIDTHS, "ridgeclassifier__alpha": estimators.RIDGES}]
    kernels = estimators.deq_grid("deqnystroem__", "ridgeclassifier__alpha")
    return ways | {
        f"Nyström of the {name}": estimators.Candidate(
            model, grid, {name: {f"{step}__n_components": LANDMARKS}}
        )
        for name, model, grid, step in (
            ("Gaussian kernel", gaussian, widths, "nystroem"),
            ("NTK", deq, kernels, "deqnystroem"),
        )
    }
