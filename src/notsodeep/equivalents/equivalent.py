"""The kernel of a model on given data, as a structured operator: docs/theory.md, sections 4 and 5.

Also how far an equivalent is from the exact kernel, in operator norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import aslinearoperator

from notsodeep.data.statistics import MixtureStatistics
from notsodeep.equivalents.centring import refuse_large_mean
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.equivalents.expansion import exact_diagonal, expand, refuse_uncovered
from notsodeep.equivalents.operators import (
    GramTerm,
    LowRankTerm,
    StructuredOperator,
    Term,
    gram,
    low_rank,
    merged,
)
from notsodeep.equivalents.separable import (
    ClassValues,
    Separable,
    compressed,
    floored,
    mixture_terms,
    separable,
    sketched_terms,
)
from notsodeep.errors import InputError
from notsodeep.gaussian.interpolation import at_many
from notsodeep.kernel_names import as_kernel
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import Model
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, as_rows, one_of, squared_norms

FORMS, SQUARES = ("asymptotic", "refined"), ("mixture", "sketch")
ORDERS = (1, 2, 3)


def equivalent(
    model: Model,
    X: ArrayLike,
    stats: MixtureStatistics | None = None,
    kernel: str = "ck",
    form: str = "asymptotic",
    *,
    order: int = 2,
    square: str = "mixture",
    rank: int = 100,
    seed: int = 0,
    around: float | Literal["mean"] = 0.0,
    tolerance: float = 1e-6,
    progress: bool | Report = True,
) -> StructuredOperator:
    """Build the high-dimensional equivalent of a kernel matrix, as an operator.

    Args:
        model: a `DEQ` or an `Explicit`; for the asymptotic form centred, `model.centred(stats.tau0)`.
        X: samples in rows (n, p).
        stats: `MixtureStatistics.of(mixture, X, y)` or `.estimate(X, y)`. The asymptotic form needs them; the
            refined one uses them in `square="mixture"` and takes all samples as one class without them.
        kernel: "ck", "ntk" or "ntk_paper" (and of a DEQ "ck_preactivations", "ntk_preactivations"), as in
            `coefficients`.
        form: "asymptotic", α XXᵀ + V C Vᵀ + c I of (4.7); or "refined", (5.2), where each sample keeps its
            own variance: no labels and no centring needed, a bias allowed, and far closer on real data.
        order: order of the refined form, 1 to 3: the highest power of the inner products.
        square: for the refined form, how entrywise powers of the Gram matrix are represented: "mixture" by
            the values (5.6) at which they concentrate, "sketch" by `rank` leading eigenvectors (O(n² p)
            operations once, O(np) memory; exact with rank n). Real data, whose inner products do not concentrate,
            need a sketch. Where the power has no weight (the square, for odd φ) there is nothing to represent.
        rank: number of eigenvectors kept by the sketch.
        seed: random seed of the sketch.
        around: correlation at which the refined form expands; "mean" takes the mean correlation of the
            samples, for data that are not centred.
        tolerance: relative error allowed in separating the dependence on two samples' norms.
        progress: a bar on a terminal after two seconds; False for none.

    Returns:
        A `StructuredOperator`: `@`, `.to_dense()`, `.eigvalsh()`, `.solve(b, ridge)`, `.trace()`, …
    """
    rows = as_rows(X)
    one_of(form, FORMS, "form")
    as_kernel(kernel)
    _check_statistics(stats, rows)
    if form == "asymptotic":
        if stats is None:
            raise InputError(
                "The asymptotic equivalent needs the statistics of the classes: "
                "MixtureStatistics.estimate(X, y), or .of(mixture, X, y). Without labels use form='refined'."
            )
        return _asymptotic(model, rows, stats, kernel)
    _check_refined(model, kernel, order, square, rank)
    with reported(progress, "equivalent"):
        powers = _powers(model, rows, kernel, order, _correlation(rows, around), tolerance)
        terms: list[Term] = []
        if 0 in powers:
            terms.append(low_rank(powers[0].weights, np.diag(powers[0].scales)))
        if 1 in powers:
            terms.append(GramTerm(rows, powers[1].weights, powers[1].scales))
        high = {k: function for k, function in powers.items() if k >= 2}
        if high and square == "mixture":
            terms += mixture_terms(rows, high, ClassValues.of(rows, stats))
        elif high and square == "sketch":
            terms += sketched_terms(rows, high, rank, seed)
        # What the terms put on the diagonal is taken back, so that the diagonal of the sum is exact.
        fewer = [_with_fewer_weights(term, tolerance) for term in merged(tuple(terms))]
        operator = StructuredOperator(0.0, fewer, size=len(rows))
        squares = floored(squared_norms(rows))
        diagonal = at_many(lambda nodes: exact_diagonal(model, nodes, kernel)[:, None], squares)[:, 0]
        return operator.plus_diagonal(diagonal - operator.diagonal())


# --- asymptotic ---------------------------------------------------------------------------------------


def _asymptotic(model: Model, X: Array, stats: MixtureStatistics, kernel: str) -> StructuredOperator:
    scalars = coefficients(model, stats.tau0, kernel)
    refuse_large_mean(model, stats, scalars)
    terms: list[Term] = [gram(X, scalars.linear)]
    if scalars.norm != 0.0 or scalars.trace != 0.0:
        terms.append(informative_term(scalars, stats))
    return StructuredOperator(scalars.identity, terms, size=len(X))


def informative_term(scalars: Coefficients, stats: MixtureStatistics) -> LowRankTerm:
    """V C Vᵀ with V = [J/√p, ψ] and C of docs/theory.md (4.7)."""
    deviation = np.append(stats.t, 1.0)
    core = scalars.norm * np.outer(deviation, deviation)
    core[:-1, :-1] += scalars.trace * stats.T
    return low_rank(np.column_stack([stats.one_hot / np.sqrt(stats.p), stats.psi]), core)


# --- refined ------------------------------------------------------------------------------------------


def _powers(
    model: Model, X: Array, kernel: str, order: int, around: float, tolerance: float
) -> dict[int, Separable]:
    """The functions in front of c_ij^k that are not negligible, as sums of products."""
    squares = floored(squared_norms(X))

    def in_cosines(nodes: Array) -> Array:
        """The series in powers of the cosine, whose coefficients stay bounded however short a row is."""
        lengths = np.sqrt(nodes[:, None] * nodes)
        series = expand(model, nodes, nodes, kernel, order, around)
        return _recentred(series * lengths ** np.arange(order + 1)[:, None, None], around)

    # An error e in every entry of a constant matrix has norm n·e; next to c_ij it is no worse than relative.
    allowed = [tolerance / len(X), tolerance, tolerance / np.sqrt(len(X)), tolerance]
    functions = separable(in_cosines, squares, allowed[: order + 1])
    return {
        k: Separable(f.weights / np.sqrt(squares)[:, None] ** k, f.scales, f.size, f.error_bound)
        for k, f in enumerate(functions)
        if f.rank > 0
    }


def _recentred(series: Array, around: float) -> Array:
    """Coefficients of powers of x from those of powers of x - around."""
    if around == 0.0:
        return series
    shifted = np.zeros_like(series)
    for coefficient in series[::-1]:
        shifted[1:], shifted[0] = shifted[:-1] - around * shifted[1:], -around * shifted[0] + coefficient
    return shifted


def _with_fewer_weights(term: Term, tolerance: float) -> Term:
    """A Gram term with as few D_r as needed: those of different powers are nearly dependent."""
    if not isinstance(term, GramTerm):
        return term
    lengths = np.sqrt(floored(squared_norms(term.rows)))[:, None]
    short = compressed(term.weights * lengths, term.scales, tolerance)
    return GramTerm(term.rows, short.weights / lengths, short.scales)


def _correlation(X: Array, around: Any) -> float:
    if around == "mean":
        if len(X) < 2:
            return 0.0
        directions = X / np.sqrt(floored(squared_norms(X)))[:, None]
        total = directions.sum(axis=0)
        return float(total @ total - len(X)) / (len(X) * (len(X) - 1))
    try:
        value = float(around)
    except (TypeError, ValueError):
        value = np.nan
    if not abs(value) < 1.0:
        raise InputError(f"around is a correlation between -1 and 1, or 'mean'; it came as {around!r}.")
    return value


# --- input --------------------------------------------------------------------------------------------


def _check_statistics(stats: MixtureStatistics | None, X: Array) -> None:
    if stats is None:
        return
    if not isinstance(stats, MixtureStatistics):
        raise InputError(f"stats must be a MixtureStatistics, not {type(stats).__name__}.")
    if (len(stats.labels), stats.p) != X.shape:
        raise InputError(
            f"stats belong to {len(stats.labels)} samples of dimension {stats.p}, X has shape {X.shape}: "
            "make them from the same X."
        )


def _check_refined(model: Model, kernel: str, order: int, square: str, rank: int) -> None:
    one_of(square, SQUARES, "square")
    if order not in ORDERS:
        raise InputError(f"The refined form has orders 1, 2 and 3; order = {order!r} is not one of them.")
    if rank < 1:
        raise InputError(f"rank = {rank}: a sketch keeps at least one eigenvector.")
    refuse_uncovered(model, kernel)


# --- distances --------------------------------------------------------------------------------------

# The best factor is searched for until the distance is known to about this share of itself.
_FACTOR_TOLERANCE = 2e-3
# Below this, relative to the factor, a distance is rounding.
_ROUNDING = 1e-14
# Squares of entries below this vanish; rows up to which all eigenvalues are quicker than the largest by iterations.
_SMALLEST, _SMALL = 1e-150, 200


@dataclass(frozen=True)
class KernelDistance:
    """How far one kernel matrix is from another, ||K - K'||₂/||K||₂: as they are, and up to a factor.

    A kernel times a constant is the same kernel machine with another ridge and another learning rate, so two kernels
    that differ by a factor alone do not differ. `float()` of it is the distance as they are.

    Attributes:
        relative: ||K - K'||₂/||K||₂.
        up_to_factor: the least ||K - c K'||₂/||K||₂ over all c.
        factor: that c.
    """

    relative: float
    up_to_factor: float
    factor: float

    def __float__(self) -> float:
        return self.relative

    def __str__(self) -> str:
        return f"{_per_cent(self.relative)} ({_per_cent(self.up_to_factor)} up to a factor)"


def _per_cent(share: float) -> str:
    return f"{float(f'{100.0 * share:.2g}'):g}%"


def kernel_distance(kernel: ArrayLike, other: ArrayLike, *, tolerance: float = 1e-3) -> KernelDistance:
    """Measure the distance between two kernel matrices in operator norm, as they are and with the best factor.

    The distance is a convex function of the factor c. By the triangle inequality the best c is within
    2 ||K - c K'||₂/||K'||₂ of any other, so it is searched for around that of least squares.

    Args:
        kernel: K, a symmetric matrix (n, n); distances are relative to its norm.
        other: K', another one.
        tolerance: relative accuracy of the norms.
    """
    first, second = np.asarray(kernel, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if first.ndim != 2 or first.shape[0] != first.shape[1] or first.shape != second.shape:
        raise InputError(
            f"Two square matrices of one shape are needed; they have the shapes {first.shape} and {second.shape}."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError("A matrix has NaN or infinite entries: there is no distance between such kernels.")

    def norm(factor: float, other_factor: float) -> float:
        if len(first) <= _SMALL:
            return float(np.abs(np.linalg.eigvalsh(factor * first - other_factor * second)).max())
        return operator_norm(
            factor * aslinearoperator(first) - other_factor * aslinearoperator(second), tolerance
        )

    # Squares of entries enter the best factor: below this they vanish.
    if min(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0)) < _SMALLEST:
        raise InputError(
            "A kernel that is zero, or smaller than 1e-150, has no distance relative to its norm. Scale the samples up."
        )
    whole, size = norm(1.0, 0.0), norm(0.0, 1.0)

    plain, start = norm(1.0, 1.0), float(np.vdot(first, second) / np.vdot(second, second))
    found = (start, norm(1.0, start))
    reach = 2.0 * found[1] / size
    if reach > _ROUNDING * abs(start):
        best = minimize_scalar(
            lambda factor: norm(1.0, factor),
            bounds=(start - reach, start + reach),
            method="bounded",
            options={"xatol": 0.5 * _FACTOR_TOLERANCE * reach},
        )
        found = min(found, (float(best.x), float(best.fun)), key=lambda one: one[1])
    # No factor at all is a factor, too.
    factor, least = min(found, (1.0, plain), key=lambda one: one[1])
    return KernelDistance(plain / whole, least / whole, factor)


def equivalence_error(
    model: Model,
    X: ArrayLike,
    stats: MixtureStatistics | None = None,
    kernel: str = "ck",
    form: str = "asymptotic",
    *,
    tolerance: float = 1e-3,
    progress: bool | Report = True,
    **options: Any,
) -> float:
    """Measure ||K - K̄||₂/||K||₂ between the exact kernel and its equivalent, docs/theory.md (4.8).

    Args:
        model: as in `equivalent`, like stats, kernel and form.
        X: samples in rows (n, p).
        stats: statistics of the classes.
        kernel: name of the kernel, as in `coefficients`.
        form: "asymptotic" or "refined".
        tolerance: relative accuracy of the two norms.
        progress: a bar on a terminal after two seconds; False for none.
        **options: options of the refined form, as in `equivalent`: order, square, rank, seed and around.
    """
    rows = as_rows(X)
    with reported(progress, "equivalent and exact kernel"):
        operator = equivalent(model, rows, stats, kernel, form, **options)
        exact = aslinearoperator(exact_kernel(model, rows, kernel=kernel))
        whole, apart = (operator_norm(op, tolerance) for op in (exact, exact - operator))
        return apart / whole
