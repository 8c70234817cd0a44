"""Which ridge, which model? Answers from the left-out errors of labelled samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.data import GaussianMixture
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation
from notsodeep.learning.arguments import as_labelled_samples, as_width
from notsodeep.learning.extrapolation import Extrapolation
from notsodeep.learning.mixture_curve import MixtureTheory
from notsodeep.learning.sample_pool import Estimate, Pool
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import as_count, as_number, root_mean_square_norm

# A difference in accuracy below a point, or an error below a factor of 1.05, does not decide between models.
_MATTERS, _MATTERS_MSE = 0.01, 0.05
_NINETY = 1.645


def best_ridge(
    model: Model,
    source: GaussianMixture | tuple[Any, ArrayLike],
    n: int | None = None,
    width: int | None = None,
    kernel: str = "ck",
    *,
    intercept: bool = True,
) -> float:
    """The ridge λ of least squared error, from the errors of samples that are left out in closed form.

    Args:
        model: the model.
        source: (X, y), labelled samples; or a `GaussianMixture`, then by theory alone.
        n: number of training samples it is wanted for; all of them if not given, and beyond them by theory. A mixture
            has no number of samples: there it must be given.
        width: of a random network whose readout is trained; the kernel if not given.
        kernel: which kernel.
        intercept: take the mean out of the targets first.
    """
    features, name = as_width(width, kernel)
    if isinstance(source, GaussianMixture):
        if n is None:
            raise InputError("For a mixture n, the number of training samples, must be given.")
        return MixtureTheory.of(model, source, name, intercept).best_ridge(as_count(n, "n"), features)
    pool = Pool(model, *as_labelled_samples(source), name, intercept=intercept)
    size = pool.size if n is None else as_count(n, "n")
    if size > pool.size:
        return Extrapolation.best(pool, size, features).ridge
    return pool.inside(size, None, features).ridge


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Several models on the same samples, each with its own best ridge; the best first.

    Attributes:
        names: of the models, the most accurate first (in a regression: the smallest error first).
        accuracy: predicted, in this order; NaN in a regression.
        mse: predicted.
        ridge: the best of each.
        behind: how far each is behind the first: in accuracy, or (regression) in error relative to the first.
        uncertainty: standard error of that, from the same samples and training sets for all.
        matters: whether some model is behind by more than a point (5 % of the error) and by more than its uncertainty.
        n: number of training samples.
        width: of the networks; None for the kernels.
    """

    names: tuple[str, ...]
    accuracy: tuple[float, ...]
    mse: tuple[float, ...]
    ridge: tuple[float, ...]
    behind: tuple[float, ...]
    uncertainty: tuple[float, ...]
    matters: bool
    n: int
    width: int | None

    @property
    def verdict(self) -> str:
        """Whether the choice matters, in a sentence."""
        if len(self.names) == 1:
            return f"Only {self.names[0]} was given."
        if not self.matters:
            return f"The choice does not matter at n = {self.n}: take the cheapest."
        limit = _MATTERS_MSE if np.isnan(self.accuracy[0]) else _MATTERS
        worse = [
            name
            for name, gap, error in zip(self.names, self.behind, self.uncertainty, strict=True)
            if gap > max(limit, _NINETY * error)
        ]
        return f"The choice matters at n = {self.n}: {self.names[0]} is ahead of {', '.join(worse)}."

    def __str__(self) -> str:
        lines = [self.verdict]
        for row, name in enumerate(self.names):
            accuracy = "" if np.isnan(self.accuracy[row]) else f"accuracy {self.accuracy[row]:.1%}, "
            lines.append(
                f"  {name}: {accuracy}mse {self.mse[row]:.4g}, ridge {self.ridge[row]:.3g}, "
                f"behind by {self.behind[row]:.2%} ± {self.uncertainty[row]:.2%}"
            )
        return "\n".join(lines)

    def _facts(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "names": self.names,
            "accuracy": self.accuracy,
            "mse": self.mse,
            "n": self.n,
        }


