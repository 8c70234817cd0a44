"""Test error of ridge regression from the spectrum of its kernel: docs/theory.md (11.1)–(11.6).

n random samples make a regression with ridge λ behave like the regression on the whole population with an effective
ridge κ. A network of finite width m whose readout alone is trained is one more random sample, of features, and makes it
larger still. Everything follows from two sums over the eigenvalues λ_k of the kernel,

    df₁(κ) = Σ λ_k/(λ_k + κ),    df₂(κ) = Σ λ_k²/(λ_k + κ)²,

the degrees of freedom. Infinitely many eigenvalues, each too small to be learnt, enter by their sum alone: the tail c
adds c/κ to df₁ and nothing to df₂.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.validation import Array, as_count, as_floats, as_number, frozen

# Relative accuracy of the effective ridge.
_ACCURACY = 1e-13


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Spectrum(Shown):
    """Eigenvalues of a kernel under the distribution of the data, and the sum of those that are too small to matter.

    Args:
        eigenvalues: λ_k of the operator E[K(·, x) f(x)], none negative. Those of a kernel matrix of N samples, divided
            by N, are an estimate.
        tail: c, the sum of all eigenvalues that are not listed: K = Σ λ_k ψ_k ψ_k + c·1{i=j} on different samples.
        multiplicity: how often each eigenvalue occurs; once if not given.
    """

    eigenvalues: Array
    tail: float
    multiplicity: Array

    def __init__(
        self, eigenvalues: ArrayLike, tail: float = 0.0, multiplicity: ArrayLike | None = None
    ) -> None:
        values = as_floats(eigenvalues, "eigenvalues", ndim=1)
        counts = (
            np.ones(len(values)) if multiplicity is None else as_floats(multiplicity, "multiplicity", ndim=1)
        )
        if values.size and values.min() < 0.0:
            raise InputError(
                f"Eigenvalues of a kernel are not negative; the smallest is {values.min():.3g}. "
                "If that is rounding, give np.maximum(eigenvalues, 0)."
            )
        if counts.shape != values.shape or (counts.size and counts.min() < 0.0):
            raise InputError(
                f"multiplicity needs one number, not negative, for each of {len(values)} eigenvalues."
            )
        object.__setattr__(self, "eigenvalues", frozen(values))
        object.__setattr__(self, "tail", as_number(tail, "tail"))
        object.__setattr__(self, "multiplicity", frozen(counts))
        if self.trace == 0.0:
            raise InputError("All eigenvalues are zero: such a kernel predicts zero everywhere.")

    @property
    def trace(self) -> float:
        """The sum of all eigenvalues, the mean of the kernel's diagonal."""
        return float(self.multiplicity @ self.eigenvalues) + self.tail

    @property
    def rank(self) -> float:
        """The number of eigenvalues that are not zero; infinite with a tail."""
        return math.inf if self.tail > 0.0 else float(self.multiplicity[self.eigenvalues > 0.0].sum())

    def degrees_of_freedom(self, kappa: float) -> float:
        """df₁(κ), the number of directions that are learnt at the effective ridge κ > 0."""
        shares = self.eigenvalues / (self.eigenvalues + kappa)
        return float(self.multiplicity @ shares) + self.tail / kappa

    def squared_degrees_of_freedom(self, kappa: float) -> float:
        """The second degrees of freedom, df₂(κ)."""
        return float(self.multiplicity @ (self.eigenvalues / (self.eigenvalues + kappa)) ** 2)

    def ridge_with(self, degrees: float) -> float:
        """κ at which df₁(κ) = degrees; 0 where the rank is too small for that."""
        if degrees >= self.rank:
            return 0.0
        # df₁ ≤ trace/κ bounds the solution from above.
        high = self.trace / degrees
        return _root(lambda kappa: degrees - self.degrees_of_freedom(kappa), 0.0, high)

    def _facts(self) -> dict[str, object]:
        return {"eigenvalues": self.eigenvalues, "tail": self.tail, "trace": self.trace}


