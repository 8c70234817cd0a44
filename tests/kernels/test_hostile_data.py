"""Kernels of hostile data: collinear, equal and duplicated rows, one feature, norms over twelve decades.

Everything goes through the public functions and is compared with the independent solver of `oracles`, within the bound
that the kernel comes with.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import oracles
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special
from tolerances import Oracle, assert_close, tolerance

import notsodeep as nsd
from notsodeep.gaussian.bivariate import dual as quadrature

# Accuracy of the oracle itself, and how far rounding of the inner products may move a covariance.
ORACLE, ROUNDING = tolerance(Oracle.CLOSED_FORM).rtol, 8 * 2.0**-52


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _activations() -> dict[str, tuple[oracles.Reference, nsd.Activation]]:
    """Every built-in activation but the cubic, which has no fixed point at large norms; a formula; callables."""
    built_in = {str(phi): phi for phi in oracles.ALL if phi.name != "polynomial"}
    made = {label: (phi, nsd.activation(phi.name, **phi.parameters)) for label, phi in built_in.items()}
    made["formula"] = built_in["swish"], nsd.activation("x*sigmoid(x)")
    made["callable"] = built_in["gelu"], nsd.custom_activation(lambda x: x * special.ndtr(x))
    made["kinked callable"] = built_in["elu"], nsd.custom_activation(_elu, kinks=(0.0,))
    return made


ACTIVATIONS = _activations()
# A table of a function that is known by its values takes seconds: these have tests of their own below.
BUILT_IN = [label for label in ACTIVATIONS if label not in ("formula", "callable", "kinked callable")]
SHAPES = ("equal", "duplicated", "one feature", "collinear", "nearly collinear", "cone", "two features")


def rows_of(shape: str, decades: tuple[float, float], n: int = 10, seed: int = 0) -> np.ndarray:
    """Rows of a shape, of norms from 10**decades[0] to 10**decades[1]."""
    rng = np.random.default_rng(seed)
    norms = 10.0 ** rng.uniform(*decades, size=(n, 1))
    if shape == "equal":
        return np.repeat(norms[:1] * rng.standard_normal((1, 4)) / 2.0, n, axis=0)
    if shape == "one feature":
        return norms * rng.choice([-1.0, 1.0], size=(n, 1))
    if shape in ("duplicated", "two features"):
        rows = norms * rng.standard_normal((n, 2 if shape == "two features" else 4)) / 2.0
        return np.repeat(rows[: n // 2], 2, axis=0) if shape == "duplicated" else rows
    spread = {"collinear": 0.0, "nearly collinear": 1e-7, "cone": 1e-3}[shape]
    return norms * (np.array([0.6, -0.64, 0.48]) + spread * rng.standard_normal((n, 3)))


def assert_within_bound(
    phi: oracles.Reference,
    sigma_a2: float,
    X: np.ndarray,
    Y: np.ndarray | None,
    pairs: list[tuple[int, int]],
    kernels: tuple[np.ndarray, np.ndarray],
    info: Any,
) -> None:
    """Both kernels at these pairs against the oracle: the stated bound, and what rounding of x·y may change."""
    for kernel in kernels:
        assert np.isfinite(kernel).all()
    for i, j in pairs:
        gram = (1.0 - sigma_a2) * oracles.exact_gram(np.stack([X[i], (X if Y is None else Y)[j]]))
        drives, drive = (float(gram[0, 0]), float(gram[1, 1])), float(gram[0, 1])
        away = ROUNDING * float(np.sqrt(drives[0] * drives[1]))
        moved = [oracles.brute_pair(phi, sigma_a2, drives, drive + step) for step in (-away, 0.0, away)]
        own = [oracles.brute_pair(phi, sigma_a2, (one, one), one) for one in drives]
        # A relative error of F' enters the tangent kernel divided by this.
        margin = 1.0 - sigma_a2 * float(np.sqrt(own[0].slope * own[1].slope))
        for kernel, field, spread in zip(kernels, ("feature", "network"), (1.0, margin), strict=True):
            exact = [getattr(one, field) for one in moved]
            size = float(np.sqrt(getattr(own[0], field) * getattr(own[1], field)))
            allowed = (info.error_bound + ORACLE) * size / spread
            assert min(exact) - allowed <= kernel[i, j] <= max(exact) + allowed, (
                f"entry {i}, {j} is {kernel[i, j]!r}, expected {exact}, allowed {allowed:.1e} of {size:.3g}"
            )


def check(
    label: str, sigma_a2: float, X: np.ndarray, Y: np.ndarray | None, pairs: list[tuple[int, int]]
) -> Any:
    """Both kernels of a DEQ within their bound; returns the evidence."""
    phi, activation = ACTIVATIONS[label]
    *kernels, info = nsd.kernels.both_kernels(nsd.DEQ(activation, sigma_a2), X, Y, return_info=True)
    assert_within_bound(phi, sigma_a2, X, Y, pairs, (kernels[0], kernels[1]), info)
    return info


@pytest.mark.parametrize("label", BUILT_IN)
@settings(max_examples=3)
@given(
    shape=st.sampled_from(SHAPES),
    low=st.sampled_from([-6.0, -3.0, -1.0, 0.0]),
    decades=st.sampled_from([0.0, 0.5, 3.0]),
    scale=st.sampled_from([None, 1.0, 30.0, 1e4]),
    seed=st.integers(0, 99),
)
@example(shape="equal", low=0.0, decades=0.0, scale=None, seed=0)
@example(shape="collinear", low=-1.0, decades=1.0, scale=1e4, seed=0)
@example(shape="duplicated", low=-0.5, decades=1.0, scale=1.0, seed=1)
def test_hostile_rows_are_within_the_stated_bound(
    label: str, shape: str, low: float, decades: float, scale: float | None, seed: int
) -> None:
    """X with itself, or with a scaled X: one pair at random and the pair of the largest and the smallest norm."""
    X = rows_of(shape, (low, low + decades), seed=seed)
    norms = np.linalg.norm(X, axis=1)
    pairs = [(0, 1), (int(np.argmax(norms)), int(np.argmin(norms)))]
    check(label, 0.2, X, None if scale is None else scale * X, pairs)


@pytest.mark.slow
@pytest.mark.parametrize("label", BUILT_IN)
def test_norms_over_twelve_decades(label: str) -> None:
    X = rows_of("one feature", (-6.0, 6.0))
    norms = np.linalg.norm(X, axis=1)
    check(label, 0.2, X, None, [(0, 1), (int(np.argmax(norms)), int(np.argmin(norms)))])


@pytest.mark.parametrize("label", ["erf", "tanh", "arctan", "gelu", "swish"])
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_a_scaled_copy_of_collinear_rows(label: str, scale: float) -> None:
    """The tables had an inverted range and were off by up to 1e-4 under a bound of 1e-13."""
    X = np.linspace(0.1, 1.0, 10)[:, None]
    check(label, 0.2, X, scale * X, [(0, 0), (0, 9), (9, 9), (4, 2)])


def test_rows_in_a_narrow_cone_with_norms_over_three_decades() -> None:
    rng = np.random.default_rng(0)
    norms = np.geomspace(0.1, 100.0, 150)[:, None]
    X = norms * (np.array([1.0, 0.0, 0.0]) + 1e-3 * rng.standard_normal((150, 3)))
    check("tanh", 0.2, X, None, [(0, 149), (10, 140), (75, 149), (148, 149), (100, 101)])


@pytest.mark.parametrize(
    "label", ["tanh", "softplus", "sigmoid", "elu", "arctan", "softsign", "erf", "formula"]
)
def test_equal_rows_have_equal_entries(label: str) -> None:
    """All rows equal gave NaN beside a bound of 3.6e-11."""
    check(label, 0.2, np.ones((16, 4)), None, [(0, 1), (7, 3)])


@pytest.mark.parametrize(("label", "steepest"), [("relu", 0.5), ("leaky_relu", 0.505), ("abs", 1.0)])
def test_near_the_end_of_contraction_the_bound_still_holds(label: str, steepest: float) -> None:
    """σ_a² E[φ'²] within 1e-6 of 1: an error of F is divided by what is left."""
    rng = np.random.default_rng(3)
    X = 1e-2 * rng.standard_normal((12, 3))
    X[1] = X[0] * (1.0 + 1e-3) + 1e-5 * rng.standard_normal(3)
    X[3] = -1.01 * X[2]
    phi, activation = ACTIVATIONS[label]
    sigma_a2 = (1.0 - 1e-6) / steepest
    deq = nsd.DEQ(activation, sigma_a2, sigma_b2=1.0)
    kernel, info = nsd.conjugate_kernel(deq, X, return_info=True)
    for i, j in [(0, 1), (2, 3), (4, 5), (2, 6), (7, 1)]:
        exact = oracles.mp_pair(phi, sigma_a2, (1.0, 0.0), [X[i], X[j]]).feature
        assert abs(kernel[i, j] - exact) <= info.error_bound * np.sqrt(kernel[i, i] * kernel[j, j])


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_hostile_rows_of_functions_known_by_their_values(shape: str) -> None:
    """Norms over half a decade, so that one table serves all shapes."""
    X = rows_of(shape, (-0.3, 0.2), seed=SHAPES.index(shape))
    norms = np.linalg.norm(X, axis=1)
    pairs = [(0, 1), (int(np.argmax(norms)), int(np.argmin(norms)))]
    for label in ("formula", "callable", "kinked callable"):
        check(label, 0.2, X, None, pairs)


@pytest.mark.parametrize("label", [*BUILT_IN, "formula"])
@pytest.mark.parametrize("shape", ["one feature", "two features", "nearly collinear"])
def test_few_pairs_of_collinear_rows_are_integrated_one_by_one(label: str, shape: str) -> None:
    """Quadrature takes milliseconds a pair: with tanh, 300 rows of one feature took 40 s."""
    X = rows_of(shape, (-1.0, 0.7), n=90)
    info = check(label, 0.2, X, None, [(0, 1)])
    assert "quadrature" not in info.methods or info.fallback_pairs <= 90


@pytest.mark.parametrize("label", ["formula", "callable", "kinked callable"])
def test_coincident_rows_of_a_formula_or_a_callable(label: str) -> None:
    """A ZeroDivisionError: the training rows against themselves, as score(X, y) has them."""
    X = np.random.default_rng(0).standard_normal((20, 3))
    check(label, 0.2, X, X[::-1].copy(), [(0, 19), (3, 16), (3, 3)])
    X[4] = X[3]
    check(label, 0.2, X, None, [(4, 3), (0, 1)])


@pytest.mark.parametrize("activation", ["tanh", "relu", "softplus", "x*sigmoid(x)"])
def test_images_of_zeros(activation: str) -> None:
    """All-zero images gave an IndexError: every position has the variance of a sample without signal."""
    kernel = nsd.conjugate_kernel(nsd.ConvDEQ(activation, 0.2, padding="circular"), np.zeros((3, 1, 4, 4)))
    silent = nsd.conjugate_kernel(nsd.DEQ(activation, 0.2), np.zeros((3, 4)))
    np.testing.assert_allclose(kernel, silent, rtol=1e-12, atol=1e-15)


def test_images_with_a_callable_that_has_a_kink_at_zero() -> None:
    """No position is integrated by itself, which was announced to take 47 minutes for six images."""
    images = np.random.default_rng(0).standard_normal((3, 2, 4, 4))
    found, info = nsd.conjugate_kernel(
        nsd.ConvDEQ(ACTIVATIONS["kinked callable"][1], 0.2), images, return_info=True
    )
    exact = nsd.conjugate_kernel(nsd.ConvDEQ("elu", 0.2), images)
    assert "quadrature" not in info.methods
    size = np.sqrt(np.diag(exact))
    assert np.all(np.abs(found - exact) <= (info.error_bound + ORACLE) * np.outer(size, size))


def test_parallel_rows_through_a_smooth_and_a_kinked_layer() -> None:
    """A smooth layer leaves parallel rows of different norms at an angle: F' of the next one was off by 0.4 %."""
    X = np.array([[0.67], [0.8], [0.95]])
    network = nsd.Explicit(["gelu", "relu"], weights=[0.7, 0.4], inject=[0.6])
    gram = X @ X.T
    tangent, features = gram, gram
    for phi, weight, again in zip(network.layers, network.weights, (0.0, *network.inject), strict=True):
        covariance, arriving = weight * features + again * gram, weight * tangent + again * gram
        variances = np.diag(covariance)
        features, slope = quadrature(phi, variances[:, None], variances, covariance)
        tangent = features + slope * arriving
    apart = np.tril_indices(len(X), -1)
    np.testing.assert_allclose(nsd.tangent_kernel(network, X)[apart], tangent[apart], rtol=1e-10)


@pytest.mark.parametrize("label", BUILT_IN)
def test_a_row_of_zeros_sends_no_other_to_quadrature(label: str) -> None:
    """dF'/dc of a sample without signal was not finite, and every pair of the kernel was integrated."""
    X = rows_of("two features", (-0.3, 0.2), n=30)
    X[4] = X[11] = 0.0
    info = check(label, 0.2, X, None, [(0, 1), (11, 4), (4, 7)])
    assert not info.recomputed
    assert "quadrature" not in info.methods


def test_a_kink_many_standard_deviations_away() -> None:
    """relu(x - 2) where the pre-activation is 7.6 standard deviations below 2; S by mpmath."""
    with mpmath.workdps(50):
        q = mpmath.findroot(lambda q: q - 0.05 * _tail(q) - 0.95 * mpmath.mpf(0.27) ** 2, 0.07)
        second = float(_tail(q))
    own = np.maximum
    for phi in (
        nsd.activation("relu(x - 2)"),
        nsd.custom_activation(lambda x: own(x - 2.0, 0.0), kinks=(2.0,)),
    ):
        model, X = nsd.DEQ(phi, 0.05, 0.95), np.array([[0.27]])
        for columns in (None, X):
            kernel, info = nsd.conjugate_kernel(model, X, columns, return_info=True)
            assert abs(kernel[0, 0] / second - 1.0) <= info.error_bound <= tolerance(Oracle.QUADRATURE).rtol
        square, rectangular = (nsd.tangent_kernel(model, X, Y, return_info=True) for Y in (None, X))
        difference = abs(rectangular[0][0, 0] / square[0][0, 0] - 1.0)
        assert difference <= square[1].error_bound + rectangular[1].error_bound
        # Straight pieces are compared by their distance: all digits count.
        assert phi.shape.pieces is None or difference <= tolerance(Oracle.QUADRATURE).rtol


def _tail(q: mpmath.mpf) -> mpmath.mpf:
    """E[relu(√q ξ - 2)²]."""
    h = 2 / mpmath.sqrt(q)
    return q * ((1 + h * h) * mpmath.erfc(h / mpmath.sqrt(2)) / 2 - h * mpmath.npdf(h))


@pytest.mark.parametrize("norm", [1.0, 4000.0])
def test_square_and_rectangular_kernels_differ_by_less_than_stated(norm: float) -> None:
    X = np.random.default_rng(0).standard_normal((6, 30))
    X *= norm / np.linalg.norm(X, axis=1, keepdims=True)
    own = np.clip
    clipped = nsd.custom_activation(lambda x: own(x / 6.0 + 0.5, 0.0, 1.0), kinks=(-3.0, 3.0))
    for phi in (clipped, nsd.activation("clip(x/6 + .5, 0, 1)"), nsd.activation("relu")):
        model = nsd.DEQ(phi, 0.5)
        square, rectangular = (
            nsd.tangent_kernel(model, X, Y, return_info=True) for Y in (None, X.copy(order="F"))
        )
        size = np.sqrt(np.diag(square[0]))
        difference = np.abs((square[0] - rectangular[0]) / np.outer(size, size)).max()
        assert difference <= square[1].error_bound + rectangular[1].error_bound


def test_hard_tanh_at_correlation_one_of_unequal_norms() -> None:
    """Kinks that differ in the last digits only, at a correlation that rounds to 1: S by mpmath between them."""
    X = np.array([[2.8], [2.8 * (1.0 + 3e-9)]])
    ck, info = nsd.conjugate_kernel(nsd.DEQ("hard_tanh", 0.3, 0.9), X, return_info=True)
    assert not info.recomputed
    assert ck[0, 0] <= ck[0, 1] <= ck[1, 1]
    assert_close(ck[0, 1], np.sqrt(ck[0, 0] * ck[1, 1]), Oracle.CLOSED_FORM)
