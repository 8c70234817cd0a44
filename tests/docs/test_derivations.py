"""The formulas of docs/theory.md, section 18, against numbers that are obtained without them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.equivalents.coefficients import coefficients
from notsodeep.gaussian.moments import mean_derivative, mehler
from notsodeep.kernels import conjugate_kernel, exact_kernel, tangent_kernel
from notsodeep.models import DEQ

ROOT = Path(__file__).parents[2]
MODELS = {
    "tanh": DEQ("tanh", 0.3),
    "swish with a bias": DEQ("swish", 0.2, bias2=0.3),
    "relu, free variances": DEQ("relu", 0.4, sigma_b2=1.1),
}


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((6, 4)) / 2


# --- (D.4), (D.5) -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_tangent_kernels_are_related_as_the_conjugate_ones(name: str, rows: np.ndarray) -> None:
    model = MODELS[name]
    forcing = model.sigma_b2 * rows @ rows.T + model.bias2
    for kernel in (conjugate_kernel, tangent_kernel):
        inside, outside = kernel(model, rows, of="preactivations"), kernel(model, rows)
        assert_close(inside, model.sigma_a2 * outside + forcing, Oracle.IDENTITY, scale=1.0)


def pair(angle: float, norms: tuple[float, float] = (1.0, 1.2)) -> np.ndarray:
    """Two rows of given norms with the cosine `angle`."""
    first, second = norms
    return np.array([[first, 0.0], [second * angle, second * np.sqrt(1.0 - angle**2)]])


@pytest.mark.parametrize("name", MODELS)
def test_tangent_kernel_as_a_derivative(name: str) -> None:
    """Π = ½ d(λ²)/df: the inner product moves, the norms stay."""
    model, step = MODELS[name], 1e-4
    squares = [conjugate_kernel(model, pair(0.3 + s), of="preactivations")[0, 1] ** 2 for s in (-step, step)]
    slope = (squares[1] - squares[0]) / (2 * step * 1.2 * model.sigma_b2)
    found = tangent_kernel(model, pair(0.3), of="preactivations")[0, 1]
    assert_close(slope / 2, found, Oracle.FINITE_DIFFERENCE, scale=1.0)


# --- (D.10)–(D.15) -------------------------------------------------------------------------------------------


def series(model: DEQ, rows: np.ndarray) -> dict[str, list[float]]:
    """The terms of each kernel's entry for two rows, order by order in L, (D.12)–(D.15)."""
    q = np.diagonal(conjugate_kernel(model, rows, of="preactivations"))
    # M_k(q_1) M_k(q_2)/k! from the coefficients of the Mehler series, (2.6).
    f0, A, B, cubic = mehler(model.activation, q, 4).prod(axis=0) / np.sqrt(q.prod()) ** np.arange(4)
    sigma = model.sigma_a2
    f = model.sigma_b2 * float(rows[0] @ rows[1]) + model.bias2
    epsilon = 1 / (1 - sigma * A)
    L = epsilon * (f + sigma * f0)
    u, v = sigma * epsilon * B, sigma * epsilon * cubic
    terms = {
        "ck_preactivations": [0.0, L, u * L**2, (v + 2 * u**2) * L**3],
        "ck": [f0, A * L, epsilon * B * L**2, epsilon * (cubic + 2 * sigma * epsilon * B**2) * L**3],
        "ntk_preactivations": [
            0.0,
            epsilon * L,
            3 * epsilon * u * L**2,
            epsilon * (10 * u**2 + 4 * v) * L**3,
        ],
    }
    # (D.4): the same for the network, of which the constant and the linear term are what is left of Π - f.
    terms["ntk"] = [
        (term - part) / sigma for term, part in zip(terms["ntk_preactivations"], [f, 0, 0, 0], strict=True)
    ]
    if abs(f0) < 1e-14 and model.bias2 == 0.0:
        terms["ntk_paper"] = [0.0, epsilon * A * L, epsilon * (3 * epsilon - 2) * B * L**2]
    return terms


# A centred φ has M_0 = 0 at one variance: with equal norms the papers' kernel can be held against its formula.
EXPANDED = {
    "tanh": (DEQ("tanh", 0.3), (1.0, 1.2)),
    "softplus, not centred": (DEQ("softplus", 0.05), (0.5, 0.6)),
    "swish, centred": (DEQ("swish", 0.3).centred(1.0), (1.0, 1.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPANDED)
def test_what_a_cut_series_leaves_has_the_next_order(name: str) -> None:
    """Halving L divides the error of a series cut after order k by 2^{k+1}, more or less."""
    model, norms = EXPANDED[name]
    cosines = _cosines(model, norms)
    for kernel in ("ck", "ck_preactivations", "ntk", "ntk_preactivations", "ntk_paper"):
        found = [series(model, pair(cosine, norms)) for cosine in cosines]
        if kernel not in found[0]:
            continue
        exact = [exact_kernel(model, pair(cosine, norms), kernel=kernel)[0, 1] for cosine in cosines]
        order = len(found[0][kernel]) - 1
        errors = [abs(value - sum(terms[kernel])) for value, terms in zip(exact, found, strict=True)]
        for larger, smaller in pairwise(errors):
            assert larger / smaller > 0.8 * 2 ** (order + 1), (kernel, errors)


def _cosines(model: DEQ, norms: tuple[float, float]) -> list[float]:
    """Cosines at which L, which M_0 moves away from zero, is halved twice."""
    q = np.diagonal(conjugate_kernel(model, pair(0.0, norms), of="preactivations"))
    constant = model.sigma_a2 * float(np.prod(mean_derivative(model.activation, q, 0)))
    return [(target - constant) / (model.sigma_b2 * norms[0] * norms[1]) for target in (0.16, 0.08, 0.04)]


# --- (D.9), designs in closed form ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "swish", "tanh", "softplus"])
def test_ratios_of_tangent_and_conjugate_scalars(name: str) -> None:
    model = DEQ(name, 0.3).centred(0.9)
    ck, ntk = (coefficients(model, 0.9, kernel) for kernel in ("ck", "ntk"))
    slope = float(mean_derivative(model.activation, model.preactivation_variance(0.9), 1))
    d = 1 - 0.3 * slope**2
    assert_close(ntk.linear, (1 + 1 / d) * ck.linear, Oracle.IDENTITY, scale=1.0)
    assert_close(ntk.norm, ck.norm / d, Oracle.IDENTITY, scale=1.0)
    assert_close(ntk.trace, 3 * ck.trace / d, Oracle.IDENTITY, scale=1.0)
