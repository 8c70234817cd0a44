"""N labelled samples and the kernel of a model on them: the error of regressions from n of them, with its variance.

`Labelled` has their targets: what a regression is trained on, and which class each sample has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel, random_features
from notsodeep.learning.trained_kernel import PoolCurves, Scores, TrainedKernel, is_correct
from notsodeep.models import Model, as_model
from notsodeep.models.cell_models import CellModel
from notsodeep.validation import Array, IntArray, as_labels, as_right_sides

# By how much targets of a regression may vary: variances of squared errors are fourth powers, within 1e±308.
_SMALLEST, _LARGEST = 1e-70, 1e70


@dataclass(frozen=True, eq=False)
class Labelled:
    """Targets of samples: ±1 for two classes, one-hot for more, numbers in a regression (then `codes` is None)."""

    targets: Array
    codes: IntArray | None

    @classmethod
    def of(cls, y: ArrayLike, n: int) -> Labelled:
        """Whole numbers and strings are classes, other numbers are targets of a regression."""
        values = np.asarray(y)
        if (values.dtype.kind == "f" and not np.array_equal(values, np.round(values))) or values.ndim == 2:
            right = as_right_sides(y, n, "y")
            return cls(_usable(right[:, None] if right.ndim == 1 else right), None)
        classes, codes = np.unique(as_labels(y, n), return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y has one class only, {classes[0]}; two or more are needed.")
        if len(classes) > n // 4:
            raise InputError(
                f"y has {len(classes)} different values for {n} samples. For a regression pass y as floats that are "
                "not all whole, or of shape (n, 1)."
            )
        codes = codes.astype(np.intp)
        targets = 2.0 * codes[:, None] - 1.0 if len(classes) == 2 else np.eye(len(classes))[codes]
        return cls(np.asarray(targets, dtype=np.float64), codes)


def graph_nodes(model: Any) -> int | None:
    """The number of nodes of a model of one graph; None for models of samples."""
    if hasattr(model, "propagation"):
        return len(model.propagation)
    return model.cell.positions if isinstance(model, CellModel) else None


def known_labels(model: Any, y: Any, n: int, name: str = "y") -> tuple[Any, IntArray]:
    """The labels that are given, and their places; only nodes of a graph may have none (None or NaN)."""
    labels = np.asarray(y)
    if labels.ndim == 0 or len(labels) != n:
        raise InputError(f"{name} has shape {labels.shape} for {n} samples. Give one label for each sample.")
    rows = labels.astype(object).reshape(n, -1)
    places = np.flatnonzero([all(one is not None and one == one for one in row) for row in rows])
    if not len(places) or (len(places) < n and graph_nodes(model) is None):
        raise InputError(
            f"{name} has no label for {n - len(places)} of {n} samples (None or NaN). Remove these samples."
        )
    # As an array of its own: None beside numbers makes an array of objects.
    return np.asarray(labels[places].tolist()), places


def _usable(targets: Array) -> Array:
    """Refuse targets of a regression that are constant or whose fourth powers overflow or underflow."""
    largest = float(np.abs(targets - targets[0]).max(initial=0.0))
    if largest == 0.0:
        raise InputError(f"All {len(targets)} targets y are equal; a regression needs targets that vary.")
    if not _SMALLEST <= largest <= _LARGEST:
        raise InputError(
            f"The targets y vary by {largest:.3g}; variances of squared errors need {_SMALLEST:g} to {_LARGEST:g}. "
            "Divide y by its standard deviation."
        )
    return targets


# Training sets for one n < N: the fewest and the most; in between (N/n)², which cost less than the whole pool does, and
# at least the number that takes this many multiplications.
_FEWEST, _MOST, _WORK = 4, 96, 2e9
# Powers of ten between which the best ridge is looked for, times the diagonal of the kernel.
_RIDGES = (-7.0, 3.0)
_LEAST = 20
# Number of single neurons drawn; of random networks composed of them over all training sets, and the fewest and the
# most for one.
_NEURONS = 1024
_NETWORKS, _FEW_NETWORKS, _MANY_NETWORKS = 96, 3, 64


def least_error_ridge(
    error: Callable[[float], float], scale: float, powers: tuple[float, float], accuracy: float
) -> float:
    """The ridge with the least error: the best of the powers of ten times `scale`, then refined to this accuracy."""
    grid = np.arange(powers[0], powers[1] + 1.0)
    start = grid[int(np.argmin([error(scale * 10.0**power) for power in grid]))]
    refined = minimize_scalar(
        lambda power: error(scale * 10.0**power),
        bounds=(start - 1.0, start + 1.0),
        method="bounded",
        options={"xatol": accuracy},
    )
    return float(scale * 10.0 ** float(refined.x))


@dataclass(frozen=True, eq=False)
class PoolEstimate:
    """Hits and errors at one n, for every sample of the pool and every training set.

    Attributes:
        hits: chance that a sample is classified correctly, shape (training sets, N); NaN in a regression.
        errors: squared error of each sample, the same shape.
        ridge: λ.
        trained: which samples each training set has, the same shape.
        networks_variance: variance of the accuracy over random networks with the same training set; 0 for a kernel.
    """

    hits: Array
    errors: Array
    ridge: float
    trained: NDArray[np.bool_]
    networks_variance: float

    @property
    def accuracy(self) -> float:
        """The mean over samples and training sets."""
        return float(self.hits.mean())

    @property
    def mse(self) -> float:
        """The mean over samples and training sets."""
        return float(self.errors.mean())

    @property
    def error(self) -> float:
        """The error rate, or the squared error in a regression."""
        return self.mse if np.isnan(self.accuracy) else 1.0 - self.accuracy

    @property
    def figures(self) -> Array:
        """Hits, or squared errors in a regression."""
        return self.errors if np.isnan(self.hits).any() else self.hits

    @property
    def samples_variance(self) -> float:
        """Variance of the figure because the pool is one of many that could have been drawn."""
        return float(self.figures.mean(axis=0).var() / self.figures.shape[1])

    @property
    def sets_variance(self) -> float:
        """Variance of the figure over training sets; 0 with one training set.

        It is seen at samples outside the set: one that is left out of it finds its own class rarer than a new one does.
        What changes from set to set at single samples is no part of it.
        """
        if self.trained.all():
            return 0.0
        outside = np.ma.array(self.figures, mask=self.trained)
        between = (outside - outside.mean(axis=0)).mean(axis=1).var(ddof=1)
        single = outside.var(axis=0, ddof=1).mean() / outside.count(axis=1).mean()
        return float(max(between - single, 0.0))


@dataclass(frozen=True, eq=False)
class _Fold:
    """One training set of the pool, diagonalised, and the other samples in its eigenvectors."""

    trained: TrainedKernel
    used: IntArray
    others: IntArray
    rotated: Array  # K(others, used) in the eigenvectors, centred if there is an intercept
    diagonal: Array  # K(x, x) of the others, likewise


class Pool:
    """N labelled samples and the kernel of a model on them: error at any n, ridge and width.

    Args:
        model: the model.
        X: samples, as the model takes them.
        y: labels, or numbers for a regression.
        kernel: name of the kernel, as in `coefficients`.
        intercept: fit a bias of the readout, which is not penalised.
        seed: random seed of the choice of training sets within the pool.
    """

    def __init__(
        self, model: Model, X: Any, y: ArrayLike, kernel: str, *, intercept: bool = True, seed: int = 0
    ) -> None:
        self.model = as_model(model)
        self.samples = self.model.check_samples(X, "X")
        self.size = len(self.samples)
        if self.size < _LEAST:
            raise InputError(
                f"{self.size} samples are too few for a learning curve: at least {_LEAST} are needed."
            )
        self.labelled = Labelled.of(y, self.size)
        self.kernel = exact_kernel(self.model, self.samples, kernel=kernel)
        self.intercept, self.seed = intercept, seed
        # An intercept makes the constant part of the kernel disappear.
        self.scale = float(self.kernel.diagonal().mean() - (self.kernel.mean() if intercept else 0.0))
        self._folds: dict[tuple[int, int], _Fold] = {}
        self._estimates: dict[tuple[int, float, int | None], PoolEstimate] = {}

    @cached_property
    def whole(self) -> TrainedKernel:
        """The kernel matrix of the whole pool, diagonalised."""
        return self.fold(self.size, 0).trained

    @cached_property
    def curves(self) -> PoolCurves:
        """Population quantities of the whole pool."""
        return PoolCurves.of(self.whole)

    def inside(self, n: int, ridge: float | None, width: int | None) -> PoolEstimate:
        """Scores of all samples by regressions from n of them; those used for training are left out in turn."""
        if ridge is None:
            ridge = self.best_ridge(lambda penalty: float(self._errors(n, penalty, width).mean()))
        if (n, ridge, width) not in self._estimates:
            hits, errors, variance = self._figures(n, ridge, width)
            trained = np.zeros(hits.shape, dtype=bool)
            for draw, row in enumerate(trained):
                row[self.fold(n, draw).used] = True
            self._estimates[n, ridge, width] = PoolEstimate(hits, errors, ridge, trained, variance)
        return self._estimates[n, ridge, width]

    def sets_variance(self, n: int, ridge: float, width: int | None, error: float) -> float:
        """Variance over training sets of n samples of the error, which is `error`, also for n > N.

        From a quarter of the pool on the variance of its root falls as 1/n.
        """
        least = min(n, max(self.size // 4, 2))
        known = self.inside(least, ridge, width)
        return known.sets_variance * (least / n) * (error / known.error) if known.error else 0.0

    def best_ridge(self, error: Callable[[float], float]) -> float:
        """The ridge with the least error."""
        return least_error_ridge(error, self.scale, _RIDGES, 0.02)

    def draws(self, n: int) -> int:
        """The number of training sets of n samples."""
        if n == self.size:
            return 1
        return int(min(_MOST, max(_FEWEST, (self.size / n) ** 2, _WORK / (self.size * n**2))))

    def fold(self, n: int, draw: int) -> _Fold:
        """One training set of n samples; the whole pool in its own order if n = N."""
        if (n, draw) not in self._folds:
            generator = np.random.default_rng([self.seed, n, draw])
            order = np.arange(n) if n == self.size else generator.permutation(self.size)
            used, others = order[:n], order[n:]
            trained = TrainedKernel.of(
                self.kernel[used][:, used], self.labelled.targets[used], intercept=self.intercept
            )
            seen = trained.new_samples(self.kernel[others][:, used], self.kernel.diagonal()[others])
            self._folds[n, draw] = _Fold(trained, used, others, *seen)
        return self._folds[n, draw]

    def _figures(self, n: int, ridge: float, width: int | None) -> tuple[Array, Array, float]:
        """Hits and squared errors of all samples for all training sets, and the variance over networks."""
        parts = [self._one(n, draw, ridge, width) for draw in range(self.draws(n))]
        hits, errors, networks = (np.array(part) for part in zip(*parts, strict=True))
        return hits, errors, float(networks.mean())

    def _scores(self, n: int, draw: int, ridge: float, width: int | None) -> list[tuple[IntArray, Scores]]:
        """Scores of training samples that are left out and of the others, from the diagonalised matrix."""
        fold = self.fold(n, draw)
        parts = [(fold.used, fold.trained.held_out(ridge, width))]
        if len(fold.others):
            parts.append((fold.others, fold.trained.at(fold.rotated, fold.diagonal, ridge, width)))
        return parts

    def _one(self, n: int, draw: int, ridge: float, width: int | None) -> tuple[Array, Array, float]:
        """Hits and squared errors of all samples for one training set, and the variance over networks."""
        hits, errors, means = (
            np.full(self.size, np.nan),
            np.empty(self.size),
            np.empty_like(self.labelled.targets),
        )
        codes = self.labelled.codes
        for rows, scores in self._scores(n, draw, ridge, width):
            errors[rows], means[rows] = scores.squared_errors(self.labelled.targets[rows]), scores.mean
        if codes is None:
            return hits, errors, 0.0
        if width is None:
            return is_correct(means, codes).astype(np.float64), errors, 0.0
        number = min(_MANY_NETWORKS, max(_FEW_NETWORKS, _NETWORKS // self.draws(n)))
        fold, weights = self.fold(n, draw), self._weights[:, :number]
        noise = fold.trained.network_noise(
            self._neurons[fold.used], self._neurons[fold.others], fold.rotated, weights, ridge, width
        )
        drawn = np.empty((number, self.size))
        for rows, deviations in zip((fold.used, fold.others), noise, strict=True):
            drawn[:, rows] = is_correct(means[rows] + deviations, codes[rows])
        # What single samples add to the mean over these few is no part of the variance over networks.
        single = float(drawn.var(axis=0, ddof=1).mean()) / self.size
        return drawn.mean(axis=0), errors, max(float(drawn.mean(axis=1).var(ddof=1)) - single, 0.0)

    @cached_property
    def _neurons(self) -> NDArray[np.float32]:
        """Values of single neurons of one wide random network at all samples, (N, neurons), with the CK as covariance.

        Where the package cannot draw random networks of the model, Gaussian neurons take their place.
        """
        rng = np.random.default_rng(self.seed)
        try:
            values = np.sqrt(_NEURONS) * random_features(self.model, self.samples, _NEURONS, rng)
        except InputError:
            root = self.whole.vectors * np.sqrt(self.whole.values)
            values = root @ rng.standard_normal((self.size, _NEURONS))
        return np.asarray(values, dtype=np.float32)  # noise needs no more

    @cached_property
    def _weights(self) -> Array:
        """How much each of the random networks has of each neuron, (neurons, networks)."""
        return np.random.default_rng(self.seed + 1).standard_normal((_NEURONS, _MANY_NETWORKS))

    def _errors(self, n: int, ridge: float, width: int | None) -> Array:
        """Squared errors of all samples for the first training sets, enough to choose a ridge by."""
        errors = [
            scores.squared_errors(self.labelled.targets[rows])
            for draw in range(min(self.draws(n), _FEWEST))
            for rows, scores in self._scores(n, draw, ridge, width)
        ]
        return np.concatenate(errors)
