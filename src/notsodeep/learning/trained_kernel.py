"""Leave-one-out predictions of a regression in closed form: docs/theory.md (11.15)–(11.17), (11.29).

A kernel matrix of n samples gives the prediction at each of them from the n - 1 others without solving n systems. The
same holds for a network of finite width m whose readout is trained by ridge: over random networks its prediction is, in
the mean, that of the kernel with a larger ridge λ', and its variance is known. An intercept, which is not penalised,
centres the kernel: everything happens in the n - 1 dimensions that are orthogonal to the constant.

`PoolCurves` are population quantities along the effective ridge, estimated from a pool of labelled samples, (11.17).

n random samples make a regression with ridge λ behave like the regression on the whole population with an effective
ridge κ. A network of finite width m whose readout alone is trained is one more random sample, of features, and makes it
larger still, (11.4). The error follows from two sums over the eigenvalues λ_k of the kernel, the degrees of freedom

    df₁(κ) = Σ λ_k/(λ_k + κ),    df₂(κ) = Σ λ_k²/(λ_k + κ)².
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from notsodeep.linalg.kernel_ridge import RidgePath
from notsodeep.validation import Array, IntArray

# Noise needs single precision only.
Single = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of samples: their mean over networks and the variance of one network.

    Attributes:
        mean: shape (samples, outputs).
        variance: of one network at each sample, averaged over outputs; None where nothing is random, as for a kernel.
    """

    mean: Array
    variance: Array | None = None

    def squared_errors(self, targets: Array) -> Array:
        """Expected squared error of each sample, averaged over outputs."""
        errors = np.mean((self.mean - targets) ** 2, axis=-1)
        return np.asarray(errors if self.variance is None else errors + self.variance)


def is_correct(scores: Array, classes: IntArray) -> Array:
    """Whether the largest score (or, with one output, its sign) is that of the class; scores (…, samples, outputs)."""
    predicted = (scores[..., 0] > 0.0) if scores.shape[-1] == 1 else scores.argmax(axis=-1)
    return np.asarray(predicted == classes)


