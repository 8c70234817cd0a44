"""Probabilities from the scores of a least-squares classifier: a softmax with one temperature.

One temperature for all classes keeps the order of the scores, so the most probable class is the predicted one. It
maximises the likelihood of the labels under the leave-one-out scores.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, special

from notsodeep.validation import Array, IntArray

# Range of log T; outside of it the probabilities of scores near ±1 are 0 and 1, or all equal, to three digits.
_RANGE = (-4.0, 7.0)


def probabilities(scores: Array) -> Array:
    """Compute the softmax of scores (n, classes); two classes may have one score (n,), positive for the second."""
    if scores.ndim == 1:
        second = special.expit(scores)
        return np.column_stack([1.0 - second, second])
    return np.asarray(special.softmax(scores, axis=1))


def temperature(scores: Array, index: IntArray) -> float:
    """Compute the temperature T that maximises the likelihood of the labels under the softmax of scores/T.

    Labels are smoothed by one in (number of rows + classes), Laplace's rule, so that separable classes do not give
    probabilities of 0 and 1.

    Args:
        scores: leave-one-out scores, (n,) for two classes, (n, classes) for more.
        index: the class of each row.
    """
    both = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    rows, classes = both.shape
    doubt = 1.0 / (rows + classes)
    target = np.full((rows, classes), doubt)
    target[np.arange(rows), index] += 1.0 - classes * doubt

    def loss(log_temperature: float) -> float:
        logarithms = special.log_softmax(both * np.exp(-log_temperature), axis=1)
        return -float(np.sum(target * logarithms))

    return float(np.exp(optimize.minimize_scalar(loss, bounds=_RANGE, method="bounded").x))


__all__ = ["probabilities", "temperature"]
