"""Ridge regression on the features of a mixture: scores of new samples, class by class, docs/theory.md (11.10)–(11.14).

Each class has its own second moment S_a, so it has its own effective number of samples: η_a solves

    η_a (λ' + c_a + tr(S_a R)) = n_a,    R = (P + Σ_b η_b S_b)^{-1},

with the tail c_a and, for a network of finite width m, λ = λ' (1 - df₁/m), df₁ = Σ_a η_a (tr(S_a R) + c_a) without
the intercept. P is the identity, but 0 for the constant feature of an intercept, which is not penalised. With one class
η is 1/κ, the effective ridge. The weights of the mean predictor are w̄ = R Σ_a η_a m_a y_a.

The accuracy is the share of samples whose largest score is that of their class. Two classes have a closed form. More
are an integral over an orthant, by Genz's sequence of one-dimensional conditionals on a fixed lattice:
deterministic, smooth in the scores, and accurate to about 1e-4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.learning.mixture_features import ClassFeatures
from notsodeep.validation import Array

# Points of the lattice (a prime), and how far arguments of the normal quantile stay from 0 and 1.
_POINTS, _FEW = 4093, 251
_EDGE = 1e-15
# Variances below this share of the largest are zero up to rounding: such a score does not vary.
_FLAT = 1e-14


def chance_of_largest(mean: Array, covariance: Array, which: int, *, fine: bool = True) -> float:
    """P(score of `which` is the largest) for scores N(mean, covariance); to about 1e-4, or 1e-3 if not `fine`."""
    others = [k for k in range(len(mean)) if k != which]
    contrast = np.zeros((len(others), len(mean)))
    contrast[np.arange(len(others)), others] = -1.0
    contrast[:, which] = 1.0
    return positive_orthant(contrast @ mean, contrast @ covariance @ contrast.T, _POINTS if fine else _FEW)


def positive_orthant(mean: Array, covariance: Array, number: int = 4093) -> float:
    """P(all components > 0) for a normal vector."""
    if len(mean) == 1:
        return float(_chance(mean[0], np.sqrt(max(covariance[0, 0], 0.0))))
    # The tightest constraints first: what follows then varies least over the lattice.
    scale = np.sqrt(np.maximum(covariance.diagonal(), _FLAT * max(covariance.diagonal().max(), 1e-300)))
    order = np.argsort(mean / scale)
    root = _cholesky(covariance[np.ix_(order, order)])
    limits = mean[order]
    points = _lattice(number, len(mean) - 1)
    drawn = np.zeros((len(points), len(mean)))
    chance = np.ones(len(points))
    for k in range(len(mean)):
        centre = limits[k] + drawn[:, :k] @ root[k, :k]
        share = _chance(centre, root[k, k])
        chance *= share
        if k < len(mean) - 1 and root[k, k] > 0.0:
            # A standard normal draw above -centre/root, by its quantile.
            level = 1.0 - share * (1.0 - points[:, k])
            drawn[:, k] = ndtri(np.clip(level, _EDGE, 1.0 - _EDGE))
    return float(chance.mean())


def _chance(centre: Array | float, spread: float) -> Array:
    """P(centre + spread ξ > 0); one half at the edge of a score that does not vary."""
    if spread > 0.0:
        return np.asarray(ndtr(np.asarray(centre) / spread))
    return np.asarray(np.heaviside(centre, 0.5))


def _cholesky(matrix: Array) -> Array:
    """A lower triangular root of a matrix that may be singular."""
    lower = np.asarray(np.linalg.qr(matrix_root(matrix).T, mode="r")).T
    lower = lower * np.where(lower.diagonal() < 0.0, -1.0, 1.0)
    small = np.abs(lower.diagonal()) <= np.sqrt(_FLAT) * np.abs(lower).max()
    lower[small, small] = 0.0
    return np.asarray(lower)


def normal_points(number: int, dimension: int) -> Array:
    """Fixed points in place of draws from N(0, I), shape (number, dimension): a lattice and its mirror image."""
    half = ndtri(np.clip(_lattice(number // 2, dimension), _EDGE, 1.0 - _EDGE))
    return np.vstack([half, -half])


def matrix_root(matrix: Array) -> Array:
    """R with R Rᵀ = matrix, for a positive semi-definite matrix; negative eigenvalues (rounding) are set to zero."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _lattice(number: int, dimension: int) -> Array:
    """Richtmyer's lattice: multiples of square roots of primes, folded so that the integrand becomes periodic."""
    primes = [n for n in range(2, 20 + 20 * dimension) if all(n % divisor for divisor in range(2, n))]
    steps = np.arange(1, number + 1)[:, None] * np.sqrt(np.array(primes[:dimension], dtype=np.float64))
    return np.asarray(np.abs(2.0 * (steps % 1.0) - 1.0))


