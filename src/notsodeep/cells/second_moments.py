"""Second moments and tangent moments of the vectors of a cell, by the rules of docs/theory.md, section 17.

A vector of a sample is a combination of atoms; the second moment of two vectors is a sum over pairs of atoms. Tangent
moments, the sums over all weights of products of derivatives, follow the same rules with φ' in the place of φ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from notsodeep.cells.expressions import Input
from notsodeep.cells.layouts import Layout
from notsodeep.cells.structure import Cell, Factor
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative
from notsodeep.validation import Array

# An atom at a step of a loop; ("state", last node, step) is the state that a step returned. A vector is a node at a
# step. Equilibria have the step 0 only.
Atom = tuple[str, int, int]
Vector = tuple[int, int]
Combination = dict[Atom, Array]
# F and F' of an activation between two Gaussian vectors with these covariances.
DualOf = Callable[[Activation, Vector, Vector, Array], tuple[Array, Array]]


@dataclass
class SampleTerms:
    """What is known of samples one by one.

    Attributes:
        combinations: the coefficients (stack, rows) of each vector.
        variances: variances (stack, rows) of the Gaussian vectors that activations read.
        roots: root mean squares (stack, rows) of the vectors that norms divide by.
    """

    combinations: dict[Vector, Combination] = field(default_factory=dict)
    variances: dict[Vector, Array] = field(default_factory=dict)
    roots: dict[Vector, Array] = field(default_factory=dict)
    _moments: dict[tuple[Activation, Vector, int], Array] = field(default_factory=dict)

    def mean(self, factor: Factor, step: int, order: int) -> Array:
        """Return E[φ] (order 0) or E[φ'] (order 1) of a factor, (stack, rows)."""
        vector = factor.argument, step
        key = factor.phi, vector, order
        if key not in self._moments:
            self._moments[key] = np.asarray(mean_derivative(factor.phi, self.variances[vector], order))
        return self._moments[key]

    def arranged(self, shape: tuple[int, int], arrange: Callable[[Array], Array]) -> SampleTerms:
        """Return the terms in another layout; `shape` is that of the present one."""

        def whole(values: Array) -> Array:
            return arrange(np.broadcast_to(values, shape))

        return SampleTerms(
            {
                vector: {atom: whole(values) for atom, values in terms.items()}
                for vector, terms in self.combinations.items()
            },
            {vector: whole(values) for vector, values in self.variances.items()},
        )

    def part(self, rows: slice) -> SampleTerms:
        """Return some of the samples."""
        return SampleTerms(
            {
                vector: {atom: values[:, rows] for atom, values in terms.items()}
                for vector, terms in self.combinations.items()
            },
            {vector: values[:, rows] for vector, values in self.variances.items()},
        )


def _terms(item: Vector | Atom, combinations: Mapping[Vector, Combination]) -> Combination:
    """The combination of a vector; of an atom the atom itself."""
    return {item: np.ones((1, 1))} if len(item) == 3 else combinations[item]


class Moments:
    """Second moments of all pairs of two sets of samples; each is computed when it is first needed.

    Args:
        cell: the cell.
        layout: of the arrays.
        left: what is known of the samples of the rows.
        right: the same of the columns.
        gram: inner products of the inputs.
        dual: F and F'.
        unknown: second moments of nodes with themselves that are given rather than computed, at an equilibrium.
        known: second moments of pairs of atoms that are given.

    Attributes:
        tangents: tangent moments of nodes with themselves that are given rather than computed.
        derivatives: how derivatives combine, left and right, where that is not how the vectors do.
    """

    def __init__(
        self,
        cell: Cell,
        layout: Layout,
        left: SampleTerms,
        right: SampleTerms,
        gram: Array,
        dual: DualOf,
        unknown: Mapping[int, Array] | None = None,
        known: Mapping[tuple[Atom, Atom], Array] | None = None,
    ) -> None:
        self.cell, self.layout, self.left, self.right, self.gram = cell, layout, left, right, gram
        self._dual = dual
        self.unknown = dict(unknown or {})
        self.tangents: dict[int, Array] = {}
        self.derivatives = left.combinations, right.combinations
        self._known = dict(known or {})
        self._tangents: dict[tuple[Atom, Atom], Array] = {}
        self._duals: dict[tuple[Activation, Vector, Vector], tuple[Array, Array]] = {}

    # --- second moments -----------------------------------------------------------------------------------------------

    def of(self, one: Vector, other: Vector) -> Array:
        """Return the second moment of two vectors per coordinate."""
        if one == other and one[0] in self.unknown:
            return self.unknown[one[0]]
        return self.expanded(one, other)

    def expanded(self, one: Vector, other: Vector) -> Array:
        """Return the second moment as the sum over pairs of atoms."""
        if isinstance(self.cell.nodes[one[0]], Input):
            return self.gram
        total = np.zeros(self.gram.shape)
        for a, own in self.left.combinations[one].items():
            for b, others in self.right.combinations[other].items():
                moment = self._atoms(a, b)
                if moment is not None:
                    total = total + moment * (own[:, :, None] * others[:, None, :])
        return total

    def recomputed(self, atoms: Iterable[Atom]) -> dict[tuple[Atom, Atom], Array]:
        """Return the second moments of all pairs of these atoms, computed again where they were given."""
        pairs = [(a, b) for a, b in product(atoms, repeat=2) if self._are_correlated(a, b)]
        return {(a, b): self._compute(a, b) for a, b in pairs}

    def _atoms(self, a: Atom, b: Atom) -> Array | None:
        """The second moment of two atoms; None if it is zero."""
        if not self._are_correlated(a, b):
            return None
        if (a, b) not in self._known:
            self._known[a, b] = self._compute(a, b)
        return self._known[a, b]

    def _are_correlated(self, a: Atom, b: Atom) -> bool:
        kinds = {a[0], b[0]}
        if kinds == {"feature"} or "state" in kinds:
            return True
        if "feature" not in kinds:
            return a[:2] == b[:2]
        other, feature = (a, b) if b[0] == "feature" else (b, a)
        factors = self.cell.factors[feature[1]]
        return any(other[:2] in self.cell.contents[factor.argument] for factor in factors)

    def _compute(self, a: Atom, b: Atom) -> Array:
        if "state" in (a[0], b[0]):
            # The state of an earlier step of a loop is expanded when it is needed.
            return self.covariance(a[1:], b) if a[0] == "state" else self.covariance(a, b[1:])
        if a[0] == b[0] == "bias":
            return np.full(self.gram.shape, self.cell.nodes[a[1]].variance)  # type: ignore[attr-defined]
        if a[0] == b[0] == "field":
            node = self.cell.nodes[a[1]]
            read = self.cell.number(node.parents[0])
            moment = self.of((read, a[2]), (read, b[2]))
            return np.asarray(node.variance * self.layout.mixed(node, moment))  # type: ignore[attr-defined]
        if a[0] == b[0] == "feature":
            return self._features(a, b)
        return self._mixed(a, b, self.covariance)

    def _features(self, a: Atom, b: Atom) -> Array:
        """E of two products of activations: F of correlated factors, means of the others."""
        pairs = self.cell.matches(a[1], b[1])
        total = self._rest(a, b, pairs)
        for k, j in pairs:
            total = total * self._factor(a, b, k, j)[0]
        return total

    def _rest(self, a: Atom, b: Atom, pairs: Sequence[tuple[int, int]]) -> Array:
        """The product of the means of the factors that have no partner."""
        rest = np.ones(self.gram.shape)
        for k, factor in enumerate(self.cell.factors[a[1]]):
            if k not in [pair[0] for pair in pairs]:
                rest *= self.left.mean(factor, a[2], 0)[:, :, None]
        for k, factor in enumerate(self.cell.factors[b[1]]):
            if k not in [pair[1] for pair in pairs]:
                rest *= self.right.mean(factor, b[2], 0)[:, None, :]
        return rest

    def _factor(self, a: Atom, b: Atom, k: int, j: int) -> tuple[Array, Array]:
        """F and F' of two correlated factors."""
        factor, other = self.cell.factors[a[1]][k], self.cell.factors[b[1]][j]
        one, two = (factor.argument, a[2]), (other.argument, b[2])
        key = factor.phi, one, two
        if key not in self._duals:
            covariance = self.of(one, two)
            if factor.is_linear:
                scale = (factor.phi.amplitude * factor.phi.gain) ** 2
                self._duals[key] = scale * covariance, np.full(self.gram.shape, scale)
            else:
                self._duals[key] = self._dual(factor.phi, one, two, covariance)
        return self._duals[key]

    def _mixed(self, a: Atom, b: Atom, moment: Callable[[Vector | Atom, Vector | Atom], Array]) -> Array:
        """E of a Gaussian atom and a feature, by Stein's lemma: Σ_k cov(atom, u_k) E[φ_k'] Π E[φ_l]."""
        feature, side = (b, self.right) if b[0] == "feature" else (a, self.left)
        total = np.zeros(self.gram.shape)
        for k, factor in enumerate(self.cell.factors[feature[1]]):
            weight = self._mean_slope(feature, side, k)
            vector = factor.argument, feature[2]
            if b[0] == "feature":
                total = total + moment(a, vector) * weight[:, None, :]
            else:
                total = total + moment(vector, b) * weight[:, :, None]
        return total

    def _mean_slope(self, feature: Atom, side: SampleTerms, k: int) -> Array:
        """E[φ_k'] Π E[φ_l], l ≠ k, of a feature."""
        factors = self.cell.factors[feature[1]]
        weight = side.mean(factors[k], feature[2], 1)
        for other, factor in enumerate(factors):
            if other != k:
                weight = weight * side.mean(factor, feature[2], 0)
        return weight

    def covariance(self, one: Vector | Atom, two: Vector | Atom) -> Array:
        """Return the covariance of two vectors or atoms."""
        total = np.zeros(self.gram.shape)
        for a, own in _terms(one, self.left.combinations).items():
            for b, others in _terms(two, self.right.combinations).items():
                moment = self._atoms(a, b)
                if moment is not None:
                    total = total + moment * (own[:, :, None] * others[:, None, :])
        return total

    # --- tangent moments ----------------------------------------------------------------------------------------------

    def tangent(self, one: Vector, other: Vector) -> Array:
        """Return the sum over all weights of products of the derivatives of two vectors, per coordinate."""
        if one == other and one[0] in self.tangents:
            return self.tangents[one[0]]
        return self.expanded_tangent(one, other)

    def forget_tangents(self) -> None:
        """Drop the tangent moments that were computed, because those that are given change."""
        self._tangents = {}

    def expanded_tangent(self, one: Vector | Atom, other: Vector | Atom) -> Array:
        """Return the tangent moment as the sum over pairs of atoms."""
        total = np.zeros(self.gram.shape)
        for a, own in _terms(one, self.derivatives[0]).items():
            for b, others in _terms(other, self.derivatives[1]).items():
                if self._are_correlated(a, b):
                    if (a, b) not in self._tangents:
                        self._tangents[a, b] = self._compute_tangent(a, b)
                    total += own[:, :, None] * others[:, None, :] * self._tangents[a, b]
        return total

    def _compute_tangent(self, a: Atom, b: Atom) -> Array:
        if "state" in (a[0], b[0]):
            return self.expanded_tangent(a[1:], b) if a[0] == "state" else self.expanded_tangent(a, b[1:])
        if a[0] == b[0] == "noise":
            return np.ones(self.gram.shape)
        if a[0] == b[0] == "bias":
            return np.full(self.gram.shape, self.cell.nodes[a[1]].variance)  # type: ignore[attr-defined]
        if a[0] == b[0] == "field":
            node = self.cell.nodes[a[1]]
            read = self.cell.number(node.parents[0])
            vectors = (read, a[2]), (read, b[2])
            both = self.of(*vectors) + self.tangent(*vectors)
            return np.asarray(node.variance * self.layout.mixed(node, both))  # type: ignore[attr-defined]
        if a[0] == b[0] == "feature":
            return self._feature_tangent(a, b)
        return self._mixed(a, b, self.expanded_tangent)

    def _feature_tangent(self, a: Atom, b: Atom) -> Array:
        pairs = self.cell.matches(a[1], b[1])
        rest, total = self._rest(a, b, pairs), np.zeros(self.gram.shape)
        factors = [self._factor(a, b, k, j) for k, j in pairs]
        for place, (k, j) in enumerate(pairs):
            vectors = (
                (self.cell.factors[a[1]][k].argument, a[2]),
                (self.cell.factors[b[1]][j].argument, b[2]),
            )
            term = rest * factors[place][1] * self.tangent(*vectors)
            for other, (value, _) in enumerate(factors):
                if other != place:
                    term = term * value
            total += term
        return total


__all__ = ["Atom", "Combination", "DualOf", "Moments", "SampleTerms", "Vector"]
