"""Data that can be drawn: Gaussian mixtures in the scaling of the papers, and the unit sphere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.validation import Array, IntArray, as_count, as_floats, as_number, frozen, squared_norms

Seed = int | np.random.Generator

# Rounding in a matrix product such as A @ A.T leaves asymmetries and negative eigenvalues of order p eps.
_ROUNDING = 1e-10

# The papers place the mean of class a on coordinate 8a.
_PAPER_STRIDE = 8


@dataclass(frozen=True, eq=False)
class Covariance:
    """A covariance C = diag(variances) + L Lᵀ: p numbers for a diagonal, p r for a factor L of r columns.

    Attributes:
        variances: the diagonal part, shape (p,).
        factor: L, shape (p, r); r is 0 for a diagonal covariance.
    """

    variances: Array
    factor: Array

    @classmethod
    def of_variances(cls, variances: ArrayLike) -> Covariance:
        """Construct the diagonal covariance with these variances."""
        values = as_floats(variances, "The diagonal of a covariance", ndim=1)
        if values.size == 0 or values.min() < 0:
            raise InputError("The diagonal of a covariance holds variances: at least one, none negative.")
        return cls(frozen(values), np.zeros((len(values), 0)))

    @classmethod
    def of_factor(cls, factor: ArrayLike) -> Covariance:
        """Construct C = L Lᵀ from L of p rows; its number of columns may be far smaller than p."""
        values = as_floats(factor, "The factor L of a covariance", ndim=2)
        if values.size == 0:
            raise InputError(f"The factor L of a covariance is empty (shape {values.shape}).")
        return cls(np.zeros(len(values)), frozen(values))

    @classmethod
    def of_matrix(cls, matrix: ArrayLike) -> Covariance:
        """Factor a symmetric positive semi-definite matrix: Cholesky, or its eigenvectors where it is singular."""
        values = as_floats(matrix, "A covariance matrix", ndim=2)
        if values.shape[0] != values.shape[1] or values.size == 0:
            raise InputError(f"A covariance matrix must be square; got shape {values.shape}.")
        asymmetry = np.abs(values - values.T).max()
        if asymmetry > _ROUNDING * np.abs(values).max():
            raise InputError(
                f"A covariance matrix must be symmetric; two mirrored entries differ by {asymmetry:.3g}. "
                "If that is rounding, give (C + C.T) / 2."
            )
        symmetric = (values + values.T) / 2
        try:
            return cls.of_factor(np.linalg.cholesky(symmetric))
        except np.linalg.LinAlgError:
            spectrum, vectors = np.linalg.eigh(symmetric)
        if spectrum[0] < -_ROUNDING * max(spectrum[-1], 0.0):
            raise InputError(
                f"A covariance matrix must be positive semi-definite; its smallest eigenvalue is {spectrum[0]:.3g}."
            )
        return cls.of_factor(vectors * np.sqrt(np.maximum(spectrum, 0.0)))

    @property
    def dimension(self) -> int:
        """The number p of rows and columns."""
        return len(self.variances)

    @property
    def is_diagonal(self) -> bool:
        """Whether C is given by its diagonal alone."""
        return bool(self.factor.shape[1] == 0)

    def diagonal(self) -> Array:
        """Return the p diagonal entries of C."""
        return self.variances + squared_norms(self.factor)

    def to_dense(self) -> Array:
        """Return C as a p × p array."""
        return np.diag(self.variances) + self.factor @ self.factor.T

    def __matmul__(self, block: Array) -> Array:
        return self.variances[:, None] * block + self.factor @ (self.factor.T @ block)

    def trace_product(self, other: Covariance) -> float:
        """Return tr(C C'); the part of two factors is ||L'ᵀ L||_F², which cannot be negative."""
        mixed = self.variances @ other.diagonal() + other.variances @ squared_norms(self.factor)
        return float(mixed + np.sum((other.factor.T @ self.factor) ** 2))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n independent vectors from N(0, C), in rows."""
        if self.is_diagonal:
            return rng.standard_normal((n, self.dimension)) * np.sqrt(self.variances)
        return rng.standard_normal((n, self.factor.shape[1])) @ self.factor.T


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GaussianMixture(Shown):
    """A Gaussian mixture of K classes, x ~ N(μ_a/√p, C_a/p) in class a: docs/theory.md (4.1).

    Args:
        means: the μ_a in rows, shape (K, p).
        covariances: one C_a per class: a number (a multiple of the identity), p variances (a diagonal),
            a p × p matrix, or `Covariance.of_factor(L)` for C_a = L Lᵀ. One number applies to all classes.
        weights: relative class weights, divided by their sum; equal if None.
    """

    _shown = ("classes", "p", "weights", "traces")

    means: Array
    covariances: tuple[Covariance, ...]
    weights: Array

    def __init__(
        self,
        means: ArrayLike,
        covariances: float | Iterable[Covariance | ArrayLike],
        weights: ArrayLike | None = None,
    ) -> None:
        centres = as_floats(means, "means", ndim=2)
        if centres.size == 0:
            raise InputError(f"means is empty (shape {centres.shape}): give one mean per class, in rows.")
        object.__setattr__(self, "means", frozen(centres))
        object.__setattr__(self, "covariances", _covariances(covariances, *centres.shape))
        shares = as_floats(np.ones(len(centres)) if weights is None else weights, "weights", ndim=1)
        if len(shares) != len(centres):
            raise InputError(
                f"Got {len(shares)} weights for {len(centres)} means; give one weight per class."
            )
        if shares.min() < 0 or shares.sum() <= 0:
            raise InputError(f"weights must not be negative and not all zero; got {shares.tolist()}.")
        object.__setattr__(self, "weights", frozen(np.asarray(shares / shares.sum())))

    @classmethod
    def paper(cls, p: int, classes: int = 2, mean: float = 8.0, gap: float = 8.0) -> GaussianMixture:
        """Construct the papers' mixture: μ_a = mean · e_{8a}, C_a = (1 + gap · a/√p) I, a = 0 … K-1, equal weights."""
        p, classes = as_count(p, "p"), as_count(classes, "classes")
        if p <= _PAPER_STRIDE * (classes - 1):
            raise InputError(
                f"The papers' mixture puts the mean of class {classes - 1} on coordinate "
                f"{_PAPER_STRIDE * (classes - 1)}; p = {p} is too small, take p larger."
            )
        means = np.zeros((classes, p))
        means[np.arange(classes), _PAPER_STRIDE * np.arange(classes)] = mean
        return cls(means, [1.0 + gap * a / np.sqrt(p) for a in range(classes)])

    @property
    def classes(self) -> int:
        """The number K of classes."""
        return int(self.means.shape[0])

    @property
    def p(self) -> int:
        """The dimension of the data."""
        return int(self.means.shape[1])

    @property
    def mean_gram(self) -> Array:
        """The inner products <μ_a, μ_b>, shape (K, K), without the 1/p that the data carry."""
        return np.asarray(self.means @ self.means.T)

    @property
    def traces(self) -> Array:
        """The traces tr C_a."""
        return np.array([covariance.diagonal().sum() for covariance in self.covariances])

    def trace_product(self, a: int, b: int) -> float:
        """Return tr(C_a C_b)."""
        return self.covariances[a].trace_product(self.covariances[b])

    def class_sizes(self, n: int) -> IntArray:
        """Return the number of samples of each class among n: see `largest_remainder`."""
        return largest_remainder(self.weights, as_count(n, "n"))

    def sample(self, n: int, seed: Seed = 0, *, shuffled: bool = False) -> tuple[Array, IntArray]:
        """Draw n samples, in rows, with their classes 0 … K-1.

        The class sizes are not random: each class gets its share n·w_a, rounded by largest remainder, so that
        the theory's n_a/n are the weights up to 1/n. Rows are sorted by class, so that kernels show their blocks,
        unless `shuffled`.
        """
        rng = np.random.default_rng(seed)
        sizes = self.class_sizes(n)
        labels = np.repeat(np.arange(self.classes), sizes)
        noise = np.vstack([c.draw(int(size), rng) for c, size in zip(self.covariances, sizes, strict=True)])
        samples = (self.means[labels] + noise) / np.sqrt(self.p)
        order = rng.permutation(n) if shuffled else np.arange(n)
        return samples[order], labels[order]


@dataclass(frozen=True)
class UnitSphere:
    """The uniform distribution on the unit sphere of R^p: docs/theory.md section 8."""

    p: int

    def __post_init__(self) -> None:
        as_count(self.p, "p")

    def sample(self, n: int, seed: Seed = 0) -> Array:
        """Draw n independent unit vectors, in rows."""
        directions = np.random.default_rng(seed).standard_normal((as_count(n, "n"), self.p))
        return np.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True))


