"""Norms and eigenvalues that are bounds, not estimates: rounding errors are counted on the safe side.

A symmetric matrix whose Cholesky factorisation runs to its end in floating point is positive semi-definite up to a
known multiple of its trace (S. M. Rump, Verification of positive definiteness, BIT 2006). An estimate of a norm or of
a least eigenvalue, moved a little to the safe side, is therefore turned into a bound by one factorisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from notsodeep.errors import ConvergenceError
from notsodeep.linalg.block_lanczos import extreme_eigenvalues
from notsodeep.validation import Array

# Half the distance from 1 to the next number: the relative error of one operation.
UNIT = 2.0**-53
# Relative steps to the safe side that are tried in turn.
_MARGINS = (1e-6, 1e-4, 1e-2, 1e-1)
_DENSE = 400


def gamma(operations: int) -> float:
    """Relative error of a sum of products with this many operations: γ_k = k u/(1 - k u)."""
    return operations * UNIT / (1.0 - operations * UNIT)


@dataclass(frozen=True)
class Enclosure:
    """A number known to lie between two others; `float()` of it is the estimate.

    Attributes:
        lower: no more than the number.
        estimate: what floating point gave.
        upper: no less than the number.
    """

    lower: float
    estimate: float
    upper: float

    def __float__(self) -> float:
        return self.estimate

    def __str__(self) -> str:
        return f"{self.estimate:.4g}"

    @property
    def error(self) -> float:
        """How far the estimate can be off."""
        return max(self.upper - self.estimate, self.estimate - self.lower)


def frobenius_norm(A: Array) -> Enclosure:
    """The Frobenius norm ||A||_F of a matrix."""
    value, error = float(np.linalg.norm(A)), gamma(A.size + 2)
    return Enclosure(value * (1.0 - error), value, value * (1.0 + error))


def spectral_norm(A: Array) -> Enclosure:
    """||A||₂: from below by a Rayleigh quotient, from above by a Cholesky factorisation of t² I - AᵀA."""
    long, short = max(A.shape), min(A.shape)
    gram = A.T @ A if A.shape[1] == short else A @ A.T
    values = linalg.eigvalsh(gram) if len(gram) <= _DENSE else extreme_eigenvalues(gram, 1, "LA", 1e-6)
    square = float(values[-1])
    if square == 0.0:
        return Enclosure(0.0, 0.0, frobenius_norm(A).upper)
    product_error = gamma(long) * frobenius_norm(A).upper ** 2
    for margin in _MARGINS:
        shift = square * (1.0 + margin)
        if _factorises(gram, shift, sign=-1.0):
            # tr(t² I - AᵀA) ≤ k t²; the shift rounds each diagonal entry once more.
            slack = product_error + 2.0 * gamma(short + 2) * short * shift
            upper = float(np.sqrt(shift + slack)) * (1.0 + 4.0 * UNIT)
            lower = float(np.sqrt(max(square - product_error, 0.0))) * (1.0 - 1e-10)
            return Enclosure(lower, float(np.sqrt(square)), upper)
    raise ConvergenceError("The largest singular value was not found.", "Are all entries of ordinary size?")


def least_gram_eigenvalue(Z: Array) -> Enclosure:
    """λ_min(Z Zᵀ) for samples in rows; `lower` may be negative where rounding hides the sign."""
    n, width = Z.shape
    gram = Z @ Z.T
    estimate, largest = (float(v) for v in linalg.eigvalsh(gram)[[0, -1]])
    product_error = gamma(width) * frobenius_norm(Z).upper ** 2
    # What LAPACK's eigenvalues may be off by, and the reach of the first attempt.
    reach = n * UNIT * largest
    for margin in (reach, 16.0 * reach, 256.0 * reach):
        shift = estimate - margin
        if shift > 0 and _factorises(gram, -shift):
            slack = product_error + 2.0 * gamma(n + 2) * float(np.trace(gram))
            return Enclosure(shift - slack, estimate, estimate + margin + slack)
    slack = product_error + 256.0 * reach
    return Enclosure(estimate - slack, estimate, estimate + slack)


def _factorises(matrix: Array, shift: float, sign: float = 1.0) -> bool:
    """Whether Cholesky's factorisation of sign · matrix + shift · I runs to its end."""
    shifted = sign * matrix
    shifted[np.diag_indices_from(shifted)] += shift
    try:
        linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    return True
