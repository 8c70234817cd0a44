"""Explicit twins: the right design and the right network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep.designs import twin_distances
from notsodeep.nets import ConvDEQNet, ConvExplicitNet, DEQNet, ExplicitNet, explicit_twin


@pytest.fixture(scope="module")
def X() -> torch.Tensor:
    sample, _ = nsd.GaussianMixture.paper(p=80).sample(300, seed=0)
    return torch.as_tensor(sample, dtype=torch.float32)


def norm_of(X: torch.Tensor) -> float:
    return float(X.double().square().sum(dim=1).mean().sqrt())


@pytest.mark.slow
def test_unpacks_into_a_network_and_its_design(X):
    spec = nsd.DEQ("tanh", 0.2)
    net = DEQNet(spec, 80, 64, 3, train="readout", dtype=torch.float32)
    twin, design = explicit_twin(net, X)
    assert isinstance(twin, ExplicitNet)
    assert (twin.in_features, twin.width, twin.out_features, twin.train_mode) == (80, 64, 3, "readout")
    assert design.tau0 == pytest.approx(norm_of(X))
    assert twin.spec == design.network == nsd.design(spec, design.tau0, "ck", X=X).network
    assert twin(X).shape == (300, 3)


@pytest.mark.parametrize("train", ["all", "readout"])
def test_a_model_with_a_bias_gets_a_twin_with_a_bias(X, train):
    net = DEQNet(nsd.DEQ("tanh", 0.3, bias2=0.2), 80, 24, 2, train=train, seed=0)
    found = explicit_twin(net, X)
    assert "injected" in found.design.family
    assert found.network.bias1.shape == (24,)
    distances = twin_distances(found.design, X[:150])
    assert distances.twin.relative < 1e-3
    assert distances.twin.relative < 0.05 * min(one.relative for one in distances.plain.values())


@pytest.mark.slow
def test_an_activation_with_a_mean_is_said(X):
    net = DEQNet(nsd.DEQ("relu", 0.2), 80, 16, 1)
    with pytest.warns(RuntimeWarning, match="or build the network from spec.centred"):
        explicit_twin(net, X, family="papers")


@pytest.mark.filterwarnings("error")
def test_a_model_with_a_mean_gets_the_injected_twin(X):
    net = DEQNet(nsd.DEQ("relu", 0.2), 80, 16, 1)
    twin, found = explicit_twin(net, X)
    assert found.model == net.spec
    assert "injected" in found.family
    assert twin_distances(found, X).twin.up_to_factor < 1e-3
    # All layers read the input by one matrix, as the DEQ does: 80 inputs are multiplied once.
    assert [name for name, one in twin.named_parameters() if one.shape[-1] == 80] == ["weight1"]


def test_rows_on_which_the_papers_design_is_close_keep_it_and_others_get_the_injected_one():
    """One layer of the papers is enough where rows are nearly orthogonal and of one norm."""
    generator = np.random.default_rng(0)
    even = generator.standard_normal((120, 3000))
    even /= np.linalg.norm(even, axis=1, keepdims=True)
    uneven = even * generator.uniform(0.3, 1.7, 120)[:, None] + even[:1]
    kept = nsd.design(nsd.DEQ("tanh", 0.2), even, X=even)
    assert kept == nsd.design(nsd.DEQ("tanh", 0.2), even, family="papers")
    replaced = nsd.design(nsd.DEQ("tanh", 0.2), uneven, X=uneven)
    assert "injected" in replaced.family
    assert "more product" in replaced.explain()
    papers = nsd.design(nsd.DEQ("tanh", 0.2), uneven, family="papers")
    nearer, further = (twin_distances(made, uneven).twin.up_to_factor for made in (replaced, papers))
    assert nearer < further
    assert further > 1e-3


def test_bad_input(X):
    explicit = ExplicitNet(nsd.Explicit(["relu"]), 80, 16, 1)
    with pytest.raises(nsd.InputError, match="takes a DEQNet or a ConvDEQNet, not ExplicitNet"):
        explicit_twin(explicit, X)
    with pytest.raises(nsd.InputError, match="must have 7 columns"):
        explicit_twin(DEQNet(nsd.DEQ("tanh", 0.2), 7, 16, 1), X)


# --- images ----------------------------------------------------------------------------------------------------------


def images(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, *shape)) / np.sqrt(shape[0])


@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_the_twin_of_a_convolutional_network(readout: str) -> None:
    model, X = nsd.ConvDEQ("relu", 0.3, readout=readout), images(24, 2, 4, 4)
    net = ConvDEQNet(model, 2, 8, 3, 4, scaling="ntk", seed=0)
    found = explicit_twin(net, X, family="injected", layers=2, seed=1)
    twin, made = found
    assert isinstance(twin, ConvExplicitNet)
    assert twin.spec == made.network
    assert (len(made.network.layers), made.kernel, made.model) == (2, "ntk", model)
    assert (twin.sample_shape, twin.units, twin.out_features, twin.scaling) == ((2, 4, 4), 8, 3, "ntk")
    distances = twin_distances(made, X[:8])
    assert distances.twin.relative < 0.01 < min(one.relative for one in distances.plain.values())


def test_the_twin_of_a_convolutional_readout_has_the_conjugate_kernel() -> None:
    net = ConvDEQNet(nsd.ConvDEQ("relu", 0.3), 1, 4, 2, 4, train="readout")
    twin, made = explicit_twin(net, images(12, 1, 4, 4))
    assert made.kernel == "ck"
    assert twin.train_mode == "readout"
    with pytest.raises(nsd.InputError, match="other in_channels"):
        explicit_twin(net, images(12, 2, 4, 4))
