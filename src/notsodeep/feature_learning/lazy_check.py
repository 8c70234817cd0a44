"""Can predictions with the kernel before learning be trusted for a network that learns features?"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.feature_learning.adaptive import adaptive_kernel
from notsodeep.feature_learning.hidden_layers import hidden_layers
from notsodeep.feature_learning.self_consistency import Posterior
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import Model
from notsodeep.validation import as_number, as_right_sides, as_rows

# Relative change of the kernel up to which the lazy prediction is trusted.
LARGEST_CHANGE = 0.1
# Below this variance of one neuron's readout, (16.6), the change is of the same order: nothing need be sampled.
_LAZY = 0.01
# The smallest ridge, relative to the diagonal of the kernel; rows of the subset; chains per replicate, tolerance.
_LEAST_RIDGE, _SAMPLES, _CHAINS, _TOLERANCE = 1e-6, 24, 128, 0.02


class LazyCheck(NamedTuple):
    """Whether the kernel before learning describes a network that learns, and the reason as a sentence."""

    trusted: bool
    note: str


def lazy_check(model: Model, X: Any, y: Any, richness: float, ridge: float, *, seed: int = 0) -> LazyCheck:
    """Check whether ridge regression with the lazy kernel describes a network that learns features.

    The kernel after learning is computed on 24 random rows. More rows change it more: a check that fails on them fails
    on all, one that passes is no proof.

    Args:
        model: a DEQ or an Explicit network.
        X: samples in rows.
        y: real targets, (n,) or (n, outputs).
        richness: γ of the network, see `adaptive_kernel`.
        ridge: ridge of the lazy prediction; the precision is γ²/ridge.
        seed: seed of the choice of rows and of the sampling.
    """
    layers, rows, gamma = hidden_layers(model), as_rows(X), as_number(richness, "richness", positive=True)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:_SAMPLES])
    rows, targets = rows[chosen], as_right_sides(y, len(rows), "y")[chosen]
    kernel = conjugate_kernel(model, rows)
    beta = gamma**2 / max(as_number(ridge, "ridge"), _LEAST_RIDGE * float(np.mean(np.diag(kernel))))
    posterior = Posterior(layers, rows @ rows.T, targets.reshape(len(rows), -1), gamma, beta)
    where, variance = f"on {len(rows)} samples at richness {gamma:g}", posterior.readout_variance(kernel)
    if variance <= _LAZY:
        note = f"Features hardly change {where}: the variance of a neuron's readout is {variance:.1g}."
        return LazyCheck(True, note)
    try:
        with warnings.catch_warnings(action="ignore"):  # the note says what the warning would
            after = adaptive_kernel(
                model,
                rows,
                targets,
                gamma,
                beta,
                starts=("lazy",),
                chains=_CHAINS,
                tolerance=_TOLERANCE,
                seed=seed,
            )
    except ConvergenceError as error:
        return LazyCheck(False, f"The lazy prediction cannot be trusted {where}. {error}")
    drift = after.solutions[0].diagnostics.drift
    rough = "" if after.converged else f" The iteration had not settled (drift {drift:.1%})."
    trusted = after.change <= LARGEST_CHANGE
    start = "The kernel changes" if trusted else "The lazy prediction cannot be trusted: the kernel changes"
    aligned = f"from {after.lazy_alignment:.2f} to {after.alignment:.2f}"
    change = f"{after.change:.2f} of its norm"
    return LazyCheck(
        trusted, f"{start} by {change} {where}, its alignment with the targets {aligned}.{rough}"
    )
