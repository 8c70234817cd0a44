"""Measured forecasts of loop cells in the style of published ones, against plain iteration in float64."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from loop_cells import NAMES, loop_cell, rms_norm
from torch import Tensor, nn

import notsodeep as nsd
from notsodeep.errors import InputError

EVALUATIONS = 8000


def plain_iteration(cell: Any, x: Tensor, z: Tensor) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """The last state, relative residuals, and norms of the states, (evaluations, samples)."""
    residuals, norms = [], []
    with torch.no_grad():
        for _ in range(EVALUATIONS):
            image = cell(z, x)
            norms.append(image.flatten(1).norm(dim=1))
            residuals.append((image - z).flatten(1).norm(dim=1) / norms[-1])
            z = image
            if not torch.isfinite(norms[-1]).all() or (residuals[-1] < 1e-14).all():
                break
    return z, torch.stack(residuals).numpy(), torch.stack(norms).numpy()


def spectral_radius(cell: Any, x: Tensor, z: Tensor) -> float:
    """Of the Jacobian of one sample, from the whole matrix; 0 if a power of it vanishes."""
    jacobian = torch.autograd.functional.jacobian(lambda one: cell(one[None], x[None])[0], z)
    matrix = jacobian.reshape(z.numel(), z.numel())
    if not torch.linalg.matrix_power(matrix, z.numel()).any():
        return 0.0
    return float(torch.linalg.eigvals(matrix).abs().max())


@pytest.mark.parametrize("name", NAMES)
def test_outcome_steps_and_rate_are_those_of_plain_iteration(name: str) -> None:
    case = loop_cell(name)
    f = nsd.forecast(case.cell, case.x, z0=case.z0)
    x, z0 = case.x.double(), case.z0.double()
    z, residuals, norms = plain_iteration(case.exact, x, z0)
    assert f.precision == "float64"
    assert list(f.outcome) == [case.answer] * len(x), f.advice
    assert f.settles.all() == (case.answer == "settles")
    assert not np.isnan(f.rate).any()
    half = len(norms) // 2
    if case.answer == "grows":
        assert not np.isfinite(norms[-1]).all() or (norms[-1] > 1.2 * norms[half]).all()
        assert np.isinf(f.steps(1e-3)).all()
        assert (f.rate > 1.0).all()
        return
    if case.answer == "oscillates":
        assert residuals[half:].min() > 1e-3
        assert norms[half:].max() < 1.01 * norms[:half].max()
        assert (f.rate >= 1.0 - 1e-9).all()
        assert "oscillate." in f.advice
        return
    for tolerance in (1e-3, 1e-6):
        reached = residuals <= tolerance
        expected = np.where(reached.any(axis=0), reached.argmax(axis=0) + 1.0, np.inf)
        known = np.isfinite(expected)
        np.testing.assert_array_equal(f.steps(tolerance)[known], expected[known])
        assert (f.steps(tolerance)[~known] > EVALUATIONS).all()
    for sample in range(len(x)):
        exact = spectral_radius(case.exact, x[sample], z[sample])
        assert f.rate[sample] == pytest.approx(exact, rel=1e-3)


def test_a_slow_cell_ends_with_its_time_and_says_so() -> None:
    def slow(z: Tensor, x: Tensor) -> Tensor:
        time.sleep(0.005)
        return 0.9999 * z + x

    x, begun = torch.ones(2, 4), time.monotonic()
    f = nsd.forecast(slow, x, z0=torch.zeros(2, 4), seconds=1.0)
    assert time.monotonic() - begun < 3.0
    assert all(each == f"not within {f.residuals.shape[1]} evaluations" for each in f.outcome)
    assert not f.settles.any()
    assert f.rate == pytest.approx(0.9999, abs=1e-5)
    assert np.isinf(f.steps(1e-6)).all()
    assert "evaluations (seconds=1)" in f.advice
    bounded = nsd.forecast(lambda z, x: 0.9 * z + x, x, z0=torch.zeros(2, 4), max_steps=20)
    assert list(bounded.outcome) == ["not within 20 evaluations"] * 2
    assert bounded.residuals.shape == (2, 20)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_very_slow_contraction_is_not_said_to_grow_or_oscillate(seed: int) -> None:
    """In the first thousand evaluations the states of the last two seem to grow and to oscillate."""
    W = torch.randn(5, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    W *= 0.99999 / torch.linalg.eigvals(W).abs().max()
    x = torch.ones(1, 5, dtype=torch.float64)
    f = nsd.forecast(lambda z, x: z @ W + x, x, z0=torch.zeros_like(x), max_steps=1500)
    assert list(f.outcome) == [f"not within {f.residuals.shape[1]} evaluations"]
    assert f.rate[0] == pytest.approx(0.99999, abs=1e-6)


def test_a_residual_that_rises_before_it_falls_is_followed() -> None:
    """A long shift with growing weights: residuals rise by 1e9 and vanish after 300 steps."""
    x = torch.randn(1, 300, generator=torch.Generator().manual_seed(0))
    f = nsd.forecast(lambda z, x: 1.07 * nn.functional.pad(z[:, :-1], (1, 0)) + x, x, z0=torch.zeros_like(x))
    assert list(f.outcome) == ["settles"]
    assert f.rate[0] == 0.0
    assert f.steps(1e-6)[0] == 301.0


def test_an_unstable_equilibrium_does_not_settle() -> None:
    f = nsd.forecast(lambda z, x: torch.tanh(2.0 * z) + 0.0 * x, torch.ones(1, 3), z0=torch.zeros(1, 3))
    assert list(f.outcome) == ["unstable"]
    assert not f.settles.any()
    assert f.rate[0] == pytest.approx(2.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("cell", "start", "outcome", "rate"),
    [
        (lambda z, x: z + 0.0 * x, 0.0, "unstable", 1.0),
        (lambda z, x: 4.0 * z * (1.0 - z) + 0.0 * x, 0.25, "unstable", 2.0),
        (lambda z, x: 3.9 * z * (1.0 - z) + 0.0 * x, 0.3, "oscillates", 1.9),
        (lambda z, x: x - z, 0.0, "oscillates", 1.0),
        # Steps of both signs that fall as the root of k.
        (lambda z, x: 3.0 * z * (1.0 - z) + 0.0 * x, 0.3, "not within 2000 evaluations", 1.0),
    ],
    ids=["every state rests", "rests by chance", "chaos", "flip", "edge of a flip"],
)
def test_samples_that_do_not_settle_never_reach_a_tolerance_for_good(
    cell: Any, start: float, outcome: str, rate: float
) -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    f = nsd.forecast(cell, x, z0=start * x, max_steps=2000)
    assert list(f.outcome) == [outcome] * 2
    assert not f.settles.any()
    assert f.rate == pytest.approx(rate, rel=1e-6)
    assert "2 of 2 samples do not settle: 2 " in f.advice
    if outcome == "oscillates":
        assert np.isinf(f.steps(0.05)).all()


def test_a_bounded_state_is_not_said_to_grow() -> None:
    """Norms of chaotic states may rise four times in a row by chance."""
    generator = torch.Generator().manual_seed(0)
    W = 3.0 * torch.randn(48, 48, generator=generator) / 48**0.5
    x = torch.randn(400, 48, generator=generator)
    f = nsd.forecast(lambda z, x: torch.tanh(z @ W.to(z) + x), x, z0=torch.zeros_like(x), max_steps=1024)
    assert "grows" not in f.outcome
    assert (f.outcome == "oscillates").mean() > 0.9


def test_the_advised_tolerance_gives_the_equilibrium_it_promises() -> None:
    x = torch.ones(1, 4, dtype=torch.float64)
    f = nsd.forecast(lambda z, x: 0.98 * z + x, x, z0=torch.zeros_like(x))
    tolerance = float(f.advice.partition("A tolerance of ")[2].partition(" ")[0])
    # The state is 50, and after k steps 50 (1 - 0.98^k).
    assert 0.5e-3 < 0.98 ** f.steps(tolerance)[0] < 1.5e-3


def test_float32_inside_a_cell_does_not_limit_residuals() -> None:
    W = nn.Linear(6, 6)
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    f = nsd.forecast(lambda z, x: rms_norm(0.3 * torch.tanh(W(z)) + x), x, z0=torch.zeros_like(x))
    assert np.nanmin(f.residuals, axis=1).max() < 1e-9
    assert f.anderson_residuals[:, -1].min() < 1e-9 or np.isnan(f.anderson_residuals[:, -1]).any()


class Counting(nn.Module):
    """A cell with every kind of state that a measurement could leave behind."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4).to(dtype)
        self.dropout = nn.Dropout(0.0)
        self.register_buffer("mean", torch.zeros(4, dtype=dtype))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        self.calls += 1
        torch.rand(1)
        self.mean.lerp_(z.detach().mean(0), 0.5)
        return 0.2 * torch.tanh(self.dropout(self.linear(z))) + x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_callers_objects_are_untouched(dtype: torch.dtype, wrapped: bool) -> None:
    cell, x = Counting(dtype), torch.randn(2, 4, dtype=dtype)
    before = {name: value.clone() for name, value in cell.state_dict().items()}
    state = torch.get_rng_state()
    f = nsd.forecast((lambda z, x: cell(z, x)) if wrapped else cell, x, z0=torch.zeros_like(x))
    f.anderson_residuals  # noqa: B018
    assert f.settles.all()
    assert torch.equal(state, torch.get_rng_state())
    for name, value in cell.state_dict().items():
        assert value.dtype is before[name].dtype
        assert torch.equal(value, before[name]), name
    assert cell.training
    assert cell.dropout.training
    assert all(weight.grad is None and weight.requires_grad for weight in cell.parameters())


