"""Implicit graph networks: deep equilibrium models whose nodes read their neighbours (docs/theory.md, section 10).

    S = normalised_adjacency(adjacency)
    model = GraphDEQ(S, "relu", sigma_a2=0.5)
    K = conjugate_kernel(model, features)        # features (nodes, p); K (nodes, nodes)

The nodes of a graph are coupled, so that all of them are computed at once: X has one row for each node, there is no Y,
and a kernel of this model is one block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.duals.dual import Dual
from notsodeep.duals.sides import Side
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping, number
from notsodeep.kernel_names import Kernel
from notsodeep.models.deq import VARIANCES, RecurrentModel, refuse_unknown
from notsodeep.models.explicit import Explicit, FeedforwardModel, layer_words
from notsodeep.models.field_equilibrium import evaluate
from notsodeep.models.programs import EntrywiseTile
from notsodeep.models.protocol import RowModel, Samples, WriteActivation
from notsodeep.models.spot_check import SpotCheck
from notsodeep.models.tiling import for_each_tile
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, as_real

# Residual of Λ relative to √(Λ_ii Λ_jj), and change of Π, at which the iterations stop.
TOLERANCE = 1e-13
MAX_STEPS = 2000
# Factor by which the variances of one `Dual` extend beyond those that were seen.
MARGIN = 4.0


def normalised_adjacency(adjacency: Any) -> Array:
    """The propagation matrix D^{-1/2} (A + I) D^{-1/2} of a graph, D the degrees of A + I; its norm is 1.

    Args:
        adjacency: A, nodes by nodes, symmetric, with no negative entries; an array or a sparse matrix of scipy.
    """
    matrix = _square(adjacency, "adjacency")
    if matrix.min() < 0.0 or not np.array_equal(matrix, matrix.T):
        raise InputError(
            "adjacency must be symmetric with no negative entries. Use A + A.T for directed edges."
        )
    looped = matrix + np.eye(len(matrix))
    root = 1.0 / np.sqrt(looped.sum(axis=1))
    return np.asarray(root[:, None] * looped * root)


def _square(values: Any, name: str) -> Array:
    dense = values.toarray() if hasattr(values, "toarray") else values
    matrix = np.array(as_real(dense, name), dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise InputError(f"{name} must be a square matrix, nodes by nodes; its shape is {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise InputError(f"{name} has entries that are not finite.")
    return matrix


class GraphModel(RowModel):
    """What models of the nodes of a graph have in common.

    Attributes:
        propagation: S, nodes by nodes.
    """

    propagation: Array
    dense: Any

    def _set_propagation(self, propagation: Any) -> None:
        matrix = _square(propagation, "propagation")
        matrix.setflags(write=False)
        object.__setattr__(self, "propagation", matrix)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, GraphModel)
            and self.dense == other.dense
            and np.array_equal(self.propagation, other.propagation)
        )

    def __hash__(self) -> int:
        return hash((self.dense, self.propagation.tobytes()))

    def _check_nodes(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> None:
        nodes = len(self.propagation)
        if right is not None or len(left.values) != nodes:
            rows = "two sets of rows" if right is not None else f"{len(left.values)} rows"
            raise InputError(
                f"A graph has one kernel, between all of its {nodes} nodes: X must have a row for each node, in their "
                f"order, and there is no Y; got {rows}. On disk or on a cluster use block={nodes}."
            )
        if Kernel.NTK_PAPER in kernels:
            raise InputError("The papers' tangent kernel 'ntk_paper' is not defined for a graph. Use 'ntk'.")


@dataclass(frozen=True, init=False, eq=False)
class GraphDEQ(RecurrentModel, GraphModel):
    """An implicit graph network: every node reads φ of its neighbours and the input of its neighbours, (10.7).

        u_i = Σ_k S_ik (σ_a/√m A φ(u_k) + σ_b B x_k) + bias

    Args:
        propagation: S, nodes by nodes; `normalised_adjacency(adjacency)` makes one from a graph.
        activation: φ, by name or as an Activation.
        sigma_a2: width times the variance of a recurrent weight.
        sigma_b2: variance of an input weight; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
    """

    propagation: Array
    activation: Activation
    sigma_a2: float
    sigma_b2: float
    bias2: float

    def __init__(
        self,
        propagation: Any,
        activation: str | Activation,
        sigma_a2: float = 0.2,
        sigma_b2: float | None = None,
        bias2: float = 0.0,
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, VARIANCES)
        self._set_propagation(propagation)
        self._set_variances(activation, sigma_a2, sigma_b2, bias2)

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> GraphProgram:
        """The fixed point over all pairs of nodes."""
        self._check_nodes(left, right, kernels)
        return GraphProgram(self, left, any(kernel.is_tangent for kernel in kernels))

    def network(
        self,
        layers: Iterable[Activation],
        *,
        weights: Sequence[float] | None = None,
        inject: Sequence[float] | None = None,
    ) -> GraphExplicit:
        """An explicit network of these layers on the same graph, with the same bias."""
        return GraphExplicit(self.propagation, layers, weights=weights, inject=inject, bias2=self.bias2)

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole model as plain JSON values, from which `model_from_dict` makes it again."""
        dense = self.dense.to_dict(write)
        return {**dense, "kind": "graph_deq", "propagation": (self.propagation + 0.0).tolist()}

    @classmethod
    def from_dict(cls, data: Any) -> GraphDEQ:
        """The model that `to_dict` wrote down."""
        names = ("sigma_a2", "sigma_b2", "bias2")
        entry = mapping(data, "a model", ("kind", "propagation", "activation", *names))
        numbers = [number(entry[name], name) for name in names]
        return cls(entry["propagation"], activation_from_dict(entry["activation"]), *numbers)

    def __str__(self) -> str:
        return f"Graph{str(self.dense)[:-1]}, {len(self.propagation)} nodes)"


