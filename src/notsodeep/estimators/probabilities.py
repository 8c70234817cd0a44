"""Probabilities from the scores of a least-squares classifier: a softmax with one temperature.

One positive number for all classes keeps the order of the scores, so that the likeliest class is the one predicted.  It
is the one under which the scores of rows that were left out explain their labels best.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, special

from notsodeep.validation import Array, IntArray

# Of log T; beyond these the probabilities of scores around ±1 are 0 and 1, or all equal, to three digits.
_RANGE = (-4.0, 7.0)


def probabilities(scores: Array) -> Array:
    """Softmax of scores (n, classes); two classes may have one score (n,), positive for the second."""
    if scores.ndim == 1:
        second = special.expit(scores)
        return np.column_stack([1.0 - second, second])
    return np.asarray(special.softmax(scores, axis=1))


def temperature(scores: Array, index: IntArray, weights: Array | None) -> float:
    """T with the largest likelihood of the labels under the softmax of scores/T.

    Each label counts as certain up to one in (number of rows + classes), Laplace's rule: rows that are all told apart
    do not make the classifier certain.

    Args:
        scores: of rows that were left out: (n,) for two classes, (n, classes) for more.
        index: the class of each row.
        weights: of the rows; all alike if not given.
    """
    both = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    rows, classes = both.shape
    mass = np.ones(rows) if weights is None else weights
    doubt = 1.0 / (mass.sum() + classes)
    target = np.full((rows, classes), doubt)
    target[np.arange(rows), index] += 1.0 - classes * doubt

    def loss(log_temperature: float) -> float:
        logarithms = special.log_softmax(both * np.exp(-log_temperature), axis=1)
        return -float(mass @ np.sum(target * logarithms, axis=1))

    return float(np.exp(optimize.minimize_scalar(loss, bounds=_RANGE, method="bounded").x))


__all__ = ["probabilities", "temperature"]
