"""Equivalents on the sphere: closed forms of docs/theory.md section 8, and errors that fall."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from tolerances import Oracle, assert_close

from notsodeep.data import UnitSphere
from notsodeep.equivalents import distance_to_exact, sphere_coefficients, sphere_equivalent
from notsodeep.errors import InputError
from notsodeep.gaussian import activation
from notsodeep.gaussian.moments import derivative_second_moment, mean_derivative, second_moment
from notsodeep.models import DEQ, Explicit

RELU = activation("relu").scaled(np.sqrt(2.0))


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.5, 0.8])
def test_relu_has_the_papers_closed_forms(sigma):
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
    assert_close([conjugate.constant, conjugate.linear], [y + g2 / (2 * d), g1], Oracle.CLOSED_FORM)
    assert_close(conjugate.identity, 1 - y - g1, Oracle.CLOSED_FORM, scale=1.0)
    assert_close([tangent.constant, tangent.linear], [h0 + k2 / (2 * d), k1], Oracle.CLOSED_FORM)
    assert_close(tangent.identity, 1 / (1 - sigma) - h0 - k1, Oracle.CLOSED_FORM, scale=1.0)


@pytest.mark.parametrize("name", ["relu", "softplus", "sigmoid", "tanh", "cos"])
def test_one_layer_has_closed_forms(name):
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
        assert_close(
            [found.constant, found.linear, found.identity], values, Oracle.CLOSED_FORM, scale=1 + energy
        )


MODELS = {
    "the papers' ReLU": (DEQ(RELU, 0.2), ("ck_preactivations", "ntk_preactivations", "ck", "ntk")),
    "a smooth DEQ": (DEQ("softplus", 0.2), ("ck", "ntk_paper")),
    "a biased DEQ": (DEQ("swish", 0.2, bias2=0.2), ("ck",)),
    "two layers": (Explicit(["relu", "sigmoid"]), ("ck", "ntk")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_errors_fall(name):
    model, kernels = MODELS[name]
    samples = [UnitSphere(int(1.2 * n)).sample(n, seed=0) for n in (150, 600)]
    for kernel in kernels:
        small, large = (
            distance_to_exact(model, X, sphere_equivalent(model, X, kernel), kernel) for X in samples
        )
        # The theory has n^{-1/2}: a half for four times the samples.
        assert large.absolute < 0.65 * small.absolute
        assert large.relative < 1e-3


def test_radius_is_that_of_the_rows():
    X = 2.0 * UnitSphere(300).sample(250, seed=1)
    model = DEQ("softplus", 0.2)
    assert distance_to_exact(model, X, sphere_equivalent(model, X)).relative < 1e-3
    assert sphere_coefficients(model, 300, radius=2.0).radius == 2.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sphere_equivalent(DEQ("relu", 0.2), np.eye(3) * [1.0, 2.0, 1.0]), "Divide each row"),
        (lambda: sphere_coefficients(DEQ("relu", 0.2), 0), "dimension"),
        (lambda: sphere_coefficients(DEQ("relu", 0.2), 10, "sphere"), "kernel='sphere'"),
        (lambda: sphere_coefficients(Explicit(["relu"]), 10, "ck_preactivations"), "belongs to a DEQ"),
        (lambda: sphere_coefficients("relu", 10), "DEQ or an Explicit"),
        (lambda: sphere_coefficients(DEQ("relu", 0.2), 10, radius=-1.0), "tau0"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()