_ACCURACY = 1e-12
_STEPS = 2000
# Training sets in the band of accuracies.
_DRAWS = 64


@dataclass(frozen=True, eq=False)
class _Resolvent:
    """R(η) = (P + Σ η_b S_b)⁻¹ = Δ⁻¹ + V N Vᵀ in the core, Δ diagonal and V = Δ⁻¹U, and its traces with the S_a.

    P is the identity, but 0 for features that are not penalised.
    """

    scale: Array  # the diagonal of Δ⁻¹, (d,)
    columns: Array  # V, (d, q)
    inner: Array  # N, (q, q)
    first: Array  # tr(S_a R), (K,)
    second: Array  # tr(S_a R S_b R), (K, K)
    squares: Array  # tr(S_a R P R), (K,)

    @classmethod
    def at(cls, features: ClassFeatures, moments: Array, eta: Array) -> _Resolvent:
        """By Woodbury's identity, N = -(I + M UᵀV)⁻¹M with M = Σ η_a M_a; then S_a R = D_aΔ⁻¹ + L_a Vᵀ.

        Args:
            features: the features of the classes.
            moments: M_a, `features.inner_moments`.
            eta: η, the effective numbers of samples.
        """
        basis = features.basis
        scale = 1.0 / (1.0 + eta @ features.diagonals)
        columns = scale[:, None] * basis
        gram = basis.T @ columns
        low = np.tensordot(eta, moments, axes=1) - basis.T @ (features.free[:, None] * basis)
        inner: Array = -np.linalg.solve(np.eye(len(low)) + low @ gram, low).astype(np.float64)
        reduced = inner @ gram + np.eye(len(low))  # I + N UᵀV
        shares = features.diagonals * scale  # D_aΔ⁻¹, (K, d)
        left = shares[:, :, None] * (basis @ inner) + basis @ (moments @ reduced.T)  # L_a, (K, d, q)
        along = np.einsum("dq,kdq->kd", columns, left)
        inside = columns.T @ left  # VᵀL_a, (K, q, q)
        flat = inside.reshape(len(eta), -1)
        turned = inside.transpose(0, 2, 1).reshape(len(eta), -1)
        mixed = shares @ along.T
        squares = shares @ (scale + np.einsum("dq,qr,dr->d", columns, inner, columns)) + along @ scale
        squares = squares + turned @ (columns.T @ columns @ inner).ravel()
        free = np.flatnonzero(features.free)
        if len(free):
            images = scale[:, None] * np.eye(len(scale))[:, free] + columns @ (inner @ columns[free].T)  # R e
            low_images = basis.T @ images
            squares = (
                squares
                - features.diagonals @ np.sum(images**2, axis=1)
                - np.einsum("qf,kqr,rf->k", low_images, moments, low_images)
            )
        # The directions without means: R is diagonal there.
        other = 1.0 / (1.0 + features.rest @ eta)
        weighted = features.rest * (features.multiplicity * other)[:, None]
        return cls(
            scale=scale,
            columns=columns,
            inner=inner,
            first=shares.sum(axis=1) + along.sum(axis=1) + weighted.sum(axis=0),
            second=shares @ shares.T
            + mixed
            + mixed.T
            + flat @ turned.T
            + weighted.T @ (features.rest * other[:, None]),
            squares=squares + other @ weighted,
        )

    def times(self, block: Array) -> Array:
        """R times a block of the core."""
        low = self.columns @ (self.inner @ (self.columns.T @ block))
        return np.asarray(self.scale[:, None] * block + low)


@dataclass(frozen=True, eq=False)
class MixtureScores:
    """Scores of new samples: Gaussian in each class, over samples and training sets.

    Attributes:
        means: of the scores in each class, shape (K, outputs).
        covariances: of the scores, shape (K, outputs, outputs).
        drift: covariance over training sets of the mean scores of the classes, shape (K, K, outputs, outputs).
        errors: E_a[(y - score)(y - score)ᵀ], shape (K, outputs, outputs).
        effective_ridge: 1/Σ_a η_a: κ, or ν at finite width.
    """

    means: Array
    covariances: Array
    drift: Array
    errors: Array
    effective_ridge: float


