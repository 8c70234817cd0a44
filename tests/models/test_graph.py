"""Implicit graph networks against brute force, random networks, and kernels that ignore the graph."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from conv_oracles import erf_pairs
from scipy import sparse
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.fingerprint import fingerprint
from notsodeep.models import model_from_dict, normalised_adjacency

RNG = np.random.default_rng(0)
EDGES = np.triu(RNG.random((7, 7)) < 0.4, 1).astype(float)
GRAPH = normalised_adjacency(EDGES + EDGES.T)
FEATURES = RNG.standard_normal((7, 3)) / math.sqrt(3)


@pytest.mark.slow
@pytest.mark.parametrize("matrix", [GRAPH, 0.4 * RNG.standard_normal((7, 7))], ids=["graph", "any matrix"])
def test_kernels_follow_the_recursion(matrix: np.ndarray) -> None:
    """(10.7) as it is written; the tangent kernel from the adjoint of every pair of nodes, not forward."""
    model = nsd.GraphDEQ(matrix, "erf", 0.4, 0.7, 0.1)
    forcing = 0.7 * matrix @ FEATURES @ FEATURES.T @ matrix.T + 0.1
    covariance = forcing
    for _ in range(80):
        covariance = 0.4 * matrix @ erf_pairs(covariance)[0] @ matrix.T + forcing
    value, slope = erf_pairs(covariance)
    tangent = value.copy()
    for i, j in np.ndindex(7, 7):
        seed = np.zeros((7, 7))
        seed[i, j] = 1.0
        adjoint = slope * seed
        for _ in range(80):
            adjoint = slope * (seed + 0.4 * matrix.T @ adjoint @ matrix)
        tangent[i, j] += np.sum(adjoint * covariance)
    features, found, info = nsd.both_kernels(model, FEATURES, return_info=True)
    assert_close(features, value, Oracle.QUADRATURE)
    assert_close(found, tangent, Oracle.QUADRATURE)
    assert_close(nsd.conjugate_kernel(model, FEATURES, of="preactivations"), covariance, Oracle.QUADRATURE)
    assert 1 < info.iterations < 60
    assert info.residual <= 1e-12
    assert info.residual <= info.error_bound < 1e-10


@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
def test_nodes_that_see_themselves_alone_are_rows(name: str) -> None:
    model, dense = nsd.GraphDEQ(np.eye(7), name, 0.3, bias2=0.1), nsd.DEQ(name, 0.3, bias2=0.1)
    for found, wanted in zip(
        nsd.both_kernels(model, FEATURES), nsd.both_kernels(dense, FEATURES), strict=True
    ):
        assert_close(found, wanted, Oracle.QUADRATURE)


def test_names_of_nodes_do_not_matter() -> None:
    order = RNG.permutation(7)
    for name in ("relu", "tanh"):
        kernel = nsd.tangent_kernel(nsd.GraphDEQ(GRAPH, name, 0.5), FEATURES)
        assert np.array_equal(kernel, kernel.T)
        assert np.linalg.eigvalsh(kernel)[0] > -1e-12
        moved = nsd.tangent_kernel(nsd.GraphDEQ(GRAPH[np.ix_(order, order)], name, 0.5), FEATURES[order])
        assert_close(moved, kernel[np.ix_(order, order)], Oracle.QUADRATURE)


def test_normalised_adjacency() -> None:
    assert np.linalg.norm(GRAPH, 2) == pytest.approx(1.0, abs=1e-13)
    assert np.array_equal(normalised_adjacency(sparse.csr_matrix(EDGES + EDGES.T)), GRAPH)
    with pytest.raises(nsd.InputError, match="symmetric"):
        normalised_adjacency(EDGES)


def test_bad_input() -> None:
    model = nsd.GraphDEQ(GRAPH, "relu", 0.4)
    for X, Y in ((FEATURES[:3], None), (FEATURES, FEATURES)):
        with pytest.raises(nsd.InputError, match="one kernel, between all of its 7 nodes"):
            nsd.conjugate_kernel(model, X, Y)
    with pytest.raises(nsd.InputError, match=re.escape("square matrix, nodes by nodes; its shape is (2, 3)")):
        nsd.GraphDEQ(np.ones((2, 3)), "relu")
    with pytest.raises(nsd.InputError, match="finite"):
        nsd.GraphDEQ(np.full((2, 2), np.inf), "relu")
    with pytest.raises(nsd.InputError, match="ntk_paper"):
        nsd.tangent_kernel(model, FEATURES, of="paper")
    with pytest.raises(nsd.ConvergenceError, match="divide the propagation matrix by its norm"):
        nsd.conjugate_kernel(nsd.GraphDEQ(5.0 * GRAPH, "relu", 0.4), FEATURES)


def test_one_specification() -> None:
    models = [
        nsd.GraphDEQ(GRAPH, "relu", 0.4),
        nsd.GraphDEQ(GRAPH, "tanh", 0.4),
        nsd.GraphDEQ(GRAPH, "relu", 0.3),
        nsd.GraphDEQ(GRAPH, "relu", 0.4, 0.5),
        nsd.GraphDEQ(GRAPH, "relu", 0.4, bias2=0.1),
        nsd.GraphDEQ(0.9 * GRAPH, "relu", 0.4),
    ]
    assert len({fingerprint(model) for model in models}) == len(models) == len(set(models))
    for model in models:
        assert model_from_dict(json.loads(json.dumps(model.to_dict()))) == model
