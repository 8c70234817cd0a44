"""`DEQEquivalentRidge`: ridge with the high-dimensional equivalent of a kernel, in O(np²) and O(np) memory."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from notsodeep.equivalents import equivalent, ridge_distortion
from notsodeep.equivalents.equivalent import ORDERS
from notsodeep.equivalents.expansion import expand
from notsodeep.equivalents.powers import ClassValues
from notsodeep.errors import ConvergenceError, InputError, NotHighDimensionalError
from notsodeep.estimators.machine import KERNELS, kernel_times, mean_target, solve_on_landmarks, solve_ridge
from notsodeep.estimators.scaling import RowScaler, checked_rows, checked_rows_and_targets
from notsodeep.gaussian.activations import Activation
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.chebyshev import LogInterval, chebyshev_basis, chebyshev_coefficients
from notsodeep.models import DEQ
from notsodeep.validation import Array, as_number, one_of, squared_norms

# Numbers of Chebyshev points in log ||x||² that are tried in turn.
_POINTS = (12, 24, 48, 96)
# What may be left of a Chebyshev series, relative to its largest coefficient.
_TOLERANCE = 1e-10
# New rows may be this much longer or shorter than all training rows; beyond, the kernel of the bound is used.
_MARGIN = 2.0
# A row shorter than this beside the longest one is zero in all but name.
_SHORTEST = 1e-10
# Pairs of a new or nodal norm with a training norm that are expanded at once.
_BLOCK = 1 << 20
# Training rows on which the equivalent is compared with the exact kernel.
_COMPARED = 400
# Training rows whose exact kernel is used where the equivalent is not; below so many samples, all of them.
LANDMARKS = 1000
# The equivalent stays within this factor of the exact kernel, both with the ridge, in every direction.
LARGEST_DISTORTION = 2.0


@dataclass(eq=False, repr=False)
class DEQEquivalentRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Ridge regression with the refined equivalent (docs/theory.md (5.2)) in the place of the exact kernel.

    **Training** solves (K̄ + alpha I) c = y - intercept with `equivalent(..., form="refined")`, a diagonal plus few
    columns: O(np²) operations and O(np) memory where p is well below n.

    **Prediction.** A new row x is no training row, so only the off-diagonal form of the equivalent enters. With
    s = ||x||² and powers of inner products replaced by their values (5.6) for the training rows as one class (mean u,
    variance v: c² → v - u² + 2uc, c³ → 3(u² + v)c - 2u³),

        k̄(x, x_j) = h_0(s, s_j) + h_1(s, s_j) <x, x_j>,
        h_0 = g_0 + (v - u²) g_2 - 2u³ g_3,     h_1 = g_1 + 2u g_2 + 3(u² + v) g_3,

    with the functions g_k of two norms that the expansion in inner products has. Hence

        f(x) = intercept + a(s) + <x, b(s)>,     a(s) = Σ_j h_0(s, s_j) c_j,     b(s) = Σ_j h_1(s, s_j) c_j x_j :

    a linear function whose coefficients depend on the norm of x. a and b are kept at a few Chebyshev points of log s,
    the training rows not at all. What the kernel has on its diagonal beyond k̄(x_i, x_i) acts as a ridge of its own:
    in high dimension the nonlinearity of a network regularises a linear model.

    **Where it does not hold.** The equivalent is about samples that are nearly orthogonal, which takes many features.
    On a table of a few correlated columns it can have negative eigenvalues, and its predictions are then worse than the
    mean of the targets. `fit` therefore compares it with the exact kernel of 400 training rows (`ridge_distortion`, at
    most a factor of 2 in any direction) and its predictions for the training rows with their mean. If one of the two
    fails, `fit` warns and takes the exact kernel instead: of all training rows up to 1000, of 1000 of them as landmarks
    beyond, which is O(n) in time as well. With a positive semi-definite kernel a ridge never leaves more of the
    training targets than the intercept alone does.

    There is no `sample_weight`: two copies of a row are not what the equivalent of distinct samples is about.

    Args:
        kernel: "ntk" or "ck".
        activation: of the DEQ, by name or as an `Activation`.
        sigma_a2: variance of the recurrent weights.
        sigma_b2: variance of the input weights; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
        order: the highest power of inner products in the expansion, 1 to 3.
        alpha: the ridge.
        fit_intercept: take out the mean of the targets first.
        center: of the rows, as in `RowScaler`; the expansion is about inner products around zero.
        scale: of the rows, as in `RowScaler`.
        fallback: use the exact kernel where the equivalent does not hold. False keeps the equivalent, with the warning.

    Attributes:
        form_: "equivalent", or "exact" where that took its place.
        distortion_: how far equivalent and exact kernel are apart, see `ridge_distortion`.
        dual_coef_: c, of the shape of y; for the exact form one row for each landmark.
        intercept_: the mean of y, or zero.
        landmarks_: for the exact form, the scaled training rows that it uses. The three below are for the equivalent.
        log_norms_: the interval of log s, ends included, over which a and b are kept.
        constants_: Chebyshev coefficients of a, shape (points, targets).
        slopes_: Chebyshev coefficients of b, shape (points, p, targets).
        rows_: the fitted `RowScaler`.
        model_: the `DEQ`.
    """

    _: KW_ONLY
    kernel: str = "ntk"
    activation: str | Activation = "relu"
    sigma_a2: float = 0.2
    sigma_b2: float | None = None
    bias2: float = 0.0
    order: int = 2
    alpha: float = 1e-2
    fit_intercept: bool = True
    center: bool = True
    scale: float | str | None = "auto"
    fallback: bool = True

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Solve for the coefficients.

        Args:
            X: samples in rows, two or more.
            y: one target (n,), or several (n, m).
        """
        alpha = as_number(self.alpha, "alpha")
        one_of(self.kernel, tuple(KERNELS), "kernel")
        if self.order not in ORDERS:
            raise InputError(
                f"The equivalent has orders 1, 2 and 3; order = {self.order!r} is not one of them."
            )
        self.model_ = DEQ(self.activation, self.sigma_a2, self.sigma_b2, self.bias2)
        given, targets = checked_rows_and_targets(self, X, y, ensure_min_samples=2)
        self.rows_ = RowScaler(center=self.center, scale=self.scale).fit(given)
        rows = self.rows_.transform(given)
        if not rows.any():
            raise InputError("All rows of X are equal (or zero): there is no direction to learn from.")
        self.intercept_ = mean_target(targets, None, self.fit_intercept)
        problem = self._fit_where_it_holds(rows, targets - self.intercept_, alpha)
        if problem:
            warnings.warn(f"{problem}, {self._consequence(len(rows))}.", RuntimeWarning, stacklevel=2)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The regression function at new rows: O(p) for each, with the exact form O(p) for each landmark."""
        check_is_fitted(self)
        rows = self.rows_.transform(checked_rows(self, X))
        return np.asarray(self._deviation(rows) + self.intercept_)

    def _deviation(self, rows: Array) -> Array:
        """What is predicted for scaled rows, beyond the intercept."""
        if self.form_ == "exact":
            return kernel_times(self._exact_kernel, rows, self.landmarks_, self.dual_coef_)
        basis = self._basis(rows)
        output = basis @ self.constants_
        for b, slope in zip(basis.T, self.slopes_, strict=True):
            output += b[:, None] * (rows @ slope)
        return np.asarray(output.reshape(len(rows), *self.dual_coef_.shape[1:]))

    # --- which form --------------------------------------------------------------------------------------------

    def _fit_where_it_holds(self, rows: Array, targets: Array, alpha: float) -> str:
        """Fit the equivalent, or the exact kernel where that does not hold; the reason in words, or nothing."""
        # Features that never vary (the border of an image) add columns to the factorisation and nothing else.
        varying = rows[:, rows.any(axis=0)]
        self.distortion_ = ridge_distortion(
            self.model_, varying, self.kernel, ridge=alpha, order=self.order, subsample=_COMPARED
        )
        problem = ""
        if self.distortion_ > LARGEST_DISTORTION:
            problem = "The equivalent is not positive definite on these rows"
            if np.isfinite(self.distortion_):
                factor = f"a factor of {self.distortion_:.2g} ({LARGEST_DISTORTION:g} is allowed)"
                problem = f"The equivalent is off by {factor} on these rows"
        if not problem or not self.fallback:
            try:
                self._fit_equivalent(rows, varying, targets, alpha)
            except (NotHighDimensionalError, ConvergenceError) as error:
                if not self.fallback:
                    raise
                problem = f"There is no equivalent for these rows ({error})"
        if not problem and _leaves_more_than_zero(targets, self._deviation(rows)):
            problem = "The equivalent explains less of the training targets than their mean does"
        if problem and self.fallback:
            self._fit_exact(rows, targets, alpha)
        return problem

    def _consequence(self, n: int) -> str:
        if not self.fallback:
            return "so that its predictions are not those of the kernel: leave fallback=True, or use DEQKernelRidge"
        return (
            f"so that the exact kernel of {len(self.landmarks_)} of {n} training rows takes its place: with few or "
            "strongly correlated features use DEQKernelRidge, which does so without asking"
        )

    def _begin(self, form: str) -> None:
        """Forget what an earlier form learnt."""
        self.form_ = form
        for name in {"constants_", "slopes_", "log_norms_", "landmarks_"} & vars(self).keys():
            delattr(self, name)

    def _fit_equivalent(self, rows: Array, varying: Array, targets: Array, alpha: float) -> None:
        self._begin("equivalent")
        operator = equivalent(self.model_, varying, kernel=self.kernel, form="refined", order=self.order)
        self.dual_coef_ = operator.solve(targets, alpha)
        self._tabulate(rows)

    def _fit_exact(self, rows: Array, targets: Array, alpha: float) -> None:
        self._begin("exact")
        if len(rows) <= LANDMARKS:
            self.landmarks_ = rows
            self.dual_coef_ = solve_ridge(exact_kernel(self.model_, rows, kernel=self.kernel), targets, alpha)
            return
        chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:LANDMARKS])
        self.landmarks_ = rows[chosen]
        self.dual_coef_ = solve_on_landmarks(self._exact_kernel, rows, self.landmarks_, targets, alpha)

    def _exact_kernel(self, X: Array, Y: Array) -> Array:
        return exact_kernel(self.model_, X, Y, kernel=self.kernel)

    # --- a and b of the class's docstring, as functions of the norm ---------------------------------------

    def _tabulate(self, rows: Array) -> None:
        squares = squared_norms(rows)
        squares = np.maximum(squares, _SHORTEST * float(squares.max()))
        norms = LogInterval.of(squares, _MARGIN)
        self.log_norms_ = np.array([norms.low, norms.high])
        values = ClassValues.of(rows, None)
        mean, variance = float(values.mean[0, 0]), float(values.variance[0, 0])
        dual = self.dual_coef_.reshape(len(rows), -1)
        for points in _POINTS:
            tables = self._at_nodes(norms.nodes(points), rows, squares, dual, mean, variance)
            self.constants_, self.slopes_ = (chebyshev_coefficients(table) for table in tables)
            if _resolved(self.constants_, np.exp((norms.low + norms.high) / 4.0) * self.slopes_):
                return
        raise ConvergenceError(
            f"The norms of the rows span a factor of {np.exp((norms.high - norms.low) / 2.0):.3g}, over which the "
            "kernel was not resolved.",
            "Remove rows that are nearly equal to the mean, or scale the rows to similar norms.",
        )

    def _at_nodes(
        self, nodes: Array, rows: Array, squares: Array, dual: Array, mean: float, variance: float
    ) -> tuple[Array, Array]:
        """a (nodes, targets) and b (nodes, p, targets) at the given squared norms."""
        constants = np.zeros((len(nodes), dual.shape[1]))
        slopes = np.zeros((len(nodes), rows.shape[1], dual.shape[1]))
        for part in gen_batches(len(rows), max(1, _BLOCK // len(nodes))):
            series = expand(self.model_, nodes, squares[part], self.kernel, self.order, 0.0)
            constant, slope = _affine(series, mean, variance)
            constants += constant @ dual[part]
            for node, weights in enumerate(slope):
                slopes[node] += rows[part].T @ (weights[:, None] * dual[part])
        return constants, slopes

    def _basis(self, rows: Array) -> Array:
        """Chebyshev polynomials at log ||x||², held at the ends of the interval."""
        norms = LogInterval(*self.log_norms_)
        squares = np.maximum(squared_norms(rows), np.exp(norms.low))
        return chebyshev_basis(norms.place(squares), len(self.constants_))


def _leaves_more_than_zero(targets: Array, found: Array) -> bool:
    """Whether what is predicted of some target leaves more of it, in the mean square, than zero would."""
    left, whole = (np.sum(np.asarray(t) ** 2, axis=0) for t in (targets - found, targets))
    return bool(np.any(~(left <= whole * (1.0 + 1e-12))))


def _affine(series: Array, mean: float, variance: float) -> tuple[Array, Array]:
    """h_0 and h_1 from g_0 … g_order: powers of inner products by docs/theory.md (5.6)."""
    constant, slope = series[0].copy(), series[1].copy()
    if len(series) > 2:
        constant += (variance - mean**2) * series[2]
        slope += 2.0 * mean * series[2]
    if len(series) > 3:
        constant -= 2.0 * mean**3 * series[3]
        slope += 3.0 * (mean**2 + variance) * series[3]
    return constant, slope


def _resolved(*tables: Array) -> bool:
    """Whether the last Chebyshev coefficients of all tables are negligible beside the largest of any."""
    size = max(float(np.abs(table).max()) for table in tables)
    return all(float(np.abs(table[-3:]).max()) <= _TOLERANCE * size for table in tables)
