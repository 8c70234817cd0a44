"""Neural ODEs: against an independent collocation, known limits, networks, and every user of a model."""

import time
from itertools import pairwise

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.models import GraphDEQ, model_from_dict
from notsodeep.models.time_nodes import time_nodes

X = np.random.default_rng(3).normal(size=(4, 6)) / np.sqrt(6)


def chebyshev_integration(count, duration, decay, times):
    """∫₀ᵗ e^{-decay (t - a)} f(a) da for f given at Chebyshev points, by power sums of its Chebyshev series."""
    points = 0.5 * duration * (1.0 - np.cos(np.pi * (np.arange(count) + 0.5) / count))
    values = np.polynomial.chebyshev.chebvander(2.0 * points / duration - 1.0, count - 1)
    rows, step = [], np.polynomial.legendre.leggauss(80)
    for stop in times:
        a = 0.5 * stop * (1.0 + step[0])
        basis = np.polynomial.chebyshev.chebvander(2.0 * a / duration - 1.0, count - 1)
        rows.append((0.5 * stop * step[1] * np.exp(-decay * (stop - a))) @ basis)
    return points, np.array(rows) @ np.linalg.inv(values)


def erf_dual(q1, q2, cov):
    """F and F' of erf, in closed form."""
    ends = np.outer(1.0 + 2.0 * q1, 1.0 + 2.0 * q2)
    return 2.0 / np.pi * np.arcsin(2.0 * cov / np.sqrt(ends)), 4.0 / np.pi / np.sqrt(ends - 4.0 * cov**2)


def tanh_dual(q1, q2, cov):
    """F and F' of tanh by the trapezoidal rule, which converges exponentially on a line."""
    x = np.arange(-8.6, 8.7, 0.2)
    weights = 0.2 * np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    rho = np.clip(cov / np.sqrt(np.outer(q1, q2)), -1.0, 1.0)[..., None, None]
    u = np.tanh(np.sqrt(q1)[:, None, None, None] * x[:, None])
    v = np.tanh(np.sqrt(q2)[None, :, None, None] * (rho * x[:, None] + np.sqrt(1.0 - rho**2) * x))
    parts = u * v, (1.0 - u**2) * (1.0 - v**2)
    return tuple(np.einsum("abij,i,j->ab", part, weights, weights) for part in parts)


def collocation(dual, c, squares, model, count=13):
    """CK and NTK of one pair on Chebyshev points."""
    duration, decay = model.duration, model.decay
    points, _ = chebyshev_integration(count, duration, decay, [duration])
    _, forward = chebyshev_integration(count, duration, decay, [*points, duration])
    _, plain = chebyshev_integration(count, duration, 0.0, [duration])
    times = np.append(points, duration)
    fade, reach = np.exp(-decay * times), forward.sum(axis=1)
    base = model.sigma_u2 * np.outer(fade, fade) + model.sigma_b2 * np.outer(reach, reach)

    def solved(square, variances=None):
        cov = square * base
        for _ in range(25):
            own = np.diag(cov)[:-1] if variances is None else None
            q1, q2 = (own, own) if variances is None else variances
            cov = square * base + model.sigma_w2 * forward @ dual(q1, q2, cov[:-1, :-1])[0] @ forward.T
        return cov

    own = [np.diag(solved(square))[:-1] for square in squares]
    cov = solved(c, own)
    F, D = dual(*own, cov[:-1, :-1])
    backward, end = forward[:-1][::-1, ::-1], plain[0]
    last = np.exp(-decay * (duration - points))
    B = np.outer(last, last)
    for _ in range(60):
        B = np.outer(last, last) + model.sigma_w2 * backward @ (B * D) @ backward.T
    start = forward[-1][::-1]
    arrived = fade[-1] ** 2 + model.sigma_w2 * start @ (B * D) @ start
    weights = model.sigma_w2 * end @ (B * F) @ end
    inputs = c * (model.sigma_u2 * arrived + model.sigma_b2 * end @ B @ end)
    return cov[-1, -1], cov[-1, -1] + weights + inputs


