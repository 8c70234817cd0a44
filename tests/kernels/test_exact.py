"""Exact kernels against brute force: norms over six decades, rows that coincide, oppose or vanish."""

from __future__ import annotations

import math

import numpy as np
import oracles
import pytest
from oracles import ALL, Reference
from tolerances import Oracle, tolerance

import notsodeep as nsd

RELATIVE = tolerance(Oracle.QUADRATURE).rtol
NTK_FIELDS = {"network": "network", "paper": "paper", "preactivations": "tangent_preactivation"}


def made(phi: Reference) -> nsd.Activation:
    return nsd.activation(phi.name, **phi.parameters)


def wild_rows(largest: float) -> np.ndarray:
    """Norms from 1e-3 to `largest`; a duplicate, an opposite row, a zero row, two that nearly coincide."""
    generator = np.random.default_rng(3)
    u = generator.normal(size=(4, 7))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    close = u[1] + 1e-3 * u[3]
    return np.array([1e-3 * u[0], u[1], largest * u[2], u[1], -largest * u[2], 0 * u[0], 0.7 * close])


def largest_norm(phi: Reference) -> float:
    """A cubic has no fixed point at large norms: its second moment grows faster than any variance."""
    return 1.0 if phi.coefficients is not None and len(phi.coefficients) > 2 else 1e3


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest error, relative to the geometric mean of the diagonal; zero rows have their own test."""
    size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    return float(np.max(np.abs(actual - expected)[size > 0] / size[size > 0]))


def all_kernels(model: nsd.DEQ, X: np.ndarray) -> dict[str, np.ndarray]:
    """The five kernels of the package under the names of `oracles.Pair`."""
    result = {field: nsd.tangent_kernel(model, X, of=of) for of, field in NTK_FIELDS.items()}
    result["feature"] = nsd.conjugate_kernel(model, X, of="features")
    result["preactivation"] = nsd.conjugate_kernel(model, X, of="preactivations")
    return result


@pytest.mark.slow
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_every_built_in_on_wild_rows(phi: Reference) -> None:
    sigma_a2 = 0.2
    X = wild_rows(largest_norm(phi))[[0, 1, 2, 3, 4, 5]]
    expected = oracles.brute_kernels(phi, sigma_a2, 1 - sigma_a2, 0.0, oracles.exact_gram(X))
    for field, kernel in all_kernels(nsd.DEQ(made(phi), sigma_a2), X).items():
        assert relative_error(kernel, expected[field]) <= RELATIVE, field


@pytest.mark.slow
@pytest.mark.parametrize("phi", [phi for phi in ALL if oracles.at_zero(phi) == 0], ids=str)
def test_a_zero_row_has_zero_kernels(phi: Reference) -> None:
    """phi(0) = 0 and no bias: the equilibrium is z = 0, which no other row sees."""
    X = wild_rows(largest_norm(phi))
    for field, kernel in all_kernels(nsd.DEQ(made(phi), 0.2), X).items():
        np.testing.assert_array_equal(kernel[5], np.zeros(len(X)), err_msg=field)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["tanh", "leaky_relu", "hard_tanh", "swish", "cos"])
def test_free_variances_and_bias(label: str) -> None:
    """sigma_a2 + sigma_b2 need not be 1, and a bias adds to every entry; the recurrence is strong."""
    phi, variances = oracles.reference(label), {"sigma_a2": 0.7, "sigma_b2": 1.3, "bias2": 0.25}
    X = wild_rows(30.0)
    expected = oracles.brute_kernels(phi, *variances.values(), oracles.exact_gram(X))
    for field, kernel in all_kernels(nsd.DEQ(made(phi), **variances), X).items():
        assert relative_error(kernel, expected[field]) <= RELATIVE, field


@pytest.mark.slow
@pytest.mark.parametrize("label", ["tanh", "relu", "softplus", "hard_sigmoid"])
def test_scaled_and_shifted_activations(label: str) -> None:
    """psi = a phi(g .) + b in a DEQ, psi written out as an activation of its own."""
    phi, a, g, b, sigma_a2 = oracles.reference(label), 0.9, 1.2, -0.25, 0.3
    psi = Reference(
        name="psi",
        mp_value=lambda x: a * phi.mp_value(g * x) + b,
        mp_slope=lambda x: a * g * phi.mp_slope(g * x),
        np_value=lambda x: a * phi.np_value(g * x) + b,
        np_slope=lambda x: a * g * phi.np_slope(g * x),
        kinks=tuple(kink / g for kink in phi.kinks),
    )
    X = wild_rows(10.0)[:5]
    expected = oracles.brute_kernels(psi, sigma_a2, 1 - sigma_a2, 0.0, oracles.exact_gram(X))
    model = nsd.DEQ(made(phi).scaled(amplitude=a, gain=g).shifted(b), sigma_a2)
    for field, kernel in all_kernels(model, X).items():
        assert relative_error(kernel, expected[field]) <= RELATIVE, field


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "sigma_a2", "norm"),
    [
        ("erf", 0.9, 0.15),
        ("tanh", 0.99, 0.1),
        ("sin", 1.0, 0.2),
        ("relu", 1.95, 1.0),
        ("hard_tanh", 1.6, 0.3),
        ("elu", 1.02, 0.1),
    ],
)
def test_slow_contraction(label: str, sigma_a2: float, norm: float) -> None:
    """sigma_a2 D close to 1 for correlated rows: plain iteration gains little a step, and must not stop early."""
    phi = oracles.reference(label)
    x, y = np.random.default_rng(2).normal(size=(2, 4))
    X = np.array([x, x + 0.02 * y, -x, y])
    X *= norm / np.linalg.norm(X, axis=1, keepdims=True)
    expected = oracles.brute_kernels(phi, sigma_a2, 0.1, 0.0, oracles.exact_gram(X))
    slopes = np.abs(expected["slope"])
    assert 0.9 < sigma_a2 * slopes.max() < 0.999, "the test is meant for slow contraction"
    for field, kernel in all_kernels(nsd.DEQ(made(phi), sigma_a2, sigma_b2=0.1), X).items():
        assert relative_error(kernel, expected[field]) <= RELATIVE, field


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("label", ["relu", "tanh", "gelu", "hard_tanh", "abs", "piecewise_linear"])
def test_finite_depth(label: str, depth: int) -> None:
    phi, sigma_a2, X = oracles.reference(label), 0.4, wild_rows(10.0)[[1, 2, 6, 4]]
    model = nsd.DEQ(made(phi), sigma_a2)
    ck, ntk = nsd.conjugate_kernel(model, X, depth=depth), nsd.tangent_kernel(model, X, depth=depth)
    drive = (1 - sigma_a2) * oracles.exact_gram(X)
    for i, j in ((0, 0), (0, 1), (1, 2), (0, 2), (1, 3)):
        expected = oracles.brute_depth(phi, sigma_a2, (drive[i, i], drive[j, j]), drive[i, j], depth)
        assert ck[i, j] == pytest.approx(
            expected[0], rel=RELATIVE, abs=RELATIVE * math.sqrt(ck[i, i] * ck[j, j])
        )
        assert ntk[i, j] == pytest.approx(
            expected[1], rel=RELATIVE, abs=RELATIVE * math.sqrt(ntk[i, i] * ntk[j, j])
        )


@pytest.mark.parametrize(
    "labels",
    [
        ("tanh",),
        ("relu", "hard_tanh"),
        ("leaky_relu", "leaky_relu"),
        ("gelu", "erf", "softsign"),
        # an even layer makes opposite rows coincide, and the next layer must see that
        ("cos", "abs"),
        ("abs", "relu"),
        ("abs", "cos"),
        # a layer that is neither odd nor even leaves them at some angle
        ("polynomial", "hard_tanh"),
        ("piecewise_linear", "abs", "relu"),
    ],
)
def test_explicit_networks(labels: tuple[str, ...]) -> None:
    layers = [oracles.reference(label) for label in labels]
    X = wild_rows(10.0)[[0, 1, 2, 4, 6]]
    model = nsd.Explicit([made(phi) for phi in layers])
    ck, ntk = nsd.conjugate_kernel(model, X), nsd.tangent_kernel(model, X)
    gram = oracles.exact_gram(X)
    for i, j in ((0, 0), (0, 1), (1, 2), (2, 3), (1, 4), (3, 4)):
        expected = oracles.brute_layers(layers, (gram[i, i], gram[j, j]), gram[i, j])
        for kernel, value in zip((ck, ntk), expected, strict=True):
            assert abs(kernel[i, j] - value) <= RELATIVE * math.sqrt(kernel[i, i] * kernel[j, j])


# angle, ratio of norms less 1, norm, sign
NEARLY_PARALLEL = (
    (0.0, 0.0, 1.0, 1.0),
    (1e-8, 0.0, 1.0, 1.0),
    (1e-6, 0.0, 30.0, -1.0),
    (0.0, 2.7, 1.0, 1.0),
    (1e-8, 2.7, 0.1, -1.0),
    (0.0, 5e-6, 0.2, 1.0),
    (2e-9, 6e-8, 0.5, 1.0),
    (0.0, 2.6e-6, 7.0, 1.0),
    (0.0, 1.3e-4, 600.0, -1.0),
    (0.0, 3e-4, 500.0, 1.0),
)


def nearly_parallel(angle: float, ratio: float, norm: float, sign: float) -> np.ndarray:
    x, away = np.random.default_rng(11).normal(size=(2, 20))
    away -= (away @ x) / (x @ x) * x
    x, away = norm * x / np.linalg.norm(x), norm * away / np.linalg.norm(away)
    return np.array([x, sign * (1 + ratio) * (x + angle * away)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "bias2"),
    [
        ("relu", 0.0),
        ("relu", 0.1),
        ("abs", 0.1),
        ("hard_tanh", 0.0),
        ("hard_sigmoid", 0.1),
        ("piecewise_linear", 0.0),
        ("erf", 0.0),
    ],
)
def test_nearly_parallel_rows(label: str, bias2: float) -> None:
    """With kinks, F' falls linearly with the angle of two rows, which their inner product only knows to 1e-8."""
    phi, sigma_a2, sigma_b2 = oracles.reference(label), 0.3, 0.7
    model = nsd.DEQ(made(phi), sigma_a2, sigma_b2=sigma_b2, bias2=bias2)
    for case in NEARLY_PARALLEL:
        X = nearly_parallel(*case)
        exact = oracles.mp_pair(phi, sigma_a2, (sigma_b2, bias2), X)._asdict()
        for field, kernel in all_kernels(model, X).items():
            error = abs(kernel[0, 1] - exact[field]) / math.sqrt(kernel[0, 0] * kernel[1, 1])
            assert error <= RELATIVE, f"{field} at (angle, ratio, norm, sign) = {case}: {error:.1e}"