@dataclass(frozen=True, init=False, eq=False)
class GraphExplicit(FeedforwardModel, GraphModel):
    """A feed-forward graph network whose layers may read the input again: the recursion of (10.7), not its limit.

        u^(l)_i = Σ_k S_ik (√w_l W_l φ_(l-1)(u^(l-1)_k) + √c_l B_l x_k) + bias

    Args:
        propagation: S, nodes by nodes.
        layers: the activations, by name or as Activations.
        weights: the variances w_l of the weights, one for each layer; all 1 if None.
        inject: the variances c_l of the weights that read the input again, one for each layer after the first; all 0
            if None.
        bias2: variance of the bias of every layer.
    """

    propagation: Array
    layers: tuple[Activation, ...]
    weights: tuple[float, ...]
    inject: tuple[float, ...]
    bias2: float

    def __init__(
        self,
        propagation: Any,
        layers: Iterable[str | Activation],
        *,
        weights: Sequence[float] | None = None,
        inject: Sequence[float] | None = None,
        bias2: float = 0.0,
    ) -> None:
        self._set_propagation(propagation)
        self._set_layers(layers, weights, inject, bias2)

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> GraphFeedforward:
        """The layer recursion over all pairs of nodes."""
        self._check_nodes(left, right, kernels)
        return GraphFeedforward(self, left, any(kernel.is_tangent for kernel in kernels))

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole network as plain JSON values, from which `model_from_dict` makes it again."""
        matrix = (self.propagation + 0.0).tolist()
        return {"kind": "graph_explicit", "network": self.dense.to_dict(write), "propagation": matrix}

    @classmethod
    def from_dict(cls, data: Any) -> GraphExplicit:
        """The network that `to_dict` wrote down."""
        entry = mapping(data, "a model", ("kind", "network", "propagation"))
        dense = Explicit.from_dict(entry["network"])
        settings: dict[str, Any] = {"weights": dense.weights, "inject": dense.inject, "bias2": dense.bias2}
        return cls(entry["propagation"], dense.layers, **settings)

    def __str__(self) -> str:
        bias = [f"bias2={self.bias2:g}"] if self.bias2 else []
        nodes = f"{len(self.propagation)} nodes"
        return f"GraphExplicit({', '.join([*layer_words(self.inputs), *bias, nodes])})"


class GraphProgram:
    """All kernels of the nodes of one graph: Λ by iteration of (10.7), Π by iteration of (10.8)."""

    def __init__(self, model: GraphDEQ, nodes: Samples, tangent: bool) -> None:
        self.model = model
        self.nodes, self.tangent, self.careful = nodes, tangent, False
        self.check = SpotCheck(model.activation, tangent)
        self.checks = [self.check]

    def mix(self, field: Array) -> Array:
        """S M Sᵀ, for a symmetric M symmetric to the last bit."""
        mixed = self.model.propagation @ field @ self.model.propagation.T
        return np.asarray(0.5 * (mixed + mixed.T))

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair of nodes by quadrature."""
        self.careful = True

    @cached_property
    def whole(self) -> EntrywiseTile:
        """All kernels of all pairs of nodes, computed when they are first needed."""
        model, samples = self.model, self.nodes.values
        forcing = model.sigma_b2 * self.mix(samples @ samples.T) + model.bias2
        covariance, features, slope, info = self._equilibrium(forcing, self.tangent)
        arrival = self._arrival(covariance, slope) if self.tangent else None
        return _all_kernels(features, covariance, slope, arrival, info)

    def _equilibrium(self, forcing: Array, tangent: bool) -> tuple[Array, Array, Array, KernelInfo]:
        """Λ, F(Λ) and F'(Λ) at the fixed point."""
        value, slope = np.empty_like(forcing), np.empty_like(forcing)
        covariance, residual, span = forcing, np.inf, np.array([1.0, 1.0])
        dual, limit = Dual(self.model.activation, span), 1e6 * (1.0 + float(np.abs(forcing).max()))
        for step in range(MAX_STEPS):
            q = np.diag(covariance)
            seen = q[q > 0.0]
            if len(seen) and not span[0] <= seen.min() <= seen.max() <= span[1]:
                # Variances change from step to step: a range that serves most of them.
                span = np.array([seen.min() / MARGIN, seen.max() * MARGIN])
                dual = Dual(self.model.activation, span, q.size**2)
            dual.careful = self.careful
            left, right = dual.rows(q[None]), dual.columns(q[None])
            info = _evaluate(dual, left, right, covariance, value, slope)
            if residual <= TOLERANCE:
                self.check.add(left, right, covariance[None], value[None], slope[None])
                rate = self._rate(left)
                if tangent and rate >= 1.0:
                    raise ConvergenceError(
                        f"The tangent kernel may diverge: σ_a² ‖S‖² E[φ'²] = {rate:.4g} ≥ 1.",
                        f"Lower sigma_a2 below {self.model.sigma_a2 / rate:.4g}.",
                    )
                error = info.error_bound + (residual + info.error_bound) / max(1.0 - rate, 1e-3)
                phi, info = (
                    self.model.activation,
                    replace(info, iterations=step, residual=residual, error_bound=error),
                )
                return covariance, value, slope, info.with_caveat(phi.caveat, phi.shape.inaccuracy)
            moved = self.model.sigma_a2 * self.mix(value) + forcing
            scale = np.sqrt(np.diag(moved))
            if not float(scale.max()) <= limit:
                break
            bound = np.multiply.outer(scale, scale)
            residual = float(np.max(np.abs(moved - covariance) / np.where(bound > 0.0, bound, 1.0)))
            covariance = moved
        raise ConvergenceError(
            "The covariances of the nodes have no limit: signals grow from step to step.",
            "Lower sigma_a2, divide the propagation matrix by its norm, or use an activation with smaller slopes.",
        )

    def _rate(self, side: Side) -> float:
        """σ_a² ‖S‖² times the largest E[φ'²] of a node."""
        norm = float(np.linalg.norm(self.model.propagation, 2))
        return float(self.model.sigma_a2 * norm**2 * side.steep.max())

    def _arrival(self, covariance: Array, slope: Array) -> Array:
        """Π = Λ + σ_a² S (F' ∘ Π) Sᵀ, the tangent kernel of the pre-activations, (10.8)."""
        arrival = covariance
        for _ in range(MAX_STEPS):
            moved = covariance + self.model.sigma_a2 * self.mix(slope * arrival)
            change, arrival = float(np.abs(moved - arrival).max()), moved
            if change <= TOLERANCE * float(np.abs(arrival).max()):
                return arrival
        raise ConvergenceError("The tangent kernel of the nodes did not converge.", "Lower sigma_a2.")

    def start(self) -> Array:
        """An array of zeros: the kernels of all nodes are computed together."""
        return np.zeros_like(self.whole.kernels[Kernel.CK])

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The part of every kernel at these nodes."""
        parts = {name: matrix[rows, columns] for name, matrix in self.whole.kernels.items()}
        return EntrywiseTile(parts, self.whole.info)


def _all_kernels(
    features: Array, covariance: Array, slope: Array, arrival: Array | None, info: KernelInfo
) -> EntrywiseTile:
    """All kernels from G, Λ, F' and Π; without Π no tangent kernels."""
    kernels = {Kernel.CK: features, Kernel.CK_PREACTIVATIONS: covariance}
    if arrival is not None:
        kernels |= {Kernel.NTK: features + slope * arrival, Kernel.NTK_PREACTIVATIONS: arrival}
    return EntrywiseTile(kernels, info)


