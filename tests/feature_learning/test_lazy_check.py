"""Lazy predictions that cannot be trusted say so; outputs of networks can be scaled."""

from __future__ import annotations

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.errors import InputError
from notsodeep.feature_learning import lazy_check

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 6)) / np.sqrt(6)
Y = (X[:, 0] > 0.0).astype(int)
DEQ = nsd.DEQ("tanh", 0.3)


def test_a_lazy_network_is_trusted_without_sampling():
    check = lazy_check(DEQ, X, 2.0 * Y - 1.0, richness=0.01, ridge=0.1)
    assert check.trusted
    assert "hardly change" in check.note


def test_a_rich_network_is_not_trusted():
    curve = nsd.learning_curve(DEQ, (X, Y), n=[40], ridge=0.3, richness=0.6)
    assert "cannot be trusted" in curve.caveat
    assert curve.caveat in str(curve)
    assert nsd.learning_curve(DEQ, (X, Y), n=[40], ridge=0.3).caveat == ""


def test_the_verdict_on_a_rich_network_is_unsure():
    found = nsd.verdict(DEQ, X, Y, richness=0.8)
    assert found.answer == "unsure"
    assert "cannot be trusted" in found.reason
    with pytest.raises(InputError, match="labels"):
        nsd.verdict(DEQ, X, richness=1.0)


def test_output_scale_scales_outputs_and_kernels():
    torch = pytest.importorskip("torch")
    rows = torch.from_numpy(X)
    for model in (DEQ, nsd.Explicit(["tanh"])):
        kind = nsd.nets.DEQNet if model is DEQ else nsd.nets.ExplicitNet
        plain, scaled = (
            kind(model, 6, 20, 2, seed=0, dtype=torch.float64, output_scale=scale) for scale in (1.0, 0.25)
        )
        torch.testing.assert_close(scaled(rows), 0.25 * plain(rows))
        kernels = [nsd.nets.empirical_kernels(net, rows) for net in (plain, scaled)]
        torch.testing.assert_close(kernels[1].ntk, kernels[0].ntk / 16.0)
    twin, _ = nsd.nets.explicit_twin(nsd.nets.DEQNet(DEQ, 6, 20, 2, seed=0, output_scale=0.25), X)
    assert twin.output_scale == 0.25
    with pytest.raises(InputError, match="output_scale"):
        nsd.nets.DEQNet(DEQ, 6, 20, 2, output_scale=0.0)