def explicit_errors(labels: tuple[str, ...], X: np.ndarray) -> list[float]:
    """Relative errors of the two kernels of an explicit network for one pair of rows, against 34 digits."""
    layers = [oracles.reference(label) for label in labels]
    model = nsd.Explicit([made(phi) for phi in layers])
    kernels = nsd.conjugate_kernel(model, X), nsd.tangent_kernel(model, X)
    exact = oracles.mp_layers(layers, X)
    return [
        abs(kernel[0, 1] - value) / math.sqrt(kernel[0, 0] * kernel[1, 1])
        for kernel, value in zip(kernels, exact, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(
    "labels",
    [("hard_sigmoid",), ("erf", "leaky_relu"), ("sin", "relu"), ("hard_tanh", "abs"), ("cos", "hard_tanh")],
)
def test_opposite_and_equal_rows_through_layers(labels: tuple[str, ...], sign: float) -> None:
    """Odd and even layers keep rho at exactly +-1, and odd ones plus a constant have the derivative of odd ones."""
    for norm in (0.3, 20.0):
        assert max(explicit_errors(labels, nearly_parallel(0.0, 0.0, norm, sign))) <= RELATIVE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "hard_tanh", "tanh", "elu"])
@pytest.mark.parametrize("p", [3, 64, 301])
def test_duplicates_are_the_diagonal(name: str, p: int) -> None:
    """In whatever order a matrix product sums, equal rows have equal kernels; opposite ones of an odd phi too."""
    x = np.random.default_rng(p).normal(size=(9, p)) / math.sqrt(p)
    phi = oracles.reference(name)
    X = np.concatenate([x, x, -x])
    ntk = nsd.tangent_kernel(nsd.DEQ(made(phi), 0.3), X)
    diagonal = np.diag(ntk)[:9]
    np.testing.assert_allclose(np.diag(ntk[:9, 9:18]), diagonal, rtol=RELATIVE)
    if name in ("hard_tanh", "tanh"):
        np.testing.assert_allclose(np.diag(ntk[:9, 18:]), -diagonal, rtol=RELATIVE)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["relu", "tanh", "hard_tanh", "gelu", "sin"])
