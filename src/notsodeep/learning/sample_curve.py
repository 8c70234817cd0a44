"""Learning curves from labelled samples: within their number in closed form, beyond it by theory, with a band."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.learning.curve import LearningCurve
from notsodeep.learning.pool import PoolCurves, Scores, TrainedKernel
from notsodeep.models import Model
from notsodeep.validation import Array, IntArray, as_labels, as_right_sides, frozen, label_codes

# Training sets for one n: a few that overlap little where n is small; the whole pool is one.
_DRAWS = 4
# Half of the width of a band of 90 %, in standard deviations.
_NINETY = 1.645
# Powers of ten between which the best ridge is looked for, times the diagonal of the kernel.
_RIDGES = (-7.0, 3.0)
_LEAST = 20
# A change of the squared error by less than this factor says nothing about how accuracy follows it.
_CHANGE = 1.05


@dataclass(frozen=True, eq=False)
class Labelled:
    """Targets of samples: ±1 for two classes, one-hot for more, numbers in a regression (then `codes` is None)."""

    targets: Array
    codes: IntArray | None
    classes: NDArray[Any] | None = None

    @classmethod
    def of(cls, y: ArrayLike, n: int, *, one_hot: bool = False) -> Labelled:
        """Whole numbers and words are classes, other numbers are targets of a regression; `one_hot` for two as well."""
        values = np.asarray(y)
        if (values.dtype.kind == "f" and not np.array_equal(values, np.round(values))) or values.ndim == 2:
            right = as_right_sides(y, n, "y")
            return cls(right[:, None] if right.ndim == 1 else right, None)
        classes, codes = np.unique(as_labels(y, n), return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y has one class only, {classes[0]}; two or more are needed.")
        if len(classes) > n // 4:
            raise InputError(
                f"y has {len(classes)} different values for {n} samples. For a regression give y as floats that are "
                "not all whole, or of shape (n, 1)."
            )
        codes = codes.astype(np.intp)
        one_column = len(classes) == 2 and not one_hot
        targets = 2.0 * codes[:, None] - 1.0 if one_column else np.eye(len(classes))[codes]
        return cls(np.asarray(targets, dtype=np.float64), codes, classes)

    def matching(self, y: ArrayLike, n: int) -> Labelled:
        """The labels of other samples, with the classes and the coding of these."""
        if self.codes is None or self.classes is None:
            right = as_right_sides(y, n, "y")
            return Labelled(right[:, None] if right.ndim == 1 else right, None)
        codes = label_codes(y, self.classes, n)
        table = np.zeros((len(self.classes), self.targets.shape[1]))
        table[self.codes] = self.targets
        return Labelled(table[codes], codes, self.classes)


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a pool shows at one n: each figure for every sample of the pool, and for every training set.

    Attributes:
        hits: chance that a sample is classified rightly, shape (training sets, N); NaN in a regression.
        errors: squared error of each sample, the same shape.
        ridge: λ.
    """

    hits: Array
    errors: Array
    ridge: float

    @property
    def accuracy(self) -> float:
        """The mean over samples and training sets."""
        return float(self.hits.mean())

    @property
    def mse(self) -> float:
        """The mean over samples and training sets."""
        return float(self.errors.mean())

    def spread(self, values: Array) -> float:
        """Standard deviation of a mean over the pool: of its samples, and of training sets where there are several."""
        samples = float(values.mean(axis=0).var()) / values.shape[1]
        sets = float(values.mean(axis=1).var(ddof=1)) if len(values) > 1 else 0.0
        return float(np.sqrt(samples + sets))