def effective_ridge(spectrum: Spectrum, n: int, ridge: float, width: int | None = None) -> float:
    """κ of docs/theory.md (11.1), and ν₂ of (11.4) for a network of finite width: the ridge that the population sees.

    ν (1 - df₁(ν)/m) (n - df₁(ν)) = λ has one solution with df₁(ν) ≤ min(n, m), and its left side increases there: the
    product of three increasing factors. For m = ∞ it is n = df₁(κ) + λ/κ.

    Args:
        spectrum: of the kernel of infinite width.
        n: number of training samples.
        ridge: λ, added to the diagonal of the n × n kernel matrix.
        width: m, number of random features; infinite if not given.

    Returns:
        κ, on the scale of the eigenvalues; 0 where the rank is below n and m and the ridge is 0.
    """
    samples, penalty = as_count(n, "n"), as_number(ridge, "ridge")
    features = math.inf if width is None else as_count(width, "width")
    smallest = spectrum.ridge_with(min(samples, features))
    if penalty == 0.0:
        return smallest

    def excess(kappa: float) -> float:
        degrees = spectrum.degrees_of_freedom(kappa)
        return kappa * (1.0 - degrees / features) * (samples - degrees) - penalty

    # Where df₁ ≤ min(n, m)/2 the left side is at least ν n/4.
    high = max(4.0 * penalty / samples, 2.0 * spectrum.trace / min(samples, features))
    return _root(excess, smallest, high)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of an increasing function between two ends, to a relative accuracy whatever its size."""
    if low <= 0.0:
        low = high
        while function(low) > 0.0:
            low /= 16.0
            if low < np.finfo(float).tiny:
                return 0.0
    if function(low) >= 0.0:
        return low
    found, report = brentq(
        lambda place: function(math.exp(place)),
        math.log(low),
        math.log(high),
        xtol=_ACCURACY,
        rtol=4.0 * np.finfo(float).eps,
        full_output=True,
        disp=False,
    )
    if not report.converged:
        raise ConvergenceError(
            f"The effective ridge did not settle in {report.iterations} steps.",
            "Check that the eigenvalues are finite and of comparable units with the ridge.",
        )
    return math.exp(found)


@dataclass(frozen=True, repr=False)
class RidgeError(Shown):
    """The predicted test error of a ridge regression, docs/theory.md (11.2) and (11.5).

    Attributes:
        mse: expected squared error on a new sample, the noise of its target included.
        bias: what the mean over training sets (and networks) misses, noise included.
        variance: how far one training set (and network) is from that mean; mse = bias + variance.
        effective_ridge: κ, or ν₂ at finite width.
        degrees_of_freedom: df₁ there.
    """

    mse: float
    bias: float
    variance: float
    effective_ridge: float
    degrees_of_freedom: float


def ridge_error(
    spectrum: Spectrum,
    target: ArrayLike,
    n: int,
    ridge: float,
    *,
    noise: float = 0.0,
    width: int | None = None,
) -> RidgeError:
    """Mean squared test error of kernel ridge regression, or of a random network whose readout is trained by ridge.

    Args:
        spectrum: of the kernel; eigenvalues with a multiplicity other than 1 stand for a group of directions.
        target: v_k², the square of the target's coefficient in each eigenfunction, summed over a group.
        n: number of training samples.
        ridge: λ, added to the diagonal of the kernel matrix.
        noise: variance of what no eigenfunction explains: noise of the targets, or their part in the tail.
        width: m; infinite if not given.
    """
    squares = as_floats(target, "target", ndim=1)
    if squares.shape != spectrum.eigenvalues.shape or (squares.size and squares.min() < 0.0):
        raise InputError(
            f"target needs one square v_k² for each of {len(spectrum.eigenvalues)} eigenvalues, none negative."
        )
    kappa = effective_ridge(spectrum, n, ridge, width)
    unexplained = as_number(noise, "noise")
    if kappa == 0.0:
        return _least_squares_error(spectrum, squares, n, width, unexplained)
    degrees, squared = spectrum.degrees_of_freedom(kappa), spectrum.squared_degrees_of_freedom(kappa)
    missed = kappa / (spectrum.eigenvalues + kappa)
    bias = float(squares @ missed**2) + unexplained
    penalty = float(squares @ (missed * (1.0 - missed)))
    mse = expected_error(bias, penalty, degrees, squared, n, width)
    return RidgeError(mse, bias, mse - bias, kappa, degrees)


def expected_error(
    bias: float, penalty: float, degrees: float, squared: float, n: int, width: int | None, least: float = 0.0
) -> float:
    """The squared error of docs/theory.md (11.2) and (11.5), from population quantities at the effective ridge ν.

    Args:
        bias: what the mean predictor misses, noise included.
        penalty: ν ‖w̄‖² of the mean predictor, whose noise a finite number of features makes.
        degrees: df₁(ν).
        squared: df₂(ν).
        n: number of training samples.
        width: m; infinite if not given.
        least: the least share of samples that is taken to be left; with 0 the error may be infinite.
    """
    share = 0.0 if width is None else 1.0 / (width - squared)
    left = max(1.0 - (squared + share * (degrees - squared) ** 2) / n, least)
    return (bias + share * (degrees - squared) * penalty) / left if left > 0.0 else math.inf


def _least_squares_error(
    spectrum: Spectrum, squares: Array, n: int, width: int | None, noise: float
) -> RidgeError:
    """κ = 0: fewer directions than samples and features, no ridge. Ordinary least squares."""
    rank = spectrum.rank
    bias = float(squares[spectrum.eigenvalues == 0.0].sum()) + noise
    mse = bias / (1.0 - rank / n)
    return RidgeError(mse, bias, mse - bias, 0.0, rank)


__all__ = ["RidgeError", "Spectrum", "effective_ridge", "expected_error", "ridge_error"]