def test_a_large_matrix_is_its_pairs(label: str) -> None:
    """A size that no tile divides: entries near every border equal those of the two rows alone."""
    n = 211
    X = np.random.default_rng(5).normal(size=(n, 20)) / 4
    model = nsd.DEQ(made(oracles.reference(label)), 0.25)
    ck, ntk = nsd.kernels.both_kernels(model, X)[:2]
    np.testing.assert_array_equal(ck, ck.T)
    np.testing.assert_array_equal(ntk, ntk.T)
    for i, j in ((0, n - 1), (63, 64), (127, 128), (31, 192), (n - 1, n - 2)):
        small_ck, small_ntk = nsd.kernels.both_kernels(model, X[[i, j]])[:2]
        assert ck[i, j] == pytest.approx(small_ck[0, 1], rel=RELATIVE)
        assert ntk[i, j] == pytest.approx(small_ntk[0, 1], rel=RELATIVE)


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, 300])
def test_every_pair_is_computed_once(n: int) -> None:
    """Of a symmetric kernel one triangle is computed: n(n-1)/2 pairs, also in the tiles on the diagonal."""
    X = 1.0 + 1e-3 * np.random.default_rng(0).normal(size=(n, 8))
    _, info = nsd.tangent_kernel(nsd.Explicit(["hard_tanh"]), 1e4 * X, return_info=True)
    assert info.fallback_pairs == n * (n - 1) // 2


def test_centring_takes_the_mean_away() -> None:
    """At inputs of norm tau0 the centred activation has mean zero, with q solved together with the shift."""
    tau0, sigma_a2 = 1.3, 0.4
    for label in ("relu", "cos", "piecewise_linear"):
        phi = oracles.reference(label)
        centred = nsd.DEQ(made(phi), sigma_a2).centred(tau0)
        q = (1 - sigma_a2) * tau0**2
        for _ in range(200):
            moments = oracles.mp_moments(phi, float(q))
            mean, second = float(moments.mean[0]), float(moments.second)
            before, q = q, sigma_a2 * (second - mean**2) + (1 - sigma_a2) * tau0**2
            if abs(q - before) < 1e-13 * q:
                break
        assert centred.activation(0.0) == pytest.approx(oracles.at_zero(phi) - mean, rel=1e-11)
