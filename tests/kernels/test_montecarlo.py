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
from tolerances import assert_within_noise

import notsodeep as nsd

WIDTH, DRAWS = 500, 60
# The mean over draws differs from the limit by O(1/width); a few units of 1/500.
BIAS = 0.006
X = np.array([[1.0, 0.0, 0.2], [0.6, 0.9, 0.0], [-0.5, 0.1, 1.1], [1.8, -0.4, 0.3]])


def made(phi: Reference) -> nsd.Activation:
    return nsd.activation(phi.name, **phi.parameters)


def draw_deq(phi: Reference, sigma_a2: float, sigma_b2: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """<z_i, z_j> and the tangent kernel of one random DEQ, z = phi(sigma_a A z + sigma_b B x)/sqrt(m).

    With h the pre-activation and D = diag phi'(h), the adjoint b solves b = a + (sigma_a/sqrt(m)) A^T D b, and
    df/dA = (sigma_a/sqrt(m)) (D b) z^T, df/dB = (sigma_b/sqrt(m)) (D b) x^T, df/da = z.
    """
    generator = np.random.default_rng(seed)
    A, B = generator.normal(size=(WIDTH, WIDTH)), generator.normal(size=(WIDTH, X.shape[1]))
    readout = generator.normal(size=(WIDTH, 1))
    recurrent, root = math.sqrt(sigma_a2) * A, math.sqrt(WIDTH)
    forcing = math.sqrt(sigma_b2) * B @ X.T
    z = np.zeros((WIDTH, len(X)))
    for _ in range(60):
        before, z = z, phi.np_value(recurrent @ z + forcing) / root
    assert np.max(np.abs(z - before)) < 1e-10, "the random network did not settle"
    slope = phi.np_slope(recurrent @ z + forcing) / root
    adjoint = np.repeat(readout, len(X), axis=1)
    for _ in range(60):
        adjoint = readout + recurrent.T @ (slope * adjoint)
    features = z.T @ z
    weighted = slope * adjoint
    return features, features + (weighted.T @ weighted) * (sigma_a2 * features + sigma_b2 * X @ X.T)


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


@pytest.fixture(scope="module", params=["tanh", "relu", "hard_tanh", "softplus"])
def deq_draws(request: pytest.FixtureRequest) -> tuple[nsd.DEQ, np.ndarray, np.ndarray]:
    """A DEQ, and independent draws of its two kernels."""
    phi, sigma_a2, sigma_b2 = oracles.reference(request.param), 0.2, 0.9
    draws = [draw_deq(phi, sigma_a2, sigma_b2, seed) for seed in range(DRAWS)]
    ck, ntk = (np.array(one) for one in zip(*draws, strict=True))
    return nsd.DEQ(made(phi), sigma_a2, sigma_b2=sigma_b2), ck, ntk


def test_random_deqs_have_the_exact_kernels(deq_draws: tuple[nsd.DEQ, np.ndarray, np.ndarray]) -> None:
    model, ck, ntk = deq_draws
    assert_within_noise(nsd.conjugate_kernel(model, X), ck, bias=BIAS, resolution=0.02)
    assert_within_noise(nsd.tangent_kernel(model, X), ntk, bias=BIAS, resolution=0.02)


def test_random_deqs_refute_wrong_formulas(deq_draws: tuple[nsd.DEQ, np.ndarray, np.ndarray]) -> None:
    """The papers' reading, the pre-activations', twice the recurrence and none of it are all seen."""
    model, ck, ntk = deq_draws
    off = nsd.DEQ(model.activation, 2 * model.sigma_a2, sigma_b2=model.sigma_b2)
    wrong = (
        (nsd.tangent_kernel(model, X, of="paper"), ntk),
        (nsd.tangent_kernel(model, X, of="preactivations"), ntk),
        (nsd.tangent_kernel(off, X), ntk),
        (nsd.conjugate_kernel(model, X, of="preactivations"), ck),
        (nsd.conjugate_kernel(model, X, depth=1), ck),
    )
    for kernel, draws in wrong:
        with pytest.raises(AssertionError, match="times the allowed distance"):
            assert_within_noise(kernel, draws, bias=BIAS, resolution=0.02)


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