def test_a_cell_is_measured_under_inference_mode() -> None:
    x, cell = torch.randn(2, 6, generator=torch.Generator().manual_seed(0)), nn.GRUCell(6, 6)
    expected = nsd.forecast(lambda z, x: cell(x, z), x, z0=torch.zeros_like(x))
    with torch.inference_mode():
        f = nsd.forecast(lambda z, x: cell(x, z), x.clone(), z0=torch.zeros_like(x))
        np.testing.assert_array_equal(f.rate, expected.rate)
        assert f.advice == expected.advice
        assert f.anderson_residuals.shape == expected.anderson_residuals.shape


def writing(z: Tensor, x: Tensor) -> Tensor:
    z *= 0.5
    return z + x


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (writing, "writes into z"),
        (lambda z, x: x.add_(1.0) * 0.5 + z, "writes into z or x"),
        (lambda z, x: torch.tanh(z.data.mul_(0.5)) + 0.1 * z + x, "writes into z"),
        (lambda z, x: torch.log(z - 1e3) + x, "first evaluation"),
        (lambda z, x: torch.tanh(torch.from_numpy(np.tanh(z.numpy()))) + x, "NumPy"),
        (lambda z, x: np.tanh(0.5 * z + x), "NumPy"),
        (lambda z, x: np.ones(z.shape), "torch functions"),
        (lambda z, x: nn.functional.dropout(0.5 * z, 0.5) + x, "random"),
        (lambda z, x: 0.5 * z - z.mean(0) + x, "other samples"),
    ],
)
def test_cells_that_cannot_be_measured_are_refused_in_words(cell: Any, words: str) -> None:
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.float64):
        with pytest.raises(InputError, match=words):
            nsd.forecast(cell, x.to(dtype), z0=x.to(dtype))
    assert torch.equal(x, torch.randn(3, 5, generator=torch.Generator().manual_seed(0)))


