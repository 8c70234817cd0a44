"""`learning_curve` and `best_ridge`: test accuracy and error before training, from a mixture or labelled samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.data import GaussianMixture
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.feature_learning import lazy_check
from notsodeep.kernel_names import as_kernel
from notsodeep.learning.extrapolation import Extrapolation
from notsodeep.learning.mixture_features import ClassFeatures, mixture_features
from notsodeep.learning.mixture_ridge import (
    MixtureScores,
    accuracy_band,
    class_accuracies,
    mean_square_error,
    mixture_scores,
)
from notsodeep.learning.sample_pool import Labelled, Pool, least_error_ridge
from notsodeep.models import Model, as_model
from notsodeep.progress import progress_bar
from notsodeep.validation import Array, IntArray, as_count, as_number, frozen

_FIELDS = ("n", "accuracy", "mse", "interval", "ridge", "extrapolated")


@dataclass(frozen=True, eq=False, repr=False)
class LearningCurve(Shown):
    """Predicted accuracy and error of ridge regression with a kernel, or of a network with a ridge readout.

    Attributes:
        n: numbers of training samples.
        accuracy: expected share of new samples classified correctly, for each n; NaN in a regression.
        mse: expected squared error on a new sample, averaged over outputs. Targets: ±1 for two classes, else one-hot.
        interval: of the accuracy (in a regression of the mse), shape (len(n), 2): nine of ten training sets lie inside.
        ridge: λ at each n, added to the diagonal of the kernel matrix.
        extrapolated: whether n exceeds the number of labelled samples; never for a mixture.
        width: of the network; None for the kernel (infinite width).
        kernel: name of the kernel, as in `coefficients`.
        model: the model, in words.
        source: what the prediction is based on, in words.
        caveat: whether the prediction holds for a network that learns features; empty unless `richness` was given.
    """

    n: IntArray
    accuracy: Array
    mse: Array
    interval: Array
    ridge: Array
    extrapolated: Array
    width: int | None
    kernel: str
    model: str
    source: str
    caveat: str = ""

    def plot(self, ax: Any = None, measured: Any = None) -> Any:
        """Draw the curve with its band, and measured points (n, accuracy[, error]) in rows; returns the Axes."""
        from notsodeep.figures import plot_learning_curve

        return plot_learning_curve(self, ax=ax, measured=measured)

    @property
    def is_classification(self) -> bool:
        """Whether there are classes, and so an accuracy."""
        return not bool(np.isnan(self.accuracy).all())

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain values that JSON can hold; accuracy is None in a regression."""
        arrays = {name: np.asarray(getattr(self, name)).tolist() for name in _FIELDS}
        # JSON has no NaN.
        arrays["accuracy"] = arrays["accuracy"] if self.is_classification else None
        words = {"width": self.width, "kernel": self.kernel, "model": self.model, "source": self.source}
        words |= {"caveat": self.caveat} if self.caveat else {}
        return {"kind": "LearningCurve", **arrays, **words}

    def __str__(self) -> str:
        what = "kernel" if self.width is None else f"width {self.width}"
        lines = [f"{self.model}, {self.kernel}, {what}; predicted from {self.source}."]
        for row in range(len(self.n)):
            low, high = self.interval[row]
            note = "  (extrapolated)" if self.extrapolated[row] else ""
            figure = (
                f"accuracy {self.accuracy[row]:.1%} ({low:.1%} to {high:.1%}), mse {self.mse[row]:.4g}"
                if self.is_classification
                else f"mse {self.mse[row]:.4g} ({low:.4g} to {high:.4g})"
            )
            lines.append(f"  n = {self.n[row]}: {figure}, ridge {self.ridge[row]:.3g}{note}")
        return "\n".join([*lines, self.caveat] if self.caveat else lines)

    def _facts(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"n": self.n.tolist()}
        if self.is_classification:
            shown["accuracy"] = np.round(self.accuracy, 4).tolist()
        shown["mse"] = np.round(self.mse, 4).tolist()
        shown |= {"width": self.width, "kernel": self.kernel, "model": self.model}
        return shown | {"extrapolated": int(np.sum(self.extrapolated)), "source": self.source}


# Powers of ten between which the best ridge of a mixture is searched, times the diagonal of the kernel.
_RIDGES = (-8.0, 4.0)
# Half the width of a 90 % band, in standard deviations that are estimates: Student's t with eight degrees of freedom.
_NINETY_PERCENT = 1.86
# Samples of a mixture that the change of its features is computed from.
_CHECKED = 200