def mixture_scores(
    features: ClassFeatures,
    weights: Array,
    n: float,
    ridge: float,
    width: float | None = None,
    *,
    intercept: bool = True,
) -> MixtureScores:
    """Compute the distribution of the scores of a ridge regression from n samples, without drawing any.

    Args:
        features: of the kernel on the mixture.
        weights: shares of the classes.
        n: number of training samples.
        ridge: λ.
        width: m, of a random network whose readout alone is trained; infinite if not given.
        intercept: fit a bias of the readout, which is not penalised.
    """
    if intercept and n <= 1:
        raise InputError(
            f"n = {n:g}: an intercept takes up one sample. Give n of 2 or more, or intercept=False."
        )
    features = features.with_intercept() if intercept else features
    # ±1 for two classes, else one-hot.
    targets = np.array([[-1.0], [1.0]]) if len(weights) == 2 else np.eye(len(weights))
    sizes = n * weights
    moments = features.inner_moments
    eta = _solve(features, moments, sizes, ridge, width)
    seen = _Resolvent.at(features, moments, eta)
    predictor = seen.times(features.means.T @ (eta[:, None] * targets))  # w̄, (d, outputs)
    residuals = targets - features.means @ predictor
    applied = features.covariance_times(predictor)  # Σ_a w̄, (K, d, outputs)
    spread = np.einsum("du,adv->auv", predictor, applied)
    bias = spread + residuals[:, :, None] * residuals[:, None, :]
    rates = eta**2 / np.maximum(sizes, np.finfo(float).tiny)
    fixed = _FixedSizes.of(features, seen, residuals, applied, rates)
    squares = seen.squares + features.tails
    # A finite number of features makes noise of its own.
    free = float(features.free.sum())
    share = 0.0 if width is None else 1.0 / (width - (float(eta @ seen.second @ eta) - free))
    penalised = predictor[features.free == 0.0]
    penalty = penalised.T @ penalised
    forcing = bias + share * squares[:, None, None] * penalty + fixed.seen_by(features)
    # How much of the error on a class returns as noise of the weights and is seen by another.
    returned = (seen.second + share * np.outer(squares, squares)) * rates
    system = np.eye(len(eta)) - returned
    errors = np.linalg.solve(system, forcing.reshape(len(eta), -1)).reshape(forcing.shape)
    penalty = share * (penalty + np.tensordot(rates * squares, errors, axes=1))
    return MixtureScores(
        means=features.means @ predictor,
        covariances=spread + errors - bias,
        drift=fixed.drift(features, errors, penalty),
        errors=errors,
        effective_ridge=1.0 / float(eta.sum()),
    )


@dataclass(frozen=True, eq=False)
class _FixedSizes:
    """What is not random because the sizes of the classes are not, docs/theory.md (11.13).

    The noise of the weights is R Σ_b (η_b²/n_b) Cov_b(r φ) R. For Gaussian features with residuals r = y - w̄ᵀφ
    of mean r̄, Cov_b(r_u φ, r_v φ) = E[r_u r_v] S_b + g_v g_uᵀ - 2 r̄_u r̄_v m_b m_bᵀ with g = Σ_b w̄ - r̄ m_b; this is all
    but the first term. It matters where the kernel has a large constant part.
    """

    directions: Array  # R g of each class and output, (K, d, outputs)
    means: Array  # R m_b, (K, d)
    residuals: Array  # r̄, (K, outputs)
    rates: Array  # η_b²/n_b

    @classmethod
    def of(
        cls, features: ClassFeatures, seen: _Resolvent, residuals: Array, applied: Array, rates: Array
    ) -> _FixedSizes:
        shifted = applied - features.means[:, :, None] * residuals[:, None, :]
        directions = np.stack([seen.times(block) for block in shifted])
        return cls(directions, seen.times(features.means.T).T, residuals, rates)

    def seen_by(self, features: ClassFeatures) -> Array:
        """What it adds to the second moment of the scores in each class, shape (K, outputs, outputs)."""
        total = np.zeros((len(self.rates), *2 * self.residuals.shape[1:]))
        for direction, mean, residual, rate in zip(
            self.directions, self.means, self.residuals, self.rates, strict=True
        ):
            outer = features.moment_forms(direction)
            length = features.moment_forms(mean[:, None])
            total += rate * (outer - 2.0 * length * np.outer(residual, residual))
        return total

    def drift(self, features: ClassFeatures, errors: Array, penalty: Array) -> Array:
        """m_aᵀ Cov(w_u, w_v) m_c, how mean scores of classes move together, shape (K, K, outputs, outputs)."""
        penalised = self.means[:, features.free == 0.0]
        total = np.einsum("ad,cd,uv->acuv", penalised, penalised, penalty)
        all_forms = features.moment_forms(self.means.T)
        for b, (direction, image) in enumerate(zip(self.directions, self.means, strict=True)):
            along, across = features.means @ direction, features.means @ image
            term = (
                all_forms[b][:, :, None, None] * errors[b] + along[:, None, None, :] * along[None, :, :, None]
            )
            outer = np.outer(self.residuals[b], self.residuals[b])
            total += self.rates[b] * (term - 2.0 * np.outer(across, across)[:, :, None, None] * outer)
        return np.asarray(total)


