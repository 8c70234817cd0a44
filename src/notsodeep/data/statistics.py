"""The statistics of a mixture that its kernels depend on: τ0, t, T and ψ of docs/theory.md (4.2)–(4.4).

Exact from a `GaussianMixture` (`MixtureStatistics.of`), or estimated from labelled samples alone (`.estimate`).

In the units of the data, Σ_a = C_a/p is the covariance of x in class a, so that τ0² = Σ (n_a/n) tr Σ_a,
t_a = √p (tr Σ_a - τ0²) and T_ab = p tr(Σ_a Σ_b).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.data.mixtures import GaussianMixture
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.validation import (
    Array,
    IntArray,
    as_labels,
    as_rows,
    frozen,
    label_codes,
    squared_norms,
)

# The unbiased estimate of tr(Σ²) averages over quadruples of different samples.
_LEAST_PER_CLASS = 4

# Rounding in the mean of equal rows leaves a variance of order eps² ||mean||², far below this fraction of it.
_NO_VARIANCE = 1e-26


@dataclass(frozen=True, eq=False, repr=False)
class ClassStatistics(Shown):
    """Statistics of the classes of a mixture, without those of single samples.

    Attributes:
        tau0: τ0, the root of the mean variance tr C°/p.
        t: t_a = tr C_a°/√p, shape (K,).
        T: T_ab = tr(C_a C_b)/p, shape (K, K). Positive semi-definite when exact; an estimate is free of bias
            and therefore not forced to be.
        sizes: n_a, shape (K,).
        p: the dimension of the data.
        classes_: the sorted labels of the classes; code a is the class `classes_[a]`.
        means: E x in class a, that is μ_a/√p, exact or estimated, shape (K, p).
        traces: tr Σ_a = tr C_a/p, exact or estimated, shape (K,).
        exact: whether means and traces are the true ones.
    """

    _shown = ("tau0", "n", "p", "classes_", "sizes", "t", "exact")

    tau0: float
    t: Array
    T: Array
    sizes: IntArray
    p: int
    classes_: NDArray[Any]
    means: Array
    traces: Array
    exact: bool

    @classmethod
    def of_mixture(cls, mixture: GaussianMixture, sizes: ArrayLike) -> ClassStatistics:
        """Compute exact statistics from a mixture and the class sizes n_a, without data."""
        counts = np.asarray(sizes)
        whole = counts.shape == (mixture.classes,) and counts.dtype.kind in "iu"
        if not whole or counts.min() < 0 or not counts.any():
            raise InputError(
                f"sizes must be {mixture.classes} whole numbers, one per class, not all 0; not {sizes!r}."
            )
        return _class_statistics(
            traces=mixture.traces / mixture.p,
            products=_symmetric(mixture.classes, mixture.trace_product) / mixture.p**2,
            sizes=counts.astype(np.intp),
            classes=np.arange(mixture.classes),
            means=mixture.means / np.sqrt(mixture.p),
            exact=True,
        )

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.sizes.sum())

    @property
    def weights(self) -> Array:
        """The share n_a/n of each class."""
        return np.asarray(self.sizes / self.n)

    def _psi(self, samples: Array, codes: IntArray) -> Array:
        """ψ_i = ||x_i - E x_i||² - E||x_i - E x_i||² (4.4) of the samples themselves.

        Estimated statistics put the mean and the trace of the OTHER samples of the class in place of the
        expectations: ||x_i - x̄_{-i}||² - (1 + 1/(n_a-1)) tr Σ̂_{-i}. Given x_i, its mean is ψ_i exactly.
        With plain ones, n/(n-1) ||x_i - x̄||² - tr Σ̂, it would be (1 - 2/n) ψ_i, since x_i pulls mean and
        trace towards itself. The first is n/(n-2) times the second, which is how it is computed: O(np).
        """
        residual = samples - self.means[codes]
        squares = squared_norms(residual)
        if self.exact:
            return np.asarray(squares - self.traces[codes])
        n = self.sizes[codes]
        return np.asarray(n / (n - 2) * (n / (n - 1) * squares - self.traces[codes]))

    def _with_rows(self, samples: Array, codes: IntArray) -> MixtureStatistics:
        known = {field.name: getattr(self, field.name) for field in fields(ClassStatistics)}
        return MixtureStatistics(**known, labels=frozen(codes), psi=frozen(self._psi(samples, codes)))


@dataclass(frozen=True, eq=False, repr=False)
class MixtureStatistics(ClassStatistics):
    """Statistics of a mixture together with the label and ψ of every sample.

    Attributes:
        labels: the class of each sample as a code 0 … K-1, shape (n,): J of the theory without its zeros.
        psi: ψ_i, how far the squared norm of each sample is from its expectation, shape (n,).
    """

    labels: IntArray
    psi: Array

    @classmethod
    def of(cls, mixture: GaussianMixture, X: ArrayLike, y: ArrayLike) -> MixtureStatistics:
        """Compute exact statistics from the mixture that X was drawn from; y holds its classes 0 … K-1."""
        samples = as_rows(X, columns=mixture.p)
        codes = label_codes(y, np.arange(mixture.classes), len(samples))
        sizes = np.bincount(codes, minlength=mixture.classes)
        return ClassStatistics.of_mixture(mixture, sizes)._with_rows(samples, codes)

    @classmethod
    def estimate(cls, X: ArrayLike, y: ArrayLike | None = None) -> MixtureStatistics:
        """Estimate the statistics from labelled samples: τ0², t and T without bias for any p/n, ψ by leave-one-out.

        With `y=None` all samples belong to one class. Each class needs four samples. The cost is O(n² p) for classes
        smaller than p, O(n p²) for larger ones, and the memory that of the data.
        """
        samples = as_rows(X)
        labels = np.zeros(len(samples), dtype=np.intp) if y is None else as_labels(y, len(samples))
        classes, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        if y is not None and len(classes) < 2:
            raise InputError(
                f"y holds only the class {classes[0]!r}; a mixture needs two or more. "
                "To treat all samples as one class, leave y out."
            )
        counts = zip(classes.tolist(), sizes.tolist(), strict=True)
        small = {label: size for label, size in counts if size < _LEAST_PER_CLASS}
        if small:
            raise InputError(
                f"Classes with too few samples (label: count): {small}. An unbiased estimate needs "
                f"{_LEAST_PER_CLASS} samples per class; add samples, or drop or join those classes."
            )
        moments = [ClassMoments.of(samples[codes == a]) for a in range(len(classes))]
        for label, one in zip(classes, moments, strict=True):
            if one.total <= _NO_VARIANCE * one.count * float(one.mean @ one.mean):
                raise InputError(
                    f"All samples of class {label!r} are equal: no variance, hence no statistics. "
                    "Check the features, or drop the class."
                )

        def product(a: int, b: int) -> float:
            return covariance_square(moments[a]) if a == b else covariance_product(moments[a], moments[b])

        known = _class_statistics(
            traces=np.array([one.total for one in moments]) / (sizes - 1),
            products=_symmetric(len(moments), product),
            sizes=sizes,
            classes=classes,
            means=np.stack([one.mean for one in moments]),
            exact=False,
        )
        return known._with_rows(samples, codes)

    @property
    def one_hot(self) -> Array:
        """The indicators J of the classes, 0 or 1, shape (n, K)."""
        return np.asarray(np.eye(len(self.sizes))[self.labels])


def _class_statistics(
    *, traces: Array, products: Array, sizes: IntArray, classes: NDArray[Any], means: Array, exact: bool
) -> ClassStatistics:
    """τ0, t, T (docs/theory.md (4.2), (4.3)) from tr Σ_a and tr(Σ_a Σ_b)."""
    p = means.shape[1]
    mean_trace = float(sizes @ traces / sizes.sum())
    return ClassStatistics(
        tau0=float(np.sqrt(mean_trace)),
        t=frozen(np.sqrt(p) * (traces - mean_trace)),
        T=frozen(p * products),
        sizes=frozen(sizes),
        p=p,
        classes_=frozen(classes),
        means=frozen(means),
        traces=frozen(traces),
        exact=exact,
    )


def _symmetric(size: int, entry: Callable[[int, int], float]) -> Array:
    """A matrix whose entries are computed once for each pair, so that rounding cannot make it asymmetric."""
    matrix = np.empty((size, size))
    for a in range(size):
        for b in range(a + 1):
            matrix[a, b] = matrix[b, a] = entry(a, b)
    return matrix


# --- moments of one class ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Central moments of one class, with deviations d = x_i - x̄.

    The scatter matrix W = Σ d dᵀ is kept as R with Rᵀ R = W: the deviations themselves for few samples, else the p × p
    triangle of their QR decomposition. Neither few samples in many dimensions nor many samples in few take much memory.
    """

    count: int
    mean: Array
    root: Array  # R, at most p rows
    quartic: float  # Σ ||d||⁴

    @classmethod
    def of(cls, X: Array) -> ClassMoments:
        """Compute the moments of the samples in the rows of X."""
        mean = X.mean(axis=0)
        deviations = X - mean
        squares = squared_norms(deviations)
        few = len(X) <= X.shape[1]
        root = deviations if few else np.asarray(np.linalg.qr(deviations, mode="r"))
        return cls(len(X), mean, root, float(squares @ squares))

    @property
    def total(self) -> float:
        """The trace tr W = Σ ||d||²."""
        return float(np.vdot(self.root, self.root))

    def overlap(self, other: ClassMoments) -> float:
        """The trace tr(W_a W_b) = ||R_a R_bᵀ||_F² of the product of two scatter matrices."""
        return float(np.sum((self.root @ other.root.T) ** 2))


