"""Kernels of models in continuous time: a graph model whose graph is time (docs/theory.md, section 14).

The covariance of the states of two samples at two times solves Λ = b + σ_w² I F(Λ) Iᵀ on nodes in time, with the
integration matrix I in the place of the propagation matrix of a graph. Every sample is a block of nodes; two samples
are a field (times, times), all pairs of a tile are one tile of `duals.dual` whose rows are samples and times. A model
is a `NeuralODE`, or anything with its attributes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from notsodeep.duals.dual import Dual, DualEvidence
from notsodeep.errors import ConvergenceError
from notsodeep.kernel_names import Kernel
from notsodeep.models.field_equilibrium import evaluate
from notsodeep.models.programs import EntrywiseTile, RowProgram, is_kinked
from notsodeep.models.protocol import Samples
from notsodeep.models.spot_check import SpotCheck
from notsodeep.models.time_nodes import TimeNodes, time_nodes
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

# Residual of Λ relative to √(Λ_ii Λ_jj), and change of linear fixed points, at which iterations stop.
TOLERANCE, LINEAR = 1e-13, 1e-14
# Residual that is accepted where rounding prevents smaller ones.
ROUNDED = 1e-11
MAX_STEPS, LINEAR_STEPS = 500, 1000
# Numbers of nodes that are tried, the error in time that is aimed at, and the largest that is accepted.
COUNTS, AIM, ACCEPTED = (4, 6, 8, 11, 15, 20, 27, 36, 48), 1e-11, 1e-3
# Kinked activations have kernels with a kink at equal times: the error falls as a power of the number of nodes only.
KINKED_AIM = 1e-6
# Factor by which the variances of one `Dual` extend beyond those that were seen; growth that is refused.
MARGIN, LIMIT = 4.0, 1e12
# Samples along each side of a tile.
SIDE = 64
# Directions, as cosines with the first axis, of the samples on which the number of nodes is chosen.
PROBES = (1.0, 0.9, 0.0, -1.0)


def mix(matrix: Array, fields: Array) -> Array:
    """M field Mᵀ for fields (n, times, m, times)."""
    n, rows, m, columns = fields.shape
    once = np.matmul(matrix, fields.reshape(n, rows, m * columns))
    return np.asarray((once.reshape(-1, columns) @ matrix.T).reshape(n, len(matrix), m, len(matrix)))


def reduce(weights: Array, fields: Array) -> Array:
    """Σ_ab w_a w_b field(a, b) for fields (n, times, m, times)."""
    return np.asarray(np.tensordot(fields @ weights, weights, axes=([1], [0])))


def linear_fixed_point(right: Array, matrix: Array, gain: Array, accuracy: float = LINEAR) -> Array:
    """Δ = right + M (gain ∘ Δ) Mᵀ by iteration; for integrals up to the present it always converges."""
    total = term = right
    for _ in range(LINEAR_STEPS):
        term = mix(matrix, gain * term)
        total = total + term
        if not np.abs(term).max() > accuracy * np.abs(total).max():
            break
    return total


def base_field(model: Any, nodes: TimeNodes) -> Array:
    """What an inner product of 1 gives without feedback, at two nodes; the last node is the end."""
    reach = np.append(nodes.integral.sum(axis=1), nodes.end.sum())
    start = nodes.fade
    return np.asarray(model.sigma_u2 * np.outer(start, start) + model.sigma_b2 * np.outer(reach, reach))


def own_variances(
    model: Any, nodes: TimeNodes, squares: Array, careful: bool = False
) -> tuple[Array, DualEvidence]:
    """Λ_ii(t, t) of every sample, (samples, times), and how F was evaluated."""
    count = len(nodes.times)
    base = squares[:, None, None] * base_field(model, nodes)[:-1, :-1]
    covariance, largest, span, dual = base, np.inf, np.ones(2), Dual(model.activation, np.ones(1))
    own, limit = np.arange(count), LIMIT * (1.0 + float(base.max(initial=0.0)))
    for _ in range(MAX_STEPS):
        q = np.diagonal(covariance, axis1=1, axis2=2)
        seen = q[q > 0.0]
        if len(seen) and not span[0] <= seen.min() <= seen.max() <= span[1]:
            # Variances change from step to step: a range that serves most of them.
            span = np.array([seen.min() / MARGIN, seen.max() * MARGIN])
            dual = Dual(model.activation, span, covariance.size)
        dual.careful = careful
        left, right = dual.rows(q), dual.columns(q)
        value, slope = np.empty((2, *covariance.shape))
        evidence = evaluate(dual, left, right, np.ascontiguousarray(covariance), value, slope, (own, own))
        moved = base + model.sigma_w2 * (nodes.integral @ value @ nodes.integral.T)
        moved = 0.5 * (moved + moved.swapaxes(1, 2))
        scale = np.sqrt(np.maximum(np.diagonal(moved, axis1=1, axis2=2), 1e-300))
        change = np.abs(moved - covariance) / (scale[:, :, None] * scale[:, None, :])
        covariance = moved
        if not float(covariance.max(initial=0.0)) <= limit:
            break
        largest, before = float(change.max(initial=0.0)), largest
        if largest <= TOLERANCE or 0.5 * before <= largest <= ROUNDED:
            return np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0), evidence
    raise ConvergenceError(
        f"The state of {model} grows beyond {limit:.1g} before the end, or has no solution on {count} nodes.",
        "Shorten the duration, lower sigma_w2, or give the model a decay.",
    )


class TimeKernels:
    """All kernels of pairs of samples on given nodes in time.

    Args:
        model: the model.
        nodes: the nodes.
        rows: squared norms of the samples of the rows, followed by anchors.
        columns: the same of the columns; None for the same samples.
        tangent: whether tangent kernels are needed.
        careful: every pair is integrated by itself.
    """

    def __init__(
        self, model: Any, nodes: TimeNodes, rows: Array, columns: Array | None, tangent: bool,
        careful: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.tangent, self.nodes, self.count = model, tangent, nodes, len(nodes.times)
        found = [own_variances(model, nodes, part, careful) for part in (rows, columns) if part is not None]
        own, self.evidence = [part[0].reshape(1, -1) for part in found], found[0][1]
        self.dual = Dual(model.activation, np.concatenate(own, axis=1), own[0].size * own[-1].size)
        self.dual.careful = careful
        self.left = self.dual.rows(own[0])
        self.right = self.dual.columns_like(self.left) if columns is None else self.dual.columns(own[1])
        self.check = SpotCheck(model.activation, tangent)

    def error_growth(self) -> float:
        """How much an error of F, relative to √(S S'), grows on its way to the kernel, relative to √(K_ii K_jj)."""
        strength, nodes = self.model.sigma_w2, self.nodes
        roots = [np.sqrt(part[0]).reshape(-1, self.count) for part in (self.left.energy, self.left.steep)]
        sizes, slopes = (root[:, :, None, None] * root[:, None, None, :] for root in roots)
        moved = linear_fixed_point(strength * mix(nodes.integral, sizes), nodes.integral, strength * slopes)
        grown = strength * reduce(nodes.end, sizes + slopes * moved)[:, 0]
        squares = self.left.variances[0].reshape(-1, self.count)[:, -1]
        return float((grown / squares).max(initial=0.0))

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels of these samples from their inner products c."""
        model, nodes, count = self.model, self.nodes, self.count
        left, right = (
            side[part.start * count : part.stop * count]
            for side, part in ((self.left, rows), (self.right, columns))
        )
        base = base_field(model, nodes)
        entering = c[:, None, :, None] * base[None, :-1, None, :-1]
        own = np.arange(left.count if diagonal else 0)
        covariance, value, slope, evidence, residual = self._solve(entering, left, right, own)
        number = rows.start + 3 * columns.start
        shape = (1, left.count, right.count)
        fields = [part.reshape(shape) for part in (covariance, value, slope)]
        self.check.add(left, right, fields[0], fields[1], fields[2], number)
        features = base[-1, -1] * c + model.sigma_w2 * reduce(nodes.end, value)
        kernels = {Kernel.CK: features, Kernel.CK_PREACTIVATIONS: features}
        if self.tangent:
            inner = self._tangent(c, value, slope)
            kernels |= {Kernel.NTK: features + inner, Kernel.NTK_PREACTIVATIONS: inner}
        evidence = evidence.merge(self.evidence)
        methods = (*evidence.methods, f"{count} nodes in time")
        info = KernelInfo(0, residual, evidence.error, evidence.fallback_pairs, methods)
        return EntrywiseTile(kernels, info)

    def _solve(
        self, entering: Array, left: Any, right: Any, own: Any
    ) -> tuple[Array, Array, Array, DualEvidence, float]:
        """Λ, F and F' of a tile by Newton's method: variances are known."""
        shape, flat = entering.shape, (1, left.count, right.count)
        scale = (left.root[0][:, None] * right.root[0]).reshape(shape)
        covariance, strength, matrix = entering, self.model.sigma_w2, self.nodes.integral
        (value, slope), before = np.empty((2, *shape)), np.inf
        for _ in range(MAX_STEPS):
            covariance = np.clip(covariance, -scale, scale)
            if len(own):
                covariance.reshape(flat)[:, own, own] = np.where(left.silent, 0.0, left.variances)
            evidence = evaluate(
                self.dual, left, right, covariance.reshape(flat), value.reshape(flat), slope.reshape(flat), (own, own)
            )  # fmt: skip
            rest = entering + strength * mix(matrix, value) - covariance
            residual = float((np.abs(rest) / scale).max(initial=0.0))
            if residual <= TOLERANCE or not np.isfinite(residual):
                return covariance, value, slope, evidence, residual
            if residual <= ROUNDED and residual >= 0.5 * before:
                # Rounding prevents smaller residuals.
                return covariance, value, slope, evidence, residual
            before = residual
            # Newton's method squares the residual: more accuracy would be lost.
            accuracy = max(LINEAR, 0.1 * residual)
            covariance = covariance + linear_fixed_point(rest, matrix, strength * slope, accuracy)
        raise ConvergenceError(
            f"The covariances of two samples did not converge: residual {residual:.2g}.",
            "Shorten the duration, lower sigma_w2, or give the model a decay.",
        )

    def _tangent(self, c: Array, value: Array, slope: Array) -> Array:
        """What all weights but the readout give, (14.4)."""
        model, nodes, strength = self.model, self.nodes, self.model.sigma_w2
        last = nodes.fade[:-1][::-1]
        unit = np.broadcast_to(np.outer(last, last)[None, :, None, :], slope.shape)
        gradient = linear_fixed_point(unit, nodes.backward, strength * slope)
        arrived = nodes.fade[-1] ** 2 + strength * reduce(nodes.start, gradient * slope)
        return np.asarray(
            strength * reduce(nodes.weights, gradient * value)
            + model.sigma_u2 * c * arrived
            + model.sigma_b2 * c * reduce(nodes.weights, gradient)
        )


class TimeProgram(RowProgram):
    """The kernels of a model in continuous time, on as many nodes as its samples need, or on given nodes."""

    tile_side = SIDE

    def __init__(
        self, model: Any, left: Samples, right: Samples | None, tangent: bool, nodes: TimeNodes | None = None
    ) -> None:  # fmt: skip
        super().__init__(left, right)
        self.model, self.tangent = model, tangent
        squares, others = self.squares
        norms = squares if others is None else np.concatenate([squares, others])
        self.time_error, self.growth = 0.0, 1.0
        if nodes is None:
            count, self.time_error, self.growth = nodes_needed(model, norms, tangent)
            nodes = time_nodes(count, model.duration, model.decay)
        self.nodes = nodes
        self._start_kernels(careful=False)

    def _start_kernels(self, careful: bool) -> None:
        self.kernels = TimeKernels(self.model, self.nodes, *self.squares, self.tangent, careful)
        self.checks = [self.kernels.check]

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair by quadrature."""
        self._start_kernels(careful=True)

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels of a tile; their error bound includes that of the nodes in time."""
        tile, phi = self.kernels.tile(start, rows, columns, diagonal=diagonal), self.model.activation
        error = self.time_error + self.growth * (tile.info.error_bound + tile.info.residual)
        info = replace(tile.info, error_bound=error).with_caveat(phi.caveat, phi.shape.inaccuracy)
        return EntrywiseTile(tile.kernels, info)


def nodes_needed(model: Any, squares: Array, tangent: bool) -> tuple[int, float, float]:
    """The number of nodes in time, the error that it leaves, and the growth of errors of F.

    The error is the change of the kernels of a few samples with extreme norms when more nodes are taken.
    """
    seen = squares[squares > 0.0]
    if not len(seen):
        return COUNTS[0], 0.0, 1.0
    roots, cosines = np.sqrt(np.unique([seen.min(), seen.max()])), np.array(PROBES)
    directions = np.stack([cosines, np.sqrt(1.0 - cosines**2)], axis=1)
    probes = (roots[:, None, None] * directions).reshape(-1, 2)
    aim = KINKED_AIM if is_kinked(model.activation) else AIM
    before, growth = _probe_kernels(model, COUNTS[0], probes, tangent)
    for count, more in pairwise(COUNTS):
        after, more_growth = _probe_kernels(model, more, probes, tangent)
        error = float(np.abs(after - before).max())
        if error <= aim:
            return count, error, growth
        before, growth = after, more_growth
    if not error <= ACCEPTED:
        raise ConvergenceError(
            f"{COUNTS[-1]} nodes in time leave a relative error of {error:.1g} in the kernels of {model}.",
            "Shorten the duration, lower sigma_w2 or the decay.",
        )
    return COUNTS[-1], error, growth


def _probe_kernels(model: Any, count: int, probes: Array, tangent: bool) -> tuple[Array, float]:
    """The kernels of the probes relative to √(K_ii K_jj), and the growth of errors."""
    everything, gram = slice(0, len(probes)), probes @ probes.T
    nodes = time_nodes(count, model.duration, model.decay)
    kernels = TimeKernels(model, nodes, np.diag(gram).copy(), None, tangent)
    tile = kernels.tile(gram, everything, everything, diagonal=True)
    names = (Kernel.CK, Kernel.NTK) if tangent else (Kernel.CK,)
    values = [tile.kernel(name) for name in names]
    roots = [np.sqrt(np.maximum(np.diag(value), 1e-300)) for value in values]
    relative = [value / np.outer(root, root) for value, root in zip(values, roots, strict=True)]
    return np.array(relative), kernels.error_growth()


__all__ = ["TimeKernels", "TimeProgram", "base_field", "linear_fixed_point", "mix", "own_variances", "reduce"]
