"""Finite random networks agree with the exact kernels within their own noise, and refute the wrong formulas.

The networks here are written from the definitions (theory, section 1), apart from the package's own Monte Carlo,
which is then held to the same numbers.
"""

from __future__ import annotations

import math

import numpy as np
import oracles
import pytest
from oracles import Reference
from tolerances import Oracle, assert_close, assert_within_noise

import notsodeep as nsd
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.kernels.finite_width import finite_width_kernels

WIDTH, DRAWS = 500, 60
# The mean over draws differs from the limit by O(1/width); a few units of 1/500.
BIAS = 0.006
X = np.array([[1.0, 0.0, 0.2], [0.6, 0.9, 0.0], [-0.5, 0.1, 1.1], [1.8, -0.4, 0.3]])


def made(phi: Reference) -> nsd.Activation:
    return nsd.activation(phi.name, **phi.parameters)


def settle(phi: Reference, recurrent: np.ndarray, forcing: np.ndarray) -> np.ndarray:
    """z = phi(recurrent z + forcing)/sqrt(m), one column per sample."""
    z, root = np.zeros(forcing.shape), math.sqrt(len(forcing))
    for _ in range(60):
        before, z = z, phi.np_value(recurrent @ z + forcing) / root
    assert np.max(np.abs(z - before)) < 1e-10, "the random network did not settle"
    return z


