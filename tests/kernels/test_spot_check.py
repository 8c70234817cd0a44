"""A wrong kernel does not leave: a few of its pairs are recomputed by quadrature that shares nothing with the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.duals.dual import Dual
from notsodeep.models import spot_check
from notsodeep.models.graph import normalised_adjacency

ROWS = np.random.default_rng(0).standard_normal((12, 3))
RING = np.roll(np.eye(12), 1, axis=0)
IMAGES = np.random.default_rng(2).standard_normal((4, 2, 3, 3))
MODELS = {
    "DEQ": (nsd.DEQ("tanh", 0.2), ROWS),
    "Explicit": (nsd.Explicit(["tanh", "relu", "gelu"]), ROWS),
    "GraphDEQ": (nsd.GraphDEQ(normalised_adjacency(RING + RING.T), "tanh", 0.3), ROWS),
    "GraphExplicit": (nsd.GraphDEQ(normalised_adjacency(RING + RING.T), "tanh", 0.3).unrolled(2), ROWS),
    "ConvDEQ": (nsd.ConvDEQ("tanh", 0.3), IMAGES),
    "pooled": (nsd.ConvDEQ("tanh", 0.3, readout="pool"), IMAGES),
    "ConvExplicit": (nsd.ConvExplicit(["tanh", "relu"]), IMAGES),
}


def spoil(monkeypatch: pytest.MonkeyPatch, field: int, wrong: Any, *, always: bool = False) -> None:
    """Let the engine return something wrong as F (0) or F' (1), unless it integrates every pair by itself."""
    tiles = Dual.tiles

    def spoilt(self: Dual, left: Any, right: Any, covariance: Any, *outputs: Any, **options: Any) -> Any:
        evidence = tiles(self, left, right, covariance, *outputs, **options)
        if always or not self.careful:
            outputs[field][:] = wrong(outputs[field])
        return evidence

    monkeypatch.setattr(Dual, "tiles", spoilt)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kernel", [nsd.conjugate_kernel, nsd.tangent_kernel])
def test_a_sound_kernel_is_confirmed(name: str, kernel: Any) -> None:
    _, info = kernel(*MODELS[name], return_info=True)
    assert info.checked_pairs > 0
    assert not info.recomputed
    assert info.largest_difference <= info.error_bound + spot_check.OWN


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("field", [0, 1])
def test_a_wrong_kernel_is_computed_again(name: str, field: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = nsd.tangent_kernel(*MODELS[name])
    spoil(monkeypatch, field, lambda values: values + 1e-8)
    found, info = nsd.tangent_kernel(*MODELS[name], return_info=True)
    assert info.recomputed
    assert_close(found, exact, Oracle.QUADRATURE)


def test_nan_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single NaN anywhere; and if the careful path has it too, an error."""
    exact = nsd.conjugate_kernel(*MODELS["DEQ"])

    def with_nan(values: np.ndarray) -> np.ndarray:
        return np.where(np.arange(values.size).reshape(values.shape) == 25, np.nan, values)

    spoil(monkeypatch, 0, with_nan)
    found, info = nsd.conjugate_kernel(*MODELS["DEQ"], return_info=True)
    assert info.recomputed
    assert_close(found, exact, Oracle.QUADRATURE)
    spoil(monkeypatch, 0, with_nan, always=True)
    with pytest.raises(nsd.ConvergenceError, match=r"not finite|did not converge"):
        nsd.conjugate_kernel(*MODELS["DEQ"])


def test_a_difference_that_stays_raises_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, 0, lambda values: values + 1e-8, always=True)
    with pytest.warns(UserWarning, match="spot check does not confirm"):
        _, info = nsd.conjugate_kernel(*MODELS["DEQ"], return_info=True)
    assert info.error_bound >= info.largest_difference > 1e-9


def test_extreme_pairs_are_among_those_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the pair of the nearest, of the opposite, or of the largest and the smallest rows is wrong."""
    X = np.random.default_rng(1).standard_normal((16, 5))
    X[7] = X[10] + 1e-3
    X[12] = -X[15]
    X[3] *= 50.0
    X[8] /= 50.0
    for i, j in ((10, 7), (15, 12), (8, 3)):
        with monkeypatch.context() as patch:
            places = np.zeros((1, 16, 16), dtype=bool)
            places[0, i, j] = True
            spoil(patch, 0, lambda values, at=places: np.where(at, values + 1e-7, values))
            assert nsd.conjugate_kernel(nsd.DEQ("tanh"), X, return_info=True)[1].recomputed


@pytest.mark.parametrize(
    "phi", [one for one in oracles.ALL if not one.wave and one.name != "polynomial"], ids=str
)
def test_its_quadrature_agrees_with_the_oracle(phi: oracles.Reference) -> None:
    made = nsd.activation(phi.name, **phi.parameters)
    for q1, q2 in ((1.0, 1.0), (30.0, 0.5), (1e6, 1e-4)):
        for rho in (0.0, -0.7, 0.97, 1.0 - 1e-8, 1.0):
            cross = rho * np.sqrt(q1) * np.sqrt(q2)
            exact = oracles.exact_dual(phi, q1, q2, rho)
            size = [oracles.exact_dual(phi, q, q, 1.0) for q in (q1, q2)]
            found = spot_check.dual(made, q1, q2, cross, slope=True)
            for value, truth, own in zip(found, exact, zip(*size, strict=True), strict=True):
                assert abs(value - truth) <= spot_check.OWN * np.sqrt(own[0] * own[1])
