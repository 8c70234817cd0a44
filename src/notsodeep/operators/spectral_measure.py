"""Traces of functions and spectral densities from products alone: stochastic Lanczos quadrature.

A sweep over the blocks of a kernel costs the same for one column and for thirty, so that all probes advance together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, special
from scipy.sparse.linalg import LinearOperator

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.linalg.block_lanczos import BREAKDOWN
from notsodeep.validation import Array, as_count


@dataclass(frozen=True)
class Estimate:
    """A number from random probes, with its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False, repr=False)
class SpectralMeasure(Shown):
    """The distribution of the eigenvalues, (1/n) Σ δ_λ, as seen by random probes.

    Each probe gives a Gauss quadrature of it: with m nodes it has the first 2m moments that the probe sees.

    Attributes:
        n: the number of eigenvalues.
        nodes: shape (probes, steps).
        weights: not negative, each row sums to 1.
    """

    n: int
    nodes: Array
    weights: Array

    def mean(self, function: Callable[[Array], Array]) -> Estimate:
        """The mean of a function over the eigenvalues."""
        each = (self.weights * function(self.nodes)).sum(axis=1)
        error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")
        return Estimate(float(each.mean()), error)

    def trace(self, function: Callable[[Array], Array]) -> Estimate:
        """The trace of a function of the matrix, tr f(K)."""
        mean = self.mean(function)
        return Estimate(self.n * mean.value, self.n * mean.standard_error)

    def cdf(self, x: ArrayLike) -> Array:
        """The share of eigenvalues that are at most x; half of a node counts at the node."""
        points = np.asarray(x, dtype=np.float64)
        flat, weights = self.nodes.ravel(), self.weights.ravel() / len(self.nodes)
        order = np.argsort(flat)
        flat, weights = flat[order], weights[order]
        steps = np.concatenate([[0.0], np.cumsum(weights)])
        below, upto = np.searchsorted(flat, points, "left"), np.searchsorted(flat, points, "right")
        return np.asarray((steps[below] + steps[upto]) / 2.0)

    def smoothed(self, grid: ArrayLike, width: float) -> Array:
        """The density on a grid, each node spread to a Gaussian of standard deviation `width`."""
        if not width > 0:
            raise InputError(f"width must be positive, got {width}.")
        points = np.asarray(grid, dtype=np.float64)
        distance = (points[..., None] - self.nodes.ravel()) / width
        bells = np.exp(-0.5 * distance**2) / (width * np.sqrt(2.0 * np.pi))
        return np.asarray(bells @ self.weights.ravel() / len(self.nodes))

    def histogram(self, edges: ArrayLike, width: float = 0.0) -> Array:
        """The share of eigenvalues between successive edges, nodes spread by `width` if that is given."""
        bounds = np.asarray(edges, dtype=np.float64)
        if width > 0:
            share = special.ndtr((bounds[:, None] - self.nodes.ravel()) / width)
            return np.asarray(np.diff(share @ self.weights.ravel()) / len(self.nodes))
        return np.diff(self.cdf(bounds))


def spectral_measure(operator: LinearOperator, probes: int, steps: int, seed: int) -> SpectralMeasure:
    """Stochastic Lanczos quadrature: all probes advance together, one sweep a step, with full reorthogonalisation.

    Without reorthogonalisation copies of leading eigenvalues appear, which on a kernel, with its few huge
    eigenvalues, happens within a dozen steps.
    """
    n = int(operator.shape[0])
    probes, steps = as_count(probes, "probes"), min(as_count(steps, "steps"), n)
    signs = np.random.default_rng(seed).integers(0, 2, (n, probes)) * 2.0 - 1.0
    current = signs / np.sqrt(n)
    bases, alphas, betas = np.empty((probes, steps, n)), np.zeros((probes, steps)), np.zeros((probes, steps))
    lengths = np.full(probes, steps)
    for step in range(steps):
        bases[:, step] = current.T
        image = operator @ current
        alphas[:, step] = np.einsum("ij,ij->j", current, image)
        for probe in range(probes):
            known = bases[probe, : step + 1]
            for _ in range(2):
                image[:, probe] -= known.T @ (known @ image[:, probe])
        betas[:, step] = np.linalg.norm(image, axis=0)
        scale = np.abs(alphas[:, : step + 1]).max(axis=1) + betas[:, : step + 1].max(axis=1)
        ended = (betas[:, step] <= BREAKDOWN * scale) & (lengths == steps)
        # An invariant subspace: what follows is rounding, and the quadrature is exact already.
        lengths[ended] = step + 1
        if np.all(lengths <= step + 1):
            break
        current = image / np.maximum(betas[:, step], 1e-300)
    return _quadrature(n, alphas, betas, lengths)


def _quadrature(n: int, alphas: Array, betas: Array, lengths: NDArray[np.int_]) -> SpectralMeasure:
    nodes, weights = np.zeros_like(alphas), np.zeros_like(alphas)
    for probe, length in enumerate(lengths):
        values, vectors = linalg.eigh_tridiagonal(alphas[probe, :length], betas[probe, : length - 1])
        nodes[probe, :length], weights[probe, :length] = values, vectors[0] ** 2
        nodes[probe, length:] = values[-1]
    return SpectralMeasure(n, nodes, weights)
