"""`learning_curve`: test accuracy and error of a model before training, from a mixture or from labelled samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.data import GaussianMixture
from notsodeep.errors import InputError
from notsodeep.kernel_names import as_kernel
from notsodeep.learning.curve import LearningCurve
from notsodeep.learning.mixture_curve import mixture_curve
from notsodeep.learning.sample_curve import sample_curve
from notsodeep.learning.sample_pool import Pool
from notsodeep.models import Model
from notsodeep.validation import IntArray, as_count, as_number


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
            N labelled samples: for n ≤ N from samples that are left out, in closed form; beyond by theory, marked as
            extrapolated, (11.15)–(11.18). Labels that are floats, not all whole, are targets of a regression.
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
    name = str(as_kernel(kernel))
    features = None if width is None else as_count(width, "width")
    if features is not None and name != "ck":
        raise InputError(
            f"width={width} belongs to a network whose readout alone is trained, and that has the kernel 'ck'; "
            f"kernel={kernel!r} is known at infinite width: leave width out."
        )
    if isinstance(source, GaussianMixture):
        return mixture_curve(model, source, sizes, penalty, features, name, intercept=intercept)
    if isinstance(source, tuple) and len(source) == 2:
        pool = Pool(model, *source, name, intercept=intercept)
        return sample_curve(pool, sizes, penalty, features, kernel=name, model=model)
    raise InputError(f"source must be a GaussianMixture or (X, y), not {type(source).__name__}.")


def as_sizes(n: ArrayLike) -> IntArray:
    """One or several numbers of samples, as a vector."""
    listed: Any = np.atleast_1d(np.asarray(n)).tolist()
    if not listed:
        raise InputError("n is empty: give one number of training samples, or several.")
    return np.array([as_count(size, "n") for size in listed], dtype=np.intp)


def as_ridge(ridge: float | str) -> float | None:
    """A ridge that is not negative, or None for "best"."""
    return None if isinstance(ridge, str) and ridge == "best" else as_number(ridge, "ridge")


__all__ = ["as_ridge", "as_sizes", "learning_curve"]
