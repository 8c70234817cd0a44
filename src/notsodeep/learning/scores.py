"""Scores of samples, with the noise of random networks: squared errors, and which samples are classified correctly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.validation import Array, IntArray


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


__all__ = ["Scores", "is_correct"]