@pytest.mark.parametrize(
    "model",
    [
        nsd.NeuralODE("tanh"),
        nsd.NeuralODE("erf"),
        nsd.NeuralODE("erf", 2.0, 1.5, 0.7, sigma_b2=0.4),
        nsd.NeuralODE("erf", 1.2, 2.0, 0.5, sigma_b2=1.1, decay=0.8),
    ],
    ids=str,
)
def test_kernels_agree_with_an_independent_collocation(model):
    ck, info = nsd.conjugate_kernel(model, X, return_info=True)
    ntk = nsd.tangent_kernel(model, X)
    assert any("nodes in time" in method for method in info.methods)
    for i, j in [(0, 1), (2, 2)]:
        squares = X[i] @ X[i], X[j] @ X[j]
        dual = tanh_dual if "tanh" in str(model) else erf_dual
        expected = collocation(dual, X[i] @ X[j], squares, model)
        np.testing.assert_allclose([ck[i, j], ntk[i, j]], expected, rtol=1e-8)


def relu_dual(q1, q2, cov):
    """F and F' of ReLU, in closed form."""
    scale = np.sqrt(np.outer(q1, q2))
    angle = np.arccos(np.clip(cov / np.maximum(scale, 1e-300), -1.0, 1.0))
    value = scale * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2.0 * np.pi)
    return value, (np.pi - angle) / (2.0 * np.pi)


def trapezoidal(dual, c, squares, model, count):
    """CK and NTK of one pair by the trapezoidal rule with equal steps: a kink at equal times is on the grid."""
    times, step = np.linspace(0.0, model.duration, count + 1, retstep=True)
    weights = step * np.tril(np.ones((count + 1, count + 1)))
    weights[:, 0] *= 0.5
    weights[np.diag_indices(count + 1)] *= 0.5
    weights[0] = 0.0
    forward = weights * np.exp(-model.decay * np.maximum(times[:, None] - times, 0.0))
    reach = times if not model.decay else -np.expm1(-model.decay * times) / model.decay
    fade = np.exp(-model.decay * times)
    base = model.sigma_u2 * np.outer(fade, fade) + model.sigma_b2 * np.outer(reach, reach)

    def solved(c, variances=None):
        cov = c * base
        for _ in range(18):
            q1, q2 = variances or (np.diag(cov), np.diag(cov))
            cov = c * base + model.sigma_w2 * forward @ dual(q1, q2, cov)[0] @ forward.T
        return cov

    own = [np.diag(solved(square)) for square in squares]
    cov = solved(c, own)
    F, D = dual(*own, cov)
    backward, last = forward[::-1, ::-1], np.outer(fade[::-1], fade[::-1])
    B = last
    for _ in range(18):
        B = last + model.sigma_w2 * backward @ (B * D) @ backward.T
    end = weights[-1]
    inputs = c * (model.sigma_u2 * B[0, 0] + model.sigma_b2 * end @ B @ end)
    return np.array([cov[-1, -1], cov[-1, -1] + model.sigma_w2 * end @ (B * F) @ end + inputs])


