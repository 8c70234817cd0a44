"""Scores of samples, certain or random over networks, and what follows: squared errors and the chance of a hit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.learning.gaussian_scores import matrix_root
from notsodeep.validation import Array, IntArray

# Random scores of all samples together, and the fewest of one sample, from which the chance of a hit is estimated.
_DRAWS, _FEWEST = 200_000, 32


@dataclass(frozen=True, eq=False)
class NetworkNoise:
    """Gaussian noise of scores, with the covariance lengths_i · shared at sample i.

    Attributes:
        lengths: shape (samples,).
        shared: shape (outputs, outputs).
    """

    lengths: Array
    shared: Array

    @property
    def variances(self) -> Array:
        """The variance at each sample, averaged over outputs."""
        return np.asarray(self.lengths * np.trace(self.shared) / len(self.shared))


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of samples: their mean over networks, shape (samples, outputs), and the noise of one network.

    Attributes:
        mean: the mean.
        noise: None where nothing is random, as for a kernel.
    """

    mean: Array
    noise: NetworkNoise | None = None

    def squared_errors(self, targets: Array) -> Array:
        """Expected squared error of each sample, averaged over outputs."""
        errors = np.mean((self.mean - targets) ** 2, axis=-1)
        return np.asarray(errors if self.noise is None else errors + self.noise.variances)

    def hits(self, classes: IntArray) -> Array:
        """The chance that each sample is given its class, if noise is Gaussian."""
        if self.noise is None:
            return right(self.mean, classes).astype(np.float64)
        rng = np.random.default_rng(0)
        spread = np.sqrt(self.noise.lengths)[:, None]
        mixing = matrix_root(self.noise.shared).T
        number = max(_FEWEST, _DRAWS // len(self.mean))
        total = np.zeros(len(classes))
        for _ in range(number):
            total += right(self.mean + spread * (rng.standard_normal(self.mean.shape) @ mixing), classes)
        return total / number


def right(scores: Array, classes: IntArray) -> Array:
    """Whether the largest score (or, with one output, its sign) is that of the class; scores (…, samples, outputs)."""
    found = (scores[..., 0] > 0.0) if scores.shape[-1] == 1 else scores.argmax(axis=-1)
    return np.asarray(found == classes)


__all__ = ["NetworkNoise", "Scores", "right"]
