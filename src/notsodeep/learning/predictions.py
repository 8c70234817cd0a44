"""`learning_curve`: test accuracy and error of a model before training, from a mixture or from labelled samples."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from notsodeep.data import GaussianMixture
from notsodeep.learning.arguments import as_labelled_samples, as_ridge, as_sizes, as_width
from notsodeep.learning.curve import LearningCurve
from notsodeep.learning.mixture_curve import mixture_curve
from notsodeep.learning.sample_curve import sample_curve
from notsodeep.learning.sample_pool import Pool
from notsodeep.models import Model


def learning_curve(
    model: Model,
    source: GaussianMixture | tuple[Any, ArrayLike],
    n: ArrayLike,
    ridge: float | str = 0.1,
    width: int | None = None,
    kernel: str = "ck",
    *,
    intercept: bool = True,
) -> LearningCurve:
    """Predict the test accuracy of ridge regression with a model's kernel, for any number of training samples.

    Args:
        model: the model, as it will see the samples.
        source: a `GaussianMixture`: the prediction then is theory alone, docs/theory.md (11.10)–(11.14). Or (X, y),
            N labelled samples: for n ≤ N from samples that are left out, in closed form, (11.15), (11.27); beyond by
            theory and trend, marked as extrapolated, (11.17), (11.28). Labels that are floats, not all whole, are
            targets of a regression.
        n: one number of training samples, or several.
        ridge: λ, added to the diagonal of the kernel matrix (K + λI); "best" takes, for each n, the one with the least
            squared error.
        width: predict a random network of this width whose readout is trained by ridge, instead of the kernel itself.
            Its features are those of the "ck".
        kernel: "ck" or any other kernel of the model.
        intercept: take the mean out of the targets first, as the estimators do.

    Returns:
        A `LearningCurve`: `.accuracy`, `.mse`, `.interval`, `.plot()`. Two classes are ±1, more are one-hot.
    """
    sizes, penalty = as_sizes(n), as_ridge(ridge)
    features, name = as_width(width, kernel)
    if isinstance(source, GaussianMixture):
        return mixture_curve(model, source, sizes, penalty, features, name, intercept=intercept)
    pool = Pool(model, *as_labelled_samples(source), name, intercept=intercept)
    return sample_curve(pool, sizes, penalty, features, kernel=name, model=model)


__all__ = ["learning_curve"]
