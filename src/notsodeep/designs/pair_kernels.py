"""The kernels of injected networks at pairs of samples, quickly enough for a fit: docs/theory.md (7.9), (10.5).

A pair of rows is one entry: two squared norms and an inner product. A pair of images is a field of them over positions,
which every layer mixes, docs/theory.md (10.5), and which the readout sums: over equal positions for "flatten", over all
pairs of positions for "pool".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray

from notsodeep.duals.strips import OPTIONS
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import dual
from notsodeep.gaussian.moments import derivative_second_moment, mehler, second_moment
from notsodeep.linalg.chebyshev import LogInterval, chebyshev_coefficients
from notsodeep.models.convolutional import ImageModel
from notsodeep.models.mixing import Convolution
from notsodeep.models.protocol import Model
from notsodeep.validation import Array

Index = NDArray[np.intp]

# Pairs of rows in a fit. Of images the number of pairs that makes this number of entries, but at least a few.
MOST_PAIRS, MOST_ENTRIES, FEWEST_PAIRS = 600, 30_000, 12
# Steps of the golden ratio are evenly spread, without randomness.
_GOLDEN = 0.6180339887498949


# S and E1.
_SQUARES = second_moment, derivative_second_moment


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows, each of them one entry.

    Attributes:
        squares: what the input gives to the variance of each row (or position): squared norms.
        first, second: the rows (or positions) that each entry consists of.
        cross: what the input gives to the covariance of each entry: inner products.
    """

    squares: Array
    first: Index
    second: Index
    cross: Array

    def mixed_squares(self, values: Array) -> Array:
        """What a layer makes of variances before it weighs them: rows are left alone."""
        return values

    def mixed_entries(self, values: Array) -> Array:
        """What a layer makes of covariances before it weighs them."""
        return values

    def set_own(self, entries: Array, values: Array) -> None:
        """Entries of a row (or position) with itself are set to values of that row; of rows there are none."""

    def read(self, entries: Array, values: Array) -> Array:
        """The kernel of every pair, then of the samples with themselves."""
        return np.concatenate([entries, values])


@dataclass(frozen=True)
class ImagePairs(Pairs):
    """Pairs of images; entries are over their positions.

    Attributes:
        mixing: how a layer mixes positions.
        pooled: the entries of a pair are all pairs of its positions, otherwise equal positions only. Then the last
            pairs are of an image with itself.
        own: for pooled pairs, the entries of a position with itself.
    """

    mixing: Convolution
    pooled: bool
    own: Index

    @property
    def _positions(self) -> int:
        return int(np.prod(self.mixing.positions))

    def mixed_squares(self, values: Array) -> Array:
        """The average over the taps of the filter."""
        return self.mixing.diagonal(values.reshape(self._positions, -1)).reshape(-1)

    def mixed_entries(self, values: Array) -> Array:
        """The same, for both positions of an entry together."""
        count = self._positions
        if self.pooled:
            return self.mixing.pairs(values.reshape(count, count, -1)).reshape(-1)
        return self.mixing.diagonal(values.reshape(count, -1)).reshape(-1)

    def set_own(self, entries: Array, values: Array) -> None:
        """Where a position meets itself, moments of one variable replace those of two."""
        entries[self.own] = values[self.first[self.own]]

    def read(self, entries: Array, values: Array) -> Array:
        """The mean over positions, or over pairs of positions."""
        count = self._positions
        if self.pooled:
            return np.asarray(entries.reshape(count**2, -1).mean(axis=0))
        means = (part.reshape(count, -1).mean(axis=0) for part in (entries, values))
        return np.concatenate([*means])


# Pairs, the places in a kernel matrix (rows and columns) of the values that `Pairs.read` gives, and for each value the
# number of entries of the matrix that it stands for.
Chosen = tuple[Pairs, Index, Index, Array]


def chosen_pairs(model: Model, samples: Array) -> Chosen:
    """Evenly drawn pairs of samples of a model, and samples with themselves."""
    if isinstance(model, ImageModel):
        return _of_images(model, samples)
    first, second, share = _drawn(len(samples), MOST_PAIRS)
    squares, cross = (samples**2).sum(axis=1), np.einsum("ij,ij->i", samples[first], samples[second])
    return _chosen(
        Pairs(squares, first, second, cross), first, second, share, np.arange(len(samples)), len(samples)
    )


