"""The scalars by other routes: derivatives of exact kernels, closed forms, quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.equivalents import coefficients
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian import activation
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, Explicit

IMPLICIT = ("ck", "ntk", "ntk_paper", "ck_preactivations", "ntk_preactivations")
MODELS = {
    "tanh DEQ": DEQ("tanh", 0.2),
    "swish DEQ": DEQ("swish", 0.3),
    "softplus DEQ, free variances": DEQ("softplus", 0.5, sigma_b2=0.8),
    "gelu and tanh layers": Explicit(["gelu", "tanh"]),
    "three layers": Explicit(["swish", "erf", "softplus"]),
    "layers that see the input again": Explicit(["gelu", "tanh"], weights=[0.7, 0.4], inject=[0.6]),
}


def entry(model, kernel, first, second, product):
    """The exact kernel of two samples of given squared norms and inner product."""
    root = np.sqrt(first)
    X = np.array([[root, 0.0], [product / root, np.sqrt(second - product**2 / first)]])
    return exact_kernel(model, X[:1], X[1:], kernel=kernel)[0, 0]


def kernels_of(model):
    return IMPLICIT if isinstance(model, DEQ) else ("ck", "ntk")


CASES = [(name, kernel) for name, model in MODELS.items() for kernel in kernels_of(model)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_they_are_derivatives_of_the_exact_kernel(name, kernel):
    """K ≈ α₁ c + α₃ c² in the inner product, α₂ δ δ' in the squared norms, γ² on the diagonal."""
    tau0 = 1.1
    model, square = MODELS[name].centred(tau0), tau0**2
    scalars = coefficients(model, tau0, kernel)
    step = 1e-3
    up, down, flat = (entry(model, kernel, square, square, c) for c in (step, -step, 0.0))
    mixed = [
        entry(model, kernel, square + i * step, square + j * step, 0.0) for i in (1, -1) for j in (1, -1)
    ]
    found = [
        (up - down) / (2 * step),
        (up - 2 * flat + down) / (2 * step**2),
        (mixed[0] - mixed[1] - mixed[2] + mixed[3]) / (4 * step**2),
        exact_kernel(model, np.array([[tau0]]), kernel=kernel)[0, 0],
    ]
    expected = [scalars.linear, scalars.trace, scalars.norm, scalars.diagonal]
    # Central differences of this step err by its square, times derivatives of order one.
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_leaky_relu_layers_have_closed_forms():
    slopes = [(1.3, 0.2), (0.9, -0.4)]
    tau0 = 0.7
    net = Explicit([activation("leaky_relu", a=a, b=b) for a, b in slopes]).centred(tau0)
    (m1, m2), (e1, e2) = (
        [(a + b) / 2 for a, b in slopes],
        [(a - b) / np.sqrt(2 * np.pi) for a, b in slopes],
    )
    r1, r2 = m1**2 + (np.pi / 2 - 1) * e1**2, m2**2 + (np.pi / 2 - 1) * e2**2
    # docs/theory.md (7.6)
    expected = [
        r1 * r2 * tau0**2,
        m1**2 * m2**2,
        (m2**2 * e1**2 + e2**2 * r1) / (4 * tau0**2),
        (m2**2 * e1**2 + e2**2 * m1**4 / r1) / (2 * tau0**2),
    ]
    assert_close(coefficients(net, tau0).as_array(), expected, Oracle.CLOSED_FORM)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: coefficients(DEQ("relu", 0.2), 1.0), r"centred\(tau0\)"),
        (lambda: coefficients(Explicit(["tanh", "relu"]), 1.0), "layer 2"),
        (lambda: coefficients(DEQ("relu", 0.2).centred(1.0), 2.0), "centred"),
        (lambda: coefficients(DEQ("tanh", 0.2, bias2=0.1), 1.0), "bias2"),
        (lambda: coefficients(DEQ("tanh", 0.2, sigma_b2=0.0), 1.0), "sigma_b2"),
        (lambda: coefficients(DEQ("tanh", 0.2), 0.0), "tau0"),
        (lambda: coefficients(DEQ("tanh", 0.2), 1.0, "cntk"), "kernel='cntk'"),
        (lambda: coefficients(Explicit(["tanh"]), 1.0, "ck_preactivations"), "belongs to a DEQ"),
        (lambda: coefficients("tanh", 1.0), "DEQ or an Explicit"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_diverging_tangent_kernel_says_so():
    # A fast wave: its variance settles, since it is bounded, but its slopes are large.
    steep = DEQ(activation("sin").scaled(gain=5.0), 0.5)
    assert coefficients(steep, 1.0).diagonal > 0
    with pytest.raises(ConvergenceError, match="Lower sigma_a2"):
        coefficients(steep, 1.0, "ntk")
