"""The kernels of injected networks at pairs of samples, quickly enough for a fit: docs/theory.md (7.9), (10.5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.polynomial.chebyshev import chebvander

from notsodeep.designs.sample_pairs import Pairs
from notsodeep.duals.strips import OPTIONS
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import dual
from notsodeep.gaussian.moments import derivative_second_moment, mehler, second_moment
from notsodeep.linalg.chebyshev import LogInterval, chebyshev_coefficients
from notsodeep.validation import Array

# Terms of Mehler's series for activations without a closed form, and the share of the slopes' energy that those after
# the last one may have.
_TERMS, _NEGLIGIBLE = 96, 1e-6
# Nodes of the interpolation in log q, for each unit of its range but at least so many; and by how much the range
# reaches beyond the variances that were met.
_NODES, _DENSITY, _MARGIN = 40, 4.0, math.log(4.0)
# One table serves all networks that a fit meets up to this range of log q: an interpolation is as sure at its lower end
# as at its upper one in absolute terms, so that over more than this the small variances would lose their digits.
_WIDEST = 16.0
# Variances below this share of the largest are raised to it: what they give is as small.
_FLOOR = 1e-8


# Logarithm of the power of ρ at which series of listed pairs end.
_PRECISION = math.log(1e-9)


@njit(**OPTIONS)
def _series_at_pairs(series, scale, first, second, c):  # type: ignore[no-untyped-def]
    """F and F' of listed pairs by their Mehler series, docs/theory.md (3.13) and (3.14).

    series (samples, terms) has the coefficients a_k, scale the roots of the variances, c the covariances of the pairs.
    """
    value, slope = np.empty(len(c)), np.empty(len(c))
    terms = series.shape[1]
    for p in range(len(c)):
        i, j = first[p], second[p]
        length = scale[i] * scale[j]
        rho = min(max(c[p] / length, -1.0), 1.0)
        f, df = 0.0, 0.0
        # Terms whose power of ρ is nothing beside the others are left out.
        needed = terms
        if abs(rho) < 0.9:
            needed = min(terms, 2 + int(_PRECISION / np.log(max(abs(rho), 1e-9))))
        for k in range(needed - 1, -1, -1):
            df = df * rho + f
            f = f * rho + series[i, k] * series[j, k]
        value[p] = f
        slope[p] = df / length
    return value, slope


@dataclass(frozen=True)
class Numbers:
    """The numbers of an injected network, whose logarithms are fitted.

    Attributes:
        output: the scale g of the output, as a variance.
        weights, inject: w_l and c_l.
    """

    output: float
    weights: Array
    inject: Array

    @classmethod
    def of(cls, logs: Array) -> Numbers:
        """The 2L numbers with these logarithms."""
        numbers, layers = np.exp(logs), len(logs) // 2
        return cls(float(numbers[0]), numbers[1 : layers + 1], numbers[layers + 1 :])


class PairKernels:
    """The kernels of injected networks at given pairs of samples, and of the samples with themselves.

    Args:
        phi: the activation of all layers.
        pairs: the pairs.
        centre: the norm τ0 at which each layer is shifted to mean zero; None for the activation as it is.
        constant: variance of a bias of every layer.
    """

    def __init__(self, phi: Activation, pairs: Pairs, centre: float | None, constant: float = 0.0) -> None:
        self.phi, self.pairs, self.centre, self.constant = phi, pairs, centre, constant
        # The last sample is the typical one, at which layers are centred.
        typical = 1.0 if centre is None else centre**2
        self._squares = np.append(pairs.squares, typical)
        flat, shape = np.ones(1), phi.shape
        # Price's integral for kinks away from zero is no closed form: for a fit the series is as good, and quick.
        exact = shape.is_homogeneous or shape.pieces is None
        self._closed = exact and shape.pair_moments(flat, flat, 0.5 * flat) is not None
        self._range, self._series = LogInterval(0.0, 0.0), np.empty((0, 0))

    def kernels(self, weights: Array, inject: Array) -> tuple[Array, Array]:
        """Conjugate and tangent kernel: first the pairs, then the samples with themselves. Output scale 1."""
        diagonal = energy = self._squares
        tangent = features = self.pairs.cross
        for number, (weight, again) in enumerate(zip(weights, (0.0, *inject), strict=True)):
            q, diagonal = (
                self._enter(one, self._squares, weight, again, number) for one in (energy, diagonal)
            )
            c, tangent = (
                self._enter(one, self.pairs.cross, weight, again, number) for one in (features, tangent)
            )
            features, slopes, energy, steepness = self._layer(q, c)
            tangent, diagonal = features + slopes * tangent, energy + steepness * diagonal
        return self.pairs.read(features, energy[:-1]), self.pairs.read(tangent, diagonal[:-1])

    def named(self, names: Sequence[str], numbers: Numbers) -> list[Array]:
        """The kernels with these names of the network with these numbers."""
        both = self.kernels(numbers.weights, numbers.inject)
        return [numbers.output * both[0 if name == "ck" else 1] for name in names]

    def _enter(self, signal: Array, inputs: Array, weight: float, again: float, number: int) -> Array:
        """What enters a layer, Λ_l or Π_l: the layer before and the input again. Inputs come mixed."""
        if number and inputs is self._squares:
            signal = np.append(self.pairs.mixed_squares(signal[:-1]), signal[-1])
        elif number:
            signal = self.pairs.mixed_entries(signal)
        return np.asarray(weight * signal + again * inputs + self.constant)

    def _layer(self, q: Array, c: Array) -> tuple[Array, Array, Array, Array]:
        """F and F' of the pairs, S and E1 of the samples."""
        pairs = self.pairs
        q = np.maximum(q, _FLOOR * float(q.max()))
        table = self._moments(q)
        means, energy, steepness, series = table[:, 0], table[:, 1], table[:, 2], table[:, 3:]
        if self._closed:
            features, slopes = dual(self.phi, q[pairs.first], q[pairs.second], c)
        else:
            features, slopes = _series_at_pairs(series, np.sqrt(q), pairs.first, pairs.second, c)
        pairs.set_own(features, energy)
        pairs.set_own(slopes, steepness)
        if self.centre is not None:
            shift = -means[-1]
            features = features + shift * (means[pairs.first] + means[pairs.second]) + shift**2
            energy = energy + 2.0 * shift * means + shift**2
        return features, slopes, energy, steepness

    def _moments(self, q: Array) -> Array:
        """M_0, S, E1 and, without a closed form of F, the Mehler coefficients at each variance."""
        low, high = math.log(float(q.min())), math.log(float(q.max()))
        known = self._range
        if not self._series.size or low < known.low or high > known.high:
            union = min(low, known.low), max(high, known.high)
            # A step of a fit that went far away must not spoil the table for those that did not.
            if self._series.size and union[1] - union[0] <= _WIDEST:
                low, high = union
            self._range = LogInterval(low - _MARGIN, high + _MARGIN)
            self._series = self._interpolants(self._range)
        return np.asarray(chebvander(self._range.place(q), len(self._series) - 1) @ self._series)

    def _interpolants(self, interval: LogInterval) -> Array:
        count = max(_NODES, math.ceil(_DENSITY * (interval.high - interval.low)))
        nodes = interval.nodes(count)
        coefficients = mehler(self.phi, nodes, 1 if self._closed else _TERMS)
        slopes = np.arange(coefficients.shape[1]) * coefficients**2
        left = np.cumsum(slopes[:, ::-1], axis=1)[:, ::-1] > _NEGLIGIBLE * slopes.sum(axis=1, keepdims=True)
        terms = max(int(left.any(axis=0).sum()), 1)
        columns = [
            coefficients[:, 0],
            second_moment(self.phi, nodes),
            derivative_second_moment(self.phi, nodes),
        ]
        return chebyshev_coefficients(np.column_stack([*columns, coefficients[:, :terms]]))