def deq_kernels(
    phi: Reference, variances: tuple[float, float], weights: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """<z_i, z_j> and the tangent kernel of one DEQ, z = phi(sigma_a A z + sigma_b B x)/sqrt(m), f = <a, z>.

    With h the pre-activation and D = diag phi'(h), the adjoint b solves b = a + (sigma_a/sqrt(m)) A^T D b, and
    df/dA = (sigma_a/sqrt(m)) (D b) z^T, df/dB = (sigma_b/sqrt(m)) (D b) x^T, df/da = z.
    """
    (sigma_a2, sigma_b2), (A, B, readout) = variances, weights
    recurrent, forcing = math.sqrt(sigma_a2) * A, math.sqrt(sigma_b2) * B @ X.T
    z = settle(phi, recurrent, forcing)
    slope = phi.np_slope(recurrent @ z + forcing) / math.sqrt(len(A))
    adjoint = np.repeat(readout, len(X), axis=1)
    for _ in range(60):
        adjoint = readout + recurrent.T @ (slope * adjoint)
    features, weighted = z.T @ z, slope * adjoint
    return features, features + (weighted.T @ weighted) * (sigma_a2 * features + sigma_b2 * X @ X.T)


def random_weights(width: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = (width, width), (width, X.shape[1]), (width, 1)
    return tuple(generator.normal(size=shape) for shape in shapes)  # type: ignore[return-value]


def draw_explicit(layers: list[Reference], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for x^(l) = phi_l(W_l x^(l-1))/sqrt(m), gradients by back-propagation."""
    generator = np.random.default_rng(seed)
    signals, weights, slopes = [X.T], [], []
    for phi in layers:
        weights.append(generator.normal(size=(WIDTH, len(signals[-1]))))
        before = weights[-1] @ signals[-1]
        signals.append(phi.np_value(before) / math.sqrt(WIDTH))
        slopes.append(phi.np_slope(before) / math.sqrt(WIDTH))
    features = signals[-1].T @ signals[-1]
    tangent = features.copy()
    back = np.repeat(generator.normal(size=(WIDTH, 1)), len(X), axis=1)
    for signal, weight, slope in zip(signals[-2::-1], weights[::-1], slopes[::-1], strict=True):
        back = slope * back
        tangent += (back.T @ back) * (signal.T @ signal)
        back = weight.T @ back
    return features, tangent


def test_the_tangent_kernel_of_a_small_network_is_its_gradients() -> None:
    """Every weight moved by itself: the formula that the draws use, by differences of f."""
    phi, variances, weights, step = oracles.reference("tanh"), (0.2, 0.9), random_weights(5, 3), 1e-5

    def outputs() -> np.ndarray:
        A, B, readout = weights
        z = settle(phi, math.sqrt(variances[0]) * A, math.sqrt(variances[1]) * B @ X.T)
        return (readout.T @ z)[0]

    gradients = []
    for weight in weights:
        for index in np.ndindex(weight.shape):
            original, ends = weight[index], []
            for sign in (1, -1):
                weight[index] = original + sign * step
                ends.append(outputs())
            weight[index] = original
            gradients.append((ends[0] - ends[1]) / (2 * step))
    expected = np.array(gradients).T @ np.array(gradients)
    assert_close(deq_kernels(phi, variances, weights)[1], expected, Oracle.FINITE_DIFFERENCE)


@pytest.fixture(scope="module", params=["tanh", "relu", "hard_tanh", "softplus"])
def deq_draws(request: pytest.FixtureRequest) -> tuple[nsd.DEQ, np.ndarray, np.ndarray]:
    """A DEQ, and independent draws of its two kernels."""
    phi, sigma_a2, sigma_b2 = oracles.reference(request.param), 0.2, 0.9
    draws = [deq_kernels(phi, (sigma_a2, sigma_b2), random_weights(WIDTH, seed)) for seed in range(DRAWS)]
    ck, ntk = (np.array(one) for one in zip(*draws, strict=True))
    return nsd.DEQ(made(phi), sigma_a2, sigma_b2=sigma_b2), ck, ntk


@pytest.mark.slow
def test_random_deqs_have_the_exact_kernels(deq_draws: tuple[nsd.DEQ, np.ndarray, np.ndarray]) -> None:
    model, ck, ntk = deq_draws
    assert_within_noise(nsd.conjugate_kernel(model, X), ck, bias=BIAS, resolution=0.02)
    assert_within_noise(nsd.tangent_kernel(model, X), ntk, bias=BIAS, resolution=0.02)


@pytest.mark.slow
def test_random_explicit_networks_have_the_exact_kernels() -> None:
    layers = [oracles.reference(label) for label in ("relu", "tanh")]
    draws = [draw_explicit(layers, seed) for seed in range(DRAWS)]
    model = nsd.Explicit([made(phi) for phi in layers])
    for function, one in zip(
        (nsd.conjugate_kernel, nsd.tangent_kernel), zip(*draws, strict=True), strict=True
    ):
        assert_within_noise(function(model, X), np.array(one), bias=BIAS, resolution=0.02)
    with pytest.raises(AssertionError, match="times the allowed distance"):
        assert_within_noise(nsd.conjugate_kernel(model, X), np.array([one[1] for one in draws]), bias=BIAS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        nsd.DEQ("tanh", 0.2, bias2=0.3),
        nsd.DEQ(nsd.activation("relu").scaled(amplitude=1.2).shifted(-0.4), 0.25, sigma_b2=1.1),
        nsd.Explicit(["erf", nsd.activation("leaky_relu", a=1.0, b=0.2)]),
    ],
    ids=str,
)
def test_the_random_networks_of_the_package_agree(model: nsd.DEQ | nsd.Explicit) -> None:
    """With bias, shift and scale, which the networks above leave out; the wrong kernel is refuted here as well."""
    estimate = finite_width_kernels(model, X, width=250, draws=60, seed=1)
    assert_within_noise(nsd.conjugate_kernel(model, X), estimate.ck_draws, bias=2 * BIAS, resolution=0.03)
    assert_within_noise(nsd.tangent_kernel(model, X), estimate.ntk_draws, bias=2 * BIAS, resolution=0.03)
    with pytest.raises(AssertionError, match="times the allowed distance"):
        assert_within_noise(
            nsd.conjugate_kernel(model, X), estimate.ntk_draws, bias=2 * BIAS, resolution=0.03
        )
    assert_close(estimate.ntk, estimate.ntk_draws.mean(axis=0), Oracle.IDENTITY)
    spread = estimate.ck_draws.std(axis=0, ddof=1) / math.sqrt(60)
    assert_close(estimate.ck_error, spread, Oracle.IDENTITY)


def test_draws_repeat_with_their_seed_and_only_with_it() -> None:
    model = nsd.DEQ("tanh", 0.2)
    first, again, other = (
        finite_width_kernels(model, X, width=20, draws=3, seed=s).ck_draws for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.min(np.abs(first - other)) > 0
    assert np.min(np.abs(first[0] - first[1])) > 0


def test_random_networks_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(InputError, match="width"):
        finite_width_kernels(nsd.DEQ("tanh", 0.2), X, width=0, draws=5)
    with pytest.raises(InputError, match="draws"):
        finite_width_kernels(nsd.DEQ("tanh", 0.2), X, width=5, draws=1)
    with pytest.raises(ConvergenceError, match="sigma_a2"):
        finite_width_kernels(nsd.DEQ("identity", 4.0, sigma_b2=1.0), X, width=30, draws=2)