@pytest.mark.parametrize(
    "model",
    [nsd.NeuralODE("relu", 1.5, 1.0, sigma_b2=0.3), nsd.NeuralODE("relu", 1.5, 1.5, 0.0, 1.0, decay=0.7)],
    ids=str,
)
def test_relu_agrees_with_extrapolated_trapezoidal_sums(model):
    rows = np.vstack([X[:3], X[:1]])
    ck, info = nsd.conjugate_kernel(model, rows, return_info=True)
    ntk = nsd.tangent_kernel(model, rows)
    assert info.error_bound < 1e-8
    for i, j in [(0, 1), (2, 2), (0, 3)]:
        squares = rows[i] @ rows[i], rows[j] @ rows[j]
        table = [trapezoidal(relu_dual, rows[i] @ rows[j], squares, model, n) for n in (10, 20, 40, 80)]
        for order in (1, 2, 3):
            table = [(4**order * b - a) / (4**order - 1) for a, b in pairwise(table)]
        np.testing.assert_allclose([ck[i, j], ntk[i, j]], table[0], rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "rows", "most"),
    [
        ("softplus", X, 1e-10),
        ("erf", 1.5 * X, 1e-10),
        ("relu", X, 1e-8),
        ("hard_tanh", X, 1e-8),
        ("relu", np.vstack([X, X[:1] + 1e-3 * X[1:2]]), 1e-3),
    ],
)
def test_the_stated_error_covers_the_change_with_more_nodes(name, rows, most):
    from notsodeep.kernel_names import Kernel
    from notsodeep.models.time_programs import TimeKernels

    model, gram, everything = nsd.NeuralODE(name, 1.5, 1.5, sigma_b2=0.3), rows @ rows.T, slice(0, len(rows))
    fine = TimeKernels(model, time_nodes(28, model.duration, 0.0), np.diag(gram).copy(), None, True)
    reference = fine.tile(gram, everything, everything, diagonal=True)
    for kernel, compute in ((Kernel.CK, nsd.conjugate_kernel), (Kernel.NTK, nsd.tangent_kernel)):
        K, info = compute(model, rows, return_info=True)
        scale = np.sqrt(np.outer(np.diag(K), np.diag(K)))
        assert np.abs((K - reference.kernel(kernel)) / scale).max() <= info.error_bound < most


def test_one_sample_is_a_graph_model_whose_graph_is_time():
    nodes = time_nodes(8, 1.3, 0.0)
    graph = GraphDEQ(nodes.integral, "tanh", sigma_a2=1.4, sigma_b2=0.0, bias2=0.9)
    covariance = nsd.conjugate_kernel(graph, np.ones((8, 1)), of="preactivations")
    model = nsd.NeuralODE("tanh", 1.4, 1.3, 0.9)
    np.testing.assert_allclose(model.variances(np.ones(1), nodes=8)[0], np.diag(covariance), rtol=1e-12)


def test_many_euler_steps_approach_the_ode():
    model = nsd.NeuralODE("tanh", 1.5, 1.2, 0.6, sigma_b2=0.5, decay=0.7)
    exact = nsd.tangent_kernel(model, X)
    errors = [np.abs(nsd.tangent_kernel(model.unrolled(n), X) - exact).max() for n in (20, 40)]
    assert errors[1] < 0.05 * np.abs(exact).max()
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)
    # One step is linear in the input: h(1) = (1 - decay T) σ_u U x + T (σ_w W φ(σ_u U x) + σ_b B x).
    features = nsd.conjugate_kernel(nsd.Explicit(["tanh"], weights=[0.6]), X)
    one = (0.6 * (1.0 - 0.7 * 1.2) ** 2 + 0.5 * 1.2**2) * X @ X.T + 1.5 * 1.2**2 * features
    np.testing.assert_allclose(nsd.conjugate_kernel(model.unrolled(1), X), one, rtol=1e-10)


def test_with_much_decay_the_state_is_the_preactivation_of_a_deq():
    model = nsd.NeuralODE("tanh", 3.0, 16.0, 1.0, sigma_b2=2.0, decay=2.0)
    deq = nsd.DEQ("tanh", 0.75, 0.5)
    np.testing.assert_allclose(
        nsd.conjugate_kernel(model, X), nsd.conjugate_kernel(deq, X, of="preactivations"), atol=1e-8
    )
    np.testing.assert_allclose(
        nsd.tangent_kernel(model, X, of="preactivations"),
        nsd.tangent_kernel(deq, X, of="preactivations"),
        atol=1e-6,
    )