def largest_remainder(weights: Array, n: int) -> IntArray:
    """Split n by weights into whole numbers: n·w_a rounded down, the rest to the largest fractions, ties to the first.

    Fractions are compared to 1e-9, or else rounding in the weights would decide between equal classes.
    """
    shares = n * weights
    sizes = np.floor(np.round(shares, 9)).astype(np.intp)
    fractions = np.round(shares - sizes, 9)
    sizes[np.argsort(-fractions, kind="stable")[: n - int(sizes.sum())]] += 1
    return sizes


def _covariances(values: Any, classes: int, dimension: int) -> tuple[Covariance, ...]:
    if isinstance(values, Covariance):
        raise InputError(f"covariances must list one covariance for each of the {classes} classes.")
    shared = isinstance(values, int | float | np.number | np.ndarray) and np.ndim(values) == 0
    each = [values] * classes if shared else list(values)
    if len(each) != classes:
        raise InputError(f"Got {len(each)} covariances for {classes} means; give one covariance per class.")
    return tuple(_as_covariance(value, dimension) for value in each)


def _as_covariance(value: Covariance | ArrayLike, dimension: int) -> Covariance:
    """Convert a number, a vector, a matrix or a `Covariance` to a covariance in `dimension` dimensions."""
    if isinstance(value, Covariance):
        covariance = value
    elif np.ndim(value) == 0:
        variance = as_number(float(as_floats(value, "A covariance", ndim=0)), "An isotropic covariance")
        covariance = Covariance.of_variances(np.full(dimension, variance))
    else:
        covariance = Covariance.of_variances(value) if np.ndim(value) == 1 else Covariance.of_matrix(value)
    if covariance.dimension != dimension:
        raise InputError(
            f"A covariance has dimension {covariance.dimension} where the means have {dimension}; "
            "give a number, p variances, a p × p matrix, or Covariance.of_factor(L) with p rows."
        )
    return covariance
