"""Models cut after k steps from z = 0: kernels by the recursion as it is written, and random networks of tied weights.

Weights that all steps share give the kernels of weights of their own: gradients at different steps are independent
in the limit, so that only products of equal steps are left (docs/derivations.md, section 1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from conv_oracles import erf_pairs
from tolerances import Oracle, assert_close, assert_within_noise

import notsodeep as nsd
from notsodeep.models import normalised_adjacency

GENERATOR = np.random.default_rng(0)
EDGES = np.triu(GENERATOR.random((5, 5)) < 0.5, 1).astype(float)
GRAPH = normalised_adjacency(EDGES + EDGES.T)
ROWS = GENERATOR.standard_normal((5, 3)) / math.sqrt(3)
SEQUENCES = GENERATOR.standard_normal((4, 1, 5))
VARIANCES = (0.6, 0.5, 0.1)  # σ_a², σ_b², bias2


def mixing_matrix(kind: str) -> np.ndarray:
    """M with u = M z: the adjacency of a graph, or the taps of a filter at the positions of a sequence."""
    if kind == "graph":
        return GRAPH
    return np.eye(5) + np.eye(5, k=1) + np.eye(5, k=-1)


def recursion(kind: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """CK and NTK by fields over all pairs of nodes, or over the positions of all pairs of sequences (flatten)."""
    feedback, entry, bias = VARIANCES
    if kind == "graph":
        mix = lambda field: GRAPH @ field @ GRAPH.T  # noqa: E731
        product, total = ROWS @ ROWS.T, lambda field: field
    else:
        # Fields (positions, n, n): a filter moves both positions together.
        taps = mixing_matrix(kind)
        mix = lambda field: np.tensordot(taps, field, 1) / 3.0  # noqa: E731
        product = np.einsum("ics,jcs->sij", SEQUENCES, SEQUENCES)
        total = lambda field: field.mean(axis=0)  # noqa: E731

    def dual(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if covariance.ndim == 2:
            return erf_pairs(covariance)
        pairs = [erf_pairs(one) for one in covariance]
        return np.array([value for value, _ in pairs]), np.array([slope for _, slope in pairs])

    forcing = entry * mix(product) + bias
    covariance = tangent = forcing
    for _ in range(steps - 1):
        value, slope = dual(covariance)
        covariance = feedback * mix(value) + forcing
        tangent = covariance + feedback * mix(slope * tangent)
    value, slope = dual(covariance)
    return total(value), total(value + slope * tangent)


def model_and_samples(kind: str) -> tuple[Any, np.ndarray]:
    if kind == "graph":
        return nsd.GraphDEQ(GRAPH, "erf", *VARIANCES), ROWS
    if kind == "rows":
        return nsd.DEQ("erf", *VARIANCES), ROWS
    return nsd.ConvDEQ("erf", *VARIANCES), SEQUENCES


@pytest.mark.parametrize("kind", ["graph", "sequences"])
@pytest.mark.parametrize("steps", [1, 3])
def test_fields_against_the_recursion(kind: str, steps: int) -> None:
    model, samples = model_and_samples(kind)
    found = nsd.both_kernels(model.unrolled(steps), samples)
    for kernel, expected in zip(found, recursion(kind, steps), strict=True):
        assert_close(kernel, expected, Oracle.QUADRATURE)


@pytest.mark.parametrize("kind", ["rows", "graph", "sequences"])
def test_many_steps_are_the_equilibrium(kind: str) -> None:
    model, samples = model_and_samples(kind)
    cut, whole = (nsd.both_kernels(one, samples) for one in (model.unrolled(60), model))
    for kernel, expected in zip(cut, whole, strict=True):
        assert_close(kernel, expected, Oracle.QUADRATURE)


def tied_kernels(kind: str, steps: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """CK and NTK of one random network whose steps share all weights."""
    generator, (feedback, entry, bias) = torch.Generator().manual_seed(seed), VARIANCES

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    rows = torch.as_tensor(ROWS)
    weights = normal(width, width), normal(rows.shape[1], width), normal(width), normal(width)
    recurrent, inputs, offset, head = weights
    mix = torch.as_tensor(GRAPH) if kind == "graph" else torch.eye(len(rows), dtype=torch.float64)
    drive = mix @ (math.sqrt(entry) * rows @ inputs) + math.sqrt(bias) * offset
    u = drive
    for _ in range(steps - 1):
        u = mix @ (math.sqrt(feedback / width) * torch.erf(u) @ recurrent) + drive
    features = torch.erf(u) / math.sqrt(width)
    gradients = torch.stack(
        [
            torch.cat([part.reshape(-1) for part in torch.autograd.grad(one, weights, retain_graph=True)])
            for one in features @ head
        ]
    )
    features = features.detach()
    return (features @ features.T).numpy(), (gradients @ gradients.T).numpy()


@pytest.mark.parametrize("kind", ["rows", "graph"])
def test_random_networks_of_tied_weights(kind: str) -> None:
    model, samples = model_and_samples(kind)
    draws = [tied_kernels(kind, 3, 200, seed) for seed in range(24)]
    for number, kernel in enumerate(nsd.both_kernels(model.unrolled(3), samples)):
        assert_within_noise(kernel, [draw[number] for draw in draws], bias=0.02)