def mean_square_error(weights: Array, scores: MixtureScores) -> float:
    """Expected squared error on a new sample, averaged over the outputs."""
    return float(weights @ np.trace(scores.errors, axis1=1, axis2=2)) / int(scores.errors.shape[1])


def class_accuracies(scores: MixtureScores) -> Array:
    """The share of each class that gets the highest score for its class, over training sets, shape (K,)."""
    return _accuracies(scores.means, scores.covariances)


def accuracy_band(scores: MixtureScores, weights: Array, level: float = 0.9) -> tuple[float, float]:
    """Where the accuracies of single training sets lie, with this probability: the mean scores of classes move."""
    classes, outputs = scores.means.shape
    own = np.einsum("aauv->auv", scores.drift)
    joint = scores.drift.transpose(0, 2, 1, 3).reshape(classes * outputs, classes * outputs)
    draws = normal_points(_DRAWS, classes * outputs) @ matrix_root((joint + joint.T) / 2.0).T
    accuracies = [
        float(
            weights
            @ _accuracies(scores.means + draw.reshape(classes, outputs), scores.covariances - own, fine=False)
        )
        for draw in draws
    ]
    low, high = np.quantile(accuracies, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def _accuracies(means: Array, covariances: Array, *, fine: bool = True) -> Array:
    if means.shape[1] == 1:
        # One score for two classes: as two scores that add up to 0.
        pair = np.array([[-1.0], [1.0]])
        means, covariances = means @ pair.T, pair @ covariances @ pair.T
    return np.array([chance_of_largest(means[a], covariances[a], a, fine=fine) for a in range(len(means))])


def _solve(features: ClassFeatures, moments: Array, sizes: Array, ridge: float, width: float | None) -> Array:
    """η of all classes, for the ridge λ and the width m."""
    if ridge + float(features.tails.min()) <= 0.0:
        raise InputError(
            "ridge = 0 needs a kernel with a nonlinear part that acts as a ridge, and this one has none. Pass a "
            "positive ridge."
        )
    if width is None:
        return _solve_classes(features, moments, sizes, ridge)

    def excess(penalty: float) -> float:
        eta = _solve_classes(features, moments, sizes, penalty)
        first = _Resolvent.at(features, moments, eta).first
        degrees = float(eta @ (first + features.tails)) - float(features.free.sum())
        return penalty * (1.0 - degrees / width) - ridge

    # λ' (1 - df₁/m) increases with λ' where it is positive, and λ' df₁ ≤ Σ n_a E_a K(x, x).
    largest = ridge + float(sizes @ (features.squared_lengths + features.tails)) / width
    if excess(ridge) >= 0.0:
        return _solve_classes(features, moments, sizes, ridge)
    return _solve_classes(
        features, moments, sizes, float(brentq(excess, ridge, largest, xtol=1e-14, rtol=1e-12))
    )


def _solve_classes(features: ClassFeatures, moments: Array, sizes: Array, ridge: float) -> Array:
    """η_a = n_a/(λ' + c_a + tr(S_a R)) by Newton's method in log η, or plain steps, which converge, where it fails."""
    present = sizes > 0.0
    floor = ridge + features.tails
    eta = np.where(present, sizes / (floor + features.squared_lengths), 0.0)
    best = np.inf
    for _ in range(_STEPS):
        seen = _Resolvent.at(features, moments, eta)
        fixed_point = np.where(present, sizes / (floor + seen.first), 0.0)
        gap = np.log(fixed_point[present] / eta[present])
        size = float(np.abs(gap).max())
        if size <= _ACCURACY:
            return fixed_point
        step = gap
        if size < best:
            best = size
            # d log(right side)_a/d log η_b = tr(S_a R S_b R) η_b/(λ' + c_a + tr(S_a R))
            slope = seen.second / (floor + seen.first)[:, None] * eta
            step = np.linalg.solve(np.eye(int(present.sum())) - slope[np.ix_(present, present)], gap)
        eta[present] *= np.exp(step)
    raise ConvergenceError(
        f"The effective numbers of samples did not settle in {_STEPS} steps (residual {size:.1e}).",
        "Raise the ridge: without one, a kernel whose nonlinear rest is tiny is nearly singular.",
    )