def gaussian_kernel(length_scale: float = 1.0) -> Explicit:
    """One layer whose conjugate kernel is the Gaussian (RBF) kernel exp(-‖x - y‖²/(2 ℓ²)), to compare with.

    E[(sin u + cos u)(sin v + cos v)] = E[cos(u - v)] + E[sin(u + v)], and the second term vanishes.

    Args:
        length_scale: ℓ; 1 suits rows of norm 1.
    """
    scale = as_number(length_scale, "length_scale", positive=True)
    return Explicit([activation("formula", expression="sin(x) + cos(x)")], weights=[1.0 / scale**2])


def alternatives(deq: DEQ, X: Any) -> dict[str, Model]:
    """A DEQ beside what could replace it: its injected twin, one plain layer, and the Gaussian kernel.

    Args:
        deq: the model.
        X: samples, in rows; their norm is what the twin is designed for.
    """
    from notsodeep.designs import design

    rows = deq.check_samples(X, "X")
    twin = design(deq, root_mean_square_norm(rows), "ck", family="injected", layers=2).network
    plain = Explicit([deq.activation])
    return {"DEQ": deq, "twin": twin, "plain layer": plain, "Gaussian kernel": gaussian_kernel()}


def compare_models(
    models: Mapping[str, Model] | Sequence[Model] | Model,
    source: tuple[Any, ArrayLike],
    n: int | None = None,
    width: int | None = None,
    kernel: str = "ck",
    *,
    intercept: bool = True,
) -> Comparison:
    """Predict several models on the same samples and say whether the choice matters.

    A kernel times a constant is the same machine with another ridge, so each model has the ridge that suits it best.

    Args:
        models: models by name, or a list of them: a DEQ, its twin, a plain layer, … A DEQ alone is compared with its
            `alternatives`.
        source: (X, y), labelled samples.
        n: number of training samples, at most as many as there are; all of them if not given.
        width: of random networks whose readout is trained; the kernels if not given.
        kernel: which kernel.
        intercept: take the mean out of the targets first.
    """
    if isinstance(source, GaussianMixture):
        raise InputError(
            "compare_models needs labelled samples (X, y), on which the models meet. For a mixture ask for the "
            "learning_curve of each."
        )
    X, y = as_labelled_samples(source)
    features, name_of_kernel = as_width(width, kernel)
    if isinstance(models, DEQ):
        models = alternatives(models, X)
    elif isinstance(models, Model):
        models = [models]
    named = dict(models) if isinstance(models, Mapping) else {str(model): model for model in models}
    if not named:
        raise InputError("No model was given: at least one is needed, two or more to compare.")
    found: dict[str, Estimate] = {}
    for name, model in named.items():
        pool = Pool(model, X, y, name_of_kernel, intercept=intercept)
        size = pool.size if n is None else as_count(n, "n")
        if size > pool.size:
            raise InputError(
                f"n = {size} is more than the {pool.size} samples: models are compared on the samples themselves. "
                "Beyond them ask for the learning_curve of each."
            )
        found[name] = pool.inside(size, None, features)
    classes = not np.isnan(next(iter(found.values())).hits).any()
    order = sorted(found, key=lambda name: -found[name].accuracy if classes else found[name].mse)
    first = found[order[0]]
    gaps = {
        name: first.hits - one.hits if classes else (one.errors - first.errors) / first.mse
        for name, one in found.items()
    }
    behind = [float(gaps[name].mean()) for name in order]
    errors = [first.spread(gaps[name]) for name in order]
    limit = _MATTERS if classes else _MATTERS_MSE
    return Comparison(
        names=tuple(order),
        accuracy=tuple(found[name].accuracy for name in order),
        mse=tuple(found[name].mse for name in order),
        ridge=tuple(found[name].ridge for name in order),
        behind=tuple(behind),
        uncertainty=tuple(errors),
        matters=any(gap > max(limit, _NINETY * error) for gap, error in zip(behind, errors, strict=True)),
        n=size,
        width=features,
    )


__all__ = ["Comparison", "alternatives", "best_ridge", "compare_models", "gaussian_kernel"]
