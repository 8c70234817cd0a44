"""A kernel on a Gaussian mixture as features whose means and covariances are known: docs/theory.md (11.7)–(11.9).

The expansion of the kernel in inner products, K_ij = g_0(s_i, s_j) + g_1(s_i, s_j) c_ij + g_2(s_i, s_j) c_ij² + …, says
which features of a sample it sees: functions of its squared norm s, its coordinates x, products of two of them. What is
left of the diagonal is a tail: infinitely many features, none of which can be learnt from n = O(p) samples. Neither
centring nor a vanishing bias is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from notsodeep.data import Diagonal, GaussianMixture, Isotropic
from notsodeep.equivalents.expansion import exact_diagonal, expand, refuse_uncovered
from notsodeep.equivalents.mixture_covariances import common_basis
from notsodeep.models import Model
from notsodeep.validation import Array

# Nodes of the quadrature over the norms within a class.
_NODES = 7
# Eigenvalues below this share of the largest are rounding.
_ROUNDING = 1e-11


@dataclass(frozen=True, eq=False)
class ClassFeatures:
    """Features of K classes: a core in which their means lie, directions without means, and a tail.

    Attributes:
        means: E_a[φ] in the core, shape (K, d).
        covariances: Cov_a[φ] in the core, shape (K, d, d).
        rest: variances of the features along all other directions, in each class, shape (D, K).
        multiplicity: how many directions share each row of `rest`, shape (D,).
        tails: c_a, the squared length of what is not listed, shape (K,).
    """

    means: Array
    covariances: Array
    rest: Array
    multiplicity: Array
    tails: Array

    @property
    def second_moments(self) -> Array:
        """E_a[φφᵀ] in the core, shape (K, d, d)."""
        return np.asarray(self.covariances + self.means[:, :, None] * self.means[:, None, :])

    @property
    def squared_lengths(self) -> Array:
        """E_a|φ|² without the tail, shape (K,)."""
        core = np.trace(self.covariances, axis1=1, axis2=2) + np.sum(self.means**2, axis=1)
        return np.asarray(core + self.multiplicity @ self.rest)


def mixture_features(model: Model, mixture: GaussianMixture, kernel: str) -> ClassFeatures:
    """The features through which a kernel of the model sees a mixture."""
    refuse_uncovered(model, kernel)
    inputs = _Inputs.of(mixture)
    norms = _Norms.of(inputs)
    linear, quadratic = (_factors(model, kernel, norms, mixture.weights, power) for power in (1, 2))
    radial = _radial(model, kernel, norms)
    pairs = _Pairs.of(inputs, mixture.weights, quadratic)
    means = np.hstack([linear[:, None] * inputs.means, radial.means, pairs.means])
    blocks = [_covariance(a, inputs, norms, linear[a], radial, pairs) for a in range(inputs.classes)]
    rest = np.vstack([linear**2 * inputs.rest, pairs.rest])
    multiplicity = np.append(inputs.multiplicity, pairs.multiplicity)
    zeros = np.zeros(inputs.classes)
    known = ClassFeatures(means, np.stack(blocks), rest, multiplicity, zeros)
    diagonal = norms.average(exact_diagonal(model, norms.nodes.ravel(), kernel)[:, None])[:, 0]
    tails = np.maximum(diagonal - known.squared_lengths, 0.0)
    return ClassFeatures(known.means, known.covariances, rest, multiplicity, tails)


# --- the samples ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The classes of a mixture, x ~ N(means_a, covariances_a) in a core and N(0, rest_a) along the other directions."""

    means: Array  # (K, d)
    covariances: Array  # (K, d, d)
    rest: Array  # (D, K)
    multiplicity: Array  # (D,)

    @property
    def classes(self) -> int:
        return len(self.means)

    @classmethod
    def of(cls, mixture: GaussianMixture) -> _Inputs:
        p = mixture.p
        means = mixture.means / np.sqrt(p)
        if all(isinstance(covariance, Isotropic | Diagonal) for covariance in mixture.covariances):
            values = np.stack([covariance.diagonal() for covariance in mixture.covariances], axis=1) / p
            return cls._grouped(values, means)
        matrices = np.stack([covariance.to_dense() for covariance in mixture.covariances]) / p
        basis, eigenvalues = common_basis(matrices)
        if eigenvalues is not None:
            return cls._grouped(eigenvalues, means @ basis)
        return cls(means, matrices, np.zeros((0, len(means))), np.zeros(0))

    @classmethod
    def _grouped(cls, values: Array, means: Array) -> _Inputs:
        """Coordinates of equal variances (p, K): the directions of the means in each group, and how many are left."""
        distinct, group = np.unique(values, axis=0, return_inverse=True)
        columns, owners, left = [], [], []
        for number in range(len(distinct)):
            part = means[:, group.ravel() == number]
            triangle = np.linalg.qr(
                part.T, mode="r"
            )  # means = triangleᵀ in an orthonormal basis of the group
            kept = np.abs(triangle).max(axis=1) > 1e-14 * (np.abs(means).max() or 1.0)
            columns.append(triangle[kept].T)
            owners += [number] * int(kept.sum())
            left.append(part.shape[1] - int(kept.sum()))
        variances = distinct[owners]  # (d, K)
        covariances = np.stack([np.diag(column) for column in variances.T])
        return cls(np.hstack(columns), covariances, distinct, np.array(left, dtype=np.float64))

    def trace_of_product(self, *which: int) -> float:
        """tr(C_a C_b …) of the covariances of these classes."""
        product = self.covariances[which[0]]
        values = self.rest[:, which[0]]
        for a in which[1:]:
            product, values = product @ self.covariances[a], values * self.rest[:, a]
        return float(np.trace(product) + self.multiplicity @ values)


