"""What labelled samples say about a regression from n of them, in closed form: docs/theory.md (11.15)–(11.17).

A kernel matrix of n samples gives the prediction at each of them from the n - 1 others without solving n systems. The
same holds for a network of finite width m whose readout is trained by ridge: over random networks its prediction is, in
the mean, that of the kernel with a larger ridge λ', and its variance is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from notsodeep.errors import InputError
from notsodeep.learning.gaussian_scores import matrix_root, normal_points
from notsodeep.validation import Array, IntArray

# Points that stand for draws of random networks.
_NETWORKS = 64


@dataclass(frozen=True, eq=False)
class TrainedKernel:
    """The kernel matrix of training samples, diagonalised: every ridge and every width from one decomposition.

    Attributes:
        values: eigenvalues of K.
        vectors: eigenvectors in columns.
        targets: of the training samples, their mean taken out, shape (n, outputs).
        mean: that mean.
    """

    values: Array
    vectors: Array
    targets: Array
    mean: Array

    @classmethod
    def of(cls, kernel: Array, targets: Array, *, intercept: bool) -> TrainedKernel:
        """Diagonalise the kernel matrix, and take the mean out of the targets if there is an intercept."""
        values, vectors = np.linalg.eigh(kernel)
        mean = targets.mean(axis=0) if intercept else np.zeros(targets.shape[1])
        return cls(np.maximum(values, 0.0), vectors, targets - mean, mean)

    def degrees_of_freedom(self, ridge: float) -> float:
        """tr K(K + λI)⁻¹."""
        return float(np.sum(self.values / (self.values + ridge)))

    def ridge_with(self, kappa: float) -> float:
        """λ at which 1/tr(K + λI)⁻¹, the effective ridge of these samples, is κ."""

        def excess(log_ridge: float) -> float:
            return -float(np.log(np.sum(1.0 / (self.values + np.exp(log_ridge))))) - float(np.log(kappa))

        # κ ≤ (λ + tr K)/n and κ ≥ λ/n.
        high = float(np.log(kappa * len(self.values)))
        low = high - 40.0
        return float(np.exp(low if excess(low) >= 0.0 else brentq(excess, low, high, xtol=1e-10)))

    def network_ridge(self, ridge: float, width: int | None) -> float:
        """λ' with λ = λ' (1 - df₁(λ')/m), docs/theory.md (11.16); λ itself for the kernel."""
        if width is None:
            return ridge
        # λ' df₁(λ') ≤ tr K, so that λ' ≤ λ + tr K/m.
        high = ridge + float(self.values.sum()) / width

        def excess(penalty: float) -> float:
            return penalty * (1.0 - self.degrees_of_freedom(penalty) / width) - ridge

        low = max(ridge, 1e-15 * high)
        return low if excess(low) >= 0.0 else float(brentq(excess, low, high, xtol=1e-15 * high, rtol=1e-12))

    def left_out(self, ridge: float, width: int | None = None) -> Scores:
        """Scores of each training sample by the regression from all others, docs/theory.md (11.15)."""
        penalty = self.network_ridge(ridge, width)
        inverse = 1.0 / (self.values + penalty)
        squares = self.vectors**2
        diagonal = squares @ inverse  # of B = (K + λ'I)⁻¹
        solved = self.vectors @ (inverse[:, None] * (self.vectors.T @ self.targets))
        scores = self.targets - solved / diagonal[:, None] + self.mean
        if width is None:
            return Scores(scores, None, None)
        # λ'²|Q φ|² for the sample that is left out, Q = (ΦᵀΦ + λ'I)⁻¹ of the others.
        lengths = 1.0 / diagonal - penalty * (squares @ inverse**2) / diagonal**2
        return Scores(scores, np.maximum(lengths, 0.0), self._network_noise(penalty, width))

    def left_out_errors(self, inverse: Array) -> Array:
        """Mean squared errors of left-out scores at several ridges, given 1/(values + ridge) in columns."""
        diagonal = self.vectors**2 @ inverse
        rotated = self.vectors.T @ self.targets
        total = np.zeros(inverse.shape[1])
        for output in range(rotated.shape[1]):
            residuals = self.vectors @ (inverse * rotated[:, [output]]) / diagonal
            total += np.mean(residuals**2, axis=0)
        return np.asarray(total / rotated.shape[1])

    def at(self, rotated: Array, diagonal: Array, ridge: float, width: int | None = None) -> Scores:
        """Scores of new samples, from K(new, training) in the eigenvectors and K(x, x) of the new ones."""
        penalty = self.network_ridge(ridge, width)
        inverse = 1.0 / (self.values + penalty)
        scores = rotated @ (inverse[:, None] * (self.vectors.T @ self.targets)) + self.mean
        if width is None:
            return Scores(scores, None, None)
        lengths = diagonal - rotated**2 @ (inverse * (1.0 + penalty * inverse))
        return Scores(scores, np.maximum(lengths, 0.0), self._network_noise(penalty, width))

    def network_covariance(self, rotated: Array, own: Array, ridge: float, width: int) -> Array:
        """How new samples move together from network to network: λ'²φᵀQ²φ' of (11.21), shape (new, new).

        Args:
            rotated: K(new, training) in the eigenvectors.
            own: K(new, new).
            ridge: λ.
            width: m.
        """
        penalty = self.network_ridge(ridge, width)
        inverse = 1.0 / (self.values + penalty)
        return np.asarray(own - (rotated * (inverse * (1.0 + penalty * inverse))) @ rotated.T)

    def own_network_covariance(self, count: int, ridge: float, width: int) -> Array:
        """The same for the first training samples, which are not left out here."""
        penalty = self.network_ridge(ridge, width)
        weights = self.values * (penalty / (self.values + penalty)) ** 2
        some = self.vectors[:count]
        return np.asarray((some * weights) @ some.T)

    def _network_noise(self, penalty: float, width: int) -> Array:
        """ρ |w̄|², (outputs, outputs): how much one network differs from the mean, for a sample of length 1."""
        shares = self.values / (self.values + penalty)
        rotated = self.vectors.T @ self.targets
        norm = rotated.T @ (rotated * (shares / (self.values + penalty))[:, None])
        return np.asarray(norm / max(width - float(shares @ shares), 1e-9 * width))


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of samples, in the mean over networks, and their variance: lengths_i · noise; none for the kernel."""

    mean: Array
    lengths: Array | None
    noise: Array | None

    def first(self, count: int) -> Scores:
        """Those of the first samples."""
        lengths = None if self.lengths is None else self.lengths[:count]
        return Scores(self.mean[:count], lengths, self.noise)

    def network_hits(self, covariance: Array, classes: IntArray, number: int) -> Array:
        """Which samples single random networks classify rightly, shape (number, samples).

        Args:
            covariance: of the scores between samples; each sample is then scaled to its own variance.
            classes: of the samples.
            number: of random networks.
        """
        if self.lengths is None or self.noise is None:
            raise InputError("These are scores of a kernel: no network is random.")
        scale = np.sqrt(self.lengths / np.maximum(covariance.diagonal(), np.finfo(float).tiny))
        root = scale[:, None] * matrix_root(covariance)
        rng = np.random.default_rng(0)
        mixing = matrix_root(self.noise)
        found = [
            _right(self.mean + root @ rng.standard_normal((root.shape[1], len(mixing))) @ mixing.T, classes)
            for _ in range(number)
        ]
        return np.array(found, dtype=np.float64)

    def squared_errors(self, targets: Array) -> Array:
        """Expected squared error of each sample, averaged over outputs."""
        errors = np.mean((self.mean - targets) ** 2, axis=1)
        if self.lengths is None or self.noise is None:
            return np.asarray(errors)
        return np.asarray(errors + self.lengths * np.trace(self.noise) / len(self.noise))

    def hits(self, classes: IntArray) -> Array:
        """The chance that each sample is given its class."""
        if self.lengths is None or self.noise is None:
            return _right(self.mean, classes).astype(np.float64)
        draws = normal_points(_NETWORKS, len(self.noise)) @ matrix_root(self.noise).T
        total = np.zeros(len(classes))
        for draw in draws:
            total += _right(self.mean + np.sqrt(self.lengths)[:, None] * draw, classes)
        return total / len(draws)


def _right(scores: Array, classes: IntArray) -> Array:
    found = (scores[:, 0] > 0.0) if scores.shape[1] == 1 else scores.argmax(axis=1)
    return np.asarray(found == classes)


__all__ = ["Scores", "TrainedKernel"]
