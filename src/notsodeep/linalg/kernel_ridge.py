"""Kernel ridge regression with an intercept that is not penalised, and leave-one-out residuals in closed form.

With H = I - 11ᵀ/n the intercept centres the kernel: HKH takes its place, docs/theory.md (11.29). The regression is
linear in the targets, ŷ = S y, and the residual that sample i has when it is left out is that of the fit over 1 - S_ii:

    (M y)_i / M_ii,    M = H (HKH + λI)⁻¹ H,  or (K + λI)⁻¹ without an intercept.

`solve_ridge` factorises K for one ridge, `RidgePath` diagonalises it for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.linalg.dense import solve_definite
from notsodeep.validation import Array, IntArray

# A factorisation with a smaller reciprocal condition number has no correct digits.
_SINGULAR = 1e-15
# Ridges to choose from, relative to the mean eigenvalue, and the number of samples that choose.
_RIDGES, _CHOOSING = 10.0 ** np.arange(-7.0, 3.0, 0.5), 1000
# The least mean eigenvalue of the centred kernel, relative to that of the kernel.
_SMALLEST = 1e-6


def centre_kernel(kernel: Array, constant: float) -> tuple[Array, Array]:
    """Compute HKH + constant · 11ᵀ/n, of which 1 is an eigenvector, and the means of the columns of K.

    Args:
        kernel: K, symmetric.
        constant: the eigenvalue that 1 gets.
    """
    means = kernel.mean(axis=0)
    centred = kernel - (means + means[:, None])
    centred += means.mean() + constant / len(kernel)
    return centred, means


class RidgeFit(NamedTuple):
    """f(x) = k(x, X) dual + intercept, and the left-out residuals of some samples."""

    dual: Array
    intercept: Array
    residuals: Array


def solve_ridge(
    kernel: Array, targets: Array, ridge: float, held_out: IntArray, *, intercept: bool = True
) -> RidgeFit:
    """Solve for the dual coefficients at one ridge, by one factorisation.

    Args:
        kernel: K, symmetric; it is overwritten.
        targets: y, shape (n, outputs).
        ridge: λ.
        held_out: the samples whose left-out residuals are wanted.
        intercept: fit an intercept, which is not penalised.
    """
    n, outputs = targets.shape
    mean, means = np.zeros(outputs), np.zeros(n)
    # 1 is an eigenvector of the centred kernel, so that M is its inverse without the share of 1.
    constant = float(kernel.diagonal().mean()) if intercept else 0.0
    if intercept:
        mean = targets.mean(axis=0)
        kernel, means = centre_kernel(kernel, constant)
    np.fill_diagonal(kernel, kernel.diagonal() + ridge)
    # Unit vectors as further right sides give columns of the inverse; the factorisation costs more.
    units = np.zeros((n, len(held_out)))
    units[held_out, np.arange(len(held_out))] = 1.0
    solution, rcond = solve_definite(kernel, np.hstack([targets - mean, units]), overwrite=True)
    if solution is None or not rcond > _SINGULAR:
        raise ConvergenceError(
            f"The kernel matrix of {n} samples with alpha = {ridge:g} is singular to working precision.",
            "Raise alpha: 1e-8 is enough for rows that occur twice.",
        )
    dual = solution[:, :outputs].copy()
    diagonal = solution[held_out, outputs + np.arange(len(held_out))]
    if intercept:
        diagonal = diagonal - 1.0 / (n * (constant + ridge))
    return RidgeFit(
        dual, mean - means @ dual, left_out_residuals(targets[held_out], dual[held_out], diagonal[:, None])
    )


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The kernel matrix of training samples, diagonalised: every ridge from one decomposition.

    Attributes:
        values: eigenvalues of K; with an intercept those of HKH but for the one of the constant, n - 1 of them.
        vectors: eigenvectors in columns.
        targets: of the training samples, shape (n, outputs).
        means: of the columns of K, which an intercept takes out; None without one.
    """

    values: Array
    vectors: Array
    targets: Array
    means: Array | None

    @classmethod
    def of(cls, kernel: Array, targets: Array, *, intercept: bool) -> Self:
        """Diagonalise the kernel matrix, centred if there is an intercept."""
        means = None
        if intercept:
            # With the least eigenvalue by far, the constant is the first eigenvector.
            kernel, means = centre_kernel(kernel, -1.0 - float(np.linalg.norm(kernel)))
        values, vectors = np.linalg.eigh(kernel)
        if intercept:
            values, vectors = values[1:], vectors[:, 1:]
        # Equal samples have an eigenvalue that is zero but for rounding.
        least = np.finfo(np.float64).eps * float(values.max(initial=0.0))
        return cls(np.maximum(values, least), vectors, targets, means)

    @property
    def free(self) -> int:
        """The number of features that are not penalised: 1 with an intercept, else 0."""
        return 0 if self.means is None else 1

    def left_out_residuals(self, ridges: Array) -> Array:
        """Targets minus left-out scores at several ridges, (ridges, n, outputs)."""
        inverse = 1.0 / (self.values + ridges[:, None])[:, :, None]
        dual = self.vectors @ (inverse * (self.vectors.T @ self.targets))
        return left_out_residuals(self.targets, dual, self.vectors**2 @ inverse)

    def new_samples(self, cross: Array, diagonal: Array) -> tuple[Array, Array]:
        """K(new, training) in the eigenvectors and K(x, x) of new samples, both centred if there is an intercept.

        Args:
            cross: K(new, training).
            diagonal: K(x, x) of the new samples.
        """
        if self.means is None:
            return np.asarray(cross @ self.vectors), diagonal
        along = cross.mean(axis=1)
        overall = self.means.mean()
        centred = cross - self.means - (along - overall)[:, None]
        return np.asarray(centred @ self.vectors), np.asarray(diagonal - 2.0 * along + overall)


def left_out_ridge(kernel: Array, targets: Array, *, intercept: bool = True) -> float:
    """The ridge with the least squared error of samples that are left out, from every k-th one if there are many."""
    step = -(-len(kernel) // _CHOOSING)
    kernel, targets = kernel[::step, ::step], targets[::step]
    path = RidgePath.of(kernel, targets, intercept=intercept)
    # Equal samples have a centred kernel of zero: then any ridge does.
    scale = max(float(path.values.sum()), _SMALLEST * float(np.trace(kernel))) / len(kernel)
    ridges = (scale or 1.0) * _RIDGES
    errors = [float(np.mean(path.left_out_residuals(np.array([ridge])) ** 2)) for ridge in ridges]
    return float(ridges[int(np.argmin(errors))])


def left_out_residuals(targets: Array, dual: Array, diagonal: Array) -> Array:
    """Residuals (M y)_i / M_ii of samples that are left out; a sample without others is predicted as 0.

    Args:
        targets: y.
        dual: M y, of the same shape, or with other ridges in front.
        diagonal: M_ii, which broadcasts to that shape.
    """
    residuals = np.broadcast_to(targets, dual.shape).copy()
    return np.divide(dual, diagonal, out=residuals, where=diagonal > 0.0)
