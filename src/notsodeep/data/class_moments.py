"""What is kept of one class so that the statistics of a mixture can be estimated without bias.

Two forms with the same answers: `CentredRows` (the samples themselves, for a class with fewer samples than
dimensions) and `ScatterMoments` (p × p, for a class with more, and for data that come in chunks). Of a class in
memory the smaller form is kept; data that come in chunks need p × p numbers for each class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.validation import Array, squared_norms


@dataclass(frozen=True, eq=False)
class CentredRows:
    """The samples of a class less their mean x̄."""

    mean: Array
    rows: Array  # x_i - x̄, shape (count, p)

    @classmethod
    def of(cls, X: Array) -> CentredRows:
        """The class with samples X."""
        mean = X.mean(axis=0)
        return cls(mean, X - mean)

    @property
    def count(self) -> int:
        """The number n_a of samples in the class."""
        return len(self.rows)

    @property
    def total(self) -> float:
        """Σ ||x_i - x̄||²."""
        return float(np.vdot(self.rows, self.rows))

    @property
    def quartic(self) -> float:
        """Σ ||x_i - x̄||⁴."""
        return float(np.sum(squared_norms(self.rows) ** 2))

    def overlap(self, other: ClassMoments) -> float:
        """tr(W_a W_b), W = Σ (x_i - x̄)(x_i - x̄)ᵀ: ||R_a R_bᵀ||_F² or tr(R_a W_b R_aᵀ)."""
        if isinstance(other, CentredRows):
            return float(np.sum((self.rows @ other.rows.T) ** 2))
        return float(np.vdot(self.rows, self.rows @ other.scatter))


@dataclass(frozen=True, eq=False)
class ScatterMoments:
    """Central moments of a class, in a form that adds up over chunks."""

    count: int
    mean: Array
    scatter: Array  # W = Σ d dᵀ, d = x_i - x̄, shape (p, p)
    cubic: Array  # Σ ||d||² d, shape (p,); used only when the mean moves in a merge
    quartic: float  # Σ ||d||⁴

    @classmethod
    def empty(cls, p: int) -> ScatterMoments:
        """A class without samples."""
        return cls(0, np.zeros(p), np.zeros((p, p)), np.zeros(p), 0.0)

    @classmethod
    def of(cls, X: Array) -> ScatterMoments:
        """The class with samples X."""
        mean = X.mean(axis=0)
        centred = X - mean
        norms = squared_norms(centred)
        return cls(len(X), mean, centred.T @ centred, norms @ centred, float(norms @ norms))

    @property
    def total(self) -> float:
        """Σ ||x_i - x̄||²."""
        return float(np.trace(self.scatter))

    def overlap(self, other: ClassMoments) -> float:
        """The trace tr(W_a W_b) of the product of two scatter matrices."""
        if isinstance(other, CentredRows):
            return other.overlap(self)
        return float(np.vdot(self.scatter, other.scatter))

    def merge(self, other: ScatterMoments) -> ScatterMoments:
        """The moments of both sets of samples together."""
        if not self.count or not other.count:
            return other if not self.count else self
        count = self.count + other.count
        step = other.mean - self.mean
        left = self._about(-other.count / count * step)
        right = other._about(self.count / count * step)
        mean = self.mean + other.count / count * step
        return ScatterMoments(count, mean, left[0] + right[0], left[1] + right[1], left[2] + right[2])

    def _about(self, shift: Array) -> tuple[Array, Array, float]:
        """The moments about x̄ - shift, where each d becomes d + shift.

        Expanding with Σ d = 0 and s = shift:
        Σ(d+s)(d+s)ᵀ = W + n s sᵀ;  Σ||d+s||²(d+s) = Σ||d||²d + (tr W + n||s||²) s + 2 W s;
        Σ||d+s||⁴ = Σ||d||⁴ + 4 s·Σ||d||²d + 4 sᵀW s + 2||s||² tr W + n||s||⁴.
        Moments about the mean are merged, not raw sums: raw fourth powers cancel when the mean is large.
        """
        square, pushed = float(shift @ shift), self.scatter @ shift
        moved = self.count * square
        scatter = self.scatter + self.count * np.outer(shift, shift)
        cubic = self.cubic + (self.total + moved) * shift + 2 * pushed
        quartic = self.quartic + 4 * float(shift @ (self.cubic + pushed)) + square * (2 * self.total + moved)
        return scatter, cubic, quartic


ClassMoments = CentredRows | ScatterMoments


def class_moments(X: Array) -> ClassMoments:
    """The smaller of the two forms for a class with samples X."""
    return CentredRows.of(X) if X.shape[0] <= X.shape[1] else ScatterMoments.of(X)


def covariance_product(left: ClassMoments, right: ClassMoments) -> float:
    """tr(Σ_a Σ_b) without bias from two different classes.

    The sample covariances W_a/(n_a-1) and W_b/(n_b-1) are unbiased and independent, so the expectation of the
    trace of their product is the trace of the product of their expectations: the plug-in needs no correction.
    """
    return left.overlap(right) / ((left.count - 1) * (right.count - 1))


def covariance_square(moments: ClassMoments) -> float:
    """tr(Σ²) of one class without bias, whatever the distribution, from n ≥ 4 samples.

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