@dataclass(frozen=True, eq=False)
class _Norms:
    """Squared norms in each class: mean, variance, and nodes of a quadrature over a log-normal law with these."""

    mean: Array  # (K,)
    variance: Array  # (K,)
    nodes: Array  # (K, _NODES)
    shares: Array  # (_NODES,)

    @classmethod
    def of(cls, inputs: _Inputs) -> _Norms:
        each = range(inputs.classes)
        traces = np.array([inputs.trace_of_product(a) for a in each])
        spread = np.array([2.0 * inputs.trace_of_product(a, a) for a in each])
        shifts = np.einsum("ki,kij,kj->k", inputs.means, inputs.covariances, inputs.means)
        mean, variance = traces + np.sum(inputs.means**2, axis=1), spread + 4.0 * shifts
        points, shares = hermegauss(_NODES)
        width = np.sqrt(np.log1p(variance / mean**2))[:, None]
        nodes = mean[:, None] * np.exp(width * points - width**2 / 2.0)
        return cls(mean, variance, nodes, shares / shares.sum())

    def average(self, values: Array) -> Array:
        """E_a of functions given at all nodes, (K · nodes, r) → (K, r)."""
        return np.asarray(np.tensordot(self.shares, self._by_class(values), axes=(0, 1)))

    def covariance(self, values: Array) -> Array:
        """Cov_a of such functions, shape (K, r, r)."""
        centred = self._by_class(values) - self.average(values)[:, None]
        return np.asarray(np.einsum("j,kjr,kjs->krs", self.shares, centred, centred))

    def slopes(self, values: Array) -> Array:
        """Cov_a(s, f)/Var_a(s), the mean slope of such functions, shape (K, r)."""
        deviation = self.nodes - self.mean[:, None]
        raw = np.einsum("j,kj,kjr->kr", self.shares, deviation, self._by_class(values))
        return np.asarray(raw / np.maximum(self.variance, np.finfo(float).tiny)[:, None])

    def _by_class(self, values: Array) -> Array:
        return values.reshape(*self.nodes.shape, -1)


# --- the features -----------------------------------------------------------------------------------------------------


def _factors(model: Model, kernel: str, norms: _Norms, weights: Array, power: int) -> Array:
    """f_a with g_k(s_a, s_b) ≃ f_a f_b, where s_a is the typical squared norm in class a; 0 where g_k vanishes."""
    typical = np.array([float(weights @ norms.mean)])
    values = expand(model, np.append(typical, norms.mean), typical, kernel, power, 0.0)[power][:, 0]
    scale = np.sqrt(max(values[0], 0.0))
    return np.asarray(values[1:] / scale if scale > 0.0 else np.zeros(len(norms.mean)))


@dataclass(frozen=True, eq=False)
class _Radial:
    """Functions of the norm: their means (K, r), covariances (K, r, r) and mean slopes (K, r)."""

    means: Array
    covariances: Array
    slopes: Array


