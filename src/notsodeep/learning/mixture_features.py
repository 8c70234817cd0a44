"""A kernel on a Gaussian mixture as features whose means and covariances are known: docs/theory.md (11.7)–(11.9).

The expansion of the kernel in inner products, K_ij = g_0(s_i, s_j) + g_1(s_i, s_j) c_ij + g_2(s_i, s_j) c_ij² + …, says
which features of a sample it sees: functions of its squared norm s, its coordinates x, products of two of them. What is
left of the diagonal is a tail: infinitely many features that cannot be learnt from n = O(p) samples. Neither
centring nor a vanishing bias is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.linalg import block_diag

from notsodeep.data import GaussianMixture
from notsodeep.equivalents.expansion import exact_diagonal, expand, refuse_uncovered
from notsodeep.equivalents.mixture_covariances import common_basis
from notsodeep.models import Model
from notsodeep.validation import Array, IntArray

# Nodes of the quadrature over the norms within a class.
_NODES = 7
# Eigenvalues below this share of the largest are rounding.
_ROUNDING = 1e-11
# Directions shorter than this share of the longest are in the span of the others.
_SPAN = 1e-13


@dataclass(frozen=True, eq=False)
class ClassFeatures:
    """Features of K classes: a core in which their means lie, directions without means, and a tail.

    In the core Cov_a[φ] = diag(diagonals_a) + U inner_a Uᵀ. Where the covariances of the classes commute, U has few
    columns, and nothing of size d × d is formed.

    Attributes:
        means: E_a[φ] in the core, in the span of U, shape (K, d).
        diagonals: the diagonal part of the covariances in the core, shape (K, d).
        basis: U, orthonormal columns (d, q); the identity where the covariances do not commute.
        inner: the other part of the covariances, shape (K, q, q).
        rest: variances of the features along all other directions, in each class, shape (D, K).
        multiplicity: how many directions share each row of `rest`, shape (D,).
        tails: c_a, the squared length of what is not listed, shape (K,).
        free: 1 for features in the core that ridge regression does not penalise, 0 for the others, shape (d,).
    """

    means: Array
    diagonals: Array
    basis: Array
    inner: Array
    rest: Array
    multiplicity: Array
    tails: Array
    free: Array

    @property
    def inner_moments(self) -> Array:
        """E_a[φφᵀ] in the core without its diagonal part, in the columns of U, shape (K, q, q)."""
        along = self.means @ self.basis
        return np.asarray(self.inner + along[:, :, None] * along[:, None, :])

    @property
    def squared_lengths(self) -> Array:
        """E_a|φ|² without the tail, shape (K,)."""
        core = (
            self.diagonals.sum(axis=1)
            + np.trace(self.inner, axis1=1, axis2=2)
            + np.sum(self.means**2, axis=1)
        )
        return np.asarray(core + self.multiplicity @ self.rest)

    def with_intercept(self) -> ClassFeatures:
        """The same features and a constant that is not penalised, docs/theory.md (11.31)."""
        classes = len(self.tails)
        # As large as the others: its size does not matter but for rounding.
        size = np.sqrt(np.mean(self.squared_lengths + self.tails))
        return replace(
            self,
            means=np.hstack([self.means, np.full((classes, 1), size)]),
            diagonals=np.hstack([self.diagonals, np.zeros((classes, 1))]),
            basis=block_diag(self.basis, 1.0),
            inner=np.pad(self.inner, ((0, 0), (0, 1), (0, 1))),
            free=np.append(self.free, 1.0),
        )

    def covariance_times(self, block: Array) -> Array:
        """Cov_a[φ] times a block (d, c) of the core, shape (K, d, c)."""
        low = self.basis @ (self.inner @ (self.basis.T @ block))
        return np.asarray(self.diagonals[:, :, None] * block + low)

    def moment_forms(self, block: Array) -> Array:
        """blockᵀ E_a[φφᵀ] block for a block (d, c) of the core, shape (K, c, c)."""
        along = self.means @ block
        return np.asarray(block.T @ self.covariance_times(block) + along[:, :, None] * along[:, None, :])


def mixture_features(model: Model, mixture: GaussianMixture, kernel: str) -> ClassFeatures:
    """The features through which a kernel of the model sees a mixture."""
    refuse_uncovered(model, kernel)
    inputs = _Inputs.of(mixture)
    norms = _Norms.of(inputs)
    linear, quadratic = (_factors(model, kernel, norms, mixture.weights, power) for power in (1, 2))
    radial = _radial(model, kernel, norms)
    pairs = _Pairs.of(inputs, mixture.weights, quadratic)
    known = _core(inputs, linear, radial, pairs)
    diagonal = norms.average(exact_diagonal(model, norms.nodes.ravel(), kernel)[:, None])[:, 0]
    return replace(known, tails=np.maximum(diagonal - known.squared_lengths, 0.0))


# --- the samples ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The classes of a mixture, x ~ N(means_a, C_a) in a core and N(0, rest_a) along the other directions.

    In the core C_a is diag(diagonals_a), or matrices_a where no basis makes all of them diagonal.
    """

    means: Array  # (K, d)
    diagonals: Array  # (K, d)
    matrices: Array | None  # (K, d, d)
    rest: Array  # (D, K)
    multiplicity: Array  # (D,)

    @property
    def classes(self) -> int:
        return len(self.means)

    @classmethod
    def of(cls, mixture: GaussianMixture) -> _Inputs:
        p = mixture.p
        means = mixture.means / np.sqrt(p)
        if all(covariance.is_diagonal for covariance in mixture.covariances):
            values = np.stack([covariance.diagonal() for covariance in mixture.covariances], axis=1) / p
            return cls._grouped(values, means)
        matrices = np.stack([covariance.to_dense() for covariance in mixture.covariances]) / p
        basis, eigenvalues = common_basis(matrices)
        if eigenvalues is not None:
            return cls._grouped(eigenvalues, means @ basis)
        return cls(means, np.zeros_like(means), matrices, np.zeros((0, len(means))), np.zeros(0))

    @classmethod
    def _grouped(cls, values: Array, means: Array) -> _Inputs:
        """Coordinates of equal variances (p, K): the directions of the means in each group, and how many are left."""
        distinct, group = np.unique(values, axis=0, return_inverse=True)
        columns, owners, left = [], [], []
        for number, members in enumerate(_members(group.ravel(), len(distinct))):
            part = means[:, members]
            # means = triangleᵀ in an orthonormal basis of the group
            triangle = part.T if len(members) == 1 else np.linalg.qr(part.T, mode="r")
            kept = np.abs(triangle).max(axis=1) > 1e-14 * (np.abs(means).max() or 1.0)
            columns.append(triangle[kept].T)
            owners += [number] * int(kept.sum())
            left.append(len(members) - int(kept.sum()))
        return cls(np.hstack(columns), distinct[owners].T, None, distinct, np.array(left, dtype=np.float64))

    def times(self, a: int, vectors: Array) -> Array:
        """C_a times vectors in rows, in the core."""
        if self.matrices is None:
            return np.asarray(vectors * self.diagonals[a])
        return np.asarray(vectors @ self.matrices[a])

    @cached_property
    def traces(self) -> Array:
        """tr C_a, shape (K,)."""
        core = self.diagonals.sum(axis=1) if self.matrices is None else self.matrices.trace(axis1=1, axis2=2)
        return np.asarray(core + self.multiplicity @ self.rest)

    @cached_property
    def products(self) -> Array:
        """tr C_a C_b, shape (K, K)."""
        if self.matrices is None:
            core = self.diagonals @ self.diagonals.T
        else:
            flat = self.matrices.reshape(self.classes, -1)
            core = flat @ flat.T
        return np.asarray(core + self.rest.T @ (self.multiplicity[:, None] * self.rest))

    def moments_times(self, vector: Array) -> Array:
        """B_b times a vector for all b, B_b = E_b[xxᵀ] = C_b + m_b m_bᵀ, in the core, shape (K, d)."""
        spread = np.stack([self.times(b, vector) for b in range(self.classes)])
        return np.asarray(spread + (self.means @ vector)[:, None] * self.means)

    def form_covariances(self, a: int) -> tuple[Array, Array]:
        """Cov_a(s, xᵀB_b x) for all b, shape (K,), and Cov_a(xᵀB_b x, xᵀB_c x), shape (K, K), docs/theory.md (11.25).

        The means m_b m_bᵀ in B_b are as large as the C_b here: of the forms, which add a trace, only the
        fluctuations count.
        """
        traces, products = self._products_with(a)
        seen = self.times(a, self.means)  # C_a m_b
        mixed = np.array([np.sum(self.times(b, seen) * seen, axis=1) for b in range(self.classes)])
        bent = self.moments_times(self.means[a])  # B_b m_a
        with_norm = 2.0 * (traces + np.sum(seen**2, axis=1)) + 4.0 * bent @ seen[a]
        squares = products + mixed + mixed.T + (self.means @ seen.T) ** 2
        return np.asarray(with_norm), np.asarray(2.0 * squares + 4.0 * bent @ self.times(a, bent).T)

    def _products_with(self, a: int) -> tuple[Array, Array]:
        """tr C_a C_b C_a for all b, shape (K,), and tr C_b C_a C_c C_a for all b and c, shape (K, K)."""
        scaled = self.rest * self.rest[:, [a]]  # (D, K)
        other = self.rest[:, a] @ (self.multiplicity[:, None] * scaled)
        others = scaled.T @ (self.multiplicity[:, None] * scaled)
        if self.matrices is None:
            both = self.diagonals * self.diagonals[a]
            return np.asarray(both @ self.diagonals[a] + other), np.asarray(both @ both.T + others)
        matrices = self.matrices @ self.matrices[a]
        flat = matrices.reshape(self.classes, -1)
        turned = matrices.transpose(0, 2, 1).reshape(self.classes, -1)
        return np.asarray(turned @ self.matrices[a].ravel() + other), np.asarray(flat @ turned.T + others)


