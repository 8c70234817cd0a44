"""`compare_models`: which model is most accurate on labelled samples, and does the choice matter?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.data import GaussianMixture
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.learning.predictions import NINETY_PERCENT, as_labelled_samples, as_width
from notsodeep.learning.sample_pool import Pool, PoolEstimate
from notsodeep.models import Model
from notsodeep.validation import as_count

# A difference in accuracy below a point, or in error below 5 %, does not decide between models.
_ACCURACY, _ERROR = 0.01, 0.05


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
        worse: the models that are behind by more than a point (5 % of the error) and by more than their uncertainty.
        n: number of training samples.
        width: of the networks; None for the kernels.
    """

    names: tuple[str, ...]
    accuracy: tuple[float, ...]
    mse: tuple[float, ...]
    ridge: tuple[float, ...]
    behind: tuple[float, ...]
    uncertainty: tuple[float, ...]
    worse: tuple[str, ...]
    n: int
    width: int | None

    @property
    def matters(self) -> bool:
        """Whether some model is clearly worse than the first."""
        return bool(self.worse)

    @property
    def verdict(self) -> str:
        """Whether the choice matters, in a sentence."""
        if len(self.names) == 1:
            return f"Only one model was given, {self.names[0]}."
        if not self.matters:
            return f"The choice does not matter at n = {self.n}: take the cheapest."
        return f"The choice matters at n = {self.n}: {self.names[0]} is ahead of {', '.join(self.worse)}."

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
        names = ("verdict", "names", "accuracy", "mse", "n")
        return {name: getattr(self, name) for name in names}


def compare_models(
    models: Mapping[str, Model] | Sequence[Model],
    source: tuple[Any, ArrayLike],
    n: int | None = None,
    width: int | None = None,
    kernel: str = "ck",
    *,
    intercept: bool = True,
) -> Comparison:
    """Predict several models on the same samples and say whether the choice matters.

    A kernel times a constant is the same method with another ridge, so each model has the ridge that suits it best.

    Args:
        models: models by name, or a list of them: a DEQ, its twin, a plain layer, …
        source: (X, y), labelled samples.
        n: number of training samples, at most the number of labelled samples, which is the default.
        width: width of random networks whose readout is trained; the kernels if not given.
        kernel: name of the kernel, as in `coefficients`.
        intercept: fit a bias of the readout, which is not penalised.
    """
    if isinstance(source, GaussianMixture):
        raise InputError(
            "compare_models needs labelled samples (X, y). For a mixture compute the learning_curve of each model."
        )
    X, y = as_labelled_samples(source)
    width, kernel = as_width(width, kernel)
    if isinstance(models, Model):
        models = [models]
    named = dict(models) if isinstance(models, Mapping) else {str(model): model for model in models}
    if not named:
        raise InputError("No model was given: at least one is needed, two or more to compare.")
    estimates: dict[str, PoolEstimate] = {}
    for name, model in named.items():
        pool = Pool(model, X, y, kernel, intercept=intercept)
        size = pool.size if n is None else as_count(n, "n")
        if size > pool.size:
            raise InputError(
                f"n = {size} is more than the {pool.size} samples on which models are compared. Use at most "
                f"{pool.size}, or compute the learning_curve of each model."
            )
        estimates[name] = pool.inside(size, None, width)
    classes = not any(np.isnan(one.hits).any() for one in estimates.values())
    names = sorted(estimates, key=lambda name: -estimates[name].accuracy if classes else estimates[name].mse)
    first = estimates[names[0]]
    gaps = [
        first.hits - estimates[name].hits if classes else (estimates[name].errors - first.errors) / first.mse
        for name in names
    ]
    behind, uncertainty = [float(gap.mean()) for gap in gaps], [first.spread(gap) for gap in gaps]
    limit = _ACCURACY if classes else _ERROR
    return Comparison(
        names=tuple(names),
        accuracy=tuple(estimates[name].accuracy for name in names),
        mse=tuple(estimates[name].mse for name in names),
        ridge=tuple(estimates[name].ridge for name in names),
        behind=tuple(behind),
        uncertainty=tuple(uncertainty),
        worse=tuple(
            name
            for name, gap, error in zip(names, behind, uncertainty, strict=True)
            if gap > max(limit, NINETY_PERCENT * error)
        ),
        n=size,
        width=width,
    )
