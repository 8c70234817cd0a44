"""Kernels of cells against recursions written by hand, and against the named models."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep import cells
from notsodeep.cells.layouts import Layout
from notsodeep.cells.rates import Perturbations
from notsodeep.cells.sample_terms import equilibrium_terms, loop_terms
from notsodeep.cells.structure import Cell
from notsodeep.fingerprint import fingerprint
from notsodeep.models import expression_of, model_from_dict, normalised_adjacency

# The trapezoidal rule is exponentially accurate for analytic functions under a Gaussian.
NODES = np.linspace(-8.5, 8.5, 171)
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()


def silu(x):
    return x / (1.0 + np.exp(-x))


def silu_slope(x):
    s = 1.0 / (1.0 + np.exp(-x))
    return s * (1.0 + x * (1.0 - s))


FUNCTIONS = {
    "tanh": (np.tanh, lambda x: 1.0 / np.cosh(x) ** 2),
    "silu": (silu, silu_slope),
    "sigmoid": (lambda x: 1.0 / (1.0 + np.exp(-x)), lambda x: 0.25 / np.cosh(0.5 * x) ** 2),
}


def dual(name: str, K: np.ndarray, order: int = 0) -> np.ndarray:
    """E[φ(u)φ(v)] for every entry of a covariance matrix, on a product of trapezoidal rules."""
    f, root = FUNCTIONS[name][order], np.sqrt(np.diagonal(K))
    rho = np.clip(K / np.multiply.outer(root, root), -1.0, 1.0)
    result = np.empty_like(K)
    for i, j in zip(*np.tril_indices(len(K)), strict=True):
        inner = rho[i, j] * NODES[:, None] + np.sqrt(1.0 - rho[i, j] ** 2) * NODES[None, :]
        result[i, j] = result[j, i] = WEIGHTS @ (f(root[i] * NODES) * (f(root[j] * inner) @ WEIGHTS))
    return result


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    X = np.random.default_rng(3).standard_normal((5, 12)) / np.sqrt(12)
    X[1] = 0.9 * X[0] + 0.2 * X[1]
    return X


def state_and_input():
    return cells.state(), cells.input()


def residual(read: float = 2.0):
    z, x = state_and_input()
    return cells.norm(
        z + cells.dense(cells.activation(cells.dense(z, 0.5), "tanh"), 0.6) + cells.dense(x, read)
    )


def gated():
    z, x = state_and_input()
    values = cells.activation(cells.dense(z, 0.8) + cells.dense(x, 1.0), "tanh")
    return values * cells.activation(cells.dense(z, 0.7) + cells.dense(x, 0.5), "sigmoid")


def two_sublayers(read: float, gain: float = 1.0):
    z, x = state_and_input()

    def sublayer(y):
        return cells.dense(cells.activation(cells.dense(y, 1.0), "silu") * cells.dense(y, 1.0), gain)

    y0 = z + cells.dense(x, read)
    y1 = cells.norm(y0 + sublayer(y0))
    return cells.norm(y1 + sublayer(y1))


def test_a_residual_cell_with_a_norm(rows):
    C, K = rows @ rows.T, np.eye(5)
    for _ in range(60):
        g = 0.6 * dual("tanh", 0.5 * K) + 2.0 * C
        kappa = np.sqrt(np.multiply.outer(np.diagonal(g), np.diagonal(g)))
        K = g / kappa
    slope, features = dual("tanh", 0.5 * K, 1), dual("tanh", 0.5 * K)
    # The skip is eliminated first: gradients with respect to g solve B = (1 + s₁s₂ F' B)/κκ'.
    B = 1.0 / (kappa - 0.5 * 0.6 * slope)
    theta = K + B * (2.0 * C + 0.6 * features) + 0.6 * B * slope * 0.5 * K
    model = nsd.Equilibrium(residual())
    np.testing.assert_allclose(nsd.conjugate_kernel(model, rows), K, atol=1e-8)
    np.testing.assert_allclose(nsd.tangent_kernel(model, rows), theta, rtol=1e-8, atol=1e-8)


def test_a_gated_cell(rows):
    C, K = rows @ rows.T, 0.1 * np.eye(5)
    for _ in range(50):
        u, v = 0.8 * K + C, 0.7 * K + 0.5 * C
        F, G = dual("tanh", u), dual("sigmoid", v)
        K = F * G
    dF, dG = dual("tanh", u, 1) * G, F * dual("sigmoid", v, 1)
    # Gradients with respect to the state: B = 1 + 0.8 F'G B + 0.7 F G' B.
    B = 1.0 / (1.0 - 0.8 * dF - 0.7 * dG)
    theta = K + B * (dF * u + dG * v)
    model = nsd.Equilibrium(gated())
    np.testing.assert_allclose(nsd.conjugate_kernel(model, rows), K, atol=1e-8)
    np.testing.assert_allclose(nsd.tangent_kernel(model, rows), theta, rtol=1e-8, atol=1e-8)


def test_two_layers_in_a_step(rows):
    z, x = state_and_input()
    inner = cells.activation(cells.dense(z, 0.5) + cells.dense(x, 1.0), "tanh")
    step = cells.activation(cells.bias(cells.dense(inner, 0.9), 0.1) + cells.dense(x, 0.3), "silu")
    C, K = rows @ rows.T, 0.1 * np.eye(5)
    for _ in range(50):
        first = 0.5 * K + C
        second = 0.9 * dual("tanh", first) + 0.3 * C + 0.1
        K = dual("silu", second)
    d1, d2 = dual("tanh", first, 1), dual("silu", second, 1)
    B2 = d2 / (1.0 - 0.45 * d1 * d2)
    theta = K + B2 * second + 0.9 * B2 * d1 * first
    model = nsd.Equilibrium(step)
    np.testing.assert_allclose(nsd.conjugate_kernel(model, rows), K, atol=1e-8)
    np.testing.assert_allclose(nsd.tangent_kernel(model, rows), theta, rtol=1e-8, atol=1e-8)


def test_two_sublayers_with_skips_and_norms(rows):
    """The forward half of the equations for two sublayers, with coefficients of every sample."""
    Kx, gain = 6.0 * rows @ rows.T, 0.8

    def sub(K):
        return gain * dual("silu", K) * K

    def outer(v):
        return np.add.outer(v, v)

    Kz, Ka, Kf, c1, kappa = np.eye(5), np.zeros((5, 5)), np.zeros((5, 5)), np.full(5, 2.0), np.full(5, 2.0)
    for _ in range(90):
        y0 = Kz + Kx * (1.0 + outer(1.0 / kappa))
        Ka = sub(y0)
        c1 = np.sqrt(np.diagonal(y0 + Ka * (1.0 + outer(1.0 / kappa))))
        y1 = (y0 + Ka * (1.0 + outer(1.0 / kappa))) / np.multiply.outer(c1, c1)
        Kf = sub(y1)
        whole = Kx + Ka + np.multiply.outer(c1, c1) * Kf
        kappa = np.sqrt(np.diagonal(whole))
        Kz = whole / np.multiply.outer(kappa, kappa)
    K = nsd.conjugate_kernel(nsd.Equilibrium(two_sublayers(6.0, gain)), rows)
    np.testing.assert_allclose(K, Kz, atol=1e-8)


def test_rates_of_two_sublayers():
    """λ/(1+κ) with λ the largest root of ((λ-1)² - α²)((λ-1)² - β²) = λ²α²β²; figures from an independent script."""
    cell, layout = Cell(two_sublayers(1.0)), Layout("own")
    gram = np.array([9.0, 4.0, 2.25, 1.44, 1.0, 0.64, 0.25]).reshape(-1, 1, 1)
    terms, moments = equilibrium_terms(cell, layout, gram)
    rates = Perturbations(cell, layout, terms, moments).rate()[:, 0]
    np.testing.assert_allclose(rates, [0.521, 0.687, 0.804, 0.890, 0.955, 1.026, 1.145], atol=6e-4)


def test_loops_with_skips(rows):
    """z_{t+1} = z_t + W tanh(z_t) + U x: every pair of steps is correlated."""
    z, x = state_and_input()
    step, steps = z + cells.dense(cells.activation(z, "tanh"), 0.5) + cells.dense(x, 0.1), 3
    C, n = 0.1 * rows @ rows.T, len(rows)
    # Steps and samples together are the samples of one Gaussian process.
    times = np.repeat(np.arange(steps + 1), n)
    base = np.multiply.outer(times, times) * np.tile(C, (steps + 1, steps + 1))
    K = base + 1e-300 * np.eye(len(base))
    for _ in range(steps):
        F = 0.5 * dual("tanh", K + 1e-14 * np.eye(len(K))).reshape(steps + 1, n, steps + 1, n)
        total = F.cumsum(axis=0).cumsum(axis=2)
        shifted = np.zeros_like(total)
        shifted[1:, :, 1:] = total[:-1, :, :-1]
        K = base + shifted.reshape(K.shape)
    last = slice(steps * n, None)
    np.testing.assert_allclose(nsd.conjugate_kernel(nsd.Loop(step, steps), rows), K[last, last], atol=1e-8)


def general(model, steps=None):
    """The model as an expression, computed by the rules of cells rather than by compiled code."""
    step = expression_of(model)
    cell_model = nsd.Equilibrium(step) if steps is None else nsd.Loop(step, steps)
    cell_model.__dict__["shorthand"] = None
    return cell_model


A = np.array([[0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]])
MODELS = [
    nsd.DEQ("gelu", 0.5, 0.7, 0.2),
    nsd.ConvDEQ("tanh", 0.4, 0.6, 0.1, filter_size=3, padding="zeros", readout="flatten"),
    nsd.ConvDEQ("relu", 0.4, 0.6, filter_size=3, padding="circular", readout="pool"),
    nsd.GraphDEQ(normalised_adjacency(A), "relu", 0.5, 0.5, 0.05),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_named_models_are_cells(model):
    rng = np.random.default_rng(0)
    X = (
        rng.standard_normal((4, 2, 5, 4)) / 3
        if isinstance(model, nsd.ConvDEQ)
        else rng.standard_normal((4, 6)) / 2
    )
    shorthand = nsd.Equilibrium(expression_of(model))
    assert fingerprint(shorthand) == fingerprint(model)
    assert model_from_dict(shorthand.to_dict()) == model
    for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
        exact = kernel(model, X)
        assert np.array_equal(kernel(shorthand, X), exact)
        np.testing.assert_allclose(kernel(general(model), X), exact, rtol=1e-11, atol=1e-12)


def test_loops_without_skips_are_cut_models(rows):
    model = nsd.DEQ("tanh", 0.5, 0.7, 0.1)
    for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
        np.testing.assert_allclose(
            kernel(general(model, 4), rows), kernel(model.unrolled(4), rows), rtol=1e-12, atol=1e-13
        )


def test_loops_approach_the_equilibrium(rows):
    model = nsd.Equilibrium(residual(4.0))
    distances = [
        np.abs(nsd.tangent_kernel(model.unrolled(steps), rows) - nsd.tangent_kernel(model, rows)).max()
        for steps in (2, 6, 12)
    ]
    assert distances[0] > 4.0 * distances[1] > 16.0 * distances[2]


def test_blocks_other_samples_and_many_norms_agree(rows):
    X = np.random.default_rng(1).standard_normal((130, 6)) * np.linspace(0.1, 2.0, 130)[:, None]
    model = nsd.Equilibrium(residual())
    whole = nsd.tangent_kernel(model, X)
    np.testing.assert_allclose(nsd.tangent_kernel(model, X[:7], X[3:]), whole[:7, 3:], rtol=1e-10, atol=1e-11)
    np.testing.assert_array_equal(whole, whole.T)


def test_the_stated_error_holds(rows):
    _, info = nsd.conjugate_kernel(nsd.Equilibrium(gated()), rows, return_info=True)
    assert info.error_bound < 1e-10
    assert info.checked_pairs > 0
    assert info.largest_difference < 1e-11


def test_serial_form_restores_every_node():
    z, x = state_and_input()
    step = cells.flatten(
        cells.norm(
            0.5 * z
            + cells.conv(cells.activation(cells.bias(cells.conv(z, 0.3, 1), 0.2), "gelu"), 0.4, 3, "circular")
            - cells.conv(x, 1.0),
            "layer",
        )
    )
    for model in (nsd.Equilibrium(step), nsd.Loop(step, 3), nsd.Equilibrium(gated())):
        again = model_from_dict(model.to_dict())
        assert again == model
        assert fingerprint(again) == fingerprint(model)
    assert nsd.Loop(step, 3) != nsd.Loop(step, 4)


def test_a_loop_that_runs_from_zero_records_each_step():
    cell = Cell(residual(), from_zero=True)
    terms, _ = loop_terms(cell, Layout("own"), np.ones((1, 1, 1)), 3)
    assert {step for _, step in terms.combinations} == {0, 1, 2}


def test_cells_go_wherever_models_go(tmp_path):
    mixture = nsd.GaussianMixture.paper(20)
    (X, y), (new, labels) = mixture.sample(60, seed=0), mixture.sample(30, seed=1)
    model = nsd.Equilibrium(residual())
    K = nsd.conjugate_kernel(model, X)
    stored = nsd.conjugate_kernel(model, X, out=tmp_path / "kernel.zarr", block=25)
    np.testing.assert_allclose(stored[:], K, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(stored @ y, K @ y, rtol=1e-9)
    assert nsd.DEQKernelClassifier(model=model).fit(X, y).score(new, labels) > 0.9
    assert nsd.learning_curve(model, (X, y), n=[20, 40], ridge=0.1).accuracy[-1] > 0.9
    assert nsd.depth_curve(model, (X, y), steps=[1, 2, 4]).steps_needed == 1
    forecast = nsd.forecast(model, X)
    assert forecast.settles.all()
    assert (forecast.steps(1e-6) > forecast.steps(1e-3)).all()


@pytest.mark.parametrize(("name", "share"), [("gated", 0.75), ("residual, rows of one norm", 0.25)])
def test_the_twin_of_a_cell_is_closer_than_a_plain_layer(name, share):
    X = nsd.GaussianMixture.paper(30).sample(80, seed=2)[0]
    if name != "gated":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = nsd.Equilibrium(gated() if name == "gated" else residual())
    exact = nsd.conjugate_kernel(model, X[1::2])

    def distance(network) -> float:
        K = nsd.conjugate_kernel(network, X[1::2])
        return float(np.linalg.norm(K * (K * exact).sum() / (K**2).sum() - exact))

    twin = nsd.design(model, X=X[::2], family="injected").network
    assert distance(twin) < share * distance(nsd.Explicit(["tanh"]))


def test_loop_curves_of_cells_are_those_of_named_models():
    mixture, model = nsd.GaussianMixture.paper(20), nsd.DEQ("tanh", 0.9, 0.5)
    train, test = mixture.sample(50, seed=0), mixture.sample(20, seed=1)
    options = {"test": test, "train_steps": 3, "steps": [1, 3, 8], "ridge": 0.1}
    expected = nsd.loop_curve(model, train, **options).mse
    np.testing.assert_allclose(nsd.loop_curve(general(model), train, **options).mse, expected, rtol=1e-9)
    shorthand = nsd.Equilibrium(expression_of(model))
    np.testing.assert_array_equal(nsd.loop_curve(shorthand, train, **options).mse, expected)


def test_forecasts_of_cells_that_do_not_settle():
    """A weak branch with a gate beside a weak input: the norm amplifies what it divides."""
    z, x = state_and_input()
    branch = cells.dense(cells.activation(cells.dense(z, 0.33), "silu") * cells.dense(z, 0.33), 0.33)
    model = nsd.Equilibrium(cells.norm(z + branch + cells.dense(x, 0.007)))
    X = np.random.default_rng(0).standard_normal((40, 50)) / 7.0
    forecast = nsd.forecast(model, X)
    assert not forecast.settles.any()
    assert np.isinf(forecast.steps(1e-6)).all()
    assert np.isinf(forecast.gradient.adjoint_norm).all()
    np.testing.assert_allclose(nsd.conjugate_kernel(model, X).diagonal(), 1.0, rtol=1e-12)


# --- what is refused --------------------------------------------------------------------------------------------------

Z, X_IN = cells.state(), cells.input()
FIELD = cells.dense(Z, 0.5) + cells.dense(X_IN, 1.0)
REFUSED = {
    "no dense map between": lambda: cells.activation(FIELD + cells.activation(FIELD, "relu"), "relu"),
    "no dense map": lambda: (
        cells.activation(Z, "tanh") + cells.dense(X_IN, 1.0) + cells.activation(FIELD, "relu")
    ),
    "mean is not zero": lambda: cells.norm(cells.activation(FIELD, "relu")),
    "share weights": lambda: cells.activation(FIELD, "tanh") * cells.activation(FIELD, "sigmoid"),
    "two different activations": lambda: cells.activation(FIELD, "tanh") + cells.activation(FIELD, "relu"),
    "read by weights first": lambda: cells.norm(Z + X_IN),
    "needs a conv": lambda: cells.pool(cells.norm(FIELD)),
    "has no equilibrium": lambda: Z + cells.dense(cells.activation(FIELD, "tanh"), 0.5),
    "no weights": lambda: cells.norm(Z),
    "outermost": lambda: cells.norm(cells.pool(cells.conv(Z, 0.5))),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_cells_without_a_gaussian_limit_are_refused(reason):
    with pytest.raises(nsd.InputError, match=reason):
        nsd.Equilibrium(REFUSED[reason]())


def test_loops_do_not_normalise_zero():
    step = cells.norm(Z) + cells.dense(X_IN, 1.0)
    with pytest.raises(nsd.InputError, match="zero at the first step"):
        nsd.Loop(step, 3)
    with pytest.raises(nsd.InputError, match="steps"):
        nsd.Loop(cells.norm(FIELD), 0)


def test_other_input_errors(rows):
    model = nsd.Equilibrium(residual())
    with pytest.raises(nsd.InputError, match="not defined for general cells"):
        nsd.tangent_kernel(model, rows, of="paper")
    with pytest.raises(nsd.InputError, match="takes a cell"):
        nsd.Equilibrium("tanh")
    with pytest.raises(nsd.InputError, match="takes a node"):
        cells.dense(0.5, Z)
    with pytest.raises(nsd.InputError, match="finite number"):
        Z * float("nan")


def test_states_that_grow_without_bound_are_reported(rows):
    field = cells.dense(Z, 3.0) + cells.dense(X_IN, 1.0)
    growing = nsd.Equilibrium(cells.dense(cells.activation(field, "relu"), 1.0))
    with pytest.raises(nsd.ConvergenceError, match="do not settle"):
        nsd.conjugate_kernel(growing, rows)
    unstable = nsd.Equilibrium(two_sublayers(0.1))
    with pytest.raises(nsd.ConvergenceError, match="tangent kernel diverges"):
        nsd.tangent_kernel(unstable, rows)


@pytest.mark.parametrize("norm", [lambda node: node, cells.norm], ids=["plain", "normalised"])
def test_a_bias_around_the_state_returns_with_every_step(norm, rows):
    z, x = state_and_input()
    step = norm(cells.bias(0.5 * z + cells.dense(x, 0.04), 0.09))
    for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
        assert_close(
            kernel(nsd.Equilibrium(step), rows), kernel(nsd.Loop(step, 60), rows), Oracle.CLOSED_FORM
        )
    # The state is 2 (√0.04 x + b).
    K = nsd.conjugate_kernel(nsd.Equilibrium(cells.bias(0.5 * z + cells.dense(x, 0.04), 0.09)), np.eye(2))
    assert_close(K, [[0.52, 0.36], [0.36, 0.52]], Oracle.CLOSED_FORM)


@pytest.mark.parametrize("gain", [1.0, 1.9, 1.99])
def test_slowly_settling_variances_are_within_the_stated_error(gain, rows):
    """relu of relu halves the second moment twice: q = (g q + ‖x‖²)/2."""
    z, x = state_and_input()
    inner = cells.activation(cells.dense(z, 2.0), "relu")
    model = nsd.Equilibrium(cells.activation(cells.dense(inner, gain) + cells.dense(x, 1.0), "relu"))
    K, info = nsd.conjugate_kernel(model, rows, return_info=True)
    exact = 0.5 * np.einsum("ij,ij->i", rows, rows) / (1.0 - 0.5 * gain)
    assert np.abs(np.diag(K) / exact - 1.0).max() <= info.error_bound
    # A bias in the branch too: z = 2 (√.2 A (z + b) + B x + b'), E z z' = 20 x x' + 2.4.
    branch = cells.dense(cells.bias(z, 0.1), 0.2)
    linear = nsd.Equilibrium(cells.bias(0.5 * z + branch + cells.dense(x, 1.0), 0.1))
    assert_close(nsd.conjugate_kernel(linear, rows), 20.0 * rows @ rows.T + 2.4, Oracle.CLOSED_FORM)


@pytest.mark.parametrize("label", ["relu", "leaky_relu", "abs", "hard_tanh", "relu(x - 1)"])
def test_nearly_parallel_rows_are_within_the_stated_error(label):
    """Against the DEQ of the same kernel, which computes distances of such rows without cancellation."""
    z, x = state_and_input()
    model = nsd.Equilibrium(
        cells.activation(cells.dense(z, 0.3) + cells.dense(x, 0.7) + cells.dense(x, 0.2), label)
    )
    rng = np.random.default_rng(0)
    for apart in (1e-9, 1e-8, 1e-6):
        one, other = rng.standard_normal((2, 6))
        X = np.stack([one, one + apart * other, -one + apart * other, one * (1.0 + apart)])
        *found, info = nsd.both_kernels(model, X, return_info=True)
        exact = nsd.both_kernels(nsd.DEQ(label, 0.3, 0.9), X)
        for kernel, expected in zip(found, exact, strict=True):
            size = np.sqrt(np.diag(expected))
            assert np.abs((kernel - expected) / np.outer(size, size)).max() <= info.error_bound < 1e-6
        assert_close(found[0], exact[0], Oracle.QUADRATURE)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [3, 96, 97])
def test_a_row_of_zeros_is_the_same_among_few_and_many(count):
    """What iteration from zero leads to: zero, or the equilibrium that a bias or a sigmoid starts."""
    X = np.random.default_rng(0).standard_normal((count, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[0] = 0.0
    for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
        assert not kernel(nsd.Equilibrium(residual()), X)[0].any()
    z, x = state_and_input()
    started = cells.norm(
        z + cells.dense(cells.activation(cells.dense(z, 0.5), "sigmoid"), 0.6) + cells.dense(x, 2.0)
    )
    small = np.vstack([X[:1], X[1:2], np.full((1, 5), 1e-9)])
    theta = nsd.tangent_kernel(nsd.Equilibrium(started), np.vstack([X, small[2:]]))
    assert_close(theta[0, 0], theta[-1, -1], Oracle.QUADRATURE)
    if count == 3:
        assert_close(theta[0, 0], nsd.tangent_kernel(nsd.Loop(started, 120), small)[0, 0], Oracle.QUADRATURE)


def test_rows_of_zeros_have_states_of_zero():
    for model in (nsd.Equilibrium(residual()), nsd.Equilibrium(gated()), nsd.Loop(residual(), 3)):
        for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
            np.testing.assert_array_equal(kernel(model, np.zeros((3, 4))), np.zeros((3, 3)))


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 30.0, 1e4])
def test_hostile_norms(scale, rows):
    """A normalised cell on rows of extreme norms, one of them zero and two of them equal."""
    X = scale * np.vstack([rows, rows[:1], rows[1:2] * (1 + 1e-13)])
    z, x = state_and_input()
    step = cells.norm(
        z
        + cells.dense(cells.activation(cells.dense(z, 0.3), "relu"), 0.3)
        + cells.bias(cells.dense(x, 2.0), 1.0)
    )
    K, info = nsd.conjugate_kernel(nsd.Equilibrium(step), X, return_info=True)
    np.testing.assert_allclose(np.diagonal(K), 1.0, rtol=1e-12)
    assert np.linalg.eigvalsh(K).min() > -1e-12
    np.testing.assert_allclose(K[0, 5], 1.0, atol=1e-9)
    assert info.error_bound < 1e-9
