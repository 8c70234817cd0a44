"""How far an equivalent is from the exact kernel, in operator norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import aslinearoperator

from notsodeep.data.statistics import MixtureStatistics
from notsodeep.equivalents.equivalent import equivalent
from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import Model
from notsodeep.progress import Report, reported
from notsodeep.validation import as_rows

# The best factor is searched for until the distance is known to about this share of itself.
_FACTOR_TOLERANCE = 2e-3
# Below this, relative to the factor, a distance is rounding.
_ROUNDING = 1e-14
# Rows up to which all eigenvalues are found in less time than the largest by iterations.
_SMALLEST = 1e-150
_SMALL = 200


@dataclass(frozen=True)
class KernelDistance:
    """How far one kernel matrix is from another, ||K - K'||₂/||K||₂: as they are, and up to a factor.

    A kernel times a constant is the same kernel machine with another ridge and another learning rate, so two kernels
    that differ by a factor alone do not differ. `float()` of it is the distance as they are.

    Attributes:
        relative: ||K - K'||₂/||K||₂.
        up_to_factor: the least ||K - c K'||₂/||K||₂ over all c.
        factor: that c.
    """

    relative: float
    up_to_factor: float
    factor: float

    def __float__(self) -> float:
        return self.relative

    def __str__(self) -> str:
        return f"{_per_cent(self.relative)} ({_per_cent(self.up_to_factor)} up to a factor)"


def _per_cent(share: float) -> str:
    return f"{float(f'{100.0 * share:.2g}'):g}%"


def kernel_distance(kernel: ArrayLike, other: ArrayLike, *, tolerance: float = 1e-3) -> KernelDistance:
    """Measure the distance between two kernel matrices in operator norm, as they are and with the best factor.

    The distance is a convex function of the factor c. By the triangle inequality the best c is within
    2 ||K - c K'||₂/||K'||₂ of any other, so it is searched for around that of least squares.

    Args:
        kernel: K, a symmetric matrix (n, n); distances are relative to its norm.
        other: K', another one.
        tolerance: relative accuracy of the norms.
    """
    first, second = np.asarray(kernel, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if first.ndim != 2 or first.shape[0] != first.shape[1] or first.shape != second.shape:
        raise InputError(
            f"Two square matrices of one shape are needed; they have the shapes {first.shape} and {second.shape}."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError("A matrix has NaN or infinite entries: there is no distance between such kernels.")

    def norm(factor: float, other_factor: float) -> float:
        if len(first) <= _SMALL:
            return float(np.abs(np.linalg.eigvalsh(factor * first - other_factor * second)).max())
        return operator_norm(
            factor * aslinearoperator(first) - other_factor * aslinearoperator(second), tolerance
        )

    # Squares of entries enter the best factor: below this they vanish.
    if min(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0)) < _SMALLEST:
        raise InputError(
            "A kernel that is zero, or smaller than 1e-150, has no distance relative to its norm. Scale the samples up."
        )
    whole, size = norm(1.0, 0.0), norm(0.0, 1.0)

    plain, start = norm(1.0, 1.0), float(np.vdot(first, second) / np.vdot(second, second))
    found = (start, norm(1.0, start))
    reach = 2.0 * found[1] / size
    if reach > _ROUNDING * abs(start):
        best = minimize_scalar(
            lambda factor: norm(1.0, factor),
            bounds=(start - reach, start + reach),
            method="bounded",
            options={"xatol": 0.5 * _FACTOR_TOLERANCE * reach},
        )
        found = min(found, (float(best.x), float(best.fun)), key=lambda one: one[1])
    # No factor at all is a factor, too.
    factor, least = min(found, (1.0, plain), key=lambda one: one[1])
    return KernelDistance(plain / whole, least / whole, factor)


def equivalence_error(
    model: Model,
    X: ArrayLike,
    stats: MixtureStatistics | None = None,
    kernel: str = "ck",
    form: str = "asymptotic",
    *,
    tolerance: float = 1e-3,
    progress: bool | Report = False,
    **options: Any,
) -> float:
    """Measure ||K - K̄||₂/||K||₂ between the exact kernel and its equivalent, docs/theory.md (4.8).

    Args:
        model: as in `equivalent`, which explains stats, kernel and form as well.
        X: samples in rows (n, p).
        stats: statistics of the classes.
        kernel: which kernel.
        form: "asymptotic" or "refined".
        tolerance: relative accuracy of the two norms.
        progress: True for a bar on stderr.
        **options: of the refined form, as in `equivalent`: order, square, rank, seed and around.
    """
    rows = as_rows(X)
    with reported(progress, "equivalent and exact kernel"):
        operator = equivalent(model, rows, stats, kernel, form, **options)
        return distance_to_exact(model, rows, operator, kernel, tolerance=tolerance)


def distance_to_exact(
    model: Model,
    X: ArrayLike,
    operator: StructuredOperator,
    kernel: str = "ck",
    *,
    tolerance: float = 1e-3,
) -> float:
    """Measure ||K - K̄||₂/||K||₂ between the exact kernel on X and any operator that approximates it."""
    rows = as_rows(X)
    if operator.shape != (len(rows), len(rows)):
        raise InputError(f"The operator has shape {operator.shape}, the kernel of X {(len(rows),) * 2}.")
    exact = aslinearoperator(exact_kernel(model, rows, kernel=kernel))
    whole, apart = (operator_norm(op, tolerance) for op in (exact, exact - aslinearoperator(operator)))
    return apart / whole