class GraphFeedforward(GraphProgram):
    """All kernels of an explicit graph network: Λ and Π layer by layer, as in (10.7) and (10.8)."""

    model: GraphExplicit  # type: ignore[assignment]

    def __init__(self, model: GraphExplicit, nodes: Samples, tangent: bool) -> None:
        self.model = model
        self.nodes, self.tangent, self.careful = nodes, tangent, False
        self.checks = [SpotCheck(layer.phi, tangent) for layer in model.inputs]

    @cached_property
    def whole(self) -> EntrywiseTile:
        """All kernels of all pairs of nodes, computed when they are first needed."""
        product = self.mix(self.nodes.values @ self.nodes.values.T)
        signal, passed, info = product, np.zeros_like(product), KernelInfo(0, 0.0, 0.0, 0)
        for layer, check in zip(self.model.inputs, self.checks, strict=True):
            covariance = layer.weight * signal + layer.inject * product + layer.constant
            arrival = covariance + layer.weight * passed
            value, slope = np.empty_like(covariance), np.empty_like(covariance)
            q = np.diag(covariance)
            span = q[q > 0.0] if (q > 0.0).any() else np.ones(1)
            dual = Dual(layer.phi, np.array([span.min(), span.max()]), q.size**2)
            dual.careful = self.careful
            left, right = dual.rows(q[None]), dual.columns(q[None])
            found = _evaluate(dual, left, right, covariance, value, slope)
            check.add(left, right, covariance[None], value[None], slope[None])
            found = replace(found, error_bound=info.error_bound + found.error_bound)
            info = info.merge(found.with_caveat(layer.phi.caveat, layer.phi.shape.inaccuracy))
            signal, passed = self.mix(value), self.mix(slope * arrival)
        return _all_kernels(value, covariance, slope, arrival if self.tangent else None, info)


def _evaluate(
    dual: Dual, left: Side, right: Side, covariance: Array, value: Array, slope: Array
) -> KernelInfo:
    """F and F' of all pairs of nodes, tile by tile."""

    def work(rows: slice, columns: slice) -> KernelInfo:
        part = covariance[None, rows, columns].copy()
        results = np.empty((2, *part.shape))
        own = np.arange(part.shape[1] if rows == columns else 0)
        evidence = evaluate(dual, left[rows], right[columns], part, results[0], results[1], (own, own))
        for whole, (tile,) in zip((value, slope), results, strict=True):
            # On the diagonal of the matrix the lower half counts.
            whole[rows, columns] = np.tril(tile) if len(own) else tile
            whole[columns, rows] = tile.T if not len(own) else np.tril(tile) + np.tril(tile, -1).T
        return KernelInfo(0, 0.0, evidence.error, evidence.fallback_pairs, evidence.methods)

    return for_each_tile(work, len(value), len(value), symmetric=True)


__all__ = ["GraphDEQ", "GraphExplicit", "normalised_adjacency"]
