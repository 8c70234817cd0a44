"""Explicit networks that see the input again, against quadrature, random networks, and a DEQ that is cut."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import oracles
import pytest
import torch
from tolerances import Oracle, assert_close, assert_within_noise

import notsodeep as nsd
from notsodeep.equivalents.expansion import expand
from notsodeep.fingerprint import fingerprint
from notsodeep.kernels import exact_kernel, random_features
from notsodeep.models import model_from_dict

WEIGHTS, INJECT = (0.7, 0.4, 0.3), (0.6, 0.9)
X = np.array([[1.0, 0.0, 0.2], [0.6, 0.9, 0.0], [-0.5, 0.1, 1.1], [1.8, -0.4, 0.3]])
FOUR = ("ck", "ntk", "ck_preactivations", "ntk_preactivations")


def phi(name: str) -> nsd.Activation:
    return nsd.activation(name, **oracles.reference(name).parameters)


def injected(*names: str, bias2: float = 0.0) -> nsd.Explicit:
    variances = {"weights": WEIGHTS[: len(names)], "inject": INJECT[: len(names) - 1]}
    return nsd.Explicit(map(phi, names), **variances, bias2=bias2)


def brute(names: tuple[str, ...], i: int, j: int, bias2: float = 0.0) -> tuple[float, float, float, float]:
    """The recursion (7.9) for one pair, each expectation by quadrature: G, Θ, Λ, Π."""
    q1, q2, inner = float(X[i] @ X[i]), float(X[j] @ X[j]), float(X[i] @ X[j])
    norms, features, tangent = (q1, q2), inner, inner
    for number, name in enumerate(names):
        weight, again = WEIGHTS[number], (0.0, *INJECT)[number]
        q1, q2 = weight * q1 + again * norms[0] + bias2, weight * q2 + again * norms[1] + bias2
        covariance = weight * features + again * inner + bias2
        tangent = weight * tangent + again * inner + bias2
        sigma, before = oracles.reference(name), tangent
        dual = oracles.exact_dual(sigma, q1, q2, min(max(covariance / math.sqrt(q1 * q2), -1.0), 1.0))
        q1, q2 = (oracles.exact_dual(sigma, q, q, 1.0).value for q in (q1, q2))
        features, tangent = dual.value, dual.value + dual.slope * tangent
    return features, tangent, covariance, before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "bias2"),
    [
        (("relu",) * 3, 0.0),
        (("tanh",) * 3, 0.3),
        (("hard_tanh", "gelu"), 0.0),
        (("abs", "tanh", "relu"), 0.2),
    ],
)
def test_kernels_follow_the_recursion(names: tuple[str, ...], bias2: float) -> None:
    model = injected(*names, bias2=bias2)
    expected = np.array([[brute(names, i, j, bias2) for j in range(len(X))] for i in range(len(X))])
    for number, kernel in enumerate(FOUR):
        found = exact_kernel(model, X, kernel=kernel)
        assert_close(found, expected[:, :, number], Oracle.QUADRATURE)
        part = exact_kernel(model, X[:2], X, kernel=kernel)
        assert_close(part, expected[:2, :, number], Oracle.QUADRATURE)
    assert model_from_dict(json.loads(json.dumps(model.to_dict()))) == model
    assert fingerprint(model) != fingerprint(injected(*names, bias2=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "tanh", "swish"])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_deq_that_is_cut_is_one_of_them(name: str, depth: int) -> None:
    deq = nsd.DEQ(name, 0.3, 0.6)
    network = nsd.Explicit([name] * depth, weights=[0.6, *[0.3] * (depth - 1)], inject=[0.6] * (depth - 1))
    for kernel in FOUR:
        for other in (None, X[1:]):
            cut = exact_kernel(deq.unrolled(depth), X, other, kernel=kernel)
            np.testing.assert_allclose(exact_kernel(network, X, other, kernel=kernel), cut, rtol=1e-12)


@pytest.mark.parametrize("name", ["relu", "hard_tanh", "abs"])
def test_equal_and_opposite_rows_keep_their_digits(name: str) -> None:
    rows = np.vstack([X, X[0], -X[1], 3.0 * X[2]])
    ntk = exact_kernel(injected(name, name, name), rows, kernel="ntk")
    assert_close(ntk[0, 4], ntk[0, 0], Oracle.IDENTITY)
    assert_close(ntk[4], ntk[0], Oracle.IDENTITY)
    turned = exact_kernel(injected(name, name, name), np.vstack([-X[1], X]), kernel="ntk")
    assert_close(turned[0, 2], ntk[1, 5], Oracle.IDENTITY)


def test_random_networks_agree() -> None:
    model = injected("tanh", "relu", "tanh")
    features = [random_features(model, X, 600, np.random.default_rng(seed)) for seed in range(20)]
    draws = np.array([one @ one.T for one in features])
    assert_within_noise(exact_kernel(model, X, kernel="ck"), draws, bias=0.02, resolution=0.1)


@pytest.mark.parametrize("share", [False, True])
def test_the_torch_network_approaches_the_kernels(share: bool) -> None:
    model = injected("tanh", "relu", "tanh")
    inputs = torch.tensor(X)
    draws = []
    for seed in range(20):
        net = nsd.nets.ExplicitNet(model, 3, 400, 1, seed=seed, share_input=share, dtype=torch.float64)
        found = nsd.nets.empirical_kernels(net, inputs)
        draws.append(np.stack([np.asarray(found.ck), np.asarray(found.ntk).reshape(4, 4)]))
    wanted = np.stack([exact_kernel(model, X, kernel=kernel) for kernel in ("ck", "ntk")])
    assert_within_noise(wanted, np.array(draws), bias=0.02, resolution=0.1)


@pytest.mark.parametrize("share", [False, True])
def test_the_torch_network_counts_every_weight(share: bool) -> None:
    """The tangent kernel from the groups of weights is that of all gradients, by autograd."""
    net = nsd.nets.ExplicitNet(
        injected("tanh", "gelu", "tanh"),
        *(3, 12, 1),
        scaling="ntk",
        share_input=share,
        dtype=torch.float64,
    )
    separate = set() if share else {"input2", "input3"}
    assert {name for name, _ in net.named_parameters()} == {
        "weight1",
        "weight2",
        "weight3",
        "readout",
    } | separate
    gradients = []
    for row in torch.tensor(X):
        parts = torch.autograd.grad(net(row[None])[0, 0], list(net.parameters()))
        gradients.append(torch.cat([part.flatten() for part in parts]).numpy())
    jacobian = np.array(gradients)
    found = np.asarray(nsd.nets.empirical_kernels(net, torch.tensor(X)).ntk).reshape(4, 4)
    assert_close(found, jacobian @ jacobian.T, Oracle.IDENTITY)


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
def test_the_series_is_that_of_the_exact_kernel(kernel: str) -> None:
    network, small = injected("gelu", "relu", "tanh"), 1e-3
    rows = np.array([[1.1, 0.0], [small, 0.8]])
    squares = (rows**2).sum(axis=1)
    series = expand(network, squares[:1], squares[1:], kernel, 3, 0.0)[:, 0, 0]
    inner = rows[0] @ rows[1]
    expected = series @ inner ** np.arange(4)
    assert_close(exact_kernel(network, rows, kernel=kernel)[0, 1], expected, Oracle.QUADRATURE)


def test_text_and_fingerprint_know_the_variances() -> None:
    network = injected("relu", "tanh", "gelu")
    text = json.dumps(network.to_dict())
    assert model_from_dict(json.loads(text)) == network
    others = [
        nsd.Explicit(network.layers),
        nsd.Explicit(network.layers, weights=WEIGHTS),
        nsd.Explicit(network.layers, weights=WEIGHTS, inject=(0.6, 0.90001)),
    ]
    assert len({fingerprint(model) for model in (network, *others)}) == 4
    assert "inject=[0.6, 0.9]" in str(network)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": [1.0]}, "weights takes 2"),
        ({"inject": [1.0, 1.0]}, "inject takes 1"),
        ({"inject": [-0.1]}, "inject"),
        ({"weights": 0.5}, "list of variances"),
        ({"weights": [1.0, float("nan")]}, "weights"),
    ],
)
def test_variances_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(nsd.InputError, match=words):
        nsd.Explicit(["relu", "relu"], **options)