@progress_bar("learning curve")
def learning_curve(
    model: Model,
    source: GaussianMixture | tuple[Any, ArrayLike],
    n: ArrayLike,
    ridge: float | str = 0.1,
    width: int | None = None,
    kernel: str = "ck",
    *,
    intercept: bool = True,
    richness: float | None = None,
) -> LearningCurve:
    """Predict the test accuracy of ridge regression with a model's kernel, for any number of training samples.

    Args:
        model: the model, as it will see the samples.
        source: a `GaussianMixture`: the prediction then is theory alone, docs/theory.md (11.10)–(11.14). Or (X, y),
            N labelled samples: for n ≤ N by leaving samples out, in closed form, (11.15), (11.29); beyond N by
            theory and trend, marked as extrapolated, (11.17), (11.28). Labels that are floats, not all whole, are
            targets of a regression.
        n: one number of training samples, or several.
        ridge: λ, added to the diagonal of the kernel matrix (K + λI); "best" takes, for each n, the one with the least
            squared error.
        width: predict a random network of this width whose readout is trained by ridge, instead of the kernel itself.
            Its features are those of the "ck".
        kernel: "ck" or any other kernel of the model.
        intercept: fit a bias of the readout, which is not penalised.
        richness: γ of a network that learns features: `caveat` then says whether the prediction, which assumes fixed
            features, can be trusted for it (see `feature_learning.lazy_check`); for a DEQ or an Explicit network.

    Returns:
        A `LearningCurve`: `.accuracy`, `.mse`, `.interval`, `.plot()`. Two classes are ±1, more are one-hot.
    """
    listed: Any = np.atleast_1d(np.asarray(n)).tolist()
    if not listed:
        raise InputError("n is empty: give one number of training samples, or several.")
    sizes = np.array([as_count(size, "n") for size in listed], dtype=np.intp)
    penalty = None if isinstance(ridge, str) and ridge == "best" else as_number(ridge, "ridge")
    width, kernel = as_width(width, kernel)
    shared: dict[str, Any] = {"width": width, "kernel": kernel, "model": str(model)}
    if isinstance(source, GaussianMixture):
        theory = MixtureTheory.of(model, source, kernel, intercept)
        curve = LearningCurve(**_mixture_points(theory, sizes, penalty, width), **shared)
        return _with_caveat(curve, model, *source.sample(_CHECKED, seed=0), richness)
    pool = Pool(model, *as_labelled_samples(source), kernel, intercept=intercept)
    curve = LearningCurve(**_sample_points(pool, sizes, penalty, width), **shared)
    return _with_caveat(curve, model, *source, richness)


def _with_caveat(curve: LearningCurve, model: Model, X: Any, y: Any, richness: float | None) -> LearningCurve:
    if richness is None:
        return curve
    targets = Labelled.of(y, len(X)).targets
    check = lazy_check(model, X, targets - targets.mean(axis=0), richness, float(curve.ridge[-1]))
    return replace(curve, caveat=check.note)


def best_ridge(
    model: Model,
    source: GaussianMixture | tuple[Any, ArrayLike],
    n: int | None = None,
    width: int | None = None,
    kernel: str = "ck",
    *,
    intercept: bool = True,
) -> float:
    """Find the ridge λ of least squared error, from leave-one-out errors in closed form.

    Args:
        model: the model.
        source: (X, y), labelled samples; or a `GaussianMixture`, then by theory alone.
        n: number of training samples; all of them if not given, and beyond them by theory. Required for a mixture.
        width: width of a random network whose readout is trained; the kernel if not given.
        kernel: name of the kernel, as in `coefficients`.
        intercept: fit a bias of the readout, which is not penalised.
    """
    width, kernel = as_width(width, kernel)
    if isinstance(source, GaussianMixture):
        if n is None:
            raise InputError("A mixture needs n, the number of training samples.")
        return MixtureTheory.of(model, source, kernel, intercept).best_ridge(as_count(n, "n"), width)
    pool = Pool(model, *as_labelled_samples(source), kernel, intercept=intercept)
    size = pool.size if n is None else as_count(n, "n")
    if size > pool.size:
        return Extrapolation.best(pool, size, width).ridge
    return pool.inside(size, None, width).ridge


# --- arguments --------------------------------------------------------------------------------------------------------


def as_labelled_samples(source: Any) -> tuple[Any, Any]:
    """Check that the source is a pair (X, y)."""
    if not isinstance(source, tuple) or len(source) != 2:
        raise InputError(
            f"source must be a GaussianMixture or labelled samples (X, y), not {type(source).__name__}."
        )
    return source


def as_width(width: int | None, kernel: str) -> tuple[int | None, str]:
    """Check the width of a network, None for the kernel, and return the full name of the kernel."""
    name = str(as_kernel(kernel))
    if width is None:
        return None, name
    if name != "ck":
        raise InputError(
            f"width={width} is for networks whose readout alone is trained, which have the kernel 'ck'; "
            f"kernel={kernel!r} is known at infinite width only: leave width out."
        )
    return as_count(width, "width"), name


