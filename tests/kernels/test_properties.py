"""What every kernel must satisfy, whatever the data: properties searched by hypothesis."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tolerances import Oracle, tolerance

import notsodeep as nsd
from notsodeep.gaussian import moments
from notsodeep.gaussian.bivariate import dual

RELATIVE = tolerance(Oracle.QUADRATURE).rtol
ROUNDING = tolerance(Oracle.IDENTITY).rtol

# One of each method of solution: closed forms, Price's integral, series, with and without kinks.
LABELS = (
    "relu",
    "leaky_relu",
    "abs",
    "hard_tanh",
    "piecewise_linear",
    "tanh",
    "erf",
    "gelu",
    "elu",
    "sin",
    "cos",
)
HOMOGENEOUS = ("relu", "leaky_relu", "leaky_relu_swapped", "abs", "identity")


def made(label: str) -> nsd.Activation:
    phi = oracles.reference(label)
    return nsd.activation(phi.name, **phi.parameters)


def rows(most: int = 5) -> st.SearchStrategy[np.ndarray]:
    """A few rows of a few features; small integers and halves make duplicates, parallels and zeros likely."""
    entries = st.one_of(st.integers(-3, 3).map(float), st.floats(-3, 3, allow_subnormal=False, width=32))
    shapes = st.tuples(st.integers(1, most), st.integers(1, 4))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=entries))


activations = st.sampled_from(LABELS)
variances = st.sampled_from((0.0, 0.1, 0.3, 0.45))


@st.composite
def models(draw: st.DrawFn) -> nsd.DEQ:
    """A DEQ whose fixed point exists: E[phi'^2] <= 1 for all the labels, and sigma_a2 < 1/2."""
    bias2 = draw(st.sampled_from((0.0, 0.2)))
    sigma_b2 = draw(st.sampled_from((None, 1.0, 2.5)))
    return nsd.DEQ(made(draw(activations)), draw(variances), sigma_b2=sigma_b2, bias2=bias2)


# Which kernel: three tangent ones and two conjugate ones, so that one example costs one kernel.
READINGS = ("ntk network", "ntk paper", "ntk preactivations", "ck features", "ck preactivations")
readings = st.sampled_from(READINGS)


def kernel(
    reading: str, model: nsd.DEQ | nsd.Explicit, X: np.ndarray, Y: np.ndarray | None = None
) -> np.ndarray:
    kind, of = reading.split()
    return (nsd.tangent_kernel if kind == "ntk" else nsd.conjugate_kernel)(model, X, Y, of=of)


def assert_same(actual: np.ndarray, expected: np.ndarray, relative: float = RELATIVE) -> None:
    """Equal up to `relative` of the largest entry; 1e-290 is zero in any unit."""
    allowed = relative * np.max(np.abs(expected), initial=0.0) + 1e-290
    np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed)


@pytest.mark.slow
@given(readings, models(), rows())
def test_kernels_are_positive_semi_definite(reading: str, model: nsd.DEQ, X: np.ndarray) -> None:
    found = kernel(reading, model, X)
    np.testing.assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found)[0] >= -RELATIVE * np.trace(found)


@pytest.mark.slow
@given(readings, models(), rows(), st.integers(0, 2**32 - 1))
def test_rotations_change_nothing(reading: str, model: nsd.DEQ, X: np.ndarray, seed: int) -> None:
    p = X.shape[1]
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(p, p)))[0]
    assert_same(kernel(reading, model, X @ rotation), kernel(reading, model, X))


@pytest.mark.slow
@given(readings, models(), rows(), st.integers(0, 2**32 - 1))
def test_permuting_rows_permutes_the_kernel(reading: str, model: nsd.DEQ, X: np.ndarray, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(X))
    assert_same(kernel(reading, model, X[order]), kernel(reading, model, X)[np.ix_(order, order)])


@pytest.mark.slow
@given(readings, st.sampled_from(HOMOGENEOUS), variances, rows(), st.sampled_from((2.0**-12, 1e-3, 7.0, 1e3)))
def test_homogeneous_activations_have_homogeneous_kernels(
    reading: str, label: str, sigma_a2: float, X: np.ndarray, scale: float
) -> None:
    model = nsd.DEQ(made(label), sigma_a2)
    assert_same(kernel(reading, model, scale * X), scale**2 * kernel(reading, model, X))


@pytest.mark.slow
@given(readings, models(), rows(), st.integers(1, 4))
def test_blocks_of_a_kernel_are_kernels_of_blocks(
    reading: str, model: nsd.DEQ, X: np.ndarray, cut: int
) -> None:
    """K(X, X) and K(X, Y) are blocks of K([X; Y], [X; Y]); errors are judged against the whole."""
    assume(cut < len(X))
    whole = kernel(reading, model, X)
    assert_same(kernel(reading, model, X, X.copy()), whole)
    again = whole.copy()
    again[:cut, :cut] = kernel(reading, model, X[:cut])
    again[:cut, cut:] = kernel(reading, model, X[:cut], X[cut:])
    assert_same(again, whole)


