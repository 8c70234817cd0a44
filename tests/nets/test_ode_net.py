"""Neural ODEs in torch: gradients three ways, empirical kernels against exact ones, training."""

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep.nets.modules import network_of

SPEC = nsd.NeuralODE("tanh", 1.3, 1.2, 0.8, sigma_b2=0.4, decay=0.3)
X = torch.tensor(np.random.default_rng(1).normal(size=(4, 6)) / np.sqrt(6))


def net_of(spec=SPEC, width=30, outputs=1, **options):
    return network_of(spec, (6,), width, outputs, seed=options.pop("seed", 0), dtype=torch.float64, **options)


def test_gradients_agree_with_finite_differences():
    net = net_of(tolerance=1e-11)
    loss = net(X).square().sum()
    loss.backward()
    for name in ("recurrent", "start", "inputs", "readout"):
        weights = getattr(net, name)
        direction = torch.randn(
            weights.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weights += step * direction
                values.append(float(net(X).square().sum()))
                weights -= step * direction
        difference = (values[0] - values[1]) / 2e-5
        assert float((weights.grad * direction).sum()) == pytest.approx(difference, rel=1e-6), name


def test_empirical_kernels_approach_the_exact_ones_with_the_width():
    exact = [nsd.conjugate_kernel(SPEC, X.numpy()), nsd.tangent_kernel(SPEC, X.numpy())]
    distances = []
    for width in (60, 960):
        found = [
            nsd.nets.empirical_kernels(net_of(width=width, outputs=4, seed=s, tolerance=1e-6), X)
            for s in range(4)
        ]
        pairs = [[kernels.ck.numpy(), kernels.ntk.numpy()] for kernels in found]
        errors = np.linalg.norm(np.array(pairs) - exact, axis=(2, 3)) / np.linalg.norm(exact, axis=(1, 2))
        distances.append(np.sqrt(np.mean(errors**2, axis=0)))
    assert np.all(distances[1] < 0.15)
    # 16 times the width: a quarter of the distance, within the noise of four networks.
    assert np.all(distances[1] < 0.5 * distances[0])


def test_it_trains_like_every_other_network():
    rng = np.random.default_rng(0)
    rows = torch.tensor(rng.normal(size=(120, 6)) / np.sqrt(6), dtype=torch.float32)
    labels = (rows[:, 0] * rows[:, 1] > 0).long()
    net = network_of(nsd.NeuralODE("tanh", 1.5, 1.0), (6,), 64, 2, seed=0)
    nsd.nets.fit(net, (rows, labels), epochs=40, lr=0.02, seed=0)
    with torch.no_grad():
        assert float((net(rows).argmax(dim=1) == labels).float().mean()) > 0.9


def test_unusable_arguments_are_refused():
    with pytest.raises(nsd.InputError, match="method='euler' is not known"):
        net_of(method="euler")
    with pytest.raises(nsd.InputError, match="takes a NeuralODE"):
        nsd.nets.ODENet(nsd.DEQ("tanh"), 6, 10, 1)
    with pytest.raises(nsd.ConvergenceError, match="did not reach the end"):
        net_of(nsd.NeuralODE("relu", 100.0, 200.0), train="readout")(X)
