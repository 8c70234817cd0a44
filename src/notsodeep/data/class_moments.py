"""Central moments of one class, from which the statistics of a mixture are estimated without bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.validation import Array, squared_norms


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Moments of the deviations d = x_i - x̄ of one class, in a form that adds up over chunks.

    The scatter matrix W = Σ d dᵀ is kept as R with Rᵀ R = W: the deviations themselves for few samples, else the p × p
    triangle of their QR decomposition. Neither few samples in many dimensions nor many samples in few take much memory.
    """

    count: int
    mean: Array
    root: Array  # R, at most p rows
    cubic: Array  # Σ ||d||² d, shape (p,); used only when the mean moves in a merge
    quartic: float  # Σ ||d||⁴

    @classmethod
    def of(cls, X: Array) -> ClassMoments:
        """Compute the moments of the samples in the rows of X."""
        mean = X.mean(axis=0)
        deviations = X - mean
        squares = squared_norms(deviations)
        root = _compressed(deviations)
        return cls(len(X), mean, root, squares @ deviations, float(squares @ squares))

    @property
    def total(self) -> float:
        """The trace tr W = Σ ||d||²."""
        return float(np.vdot(self.root, self.root))

    def overlap(self, other: ClassMoments) -> float:
        """The trace tr(W_a W_b) = ||R_a R_bᵀ||_F² of the product of two scatter matrices."""
        return float(np.sum((self.root @ other.root.T) ** 2))

    def merge(self, other: ClassMoments) -> ClassMoments:
        """Compute the moments of both sets of samples together."""
        count = self.count + other.count
        step = other.mean - self.mean
        left = self._about(-other.count / count * step)
        right = other._about(self.count / count * step)
        between = np.sqrt(self.count * other.count / count) * step
        root = _compressed(np.vstack([self.root, other.root, between]))
        mean = self.mean + other.count / count * step
        return ClassMoments(count, mean, root, left[0] + right[0], left[1] + right[1])

    def _about(self, shift: Array) -> tuple[Array, float]:
        """Compute `cubic` and `quartic` about x̄ - shift, where each d becomes d + s, s = shift.

        Expanding with Σ d = 0: Σ||d+s||²(d+s) = Σ||d||²d + (tr W + n||s||²) s + 2 W s and
        Σ||d+s||⁴ = Σ||d||⁴ + 4 s·Σ||d||²d + 4 sᵀW s + 2||s||² tr W + n||s||⁴.
        Moments about the mean are merged, not raw sums: raw fourth powers cancel when the mean is large.
        """
        square, pushed = float(shift @ shift), self.root.T @ (self.root @ shift)
        moved = self.count * square
        cubic = self.cubic + (self.total + moved) * shift + 2 * pushed
        quartic = self.quartic + 4 * float(shift @ (self.cubic + pushed)) + square * (2 * self.total + moved)
        return cubic, quartic


def _compressed(rows: Array) -> Array:
    """At most p rows with the same Rᵀ R: the rows themselves, or the triangle of their QR decomposition."""
    return rows if rows.shape[0] <= rows.shape[1] else np.asarray(np.linalg.qr(rows, mode="r"))


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
