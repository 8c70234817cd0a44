"""Equivalents and the quadratic layer on the sphere: closed forms of docs/theory.md section 8, and errors that fall."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from scipy.optimize import brentq
from tolerances import Oracle, assert_close

from notsodeep.data import UnitSphere
from notsodeep.gaussian import activation
from notsodeep.gaussian.moments import derivative_second_moment, mean_derivative, second_moment
from notsodeep.kernels import conjugate_kernel, exact_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit
from notsodeep_lab.papers.sphere_twin import sphere_coefficients, sphere_design, sphere_equivalent

RELU = activation("relu").scaled(np.sqrt(2.0))


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.5, 0.8])
def test_relu_has_the_papers_closed_forms(sigma: float) -> None:
    """Docs/theory.md (8.1)–(8.5)."""
    d = 600
    f = lambda x: (np.sqrt(1 - x * x) + (np.pi - np.arccos(x)) * x) / np.pi  # noqa: E731
    y = brentq(lambda x: x - sigma * f(x), 0.0, 1.0, xtol=1e-15)
    f1, f2 = (np.pi - np.arccos(y)) / np.pi, 1 / (np.pi * np.sqrt(1 - y**2))
    f3 = y / (np.pi * (1 - y**2) ** 1.5)
    rest = 1 - sigma * f1
    g1, g2 = (1 - sigma) / rest, sigma * (1 - sigma) ** 2 * f2 / rest**3
    h0, h1 = y / rest, 1 / rest + sigma * y * f2 / rest**2
    h2 = 2 * sigma * f2 / rest**2 + sigma * y * f3 / rest**2 + 2 * sigma**2 * y * f2**2 / rest**3
    k1, k2 = h1 * g1, h2 * g1**2 + h1 * g2
    model = DEQ(RELU, sigma)
    conjugate, tangent = (sphere_coefficients(model, d, f"{k}_preactivations") for k in ("ck", "ntk"))
    assert_close(astuple(conjugate), [y + g2 / (2 * d), g1, 1 - y - g1], Oracle.CLOSED_FORM, scale=1.0)
    expected = [h0 + k2 / (2 * d), k1, 1 / (1 - sigma) - h0 - k1]
    assert_close(astuple(tangent), expected, Oracle.CLOSED_FORM, scale=1.0)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "cos"])
def test_one_layer_has_closed_forms(name: str) -> None:
    """Docs/theory.md (8.6) and (8.7)."""
    d, phi = 400, activation(name)
    m0, m1, m2 = (float(mean_derivative(phi, 1.0, k)) for k in range(3))
    energy, slopes = float(second_moment(phi, 1.0)), float(derivative_second_moment(phi, 1.0))
    expected = {
        "ck": [m0**2 + m2**2 / (2 * d), m1**2, energy - m0**2 - m1**2],
        "ntk": [m0**2 + 3 * m2**2 / (2 * d), 2 * m1**2, energy + slopes - m0**2 - 2 * m1**2],
    }
    for kernel, values in expected.items():
        found = sphere_coefficients(Explicit([phi]), d, kernel)
        assert_close(astuple(found), values, Oracle.CLOSED_FORM, scale=1 + energy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kernel"),
    [(DEQ(RELU, 0.2), "ntk_preactivations"), (Explicit(["relu", "sigmoid"]), "ntk")],
    ids=str,
)
def test_errors_fall(model: DEQ | Explicit, kernel: str) -> None:
    samples = [UnitSphere(int(1.2 * n)).sample(n, seed=0) for n in (150, 600)]
    small, large = (
        np.linalg.norm(
            exact_kernel(model, X, kernel=kernel) - sphere_equivalent(model, X, kernel).to_dense(), 2
        )
        for X in samples
    )
    # The theory has n^{-1/2}: a half for four times the samples.
    assert large < 0.65 * small
    assert large < 1e-3 * np.linalg.norm(exact_kernel(model, samples[1], kernel=kernel), 2)


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize("sigma_a2", [0.05, 0.2, 0.8])
def test_the_quadratic_layer_has_the_scalars(kernel: str, sigma_a2: float) -> None:
    model, network = sphere_design(sigma_a2, 1200, kernel)
    target = sphere_coefficients(model, 1200, f"{kernel}_preactivations")
    assert_close(astuple(sphere_coefficients(network, 1200, kernel)), astuple(target), Oracle.CLOSED_FORM)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "published"), [("ck", 7.8e-4), ("ntk", 7.8e-3)])
def test_the_exact_kernels_are_as_close_as_measured(kernel: str, published: float) -> None:
    X = np.random.default_rng(1).standard_normal((500, 600))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    model, network = sphere_design(0.2, 600, kernel)
    exact = conjugate_kernel if kernel == "ck" else tangent_kernel
    gap = exact(model, X, of="preactivations") - exact(network, X)
    assert np.linalg.norm(gap, 2) == pytest.approx(published, rel=0.1)
