"""Can predictions with the kernel before learning be trusted for a network that learns features?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError
from notsodeep.feature_learning.adaptive import adaptive_kernel
from notsodeep.feature_learning.hidden_layers import hidden_layers, lazy_kernels
from notsodeep.feature_learning.self_consistency import Posterior
from notsodeep.feature_learning.solution import readout_variance
from notsodeep.models import Model
from notsodeep.validation import as_number, as_right_sides, as_rows

# Relative change of the kernel up to which the lazy prediction is trusted.
LARGEST_CHANGE = 0.1
# Below this variance of one neuron's readout, (14.6), the change is of the same order: nothing need be sampled.
_LAZY = 0.01
# The smallest ridge, relative to the diagonal of the kernel.
_LEAST_RIDGE = 1e-6
# Size of the subset, and chains per replicate: a rough answer is enough.
_SAMPLES, _CHAINS = 24, 64


@dataclass(frozen=True, repr=False)
class LazyCheck(Shown):
    """Whether the kernel before learning describes a network of a given richness.

    Attributes:
        trusted: whether the kernel changes by at most 10 %.
        change: relative change of the kernel in Frobenius norm; infinite if the equations have no solution.
        alignment: cosine between the kernel after learning and yyᵀ; NaN if it was not computed.
        note: the result as a sentence.
    """

    trusted: bool
    change: float
    alignment: float
    note: str


def lazy_check(
    model: Model, X: Any, y: Any, richness: float, ridge: float, *, samples: int = _SAMPLES, seed: int = 0
) -> LazyCheck:
    """Check whether ridge regression with the lazy kernel describes a network that learns features.

    The kernel after learning is computed on a random subset of the rows. More rows change it more: a check that fails
    on a subset fails on all of them, one that passes is no proof.

    Args:
        model: a DEQ or an Explicit network.
        X: samples in rows.
        y: real targets, (n,) or (n, outputs).
        richness: γ of the network, see `adaptive_kernel`.
        ridge: ridge of the lazy prediction; the precision is γ²/ridge.
        samples: size of the subset.
        seed: seed of the subset and of the sampling.
    """
    layers, rows, gamma = hidden_layers(model), as_rows(X), as_number(richness, "richness", positive=True)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:samples])
    rows, targets = rows[chosen], as_right_sides(y, len(rows), "y")[chosen]
    kernel = lazy_kernels(model, rows)[-1]
    penalty = max(as_number(ridge, "ridge"), _LEAST_RIDGE * float(np.mean(np.diag(kernel))))
    posterior = Posterior(layers, rows @ rows.T, targets.reshape(len(rows), -1), gamma, gamma**2 / penalty)
    variance = readout_variance(posterior, kernel)
    where = f"on {len(rows)} samples at richness {gamma:g}"
    if variance <= _LAZY:
        note = f"Features hardly change {where}: the variance of a neuron's readout is {variance:.1g}."
        return LazyCheck(True, variance, np.nan, note)
    try:
        after = adaptive_kernel(
            model, rows, targets, gamma, posterior.precision, starts=("lazy",), chains=_CHAINS, seed=seed
        )
    except ConvergenceError as error:
        return LazyCheck(False, np.inf, np.nan, f"The lazy prediction cannot be trusted {where}. {error}")
    trusted = after.change <= LARGEST_CHANGE
    start = "The kernel changes by" if trusted else "The lazy prediction cannot be trusted: the kernel changes by"
    note = (
        f"{start} {100.0 * after.change:.0f} % {where}, its alignment with the targets from "
        f"{after.lazy_alignment:.2f} to {after.alignment:.2f}."
    )
    return LazyCheck(trusted, after.change, after.alignment, note)


__all__ = ["LARGEST_CHANGE", "LazyCheck", "lazy_check"]
