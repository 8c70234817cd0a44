"""Pairs of samples on which the kernels of networks are compared: rows, or images with their positions.

A pair of rows is one entry: two squared norms and an inner product. A pair of images is a field of them over positions,
which every layer mixes, docs/theory.md (10.5), and which the readout sums: over equal positions for "flatten", over all
pairs of positions for "pool".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from notsodeep.models.convolutional import ImageModel
from notsodeep.models.mixing import Convolution
from notsodeep.models.protocol import Model
from notsodeep.validation import Array

Index = NDArray[np.intp]

# Pairs of rows that a fit looks at. Of images as many as make this number of entries, but at least a few.
MOST_PAIRS, MOST_ENTRIES, FEWEST_PAIRS = 600, 30_000, 12
# Steps of the golden ratio are evenly spread, without randomness.
_GOLDEN = 0.6180339887498949


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


@dataclass(frozen=True)
class ChosenPairs:
    """Pairs of some samples, and where their kernels stand in a matrix.

    Attributes:
        pairs: the pairs.
        rows, columns: places of the values that `Pairs.read` gives in the kernel matrix of the samples.
        shares: for each value, the number of entries of the kernel matrix that it stands for.
    """

    pairs: Pairs
    rows: Index
    columns: Index
    shares: Array


def chosen_pairs(model: Model, samples: Array) -> ChosenPairs:
    """Evenly drawn pairs of samples of a model, and samples with themselves."""
    if isinstance(model, ImageModel):
        return _of_images(model, samples)
    first, second, share = _drawn(len(samples), MOST_PAIRS)
    squares, cross = (samples**2).sum(axis=1), np.einsum("ij,ij->i", samples[first], samples[second])
    return _chosen(
        Pairs(squares, first, second, cross), first, second, share, np.arange(len(samples)), len(samples)
    )


def _of_images(model: ImageModel, images: Array) -> ChosenPairs:
    pooled, positions = model.readout == "pool", int(np.prod(images.shape[2:]))
    wanted = max(FEWEST_PAIRS, MOST_ENTRIES // (positions**2 if pooled else positions))
    # No more images than make so many pairs: every image costs as much as a pair.
    used = spread(len(images), math.ceil(0.5 + math.sqrt(0.25 + 2.0 * wanted)))
    first, second, share = _drawn(len(used), wanted)
    alone = np.arange(len(used))
    pairs = _image_pairs(
        model, images[used], *((np.append(part, alone) if pooled else part) for part in (first, second))
    )
    found = _chosen(pairs, first, second, share, alone, len(used))
    return replace(found, rows=used[found.rows], columns=used[found.columns])


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


def _chosen(pairs: Pairs, first: Index, second: Index, share: float, alone: Index, count: int) -> ChosenPairs:
    shares = np.concatenate([np.full(len(first), share), np.full(len(alone), count / len(alone))])
    return ChosenPairs(pairs, np.append(first, alone), np.append(second, alone), shares)