def test_an_error_of_the_cell_is_raised_as_it_is() -> None:
    linear = nn.Linear(3, 4)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        nsd.forecast(lambda z, x: linear(z) + x, torch.ones(2, 5), z0=torch.ones(2, 5))


def test_batch_normalisation_in_training_mode_is_refused_and_left_as_it_was() -> None:
    norm = nn.BatchNorm1d(5)
    with pytest.raises(InputError, match=r"other samples.*eval"):
        nsd.forecast(lambda z, x: 0.5 * norm(z) + x, torch.randn(4, 5), z0=torch.randn(4, 5))
    assert int(norm.num_batches_tracked) == 0
    assert not norm.running_mean.any()


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_compiled_cell_is_measured_in_its_own_precision() -> None:
    weight = nn.Linear(4, 4).weight.detach()
    traced = torch.jit.trace(
        lambda z, x: 0.5 * torch.tanh(z @ weight) + x, (torch.ones(2, 4), torch.ones(2, 4))
    )
    x = torch.ones(2, 4)
    f = nsd.forecast(traced, x, z0=torch.zeros_like(x))
    assert f.precision == "float32"
    assert "Computed in float32" in f.advice
    assert f.settles.all()


def test_damping_and_truncated_gradients_are_advised_only_where_they_help() -> None:
    x = torch.ones(1, 8, dtype=torch.float64)

    def advice(cell: Any) -> str:
        return nsd.forecast(cell, x, z0=torch.zeros_like(x)).advice

    # An eigenvalue −1.05 calls for damping, but 0.9999 is then slower.
    diagonal = torch.tensor([-1.05, 0.9999] + [0.1] * 6, dtype=torch.float64)
    assert "Damping does not help" in advice(lambda z, x: z * diagonal + x)
    assert "Damping helps: steps of 0.49 have rate" in advice(lambda z, x: -1.05 * z + x)
    slow = advice(lambda z, x: 0.995 * z + x)
    assert "No gradient of up to 50 steps is within 10 %" in slow
    assert "A gradient of 4 steps is within 10 %" in advice(lambda z, x: 0.5 * z + x)