def test_euler_networks_approach_the_conjugate_kernel():
    model, width, draws, steps = nsd.NeuralODE("tanh", 1.5, 1.0, sigma_b2=0.5), 800, 24, 40
    rng, step = np.random.default_rng(0), 1.0 / 40

    def slope(state, W, force):
        return W @ np.tanh(state) + force

    kernels = []
    for _ in range(draws):
        W = np.sqrt(1.5 / width) * rng.normal(size=(width, width))
        U, B = (rng.normal(size=(width, X.shape[1])) for _ in range(2))
        state, force = U @ X.T, np.sqrt(0.5) * B @ X.T
        for _ in range(steps):
            middle = state + 0.5 * step * slope(state, W, force)
            state = state + step * slope(middle, W, force)
        kernels.append(state.T @ state / width)
    mean, error = np.mean(kernels, axis=0), np.std(kernels, axis=0) / np.sqrt(draws)
    assert np.abs((mean - nsd.conjugate_kernel(model, X)) / error).max() < 4.0


def test_blocks_stores_estimators_and_files_take_the_model(tmp_path):
    model = nsd.NeuralODE("gelu", 1.2, 1.5, 0.8, sigma_b2=0.2, decay=0.5)
    assert model_from_dict(model.to_dict()) == model
    assert model_from_dict(model.unrolled(3).to_dict()) == model.unrolled(3)
    rows = np.random.default_rng(0).normal(size=(90, 5)) / np.sqrt(5)
    K = nsd.tangent_kernel(model, rows)
    stored = nsd.tangent_kernel(model, rows, out=tmp_path / "k.zarr", block=40)
    np.testing.assert_allclose(np.asarray(stored), K, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(nsd.tangent_kernel(model, rows[:7], rows), K[:7], rtol=1e-11)
    b = np.ones(90)
    np.testing.assert_allclose(stored @ b, K @ b, rtol=1e-9)
    y = np.sign(rows[:, 0])
    assert nsd.DEQKernelClassifier(model=model).fit(rows, y).score(rows, y) > 0.9
    assert np.linalg.eigvalsh(K).min() > 0.0


def test_centring_removes_the_mean_that_reaches_the_end():
    model = nsd.NeuralODE("relu", 1.0, 1.0).centred(1.0)
    far = np.eye(2)
    plain, centred = (nsd.conjugate_kernel(m, far)[0, 1] for m in (nsd.NeuralODE("relu"), model))
    assert abs(centred) < 0.02 * plain
    odd = nsd.NeuralODE("tanh")
    assert odd.centred(1.0) == odd


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"duration": 0.0}, "duration"),
        ({"sigma_w2": -1.0}, "sigma_w2"),
        ({"decay": -1.0}, "decay"),
        ({"sigma_u2": 0.0}, "sigma_b2 are both 0"),
    ],
)
def test_unusable_numbers_are_refused(arguments, words):
    with pytest.raises(nsd.InputError, match=words):
        nsd.NeuralODE("tanh", **arguments)
    with pytest.raises(nsd.InputError, match="ntk_paper"):
        nsd.tangent_kernel(nsd.NeuralODE("tanh"), X, of="paper")


def test_states_that_grow_without_bound_are_refused():
    with pytest.raises(nsd.ConvergenceError, match=r"nodes in time|grows"):
        nsd.conjugate_kernel(nsd.NeuralODE("relu", 9.0, 20.0), X)


def test_kinks_away_from_zero_take_seconds():
    X, begun = np.random.default_rng(0).standard_normal((3, 6)), time.process_time()
    still, moving = (
        nsd.conjugate_kernel(nsd.NeuralODE("relu(x-2)", gain, 3, steps=4), X) for gain in (0.0, 1.0)
    )
    assert time.process_time() - begun < 5.0
    np.testing.assert_allclose(still, X @ X.T, rtol=1e-12, atol=1e-12)
    assert (np.diag(moving) > np.diag(still)).all()