class TrainedKernel(RidgePath):
    """Regressions with a kernel, and with the features of random networks of finite width."""

    def degrees_of_freedom(self, ridge: float) -> float:
        """tr K(K + λI)⁻¹."""
        return float(np.sum(self.values / (self.values + ridge)))

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

    def held_out(self, ridge: float, width: int | None = None) -> Scores:
        """Scores of each training sample by the regression from all others, docs/theory.md (11.15)."""
        penalty = self.network_ridge(ridge, width)
        scores = self.targets - self.left_out_residuals(np.array([penalty]))[0]
        if width is None or not len(self.values):
            return Scores(scores)
        inverse, squares = 1.0 / (self.values + penalty), self.vectors**2
        diagonal = squares @ inverse
        # λ'²|Q φ|² for the sample that is left out, Q = (ΦᵀΦ + λ'I)⁻¹ of the others.
        lengths = 1.0 / diagonal - penalty * (squares @ inverse**2) / diagonal**2
        return Scores(scores, self._network_variance(penalty, width, lengths))

    def at(self, rotated: Array, diagonal: Array, ridge: float, width: int | None = None) -> Scores:
        """Scores of new samples.

        Args:
            rotated: K(new, training) in the eigenvectors, from `new_samples`.
            diagonal: K(x, x), from `new_samples`; not used without a width.
            ridge: λ.
            width: m; the kernel itself if None.
        """
        penalty = self.network_ridge(ridge, width)
        inverse = 1.0 / (self.values + penalty)
        scores = rotated @ (inverse[:, None] * (self.vectors.T @ self.targets))
        if self.means is not None:
            scores += self.targets.mean(axis=0)
        if width is None:
            return Scores(scores)
        lengths = diagonal - rotated**2 @ (inverse * (1.0 + penalty * inverse))
        return Scores(scores, self._network_variance(penalty, width, lengths))

    def network_noise(
        self, neurons: Single, others: Single, rotated: Array, weights: Array, ridge: float, width: int
    ) -> tuple[Single, Single]:
        """Deviations of scores in random networks, docs/theory.md (11.21), at left-out training samples and new ones.

        Returns two arrays, (networks, n, outputs) and (networks, new, outputs).

        Args:
            neurons: values of single neurons at the training samples, (n, neurons).
            others: the same at the new samples, (new, neurons).
            rotated: K(new, training) in the eigenvectors, from `new_samples`.
            weights: of the neurons in each network, of mean 0 and variance 1, (neurons, networks).
            ridge: λ.
            width: m.
        """
        penalty = self.network_ridge(ridge, width)
        inverse = 1.0 / (self.values + penalty)
        dual = inverse[:, None] * (self.vectors.T @ self.targets)
        if self.means is not None:
            others = others - neurons.mean(axis=0)
        along = self.vectors.astype(np.float32).T @ neurons
        # A neuron minus its prediction from the other samples.
        held_out = (self.vectors / (self.vectors**2 @ inverse)[:, None] * inverse).astype(np.float32) @ along
        new = others - (rotated * inverse).astype(np.float32) @ along
        scaled = np.sqrt(self._network_share(penalty, width) / len(weights)) * weights
        # One product for all networks: (neurons, networks · outputs).
        each = (scaled[:, :, None] * (along.T @ dual)[:, None, :]).astype(np.float32)
        noise = [np.tensordot(surprises, each, axes=1).transpose(1, 0, 2) for surprises in (held_out, new)]
        # The sample that is left out does not contribute to the readout weights of the neurons.
        own = held_out**2 @ scaled.astype(np.float32)
        return noise[0] - own.T[:, :, None] * (self.vectors @ dual).astype(np.float32), noise[1]

    def _network_share(self, penalty: float, width: int) -> float:
        """ρ = 1/(m - df₂)."""
        shares = self.values / (self.values + penalty)
        return 1.0 / max(width - float(shares @ shares), 1e-9 * width)

    def _network_variance(self, penalty: float, width: int, lengths: Array) -> Array:
        """Variance of one network's score around the mean over networks, averaged over outputs, (11.16)."""
        rotated = self.vectors.T @ self.targets
        norm = float(np.sum(rotated**2 * (self.values / (self.values + penalty) ** 2)[:, None]))
        share = self._network_share(penalty, width) * norm / rotated.shape[1]
        return np.asarray(np.maximum(lengths, 0.0) * share)


# Ridges at which a pool is read, the shares of N between which df₁ is trusted, and the least number of points of a fit.
_RIDGES, _WINDOW, _LEAST = 80, (0.2, 0.6), 5
# The least penalty relative to the bias, and the largest exponent of either: neither grows as κ falls.
_NEGLIGIBLE, _STEEPEST = 1e-6, 2.0
# Step of the derivative of df₁ in log κ.
_STEP = 1e-2


def expected_error(
    bias: float,
    penalty: float,
    degrees: float,
    squared: float,
    n: int,
    width: int | None,
    least: float = 0.0,
    free: int = 0,
) -> float:
    """Compute the squared error (11.2), (11.5) of docs/theory.md from population quantities at the effective ridge ν.

    Args:
        bias: squared error of the mean predictor, noise included.
        penalty: ν ‖w̄‖² of the mean predictor, which a finite number of features turns into noise.
        degrees: df₁(ν).
        squared: df₂(ν).
        n: number of training samples.
        width: m; infinite if not given.
        least: smallest share of samples assumed to be left; with 0 the error may be infinite.
        free: number of features that are not penalised, (11.30).
    """
    share = 0.0 if width is None else 1.0 / (width - squared)
    left = max(1.0 - (free + squared + share * (degrees - squared) ** 2) / n, least)
    return (bias + share * (degrees - squared) * penalty) / left if left > 0.0 else math.inf


