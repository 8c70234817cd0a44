"""Population quantities along the effective ridge, estimated from a pool of labelled samples: docs/theory.md (11.17).

n random samples make a regression with ridge λ behave like the regression on the whole population with an effective
ridge κ. A network of finite width m whose readout alone is trained is one more random sample, of features, and makes it
larger still, (11.4). The error follows from two sums over the eigenvalues λ_k of the kernel, the degrees of freedom

    df₁(κ) = Σ λ_k/(λ_k + κ),    df₂(κ) = Σ λ_k²/(λ_k + κ)².
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.validation import Array

# Ridges at which a pool is read, the shares of N between which df₁ is trusted, and the least number of points of a fit.
_RIDGES, _WINDOW, _LEAST = 80, (0.2, 0.6), 5
# Step of the derivative of df₁ in log κ.
_STEP = 1e-2


def expected_error(
    bias: float, penalty: float, degrees: float, squared: float, n: int, width: int | None, least: float = 0.0
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
    """
    share = 0.0 if width is None else 1.0 / (width - squared)
    left = max(1.0 - (squared + share * (degrees - squared) ** 2) / n, least)
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
    """

    log_kappa: Array
    logs: Array
    slopes: Array

    @classmethod
    def of(cls, trained: TrainedKernel) -> PoolCurves:
        """From one kernel matrix, at many ridges: λ/κ = λ tr(K + λI)⁻¹."""
        n = len(trained.values)
        ridges = float(trained.values.sum()) / n * np.geomspace(1e-7, 1e4, _RIDGES)
        rows = cls._at(trained, ridges)
        rows = rows[rows[:, 1] <= _WINDOW[1] * n]
        fitted = rows[:, 1] >= _WINDOW[0] * n
        fitted[:_LEAST] = True
        logs = np.log(np.maximum(rows, np.finfo(float).tiny))
        slopes = [np.polyfit(logs[fitted, 0], logs[fitted, k], 1)[0] for k in (1, 2, 3)]
        return cls(logs[:, 0], logs[:, 1:].T, np.array(slopes))

    @staticmethod
    def _at(trained: TrainedKernel, ridges: Array) -> Array:
        """κ, df₁, b and G at each ridge, in columns."""
        n, outputs = trained.targets.shape
        inverse = 1.0 / (trained.values[:, None] + ridges)  # (n, ridges)
        kappa = 1.0 / inverse.sum(axis=0)
        degrees = n - ridges / kappa
        # df₂ = df₁ + κ df₁'(κ), with dκ/dλ = κ² tr(K + λI)⁻².
        slope = kappa**2 * np.sum(inverse**2, axis=0)
        squared = degrees + kappa * (-1.0 / kappa + ridges * slope / kappa**2) / slope
        errors = np.mean(trained.left_out_residuals(ridges) ** 2, axis=(1, 2))
        bias = errors * (1.0 - squared / n)
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
        features = np.inf if width is None else float(width)

        def excess(log_kappa: float) -> float:
            degrees = self.at(log_kappa)[0]
            if degrees >= min(n, features):
                return -1.0
            return float(np.exp(log_kappa)) * (1.0 - degrees / features) * (n - degrees) - ridge

        place = float(brentq(excess, self.log_kappa[0] - 60.0, self.log_kappa[-1] + 60.0, xtol=1e-10))
        degrees, bias, penalty = self.at(place)
        squared = degrees + (self.at(place + _STEP)[0] - self.at(place - _STEP)[0]) / (2.0 * _STEP)
        return expected_error(bias, penalty, degrees, squared, n, width, least=_STEP)


__all__ = ["PoolCurves", "expected_error"]
