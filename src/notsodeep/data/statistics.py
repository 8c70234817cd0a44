"""The statistics of a mixture that its kernels depend on: τ0, t, T and ψ of docs/theory.md (4.2)–(4.4).

Exact from a `GaussianMixture` (`MixtureStatistics.of`), or estimated from labelled samples alone, at once (`.estimate`)
or chunk by chunk (`.of_chunks`).

In the units of the data, Σ_a = C_a/p is the covariance of x in class a, so that τ0² = Σ (n_a/n) tr Σ_a,
t_a = √p (tr Σ_a - τ0²) and T_ab = p tr(Σ_a Σ_b).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.data.class_moments import ClassMoments, covariance_product, covariance_square
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
        counts = _checked_sizes(sizes, mixture.classes)
        every = range(mixture.classes)
        return _class_statistics(
            traces=np.array([mixture.trace(a) for a in every]) / mixture.p,
            products=_symmetric(mixture.classes, mixture.trace_product) / mixture.p**2,
            sizes=counts,
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
        """ψ_i = ||x_i - E x_i||² - E||x_i - E x_i||² (4.4) of the samples themselves, all of them or a chunk.

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

    def _with_rows(self, codes: IntArray, psi: Array) -> MixtureStatistics:
        known = {field.name: getattr(self, field.name) for field in fields(ClassStatistics)}
        return MixtureStatistics(**known, labels=frozen(codes), psi=frozen(psi))

    def _facts(self) -> dict[str, Any]:
        return {
            "tau0": self.tau0,
            "n": self.n,
            "p": self.p,
            "classes": len(self.sizes),
            "sizes": self.sizes,
            "t": self.t,
            "exact": self.exact,
        }


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
        known = ClassStatistics.of_mixture(mixture, sizes)
        return known._with_rows(codes, known._psi(samples, codes))

    @classmethod
    def estimate(cls, X: ArrayLike, y: ArrayLike | None = None) -> MixtureStatistics:
        """Estimate the statistics from labelled samples: τ0², t and T without bias for any p/n, ψ by leave-one-out.

        With `y=None` all samples belong to one class. Each class needs four samples. The cost is O(n² p) for classes
        smaller than p, O(n p²) for larger ones, and the memory that of the data.
        """
        samples = as_rows(X)
        classes, codes = _coded(y, len(samples))
        _refuse_small_classes(np.bincount(codes), classes)
        moments = [ClassMoments.of(samples[codes == a]) for a in range(len(classes))]
        known = _estimated(moments, classes)
        return known._with_rows(codes, known._psi(samples, codes))

    @classmethod
    def of_chunks(
        cls, chunks: Callable[[], Iterable[tuple[ArrayLike, ArrayLike]]], p: int, classes: ArrayLike
    ) -> MixtureStatistics:
        """Estimate the statistics of data that are read in chunks; up to rounding, those of all data at once.

        Keeps at most a p × p matrix per class. ψ_i needs the class means of all data, hence a second pass, of O(np)
        operations.

        Args:
            chunks: called twice; each call iterates over the samples and labels of all chunks.
            p: the dimension of the data.
            classes: every label that occurs in the data.
        """
        names = np.unique(as_labels(classes, None, "classes"))
        if names.size == 0:
            raise InputError("classes is empty: list every label that occurs in the data.")
        moments: dict[int, ClassMoments] = {}
        labels: list[IntArray] = []
        for X, y in chunks():
            samples = as_rows(X, columns=p)
            codes = label_codes(y, names, len(samples))
            labels.append(codes)
            for a in np.unique(codes).tolist():
                found = ClassMoments.of(samples[codes == a])
                moments[a] = moments[a].merge(found) if a in moments else found
        every = np.concatenate(labels) if labels else np.zeros(0, dtype=np.intp)
        _refuse_small_classes(np.bincount(every, minlength=len(names)), names)
        known = _estimated([moments[a] for a in range(len(names))], names)
        psi = [known._psi(as_rows(X), codes) for (X, _), codes in zip(chunks(), labels, strict=True)]
        return known._with_rows(every, np.concatenate(psi))

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


def _estimated(moments: Sequence[ClassMoments], classes: NDArray[Any]) -> ClassStatistics:
    sizes = np.array([m.count for m in moments], dtype=np.intp)
    totals = np.array([m.total for m in moments])
    _refuse_constant_classes(totals, moments, classes)

    def product(a: int, b: int) -> float:
        return covariance_square(moments[a]) if a == b else covariance_product(moments[a], moments[b])

    return _class_statistics(
        traces=totals / (sizes - 1),
        products=_symmetric(len(moments), product),
        sizes=sizes,
        classes=classes,
        means=np.stack([m.mean for m in moments]),
        exact=False,
    )


def _symmetric(size: int, entry: Callable[[int, int], float]) -> Array:
    """A matrix whose entries are computed once for each pair, so that rounding cannot make it asymmetric."""
    matrix = np.empty((size, size))
    for a in range(size):
        for b in range(a + 1):
            matrix[a, b] = matrix[b, a] = entry(a, b)
    return matrix


def _coded(y: ArrayLike | None, n: int) -> tuple[NDArray[Any], IntArray]:
    if y is None:
        return np.zeros(1, dtype=np.intp), np.zeros(n, dtype=np.intp)
    classes, codes = np.unique(as_labels(y, n), return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"y holds only the class {classes[0]!r}; a mixture needs two or more. "
            "To treat all samples as one class, leave y out."
        )
    return classes, codes.astype(np.intp)


def _checked_sizes(sizes: ArrayLike, classes: int) -> IntArray:
    counts = np.asarray(sizes)
    if counts.shape != (classes,) or counts.dtype.kind not in "iu" or counts.min() < 0 or not counts.any():
        raise InputError(f"sizes must be {classes} whole numbers, one per class, not all 0; not {sizes!r}.")
    return counts.astype(np.intp)


def _refuse_small_classes(sizes: IntArray, classes: NDArray[Any]) -> None:
    counts = zip(classes.tolist(), sizes.tolist(), strict=True)
    small = {label: size for label, size in counts if size < _LEAST_PER_CLASS}
    if small:
        raise InputError(
            f"Classes with too few samples (label: count): {small}. An unbiased estimate needs "
            f"{_LEAST_PER_CLASS} samples per class; add samples, or drop or join those classes."
        )


def _refuse_constant_classes(totals: Array, moments: Sequence[ClassMoments], classes: NDArray[Any]) -> None:
    squares = np.array([m.count * float(m.mean @ m.mean) for m in moments])
    constant = totals <= _NO_VARIANCE * squares
    if constant.any():
        raise InputError(
            f"All samples of class {classes[constant][0]!r} are equal: no variance, hence no statistics. "
            "Check the features, or drop the class."
        )