def _members(group: IntArray, count: int) -> list[IntArray]:
    """The places of each of `count` groups."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group, minlength=count))[:-1])


@dataclass(frozen=True, eq=False)
class _Norms:
    """Squared norms in each class: mean, variance, and nodes of a quadrature over a log-normal law with these."""

    mean: Array  # (K,)
    variance: Array  # (K,)
    nodes: Array  # (K, _NODES)
    shares: Array  # (_NODES,)

    @classmethod
    def of(cls, inputs: _Inputs) -> _Norms:
        shifts = np.array([mean @ inputs.times(a, mean) for a, mean in enumerate(inputs.means)])
        mean = inputs.traces + np.sum(inputs.means**2, axis=1)
        variance = 2.0 * inputs.products.diagonal() + 4.0 * shifts
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
        forms = np.array(
            [np.sum(inputs.times(b, inputs.means) * inputs.means, axis=1) for b in range(classes)]
        ).T
        products = inputs.products
        gram = products + forms + forms.T + (inputs.means @ inputs.means.T) ** 2
        sizes, vectors = np.linalg.eigh(gram)
        kept = sizes > _ROUNDING * sizes[-1]
        basis, lengths = vectors[:, kept], np.sqrt(sizes[kept])
        # Fluctuations: variance 2 tr(C_a C_b)² between two samples, total length (tr C_a)² + tr C_a².
        lengths_a = inputs.traces**2 + products.diagonal()
        overlaps = 2.0 * products**2
        mean_length = float(weights @ lengths_a)
        number = mean_length**2 / float(weights @ overlaps @ weights)
        rest = (factors**2 * lengths_a / number)[None]
        return cls(factors[:, None] * (basis * lengths), basis / lengths, factors, rest, np.array([number]))


def _core(inputs: _Inputs, linear: Array, radial: _Radial, pairs: _Pairs) -> ClassFeatures:
    """Coordinates, functions of the norm and forms, with their means and covariances; no tail yet."""
    extra = radial.means.shape[1] + pairs.means.shape[1]
    links = [_links(a, inputs, radial, pairs) for a in range(inputs.classes)]
    # Directions of the coordinates that are linked to anything: means, C_a m_a, C_a C_b m_a.
    directions = np.vstack([inputs.means, *(vectors for vectors, _ in links)])
    basis = _orthonormal(directions) if inputs.matrices is None else np.eye(inputs.means.shape[1])
    inner = []
    for a, (vectors, slopes) in enumerate(links):
        between = linear[a] * (vectors @ basis).T @ slopes
        corner = (
            np.zeros([len(between)] * 2) if inputs.matrices is None else linear[a] ** 2 * inputs.matrices[a]
        )
        inner.append(np.block([[corner, between], [between.T, _extras(a, inputs, radial, pairs)]]))
    return ClassFeatures(
        means=np.hstack([linear[:, None] * inputs.means, radial.means, pairs.means]),
        diagonals=np.hstack([linear[:, None] ** 2 * inputs.diagonals, np.zeros((inputs.classes, extra))]),
        basis=block_diag(basis, np.eye(extra)),
        inner=np.stack(inner),
        rest=np.vstack([linear**2 * inputs.rest, pairs.rest]),
        multiplicity=np.append(inputs.multiplicity, pairs.multiplicity),
        tails=np.zeros(inputs.classes),
        free=np.zeros(inputs.means.shape[1] + extra),
    )


def _links(a: int, inputs: _Inputs, radial: _Radial, pairs: _Pairs) -> tuple[Array, Array]:
    """Cov_a(x, the other features) = Σ vector ⊗ slope: Cov_a(x, s) = 2 C_a m_a, Cov_a(x, xᵀB_b x) = 2 C_a B_b m_a."""
    mean = inputs.means[a]
    own = 2.0 * inputs.times(a, mean)[None]
    with_norm = np.hstack([radial.slopes[[a]], np.zeros((1, pairs.means.shape[1]))])
    if not pairs.means.shape[1]:
        return own, with_norm
    forms = 2.0 * inputs.times(a, inputs.moments_times(mean))
    projection = np.hstack(
        [np.zeros((inputs.classes, radial.means.shape[1])), pairs.factors[a] * pairs.projection]
    )
    return np.vstack([own, forms]), np.vstack([with_norm, projection])


def _extras(a: int, inputs: _Inputs, radial: _Radial, pairs: _Pairs) -> Array:
    """Cov_a of functions of the norm and of the forms xᵀB_b x."""
    if not pairs.means.shape[1]:
        return np.asarray(radial.covariances[a])
    norm_forms, form_forms = inputs.form_covariances(a)
    projection = pairs.factors[a] * pairs.projection
    between = np.outer(radial.slopes[a], norm_forms @ projection)
    return np.block([[radial.covariances[a], between], [between.T, projection.T @ form_forms @ projection]])


def _orthonormal(rows: Array) -> Array:
    """An orthonormal basis of the span of rows, in columns."""
    vectors, sizes, _ = np.linalg.svd(rows.T, full_matrices=False)
    return np.asarray(vectors[:, sizes > _SPAN * sizes.max(initial=0.0)])