def _of_images(model: ImageModel, images: Array) -> Chosen:
    pooled, positions = model.readout == "pool", int(np.prod(images.shape[2:]))
    wanted = max(FEWEST_PAIRS, MOST_ENTRIES // (positions**2 if pooled else positions))
    # No more images than make so many pairs: every image costs as much as a pair.
    used = spread(len(images), math.ceil(0.5 + math.sqrt(0.25 + 2.0 * wanted)))
    first, second, share = _drawn(len(used), wanted)
    alone = np.arange(len(used))
    pairs: Pairs = _image_pairs(
        model, images[used], *((np.append(part, alone) if pooled else part) for part in (first, second))
    )
    pairs, rows, columns, shares = _chosen(pairs, first, second, share, alone, len(used))
    return pairs, used[rows], used[columns], shares


def _image_pairs(model: ImageModel, images: Array, first: Index, second: Index) -> ImagePairs:
    """The fields of these pairs of images. Positions stand first, images or pairs last, as `Convolution` takes them."""
    mixing = Convolution(tuple(images.shape[2:]), model.filter_size, model.padding)
    values = images.reshape(*images.shape[:2], -1)
    count, positions = len(images), values.shape[2]
    squares = mixing.diagonal(np.einsum("ics,ics->si", values, values)).reshape(-1)
    place = np.arange(positions)[:, None] * count
    if model.readout != "pool":
        cross = mixing.diagonal(np.einsum("ics,ics->si", values[first], values[second])).reshape(-1)
        left, right = ((place + part).reshape(-1) for part in (first, second))
        return ImagePairs(squares, left, right, cross, mixing, False, np.empty(0, dtype=np.intp))
    cross = mixing.pairs(np.einsum("ics,ict->sti", values[first], values[second])).reshape(-1)
    form = (positions, positions, len(first))
    left = np.broadcast_to((place + first)[:, None], form).reshape(-1)
    right = np.broadcast_to((place + second)[None], form).reshape(-1)
    return ImagePairs(squares, left, right, cross, mixing, True, np.flatnonzero(left == right))


def spread(count: int, most: int) -> Index:
    """At most so many of `count` things, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.intp))


def _drawn(count: int, most: int) -> tuple[Index, Index, float]:
    """Pairs of different samples, evenly over all of them, and how many entries of a matrix each stands for."""
    first, second = np.triu_indices(count, 1)
    order = np.argsort(np.modf(np.arange(len(first)) * _GOLDEN)[0], kind="stable")[:most]
    return first[order], second[order], 2.0 * len(first) / max(len(order), 1)


def _chosen(pairs: Pairs, first: Index, second: Index, share: float, alone: Index, count: int) -> Chosen:
    shares = np.concatenate([np.full(len(first), share), np.full(len(alone), count / len(alone))])
    return pairs, np.append(first, alone), np.append(second, alone), shares


# --- kernels ----------------------------------------------------------------------------------------------------------

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


def numbers_of(logs: Array) -> tuple[float, Array, Array]:
    """Output variance g, weights w_l and injections c_l of an injected network, from the logarithms of all numbers."""
    numbers, layers = np.exp(logs), len(logs) // 2
    return float(numbers[0]), numbers[1 : layers + 1], numbers[layers + 1 :]


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

    def named(self, names: Sequence[str], logs: Array) -> list[Array]:
        """The kernels with these names of the network with these logarithms of its numbers."""
        output, weights, inject = numbers_of(logs)
        both = self.kernels(weights, inject)
        return [output * both[0 if name == "ck" else 1] for name in names]

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
        if self.phi.shape.is_homogeneous and not self.phi.offset:
            # They are powers: a table over many decades would lose digits.
            unit = np.array([1.0])
            mean = mehler(self.phi, unit, 1)[0, 0] * np.sqrt(q)
            second, steep = (float(moment(self.phi, unit)[0]) for moment in _SQUARES)
            return np.column_stack([mean, second * q, np.full_like(q, steep)])
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
        columns = [coefficients[:, 0], *(moment(self.phi, nodes) for moment in _SQUARES)]
        return chebyshev_coefficients(np.column_stack([*columns, coefficients[:, :terms]]))