class Pool:
    """N labelled samples and the kernel of a model on them: error at any n, ridge and width.

    Args:
        model: the model.
        X: samples, as the model takes them.
        y: labels, or numbers for a regression.
        kernel: which kernel.
        intercept: take the mean out of the targets first.
        seed: of the choice of training sets within the pool.
    """

    def __init__(
        self, model: Model, X: Any, y: ArrayLike, kernel: str, *, intercept: bool = True, seed: int = 0
    ) -> None:
        samples = model.check_samples(X, "X")
        self.size = len(samples)
        if self.size < _LEAST:
            raise InputError(
                f"{self.size} samples are too few to learn a curve from: at least {_LEAST} are needed."
            )
        self.labelled = Labelled.of(y, self.size)
        self.kernel = exact_kernel(model, samples, kernel=kernel)
        self.scale = float(self.kernel.diagonal().mean())
        self.intercept, self.seed = intercept, seed
        self._trained: dict[tuple[int, int], tuple[TrainedKernel, IntArray, IntArray]] = {}

    def inside(self, n: int, ridge: float | None, width: int | None) -> Estimate:
        """Scores of all samples by regressions from n of them; those used for training are left out in turn."""
        if ridge is None:
            ridge = self._least(lambda penalty: self.inside(n, penalty, width).mse)
        draws = 1 if n == self.size else min(_DRAWS, max(2, self.size // n))
        figures = [self._one(n, draw, ridge, width) for draw in range(draws)]
        return Estimate(
            np.array([hits for hits, _ in figures]), np.array([errors for _, errors in figures]), ridge
        )

    def beyond(self, n: int, ridge: float | None, width: int | None) -> tuple[float, float]:
        """Squared error at n > N by theory, and the ridge; it agrees with the pool at N."""
        if ridge is None:
            ridge = self._least(lambda penalty: self.curves.error(n, penalty, width))
        at_pool = self.curves.error(self.size, ridge, width)
        return self.curves.error(n, ridge, width) * self.inside(self.size, ridge, width).mse / at_pool, ridge

    def rate_with_noise(self, log_kappa: float, mse: float) -> float:
        """The error rate of a regression with this effective ridge and squared error: docs/theory.md (11.18).

        The kernel on the whole pool, with the ridge that gives the same κ, has the same mean predictor. Its left-out
        scores get the noise that is missing, or, where they have too much, the rate is continued to less.
        """
        trained, used, _ = self._training(self.size, 0)
        scores = trained.left_out(trained.ridge_with(float(np.exp(log_kappa)))).mean
        residuals = scores - self.labelled.targets[used]
        shape = residuals.T @ residuals / np.mean(residuals**2) / self.size
        missing = mse - float(np.mean(residuals**2))
        codes = self.labelled.codes[used] if self.labelled.codes is not None else used
        plain = 1.0 - float(Scores(scores, None, None).hits(codes).mean())
        noisy = 1.0 - float(Scores(scores, np.full(self.size, abs(missing)), shape).hits(codes).mean())
        return noisy if missing >= 0.0 else plain * plain / max(noisy, plain, 0.5 / self.size)

    @cached_property
    def curves(self) -> PoolCurves:
        """Population quantities of the whole pool."""
        return PoolCurves.of(self._training(self.size, 0)[0])

    def _training(self, n: int, draw: int) -> tuple[TrainedKernel, IntArray, IntArray]:
        if (n, draw) not in self._trained:
            order = np.random.default_rng([self.seed, n, draw]).permutation(self.size)
            used, others = order[:n], order[n:]
            trained = TrainedKernel.of(
                self.kernel[np.ix_(used, used)], self.labelled.targets[used], intercept=self.intercept
            )
            self._trained[n, draw] = trained, used, others
        return self._trained[n, draw]

    def _one(self, n: int, draw: int, ridge: float, width: int | None) -> tuple[Array, Array]:
        """Hits and squared errors of all samples for one training set."""
        trained, used, others = self._training(n, draw)
        hits, errors = np.full(self.size, np.nan), np.empty(self.size)
        parts: list[tuple[IntArray, Scores]] = [(used, trained.left_out(ridge, width))]
        if len(others):
            cross = self.kernel[np.ix_(others, used)]
            parts.append((others, trained.at(cross, self.kernel.diagonal()[others], ridge, width)))
        for rows, scores in parts:
            errors[rows] = scores.squared_errors(self.labelled.targets[rows])
            if self.labelled.codes is not None:
                hits[rows] = scores.hits(self.labelled.codes[rows])
        return hits, errors

    def _least(self, error: Any) -> float:
        """The ridge with the least error: the best of a grid, then refined."""
        grid = np.arange(_RIDGES[0], _RIDGES[1] + 1.0)
        start = grid[int(np.argmin([error(self.scale * 10.0**power) for power in grid]))]
        found = minimize_scalar(
            lambda power: error(self.scale * 10.0**power),
            bounds=(start - 1.0, start + 1.0),
            method="bounded",
            options={"xatol": 0.02},
        )
        return float(self.scale * 10.0 ** float(found.x))


@dataclass(frozen=True)
class _Point:
    accuracy: float
    mse: float
    low: float
    high: float
    ridge: float


def sample_curve(
    pool: Pool, n: IntArray, ridge: float | None, width: int | None, *, kernel: str, model: Model
) -> LearningCurve:
    """The curve from a pool; with ridge None, each n has the ridge of least squared error."""
    points = [
        _within(pool, int(size), ridge, width)
        if size <= pool.size
        else _beyond(pool, int(size), ridge, width)
        for size in n
    ]
    return LearningCurve(
        n=frozen(n),
        accuracy=frozen(np.array([point.accuracy for point in points])),
        mse=frozen(np.array([point.mse for point in points])),
        interval=frozen(np.array([(point.low, point.high) for point in points])),
        ridge=frozen(np.array([point.ridge for point in points])),
        extrapolated=frozen(n > pool.size),
        width=width,
        kernel=kernel,
        model=str(model),
        source=f"{pool.size} labelled samples",
    )


def _within(pool: Pool, n: int, ridge: float | None, width: int | None) -> _Point:
    found = pool.inside(n, ridge, width)
    classes = pool.labelled.codes is not None
    centre = found.accuracy if classes else found.mse
    half = _NINETY * found.spread(found.hits if classes else found.errors)
    low, high = max(centre - half, 0.0), min(centre + half, 1.0) if classes else centre + half
    return _Point(found.accuracy, found.mse, low, high, found.ridge)


def _beyond(pool: Pool, n: int, ridge: float | None, width: int | None) -> _Point:
    """Squared error by theory; the error rate follows it, or for a network is that of scores with the same κ."""
    mse, chosen = pool.beyond(n, ridge, width)
    # The kernel's own curve: networks have a peak where n is near the width, and no trend there.
    sizes = [pool.size // 4, pool.size // 2, pool.size]
    inside = [pool.inside(size, ridge, None) for size in sizes]
    last = pool.inside(pool.size, chosen, width)
    logs = np.log([found.mse for found in inside])
    by_power = _slope(np.log(sizes), logs) * np.log(n / pool.size)
    if pool.labelled.codes is None:
        doubt = mse - last.mse * float(np.exp(by_power))
        half = _NINETY * float(np.hypot(last.spread(last.errors) * mse / last.mse, doubt))
        return _Point(np.nan, mse, max(mse - half, 0.0), mse + half, chosen)
    # An error rate of zero would stay zero: half an error is the least that a pool can show.
    least = 0.5 / pool.size
    rates = np.log([max(1.0 - found.accuracy, least) for found in inside])
    exponent = _slope(logs, rates) if abs(logs[-1] - logs[0]) > np.log(_CHANGE) else 1.0
    log_kappa, _ = pool.curves.point(n, chosen, width)
    edge = float(pool.curves.log_kappa[0])
    start = max(1.0 - last.accuracy, least)
    if width is None:
        rate = start * (mse / last.mse) ** exponent
    else:
        # The bias that the pool does not reach is taken off afterwards.
        unreached = pool.curves.at(max(log_kappa, edge))[1] - pool.curves.at(log_kappa)[1]
        rate = (
            pool.rate_with_noise(max(log_kappa, edge), mse + unreached)
            * (mse / (mse + unreached)) ** exponent
        )
    doubt = rate - start * float(np.exp(_slope(np.log(sizes), rates) * np.log(n / pool.size)))
    half = _NINETY * float(np.hypot(last.spread(last.hits), doubt))
    centre = min(max(1.0 - rate, 0.0), 1.0)
    return _Point(centre, mse, max(centre - half, 0.0), min(centre + half, 1.0), chosen)


def _slope(x: ArrayLike, y: ArrayLike) -> float:
    return float(np.polyfit(np.asarray(x), np.asarray(y), 1)[0])


__all__ = ["Estimate", "Labelled", "Pool", "sample_curve"]
