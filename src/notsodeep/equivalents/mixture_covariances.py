"""The covariances of a mixture as the spectral equations see them: in their common eigenbasis.

All that is asked of them is R(h) = (I + Σ_a h_a C_a)^{-1}: its traces with the C_a, and its action on the
means. Covariances and means come in units where τ0 = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.data import GaussianMixture
from notsodeep.errors import InputError
from notsodeep.validation import Array, IntArray

Values = NDArray[Any]  # float64 outside the support, complex128 inside
Mask = NDArray[np.bool_]

# Entries of one batch of resolvents: 2^20 complex numbers are 16 MB.
_BATCH = 2**20
# Off-diagonal part, relative, up to which covariances in a common basis count as diagonal.
_COMMUTING = 1e-10
# An eigenvalue below this fraction of the largest is zero up to rounding.
_NULL = 1e-12


@dataclass(frozen=True, eq=False)
class Commuting:
    """Covariances with a common eigenbasis: only the distinct K-tuples of eigenvalues matter."""

    p: int
    largest: float
    values: Array  # the eigenvalues of the C_a, shape (D, K)
    multiplicity: IntArray  # how often each K-tuple occurs, shape (D,)
    gram: Array  # Σ μ_a μ_b over the coordinates of each tuple, shape (D, K, K)

    @classmethod
    def of(cls, values: Array, means: Array) -> Commuting:
        """Group the coordinates whose variances, shape (p, K), agree in every class."""
        distinct, group, multiplicity = np.unique(values, axis=0, return_inverse=True, return_counts=True)
        gram = np.zeros((len(distinct), len(means), len(means)))
        np.add.at(gram, group.ravel(), means.T[:, :, None] * means.T[:, None, :])
        return cls(len(values), float(values.max()), distinct, multiplicity.astype(np.intp), gram)

    def _shifted(self, h: Values) -> Values:
        return np.asarray(1.0 + h @ self.values.T)

    def traces(self, h: Values) -> tuple[Values, Values]:
        """For Z vectors h, (1/p) tr(C_a R) and (1/p) tr(C_a R C_b R): shapes (Z, K) and (Z, K, K)."""
        classes = h.shape[1]
        weighted = self.values * self.multiplicity[:, None] / self.p
        pairs = (weighted[:, :, None] * self.values[:, None, :]).reshape(-1, classes**2)
        step = max(1, _BATCH // len(self.values))
        first, second = np.empty(h.shape, h.dtype), np.empty((len(h), classes**2), h.dtype)
        for start in range(0, len(h), step):
            part = slice(start, start + step)
            inverse = 1.0 / self._shifted(h[part])
            first[part], second[part] = inverse @ weighted, inverse**2 @ pairs
        return first, second.reshape(-1, classes, classes)

    def negative(self, h: Array) -> int:
        """How many eigenvalues of I + Σ h_a C_a are negative, for one real h."""
        return int(self.multiplicity[self._shifted(h) < 0].sum())

    def mean_form(self, h: Array) -> Array:
        """The matrix 𝓜ᵀR𝓜, shape (K, K); in docs/theory.md (6.7) zQ̄ is -R."""
        return np.asarray(np.tensordot(1.0 / self._shifted(h), self.gram, axes=1))

    def mean_form_slope(self, h: Array, rates: Array) -> Array:
        """The derivative of -𝓜ᵀR𝓜 when h moves at these rates: 𝓜ᵀ R Σ_a h_a' C_a R 𝓜."""
        return np.asarray(np.tensordot((self.values @ rates) / self._shifted(h) ** 2, self.gram, axes=1))

    def spanned(self, members: Mask) -> int:
        """The dimension of the sum of the ranges of the C_a of some classes."""
        present = (self.values[:, members] > _NULL * self.largest).any(axis=1)
        return int(self.multiplicity[present].sum())


def shapes_of(mixture: GaussianMixture, tau0: float) -> Commuting:
    """The classes of a mixture in the common eigenbasis of their covariances, in units of tau0.

    Raises:
        InputError: if there is no such basis.
    """
    means = mixture.means / tau0
    if all(covariance.is_diagonal for covariance in mixture.covariances):
        diagonals = np.stack([covariance.diagonal() for covariance in mixture.covariances], axis=1)
        return Commuting.of(diagonals / tau0**2, means)
    matrices = np.stack([covariance.to_dense() for covariance in mixture.covariances]) / tau0**2
    basis, values = common_basis(matrices)
    if values is None:
        raise InputError(
            "The covariances of the classes have no common eigenbasis, which a spectrum without data needs. Draw rows "
            "(gmm.sample(n)) and use the eigenvalues of the exact kernel, or of `equivalent` for large n."
        )
    return Commuting.of(values, means @ basis)


def common_basis(matrices: Array) -> tuple[Array, Array | None]:
    """A basis and the eigenvalues of all matrices in it, shape (p, K); None where no basis is common to them."""
    basis = _candidate_basis(matrices)
    rotated = basis.T @ matrices @ basis
    values = np.diagonal(rotated, axis1=1, axis2=2).T
    scale = float(values.max())
    off_diagonal = rotated - np.stack([np.diag(column) for column in values.T])
    if float(np.abs(off_diagonal).max()) > _COMMUTING * scale:
        return basis, None
    return basis, np.where(values > _NULL * scale, values, 0.0)


def _candidate_basis(matrices: Array) -> Array:
    """The eigenbasis of one combination of the matrices, which is common to all of them if any basis is.

    The coefficients are square roots of primes: two tuples of rational eigenvalues do not give one sum.
    """
    primes = [n for n in range(2, 20 + 20 * len(matrices)) if all(n % divisor for divisor in range(2, n))]
    weights = np.sqrt(np.array(primes[: len(matrices)], dtype=np.float64))
    return np.asarray(np.linalg.eigh(np.tensordot(weights, matrices, axes=1))[1])
