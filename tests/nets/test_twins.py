"""Explicit twins: the right design, the right network, and evidence that is what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep.designs import twin_distances
from notsodeep.nets import ConvDEQNet, ConvExplicitNet, DEQNet, ExplicitNet, explicit_twin, twins


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


@pytest.mark.parametrize(("train", "kernel"), [("readout", "ck"), ("all", "ntk")])
def test_the_kernel_follows_what_is_trained(X, train, kernel):
    net = DEQNet(nsd.DEQ("tanh", 0.2), 80, 32, 2, train=train)
    assert explicit_twin(net, X, evidence=False).design.kernel == kernel


@pytest.mark.slow
def test_the_distance_is_that_of_the_exact_kernels(X):
    spec = nsd.DEQ("relu", 0.2).centred(norm_of(X))
    net = DEQNet(spec, 80, 32, 2, train="readout")
    found = explicit_twin(net, X, samples=300)
    rows = X.double().numpy()
    exact = nsd.conjugate_kernel(spec, rows)

    def distance(network: nsd.Explicit) -> float:
        gap = exact - nsd.conjugate_kernel(network, rows)
        return float(np.linalg.norm(gap, 2) / np.linalg.norm(exact, 2))

    depth = len(found.design.network.layers)
    plain = nsd.Explicit([spec.activation] * depth).centred(found.design.tau0)
    assert found.evidence.distance == pytest.approx(distance(found.design.network), rel=2e-3)
    assert found.evidence.plain_distance == pytest.approx(distance(plain), rel=2e-3)
    assert found.evidence.distance < 0.1 * found.evidence.plain_distance
    assert found.evidence.training_ratio is None
    assert "times as fast forward" in str(found.evidence)


@pytest.mark.parametrize("train", ["all", "readout"])
def test_a_model_with_a_bias_gets_a_twin_with_a_bias(X, train):
    net = DEQNet(nsd.DEQ("tanh", 0.3, bias2=0.2), 80, 24, 2, train=train, seed=0)
    found = explicit_twin(net, X, samples=150, batch=16)
    assert "injected" in found.design.family
    assert found.network.bias1.shape == (24,)
    assert found.evidence.distance < 1e-3
    assert found.evidence.distance < 0.05 * found.evidence.plain_distance


@pytest.mark.slow
def test_an_activation_with_a_mean_is_said(X):
    net = DEQNet(nsd.DEQ("relu", 0.2), 80, 16, 1)
    with pytest.warns(RuntimeWarning, match="or build the network from spec.centred"):
        explicit_twin(net, X, family="papers", evidence=False)


@pytest.mark.filterwarnings("error")
def test_a_model_with_a_mean_gets_the_injected_twin(X):
    net = DEQNet(nsd.DEQ("relu", 0.2), 80, 16, 1)
    twin, found = explicit_twin(net, X, evidence=False)
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


def test_speeds_are_compared_on_one_thread(monkeypatch):
    """Threads that wait for each other on a busy machine made a twin a hundred times as fast."""
    seen = []
    monkeypatch.setattr(twins, "work_time", lambda device: seen.append(torch.get_num_threads()) or len(seen))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        nets = [ExplicitNet(nsd.Explicit([phi]), 3, 8, 2, seed=0) for phi in ("tanh", "relu")]
        ratios = twins.speed_ratios(*nets, torch.zeros(6, 3))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
    assert ratios == (1.0, 1.0)


# --- images ----------------------------------------------------------------------------------------------------------


def images(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, *shape)) / np.sqrt(shape[0])


@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_the_twin_of_a_convolutional_network_and_its_evidence(readout: str) -> None:
    model, X = nsd.ConvDEQ("relu", 0.3, readout=readout), images(24, 2, 4, 4)
    net = ConvDEQNet(model, 2, 8, 3, 4, scaling="ntk", seed=0)
    found = explicit_twin(net, X, family="injected", layers=2, samples=8, batch=4, seed=1)
    twin, made = found
    assert isinstance(twin, ConvExplicitNet)
    assert twin.spec == made.network
    assert (len(made.network.layers), made.kernel, made.model) == (2, "ntk", model)
    assert (twin.sample_shape, twin.units, twin.out_features, twin.scaling) == ((2, 4, 4), 8, 3, "ntk")
    chosen = X[np.random.default_rng(0).permutation(24)[:8]]
    exact = [nsd.tangent_kernel(one, chosen) for one in (model, made.network)]
    distance = np.linalg.norm(exact[0] - exact[1], 2) / np.linalg.norm(exact[0], 2)
    assert found.evidence.distance == pytest.approx(distance, rel=1e-6)
    assert found.evidence.distance < 0.01 < found.evidence.plain_distance
    assert found.evidence.batch == 4
    assert found.evidence.forward_ratio > 1.0
    assert found.evidence.training_ratio > 1.0


def test_the_twin_of_a_convolutional_readout_has_the_conjugate_kernel() -> None:
    net = ConvDEQNet(nsd.ConvDEQ("relu", 0.3), 1, 4, 2, 4, train="readout")
    twin, made = explicit_twin(net, images(12, 1, 4, 4), evidence=False)
    assert made.kernel == "ck"
    assert twin.train_mode == "readout"
    with pytest.raises(nsd.InputError, match="other in_channels"):
        explicit_twin(net, images(12, 2, 4, 4))
