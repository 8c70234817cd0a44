"""What labelled samples say about a regression from n of them, in closed form: docs/theory.md (11.15)–(11.17).

A kernel matrix of n samples gives the prediction at each of them from the n - 1 others without solving n systems. The
same holds for a network of finite width m whose readout is trained by ridge: over random networks its prediction is, in
the mean, that of the kernel with a larger ridge λ', and its variance is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from notsodeep.learning.gaussian_scores import matrix_root, normal_points
from notsodeep.validation import Array, IntArray

# Points that stand for draws of random networks.
_NETWORKS = 64
# Ridges at which a pool is read, the shares of N between which df₁ is trusted, and the least number of points of a fit.
_RIDGES, _WINDOW, _LEAST = 80, (0.2, 0.6), 5
# Step of the derivative of df₁ in log κ.
_STEP = 1e-2


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
        """Diagonalise, O(n³)."""
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

    def at(self, cross: Array, diagonal: Array, ridge: float, width: int | None = None) -> Scores:
        """Scores of new samples, from K(new, training) and K(x, x) of the new ones."""
        penalty = self.network_ridge(ridge, width)
        inverse = 1.0 / (self.values + penalty)
        rotated = cross @ self.vectors
        scores = rotated @ (inverse[:, None] * (self.vectors.T @ self.targets)) + self.mean
        if width is None:
            return Scores(scores, None, None)
        lengths = diagonal - rotated**2 @ (inverse * (1.0 + penalty * inverse))
        return Scores(scores, np.maximum(lengths, 0.0), self._network_noise(penalty, width))

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


@dataclass(frozen=True, eq=False)
class PoolCurves:
    """Population quantities along the effective ridge κ, as a pool of N samples shows them: docs/theory.md (11.17).

    They are read off where df₁ is at most three fifths of N, and continued by power laws fitted from a fifth on. Nearer
    to N the smallest eigenvalues of the matrix decide, and those are not the population's.

    Attributes:
        log_kappa: logarithms of κ, ascending.
        logs: logarithms of df₁, b and G of (11.5), shape (3, len(log_kappa)).
        slopes: exponents of the power laws below the smallest κ.
    """

    log_kappa: Array
    logs: Array
    slopes: Array

    @classmethod
    def of(cls, trained: TrainedKernel) -> PoolCurves:
        """From one kernel matrix, at many ridges: λ/κ = λ tr(K + λI)⁻¹."""
        n = len(trained.values)
        ridges = float(trained.values.sum()) / n * np.geomspace(1e-7, 1e4, _RIDGES)
        rows = np.array([cls._at(trained, float(ridge)) for ridge in ridges])
        rows = rows[rows[:, 1] <= _WINDOW[1] * n]
        fitted = rows[:, 1] >= _WINDOW[0] * n
        fitted[:_LEAST] = True
        logs = np.log(np.maximum(rows, np.finfo(float).tiny))
        slopes = [np.polyfit(logs[fitted, 0], logs[fitted, k], 1)[0] for k in (1, 2, 3)]
        return cls(logs[:, 0], logs[:, 1:].T, np.array(slopes))

    @staticmethod
    def _at(trained: TrainedKernel, ridge: float) -> tuple[float, float, float, float]:
        """κ, df₁, b and G at one ridge."""
        n, outputs = trained.targets.shape
        inverse = 1.0 / (trained.values + ridge)
        kappa = 1.0 / float(inverse.sum())
        degrees = n - ridge / kappa
        # df₂ = df₁ + κ df₁'(κ), with dκ/dλ = κ² tr(K + λI)⁻².
        slope = kappa**2 * float(inverse @ inverse)
        squared = degrees + kappa * (-1.0 / kappa + ridge * slope / kappa**2) / slope
        errors = trained.left_out(ridge).squared_errors(trained.targets + trained.mean)
        bias = float(errors.mean()) * (1.0 - squared / n)
        # κ yᵀ(K + λI)⁻¹y is bias and penalty together.
        rotated = trained.vectors.T @ trained.targets
        both = kappa * float(np.sum(rotated**2 * inverse[:, None])) / outputs
        return kappa, degrees, bias, both - bias

    def at(self, log_kappa: float) -> tuple[float, float, float]:
        """df₁, b and G at one κ."""
        below = min(log_kappa - self.log_kappa[0], 0.0)
        known = [np.interp(log_kappa, self.log_kappa, values) for values in self.logs]
        degrees, bias, penalty = np.exp(np.array(known) + below * self.slopes)
        return float(degrees), float(bias), float(penalty)

    def error(self, n: int, ridge: float, width: int | None) -> float:
        """The expected squared error, docs/theory.md (11.4) and (11.5)."""
        return self.point(n, ridge, width)[1]

    def point(self, n: int, ridge: float, width: int | None) -> tuple[float, float]:
        """log κ (log ν₂ at finite width), and the expected squared error."""
        features = np.inf if width is None else float(width)

        def excess(log_kappa: float) -> float:
            degrees = self.at(log_kappa)[0]
            if degrees >= min(n, features):
                return -1.0
            return float(np.exp(log_kappa)) * (1.0 - degrees / features) * (n - degrees) - ridge

        place = float(brentq(excess, self.log_kappa[0] - 60.0, self.log_kappa[-1] + 60.0, xtol=1e-10))
        degrees, bias, penalty = self.at(place)
        squared = degrees + (self.at(place + _STEP)[0] - self.at(place - _STEP)[0]) / (2.0 * _STEP)
        share = 0.0 if width is None else 1.0 / (width - squared)
        lost = (squared + share * (degrees - squared) ** 2) / n
        return place, (bias + share * (degrees - squared) * penalty) / max(1.0 - lost, _STEP)


__all__ = ["PoolCurves", "Scores", "TrainedKernel"]
