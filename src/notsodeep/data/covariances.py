"""Covariance matrices that keep their structure: multiples of the identity, diagonals, factors, dense.

What the theory needs of a covariance C is little: tr C, tr(C C'), a draw from N(0, C), and the matrix itself.
Each representation answers at its own cost, so a mixture in p = 10 000 dimensions with isotropic classes
needs no p × p array.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import InputError
from notsodeep.validation import Array, as_count, as_floats, as_number, frozen, squared_norms

# Rounding in a matrix product such as A @ A.T leaves asymmetries and negative eigenvalues of order p eps.
_ROUNDING = 1e-10


class Covariance(ABC):
    """A symmetric positive semi-definite p × p matrix C.

    Of two representations the one with the smaller `order` knows the cheaper way to tr(C C').
    """

    order: ClassVar[int]

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of rows and columns, p."""

    @abstractmethod
    def trace(self) -> float:
        """The trace, tr C."""

    @abstractmethod
    def diagonal(self) -> Array:
        """The p diagonal entries of C."""

    @abstractmethod
    def to_dense(self) -> Array:
        """C as a p × p array."""

    @abstractmethod
    def __matmul__(self, block: Array) -> Array:
        """C times a p × r block."""

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n independent vectors from N(0, C), in rows."""

    @abstractmethod
    def _product(self, other: Covariance) -> float:
        """The trace tr(C C') for an `other` of the same or a higher order."""

    def trace_product(self, other: Covariance) -> float:
        """The trace of a product, tr(C C')."""
        return self._product(other) if self.order <= other.order else other._product(self)


@dataclass(frozen=True, eq=False)
class Isotropic(Covariance):
    """C = variance · I."""

    variance: float
    size: int
    order: ClassVar[int] = 0

    def __post_init__(self) -> None:
        as_number(self.variance, "An isotropic covariance")
        as_count(self.size, "The dimension p")

    @property
    def dimension(self) -> int:
        return self.size

    def trace(self) -> float:
        return self.variance * self.size

    def diagonal(self) -> Array:
        return np.full(self.size, self.variance)

    def to_dense(self) -> Array:
        return self.variance * np.eye(self.size)

    def __matmul__(self, block: Array) -> Array:
        return self.variance * block

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        return math.sqrt(self.variance) * rng.standard_normal((n, self.size))

    def _product(self, other: Covariance) -> float:
        return self.variance * other.trace()


@dataclass(frozen=True, eq=False, init=False)
class Diagonal(Covariance):
    """C = diag(variances)."""

    variances: Array
    order: ClassVar[int] = 1

    def __init__(self, variances: ArrayLike) -> None:
        values = as_floats(variances, "The diagonal of a covariance", ndim=1)
        if values.size == 0 or values.min() < 0:
            raise InputError("The diagonal of a covariance holds variances: at least one, none negative.")
        object.__setattr__(self, "variances", frozen(values))

    @property
    def dimension(self) -> int:
        return len(self.variances)

    def trace(self) -> float:
        return float(self.variances.sum())

    def diagonal(self) -> Array:
        return self.variances

    def to_dense(self) -> Array:
        return np.diag(self.variances)

    def __matmul__(self, block: Array) -> Array:
        return self.variances[:, None] * block

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        return rng.standard_normal((n, self.dimension)) * np.sqrt(self.variances)

    def _product(self, other: Covariance) -> float:
        return float(self.variances @ other.diagonal())


@dataclass(frozen=True, eq=False, init=False)
class Factor(Covariance):
    """C = L Lᵀ with L of p rows and r columns; r may be far smaller than p."""

    factor: Array
    order: ClassVar[int] = 2

    def __init__(self, factor: ArrayLike) -> None:
        values = as_floats(factor, "The factor L of a covariance", ndim=2)
        if values.size == 0:
            raise InputError(f"The factor L of a covariance is empty (shape {values.shape}).")
        object.__setattr__(self, "factor", frozen(values))

    @property
    def dimension(self) -> int:
        return int(self.factor.shape[0])

    def trace(self) -> float:
        return float(np.vdot(self.factor, self.factor))

    def diagonal(self) -> Array:
        return squared_norms(self.factor)

    def to_dense(self) -> Array:
        return self.factor @ self.factor.T

    def __matmul__(self, block: Array) -> Array:
        return self.factor @ (self.factor.T @ block)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        return rng.standard_normal((n, self.factor.shape[1])) @ self.factor.T

    def _product(self, other: Covariance) -> float:
        # For two factors ||L'ᵀ L||_F² costs p r r' and cannot come out negative.
        if isinstance(other, Factor):
            return float(np.sum((other.factor.T @ self.factor) ** 2))
        return float(np.vdot(self.factor, other @ self.factor))


@dataclass(frozen=True, eq=False, init=False)
class Dense(Covariance):
    """C given entry by entry; symmetry and positivity are checked when it is made."""

    matrix: Array
    root: Array
    order: ClassVar[int] = 3

    def __init__(self, matrix: ArrayLike) -> None:
        values = as_floats(matrix, "A covariance matrix", ndim=2)
        _refuse_asymmetric(values)
        values = (values + values.T) / 2
        object.__setattr__(self, "matrix", frozen(values))
        object.__setattr__(self, "root", frozen(_square_root(values)))

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[0])

    def trace(self) -> float:
        return float(np.trace(self.matrix))

    def diagonal(self) -> Array:
        return self.matrix.diagonal()

    def to_dense(self) -> Array:
        return self.matrix.copy()

    def __matmul__(self, block: Array) -> Array:
        return self.matrix @ block

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        return rng.standard_normal((n, self.dimension)) @ self.root.T

    def _product(self, other: Covariance) -> float:
        return float(np.vdot(self.matrix, other.to_dense()))


def _refuse_asymmetric(matrix: Array) -> None:
    if matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise InputError(f"A covariance matrix must be square; it came with shape {matrix.shape}.")
    asymmetry = np.abs(matrix - matrix.T).max()
    if asymmetry > _ROUNDING * np.abs(matrix).max():
        raise InputError(
            f"A covariance matrix must be symmetric; two mirrored entries differ by {asymmetry:.3g}. "
            "If that is rounding, give (C + C.T) / 2."
        )


def _square_root(matrix: Array) -> Array:
    """R with R Rᵀ = C: Cholesky's where C is definite, the spectral one where it is singular."""
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
    if values[0] < -_ROUNDING * max(values[-1], 0.0):
        raise InputError(
            f"A covariance matrix must be positive semi-definite; its smallest eigenvalue is {values[0]:.3g}."
        ) from None
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


def as_covariance(value: Covariance | ArrayLike, dimension: int) -> Covariance:
    """A number, a vector, a matrix or a ready representation, as a covariance in `dimension` dimensions."""
    if isinstance(value, Covariance):
        covariance = value
    elif np.ndim(value) == 0:
        covariance = Isotropic(float(as_floats(value, "A covariance", ndim=0)), dimension)
    else:
        covariance = Diagonal(value) if np.ndim(value) == 1 else Dense(value)
    if covariance.dimension != dimension:
        raise InputError(
            f"A covariance has dimension {covariance.dimension} where the means have {dimension}; "
            "give a number, p variances, a p × p matrix, or Factor(L) with p rows."
        )
    return covariance