def _radial(model: Model, kernel: str, norms: _Norms) -> _Radial:
    """Features h with g_0(s, s') = h(s)·h(s'), from the eigenvectors of g_0 at the nodes."""
    nodes = norms.nodes.ravel()
    values = expand(model, nodes, nodes, kernel, 1, 0.0)[0]
    root = np.sqrt(np.tile(norms.shares, len(norms.mean)))
    sizes, vectors = np.linalg.eigh(root[:, None] * values * root)
    # In units of the kernel's own diagonal: an odd activation has g_0 = 0 up to rounding.
    kept = sizes > _ROUNDING * float(np.max(exact_diagonal(model, nodes, kernel)))
    functions = vectors[:, kept] * np.sqrt(sizes[kept]) / root[:, None]
    return _Radial(norms.average(functions), norms.covariance(functions), norms.slopes(functions))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Products x_i x_j: their part along the classes' second moments, and the many other directions as one group."""

    means: Array  # (K, k)
    projection: Array  # (K, k): from the forms xᵀB_b x to the features
    factors: Array  # (K,): of the norms
    rest: Array  # (1, K) or (0, K)
    multiplicity: Array

    @classmethod
    def of(cls, inputs: _Inputs, weights: Array, factors: Array) -> _Pairs:
        classes = inputs.classes
        if not factors.any():
            nothing = np.zeros((classes, 0))
            return cls(nothing, nothing, factors, np.zeros((0, classes)), np.zeros(0))
        # <B_a, B_b> with B_a = E_a[xxᵀ], docs/theory.md (11.9).
        forms = np.einsum("ki,lij,kj->kl", inputs.means, inputs.covariances, inputs.means)
        products = np.array([[inputs.trace_of_product(a, b) for b in range(classes)] for a in range(classes)])
        gram = products + forms + forms.T + (inputs.means @ inputs.means.T) ** 2
        sizes, vectors = np.linalg.eigh(gram)
        kept = sizes > _ROUNDING * sizes[-1]
        basis, lengths = vectors[:, kept], np.sqrt(sizes[kept])
        # Fluctuations: variance 2 tr(C_a C_b)² between two samples, total length (tr C_a)² + tr C_a².
        lengths_a = np.array(
            [inputs.trace_of_product(a) ** 2 + inputs.trace_of_product(a, a) for a in range(classes)]
        )
        overlaps = 2.0 * products**2
        mean_length = float(weights @ lengths_a)
        number = mean_length**2 / float(weights @ overlaps @ weights)
        rest = (factors**2 * lengths_a / number)[None]
        return cls(factors[:, None] * (basis * lengths), basis / lengths, factors, rest, np.array([number]))


def _covariance(
    a: int, inputs: _Inputs, norms: _Norms, linear: float, radial: _Radial, pairs: _Pairs
) -> Array:
    """Cov_a of all features of the core: coordinates, functions of the norm, forms."""
    own = inputs.covariances[a]
    shift = 2.0 * own @ inputs.means[a]  # Cov_a(x, s)
    with_radial = linear * np.outer(shift, radial.slopes[a])
    classes = range(inputs.classes) if pairs.means.shape[1] else ()
    # Cov_a(x, xᵀB_b x) = 2 C_a B_b m_a, Cov_a(s, xᵀB_b x) = 2 tr(C_a B_b C_a) + …, B_b ≃ C_b.
    forms = np.array([2.0 * own @ inputs.covariances[b] @ inputs.means[a] for b in classes])
    norm_forms = np.array([2.0 * inputs.trace_of_product(a, b, a) for b in classes])
    form_forms = np.array([[2.0 * inputs.trace_of_product(b, a, c, a) for c in classes] for b in classes])
    if not pairs.means.shape[1]:
        return np.block([[linear**2 * own, with_radial], [with_radial.T, radial.covariances[a]]])
    projection = pairs.factors[a] * pairs.projection
    with_pairs = linear * forms.T @ projection
    radial_pairs = np.outer(radial.slopes[a], norm_forms @ projection)
    return np.block(
        [
            [linear**2 * own, with_radial, with_pairs],
            [with_radial.T, radial.covariances[a], radial_pairs],
            [with_pairs.T, radial_pairs.T, projection.T @ form_forms @ projection],
        ]
    )


__all__ = ["ClassFeatures", "mixture_features"]