@pytest.mark.slow
@given(activations, rows())
def test_without_recurrence_a_deq_is_one_layer(label: str, X: np.ndarray) -> None:
    deq, layer = nsd.DEQ(made(label), 0.0, sigma_b2=1.0), nsd.Explicit([made(label)])
    gram = X @ X.T
    for function in (nsd.conjugate_kernel, nsd.tangent_kernel):
        assert_same(function(deq, X), function(layer, X))
    assert_same(nsd.conjugate_kernel(deq, X, of="preactivations"), gram)
    # with kinks the limit is approached like the root of sigma_a2, where rows are opposite
    almost = nsd.DEQ(made(label), 1e-25, sigma_b2=1.0)
    assert_same(nsd.tangent_kernel(almost, X), nsd.tangent_kernel(layer, X))


@pytest.mark.slow
@given(models(), rows())
def test_the_diagonal_is_the_second_moment_at_its_variance(model: nsd.DEQ, X: np.ndarray) -> None:
    """q = Lambda_ii solves q = sigma_a2 S(q) + sigma_b2 |x|^2 + bias2, and G_ii = S(q)."""
    q = np.diag(nsd.conjugate_kernel(model, X, of="preactivations"))
    second = moments.second_moment(model.activation, q)
    np.testing.assert_allclose(np.diag(nsd.conjugate_kernel(model, X)), second, rtol=RELATIVE, atol=1e-300)
    drive = model.sigma_b2 * np.sum(X * X, axis=1) + model.bias2
    np.testing.assert_allclose(model.sigma_a2 * second + drive, q, rtol=RELATIVE, atol=1e-300)


@given(models(), rows())
def test_preactivations_and_features_are_affinely_related(model: nsd.DEQ, X: np.ndarray) -> None:
    features, covariance = (nsd.conjugate_kernel(model, X, of=of) for of in ("features", "preactivations"))
    expected = model.sigma_a2 * features + model.sigma_b2 * (X @ X.T) + model.bias2
    assert_same(covariance, expected, 10 * ROUNDING)


@pytest.mark.slow
@given(models(), rows())
def test_each_pair_solves_its_equation(model: nsd.DEQ, X: np.ndarray) -> None:
    """G_ij = F(Lambda_ii, Lambda_jj, Lambda_ij), by the bivariate expectation."""
    covariance = nsd.conjugate_kernel(model, X, of="preactivations")
    q = np.diag(covariance)
    left, right = (np.repeat(q, len(q)), np.tile(q, len(q)))
    value = dual(model.activation, left, right, covariance.ravel())[0].reshape(covariance.shape)
    assert_same(nsd.conjugate_kernel(model, X), value)


@pytest.mark.slow
@given(models(), rows())
def test_the_three_tangent_kernels_are_readings_of_one(model: nsd.DEQ, X: np.ndarray) -> None:
    """With r = 1/(1 - sigma_a2 D), D = F'(Lambda): Theta = G + r D Lambda, K = r G, Pi = r Lambda.

    D is eliminated: K Lambda = G Pi, and sigma_a2 (Theta - G) = Pi - Lambda.
    """
    theta, paper, pi, feature, covariance = (kernel(reading, model, X) for reading in READINGS)
    for one, other in zip(nsd.both_kernels(model, X), (feature, theta), strict=True):
        assert_same(one, other)
    assert_same(paper * covariance, feature * pi)
    assert_same(covariance + model.sigma_a2 * (theta - feature), pi)


@pytest.mark.slow
@given(readings, activations, rows(4))
def test_finite_depth_tends_to_infinite_depth(reading: str, label: str, X: np.ndarray) -> None:
    """The rate is sigma_a2 max(S', D) <= 0.1: 12 layers reach rounding, 3 do not."""
    model, (kind, of) = nsd.DEQ(made(label), 0.1), reading.split()
    function = nsd.tangent_kernel if kind == "ntk" else nsd.conjugate_kernel
    limit = function(model, X, of=of)
    errors = [float(np.max(np.abs(function(model, X, of=of, depth=depth) - limit))) for depth in (3, 12)]
    size = float(np.max(np.abs(limit)))
    assert errors[0] <= 0.02 * size
    assert errors[1] <= RELATIVE * size


@pytest.mark.slow
@given(st.lists(activations, min_size=1, max_size=3), rows(4))
def test_explicit_networks_share_the_properties(labels: list[str], X: np.ndarray) -> None:
    """Positive semi-definite, and each layer's kernel is F of the one before."""
    deep = nsd.Explicit([made(label) for label in labels])
    ck, ntk = nsd.conjugate_kernel(deep, X), nsd.tangent_kernel(deep, X)
    for kernel in (ck, ntk):
        assert np.linalg.eigvalsh(kernel)[0] >= -RELATIVE * np.trace(kernel)
    before = (
        X @ X.T if len(labels) == 1 else nsd.conjugate_kernel(nsd.Explicit([made(x) for x in labels[:-1]]), X)
    )
    q = np.diag(before)
    value = dual(made(labels[-1]), np.repeat(q, len(q)), np.tile(q, len(q)), before.ravel())[0]
    assert_same(ck, value.reshape(before.shape))
    # Theta - Sigma = Theta_before o F' is again positive semi-definite
    assert np.linalg.eigvalsh(ntk - ck)[0] >= -RELATIVE * np.trace(ntk)
