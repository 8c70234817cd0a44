"""Measure whether data are high-dimensional enough for the asymptotic theory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.data.statistics import MixtureStatistics
from notsodeep.display import Shown
from notsodeep.equivalents.equivalent import equivalent
from notsodeep.equivalents.error import distance_to_exact
from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.equivalents.separable import floored
from notsodeep.errors import ConvergenceError, InputError, NotHighDimensionalError
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array, as_rows, squared_norms

# Cosines are measured on at most so many samples.
_COSINES = 2000


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """Whether the asymptotic theory holds on given data, with the measurements; `str()` reads as advice.

    Attributes:
        verdict: whether the asymptotic equivalent is within the tolerance.
        recommended: "asymptotic", "refined" or "exact": the cheapest that is within the tolerance.
        n: number of samples.
        p: number of features.
        tau0: norm of a typical sample, by the statistics of the classes.
        norm_spread: standard deviation of the squared norms over their mean; 0 in infinite dimension.
        typical_correlation: root mean square of the cosines between different samples (at most 2000 of them).
        largest_correlation: the largest magnitude of one.
        predicted_error: relative distance between asymptotic and refined equivalent on all samples: what the
            asymptotic form is expected to miss, without any exact kernel. Infinite, as is `refined_error`, where
            the samples are too correlated for the refined form to exist.
        checked_error: relative error of the asymptotic form against the exact kernel of a subsample.
        refined_error: the same for the refined form.
        subsample: number of samples in that check.
        tolerance: the acceptable relative error.
        model: the model it was checked for.
    """

    verdict: bool
    recommended: str
    n: int
    p: int
    tau0: float
    norm_spread: float
    typical_correlation: float
    largest_correlation: float
    predicted_error: float
    checked_error: float
    refined_error: float
    subsample: int
    tolerance: float
    model: str

    def __bool__(self) -> bool:
        return self.verdict

    def __str__(self) -> str:
        expands = np.isfinite(self.refined_error)
        refined = f"refined {self.refined_error:.2%}" if expands else "refined impossible"
        expected = (
            f"the asymptotic equivalent is expected to be off by {self.predicted_error:.1%} "
            f"({self.tolerance:.0%} is acceptable)"
            if np.isfinite(self.predicted_error)
            else "there is no expansion in inner products: the samples are too correlated, or their norms too different"
        )
        lines = [
            f"{'Yes' if self.verdict else 'No'}: for {self.model} on {self.n} samples of {self.p} features "
            f"{expected}.",
            f"Squared norms vary by {self.norm_spread:.1%}; cosines are typically "
            f"{self.typical_correlation:.2g} and at most {self.largest_correlation:.2g}.",
            f"Against the exact kernel of {self.subsample} samples: asymptotic {self.checked_error:.1%}, {refined}.",
            _ADVICE[self.recommended],
        ]
        if not 0.2 < self.tau0 < 5.0:
            lines.append(f"The samples have norms around {self.tau0:.3g}: scale them to about 1.")
        return "\n".join(lines)


_ADVICE = {
    "asymptotic": "Use form='asymptotic': its scalars and its predictions without data apply.",
    "refined": "Use form='refined': the same cost, no labels needed, and each sample keeps its own variance.",
    "exact": "Use the exact kernels: the samples are too correlated. Centring the data helps, as do "
    "square='exact', order=3 and around='mean' in the refined form.",
}


def diagnose(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    model: DEQ | Explicit | None = None,
    tolerance: float = 0.1,
    subsample: int = 500,
    seed: int = 0,
) -> Diagnosis:
    """Measure whether the asymptotic equivalent can be trusted on these data.

    Args:
        X: samples in rows (n, p), as the model will see them: centred, with norms of order 1.
        y: labels; all samples are one class without them.
        model: the model to check for; DEQ("tanh", 0.2) if not given. It is centred here.
        tolerance: relative error in operator norm that is acceptable.
        subsample: number of samples in the check against the exact kernel.
        seed: seed of the choice of the subsample.
    """
    rows = as_rows(X)
    if len(rows) < 2:
        raise InputError("One sample has no off-diagonal entries: at least two are needed.")
    if not tolerance > 0 or subsample < 2:
        raise InputError(f"tolerance = {tolerance} must be positive and subsample = {subsample} at least 2.")
    stats = MixtureStatistics.estimate(rows, y)
    chosen = (DEQ("tanh", 0.2) if model is None else model).centred(stats.tau0)
    squares = squared_norms(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    typical, largest = _cosines(rows[order[:_COSINES]])
    whole = _refined(chosen, rows, stats)
    predicted = np.inf
    if whole is not None:
        predicted = operator_norm(whole - equivalent(chosen, rows, stats)) / operator_norm(whole)
    part = np.sort(order[:subsample])
    # The statistics of the classes stay those of all samples.
    restricted = replace(stats, labels=stats.labels[part], psi=stats.psi[part])
    checked = distance_to_exact(chosen, rows[part], equivalent(chosen, rows[part], restricted)).relative
    finer = _refined(chosen, rows[part], restricted)
    refined = np.inf if finer is None else distance_to_exact(chosen, rows[part], finer).relative
    worst = max(predicted, checked)
    return Diagnosis(
        verdict=worst <= tolerance,
        recommended="asymptotic" if worst <= tolerance else "refined" if refined <= tolerance else "exact",
        n=len(rows),
        p=rows.shape[1],
        tau0=stats.tau0,
        norm_spread=float(squares.std() / squares.mean()),
        typical_correlation=typical,
        largest_correlation=largest,
        predicted_error=predicted,
        checked_error=checked,
        refined_error=refined,
        subsample=len(part),
        tolerance=tolerance,
        model=str(chosen),
    )


def _refined(model: DEQ | Explicit, X: Array, stats: MixtureStatistics) -> StructuredOperator | None:
    """The refined equivalent, or None where the samples are too correlated, or their norms too different, for one."""
    try:
        return equivalent(model, X, stats, form="refined")
    except (NotHighDimensionalError, ConvergenceError):
        return None


def _cosines(X: Array) -> tuple[float, float]:
    """Root mean square and largest magnitude of the cosines between different samples."""
    directions = X / np.sqrt(floored(squared_norms(X)))[:, None]
    cosines = np.abs(directions @ directions.T)[np.triu_indices(len(X), 1)]
    return float(np.sqrt(np.mean(cosines**2))), min(float(cosines.max()), 1.0)