@dataclass(frozen=True, eq=False)
class PoolCurves:
    """Population quantities along the effective ridge κ, estimated from a pool of N samples.

    They are read off where df₁ is at most three fifths of N, and continued by power laws fitted from a fifth on. Nearer
    to N the smallest eigenvalues of the matrix decide, which differ from those of the population.

    Attributes:
        log_kappa: logarithms of κ, ascending.
        logs: logarithms of df₁, b and G of (11.5), shape (3, len(log_kappa)).
        slopes: exponents of the power laws below the smallest κ.
        free: number of features that are not penalised: the intercept.
    """

    log_kappa: Array
    logs: Array
    slopes: Array
    free: int

    @classmethod
    def of(cls, trained: TrainedKernel) -> PoolCurves:
        """From one kernel matrix, at many ridges: λ/κ = λ tr(K + λI)⁻¹."""
        n = len(trained.values)
        ridges = float(trained.values.sum()) / n * np.geomspace(1e-7, 1e4, _RIDGES)
        rows = cls._at(trained, ridges)
        rows = rows[rows[:, 1] <= _WINDOW[1] * n]
        fitted = rows[:, 1] >= _WINDOW[0] * n
        fitted[:_LEAST] = True
        # The penalty is a difference, which noise may make negative.
        rows[:, 3] = np.maximum(rows[:, 3], _NEGLIGIBLE * rows[:, 2])
        logs = np.log(np.maximum(rows, np.finfo(float).tiny))
        slopes = [np.polyfit(logs[fitted, 0], logs[fitted, k], 1)[0] for k in (1, 2, 3)]
        slopes[1:] = np.clip(slopes[1:], 0.0, _STEEPEST)
        return cls(logs[:, 0], logs[:, 1:].T, np.array(slopes), trained.free)

    @staticmethod
    def _at(trained: TrainedKernel, ridges: Array) -> Array:
        """κ, df₁, b and G at each ridge, in columns."""
        n, outputs = len(trained.values), trained.targets.shape[1]
        inverse = 1.0 / (trained.values[:, None] + ridges)  # (n, ridges)
        kappa = 1.0 / inverse.sum(axis=0)
        degrees = n - ridges / kappa
        # df₂ = df₁ + κ df₁'(κ), with dκ/dλ = κ² tr(K + λI)⁻².
        slope = kappa**2 * np.sum(inverse**2, axis=0)
        squared = degrees + kappa * (-1.0 / kappa + ridges * slope / kappa**2) / slope
        errors = np.mean(trained.left_out_residuals(ridges) ** 2, axis=(1, 2))
        bias = errors * (1.0 - (trained.free + squared) / (trained.free + n))
        # κ yᵀ(K + λI)⁻¹y is bias and penalty together.
        rotated = trained.vectors.T @ trained.targets
        both = kappa * (np.sum(rotated**2, axis=1) @ inverse) / outputs
        return np.stack([kappa, degrees, bias, both - bias], axis=1)

    def at(self, log_kappa: float) -> tuple[float, float, float]:
        """df₁, b and G at one κ."""
        below = min(log_kappa - self.log_kappa[0], 0.0)
        known = [np.interp(log_kappa, self.log_kappa, values) for values in self.logs]
        degrees, bias, penalty = np.exp(np.array(known) + below * self.slopes)
        return float(degrees), float(bias), float(penalty)

    def error(self, n: int, ridge: float, width: int | None) -> float:
        """The expected squared error, docs/theory.md (11.4) and (11.5)."""
        features, left = np.inf if width is None else float(width), n - self.free

        def excess(log_kappa: float) -> float:
            degrees = self.at(log_kappa)[0]
            if degrees >= min(left, features):
                return -1.0
            return float(np.exp(log_kappa)) * (1.0 - degrees / features) * (left - degrees) - ridge

        low, high = self.log_kappa[0] - 60.0, self.log_kappa[-1] + 60.0
        # Without a ridge, more samples than features leave none.
        place = low if excess(low) >= 0.0 else float(brentq(excess, low, high, xtol=1e-10))
        degrees, bias, penalty = self.at(place)
        squared = degrees + (self.at(place + _STEP)[0] - self.at(place - _STEP)[0]) / (2.0 * _STEP)
        return expected_error(bias, penalty, degrees, squared, n, width, _STEP, self.free)
