"""Eigenvalues outside the bulk, and how far their eigenvectors point to the classes.

The equations are docs/theory.md (6.5) to (6.8).

Everything is in units where τ0 = α₁ = 1. Let E(z) = Ω^{-1} + 𝓑(z), with

    Ω^{-1} = [[0, I, 0], [I, -𝓜ᵀ𝓜 - α₃T, -t], [0, -tᵀ, 1/α₂]],

which is singular where the determinant (6.8) is zero. Its first block is diag(n_a g_a/p); eliminating that
one, and scaling the last row and column by √α₂ (so that α₂ = 0 needs no case of its own), leaves a matrix of
size K+1:

    H(z) = [[-𝓜ᵀR𝓜 - α₃T - diag(p/(n_a g_a)), -√α₂ t], [-√α₂ tᵀ, 1 + α₂ Σ_a (2 n_a T_aa/p) g_a]].

The derivative of 𝓑, the limit of Uᵀ(WWᵀ - z)^{-2}U, is positive semi-definite, and so is that of H. The
sorted eigenvalues of H grow with z: each has at most one zero in a gap, and none can be missed or counted
twice. By the inertia of block matrices the kernel has as many eigenvalues below z as WWᵀ, plus the number
of positive ones among the g_a and the eigenvalues of H, minus K+1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from notsodeep.data import ClassStatistics
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.equivalents.resolvent import Noise, slope
from notsodeep.equivalents.support import Point, SpectralGap
from notsodeep.validation import Array

# Roots closer than this, relative, are one root with several eigenvectors.
_SAME_ROOT = 1e-9
# A gap that begins at 0 is searched from this fraction of its length on: what is below belongs to the atom.
_FROM_ZERO = 1e-9


@dataclass(frozen=True, eq=False)
class Isolated:
    """One isolated eigenvalue."""

    z: float  # where it stands, on the scale of the noise in units of τ0
    alignment: Array  # squared projections of its eigenvector on the normalised indicators of the K classes


@dataclass(frozen=True, eq=False)
class Perturbation:
    """What a kernel has beyond its noise: means, t, T and ψ, docs/theory.md (6.5)."""

    noise: Noise  # the classes without their means
    trace_part: Array  # α₃T
    norm_part: Array  # √α₂ t
    norm_weights: Array  # α₂ · 2 n_a T_aa/p, the weights of ψ in each class

    @classmethod
    def of(cls, noise: Noise, stats: ClassStatistics, scalars: Coefficients) -> Perturbation:
        """From the scalars of a kernel and the statistics of the classes, in units where τ0 = α₁ = 1."""
        square = stats.tau0**2
        norm, trace = (value * square / scalars.linear for value in (scalars.norm, scalars.trace))
        T = stats.T / square**2
        weights = 2.0 * norm * noise.ratios * np.diag(T)
        return cls(noise, trace * T, np.sqrt(norm) * stats.t / square, np.asarray(weights))

    def matrix(self, g: Array) -> Array:
        """The matrix H of the module's docstring."""
        first = -self.noise.mean_form(g) - self.trace_part - np.diag(1.0 / (self.noise.ratios * g))
        side = -self.norm_part[:, None]
        return np.block([[first, side], [side.T, np.array([[1.0 + self.norm_weights @ g]])]])

    def matrix_slope(self, g: Array, rates: Array) -> Array:
        """The derivative of H in z, from the derivative `rates` of g."""
        first = self.noise.mean_form_slope(g, rates) + np.diag(rates / (self.noise.ratios * g**2))
        side = np.zeros((len(g), 1))
        return np.block([[first, side], [side.T, np.array([[self.norm_weights @ rates]])]])

    def scale(self, g: Array) -> Array:
        """Roots of the sizes of the terms on the diagonal of H, which near an atom differ by many orders."""
        terms = np.abs(np.diag(self.noise.mean_form(g))) + np.abs(np.diag(self.trace_part))
        terms = terms + np.abs(1.0 / (self.noise.ratios * g))
        return np.asarray(np.sqrt(np.append(terms, 1.0 + self.norm_weights @ np.abs(g))))

    def signs(self, g: Array) -> Array:
        """Numbers in ascending order with the signs of the eigenvalues of H, which is first scaled to order 1."""
        scale = self.scale(g)
        return np.asarray(np.linalg.eigvalsh(self.matrix(g) / scale / scale[:, None]))

    def shift(self, g: Array) -> int:
        """How many eigenvalues more than WWᵀ the kernel has below a point outside the support; 0 or fewer."""
        positive = np.count_nonzero(self.signs(g) > 0) + np.count_nonzero(g > 0)
        return int(positive) - len(g) - 1

    def roots(self, gap: SpectralGap) -> list[tuple[float, int]]:
        """Eigenvalues in a gap, in ascending order, and how often each occurs."""
        start, stop = self.ends(gap)
        low, high = self.signs(start.g), self.signs(stop.g)

        def branch(z: float, index: int) -> float:
            return float(self.signs(gap.at(self.noise, z))[index])

        crossing = np.flatnonzero((low <= 0) & (high > 0))
        found = [brentq(branch, start.z, stop.z, args=(k,), rtol=1e-13) for k in crossing]
        return _together(sorted(found))

    def ends(self, gap: SpectralGap) -> tuple[Point, Point]:
        """The first and the last point where a gap is searched: its edges, or near 0 and above all."""
        near_zero = _FROM_ZERO * (gap.high or gap.inside).z
        start = gap.low or Point(near_zero, gap.at(self.noise, near_zero))
        return start, gap.high or self._beyond(gap, start.z)

    def _beyond(self, gap: SpectralGap, z: float) -> Point:
        while True:
            z *= 2.0
            g = gap.at(self.noise, z)
            if self.shift(g) == 0:
                return Point(z, g)

    def aligned(self, gap: SpectralGap, z: float, times: int) -> list[Isolated]:
        """The isolated eigenvalues at a root that is no edge, with projections from the residue.

        For H y = 0 the residue of Uᵀ(kernel - z)^{-1}U has, in the columns J/√p of U, the entries
        y_a y_b/(yᵀH'y). Vectors of one root are first made orthogonal in H'.
        """
        g = gap.at(self.noise, z)
        scale = self.scale(g)
        values, vectors = np.linalg.eigh(self.matrix(g) / scale / scale[:, None])
        null = vectors[:, np.argsort(np.abs(values))[:times]] / scale[:, None]
        lengths, turn = np.linalg.eigh(null.T @ self.matrix_slope(g, slope(self.noise, z, g)) @ null)
        projections = (null @ turn / np.sqrt(lengths))[: len(g)]
        return [Isolated(z, self._by_class(column)) for column in projections.T]

    def _by_class(self, column: Array) -> Array:
        """Squared projections on the indicators of the classes from the components on those of the groups."""
        member = self.noise.member
        sums, ratios = np.bincount(member, column), np.bincount(member, self.noise.ratios)
        return np.asarray(sums**2 / ratios)


def _together(roots: list[float]) -> list[tuple[float, int]]:
    """Roots that agree up to rounding, with their number."""
    groups: list[tuple[float, int]] = []
    for root in roots:
        if groups and root - groups[-1][0] <= _SAME_ROOT * root:
            groups[-1] = (groups[-1][0], groups[-1][1] + 1)
        else:
            groups.append((root, 1))
    return groups
