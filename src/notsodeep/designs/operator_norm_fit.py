"""Networks that are fitted in the norm they are judged by, the operator norm of kernel matrices: docs/theory.md (7.13).

Least squares weigh all entries of a kernel alike, the operator norm the largest eigenvalue of what is left.  The
Schatten norm (Σ_j |λ_j|^p)^(1/p) lies between them: p = 2 is least squares, p = ∞ the operator norm.  It is minimised
for growing p by least squares that are weighted with powers of the eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from notsodeep.designs.pair_kernels import Numbers, PairKernels
from notsodeep.designs.sample_pairs import Pairs, spread
from notsodeep.kernels import both_kernels, exact_kernel
from notsodeep.models import DEQ
from notsodeep.validation import Array

# Rows whose kernel matrix is looked at; the exponents p, and the steps that are taken with each of them.
MOST_ROWS, EXPONENTS, STEPS = 150, (4, 10), (5, 9)
# The step of a difference quotient, and the longest step of a logarithm.
_DIFFERENCE, _LONGEST = 1e-5, 0.5
# How far along a step: the first that is better is taken.
_STRIDES = (3.0, 1.0)
# Damping of a step relative to its curvature: at first, where a step was too long, where it was not; least and most.
_START, _RAISE, _LOWER, _LEAST, _MOST = 1e-3, 10.0, 0.2, 1e-10, 1e6
# Eigenvalues below this share of the norm count as if they had it, so that none is left out altogether.
_FLOOR = 1e-2
# A kernel is clearly closer than another one at less than this share of its distance.
_CLEARLY = 0.8
_ROUNDING = 1e-12
# An improvement that is no longer worth a step.
_ENOUGH = 2e-3


class OperatorNormFit:
    """Distances of injected networks from a model in the operator norm, on rows, and the closest network.

    Args:
        model: the model.
        rows: samples; of more than MOST_ROWS some, evenly spread.
        names: the kernels that count; the distance of two is the root of the sum of their squares.
        centre: the norm at which layers are centred; None for the activation as it is.
        rates: whether learning-rate multipliers are among the logarithms.
    """

    def __init__(
        self, model: DEQ, rows: Array, names: tuple[str, ...], centre: float | None, *, rates: bool = False
    ) -> None:
        rows = rows[spread(len(rows), MOST_ROWS)]
        self._count, self._names, self._rates = len(rows), names, rates
        self._units = np.ones(len(names))
        first, second = np.triu_indices(len(rows), 1)
        gram = rows @ rows.T
        pairs = Pairs(gram.diagonal().copy(), first, second, gram[first, second])
        self._kernels = PairKernels(model.activation, pairs, centre)
        wanted = (
            both_kernels(model, rows)
            if names == ("ck", "ntk")
            else [exact_kernel(model, rows, kernel=n) for n in names]
        )
        self._sizes = [float(np.abs(np.linalg.eigvalsh(matrix)).max()) for matrix in wanted]
        self._wanted = [matrix / size for matrix, size in zip(wanted, self._sizes, strict=True)]

    def distance(self, logs: Array) -> float:
        """The relative distance of the kernels of the network with these logarithms."""
        return _together(self._left(logs), math.inf)

    def distances(self, logs: Array) -> Array:
        """The relative distance of each kernel."""
        return np.asarray(self._units * [_together([one], math.inf) for one in self._left(logs)])

    def closest_in_each(self, starts: Iterable[Array], reference: Array) -> Array:
        """The closest network; none of its kernels gives up for the other what the reference already has.

        Where a kernel of the closest network is hardly closer than that of the reference, the DEQ that is cut, both
        are fitted once more, each in units of the reference's own distance.
        """
        best, known = self.closest(starts), np.maximum(self.distances(reference), _ROUNDING)
        if np.all(self.distances(best) <= _CLEARLY * known):
            return best
        self._units = known
        best = self.closest((best, reference))
        self._units = np.ones(len(self._names))
        return best

    def closest(self, starts: Iterable[Array]) -> Array:
        """The closest network that is met on the way from the closest of the starts: never further than any of them."""
        best = min(starts, key=self.distance)
        smallest, logs = self.distance(best), best
        for exponent, steps in zip(EXPONENTS, STEPS, strict=True):
            damping = _START
            for _ in range(steps):
                found, damping, gain = self._step(logs, exponent, damping)
                if found is None:
                    break
                logs, size = found, self.distance(found)
                if size < smallest:
                    best, smallest = logs, size
                if gain < _ENOUGH:
                    break
        return best

    def _step(self, logs: Array, exponent: int, damping: float) -> tuple[Array | None, float, float]:
        """Better logarithms, the damping to go on with and the relative gain; None where no step is better."""
        left = self._left(logs)
        before = _together(left, exponent)
        if before == 0.0:
            return None, damping, 0.0
        curvature, slope = self._normal_equations(logs, left, exponent)
        diagonal = curvature.diagonal()
        while damping < _MOST:
            system = curvature + damping * np.diag(diagonal + _LEAST * diagonal.max())
            # Weights of the power p - 2 are those of Newton's method but for a factor of p - 1.
            step = np.linalg.solve(system, -slope) / (exponent - 1.0)
            for stride in _STRIDES:
                candidate = logs + np.clip(stride * step, -_LONGEST, _LONGEST)
                after = _together(self._left(candidate), exponent)
                if after < before:
                    return candidate, max(damping * _LOWER, _LEAST), 1.0 - after / before
            damping *= _RAISE
        return None, damping, 0.0

    def _normal_equations(self, logs: Array, left: list[Array], exponent: int) -> tuple[Array, Array]:
        """Curvature and slope of least squares, weighted so that the slope is that of the Schatten norms squared."""
        shifted = [self._left(logs + move) for move in _DIFFERENCE * np.eye(len(logs))]
        curvature, slope = np.zeros((len(logs), len(logs))), np.zeros(len(logs))
        for number, matrix in enumerate(left):
            values, vectors = np.linalg.eigh(matrix)
            norm = _schatten(values, exponent)
            if norm == 0.0:
                continue
            sizes = np.maximum(np.abs(values) / norm, _FLOOR)
            roots = sizes ** ((exponent - 2) / 4)
            weights = np.outer(roots, roots)
            columns = np.array(
                [
                    (weights * (vectors.T @ (other[number] - matrix) @ vectors)).ravel() / _DIFFERENCE
                    for other in shifted
                ]
            )
            curvature += columns @ columns.T
            slope += columns @ np.diag(roots**2 * values).ravel()
        return curvature, slope

    def _left(self, logs: Array) -> list[Array]:
        """The matrices of what is left of each kernel, relative to its size."""
        found = self._kernels.named(self._names, Numbers.of(logs, rates=self._rates))
        return [
            (self._matrix(values) / size - wanted) / unit
            for values, size, wanted, unit in zip(found, self._sizes, self._wanted, self._units, strict=True)
        ]

    def _matrix(self, values: Array) -> Array:
        """The symmetric matrix of values at pairs, then of rows with themselves."""
        pairs, matrix = self._kernels.pairs, np.zeros((self._count, self._count))
        matrix[pairs.first, pairs.second] = matrix[pairs.second, pairs.first] = values[: -self._count]
        np.fill_diagonal(matrix, values[-self._count :])
        return matrix


def _together(left: list[Array], exponent: float) -> float:
    """The root of the sum of squares of the Schatten norms; infinite where a network has no kernel."""
    if not all(np.isfinite(matrix).all() for matrix in left):
        return math.inf
    return math.hypot(*(_schatten(np.asarray(np.linalg.eigvalsh(matrix)), exponent) for matrix in left))


def _schatten(eigenvalues: Array, exponent: float) -> float:
    """The Schatten norm (Σ |λ|^p)^(1/p) from eigenvalues λ."""
    return float(np.linalg.norm(eigenvalues, exponent))
