"""Data that can be drawn: Gaussian mixtures in the scaling of the papers, and the unit sphere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.data.covariances import Covariance, as_covariance
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.validation import Array, IntArray, as_count, as_floats, frozen

Seed = int | np.random.Generator

# The papers place the mean of class a on coordinate 8a.
_PAPER_STRIDE = 8


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GaussianMixture(Shown):
    """K classes, x ~ N(μ_a/√p, C_a/p) in class a: docs/theory.md (4.1).

    Args:
        means: the μ_a in rows, shape (K, p).
        covariances: one C_a per class: a number (a multiple of the identity), p variances (a diagonal),
            a p × p matrix, or `Factor(L)` for C_a = L Lᵀ. A lone number serves all classes.
        weights: relative class weights, divided by their sum; equal when left out.
    """

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
        object.__setattr__(self, "weights", frozen(_weights(weights, len(centres))))

    @classmethod
    def paper(cls, p: int, classes: int = 2, mean: float = 8.0, gap: float = 8.0) -> GaussianMixture:
        """The papers' mixture: μ_a = mean · e_{8a}, C_a = (1 + gap · a/√p) I, a = 0 … K-1, equal weights."""
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

    def trace(self, a: int) -> float:
        """The trace tr C_a."""
        return self.covariances[a].trace()

    def trace_product(self, a: int, b: int) -> float:
        """The trace tr(C_a C_b), at the cost of the cheaper of the two representations."""
        return self.covariances[a].trace_product(self.covariances[b])

    def class_sizes(self, n: int) -> IntArray:
        """How many of n samples each class gets: see `largest_remainder`."""
        return largest_remainder(self.weights, as_count(n, "n"))

    def sample(self, n: int, seed: Seed = 0, *, shuffled: bool = False) -> tuple[Array, IntArray]:
        """Draw n samples, in rows, and give their classes 0 … K-1.

        The class sizes are not random: each class gets its share n·w_a, rounded by largest remainder, so that
        the theory's n_a/n are the weights up to 1/n. Rows stand class by class (the kernels then show their
        blocks) unless `shuffled`; shuffling moves whole samples and changes none of them.
        """
        rng = np.random.default_rng(seed)
        sizes = self.class_sizes(n)
        labels = np.repeat(np.arange(self.classes), sizes)
        noise = np.vstack([c.draw(int(size), rng) for c, size in zip(self.covariances, sizes, strict=True)])
        samples = (self.means[labels] + noise) / np.sqrt(self.p)
        order = rng.permutation(n) if shuffled else np.arange(n)
        return samples[order], labels[order]

    def _facts(self) -> dict[str, Any]:
        return {
            "classes": self.classes,
            "p": self.p,
            "weights": self.weights,
            "covariances": [type(one).__name__ for one in self.covariances],
        }


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
    """Whole shares of n: n·w_a rounded down, the rest to the largest fractions, ties to the first.

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
        raise InputError(f"{len(each)} covariances came for {classes} means; give one covariance per class.")
    return tuple(as_covariance(value, dimension) for value in each)


def _weights(values: ArrayLike | None, classes: int) -> Array:
    if values is None:
        return np.full(classes, 1.0 / classes)
    weights = as_floats(values, "weights", ndim=1)
    if len(weights) != classes:
        raise InputError(f"{len(weights)} weights came for {classes} means; give one weight per class.")
    if weights.min() < 0 or weights.sum() <= 0:
        raise InputError(f"weights must not be negative and not all zero; they came as {weights.tolist()}.")
    return np.asarray(weights / weights.sum())
