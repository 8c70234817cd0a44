"""The batched fixed point: reports are true, methods agree, rows do not disturb each other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nets_oracles import (
    as_array,
    dense_equilibrium,
    gaussian_rows,
    relative_residuals,
    rounding_of_residuals,
)
from tolerances import Oracle, assert_close

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions
from notsodeep.nets.fixed_point_solvers import METHODS, solve

ACTIVATIONS = ("tanh", "relu", "gelu", "leaky_relu", "hard_tanh", "swish", "sin", "softsign", "sigmoid")
METHOD = pytest.mark.parametrize("method", METHODS)
WIDTH = 20


def _net(phi="tanh", sigma_a2=0.2, width=WIDTH, features=5, **options) -> DEQNet:
    options = {"dtype": torch.float64, "seed": 0, **options}
    return DEQNet(DEQ(phi, sigma_a2, 1.0), features, width, 3, **options)


class Linear:
    """x = M x + c row by row, whose residuals, rates and solution are known exactly."""

    def __init__(self, factors: torch.Tensor, constants: torch.Tensor) -> None:
        self.factors, self.constants, self.last = factors, constants, torch.empty_like(constants)

    def start(self) -> torch.Tensor:
        return torch.zeros_like(self.constants)

    def step(self, x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(self.factors * x + self.constants)
        self.last = out.clone()

    def solution(self, rows: torch.Tensor) -> torch.Tensor:
        return self.last[rows]

    def restrict(self, rows: torch.Tensor) -> Linear:
        smaller = Linear(self.factors[rows], self.constants[rows])
        smaller.last = self.last[rows]
        return smaller


# --- what is reported is true ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    width=st.sampled_from([1, 2, 3, 7, 20, 64, 100]),
    sigma_a2=st.sampled_from([0.0, 0.02, 0.1, 0.2]),
    phi=st.sampled_from(ACTIVATIONS),
    rows=st.sampled_from([1, 2, 9, 40]),
    scale=st.sampled_from([1e-6, 0.05, 1.0, 30.0]),
    method=st.sampled_from(METHODS),
    tolerance=st.sampled_from([1e-2, 1e-4, 1e-9]),
    zeros=st.booleans(),
    train=st.sampled_from(["all", "readout"]),
    seed=st.integers(0, 1000),
)
def test_the_residual_is_at_most_what_is_reported(
    width, sigma_a2, phi, rows, scale, method, tolerance, zeros, train, seed
) -> None:
    solver = SolverOptions(method=method, tolerance=tolerance)
    net = _net(phi, sigma_a2, width, seed=seed, solver=solver, train=train, on_failure="ignore")
    if net.contraction(exact=True) > 0.95:
        return
    X = scale * gaussian_rows(rows, 5, seed)
    if zeros:
        X[0] = 0.0
    z, report = net.features(X), net.last_solve
    true, rounding = relative_residuals(net, X, z), rounding_of_residuals(net, X, z)
    assert report.converged
    assert (true <= as_array(report.residuals) * (1.0 + 1e-9) + rounding).all()
    assert (true <= tolerance + rounding).all()
    assert report.residuals.shape == (rows,)
    assert not report.residuals.requires_grad


# --- every way to the same point -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phi", "train"), [(phi, ("all", "readout")[number % 2]) for number, phi in enumerate(ACTIVATIONS)]
)
@METHOD
def test_every_method_finds_the_equilibrium_of_a_dense_solve(phi: str, method: str, train: str) -> None:
    solver = SolverOptions(method=method, tolerance=1e-13)
    net = DEQNet(DEQ(phi, 0.15, 1.0, 0.3), 5, 12, 2, solver=solver, train=train, dtype=torch.float64, seed=4)
    X = gaussian_rows(120, 5, 2)
    assert_close(as_array(net.features(X))[:10], dense_equilibrium(net, X[:10]), Oracle.QUADRATURE)


def test_auto_leaves_iteration_when_it_has_used_up_its_steps() -> None:
    """At a rate of 0.9 iteration takes about 190 steps for ten digits."""
    factors = 0.9 * torch.linspace(-1.0, 1.0, 40, dtype=torch.float64)[None]
    constants = torch.ones(1, 40, dtype=torch.float64)
    _, report = solve(Linear(factors, constants), SolverOptions(tolerance=1e-10, max_steps=150))
    assert [stage.method for stage in report.stages] == ["iteration", "anderson"]
    assert report.stages[1].steps < 20
    assert float(report.residuals.max()) <= 1e-10
    _, alone = solve(Linear(factors, constants), SolverOptions("iteration", tolerance=1e-10, max_steps=400))
    _, report = solve(Linear(factors, constants), SolverOptions(tolerance=1e-10, max_steps=400))
    assert report.method == "iteration"
    assert report.steps == alone.steps


def test_damped_iteration_solves_what_anderson_with_a_short_memory_does_not() -> None:
    factors = torch.linspace(-20.0, 0.5, 40, dtype=torch.float64)[None]
    constants = torch.ones(1, 40, dtype=torch.float64)
    options = SolverOptions(tolerance=1e-10, max_steps=1000, memory=1)
    solution, report = solve(Linear(factors, constants), options)
    assert [stage.method for stage in report.stages] == ["iteration", "anderson", "damped"]
    assert report.converged
    np.testing.assert_allclose(solution.numpy(), (constants / (1.0 - factors)).numpy(), rtol=1e-8)


@METHOD
def test_a_known_linear_problem(method: str) -> None:
    """Its solution, and the rate of the slowest sample, which plain iteration measures."""
    factors = torch.tensor([[0.5, 0.3], [0.9, -0.8], [0.0, 0.0], [0.1, 0.1]], dtype=torch.float64)
    constants = torch.ones(4, 2, dtype=torch.float64)
    options = SolverOptions(method=method, tolerance=1e-12, max_steps=500)
    found, report = solve(Linear(factors, constants), options)
    assert report.converged
    np.testing.assert_allclose(found.numpy(), (constants / (1.0 - factors)).numpy(), rtol=2e-11)
    if method != "anderson":
        assert report.rate == pytest.approx(0.9, abs=1e-3)


# --- rows are problems of their own ----------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    rows=st.integers(1, 12),
    phi=st.sampled_from(["tanh", "relu", "gelu"]),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 1000),
)
def test_batches_are_invariant_and_permutations_carry_over(rows, phi, method, seed) -> None:
    net = _net(phi, 0.15, 30, seed=seed, solver=SolverOptions(method=method, tolerance=1e-12))
    generator = np.random.default_rng(seed)
    # Every magnitude at once: rows leave the loop at different steps.
    X = gaussian_rows(rows, 5, seed) * torch.from_numpy(10.0 ** generator.uniform(-3, 3, (rows, 1)))
    order = torch.from_numpy(generator.permutation(rows))
    whole = net.features(X).detach()
    scale = whole.norm(dim=1, keepdim=True)
    permuted = net.features(X[order]).detach()
    assert ((permuted - whole[order]).norm(dim=1) <= 1e-10 * scale[order, 0]).all()
    alone = torch.cat([net.features(x[None]).detach() for x in X])
    assert ((alone - whole).norm(dim=1) <= 1e-10 * scale[:, 0]).all()


@METHOD
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_of_zeros_among_others_is_its_own_equilibrium(method: str, dtype: torch.dtype) -> None:
    net = _net("tanh", 0.2, solver=SolverOptions(method=method), dtype=dtype)
    X = gaussian_rows(10, 5, 6, dtype)
    assert net(X[:0]).shape == (0, 3)
    X[3] = 0.0
    z = net.features(X)
    assert net.last_solve.converged
    assert not z[3].any()
    assert net.last_solve.residuals[3] == 0.0
    others = [i for i in range(10) if i != 3]
    tolerance = 1e-4 if dtype == torch.float32 else 1e-9
    np.testing.assert_allclose(as_array(z[others]), as_array(net.features(X[others])), atol=tolerance)


@METHOD
@pytest.mark.parametrize(
    ("width", "rows", "train"), [(WIDTH, 10, "all"), (WIDTH, 400, "readout"), (100, 10, "all")]
)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_sample_does_not_spoil_the_others(
    method: str, width: int, rows: int, train: str, bad: float
) -> None:
    net = _net("relu", 0.1, width, solver=SolverOptions(method=method), train=train, on_failure="ignore")
    X = gaussian_rows(rows, 5, 9)
    good = as_array(net.features(X))
    X[3, 2] = bad
    z, report = as_array(net.features(X)), net.last_solve
    others = np.arange(rows) != 3
    assert not report.converged
    assert not report.residuals[3] <= report.tolerance
    assert not np.isfinite(z[3]).all()
    assert (as_array(report.residuals)[others] <= report.tolerance).all()
    assert np.abs(z[others] - good[others]).max() <= 1e-8


# --- failure ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@METHOD
def test_an_expanding_map_is_reported_in_every_way(method: str) -> None:
    X = gaussian_rows(6, 5, 1)
    solver = SolverOptions(method=method, max_steps=60)
    for phi in ("tanh", "relu", "identity"):
        net = _net(phi, 16.0, 50, solver=solver, on_failure="raise")
        with pytest.raises(
            ConvergenceError, match="The equilibrium: 6 of 6 samples did not converge"
        ) as raised:
            net.features(X)
        # Every stage is named, and no method recommended that was tried.
        stages = ("iteration", "anderson", "damped") if method == "auto" else (method,)
        assert all(f"{stage}: 60 steps, residual " in str(raised.value) for stage in stages)
        assert ("Use method='auto'" in str(raised.value)) == (method != "auto")
        assert net.last_solve is not None
        assert not net.last_solve.converged
        warned = _net(phi, 16.0, 50, solver=solver, on_failure="warn")
        with pytest.warns(RuntimeWarning, match="lower sigma_a2"):
            warned.features(X)
        ignored = _net(phi, 16.0, 50, solver=solver, on_failure="ignore")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ignored.features(X).shape == (6, 50)
        assert not ignored.last_solve.converged


def test_overflow_ends_the_iteration() -> None:
    net = _net(
        "relu", 400.0, 50, solver=SolverOptions(method="iteration", max_steps=100_000), on_failure="ignore"
    )
    z = net.features(gaussian_rows(6, 5, 1))
    assert net.last_solve.steps < 1000
    assert not net.last_solve.converged
    # The answer is that of the best state, not of the last one.
    assert torch.isfinite(z).all()


@METHOD
def test_too_few_steps(method: str) -> None:
    solver = SolverOptions(method=method, max_steps=3)
    X = gaussian_rows(6, 5, 1)
    net = _net("tanh", 0.5, 50, solver=solver, on_failure="ignore")
    z = net.features(X)
    report = net.last_solve
    stages = 3 if method == "auto" else 1
    assert report.steps == 3 * stages
    assert report.row_steps == 18 * stages
    assert not report.converged
    true = relative_residuals(net, X, z)
    assert (true > 1e-10).all()
    assert (true <= as_array(report.residuals) * (1.0 + 1e-9)).all()
    with pytest.raises(ConvergenceError, match=f"in {3 * stages} steps"):
        _net("tanh", 0.5, 50, solver=solver).features(X)


def test_the_adjoint_fails_aloud_with_its_own_options() -> None:
    adjoint = SolverOptions(max_steps=2)
    X = gaussian_rows(6, 5, 1)
    net = _net("tanh", 0.5, 50, adjoint=adjoint)
    outputs = net(X)
    assert net.last_solve.converged
    with pytest.raises(ConvergenceError, match="adjoint equation"):
        outputs.sum().backward()
    assert net.last_adjoint.steps == 6
    warned = _net("tanh", 0.5, 50, adjoint=adjoint, on_failure="warn")
    with pytest.warns(RuntimeWarning, match="adjoint equation"):
        warned(X).sum().backward()
    assert not warned.last_adjoint.converged


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "newton"}, "Choose one of: auto, iteration, anderson"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"tolerance": -1.0}, "tolerance must be positive"),
        ({"tolerance": float("nan")}, "tolerance must be positive"),
        ({"max_steps": 0}, "max_steps and memory must be at least 1"),
        ({"memory": 0}, "max_steps and memory must be at least 1"),
    ],
)
def test_impossible_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SolverOptions(**options)