def covariance_product(left: ClassMoments, right: ClassMoments) -> float:
    """Estimate tr(Σ_a Σ_b) of two different classes without bias.

    The sample covariances W_a/(n_a-1) and W_b/(n_b-1) are unbiased and independent, so the expectation of the
    trace of their product is the trace of the product of their expectations: the plug-in needs no correction.
    """
    return left.overlap(right) / ((left.count - 1) * (right.count - 1))


def covariance_square(moments: ClassMoments) -> float:
    """Estimate tr(Σ²) of one class without bias, whatever the distribution, from n ≥ 4 samples.

    For four different samples, E[((x_i - x_j)·(x_k - x_l))²]/4 = tr(2Σ 2Σ)/4 = tr(Σ²), as the two differences
    are independent with covariance 2Σ. Average this kernel over all quadruples of different indices. It
    does not see a common shift, so put k_ij = (x_i - x̄)·(x_j - x̄), whose rows sum to zero, and expand the
    square: four terms like k_ik², eight like -k_ik k_il, four like k_ik k_jl, hence

        U = P2/(n)_2 - 2 P3/(n)_3 + P4/(n)_4,        (n)_r = n(n-1)…(n-r+1),

    P the sums over different indices. With A = Σ_ij k_ij² = tr(W²), B = Σ_i k_ii = tr W, D = Σ_i k_ii²:
    P2 = A - D; P3 = Σ_i[(Σ_{k≠i} k_ik)² - Σ_{k≠i} k_ik²] = D - (A - D) = 2D - A; and from
    (Σ_{i≠k} k_ik)² = B² = P4 + 4 P3 + 2 P2, P4 = B² + 2A - 6D. Collected:

        U = [(n-1)(n-2) A + B² - n(n-1) D] / (n(n-1)(n-2)(n-3)).

    The plug-in A/(n-1)² keeps the terms i = k and i = l, and is too large by about (tr Σ)²/n. The same U is
    known in the literature on tests of high-dimensional covariances (Himeno and Yamada 2014).
    """
    n, total = moments.count, moments.total
    weighted = (n - 1) * (n - 2) * moments.overlap(moments) + total**2 - n * (n - 1) * moments.quartic
    return weighted / (n * (n - 1) * (n - 2) * (n - 3))
