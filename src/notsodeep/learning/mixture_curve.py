"""The learning curve of a model on a Gaussian mixture: from the theory alone, no sample is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from notsodeep.data import GaussianMixture
from notsodeep.errors import InputError
from notsodeep.learning.curve import LearningCurve
from notsodeep.learning.mixture_features import ClassFeatures, mixture_features
from notsodeep.learning.mixture_ridge import (
    MixtureScores,
    accuracy_band,
    class_accuracies,
    mean_square_error,
    mixture_scores,
)
from notsodeep.models import Model, as_model
from notsodeep.validation import Array, IntArray, frozen

# Powers of ten between which the best ridge is looked for, times the diagonal of the kernel.
_RIDGES = (-8.0, 4.0)


@dataclass(frozen=True, eq=False)
class MixtureTheory:
    """A kernel on a mixture, ready to be asked for any n, ridge and width."""

    features: ClassFeatures
    weights: Array
    intercept: bool

    @classmethod
    def of(cls, model: Model, mixture: GaussianMixture, kernel: str, intercept: bool) -> MixtureTheory:
        """The theory of a model on a mixture."""
        if mixture.classes < 2:
            raise InputError("A mixture of one class has nothing to classify: two or more are needed.")
        return cls(mixture_features(as_model(model), mixture, kernel), mixture.weights, intercept)

    def scores(self, n: int, ridge: float, width: int | None) -> MixtureScores:
        """The law of the scores of new samples."""
        return mixture_scores(self.features, self.weights, n, ridge, width, intercept=self.intercept)

    def best_ridge(self, n: int, width: int | None) -> float:
        """The ridge with the least expected squared error."""
        scale = float(self.weights @ (self.features.squared_lengths + self.features.tails))

        def error(power: float) -> float:
            return mean_square_error(self.weights, self.scores(n, scale * 10.0**power, width))

        # The error may have two valleys at finite width: the best of a coarse grid first.
        grid = np.arange(_RIDGES[0], _RIDGES[1] + 1.0)
        start = grid[int(np.argmin([error(power) for power in grid]))]
        found = minimize_scalar(
            error, bounds=(start - 1.0, start + 1.0), method="bounded", options={"xatol": 1e-3}
        )
        return float(scale * 10.0 ** float(found.x))


def mixture_curve(
    model: Model,
    mixture: GaussianMixture,
    n: IntArray,
    ridge: float | None,
    width: int | None,
    kernel: str,
    *,
    intercept: bool,
) -> LearningCurve:
    """The predicted curve; with ridge None, each n has the ridge of least error."""
    theory = MixtureTheory.of(model, mixture, kernel, intercept)
    ridges = np.array([theory.best_ridge(int(size), width) if ridge is None else ridge for size in n])
    laws = [theory.scores(int(size), penalty, width) for size, penalty in zip(n, ridges, strict=True)]
    weights = mixture.weights
    return LearningCurve(
        n=frozen(n),
        accuracy=frozen(np.array([float(weights @ class_accuracies(law)) for law in laws])),
        mse=frozen(np.array([mean_square_error(weights, law) for law in laws])),
        interval=frozen(np.array([accuracy_band(law, weights) for law in laws])),
        ridge=frozen(ridges),
        extrapolated=frozen(np.zeros(len(n), dtype=bool)),
        width=width,
        kernel=kernel,
        model=str(model),
        source=f"the theory of a mixture of {mixture.classes} classes in {mixture.p} dimensions, no samples",
        score_means=frozen(np.array([law.means for law in laws])),
        score_variances=frozen(np.array([np.diagonal(law.covariances, axis1=1, axis2=2) for law in laws])),
    )


__all__ = ["MixtureTheory", "mixture_curve"]
