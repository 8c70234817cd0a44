"""How perturbations of the state of a cell grow at its equilibrium: the rate of the iteration and the adjoint.

A perturbation passes through the cell by the rules of tangent moments. Where the state enters a sum directly,
amplitudes add rather than variances: λ is in the spectrum of the Jacobian J as long as the second moment of
(λ - J)⁻¹ noise is infinite, so that the rate is the λ at which the spectral radius of a small matrix is 1 (17.5).
"""

from __future__ import annotations

import numpy as np

from notsodeep.cells.layouts import Layout
from notsodeep.cells.sample_terms import cut_nodes, walk
from notsodeep.cells.second_moments import Atom, Combination, Moments, SampleTerms, Vector
from notsodeep.cells.structure import Cell
from notsodeep.errors import ConvergenceError
from notsodeep.validation import Array

_STATE: Atom = ("state", -1, 0)
_NOISE: Atom = ("noise", -1, 0)
# Stands for the state in the place of a node.
_WHOLE = -2
# Relative accuracy of a rate, and steps of the power method where positions are coupled.
ACCURACY, POWER_STEPS = 1e-10, 200


class Perturbations:
    """Perturbations of the state at the equilibrium of samples one by one.

    Args:
        cell: the cell.
        layout: "own" for samples one by one, "graph" for the nodes of a graph.
        terms: the samples at the equilibrium.
        moments: their second moments.
    """

    def __init__(self, cell: Cell, layout: Layout, terms: SampleTerms, moments: Moments) -> None:
        self.cell, self.layout, self.moments = cell, layout, moments
        self.cuts = cut_nodes(cell)
        raw = SampleTerms()
        state: Combination = {_STATE: np.ones((1, 1))}
        # Norms divide by what they divide by at the equilibrium: the radial derivative vanishes.
        walk(cell, raw, 0, state, _Recorded(cell, terms))
        self.raw = raw.combinations
        self.output = self.raw[cell.last, 0]
        self.skip = np.broadcast_to(self.output.get(_STATE, np.zeros((1, 1))), moments.gram.shape[:2])

    def matrix(self, scale: Array) -> Array:
        """Return how J/λ maps the second moments of cut nodes, (samples, cuts, cuts); λ = `scale`, (stack, rows)."""
        columns = []
        base = self._mapped(scale, [np.zeros(self.moments.gram.shape)] * len(self.cuts))
        for place in range(len(self.cuts)):
            given = [
                np.full(self.moments.gram.shape, float(place == other)) for other in range(len(self.cuts))
            ]
            mapped = self._mapped(scale, given)
            columns.append([one - two for one, two in zip(mapped, base, strict=True)])
        return np.array(columns).transpose(2, 3, 4, 1, 0)[:, :, 0]

    def radius(self, scale: Array) -> Array:
        """Return the spectral radius of that map, for every sample."""
        if not self.cuts:
            return np.zeros(self.moments.gram.shape[:2])
        if not self.layout.positions and self.layout.kind == "own":
            return np.asarray(np.abs(np.linalg.eigvals(self.matrix(scale))).max(axis=-1))
        return self._power(scale)

    def _power(self, scale: Array) -> Array:
        """The same by power iteration, where positions or nodes are coupled; one number for all of a sample."""
        shape = self.moments.gram.shape
        given = [np.ones(shape)] * len(self.cuts)
        base = self._mapped(scale, [np.zeros(shape)] * len(self.cuts))
        growth = np.zeros(shape[:2])
        for _ in range(POWER_STEPS):
            mapped = [one - two for one, two in zip(self._mapped(scale, given), base, strict=True)]
            size = self._size(mapped)
            settled = np.allclose(size, growth, rtol=1e-8, atol=1e-300)
            growth = size
            if settled:
                break
            over = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
            given = [part * over[:, :, None] for part in mapped]
        return growth

    def _size(self, parts: list[Array]) -> Array:
        """The largest entry of each sample."""
        largest = np.max([np.abs(part) for part in parts], axis=0)
        if self.layout.kind == "graph":
            return np.full(largest.shape[:2], largest.max())
        count = int(np.prod(self.layout.positions))
        whole = largest.reshape(count, -1).max(axis=0)
        return np.broadcast_to(whole, (count, len(whole))).reshape(-1, 1)

    def rate(self) -> Array:
        """Return the rate at which iterates approach the equilibrium, (stack, rows)."""
        return np.maximum(self.edge(1.0), self.edge(-1.0))

    def edge(self, sign: float) -> Array:
        """Return the end of the spectrum of J on the positive or negative axis."""
        low = np.maximum(sign * self.skip, 0.0)
        high = np.maximum(2.0 * low, 1.0)
        for _ in range(60):
            outside = self.radius(sign * high) < 1.0
            if outside.all():
                break
            high = np.where(outside, high, 2.0 * high)
        while np.any(high - low > ACCURACY * high):
            middle = 0.5 * (low + high)
            inside = self.radius(sign * np.maximum(middle, 1e-12)) >= 1.0
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return high

    def adjoint_growth(self) -> Array:
        """Return the mean square of (1 - J)⁻¹ noise for noise of variance 1: infinite where J has no such inverse."""
        one = np.ones(self.moments.gram.shape[:2])
        stable = self.radius(one) < 1.0
        zeros = [np.zeros(self.moments.gram.shape)] * len(self.cuts)
        given, quiet = zeros, self._mapped(one, zeros)
        free = {_NOISE: 1.0 / (1.0 - self.skip)}
        for _ in range(20_000):
            fresh = [a - b for a, b in zip(self._mapped(one, given, free), quiet, strict=True)]
            moved = [np.abs(a - b)[stable].max(initial=0.0) for a, b in zip(fresh, given, strict=True)]
            sizes = [np.abs(part)[stable].max(initial=1.0) for part in fresh]
            given = fresh
            if max(moved, default=0.0) <= 1e-12 * max(sizes, default=1.0):
                break
        total = self._mapped(one, given, free, [_WHOLE])[0] - self._mapped(one, zeros, {}, [_WHOLE])[0]
        return np.where(stable, self.layout.diagonal(total), np.inf)

    def _mapped(
        self,
        scale: Array,
        given: list[Array],
        free: Combination | None = None,
        nodes: list[int] | None = None,
    ) -> list[Array]:
        """Tangent moments of the cut nodes one step later; `free` is added to the state."""
        over = 1.0 / (scale - self.skip)
        state = {atom: values * over for atom, values in self.output.items() if atom != _STATE}
        state |= free or {}
        combinations: dict[Vector, Combination] = {(_WHOLE, 0): state}
        for vector, terms in self.raw.items():
            own = {atom: values for atom, values in terms.items() if atom != _STATE}
            if _STATE in terms:
                for atom, values in state.items():
                    extra = terms[_STATE] * values
                    own[atom] = own[atom] + extra if atom in own else extra
            combinations[vector] = own
        moments = self.moments
        kept = moments.derivatives, moments.tangents
        moments.derivatives = combinations, combinations
        moments.tangents = dict(zip(self.cuts, given, strict=True))
        moments.forget_tangents()
        result = [moments.expanded_tangent((node, 0), (node, 0)) for node in nodes or self.cuts]
        moments.derivatives, moments.tangents = kept
        moments.forget_tangents()
        return result


class _Recorded:
    """Squares of the root mean squares that norms divided by at the equilibrium."""

    def __init__(self, cell: Cell, terms: SampleTerms) -> None:
        roots = terms.roots.items()
        self.squares = {cell.number(cell.nodes[place].parents[0]): root**2 for (place, _), root in roots}

    def __call__(self, vector: Vector) -> Array:
        """The square of the divisor of a norm of this vector; one where there is none."""
        return self.squares.get(vector[0], np.ones((1, 1)))


def growth_of(cell: Cell, layout: Layout, terms: SampleTerms, moments: Moments) -> Array:
    """By how much perturbations of the state of each sample grow in a step."""
    return np.sqrt(Perturbations(cell, layout, terms, moments).radius(np.ones(moments.gram.shape[:2])))


def raise_growth(growth: Array) -> None:
    """Raise a ConvergenceError if derivatives of the equilibrium grow without bound."""
    worst = float(growth.max(initial=0.0))
    if worst >= 1.0:
        raise ConvergenceError(
            f"The tangent kernel diverges: perturbations of the state grow by {worst:.4g} per step.",
            "Lower the variances of the weights that read the state, or raise that of the input.",
        )


__all__ = ["Perturbations", "growth_of", "raise_growth"]