# --- mixtures ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MixtureTheory:
    """A kernel on a mixture: the distribution of scores for any n, ridge and width."""

    features: ClassFeatures
    mixture: GaussianMixture
    intercept: bool

    @classmethod
    def of(cls, model: Model, mixture: GaussianMixture, kernel: str, intercept: bool) -> MixtureTheory:
        """The theory of a model on a mixture."""
        if mixture.classes < 2:
            raise InputError("A mixture of one class has nothing to classify: two or more are needed.")
        return cls(mixture_features(as_model(model), mixture, kernel), mixture, intercept)

    def scores(self, n: int, ridge: float, width: int | None) -> MixtureScores:
        """The distribution of the scores of new samples."""
        weights = self.mixture.weights
        return mixture_scores(self.features, weights, n, ridge, width, intercept=self.intercept)

    def best_ridge(self, n: int, width: int | None) -> float:
        """The ridge with the least expected squared error."""
        weights = self.mixture.weights
        scale = float(weights @ (self.features.squared_lengths + self.features.tails))

        # The error may have two valleys at finite width: the best of a coarse grid first.
        return least_error_ridge(
            lambda ridge: mean_square_error(weights, self.scores(n, ridge, width)), scale, _RIDGES, 1e-3
        )


def _mixture_points(
    theory: MixtureTheory, n: IntArray, ridge: float | None, width: int | None
) -> dict[str, Any]:
    """The fields of a curve from a mixture; with ridge None, each n has the ridge of least error."""
    ridges = np.array([theory.best_ridge(int(size), width) if ridge is None else ridge for size in n])
    scores = [theory.scores(int(size), penalty, width) for size, penalty in zip(n, ridges, strict=True)]
    mixture, weights = theory.mixture, theory.mixture.weights
    return {
        "n": frozen(n),
        "accuracy": frozen(np.array([float(weights @ class_accuracies(one)) for one in scores])),
        "mse": frozen(np.array([mean_square_error(weights, one) for one in scores])),
        "interval": frozen(np.array([accuracy_band(one, weights) for one in scores])),
        "ridge": frozen(ridges),
        "extrapolated": frozen(np.zeros(len(n), dtype=bool)),
        "source": f"the theory of a mixture of {mixture.classes} classes in {mixture.p} dimensions, no samples",
    }


# --- labelled samples -------------------------------------------------------------------------------------------------


def _sample_points(pool: Pool, n: IntArray, ridge: float | None, width: int | None) -> dict[str, Any]:
    """The fields of a curve from a pool; with ridge None, each n has the ridge of least squared error."""
    points = [_point(pool, int(size), ridge, width) for size in n]
    columns: list[Array] = [frozen(np.array(column)) for column in zip(*points, strict=True)]
    return {
        "n": frozen(n),
        **dict(zip(("accuracy", "mse", "interval", "ridge"), columns, strict=True)),
        "extrapolated": frozen(n > pool.size),
        "source": f"{pool.size} labelled samples",
    }


# Accuracy, squared error, the band of the first (in a regression of the second), and the ridge.
_Point = tuple[float, float, tuple[float, float], float]


def _point(pool: Pool, n: int, ridge: float | None, width: int | None) -> _Point:
    """By leaving samples out, or beyond the pool extrapolated; with the band of (11.23), symmetric in the root."""
    if n > pool.size:
        ahead = Extrapolation.best(pool, n, width) if ridge is None else Extrapolation(pool, n, ridge, width)
        known, mse, rate, doubt = ahead.last, ahead.mse, ahead.rate, ahead.log_variance
    else:
        known = pool.inside(n, ridge, width)
        mse, rate, doubt = known.mse, 1.0 - known.accuracy, 0.0
    classes = not np.isnan(rate)
    # One sample more or less is the least that a pool can be wrong by, half a sample the least rate that it can show.
    single = 1.0 / pool.size if classes else 0.0
    figure = max(rate if classes else mse, single / 2.0)
    seen, size = max(known.error, single / 2.0), min(n, pool.size)
    pools = known.samples_variance + single**2
    pools += pool.sets_variance(size, known.ridge, width, seen) * size / pool.size
    sets = pool.sets_variance(n, known.ridge, width, figure) + known.networks_variance
    # Squares of errors would underflow; without any error there is nothing to be unsure of.
    relative = (np.sqrt(pools) / seen, np.sqrt(sets) / figure, np.sqrt(doubt)) if seen and figure else (0.0,)
    half = _NINETY_PERCENT / 2.0 * float(np.linalg.norm(relative))
    low, high = figure * max(1.0 - half, 0.0) ** 2, figure * (1.0 + half) ** 2
    if classes:
        return 1.0 - rate, mse, (max(1.0 - high, 0.0), 1.0 - low), known.ridge
    return np.nan, mse, (low, high), known.ridge
