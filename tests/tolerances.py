"""How close is close enough: one policy, by dtype and kind of oracle. Tests name the oracle, never a number.

Deterministic oracles differ from the code by rounding and by the accuracy we promise: `assert_close`.
A Monte-Carlo oracle differs by its own noise: `assert_within_noise` compares in its standard errors, and
demands that the noise be small enough for the comparison to mean something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import stats


class Oracle(Enum):
    """Where the expected value comes from."""

    IDENTITY = "the same quantity by other algebra: symmetry, permutation, blocks; rounding only"
    CLOSED_FORM = "a formula, or mpmath at high precision"
    QUADRATURE = "brute-force quadrature in one or two dimensions, or a kernel solved by another method"
    CUSTOM_CALLABLE = "moments of a user's callable, of which nothing is known but its values"
    FINITE_DIFFERENCE = "a derivative by central differences"


@dataclass(frozen=True)
class Tolerance:
    """``|actual - expected| <= rtol |expected| + atol scale``, scale the size of the numbers in play."""

    rtol: float
    atol: float


_POLICY: dict[Oracle, dict[str, Tolerance]] = {
    Oracle.IDENTITY: {"float64": Tolerance(1e-13, 1e-13), "float32": Tolerance(2e-6, 2e-6)},
    Oracle.CLOSED_FORM: {"float64": Tolerance(1e-12, 1e-14), "float32": Tolerance(5e-6, 1e-6)},
    Oracle.QUADRATURE: {"float64": Tolerance(1e-10, 1e-12), "float32": Tolerance(2e-5, 2e-6)},
    Oracle.CUSTOM_CALLABLE: {"float64": Tolerance(1e-9, 1e-11), "float32": Tolerance(2e-5, 2e-6)},
    # A central difference with the step eps^(1/3) keeps two thirds of the digits.
    Oracle.FINITE_DIFFERENCE: {"float64": Tolerance(1e-6, 1e-8), "float32": Tolerance(2e-2, 1e-3)},
}

# Chance that a correct program fails one Monte-Carlo assertion, all its entries together. Seeds are fixed, so
# a passing test stays passing; this guards the choice of the seed.
FALSE_ALARM = 1e-4


def tolerance(oracle: Oracle, dtype: DTypeLike = np.float64) -> Tolerance:
    """The tolerance of the policy for this oracle and floating-point type."""
    return _POLICY[oracle][np.dtype(dtype).name]


def assert_close(
    actual: ArrayLike,
    expected: ArrayLike,
    oracle: Oracle,
    *,
    scale: float | None = None,
    dtype: DTypeLike | None = None,
) -> None:
    """Compare with a deterministic oracle.

    Args:
        actual: what the code returned.
        expected: what the oracle says.
        oracle: the kind of oracle, which sets the tolerance.
        scale: size against which cancellation is judged; by default the largest expected magnitude.
        dtype: precision of the computation; by default that of `actual` (float64 unless it is float32).
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if dtype is None:
        dtype = np.float32 if actual.dtype == np.float32 else np.float64
    if scale is None:
        scale = float(np.max(np.abs(expected), initial=0.0))
    allowed = tolerance(oracle, dtype)
    np.testing.assert_allclose(actual, expected, rtol=allowed.rtol, atol=allowed.atol * scale)


def standard_errors_allowed(comparisons: int, draws: int) -> float:
    """Two-sided quantile of Student's t for simultaneous comparisons (Bonferroni) at FALSE_ALARM."""
    return float(stats.t.isf(FALSE_ALARM / (2.0 * max(comparisons, 1)), draws - 1))


def assert_within_noise(
    actual: ArrayLike, draws: ArrayLike, *, bias: float = 0.0, resolution: float = 0.05
) -> None:
    """Compare with the mean of independent draws, entry by entry, in units of its standard error.

    Args:
        actual: what the code returned, of shape ``draws.shape[1:]``.
        draws: independent estimates along the first axis (20 or more).
        bias: relative bias the oracle is known to have, such as the O(1/width) of a finite network.
        resolution: the standard error must stay below this fraction of the largest entry, else the comparison
            proves nothing and the test is at fault.
    """
    values: np.ndarray[Any, np.dtype[np.float64]] = np.asarray(draws, dtype=np.float64)
    count = values.shape[0]
    assert count >= 20, f"{count} draws do not estimate their own standard error: use 20 or more"
    mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(count)
    size = float(np.max(np.abs(mean)))
    assert np.max(error) <= resolution * size, (
        f"the oracle is too noisy to mean anything: standard error {np.max(error):.2e} of {size:.2e}; "
        "raise the number of draws or the width"
    )
    # The floor admits entries without noise, such as the diagonal of a normalised kernel.
    floor = tolerance(Oracle.QUADRATURE).rtol * size
    allowed = standard_errors_allowed(mean.size, count) * error + bias * size + floor
    excess = np.abs(np.asarray(actual, dtype=np.float64) - mean) / allowed
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    assert np.max(excess) <= 1.0, (
        f"entry {worst} is {excess[worst]:.2f} times the allowed distance from the oracle"
    )
