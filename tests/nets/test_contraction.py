"""The contraction of a network: its estimate, its bound in training, and the advice when it cannot hold."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nets_oracles import as_array, gaussian_rows, theory_weight
from tolerances import Oracle, assert_close

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet
from notsodeep.nets.linear_maps import MatrixMap, NormTracker

WIDTHS = pytest.mark.parametrize("width", [50, 200, 500])


def _net(sigma_a2=0.1, width=60, phi="tanh", **options) -> DEQNet:
    return DEQNet(DEQ(phi, sigma_a2, 0.8), 5, width, 2, **{"seed": 0, **options})


def _exact(net: DEQNet, lipschitz: float = 1.0) -> float:
    """By NumPy's singular values."""
    norm = np.linalg.svd(as_array(theory_weight(net, "recurrent")), compute_uv=False)[0]
    return float(np.sqrt(net.spec.sigma_a2 / net.width) * norm * lipschitz)


@pytest.mark.slow
@WIDTHS
@pytest.mark.parametrize("seed", range(3))
def test_the_estimate_is_within_a_percent_from_below(width: int, seed: int) -> None:
    net = _net(width=width, seed=seed)
    exact = _exact(net)
    assert exact * 0.99 <= net.contraction() <= exact * (1.0 + 1e-5)
    assert_close(net.contraction(exact=True), exact, Oracle.CLOSED_FORM, dtype=np.float32)


def test_the_estimate_sees_a_direction_that_was_not_there_before() -> None:
    # The basis of the first call spans the leading block; the new direction is orthogonal to all of it.
    matrix = torch.zeros(100, 100, dtype=torch.float64)
    matrix[:20, :20] = torch.eye(20, dtype=torch.float64)
    tracker = NormTracker()
    assert tracker.estimate(MatrixMap(matrix)) == pytest.approx(1.0)
    matrix[70, 80] = 5.0
    assert tracker.estimate(MatrixMap(matrix)) == pytest.approx(5.0, rel=0.02)


def test_the_lipschitz_constant_is_a_factor() -> None:
    plain, steep = _net(), _net(phi=activation("tanh").scaled(-3.0, gain=0.5))
    assert_close(steep.contraction(exact=True), 1.5 * plain.contraction(exact=True), Oracle.CLOSED_FORM)
    assert _net(sigma_a2=0.0).contraction() == 0.0


# --- project ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    bound=st.sampled_from([0.5, 0.8, 0.95, 0.99]),
    width=st.sampled_from([10, 60, 150]),
    scale=st.sampled_from([0.3, 3.0, 100.0]),
    rank_one=st.sampled_from([0.0, 0.1, 1.0]),
    fresh=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_projection_enforces_the_bound_after_any_change(bound, width, scale, rank_one, fresh, seed) -> None:
    net = _net(0.02 * bound, width, contractive=bound, seed=seed, dtype=torch.float64)
    for step in range(3):
        noise = width**0.5 * gaussian_rows(width, width, seed + step)
        spike = rank_one * torch.outer(noise[0], noise[1])
        with torch.no_grad():
            if fresh:
                net.recurrent.zero_()
            net.recurrent.add_(scale * (noise + spike))
        direction = net.recurrent.detach().clone()
        returned = net.project()
        exact = _exact(net)
        assert exact <= 1.02 * bound
        assert returned <= bound * (1.0 + 1e-12)
        assert exact * 0.98 <= returned
        # Only the length changed.
        shrunk = net.recurrent.detach() / direction
        assert_close(shrunk.numpy(), np.full((width, width), float(shrunk[0, 0])), Oracle.IDENTITY)
        assert 0.0 < float(shrunk[0, 0]) <= 1.0


def test_projection_leaves_a_contracting_network_alone() -> None:
    net = _net(0.1, contractive=True)
    before, version = net.recurrent.detach().clone(), net.recurrent._version
    value = net.project()
    assert value == pytest.approx(_exact(net), rel=0.02)
    assert value <= net.bound == 0.95
    assert torch.equal(net.recurrent, before)
    assert net.recurrent._version == version


# --- contractive=True at the start -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [True, 0.6])
@pytest.mark.parametrize("sigma_a2", [0.4, 0.9])
@pytest.mark.parametrize("phi", ["tanh", "gelu"])
def test_an_expanding_start_is_refused_with_advice_that_works(
    bound: bool | float, sigma_a2: float, phi: str
) -> None:
    for seed in range(4):
        with pytest.raises(InputError, match="cannot hold at the start") as refusal:
            _net(sigma_a2, 40, phi, contractive=bound, seed=seed)
        advised = re.search(r"sigma_a2(?:=| below )([0-9]+[.][0-9]+)", str(refusal.value))
        assert advised is not None, str(refusal.value)
        limit = float(advised.group(1))
        works = _net(limit, 40, phi, contractive=bound, seed=seed)
        assert works.bound is not None
        # And the advice is not needlessly strict.
        with pytest.raises(InputError, match="cannot hold"):
            _net(limit * 1.02, 40, phi, contractive=bound, seed=seed)


def test_an_activation_without_a_lipschitz_constant_is_refused_for_that_reason() -> None:
    square = activation("polynomial", coefficients=(0.0, 0.1, 0.1))
    with pytest.raises(InputError, match=r"(?i)lipschitz|slope|unbounded|steep"):
        _net(0.05, 40, square, contractive=True)


@pytest.mark.parametrize("contractive", [0.0, 1.0, 1.5, -0.3, float("nan"), "yes", None])
def test_impossible_bounds_are_refused(contractive: object) -> None:
    with pytest.raises(InputError, match="contractive"):
        _net(contractive=contractive)
