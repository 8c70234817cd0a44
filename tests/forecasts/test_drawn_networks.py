"""Forecasts of general cells at a width, against networks that NumPy draws and iterates."""

from __future__ import annotations

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import cells
from notsodeep.errors import InputError

RNG = np.random.default_rng(0)


def two_layers(gain: float) -> nsd.Equilibrium:
    """z = relu(√g A relu(√2 B z) + √.5 C x)."""
    z, x = cells.state(), cells.input()
    inner = cells.activation(cells.dense(z, 2.0), "relu")
    return nsd.Equilibrium(cells.activation(cells.dense(inner, gain) + cells.dense(x, 0.5), "relu"))


def steps_of_a_network(gain: float, width: int, x: np.ndarray, seed: int) -> float:
    """Evaluations to a residual of 1e-6 of one network; infinite if there are more than 5000."""
    rng = np.random.default_rng(seed)
    A, B = (rng.standard_normal((width, width)) * np.sqrt(part / width) for part in (gain, 2.0))
    drive = np.sqrt(0.5) * rng.standard_normal((width, len(x))) @ x
    z = np.zeros(width)
    for count in range(1, 5001):
        image = np.maximum(A @ np.maximum(B @ z, 0.0) + drive, 0.0)
        if np.linalg.norm(image - z) <= 1e-6 * np.linalg.norm(image):
            return float(count)
        z = image
        if not np.isfinite(z).all() or np.linalg.norm(z) > 1e9:
            break
    return np.inf


@pytest.mark.parametrize(("gain", "width"), [(0.9, 128), (1.6, 64)])
def test_a_cell_at_a_width_has_the_steps_of_drawn_networks(gain: float, width: int) -> None:
    x, model = np.eye(1, 6)[0], two_layers(gain)
    f = nsd.forecast(model, x[None], width=width)
    wide = nsd.forecast(model, x[None])
    counts = np.array([steps_of_a_network(gain, width, x, seed) for seed in range(100)])
    settled = np.isfinite(counts).mean()
    assert f.width == width
    assert len(f.draws) == 10
    assert abs(f.probability[0] - settled) <= 3.5 * max(f.probability_error[0], 0.05)
    assert f.initial.rate == pytest.approx(wide.rate)
    rates = [draw.rate[0] for draw in f.draws]
    assert f.rate[0] == pytest.approx(np.median(rates))
    if gain < 1.0:
        assert f.settles.all()
        # Two standard errors of a median of ten, from the quartiles of the hundred.
        spread = np.subtract(*np.percentile(counts, [75, 25])) / 1.35
        allowed = 2.0 * 1.25 * spread / np.sqrt(10) + 1.0
        assert abs(f.steps(1e-6)[0] - np.median(counts)) <= allowed
        assert f.residuals[0, 0] == 1.0
        assert f.errors[0, 10] < f.errors[0, 5] < 1.0
        assert f.anderson_residuals[0, -1] < 1e-9
    else:
        # The wide limit settles; a good part of these networks do not.
        assert wide.settles.all()
        assert f.probability[0] < 0.9
        assert settled < 0.9
    assert f"among {len(rates)} networks" in f.advice
    assert f"Probability of an equilibrium at width {width}" in f.advice


def test_rows_are_answered_by_their_norm() -> None:
    X = RNG.standard_normal((40, 6))
    f = nsd.forecast(two_layers(0.6), X, width=48)
    assert f.rate.shape == f.settles.shape == f.probability.shape == (40,)
    assert len(f.draws[0].rate) == 8
    assert len(f.residuals) == len(f.errors) == len(f.steps(1e-3)) == len(f.gradient.error(3)) == 40
    assert len(f.to_dict()["rate"]) == 40


def test_loops_images_and_graphs_at_a_width() -> None:
    z, x = cells.state(), cells.input()
    step = cells.norm(
        z + cells.dense(cells.activation(cells.dense(z, 1.0), "gelu"), 0.3) + cells.dense(x, 1.0)
    )
    X = RNG.standard_normal((3, 5))
    loop = nsd.forecast(nsd.Loop(step, 6), X, width=64)
    assert loop.residuals.shape == (3, 6)
    assert loop.errors.shape == (3, 7)
    np.testing.assert_allclose(
        loop.residuals, nsd.forecast(nsd.Equilibrium(step), X, width=64).residuals[:, :6]
    )
    assert "The loop ends after 6 steps" in loop.advice
    branch = cells.conv(cells.activation(cells.conv(z, 0.5), "relu"), 0.5)
    conv = nsd.Equilibrium(cells.pool(cells.activation(branch + cells.conv(x, 1.0), "tanh")))
    images = nsd.forecast(conv, RNG.standard_normal((2, 3, 4, 4)), width=12)
    assert images.settles.all()
    S = np.full((4, 4), 0.25)
    inner = cells.activation(cells.graph(z, S, 0.5), "relu")
    graph = nsd.Equilibrium(cells.activation(cells.dense(inner, 0.5) + cells.dense(x, 1.0), "tanh"))
    f = nsd.forecast(graph, RNG.standard_normal((4, 5)), width=32)
    assert f.rate.shape == (1,)
    assert f.settles.all()


def test_a_width_must_be_a_count() -> None:
    with pytest.raises(InputError, match="width"):
        nsd.forecast(two_layers(0.6), np.eye(2), width=0)
